"""Laws of the blast radius by property: it lists what a query names, all of it and nothing else."""

from __future__ import annotations

import pathlib
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.address import Address
from gitops.cluster.plan.impact import step_subjects, used_subjects
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.schema import compile_schema
from gitops.database.language.text import LanguageError
from tests.support.cases import read_yaml
from tests.support.effort import cases
from tests.support.impact import desired, impact_of, planned

DATA = pathlib.Path(__file__).parents[1] / "data" / "languages" / "query"
RAIL = compile_schema((DATA / "rail.pg").read_bytes()).catalog
SEEDS = [path.read_bytes().strip() for path in sorted(DATA.glob("seeds/*.gq"))]
WORDS = (DATA / "seeds" / "words.txt").read_text("utf-8").split()

TYPES = ("Ant", "Bee", "Cat")
NAMES = ("alpha", "beta", "gamma", "delta")
EDGES = {"Likes": ("Ant", "Bee"), "Chases": ("Cat", "Bee"), "Meets": ("Ant", "Ant")}


def checked(source: bytes):
    """Every query of the text that is sound."""
    try:
        parsed = parse_queries(source)
    except LanguageError:
        return
    for query in parsed:
        try:
            yield check_query(query, RAIL)
        except LanguageError:
            continue


def assert_same_properties(source: bytes) -> int:
    found = list(checked(source))
    for query in found:
        subjects = used_subjects(query)
        named = {(s.type_name, s.property_name) for s in subjects if s.property_name is not None}
        assert named == query.uses
        # Whoever uses a property uses its type, and reads or writes it.
        assert {name for name, _ in named} <= {s.type_name for s in subjects if s.property_name is None}
        assert all(use.reads or use.writes for use in subjects.values())
        touched = {(access.kind.value, access.type_name) for access in (*query.reads, *query.writes)}
        assert {(s.kind, s.type_name) for s in subjects} <= touched
    return len(found)


def test_of_every_sound_example_the_properties_are_those_that_the_checker_saw():
    examples = read_yaml(DATA / "accepted.yaml")
    texts = [case["text"].encode() for case in examples]
    assert sum(map(assert_same_properties, [*SEEDS, *texts])) > len(SEEDS)


@settings(max_examples=cases(200))
@given(st.sampled_from(SEEDS), st.data())
def test_of_every_sound_mutation_too(seed: bytes, data: st.DataObject) -> None:
    words = seed.split(b" ")
    at = data.draw(st.integers(0, len(words) - 1))
    words[at] = data.draw(st.sampled_from([b"", *[word.encode() for word in WORDS], *words]))
    assert_same_properties(b" ".join(words))


@st.composite
def _schemas(draw: st.DrawFn) -> tuple[str, str]:
    """Before and after: properties stay, go, come, are renamed or get an index; a type may be renamed."""
    renamed = draw(st.sampled_from([None, *TYPES]))
    new = {name: "Dog" if name == renamed else name for name in TYPES}
    before, after = [], []
    for name in TYPES:
        old_lines, new_lines = ["handle: String @key"], ["handle: String @key"]
        for each in NAMES:
            fate = draw(st.sampled_from(["absent", "kept", "kept", "dropped", "added", "renamed", "indexed"]))
            if fate not in ("absent", "added"):
                old_lines.append(f"{each}: I32?")
            if fate in ("kept", "added", "indexed"):
                new_lines.append(f"{each}: I32?{' @index' if fate == 'indexed' else ''}")
            if fate == "renamed":
                new_lines.append(f'{each}_now: I32? @rename_from("{each}")')
        hint = f' @rename_from("{name}")' if name == renamed else ""
        before.append(f"node {name} {{ {' '.join(old_lines)} }}")
        after.append(f"node {new[name]}{hint} {{ {' '.join(new_lines)} }}")
    for edge, (source, target) in EDGES.items():
        before.append(f"edge {edge}: {source} -> {target}")
        after.append(f"edge {edge}: {new[source]} -> {new[target]}")
    return "\n".join(before), "\n".join(after)


@st.composite
def _queries(draw: st.DrawFn, schema: str) -> dict[str, str]:
    """Sound queries of a schema: reads over a node or an edge, updates and deletes."""
    catalog, found = compile_schema(schema.encode()).catalog, {}
    for number in range(draw(st.integers(0, 5))):
        name, node = f"q{number}", draw(st.sampled_from(sorted(catalog.nodes)))
        shape = draw(st.sampled_from(["node", "edge", "update", "delete"]))
        pick = st.sampled_from(sorted(catalog.nodes[node].properties))
        if shape == "node":
            body = f"match {{ $a: {node} }} return {{ $a.{draw(pick)}, $a.{draw(pick)} as other }}"
        elif shape == "edge":
            edge = draw(st.sampled_from(sorted(catalog.edges)))
            target = catalog.nodes[catalog.edges[edge].target]
            shown = draw(st.sampled_from(sorted(target.properties)))
            body = f"match {{ $a {edge.lower()} $b }} return {{ $b.{shown} }}"
        elif shape == "update":
            written = draw(st.sampled_from([p for p in catalog.nodes[node].properties if p != "handle"] or [None]))
            assigned = "handle: $h" if written is None else f"{written}: 1"
            body = f"{shape} {node} set {{ {assigned} }} where handle = $h"
        else:
            body = f"{shape} {node} where handle = $h"
        found[f"{name}.gq"] = f"query {name}($h: String) {{ {body} }}"
    return found


@settings(max_examples=cases(150), deadline=None)
@given(st.data())
def test_no_query_is_listed_that_names_neither_the_subject_nor_anything_bound_to_its_type(data: st.DataObject) -> None:
    old, new = data.draw(_schemas())
    before, after = data.draw(_queries(old)), data.draw(_queries(new))
    plan = planned(desired(old, before), desired(new, after))
    change = plan.change(Address("schema.g"))
    if change is None:
        return
    said = {name: f"{before.get(name, '')} {after.get(name, '')}" for name in {*before, *after}}
    ends = {edge: {*pair} for edge, pair in EDGES.items()}
    subjects = step_subjects(change.migration.steps)
    for about, queries in zip(subjects, impact_of(plan).queries, strict=True):
        for touch in queries:
            words = set(re.findall(r"\w+", said[touch.query.rpartition(".")[2] + ".gq"]))
            assert any(_named(subject, words, ends) for subject in about.before | about.after)


def _named(subject, words: set[str], ends: dict[str, set[str]]) -> bool:
    if subject.property_name is not None:
        return subject.property_name in words
    # A variable is bound to a type by its name, or as the end of a hop over an edge that the text names.
    bound = any(edge.lower() in words for edge, types in ends.items() if types & {subject.type_name, *_former(subject)})
    return subject.type_name in words or bound


def _former(subject) -> set[str]:
    """The one type that may have become `Dog` is not told by its name: any end will do."""
    return set(TYPES) if subject.type_name == "Dog" else set()
