"""Every route with every status that it has: the table of `statuses.json`, and what holds for all routes alike.

A row is a request that is carried out, for an actor who may do everything; the rows below it change something of it.
"""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.policy.bundle import SERVER_ACTIONS, Bundle, PolicyAction, Rule
from gitops.database.graph import open_snapshot
from gitops.database.storage.local import LocalStore
from gitops.serving.answers import ApiCode
from gitops.serving.http.app import ROUTES
from gitops.serving.http.bodies import ProblemBody
from gitops.serving.http.openapi import make_document
from gitops.serving.http.work import HttpLimits
from tests.support.pages import ROOT
from tests.support.query_graphs import TOWNS, create, put, road, town
from tests.support.query_server import BundleEngine, Running, generation, running, served, tokens
from tests.support.s3 import S3Place

ROWS = json.loads((ROOT / "tests" / "data" / "serving" / "statuses.json").read_text(encoding="utf-8"))
BY_OPERATION = {each.operation: each for each in ROUTES}
DOCUMENTED = {
    form["operationId"].removeprefix("cluster_"): {int(status) for status in form["responses"]}
    for methods in make_document(ROUTES, secured=True)["paths"].values()
    for form in methods.values()
}
GROUPS = {"all": ("ada",), "none": ("nil",)}
GRAPH = Bundle(GROUPS, rules=(Rule("everything", "all", tuple(sorted({*PolicyAction} - SERVER_ACTIONS))),))
SERVER = Bundle(GROUPS, rules=(Rule("everything", "all", tuple(sorted(SERVER_ACTIONS))),))
KEPT = ("getSchema", "list_queries", "applySchema", "mcp")
"""Operations on a graph that need nothing but its generation."""
READS = ("getSnapshot", "getCommit", "getCommitChanges", "listChanges", "getBaseline", "getBlob", "export")
READS += ("query", "read", "invoke_query")
"""Operations that read one version of a graph, or the newest one."""
ADA, NIL = {"Authorization": "Bearer t-ada"}, {"Authorization": "Bearer t-nil"}
RELOADED = {"result": "unchanged", "served_revision": "ab", "offered_revision": None, "codes": []}


def graph_of(folder: Path) -> str:
    """Towns of which one has a note, and branches: one to delete, one to merge, two that contradict each other."""
    root = create(str(folder / "towns.omni"), TOWNS.replace(b"name: String?", b"name: String? note: Blob?"))
    put(root, [town("a", size=1, note="base64:" + base64.b64encode(b"note").decode()), town("b")])
    put(root, [road("a", "b", miles=4)], start=5_000)
    return root


@contextmanager
def serving(root: str, limits: HttpLimits | None = None) -> Iterator[Running]:
    made = generation(served(root, engine=BundleEngine(GRAPH)), engine=BundleEngine(SERVER))
    with running(made, tokens(ada="t-ada", nil="t-nil"), limits, reload=lambda: RELOADED) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(graph_of(tmp_path_factory.mktemp("graphs"))) as found:
        for name in ("old", "side", "kept", "other"):
            assert found.ask("POST", "/graphs/towns/branches", json={"name": name}, headers=ADA).status_code == 200
        for branch, size in (("kept", 5), ("other", 6)):
            changed = {"data": json.dumps(town("a", size=size)), "branch": branch}
            assert found.ask("POST", "/graphs/towns/load", json=changed, headers=ADA).status_code == 200
        yield found


def send(server: Running, row: Mapping[str, Any], who: Mapping[str, str] = ADA, **change: Any) -> Any:
    """The answer to the request of a row; `HEAD` in its path is the newest commit."""
    sent = {**row, **change}
    headers = {**sent.get("headers", {}), **sent.get("more", {}), **who}
    options: dict[str, Any] = {"headers": headers}
    if "raw" in sent:
        options["content"] = sent["raw"]
        headers.setdefault("Content-Type", sent.get("type", "application/json"))
    elif "json" in sent:
        options["json"] = sent["json"]
    head = open_snapshot(server.source.generation.graphs["towns"].uri).manifest.txn_id if "HEAD" in sent["path"] else ""
    return server.ask(sent["method"], sent["path"].replace("HEAD", head), **options)


