"""A client that a generator makes of the OpenAPI document: it reads every error of a session into a typed model.

The generator is run as a program. It may be in the environment of the tests, or be named by `OPENAPI_PYTHON_CLIENT`.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.policy.bundle import SERVER_ACTIONS, Bundle, PolicyAction, Rule
from gitops.database.graph import ReadTarget, open_snapshot
from gitops.serving.http.work import HttpLimits
from tests.support.query_graphs import TOWNS, create, put, road, town
from tests.support.query_server import BundleEngine, Running, generation, running, served, tokens

GENERATOR = os.environ.get("OPENAPI_PYTHON_CLIENT") or shutil.which(
    "openapi-python-client", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
)
GRAPH = Bundle({"all": ("ada",)}, rules=(Rule("everything", "all", tuple(sorted({*PolicyAction} - SERVER_ACTIONS))),))
# It knows no lines of JSON.
_LINES = {"application/x-ndjson": "application/octet-stream"}
UNKNOWN, NAME = "01HGW1J8000000000000000000", "query_client"

pytestmark = pytest.mark.skipif(GENERATOR is None, reason="the package openapi-python-client is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = create(
        str(tmp_path_factory.mktemp("g") / "towns.omni"), TOWNS.replace(b"name: String?", b"name: String? note: Blob?")
    )
    put(root, [*(town(key, size=1, note="base64:bm90ZQ==") for key in "ab")])
    put(root, [road("a", "b", miles=4)], start=5_000)
    graph = served(root, engine=BundleEngine(GRAPH))
    with running(generation(graph), tokens(ada="t-ada", nil="t-nil"), HttpLimits(inflight_bytes=4096)) as found:
        yield found


@pytest.fixture(scope="module")
def client(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The package that is made of what the server answers; gives what connects to it with a token."""
    place = tmp_path_factory.mktemp("client")
    document, config = place / "openapi.json", place / "config.json"
    document.write_bytes(server.ask("GET", "/openapi.json").content)
    config.write_text(json.dumps({"package_name_override": NAME, "post_hooks": [], "content_type_overrides": _LINES}))
    command = [str(GENERATOR), "generate", "--path", str(document), "--config", str(config), "--meta", "none"]
    done = subprocess.run(
        [*command, "--output-path", str(place / NAME), "--fail-on-warning"],
        capture_output=True,
        text=True,
        cwd=place,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(place))
    try:
        connected, base = importlib.import_module(f"{NAME}.client").AuthenticatedClient, str(server.client.base_url)
        with ExitStack() as connections:
            yield lambda token: connections.enter_context(connected(base_url=base, token=token))
    finally:
        sys.path.remove(str(place))
        for name in [each for each in sys.modules if each.partition(".")[0] == NAME]:
            del sys.modules[name]


def find(kind: str, words: str) -> Any:
    """The module of an operation, or a model by its name."""
    if kind == "model":
        return getattr(importlib.import_module(f"{NAME}.models"), words)
    return importlib.import_module(f"{NAME}.api.default.{words}")


