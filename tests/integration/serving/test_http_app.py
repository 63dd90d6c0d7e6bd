"""What every request goes through, over real HTTP."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from gitops import __version__
from gitops.database.graph import ReadCache
from gitops.serving.http.work import HttpLimits
from tests.support.query_server import generation, running, served, tokens, town_graph

TOWNS = {"query": "query q() { match { $t: Town } return { $t.key } }"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return served(town_graph(tmp_path_factory.mktemp("graphs")))


@pytest.fixture(scope="module")
def guarded(graph):
    with running(generation(graph), tokens(ada="t-ada")) as server:
        yield server


def test_health_needs_no_token_and_names_the_revision(guarded):
    answer = guarded.ask("GET", "/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "version": __version__})
    assert answer.headers["omnigraph-applied-revision"] == f"sha256:{'ab' * 32}"


def test_a_request_without_a_token_learns_nothing_of_graphs(guarded):
    answers = [guarded.ask("GET", path) for path in ("/graphs/towns/nothing", "/graphs/none/query", "/nothing")]
    assert {(each.status_code, each.json()["code"]) for each in answers} == {(401, "unauthorized")}
    assert {each.headers["www-authenticate"] for each in answers} == {"Bearer"}


def test_an_expected_revision_that_is_not_served_is_refused(guarded):
    answer = guarded.ask("GET", "/healthz", headers={"Omnigraph-If-Applied-Revision": "sha256:00"})
    assert answer.status_code == 412
    assert answer.json()["precondition_failure"]["actual"] == f"sha256:{'ab' * 32}"


class HeldCache(ReadCache):
    """Opens no table until a test says so: it stands for a driver inside a call that does not end."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def table(self, *given: Any) -> Any:
        assert self.go_on.wait(60)
        return super().table(*given)


@pytest.mark.parametrize("path", ["query", "queries/towns", "mcp"])
def test_a_query_that_outlasts_its_limit_makes_the_server_unhealthy_until_it_returns(graph, path):
    cache, limits = HeldCache(), HttpLimits(threads=2, query_s=0.0, stuck_s=0.0)
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "towns", "arguments": {}}}
    body = {"query": TOWNS, "mcp": message}.get(path, {})
    with running(generation(replace(graph, cache=cache)), limits=limits) as server:
        try:
            accept = {"Accept": "application/json, text/event-stream"}
            answer = server.ask("POST", f"/graphs/towns/{path}", json=body, headers=accept)
            assert "did not end within 0 s, and cannot be stopped" in answer.text
            if path != "mcp":
                assert (answer.status_code, answer.json()["resource_limit"]) == (413, {"reason": "query_timeout"})
            unhealthy = server.ask("GET", "/healthz")
            assert (unhealthy.status_code, unhealthy.json()["stuck_queries"]) == (503, 1)
            (record,) = [each for each in server.log if each["event"] == "stuck"]
            assert (record["graph"], record["query"]) == ("towns", None if path == "query" else "towns")
            # The other thread still works.
            assert server.ask("GET", "/graphs/towns/branches").status_code == 200
        finally:
            cache.go_on.set()
        while server.ask("GET", "/healthz").status_code == 503:
            pass
