"""Requests that are generated from the OpenAPI document: the server does not fail, and answers as the document says."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable

from tests.support.query_server import QUERIES, generation, running, served, town_graph

pytestmark = pytest.mark.slow


def narrowed(document: Any) -> Any:
    """The document with values that lead somewhere: the graph that there is, its stored queries, texts that compile."""
    known = {"graph_id": ["towns"], "name": ["town", "towns", "add_town", "nothing"], "branch": ["main", "trial"]}
    for methods in document["paths"].values():
        for form in methods.values():
            kept = [each for each in form["parameters"] if each["name"] != "Omnigraph-If-Applied-Revision"]
            form["parameters"] = kept
            for each in kept:
                if each["name"] in known:
                    each["schema"] = {"enum": known[each["name"]]}
    texts = [f"query {text.decode()}" for text in QUERIES.split(b"query ")[1:]]
    for model, member in (("QueryBody", "query"), ("ReadBody", "query_source"), ("MutateBody", "query")):
        properties = document["components"]["schemas"][model]["properties"]
        properties[member] = {"anyOf": [{"type": "string"}, {"enum": texts}]}
    return document


def as_it_is(_, value):
    return value.encode() if isinstance(value, str) else b""


@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize("page", ["/openapi.json", "/graphs/towns/openapi.json"])
def test_generated_requests_are_answered_as_the_document_says(tmp_path, page, mode):
    # Imported late: it takes a third of a second, and every worker process collects this module.
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.generation.modes import GenerationMode
    from schemathesis.specs.openapi import checks

    every = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    schemathesis.serializer("application/x-ndjson")(as_it_is)
    with running(generation(served(town_graph(tmp_path)))) as server:
        schema = schemathesis.openapi.from_dict(narrowed(server.ask("GET", page).json()))
        statuses: Counter[int] = Counter()
        for operation in [found.ok() for found in schema.get_all_operations()]:

            @seed(20)
            @settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
            @given(case=operation.as_strategy(GenerationMode[mode]))
            def ask(case):
                answer = case.call(base_url=f"http://127.0.0.1:{server.port}")
                statuses[answer.status_code] += 1
                case.validate_response(answer, checks=every)

            # What takes no values has no wrong ones.
            with contextlib.suppress(Unsatisfiable):
                ask()
        assert not [record for record in server.log if record["event"] == "defect"]
        assert {200, 404} <= statuses.keys() if mode == "POSITIVE" else {400} <= statuses.keys()
