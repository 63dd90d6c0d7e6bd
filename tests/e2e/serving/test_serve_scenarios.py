"""What refuses a start of `gitops serve`, the program, and what it serves once mended. Numbers are those of the scenarios."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError
from tests.support.cluster import OTHER_QUERY, QUERY, SCHEMA, WIDER, Cluster, lance_engine
from tests.support.served_command import Served, serve, serving

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OPEN = ("--unauthenticated",)
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada", "ben": "t-ben"}'}
POLICY = """\
version: 1
groups: {team: [ada]}
rules:
  - id: all
    allow:
      actors: {group: team}
      actions: [%s]
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A converged cluster of one graph, without policies."""
    made = Cluster(tmp_path, engine=lance_engine())
    made.policies = {}
    made.save()
    made.converge()
    return made


def apply(cluster: Cluster, **policies: tuple[str, list[str]]) -> None:
    """Apply policies with these actions and bindings."""
    for name, (actions, bindings) in policies.items():
        cluster.write(f"{name}.policy.yaml", POLICY % actions)
        cluster.policies[name] = bindings
    cluster.save()
    cluster.converge()


def refused(cluster: Cluster, *options: str, environ: Mapping[str, str] = TOKENS) -> list[str]:
    """The codes and places of the problems that the program names, each with a remedy."""
    ended = serve("--cluster", str(cluster.folder), "--bind", "127.0.0.1:0", *options, **environ)
    lines = ended.stderr.splitlines()
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert lines[0] == f"the cluster at '{cluster.folder}' is not ready to serve"
    errors = [line for line in lines if line.startswith("ERROR ")]
    assert len([line for line in lines if line.startswith("      fix: ")]) >= len(errors)
    return [line.removeprefix("ERROR ").partition(": ")[0] for line in errors]


def served(cluster: Cluster, *options: str, environ: Mapping[str, str] = TOKENS) -> Any:
    return serving("--cluster", str(cluster.folder), *options, environ=environ)


def queries(server: Served, graph: str = "knowledge", actor: str = "ada") -> tuple[int, list[str]]:
    """The status and the names of the stored queries."""
    answer = server.client.get(f"/graphs/{graph}/queries", headers={"Authorization": f"Bearer t-{actor}"})
    return answer.status_code, [each["name"] for each in answer.json().get("queries", ())]


def record(cluster: Cluster, **resources: AppliedResource) -> None:
    """Record something else than was applied; `__` stands for the dots of an address."""
    changed = {name.replace("__", "."): each for name, each in resources.items()}
    cluster.put_state(replace(cluster.state, resources={**cluster.state.resources, **changed}))


def test_05_and_06_texts_and_bindings_are_those_that_were_applied(cluster):
    apply(cluster, base=("read", ["knowledge"]))
    text = (POLICY % "read").encode()
    query, policy = (
        f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq",
        f"__cluster/resources/policy/base/{digest(text)}.yaml",
    )
    cluster.plant(query, b"tampered")
    cluster.plant(policy, None)
    assert refused(cluster) == [
        "catalog_payload_missing policy.base",
        "catalog_payload_digest_mismatch query.knowledge.find_person",
    ]
    cluster.plant(query, QUERY.encode())
    cluster.plant(policy, text)
    record(cluster, policy__base=AppliedResource(digest(text)))
    assert "policy_bindings_missing policy.base" in refused(cluster)
    cluster.converge()
    with served(cluster) as server:
        assert (queries(server)[0], queries(server, actor="ben")[0]) == (200, 403)


class FailAfterMigration:
    def reach(self, point: str) -> None:
        if point == "cluster_apply.after_schema_apply":
            raise GitopsError("injected_failpoint", point)


def test_07_and_08_an_interrupted_operation_refuses_a_start_and_a_held_lock_does_not(cluster):
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=FailAfterMigration())
    assert refused(cluster, *OPEN, environ={})[0].startswith("cluster_recovery_pending __cluster/recoveries/")
    cluster.converge()
    held = cluster.hold_lock()
    with served(cluster, *OPEN, environ={}) as server:
        assert queries(server) == (200, ["find_person"])
        assert server.client.get("/graphs/knowledge/schema").json() == {"schema_source": WIDER}
    assert cluster.stored(LOCK) == held


def test_09_and_10_a_ledger_that_is_newer_malformed_or_empty_refuses_a_start(cluster):
    state = json.loads(cluster.state_bytes)
    cluster.plant(STATE, json.dumps({**state, "version": 2}).encode())
    assert refused(cluster) == ["unsupported_state_version state.version"]
    cluster.plant(STATE, json.dumps({**state, "stray": 1}).encode())
    assert refused(cluster)[0].startswith("invalid_state_json ")
    cluster.put_state(LedgerState(revision=3))
    assert refused(cluster) == ["cluster_empty graphs"]


def test_11_17_and_20_policies_and_graphs_of_a_server(cluster):
    """A policy of two graphs, one on the server; then one graph does not open."""
    cluster.graphs["second"] = {}
    apply(cluster, base=("read", ["knowledge", "second"]), server=("graph_list", ["cluster"]))
    assert refused(cluster, *OPEN, environ={}) == ["policy_without_tokens bearer tokens"]
    ada = {"Authorization": "Bearer t-ada"}
    with served(cluster, "--hide-graphs") as server:
        assert [queries(server, graph)[0] for graph in ("knowledge", "second")] == [200, 200]
        assert [queries(server, graph, "ben")[0] for graph in ("knowledge", "second")] == [404, 404]
        listed = server.client.get("/graphs", headers=ada).json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["knowledge", "second"]
    shutil.move(cluster.uri("second"), cluster.folder / "moved")
    assert refused(cluster) == ["graph_missing graph.second"]
    assert refused(cluster, "--allow-degraded", "--require-all-graphs") == ["graph_missing graph.second"]
    with served(cluster, "--allow-degraded") as server:
        assert (queries(server)[0], queries(server, "second")[0]) == (200, 404)
        listed = server.client.get("/graphs", headers=ada).json()["graphs"]
        assert [each["graph_id"] for each in listed] == ["knowledge"]
    shutil.move(cluster.folder / "moved", cluster.uri("second"))
    text = (POLICY % "read").encode()
    cluster.plant(f"__cluster/resources/policy/other/{digest(text)}.yaml", text)
    record(cluster, policy__other=AppliedResource(digest(text), ("graph.knowledge",)))
    assert refused(cluster) == ["policy_scope_conflict graph.knowledge"]


def test_12_and_13_what_is_served_is_what_was_applied_and_still_holds(cluster):
    cluster.write("people.gq", OTHER_QUERY)
    cluster.converge()
    cluster.write("people.gq", "broken")
    cluster.write("knowledge.pg", WIDER)
    cluster.write("cluster.yaml", "version: 1\ngraphs: {}\n")
    with served(cluster, *OPEN, environ={}) as server:
        assert queries(server) == (200, ["find_person"])
        assert server.client.get("/graphs/knowledge/schema").json() == {"schema_source": SCHEMA}
        found = server.client.post("/graphs/knowledge/queries/find_person", json={"params": {"h": "ada"}})
        assert (found.status_code, found.json()["rows"]) == (200, [])
    cluster.migrate_graph("knowledge", SCHEMA.replace("  born: I32?\n", ""))
    assert refused(cluster, *OPEN, environ={}) == ["stored_query_check_failed query.knowledge.find_person"]


@pytest.mark.parametrize(("action", "scope"), [("graph_list", "graph.knowledge"), ("read", "cluster")])
def test_15_a_rule_of_the_other_kind_refuses_a_start(cluster, action, scope):
    text = (POLICY % action).encode()
    cluster.plant(f"__cluster/resources/policy/base/{digest(text)}.yaml", text)
    record(cluster, policy__base=AppliedResource(digest(text), (scope,)))
    ended = serve("--cluster", str(cluster.folder), **TOKENS)
    assert ended.returncode == 1
    assert "policy_kind_mismatch" in ended.stderr
    assert "fix: move the action to a policy that is bound to" in ended.stderr


def test_16_a_graph_whose_id_no_server_takes_is_not_declared_and_not_served(cluster):
    cluster.make_graph("my_graph")
    schema = AppliedResource(digest(SCHEMA.encode()))
    record(cluster, graph__my_graph=AppliedResource("0" * 64), schema__my_graph=schema)
    assert refused(cluster, *OPEN, environ={}) == ["graph_id_unservable graph.my_graph"]


@pytest.mark.parametrize(
    "environ",
    [
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_FILE": "FILE", "OMNIGRAPH_SERVER_BEARER_TOKEN": "two"},
        {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "same", "ben": "same"}'},
    ],
)
def test_25_and_26_an_actor_has_one_token_and_a_token_one_actor(cluster, environ):
    file = cluster.folder / "tokens.json"
    file.write_text('{"default": "one"}', "utf-8")
    found = {name: str(file) if value == "FILE" else value for name, value in environ.items()}
    assert refused(cluster, environ=found) == ["token_source_invalid bearer tokens"]


def test_a_process_takes_as_many_connections_as_it_is_told(cluster: Cluster) -> None:
    with served(cluster, *OPEN, environ={"OMNIGRAPH_MAX_CONNECTIONS": "3"}) as server, ExitStack() as stack:
        address = server.client.base_url.host, server.client.base_url.port or 0
        answers = []
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(address, timeout=30))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            with suppress(ConnectionError):
                answers.append(client.recv(12))
        assert [each for each in answers if each] == [b"HTTP/1.1 200"] * 3
