"""What every request goes through, over real HTTP."""

from __future__ import annotations

import pytest

from gitops import __version__
from tests.support.query_server import generation, running, served, tokens, town_graph


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
