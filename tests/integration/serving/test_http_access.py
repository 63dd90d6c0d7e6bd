"""What an actor may do over HTTP, by the policies as their files say it. Numbers are those of the scenarios."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import PolicyEngine
from gitops.cluster.policy.read import read_bundle
from gitops.database.graph import open_snapshot
from gitops.serving.access import DECISIONS
from tests.support.query_server import QUERIES, Running, generation, running, served, tokens, town_graph

AT = "/graphs/towns"
POLICY = b"""
version: 1
groups:
  team: [ann, ben]
  admins: [adm]
  near: [nia]
  guests: [gus]
  movers: [gus, adm]
protected_branches: [main]
rules:
  - {id: z-read, allow: {actors: {group: team}, actions: [read]}}
  - {id: b-read, allow: {actors: {group: team}, actions: [read, export]}}
  - {id: change-elsewhere, allow: {actors: {group: team}, actions: [change], branch_scope: unprotected}}
  - {id: branch, allow: {actors: {group: team}, actions: [branch_create], target_branch_scope: unprotected}}
  - {id: merge-main, allow: {actors: {group: admins}, actions: [branch_merge], target_branch_scope: protected}}
  - {id: read-protected, allow: {actors: {group: near}, actions: [read], branch_scope: protected}}
  - {id: drafts, allow: {actors: {group: guests}, actions: [read, export, change], branch_scope: unprotected}}
  - {id: move, allow: {actors: {group: movers}, actions: [branch_create, branch_delete, branch_merge]}}
  - {id: read-all, allow: {actors: {group: admins}, actions: [read]}}
