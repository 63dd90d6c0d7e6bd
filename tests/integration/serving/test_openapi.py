"""The OpenAPI document is that of the routes, and the answers are those of the document."""

from __future__ import annotations

import json

import pytest

from gitops.serving.http.app import ROUTES
from gitops.serving.http.openapi import make_document
from tests.support.openapi_page import PAGE, openapi_page
from tests.support.pages import read_page
from tests.support.query_server import generation, running, served, tokens, town_graph


def operations(document):
    return [(path, form) for path, methods in document["paths"].items() for form in methods.values()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return generation(served(town_graph(tmp_path_factory.mktemp("graphs"))))


def test_the_kept_document_is_that_of_the_routes():
    assert read_page(PAGE) == openapi_page(), "run `make docs`"


def test_operations_have_unique_ids_and_those_of_a_graph_say_so():
    found = operations(make_document(ROUTES, secured=True))
    ids = [form["operationId"] for _, form in found]
    assert len({*ids}) == len(ids) == len(ROUTES)
    below = [path.startswith("/graphs/{graph_id}/") for path, _ in found]
    assert [each.startswith("cluster_") for each in ids] == below


def test_scenario_48_the_document_asks_for_tokens_as_the_server_does(made):
    with running(made) as server:
        document = server.ask("GET", "/openapi.json").json()
        assert "securitySchemes" not in document["components"]
        assert not any("security" in form for _, form in operations(document))
    with running(made, tokens(ada="t-ada")) as server:
        answer = server.ask("GET", "/openapi.json")
        assert answer.json() == json.loads(read_page(PAGE))
        free = {form["operationId"] for _, form in operations(answer.json()) if "security" not in form}
        assert free == {"health", "openapi"}
        known = server.ask("GET", "/openapi.json", headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", answer.headers["etag"])
