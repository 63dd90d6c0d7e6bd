"""Laws of a migration in two halves: together they are the migration, and what the first one does can be taken back."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Effect
from gitops.cluster.plan.classes import effects_of
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.load import LoadMode
from gitops.database.graph.port import MigrationPreview
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.schema.migration import expanded_source, plan_migration
from gitops.database.language.schema.steps import DropProperty, DropType, RenameProperty, RenameType
from tests.reference import Graph
from tests.support.evolution import evolve, revisions, shape
from tests.support.ids import SequentialIds
from tests.support.query_engine import CLOCK, contents_of, load_lines
from tests.support.random_graphs import SCALARS, Shape, records, shapes

WITH_INTERFACES = (
    b"interface I { a: I32?  b: I32? } node N implements I { k: String @key } node M { k: String @key }",
    b"interface I { b: I32?  c: I32? } node N implements I { k: String @key } node O { k: String @key }",
)
"""A property that an interface gives up and one that it gets, a node type that goes and one that comes."""


@st.composite
def moved(draw: st.DrawFn, before: Shape) -> Shape:
    """A shape in which a type has other properties, and perhaps an edge type less."""
    owner = draw(st.sampled_from([each for each in (*before.nodes, *before.edges) if each.properties]))
    plain = [name for name, kind in owner.properties if "@" not in kind]
    gone = draw(st.sampled_from(plain)) if plain else None
    kept = tuple(each for each in owner.properties if each[0] != gone)
    added = tuple(
        (f"new{at}", kind) for at, kind in enumerate(draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=2)))
    )
    nodes, edges = (
        tuple(replace(each, properties=(*kept, *added)) if each is owner else each for each in types)
        for types in (before.nodes, before.edges)
    )
    return Shape(nodes, edges[draw(st.integers(0, 1)) :])


@st.composite
def moves(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """The texts of a shape and of what it moves to."""
    start = draw(shapes())
    return start.source, draw(moved(start)).source


@given(revisions(mixed=True))
@example(WITH_INTERFACES)
def test_halves_carried_out_one_after_the_other_are_the_migration(pair: tuple[bytes, bytes]) -> None:
    before, after = map(compile_schema, pair)
    whole = plan_migration(before, after)
    text = expanded_source(before, after, whole)
    assume(text is not None)
    between = compile_schema(text or b"")
    first, second = plan_migration(before, between), plan_migration(between, after)
    assert first.steps
    assert not any(isinstance(step, DropProperty | DropType) for step in first.steps)
    assert all(isinstance(step, DropProperty | DropType) for step in second.steps)
    assert {*first.steps, *second.steps} == {*whole.steps}
    halfway = evolve(shape(before.ir), first.steps, shape(after.ir))
    assert halfway == shape(between.ir)
    assert evolve(halfway, second.steps, shape(after.ir)) == shape(after.ir)
    assert expanded_source(before, between, first) is None


@given(moves())
@example(WITH_INTERFACES)
def test_what_is_staged_can_be_taken_back(pair: tuple[bytes, bytes]) -> None:
    """Back in the accepted schema everything is as it was, by a migration that drops only what the first half added."""
    before, after = map(compile_schema, pair)
    preview = MigrationPreview.between(before, after)
    change = Change(Address("schema.g"), Action.UPDATE, "0" * 64, "1" * 64, migration=preview)
    classified = effects_of([change])[change.address]
    assume(classified.expanded is not None)
    assert classified.effect is Effect.STAGE
    between = compile_schema(preview.expanded or b"")
    back = plan_migration(between, before)
    assert back.supported
    assert evolve(shape(between.ir), back.steps, shape(before.ir)) == shape(before.ir)
    names = shape(before.ir)
    for step in back.steps:
        if isinstance(step, DropType):
            assert (step.type_kind.value, step.name) not in names
        elif isinstance(step, DropProperty):
            assert step.property_name not in names[step.type_kind.value, step.type_name]["properties"]


@given(revisions())
def test_only_what_drops_and_does_something_else_has_halves(pair: tuple[bytes, bytes]) -> None:
    before, after = map(compile_schema, pair)
    whole = plan_migration(before, after)
    drops = [step for step in whole.steps if isinstance(step, DropProperty | DropType)]
    cut = expanded_source(before, after, whole) is not None
    plain = not any(isinstance(step, RenameType | RenameProperty) for step in whole.steps)
    mixed = whole.supported and 0 < len(drops) < len(whole.steps)
    assert not cut or mixed
    assert cut or not mixed or not plain


def _seen(graph: Graph, schema: Schema) -> list[object]:
    """What a reader by a schema finds in a graph that has more."""
    catalog = schema.catalog
    nodes = [
        (name, key, {column: row[column] for column in declared.properties})
        for name, declared in catalog.nodes.items()
        for key, row in sorted(graph.nodes[name].items())
    ]
    edges = [
        (name, key, edge.src, edge.dst, {column: edge.row[column] for column in declared.properties})
        for name, declared in catalog.edges.items()
        for key, edge in sorted(graph.edges[name].items())
    ]
    return [*nodes, *edges]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.data())
def test_rows_after_the_halves_are_those_after_the_migration(data: st.DataObject) -> None:
    """On real tables; readers by the accepted schema miss nothing between them, and the first half can be taken back."""
    start = data.draw(shapes())
    lines, end = data.draw(records(start)), data.draw(moved(start))
    before, after = start.schema(), end.schema()
    preview = MigrationPreview.between(before, after)
    assume(preview.expanded is not None)
    between = compile_schema(preview.expanded or b"")
    engine = LanceEngine(CLOCK, SequentialIds())
    with TemporaryDirectory() as folder:
        at_once, halved, taken_back = (str(Path(folder, name)) for name in ("once.omni", "halved.omni", "back.omni"))
        engine.prepare_create(at_once, before.source, actor=None).publish()
        if lines:
            load_lines(at_once, lines, LoadMode.APPEND)
        rows = contents_of(at_once, before)
        for other in (halved, taken_back):
            shutil.copytree(at_once, other, symlinks=True)
        engine.prepare_migration(at_once, after.source, actor=None).publish()
        for uri in (halved, taken_back):
            engine.prepare_migration(uri, between.source, actor=None).publish()
            assert _seen(contents_of(uri, between), before) == _seen(rows, before)
        engine.prepare_migration(halved, after.source, actor=None).publish()
        engine.prepare_migration(taken_back, before.source, actor=None).publish()
        assert contents_of(halved, after) == contents_of(at_once, after)
        assert engine.read(halved).schema_source == engine.read(at_once).schema_source == after.source
        assert contents_of(taken_back, before) == rows
        assert engine.read(taken_back).schema_source == before.source