"""
ACTORS = {name: f"t-{name}" for name in ("ann", "ben", "adm", "nia", "gus", "eve")}
READ = {"query": QUERIES.decode(), "name": "towns"}


def engine(text: bytes, scope: str = "graph.towns") -> PolicyEngine:
    bundle, problems = read_bundle(text, "policy.base", "base.policy.yaml")
    assert bundle is not None, list(problems)
    return CedarEngine(bundle, scope)


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {ACTORS[actor]}"}


def insert(key: str) -> str:
    return f'query q() {{ insert Town {{ key: "{key}" }} }}'


def statuses(server: Running, who: dict[str, str], *asked: tuple[str, str, Any]) -> list[int]:
    return [server.ask(method, path, json=body, headers=who).status_code for method, path, body in asked]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=engine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        made = server.ask("POST", f"{AT}/branches", json={"name": "feature"}, headers=bearer("ann"))
        assert made.status_code == 200
        yield server


def test_scenarios_21_and_23_tokens_without_policies_let_their_holders_read_and_nothing_else(tmp_path):
    with running(generation(served(town_graph(tmp_path))), tokens(**ACTORS)) as server:
        ann = bearer("ann")
        assert statuses(server, ann, ("GET", f"{AT}/snapshot", None), ("POST", f"{AT}/query", READ)) == [200, 200]
        denied = [
            ("POST", f"{AT}/mutate", {"query": insert("z")}),
            ("POST", f"{AT}/export", {}),
            ("POST", f"{AT}/schema/apply", {"schema_source": "node A { k: String @key }"}),
            ("POST", f"{AT}/branches", {"name": "x"}),
            ("GET", "/graphs", None),
        ]
        assert statuses(server, ann, *denied) == [403] * 5
        assert statuses(server, ann, ("POST", f"{AT}/queries/towns", {})) == [404]
        for who in ({}, {"Authorization": "Basic x"}, {"Authorization": "Bearer wrong"}):
            assert statuses(server, who, ("GET", f"{AT}/snapshot", None), *denied) == [401] * 6
            assert statuses(server, who, ("GET", "/healthz", None), ("GET", "/openapi.json", None)) == [200, 200]


def test_scenario_22_an_open_server_lists_no_graphs_and_knows_no_actor(tmp_path):
    with running(generation(served(town_graph(tmp_path)))) as server:
        assert server.ask("GET", "/graphs", headers={"Authorization": "Bearer anything"}).status_code == 403
        assert server.ask("POST", f"{AT}/query", json=READ).json()["row_count"] == 3
        changed = server.ask("POST", f"{AT}/mutate", json={"query": insert("z")})
        assert (changed.status_code, changed.json()["actor_id"], changed.json()["commit"]["actor_id"]) == (
            200,
            None,
            None,
        )


def test_scenario_28_a_protected_branch_is_not_changed_where_only_others_may_be(guarded):
    denied = guarded.ask("POST", f"{AT}/mutate", json={"query": insert("d")}, headers=bearer("ann"))
    assert (denied.status_code, denied.json()["code"]) == (403, "forbidden")
    body = {"query": insert("d"), "branch": "feature"}
    made = guarded.ask("POST", f"{AT}/mutate", json=body, headers=bearer("ann")).json()
    assert (made["actor_id"], made["commit"]["actor_id"], made["commit"]["graph_branch"]) == ("ann", "ann", "feature")
    (newest, *_) = guarded.ask("GET", f"{AT}/commits?branch=feature", headers=bearer("ben")).json()["commits"]
    assert newest == made["commit"]


def test_scenario_29_a_merge_into_a_protected_branch_is_for_admins(guarded):
    assert statuses(guarded, bearer("ann"), ("POST", f"{AT}/branches", {"name": "side"})) == [200]
    body = {"query": insert("s"), "branch": "side"}
    assert statuses(guarded, bearer("ann"), ("POST", f"{AT}/mutate", body)) == [200]
    denied, merged = (
        guarded.ask("POST", f"{AT}/branches/merge", json={"source": "side"}, headers=bearer(who))
        for who in ("ann", "adm")
    )
    assert (denied.status_code, merged.status_code, merged.json()["actor_id"]) == (403, 200, "adm")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("branches", {"name": "own", "from": "main"}),
        ("load", {"branch": "own", "from": "main", "data": ""}),
        ("ingest", {"branch": "own", "from": "main", "data": ""}),
        ("load/ndjson?branch=own&from=main", None),
        ("branches/merge", {"source": "main", "target": "feature"}),
    ],
)
def test_what_may_not_be_read_is_not_copied_to_where_it_may(guarded, caplog, path, body):
    """The actor may make, change and read every branch but `main`."""
    gus, ndjson = bearer("gus"), {} if body else {"Content-Type": "application/x-ndjson"}
    rows = {**READ, "branch": "feature"}
    before = guarded.ask("POST", f"{AT}/query", json=rows, headers=gus).json()
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        caplog.clear()
        denied = guarded.ask("POST", f"{AT}/{path}", json=body, headers=gus | ndjson)
    action = "branch_merge" if "merge" in path else "branch_create"
    assert (denied.status_code, denied.json().get("error")) == (
        403,
        f"{action} reads branch 'main', and no rule permits 'gus' to read",
    )
    decided = [(each.form["action"], each.form["branch"], each.form["allowed"]) for each in caplog.records]
    assert decided == [(action, "main", True), ("read", "main", False)]
    assert guarded.ask("POST", f"{AT}/query", json={**READ, "branch": "own"}, headers=gus).status_code == 404
    assert guarded.ask("POST", f"{AT}/query", json=rows, headers=gus).json() == before


def test_what_may_be_read_is_copied_as_before(guarded):
    asked = [
        ("POST", f"{AT}/branches", {"name": "gus-1", "from": "feature"}),
        ("POST", f"{AT}/load", {"branch": "gus-2", "from": "gus-1", "data": ""}),
        ("POST", f"{AT}/branches/merge", {"source": "gus-1", "target": "feature", "delete_branch": True}),
    ]
    assert statuses(guarded, bearer("gus"), *asked) == [200] * 3


def test_a_commit_is_shown_only_to_who_may_read_its_branch(guarded):
    made = guarded.ask("GET", f"{AT}/snapshot?branch=feature", headers=bearer("ann")).json()
    commit = f"{AT}/commits/{made['graph_commit_id']}"
    assert guarded.ask("GET", commit, headers=bearer("ann")).json()["graph_branch"] == "feature"
    hidden = guarded.ask("GET", commit, headers=bearer("nia"))
    assert (hidden.status_code, hidden.json().get("code")) == (404, "not_found")


def test_scenario_30_what_names_no_branch_is_read_as_main(guarded):
    graph, nia = guarded.source.generation.graphs["towns"], bearer("nia")
    snapshot = {**READ, "snapshot": open_snapshot(graph.uri).manifest.txn_id}
    asked = [("POST", f"{AT}/query", snapshot), ("GET", f"{AT}/schema", None), ("GET", f"{AT}/branches", None)]
    assert statuses(guarded, nia, *asked, ("GET", f"{AT}/commits", None)) == [200] * 4
    made = guarded.ask("GET", f"{AT}/snapshot?branch=feature", headers=bearer("ann")).json()
    elsewhere = {**READ, "snapshot": made["graph_commit_id"]}
    branch = ("GET", f"{AT}/snapshot?branch=feature", None)
    assert statuses(guarded, nia, branch) == [403]
    # The head of a new branch is a commit of its own.
    assert statuses(guarded, nia, ("POST", f"{AT}/query", elsewhere)) == [403]


def test_scenario_32_an_actor_in_no_group_is_unknown(guarded, caplog):
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        denied = guarded.ask("GET", f"{AT}/snapshot", headers=bearer("eve"))
    assert (denied.status_code, denied.json().get("error")) == (403, "actor 'eve' is in no group of the policy")
    (decided,) = (record.form for record in caplog.records)
    assert (decided["allowed"], decided["matched_rule_id"]) == (False, None)


def test_scenario_33_of_two_rules_that_permit_it_the_first_by_id_is_named(guarded, caplog):
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        assert guarded.ask("GET", f"{AT}/snapshot", headers=bearer("ben")).status_code == 200
    (decided,) = (record.form for record in caplog.records)
    assert (decided["allowed"], decided["matched_rule_id"]) == (True, "b-read")
