"""Trials on copies of real graphs: what each scenario finds, and that the live graph stays byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database import graph
from gitops.database.graph.engine import accept_schema, plan_migration
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.snapshot import open_snapshot
from gitops.repository.wiring.previews import open_ask
from gitops.repository.wiring.stores import open_bucket
from gitops.review.previews import order as orders
from gitops.review.previews.order import AllowedRows, GraphOrder, Job, QueryOrder, Task
from gitops.review.previews.record import GraphPreview
from tests.integration.database.graph.test_migration_stories import STORIES, Graph
from tests.support.cases import read_yaml
from tests.support.effort import cases as cases_of
from tests.support.pages import ROOT
from tests.support.previews import answered, stored
from tests.support.random_graphs import changes, records, shapes
from tests.support.s3 import S3Place

SCENARIOS = read_yaml(ROOT / "tests/data/previews.yaml")
NOW = "2026-01-01T00:00:00Z"


class Tried:
    """A graph with its copies."""

    def __init__(
        self, folder: Path, before: str, rows: list[Any], after: str | None, bucket: str | None = None
    ) -> None:
        place = bucket or str(folder)
        self.graph = Graph(f"{place}/graphs/g.omni", before)
        lines = [each if isinstance(each, str) else json.dumps(each) for each in rows]
        self.graph.load(*map(json.loads, lines))
        self.live = folder / "graphs"
        self.before, self.after = f"{place}/previews/before.omni", f"{place}/previews/after.omni"
        self.bytes = stored(self.live)
        self.schema = after
        manifest = open_snapshot(self.graph.uri).manifest
        self.order = GraphOrder("g", self.graph.uri, manifest.n, manifest.txn_id, self.before, self.after, after)

    def run(self) -> GraphPreview:
        return orders.GRAPH_ANSWER.read(answered(Job(Task.GRAPH, orders.GRAPH_ORDER.write(self.order))))

    def query(
        self, recorded: str | None, declared: str | None, samples: Any = (), rows: AllowedRows | None = None
    ) -> Any:
        steps = () if self.schema is None else self.graph.engine.preview(self.before, self.schema.encode()).steps
        after = self.before if self.schema is None else self.after
        order = QueryOrder("q", self.before, after, recorded, declared, tuple(steps), tuple(samples), NOW, rows)
        return answered(Job(Task.QUERY, orders.QUERY_ORDER.write(order)))

    def unchanged(self) -> bool:
        return stored(self.live) == self.bytes


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"])
def test_a_preview_finds(tmp_path: Path, scenario: Mapping[str, Any]) -> None:
    tried = Tried(tmp_path, scenario["before"], scenario["records"], scenario.get("after"))
    found = tried.run()
    assert found.code is None
    checks = [[c.subject, c.rule, c.rows, c.of, c.runs] for c in found.checks]
    assert checks == scenario.get("checks", [])
    assert (found.migration is None) is (scenario.get("after") is None or bool(checks))
    if "steps" in scenario:
        assert found.migration is not None
        assert [[each.kind, each.rows] for each in found.migration.steps] == scenario["steps"]
    if "find" in scenario:
        answer = tried.query(scenario["find"], scenario.get("declared", scenario["find"]), scenario.get("samples", ()))
        run = answer["run"]
        shown = {"effects": None, **run, **run["columns"], "rows": list(run["rows"].values())}
        assert run["code"] is None
        assert {name: shown[name] for name in scenario["finds"]} == scenario["finds"]
        assert answer["shown"] == []
    assert tried.unchanged()


def test_a_query_that_needs_too_much_memory_or_time_ends_with_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"type": "Person", "data": {"name": f"n{n}"}} for n in range(200)]
    tried = Tried(tmp_path, "node Person { name: String @key }", rows, None)
    tried.run()
    product = "query q() { match { $a: Person $b: Person $c: Person } return { $a.name, $b.name, $c.name } }"
    monkeypatch.setattr(orders, "QUERY_BYTES", 1024 * 1024)
    assert tried.query(None, product)["run"]["code"] == "query_memory_exceeded"
    monkeypatch.undo()
    monkeypatch.setattr(orders, "COMPARED_ROWS", 100)
    text = "query q() { match { $a: Person } return { $a.name } }"
    assert tried.query(text, text)["run"]["code"] == "preview_limit"


def test_only_allowed_columns_of_allowed_rows_are_answered(tmp_path: Path) -> None:
    rows = [{"type": "Person", "data": {"name": f"n{n}", "mail": f"secret {n}"}} for n in range(9)]
    tried = Tried(tmp_path, "node Person { name: String @key  mail: String? }", rows, None)
    tried.run()
    both = "query q() { match { $p: Person } return { $p.name, $p.mail } }"
    none = 'query q() { match { $p: Person { name: "n0" } } return { $p.name, $p.mail } }'
    assert "secret" not in json.dumps(tried.query(both, none))
    shown = tried.query(both, none, rows=AllowedRows(("p.name",), 2))["shown"]
    assert shown == [{"kind": "removed", "cells": {"p.name": f"n{n}"}} for n in (1, 2)]


def test_a_whole_preview_in_a_bucket_writes_only_copies(s3: S3Place, tmp_path: Path) -> None:
    """Copies and graph are in one bucket. Removing the copies leaves no object."""
    rows = [{"type": "Person", "data": {"name": f"n{n}", "mail": f"m{n}"}} for n in range(3)]
    before = "node Person { name: String @key  mail: String? @index }"
    tried = Tried(tmp_path, before, rows, before.replace("mail: String?", "mail: String"), s3.root)
    bucket = open_bucket(s3.root)
    live = {key: bucket.read(key) for key in bucket.keys("") if key.startswith("graphs/")}
    found = tried.run()
    assert (found.code, found.broken, [(each.rows, each.of) for each in found.checks]) == (None, 0, [(0, 3)])
    assert found.migration is not None
    text = "query q($mail: String) { match { $p: Person { mail: $mail } } return { $p.name } }"
    run = tried.query(text, text)["run"]
    assert (run["code"], run["sets"], run["rows"]["after"], run["rows"]["changed"]) == (None, 3, 3, 0)
    assert {key: bucket.read(key) for key in bucket.keys("") if key.startswith("graphs/")} == live
    written = {key.partition("/")[0] for key in bucket.keys("")}
    assert written == {"graphs", "previews"}


def test_a_graph_that_was_replaced_or_collected_is_not_previewed(tmp_path: Path) -> None:
    tried = Tried(tmp_path, "node Person { name: String @key }", [], None)
    order = orders.GRAPH_ORDER.write(tried.order)
    assert answered(Job(Task.GRAPH, {**order, "version": 99}))["code"] == "graph_version_unknown"
    assert answered(Job(Task.GRAPH, {**order, "uri": str(tmp_path / "absent")}))["code"] == "graph_missing"
    assert answered(Job(Task.GRAPH, {**order, "commit": "0" * 26}))["code"] == "graph_version_gone"


def test_isolated_workers_answer_the_same_and_see_nothing_of_the_parent(tmp_path: Path) -> None:
    tried = Tried(tmp_path, "node Person { name: String @key }", [{"type": "Person", "data": {"name": "a"}}], None)
    secrets = {"GITOPS_TOKEN": "t", "SSH_AUTH_SOCK": "s", "HOME": "/root", "AWS_REGION": "here"}
    with open_ask(60, secrets) as ask:
        (answers,) = ask([[Job(Task.GRAPH, orders.GRAPH_ORDER.write(tried.order)), Job(Task.GRAPH, {})]], 60)
    assert orders.GRAPH_ANSWER.read(answers[0]) == GraphPreview("g", 2)
    assert [getattr(each, "code", "") for each in answers[1:]] == ["preview_unavailable"]
    assert tried.unchanged()


# -- laws --------------------------------------------------------------------------------------------------------------


@pytest.mark.law
@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story["name"])
def test_the_counts_and_rows_of_a_preview_are_those_of_the_migration(tmp_path: Path, story: dict[str, Any]) -> None:
    tried = Tried(tmp_path, story["before"], story["records"], story["after"])
    found = tried.run()
    counted = [each for each in story["counts"] if each is not None and each.get("breaking")]
    assert [check.rows for check in found.checks if check.rows] == [each["breaking"] for each in counted]
    assert tried.unchanged()
    if "rows" not in story:
        assert found.migration is None
        return
    copy = Graph.__new__(Graph)
    copy.uri = tried.after
    assert copy.contents() == story["rows"]
    assert found.broken == 0
    assert verify_graph(tried.after, deep=True).ok


@pytest.mark.law
@settings(max_examples=cases_of(48), deadline=None)
@given(data=st.data())
def test_a_preview_of_any_graph_leaves_it_and_without_a_change_finds_no_difference(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = data.draw(shapes())
    rows = data.draw(records(shape))
    after, _ = data.draw(changes(shape))
    tried = Tried(tmp_path_factory.mktemp("law"), shape.source.decode(), rows, after.source.decode())
    found = tried.run()
    assert found.code is None
    assert found.migration is not None
    tried.graph.engine.prepare_migration(tried.graph.uri, after.source, actor=None).publish()
    real = sorted(graph.export_records(open_snapshot(tried.graph.uri)))
    assert sorted(graph.export_records(open_snapshot(tried.after))) == real
    assert found.broken == 0
    name = shape.nodes[0].name
    whole = f"query q() {{ match {{ $x: {name} }} return {{ $x }} }}"
    tried.schema = None
    run = tried.query(whole, whole)["run"]
    assert (run["rows"]["added"], run["rows"]["removed"], run["rows"]["changed"], run["code"]) == (0, 0, 0, None)


@pytest.mark.law
@settings(max_examples=cases_of(24), deadline=None)
@given(values=st.lists(st.none() | st.integers(0, 5), max_size=7), rule=st.sampled_from(["@unique", "@range(1..3)"]))
def test_no_row_is_counted_exactly_if_the_target_schema_accepts_the_rows(
    values: list[int | None], rule: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    plain = "node Person { name: String @key  age: I32? }"
    ruled = plain.replace("I32? }", "I32? @unique }" if rule == "@unique" else "I32?  @range(age, 1..3) }")
    rows = [{"type": "Person", "data": {"name": f"n{n}", "age": age}} for n, age in enumerate(values)]
    tried = Tried(tmp_path_factory.mktemp("law"), plain, rows, ruled)
    found = tried.run()
    known = [age for age in values if age is not None]
    naive = sum(known.count(age) > 1 for age in known) if rule == "@unique" else sum(not 1 <= n <= 3 for n in known)
    assert sum(check.rows for check in found.checks) == naive
    # The rows under the target schema, whatever a migration would say.
    copy = Graph.__new__(Graph)
    copy.uri, copy.ids, copy.engine = tried.before, tried.graph.ids, tried.graph.engine
    base = open_snapshot(copy.uri)
    desired = accept_schema(ruled.encode())
    steps = plan_migration(base.schema(), desired).steps
    copy.engine.stage_migration(base, desired, steps, None).publish()
    assert verify_graph(copy.uri, deep=True).ok is (naive == 0)


@pytest.mark.law
@pytest.mark.parametrize("steps", range(4))
def test_copies_that_a_killed_run_left_are_replaced_and_the_graph_stays(tmp_path: Path, steps: int) -> None:
    """A run that died after a part of its copies: the next one with the same order finishes it."""
    rows = [{"type": "Person", "data": {"name": "a"}}]
    after = "node Person { name: String @key  age: I32? }"
    tried = Tried(tmp_path, "node Person { name: String @key }", rows, after)
    if steps >= 1:
        graph.clone_graph(tried.graph.uri, tried.before)
    if steps >= 2:
        graph.clone_graph(tried.graph.uri, tried.after)
    if steps >= 3:
        tried.graph.engine.prepare_migration(tried.after, after.encode(), actor=None).publish()
    found = tried.run()
    assert found.code is None
    assert found.migration is not None
    assert tried.unchanged()