def session(server: Running, client: Any) -> Iterator[tuple[str, int, str | None, str | None, Callable[[], Any]]]:
    """Each request: what it is called, and status, code and detail of the error that it gets."""
    uri = server.source.generation.graphs["towns"].uri
    first = open_snapshot(uri, ReadTarget(version=1)).manifest.txn_id
    ada, nil, nobody = client("t-ada"), client("t-nil"), client("x")

    def call(operation: str, *path: str, as_: Any = ada, **options: Any) -> Callable[[], Any]:
        return lambda: find("api", operation).sync_detailed(*path, client=as_, **options)

    body = lambda name, **form: {"body": find("model", name).from_dict(form)}  # noqa: E731
    text = {"query": "query q() { match { $t: Town } return { $t.key } }"}
    cell = {"entity": find("model", "ClusterGetBlobEntity")("node"), "type_": "Town", "id": "a", "property_": "note"}
    yield (
        "no token",
        401,
        "unauthorized",
        None,
        call("cluster_get_schema", "towns", as_=nobody),
    )
    yield "no permission", 403, "forbidden", None, call("cluster_get_schema", "towns", as_=nil)
    yield "no graph", 404, "not_found", None, call("cluster_get_schema", "twons")
    yield "no query", 404, "not_found", None, call("cluster_invoke_query", "towns", "none", **body("InvokeBody"))
    yield "no text", 400, "bad_request", None, call("cluster_query", "towns", **body("QueryBody", query="query"))
    yield (
        "a key twice",
        409,
        "conflict",
        "key_conflict",
        call("cluster_load", "towns", **body("LoadBody", data=json.dumps(town("a")), mode="append")),
    )
    yield "no record", 400, "bad_request", "problems", call("cluster_load", "towns", **body("LoadBody", data="{}"))
    yield (
        "another head",
        412,
        None,
        "precondition_failure",
        call(
            "cluster_mutate_if_graph_commit",
            "towns",
            omnigraph_if_graph_commit=UNKNOWN,
            **body("MutateBody", query='query q() { insert Town { key: "x" } }'),
        ),
    )
    yield (
        "another revision",
        412,
        None,
        "precondition_failure",
        call("cluster_query", "towns", omnigraph_if_applied_revision="sha256:0", **body("QueryBody", **text)),
    )
    yield "a large limit", 413, "bad_request", "resource_limit", call("cluster_poll_changes", "towns", limit=9000)
    yield "a gap", 410, None, "change_feed_gap", call("cluster_poll_changes", "towns", start=f"after:{UNKNOWN}")
    yield "no parent", 409, "conflict", "change_diff_refusal", call("cluster_get_commit_changes", "towns", first)
    yield "a cursor", 400, "bad_request", None, call("cluster_poll_changes", "towns", cursor="x")
    yield "a part", 416, "bad_request", "blob_range", call("cluster_get_blob", "towns", range_="bytes=99-", **cell)
    yield "another cell", 412, "conflict", None, call("cluster_get_blob", "towns", if_match='"x"', **cell)
    yield "too much", 429, "too_many_requests", None, call("cluster_load", "towns", **body("LoadBody", data=" " * 5000))
    for name, size in (("left", 5), ("right", 6)):
        assert server.ask(
            "POST", "/graphs/towns/branches", json={"name": name}, headers={"Authorization": "Bearer t-ada"}
        ).is_success
        changed = {"data": json.dumps(town("a", size=size)), "branch": name}
        assert server.ask(
            "POST", "/graphs/towns/load", json=changed, headers={"Authorization": "Bearer t-ada"}
        ).is_success
    assert call("cluster_merge_branches", "towns", **body("BranchMergeBody", source="left"))().status_code == 200
    yield (
        "a merge",
        409,
        "conflict",
        "merge_conflicts",
        call("cluster_merge_branches", "towns", **body("BranchMergeBody", source="right")),
    )


def test_a_generated_client_reads_every_error_into_its_model(server: Running, client: Any) -> None:
    problem, unset = find("model", "ProblemBody"), importlib.import_module(f"{NAME}.types").Unset
    for name, status, code, member, ask in session(server, client):
        answer = ask()
        found = answer.parsed
        assert (answer.status_code, type(found)) == (status, problem), (name, answer.content)
        assert (found.additional_properties, found.error) == ({}, json.loads(answer.content)["error"]), name
        assert (None if isinstance(found.code, unset) else found.code.value) == code, name
        given = {*found.to_dict()} - {"error", "code", "total_problems"}
        assert (member in given) if member else not given, name
        for each in given:
            value = getattr(found, each)
            parts = value if isinstance(value, list) else [value]
            assert parts, name
            assert all(type(part).__module__.startswith(f"{NAME}.models.") for part in parts), (name, value)


def test_a_generated_client_reads_answers_and_asks_for_heads(server: Running, client: Any) -> None:
    ada = client("t-ada")
    page = find("api", "cluster_poll_changes").sync(
        "towns", client=ada, start="beginning", kind=[find("model", "ClusterPollChangesKindItem")("node")]
    )
    assert [each.id for each in page.blocks[0].changes] == ["a", "b"]
    cell = {"entity": find("model", "ClusterHeadBlobEntity")("node"), "type_": "Town", "id": "b", "property_": "note"}
    head = find("api", "cluster_head_blob").sync_detailed("towns", client=ada, **cell)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", "4")