def check(answer: Any, row: Mapping[str, Any], status: int, code: str | None = None, member: str | None = None) -> None:
    """The status is that of the table and of the document, and the body has its form."""
    about = (row["operation"], answer.request.url, answer.text)
    assert answer.status_code == status, about
    assert answer.headers["omnigraph-applied-revision"] == f"sha256:{'ab' * 32}"
    if status != 405:
        assert status in DOCUMENTED[row["operation"]], about
    if status >= 400:
        found = ProblemBody.model_validate_json(answer.content)
        assert found.code == code, about
        assert code is None or ApiCode(code)
        assert member is None or member in answer.json(), about
        assert answer.headers["content-type"] == "application/json"
        assert {"deprecation", "link", "etag"}.isdisjoint(answer.headers)
    elif status == 200:
        route = BY_OPERATION[row["operation"]]
        models = route.answer if isinstance(route.answer, tuple) else (route.answer,)
        assert any(isinstance(each, str) or each.model_validate_json(answer.content) for each in models), about
        assert ("link" in answer.headers) is (route.successor is not None)


def test_the_table_has_every_operation():
    assert sorted(row["operation"] for row in ROWS) == sorted(BY_OPERATION)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["operation"])
def test_a_route_answers_as_the_table_says(server, row):
    check(send(server, row), row, row.get("status", 200), row.get("code"), row.get("member"))
    for also in row.get("also", ()):
        answer = send(server, {**row, **also})
        if also.get("own"):
            # Agents have a protocol with a form of its own.
            assert (answer.status_code, answer.json()["jsonrpc"]) == (also["status"], "2.0")
            assert also["status"] in DOCUMENTED[row["operation"]]
        else:
            check(answer, row, also["status"], also["code"], also.get("member"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["operation"])
def test_every_route_asks_who_it_is_what_it_may_and_where_it_is(server, row):
    route = BY_OPERATION[row["operation"]]
    check(
        send(server, row, more={"Omnigraph-If-Applied-Revision": "sha256:00"}), row, 412, None, "precondition_failure"
    )
    query = "&" if "?" in row["path"] else "?"
    check(send(server, row, path=f"{row['path']}{query}unknown=1"), row, 400, "bad_request")
    wrong = send(server, row, method="PATCH")
    check(wrong, row, 405, "method_not_allowed")
    assert row["method"] in wrong.headers["allow"].split(", ")
    if not route.public:
        for who in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YWRhOnQtYWRh"}):
            refused = send(server, row, who)
            check(refused, row, 401, "unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
        check(send(server, row, NIL), row, *row.get("denied", [403, "forbidden"]))
    if route.on_graph:
        check(send(server, row, path=row["path"].replace("/towns/", "/absent/")), row, 404, "not_found")
        check(send(server, row, path=row["path"].replace("/towns/", "/to_wns/")), row, 400, "bad_request")


WITH_BODIES = [row for row in ROWS if BY_OPERATION[row["operation"]].body_type or BY_OPERATION[row["operation"]].body]


@pytest.mark.parametrize("row", WITH_BODIES, ids=lambda row: row["operation"])
def test_every_route_with_a_body_looks_at_its_type_size_and_form(server, row):
    route, raw = BY_OPERATION[row["operation"]], json.dumps(row["json"]) if "json" in row else row["raw"]
    wrong = {**row, "raw": raw}
    check(send(server, wrong, more={"Content-Encoding": "gzip"}), row, 415, "bad_request")
    if not route.body_optional:
        check(send(server, wrong, type="text/plain"), row, 415, "bad_request")
    check(send(server, wrong, raw="{"), row, 400, "bad_request")
    if route.body is not None:
        check(send(server, row, json={**row["json"], "unknown": 1}), row, 400, "bad_request")
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        # What is announced is refused before it is sent.
        lines = [
            f"POST {row['path']} HTTP/1.1",
            "Host: x",
            "Authorization: Bearer t-ada",
            f"Content-Length: {route.limit + 1}",
        ]
        lines += [
            f"Content-Type: {route.body_type or 'application/json'}",
            *(f"{k}: {v}" for k, v in row.get("headers", {}).items()),
        ]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_stands_still_is_408_on_every_route_and_the_connection_ends(tmp_path):
    with ExitStack() as stack:
        server = stack.enter_context(serving(graph_of(tmp_path), HttpLimits(idle_s=0.2)))
        waiting = []
        for row in WITH_BODIES:
            route = BY_OPERATION[row["operation"]]
            headers = {**ADA, "Content-Type": route.body_type or "application/json", "Content-Length": "9"}
            head = [f"POST {row['path']} HTTP/1.1", "Host: x"]
            head += [f"{name}: {value}" for name, value in (headers | row.get("headers", {})).items()]
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
            client.sendall("\r\n".join([*head, "", "{"]).encode())
            waiting.append((row["operation"], client))
        for operation, client in waiting:
            answer = http.client.HTTPResponse(client)
            answer.begin()
            assert answer.status == 408, operation
            assert 408 in DOCUMENTED[operation]
            assert ProblemBody.model_validate_json(answer.read()).code == "bad_request"
            assert answer.headers["connection"] == "close"
            assert client.recv(1) == b""
    assert {operation for operation, statuses in DOCUMENTED.items() if 408 in statuses} == {each for each, _ in waiting}


def test_no_read_lists_the_versions_of_a_graph_a_second_time(tmp_path, monkeypatch):
    listing = LocalStore.names
    listed: list[str] = []

    def names(store: LocalStore, prefix: str) -> tuple[str, ...]:
        listed.append(prefix)
        return listing(store, prefix)

    monkeypatch.setattr(LocalStore, "names", names)
    with serving(graph_of(tmp_path)) as server:
        for row in ROWS:
            if row["operation"] not in READS:
                continue
            wanted = row["path"].replace(
                "HEAD", open_snapshot(server.source.generation.graphs["towns"].uri).manifest.txn_id
            )
            check(send(server, row, path=wanted), row, 200)
            listed.clear()
            check(send(server, row, path=wanted), row, 200)
            assert listed == [], row["operation"]


def test_what_the_server_cannot_do_is_500_and_says_nothing_of_its_files(tmp_path):
    root = graph_of(tmp_path)
    with serving(root) as server:
        shutil.rmtree(root)
        for row in ROWS:
            if not BY_OPERATION[row["operation"]].on_graph or "HEAD" in row["path"]:
                continue
            answer = send(server, row)
            kept = row["operation"] in KEPT
            assert (answer.status_code == 500) is not kept, (row["operation"], answer.text)
            if not kept:
                check(answer, row, 500, "internal")
                assert str(tmp_path) not in answer.text


@pytest.mark.slow
def test_storage_that_does_not_answer_is_503_on_every_route_that_needs_it(s3: S3Place, monkeypatch):
    for name, value in {**s3.environ, "GITOPS_STORAGE_RETRY": "0"}.items():
        monkeypatch.setenv(name, value)
    root = create(f"{s3.root}/graphs/towns.omni")
    put(root, [town("a", size=1), town("b")])
    head = open_snapshot(root).manifest.txn_id
    with serving(root) as server:
        s3.server.fault = lambda _asked: 503
        for row in ROWS:
            answer = send(server, row, path=row["path"].replace("HEAD", head))
            if not BY_OPERATION[row["operation"]].on_graph or row["operation"] in KEPT:
                assert answer.status_code in (200, 409), row["operation"]
                continue
            check(answer, row, 503, None, "storage_failure")
            assert answer.headers["retry-after"] == "5"
            assert s3.bucket not in answer.text


def test_a_change_beyond_the_share_of_an_actor_is_429(tmp_path):
    with serving(graph_of(tmp_path), HttpLimits(inflight_bytes=1)) as server:
        counted = [row for row in ROWS if 429 in DOCUMENTED[row["operation"]]]
        assert {row["operation"] for row in counted} == {
            "createBranch",
            "deleteBranch",
            "mergeBranches",
            "load",
            "ingest",
            "loadNdjson",
            "mutate",
            "change",
            "mutate_if_graph_commit",
            "invoke_query",
            "invoke_query_if_graph_commit",
        }
        for row in counted:
            path = (
                row["path"].replace("/queries/town", "/queries/add_town")
                if row["operation"] == "invoke_query"
                else row["path"]
            )
            answer = send(server, row, path=path)
            check(answer, row, 429, "too_many_requests")
            assert answer.headers["retry-after"] == "60"
