"""Every case of `tests/data/queries`, over the reference evaluator and over the engine."""

from __future__ import annotations

import json

import pytest

from gitops.database.graph.load import LoadMode
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.query import QueryResult, Strategy
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.language.text import LanguageError
from tests.reference import Mode, Refused, answer, load, mutate
from tests.support import query_engine
from tests.support.query_cases import Case, cases, changed, contents, ground, same_bag, same_result
from tests.support.query_engine import Run, outcome, refused_alike

CASES = cases()
RUN = [case for case in CASES if "checks" not in case.members]
READS = [case for case in RUN if not {"do", "load"} & case.members.keys()]
WRITES = [case for case in RUN if {"do", "load"} & case.members.keys()]
EXAMPLES = {*(f"E{n}" for n in range(1, 48)), *(f"M{n}" for n in range(1, 17))}


def test_every_worked_example_is_a_case():
    named = {case.members["name"].split()[0] for case in CASES}
    assert named >= EXAMPLES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_reference_gives_what_the_case_says(case: Case):
    base = ground(case.graph)
    schema, graph = base.schema, base.graph(case)
    before = contents(schema, graph)
    if "checks" in case.members:
        with pytest.raises(LanguageError) as refused:
            case.checked(schema)
        assert case.members["checks"] in str(refused.value)
    elif "fails" in case.members:
        with pytest.raises(Refused) as verdict:
            run_on_reference(case)
        assert verdict.value.why == case.members["fails"], verdict.value
    elif "rows" in case.members:
        found = answer(schema, graph, case.checked(schema), case.params, case.options)
        expected = case.expected(case.checked(schema))
        assert same_bag(found.rows, expected)
        assert not found.total or found.rows == expected
        assert same_result(found, expected)
    else:
        outcome = run_on_reference(case)
        assert outcome[0] == case.members.get("affects", outcome[0])
        assert outcome[1] == changed(case, schema, graph)
    assert contents(schema, graph) == before


def run_on_reference(case: Case):
    """What a write affects and leaves; a read for its refusal."""
    base = ground(case.graph)
    schema, graph = base.schema, base.graph(case)
    if "load" in case.members:
        return None, contents(
            schema, load(schema, graph, case.members["load"].splitlines(), Mode(case.members["mode"]))
        )
    if "do" not in case.members:
        return answer(schema, graph, case.checked(schema), case.params, case.options)
    outcome = mutate(schema, graph, case.checked(schema), case.params, case.options)
    return [outcome.nodes, outcome.edges], contents(schema, outcome.graph)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The graphs of the cases, on disk."""
    return query_engine.World(tmp_path_factory.mktemp("graphs"))


@pytest.mark.parametrize("case", READS, ids=lambda case: case.name)
def test_the_engine_reads_what_the_case_says_under_every_strategy(case: Case, world):
    base = ground(case.graph)
    checked = case.checked(base.schema)
    run = Run(open_snapshot(world.root(case)), checked, case.params, case.options)
    results = {strategy: outcome(lambda strategy=strategy: run.under(strategy)) for strategy in Strategy}
    if "fails" in case.members:
        assert all(refused_alike(case.members["fails"], result) for result in results.values()), results
        return
    expected = answer(base.schema, base.graph(case), checked, case.params, case.options)
    for strategy, result in results.items():
        assert isinstance(result, QueryResult), (strategy, result)
        assert same_bag(result.rows(), case.expected(checked)), strategy
        assert same_result(expected, result.rows()), (strategy, result.rows())
        assert result.columns == expected.columns
        assert result.touched == frozenset(checked.reads), "what the checker says a query reads is what it reads"


@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_the_engine_writes_what_the_case_says(case: Case, world):
    base = ground(case.graph)
    schema, uri = base.schema, world.root(case)
    graph, before = base.graph(case), open_snapshot(uri).manifest
    if "fails" in case.members:
        refusal = outcome(lambda: run_on_engine(case, uri))
        assert refused_alike(case.members["fails"], refusal), refusal
        assert open_snapshot(uri).manifest == before
        assert contents(schema, query_engine.contents_of(uri, schema)) == contents(schema, graph)
        return
    affected, version = run_on_engine(case, uri)
    assert written(before, open_snapshot(uri).manifest) <= declared_writes(case)
    expected = changed(case, schema, graph)
    assert affected == case.members.get("affects", affected)
    assert contents(schema, query_engine.contents_of(uri, schema)) == expected
    after = open_snapshot(uri).manifest
    assert version == after.n
    touched = affected != [0, 0] if "do" in case.members else bool(case.members["load"].strip())
    assert after.n == before.n + touched


def run_on_engine(case: Case, uri: str):
    """What a write affects, and the version that has it."""
    if "load" in case.members:
        lines = case.members["load"].splitlines()
        return None, query_engine.load_lines(uri, lines, LoadMode(case.members["mode"]), start=90_000)
    checked = case.checked(ground(case.graph).schema)
    result = query_engine.write(uri, checked, case.params, case.options)
    return [result.affected_nodes, result.affected_edges], result.manifest_version


def written(before: Manifest, after: Manifest) -> set[str]:
    """The keys of the tables that a write changed."""
    return {key for key, entry in after.tables.items() if before.tables[key] != entry}


def declared_writes(case: Case) -> set[str]:
    """The keys of the tables that a write may change: what the checker says of a mutation, what a load names."""
    if "do" in case.members:
        checked = case.checked(ground(case.graph).schema)
        return {f"{each.kind.value}:{each.type_name}" for each in checked.writes}
    records = [json.loads(line) for line in case.members["load"].splitlines() if line.strip()]
    return {f"node:{each['type']}" if "type" in each else f"edge:{each['edge'].title()}" for each in records}
