"""What the server answers: statuses, changes, and tools of agents.

Every route with every status that it has: the table of `statuses.json`, and what holds for all routes alike.

A row is a request that is carried out, for an actor who may do everything; the rows below it change something of it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from gitops import __version__
from gitops.cluster.policy.bundle import SERVER_ACTIONS, BranchScope, Bundle, PolicyAction, Rule
from gitops.database.graph import (
    MANIFEST_FORMAT,
    LanceEngine,
    ReadCache,
    ReadTarget,
    Retention,
    WriteContext,
    collect_garbage,
    create_branch,
    open_snapshot,
)
from gitops.database.storage.local import LocalStore
from gitops.repository.wiring.system import RandomIds, SystemClock
from gitops.serving.answers import ApiCode
from gitops.serving.http import graph_routes, preview_routes
from gitops.serving.http import queries as http_queries
from gitops.serving.http.app import ROUTES
from gitops.serving.http.bodies import ProblemBody
from gitops.serving.http.openapi import make_document
from gitops.serving.http.work import HttpLimits
from tests.support.clock import FixedClock
from tests.support.openapi_page import PAGE, openapi_page
from tests.support.pages import ROOT, read_page
from tests.support.query_graphs import TOWNS, create, put, road, town
from tests.support.query_server import (
    PUBLIC_URL,
    BundleEngine,
    Running,
    generation,
    running,
    served,
    tokens,
    town_graph,
)
from tests.support.s3 import S3Place

ROWS = json.loads((ROOT / "tests" / "data" / "serving" / "statuses.json").read_text(encoding="utf-8"))
# These servers have no change requests; `test_preview_routes.py` asks for the graphs of these.
LIVE = [each for each in ROUTES if each not in preview_routes.ROUTES]
BY_OPERATION = {each.operation: each for each in LIVE}
DOCUMENTED = {
    form["operationId"].removeprefix("cluster_"): {int(status) for status in form["responses"]}
    for methods in make_document(LIVE, secured=True)["paths"].values()
    for form in methods.values()
}
GROUPS = {"all": ("ada",), "none": ("nil",)}
GRAPH = Bundle(GROUPS, rules=(Rule("everything", "all", tuple(sorted({*PolicyAction} - SERVER_ACTIONS))),))
SERVER = Bundle(GROUPS, rules=(Rule("everything", "all", tuple(sorted(SERVER_ACTIONS))),))
KEPT = ("getSchema", "list_queries", "graph_openapi", "applySchema", "mcp")
"""Operations on a graph that need nothing but its generation."""
READS = ("getSnapshot", "getCommit", "getCommitChanges", "pollChanges", "captureChangeBaseline", "getBlob", "export")
READS += ("readFeed", "readFeedBaseline", "readFeedCommit")
READS += ("query", "read", "invoke_query", "read_stored_query")
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
    """The answer to the request of a row; `HEAD` in its path is the newest commit, `FIRST` the first one."""
    sent = {**row, **change}
    headers = {**sent.get("headers", {}), **sent.get("more", {}), **who}
    options: dict[str, Any] = {"headers": headers}
    if "raw" in sent:
        options["content"] = sent["raw"]
        headers.setdefault("Content-Type", sent.get("type", "application/json"))
    elif "json" in sent:
        options["json"] = sent["json"]
    path, uri = sent["path"], server.source.generation.graphs["towns"].uri
    for word, target in (("HEAD", ReadTarget()), ("FIRST", ReadTarget(version=1))):
        if word in path:
            path = path.replace(word, open_snapshot(uri, target).manifest.txn_id)
    return server.ask(sent["method"], path, **options)


def check(answer: Any, row: Mapping[str, Any], status: int, code: str | None = None, member: str | None = None) -> None:
    """The status is that of the table and of the document, and the body has its form."""
    about = (row["operation"], answer.request.url, answer.text)
    assert answer.status_code == status, about
    assert answer.headers["omnigraph-applied-revision"] == f"sha256:{'ab' * 32}"
    if status != 405:
        assert status in DOCUMENTED[row["operation"]], about
    if status >= 400:
        found = ProblemBody.model_validate_json(answer.content)
        assert (found.code, found.model_extra) == (code, {}), about
        assert code is None or ApiCode(code)
        assert member is None or member in answer.json(), about
        assert answer.headers["content-type"] == "application/json"
        # What is refused of a Blob cell says which cell there is.
        of_a_cell = {"etag"} if "omnigraph-snapshot-id" in answer.headers else set()
        assert ({"deprecation", "link", "etag"} - of_a_cell).isdisjoint(answer.headers)
    elif status == 200:
        route = BY_OPERATION[row["operation"]]
        models = route.answer if isinstance(route.answer, tuple) else (route.answer,)
        assert any(isinstance(each, str) or each.model_validate_json(answer.content) for each in models), about
        assert ("link" in answer.headers) is (route.successor is not None)


def test_the_table_has_every_operation():
    assert sorted(row["operation"] for row in ROWS) == sorted(BY_OPERATION)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["operation"])
def test_a_route_answers_as_the_table_says(server, row):
    first = send(server, row)
    check(first, row, row.get("status", 200), row.get("code"), row.get("member"))
    said = [first.text]
    for also in row.get("also", ()):
        answer = send(server, {**row, **also})
        said.append(answer.text)
        if also.get("own"):
            # Agents have a protocol with a form of its own.
            assert (answer.status_code, answer.json()["jsonrpc"]) == (also["status"], "2.0")
            assert also["status"] in DOCUMENTED[row["operation"]]
        else:
            check(answer, row, also["status"], also["code"], also.get("member"))
    # Where a graph is stored is the business of the server alone.
    assert server.source.current().graphs["towns"].uri not in "".join(said)


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
            wrong = ' error="invalid_token"' if who == {"Authorization": "Bearer wrong"} else ""
            where = f'resource_metadata="{PUBLIC_URL}/.well-known/oauth-protected-resource/graphs/towns/mcp"'
            more = f"{',' if wrong else ''} {where}" if row["operation"] == "mcp" else ""
            assert refused.headers["www-authenticate"] == f"Bearer{wrong}{more}"
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
                # There is no report.
                assert answer.status_code in (200, 404, 409), row["operation"]
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


AT = "/graphs/towns"
BLOB = f"{AT}/blob?entity=node&type=Doc&id=d&property=body"
LARGE = bytes(range(256)) * 5000
OF_A_CELL = ("etag", "accept-ranges", "omnigraph-snapshot-id")


@pytest.fixture(scope="module")
def server_of_http_changes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(generation(served(town_graph(tmp_path_factory.mktemp("graphs"))))) as found:
        yield found


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A graph of documents: a small one, a large one, and one without a text."""
    root = str(tmp_path_factory.mktemp("docs") / "docs.omni")
    schema = b"node Doc { key: String @key  body: Blob?  note: String? }"
    LanceEngine(SystemClock(), RandomIds()).prepare_create(root, schema, actor=None).publish()
    texts = {"d": b"0123456789", "large": LARGE, "empty": b""}
    rows = [{"key": key, "body": "base64:" + base64.b64encode(text).decode()} for key, text in texts.items()]
    put(root, [{"type": "Doc", "data": each} for each in (*rows, {"key": "none"})])
    with running(generation(served(root, queries=b"query q() { match { $d: Doc } return { $d.key } }"))) as found:
        yield found


def ask(server: Running, path: str, status: int = 200, **options: Any) -> Any:
    answer = server.ask("GET", path, **options)
    assert answer.status_code == status, answer.text
    return answer.json()


class Reader:
    """A program that keeps a copy by the feed of the reference server: it has only what blocks and baselines say."""

    def __init__(self, server: Running, **scope: Any) -> None:
        self.server, self.scope, self.entities = server, scope, dict[tuple[str, str], Any]()
        self.cursor, self.blocks = "", list[Any]()

    def begin(self) -> None:
        answer = self.server.ask("POST", f"{AT}/changes/baseline", json=self.scope)
        *records, last = (json.loads(line) for line in answer.text.splitlines())
        self.entities = {(each.get("type") or each["edge"], each["data"]["id"]): self._record(each) for each in records}
        assert [*last] == ["baseline"]
        assert last["baseline"]["snapshot_commit_id"] == answer.headers["omnigraph-snapshot-id"]
        self.cursor = last["baseline"]["resume_cursor"]

    def poll(self, limit: int) -> None:
        """Take pages until the server says that there is nothing more."""
        place = {"cursor": self.cursor}
        while True:
            page = ask(self.server, f"{AT}/changes", params={**self.scope, **place, "limit": limit})
            assert {*page} in ({"blocks", "next_page_token"}, {"blocks", "cursor", "caught_up"})
            assert sum(len(block["changes"]) for block in page["blocks"]) <= limit
            for block in page["blocks"]:
                self.take(block)
            if "next_page_token" in page:
                place = {"page_token": page["next_page_token"]}
                continue
            place = {"cursor": page["cursor"]}
            self.cursor = page["cursor"]
            if page["caught_up"]:
                return

    def take(self, block: Any) -> None:
        if self.blocks and self.blocks[-1]["cause"] == block["cause"]:
            self.blocks[-1]["changes"] += block["changes"]
        else:
            self.blocks.append({**block, "changes": [*block["changes"]]})
        for each in block["changes"]:
            key, sides = (each["type"]["name"], each["id"]), {"before", "after"} & {*each}
            assert sides == {"insert": {"after"}, "update": {"before", "after"}, "delete": {"before"}}[each["op"]]
            assert all(("endpoints" in each[side]) == (each["kind"] == "edge") for side in sides)
            if "before" in each:
                assert self.entities.pop(key) == self._image(each["before"])
            if "after" in each:
                self.entities[key] = self._image(each["after"])

    def _record(self, record: Any) -> Any:
        cells = {name: cell for name, cell in record["data"].items() if name != "id" and cell is not None}
        return cells, (record.get("from"), record.get("to"))

    def _image(self, image: Any) -> Any:
        ends = image.get("endpoints", {})
        cells = {name: cell for name, cell in image["properties"].items() if cell is not None}
        return cells, (ends.get("from"), ends.get("to"))


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize("scope", [{}, {"kind": ["node"]}, {"type": ["Town", "Missing"]}, {"kind": ["edge"]}])
def test_a_client_of_the_reference_has_what_the_graph_has(tmp_path: Path, limit: int, scope: dict[str, Any]) -> None:
    root = town_graph(tmp_path)
    with running(generation(served(root))) as server:
        reader, again = Reader(server, **scope), Reader(server, **scope)
        reader.begin()
        assert ask(server, f"{AT}/changes")["blocks"] == []
        put(root, [town("a", size=9), town("n"), road("b", "a", miles=2)], start=7_000)
        dropped = server.ask("POST", f"{AT}/queries/drop_town", json={"params": {"key": "b"}}).json()["commit"]
        reader.poll(limit)
        again.begin()
        assert reader.entities == again.entities
        found = [[(each["kind"], each["id"], each["op"]) for each in block["changes"]] for block in reader.blocks]
        nodes = [[("node", "a", "update"), ("node", "n", "insert")], [("node", "b", "delete")]]
        if scope != {"kind": ["edge"]}:
            assert [[each for each in block if each[0] == "node"] for block in found] == nodes
        # Nodes before edges.
        assert all([each[0] for each in block] == sorted((each[0] for each in block), reverse=True) for block in found)
        cause = reader.blocks[-1]["cause"]
        same = {"graph_commit_id", "parent_commit_id", "merged_parent_commit_id", "actor_id"}
        assert {name: cause[name] for name in same} == {name: dropped[name] for name in same}
        assert (cause["authored_branch"], cause["authored_at"]) == ("main", dropped["created_at"])
        of_commit = ask(server, f"{AT}/commits/{dropped['graph_commit_id']}/changes", params=scope)
        assert (of_commit["cause"], of_commit["changes"]) == (cause, reader.blocks[-1]["changes"])


def test_a_feed_of_inserts_has_no_other_changes(tmp_path: Path) -> None:
    root = town_graph(tmp_path)
    with running(generation(served(root))) as server:
        put(root, [town("a", size=9), town("n"), road("b", "a", miles=2)], start=7_000)
        blocks = ask(server, f"{AT}/changes?start=beginning&op=insert&op=delete&kind=node")["blocks"]
        assert [[each["id"] for each in block["changes"]] for block in blocks] == [["a", "b", "c"], [], ["n"]]


def test_a_feed_refuses_what_is_not_its_own_and_says_why(tmp_path: Path) -> None:
    with running(generation(served(town_graph(tmp_path)))) as server:
        cursor = ask(server, f"{AT}/changes")["cursor"]
        page = ask(server, f"{AT}/changes?start=beginning&limit=1")["next_page_token"]
        for query in (
            "cursor=x",
            "page_token=x.y.z",
            f"page_token={cursor}",
            f"cursor={page}",
            f"cursor={cursor}&op=insert",
            f"cursor={cursor}&branch=dev",
            f"page_token={page.rpartition('.')[0]}.99&limit=1",
        ):
            found = ask(server, f"{AT}/changes?{query}", 400)
            assert (found["code"], found["error"].partition(": ")[0]) == ("bad_request", "change cursor rejected"), (
                query
            )
        for query in ("limit=0", "limit=x", "kind=row", "op=added", "since=1", "start=x", f"start=now&cursor={cursor}"):
            assert ask(server, f"{AT}/changes?{query}", 400)["code"] == "bad_request"
        found = ask(server, f"{AT}/changes?limit=8193", 413)
        assert found["resource_limit"] == {"resource": "commit_changes_page_changes", "limit": 8192, "actual": 8193}

        def dev() -> Any:
            server.ask("POST", f"{AT}/branches", json={"name": "dev"})
            body = {"params": {"key": "d"}, "branch": "dev"}
            return server.ask("POST", f"{AT}/queries/add_town", json=body).json()["commit"]["graph_commit_id"]

        made = dev()
        feed = ask(server, f"{AT}/changes?branch=dev&start=beginning")
        assert [each["cause"]["authored_branch"] for each in feed["blocks"]] == ["main", "main", "dev", "dev"]
        assert ask(server, f"{AT}/changes?start=after:{made}", 400)["error"].startswith("change cursor rejected: ")
        server.ask("DELETE", f"{AT}/branches/dev")
        dev()
        # A branch that was made again is another one.
        stale = ask(server, f"{AT}/changes?branch=dev&cursor={feed['cursor']}", 400)
        assert stale["error"].startswith("change cursor rejected: ")


def test_a_feed_ends_before_another_schema_and_where_versions_are_gone(tmp_path: Path) -> None:
    root = town_graph(tmp_path)
    first = open_snapshot(root, ReadTarget(version=1)).manifest.txn_id
    with running(generation(served(root))) as server:
        found = ask(server, f"{AT}/commits/{first}/changes", 409)["change_diff_refusal"]
        assert found == {"reason": "parentless_commit", "graph_commit_id": first, "type_name": None}
        start = ask(server, f"{AT}/changes")["cursor"]
        put(root, [town("d")], start=7_000)
        wider = TOWNS.replace(b"name: String?", b"name: String? note: String?")
        LanceEngine(SystemClock(), RandomIds()).prepare_migration(root, wider, actor=None).publish()
        put(root, [town("e")], start=8_000)
        crossed = open_snapshot(root, ReadTarget(version=5)).manifest.txn_id
        before = ask(server, f"{AT}/changes", params={"cursor": start})
        assert ([each["changes"][0]["id"] for each in before["blocks"]], before["caught_up"]) == (["d"], False)
        for path in (f"{AT}/changes?cursor={before['cursor']}", f"{AT}/commits/{crossed}/changes"):
            found = ask(server, path, 409)
            refusal = {"reason": "schema_boundary", "graph_commit_id": crossed, "type_name": "Town"}
            assert (found["code"], found["change_diff_refusal"]) == ("conflict", refusal)
        # The feed of this server goes on.
        assert len(ask(server, f"{AT}/feed?start=after:{first}")["commits"]) == 5
        after = ask(server, f"{AT}/changes?start=after:{crossed}")
        assert after["blocks"][0]["changes"][0]["after"]["properties"]["note"] is None
        context = WriteContext(FixedClock(datetime(2040, 1, 1, tzinfo=UTC)), RandomIds())
        collect_garbage(root, context, Retention(1, timedelta(0)))
        for path, cursor in ((f"cursor={start}", start), ("start=beginning", None)):
            gap = ask(server, f"{AT}/changes?{path}", 410)
            wanted = {"cursor": cursor, "first_unreadable_commit_id": crossed}
            assert (gap["change_feed_gap"], "code" in gap) == (wanted, False)
        newest = open_snapshot(root).manifest.txn_id
        gone = ask(server, f"{AT}/commits/{newest}/changes", 410)["change_feed_gap"]
        assert gone == {"cursor": None, "first_unreadable_commit_id": newest}


def test_a_reader_has_what_the_graph_has(server_of_http_changes: Running) -> None:
    baseline = server_of_http_changes.ask("POST", f"{AT}/feed/baseline", json={"type_names": ["Town"]})
    rows = {json.loads(line)["data"]["id"]: json.loads(line)["data"] for line in baseline.text.splitlines()}
    cursor = baseline.headers["omnigraph-change-cursor"]
    page = ask(server_of_http_changes, f"{AT}/feed", params={"cursor": cursor})
    assert (page["changes"], page["page_token"], page["cursor"]) == ([], None, cursor)
    put(
        server_of_http_changes.source.generation.graphs["towns"].uri,
        [town("a", size=9, name="Ash"), town("n")],
        start=9_000,
    )
    page = ask(server_of_http_changes, f"{AT}/feed", params={"cursor": cursor, "types": "Town", "limit": "1"})
    assert (page["cursor"], len(page["changes"])) == (None, 1)
    seen = page["changes"]
    page = ask(server_of_http_changes, f"{AT}/feed", params={"page_token": page["page_token"], "types": "Town"})
    seen += page["changes"]
    assert [(each["entity_id"], each["kind"], each["fields"]) for each in seen] == [
        ("a", "changed", ["size"]),
        ("n", "added", []),
    ]
    rows |= {each["entity_id"]: each["after"] for each in seen}
    again = server_of_http_changes.ask("POST", f"{AT}/export", json={"type_names": ["Town"]}).text.splitlines()
    found = [json.loads(line)["data"] for line in again]
    assert found == [{name: cell for name, cell in rows[key].items() if cell is not None} for key in sorted(rows)]
    commit = page["head_commit_id"]
    of_commit = ask(server_of_http_changes, f"{AT}/feed/commits/{commit}")
    assert (of_commit["changes"], of_commit["commit"]["graph_commit_id"]) == (seen, commit)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?cursor=x",
        "?start=yesterday",
        "?start=now&cursor=x",
        "?start=now&limit=0",
        "?start=now&limit=1001",
        "?start=now&since=1",
        "?start=now&types=Twon",
        "?start=now&branch=%20",
    ],
)
def test_a_question_that_is_not_understood_is_refused(server_of_http_changes: Running, query: str) -> None:
    assert ask(server_of_http_changes, f"{AT}/feed{query}", 400)["code"] == "bad_request"


def test_a_gap_is_410_and_an_unknown_branch_404(server_of_http_changes: Running) -> None:
    gap = ask(server_of_http_changes, f"{AT}/feed?start=after:{'0' * 26}", 410)
    assert (gap["change_feed_gap"], "code" in gap) == ({"cursor": None, "first_unreadable_commit_id": "0" * 26}, False)
    ask(server_of_http_changes, f"{AT}/feed?start=now&branch=none", 404)
    assert (
        ask(server_of_http_changes, f"{AT}/feed/commits/{'0' * 26}", 404)["error"] == f"commit '{'0' * 26}' not found"
    )


@pytest.mark.parametrize("feed", ["changes", "feed"])
def test_a_gap_names_no_commit_of_a_branch_that_may_not_be_read(tmp_path: Path, feed: str) -> None:
    """Of the versions that the branch inherits from `main`, some are kept."""
    near = Rule("near", "near", (PolicyAction.READ,), BranchScope.ANY)
    far = Rule("far", "far", (PolicyAction.READ,), BranchScope.UNPROTECTED)
    policy = Bundle({"near": ("ann",), "far": ("fay",)}, frozenset({"main"}), (near, far))
    root = town_graph(tmp_path)
    commits = {open_snapshot(root, ReadTarget(version=n)).manifest.txn_id for n in (1, 2, 3)}
    create_branch(root, "dev", WriteContext(SystemClock(), RandomIds()), ReadTarget("main"))
    context = WriteContext(FixedClock(datetime(2040, 1, 1, tzinfo=UTC)), RandomIds())
    collect_garbage(root, context, Retention(2, timedelta(0)))
    graph = served(root, engine=BundleEngine(policy))
    with running(generation(graph), tokens(ann="t-ann", fay="t-fay")) as server:
        path = f"{AT}/{feed}?branch=dev&start=beginning"
        shown = ask(server, path, 410, headers={"Authorization": "Bearer t-ann"})
        assert shown["change_feed_gap"]["first_unreadable_commit_id"] in commits
        denied = ask(server, path, 403, headers={"Authorization": "Bearer t-fay"})
        assert f"begin with POST {feed}/baseline" in denied["error"]
        assert not any(each in json.dumps(denied) for each in commits)


def test_what_an_actor_may_not_read_is_as_if_it_did_not_exist(tmp_path: Path) -> None:
    scoped = Rule("reading", "far", (PolicyAction.READ,), branch_scope=BranchScope.UNPROTECTED)
    policy = Bundle(groups={"far": ("fay",)}, protected_branches=frozenset({"main"}), rules=(scoped,))
    graph = served(town_graph(tmp_path), engine=BundleEngine(policy))
    head = open_snapshot(graph.uri).manifest.txn_id
    with running(generation(graph), tokens(fay="t-fay")) as server:
        sent = {"headers": {"Authorization": "Bearer t-fay"}}
        denied = ask(server, f"{AT}/feed/commits/{head}", 404, **sent)
        unknown = ask(server, f"{AT}/feed/commits/{'0' * 26}", 404, **sent)
        assert denied["error"].replace(head, "ID") == unknown["error"].replace("0" * 26, "ID")
        ask(server, f"{AT}/feed?start=now", 403, **sent)
        blob = f"{AT}/blob?entity=node&type=Town&id=a&property=body&snapshot={head}"
        assert ask(server, blob, 404, **sent)["error"] == denied["error"]
        assert server.ask("POST", f"{AT}/feed/baseline", **sent).status_code == 403


def test_a_cell_is_read_whole_and_in_part(docs: Running) -> None:
    whole = docs.ask("GET", BLOB)
    assert (whole.status_code, whole.content, whole.headers["accept-ranges"]) == (200, b"0123456789", "bytes")
    tag = whole.headers["etag"]
    for asked, content, place in (
        ("bytes=2-4", b"234", "bytes 2-4/10"),
        ("bytes=7-", b"789", "bytes 7-9/10"),
        ("bytes=-2", b"89", "bytes 8-9/10"),
        ("bytes=5-99", b"56789", "bytes 5-9/10"),
    ):
        part = docs.ask("GET", BLOB, headers={"Range": asked, "If-Range": tag})
        assert (part.status_code, part.content, part.headers["content-range"]) == (206, content, place)
    for asked in ("bytes=4-2", "bytes=1-2,4-5", "lines=1-2", "bytes=-"):
        assert docs.ask("GET", BLOB, headers={"Range": asked}).status_code == 200
    assert docs.ask("GET", BLOB, headers={"Range": "bytes=1-2", "If-Range": '"other"'}).status_code == 200
    for asked, start, end in (("bytes=10-", 10, 10), ("bytes=12-19", 12, 20), ("bytes=-0", 10, 10)):
        beyond = docs.ask("GET", BLOB, headers={"Range": asked})
        assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
        assert beyond.json()["code"] == "bad_request"
        assert beyond.json()["blob_range"] == {"start": start, "end": end, "length": 10}
        assert {name: beyond.headers[name] for name in OF_A_CELL} == {name: whole.headers[name] for name in OF_A_CELL}


def test_a_tag_says_whether_the_cell_is_another_one(docs: Running) -> None:
    whole = docs.ask("GET", BLOB)
    tag = whole.headers["etag"]
    known = docs.ask("GET", BLOB, headers={"If-None-Match": f'"x", W/{tag}'})
    assert (known.status_code, "content-length" in known.headers) == (304, False)
    assert docs.ask("GET", BLOB, headers={"If-Match": tag}).status_code == 200
    moved = docs.ask("GET", BLOB, headers={"If-Match": '"x"'})
    assert (moved.status_code, moved.json()["code"], tag in moved.json()["error"]) == (412, "conflict", True)
    for answer in (known, moved):
        assert {name: answer.headers[name] for name in OF_A_CELL} == {name: whole.headers[name] for name in OF_A_CELL}


@pytest.mark.parametrize("asked", [None, "bytes=2-4", "bytes=99-"])
def test_the_head_of_a_cell_has_its_size_and_no_part(docs: Running, asked: str | None) -> None:
    headers = {} if asked is None else {"Range": asked}
    head = docs.ask("HEAD", BLOB.replace("id=d", "id=large"), headers=headers)
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(LARGE)))


@pytest.mark.parametrize("path", ["queries", "schema"])
def test_what_the_client_has_is_not_of_length_0(docs: Running, path: str) -> None:
    tag = docs.ask("GET", f"{AT}/{path}").headers["etag"]
    known = docs.ask("GET", f"{AT}/{path}", headers={"If-None-Match": tag})
    assert (known.status_code, "content-length" in known.headers) == (304, False)


def test_a_large_cell_comes_in_pieces(docs: Running) -> None:
    large = docs.ask("GET", BLOB.replace("id=d", "id=large"))
    assert (large.content, large.headers["content-length"]) == (LARGE, str(len(LARGE)))
    commit = large.headers["omnigraph-snapshot-id"]
    path = BLOB.replace("id=d", "id=large") + f"&snapshot={commit}"
    assert docs.ask("GET", path, headers={"Range": "bytes=256-511"}).content == bytes(range(256))
    assert docs.ask("GET", BLOB.replace("id=d", "id=empty")).content == b""


@pytest.mark.parametrize(
    ("change", "status"),
    [
        (("id=d", "id=none"), 404),
        (("id=d", "id=x"), 404),
        (("Doc", "Dco"), 400),
        (("body", "note"), 400),
        (("node", "thing"), 400),
        (("&id=d", ""), 400),
        (("&id=d", "&id=d&branch=main&snapshot=x"), 400),
        (("&id=d", "&id=d&snapshot=x"), 404),
    ],
)
def test_a_cell_that_there_is_not(docs: Running, change: tuple[str, str], status: int) -> None:
    ask(docs, BLOB.replace(*change), status)


HTTP_APP_TOWNS = {"query": "query q() { match { $t: Town } return { $t.key } }"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    return served(town_graph(tmp_path_factory.mktemp("graphs")))


@pytest.fixture(scope="module")
def guarded(graph):
    with running(generation(graph), tokens(ada="t-ada")) as server:
        yield server


def test_health_needs_no_token_and_names_the_revision(guarded):
    answer = guarded.ask("GET", "/healthz")
    assert (answer.status_code, answer.json()) == (
        200,
        {"status": "ok", "version": __version__, "internal_schema_version": MANIFEST_FORMAT},
    )
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
    body = {"query": HTTP_APP_TOWNS, "mcp": message}.get(path, {})
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


@pytest.mark.parametrize("path", ["mutate", "load"])
def test_a_change_that_outlasts_its_limit_makes_the_server_unhealthy_and_is_answered_when_it_ends(
    tmp_path, monkeypatch, path
):
    go_on = threading.Event()
    for module, name in ((http_queries, "run_change"), (graph_routes, "_load")):
        carry_out = getattr(module, name)

        def held(*given, carry_out=carry_out):
            assert go_on.wait(60)
            return carry_out(*given)

        monkeypatch.setattr(module, name, held)
    body = {"query": 'query q() { insert Town { key: "late" } }'}
    if path == "load":
        body = {"data": json.dumps({"type": "Town", "data": {"key": "late"}})}
    made, limits = generation(served(town_graph(tmp_path))), HttpLimits(work_s=0)
    with running(made, limits=limits) as server, ThreadPoolExecutor(1) as thread:
        try:
            asked = thread.submit(server.ask, "POST", f"/graphs/towns/{path}", json=body)
            server.until(lambda: any(each["event"] == "stuck" for each in server.log))
            unhealthy = server.ask("GET", "/healthz")
            assert (unhealthy.status_code, unhealthy.json()["stuck_queries"]) == (503, 1)
            assert not asked.done()
        finally:
            go_on.set()
        assert asked.result(60).status_code == 200
        while server.ask("GET", "/healthz").status_code == 503:
            pass
        assert server.ask("GET", "/graphs/towns/queries/town?key=late").json()["row_count"] == 1


POLICY = Bundle(
    groups={
        "all": ("ada", "bob", "cyd", "dan"),
        "writers": ("bob",),
        "callers": ("ada", "bob", "dan"),
        "few": ("cyd",),
    },
    rules=(
        Rule("reading", "all", (PolicyAction.READ,)),
        Rule("writing", "writers", (PolicyAction.CHANGE,)),
        Rule("calling", "callers", (PolicyAction.INVOKE_QUERY,)),
        Rule("calling-few", "few", (PolicyAction.INVOKE_QUERY,), queries=("town*",)),
    ),
)
ACTORS = {name: f"t-{name}" for name in ("ada", "bob", "cyd", "eve")}
MCP_READS = ["kinds", "town", "towns"]
MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def guarded_of_mcp(tmp_path_factory):
    graph = served(town_graph(tmp_path_factory.mktemp("graphs")), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        yield server


def using(server, actor, work, **options):
    """What `work` gives for a client of an actor."""

    async def run():
        headers = {} if actor is None else {"Authorization": f"Bearer {ACTORS[actor]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30) as http,
            Client(
                streamable_http_client(f"http://127.0.0.1:{server.port}/graphs/towns/mcp", http_client=http), **options
            ) as client,
        ):
            return await work(client)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("actor", "names"), [("ada", MCP_READS), ("bob", ["add_town", "drop_town", *MCP_READS]), ("cyd", ["town", "towns"])]
)
def test_an_agent_sees_the_tools_that_it_may_run(guarded_of_mcp, actor, names):
    listed = using(guarded_of_mcp, actor, lambda client: client.list_tools())
    assert [each.name for each in listed.tools] == names
    assert {each.name for each in listed.tools if each.annotations.read_only_hint} == {*names} & {*MCP_READS}


def test_arguments_have_a_schema_by_their_kinds(guarded_of_mcp):
    listed = using(guarded_of_mcp, "ada", lambda client: client.list_tools())
    tools = {each.name: each for each in listed.tools}
    schema = tools["kinds"].input_schema
    number, text = {"type": "number"}, {"type": "string"}
    big = {"type": "string", "pattern": r"^-?\d+$"}
    assert schema["properties"] == {
        "s": text,
        "i": {"type": "integer"},
        "l": big,
        "u": {"type": "integer"},
        "w": big,
        "f": number,
        "d": number,
        "b": {"type": "boolean"},
        "day": {**text, "format": "date"},
        "at": {**text, "format": "date-time"},
        "many": {"type": "array", "items": text},
        "v": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
        "maybe": {"anyOf": [big, {"type": "null"}]},
    }
    assert schema["required"] == [name for name in schema["properties"] if name != "maybe"]
    assert schema["additionalProperties"] is False
    assert tools["town"].description == "One town."


def test_a_tool_answers_as_its_stored_query(guarded_of_mcp):
    found = using(guarded_of_mcp, "cyd", lambda client: client.call_tool("town", {"key": "a"}))
    headers = {"Authorization": f"Bearer {ACTORS['cyd']}"}
    plain = guarded_of_mcp.ask("POST", "/graphs/towns/queries/town", json={"params": {"key": "a"}}, headers=headers)
    assert not found.is_error
    assert found.structured_content == plain.json() == json.loads(found.content[0].text)
    assert found.structured_content["rows"] == [{"t.key": "a", "t.size": 1, "t.name": "Ash"}]


def test_a_tool_that_changes_the_graph_carries_the_actor(tmp_path):
    graph = served(town_graph(tmp_path), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        added = using(server, "bob", lambda client: client.call_tool("add_town", {"key": "d", "size": 9}))
        found = using(server, "bob", lambda client: client.call_tool("town", {"key": "d"}))
    assert added.structured_content["affected_nodes"] == 1
    assert added.structured_content["actor_id"] == added.structured_content["commit"]["actor_id"] == "bob"
    assert found.structured_content["row_count"] == 1


def test_a_wrong_argument_is_an_error_of_the_tool(guarded_of_mcp):
    found = using(guarded_of_mcp, "ada", lambda client: client.call_tool("town", {"key": 5}))
    assert found.is_error
    assert "key" in found.structured_content["error"]


@pytest.mark.parametrize("tool", ["kinds", "add_town", "nothing"])
def test_a_tool_that_an_agent_may_not_invoke_does_not_exist(guarded_of_mcp, tool):
    async def call(client):
        with pytest.raises(MCPError) as refused:
            await client.call_tool(tool, {})
        return refused.value.message

    assert using(guarded_of_mcp, "cyd", call) == f"unknown tool: {tool}"


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
def test_both_forms_of_the_protocol_are_answered(guarded_of_mcp, mode):
    listed = using(guarded_of_mcp, "ada", lambda client: client.list_tools(), mode=mode)
    assert [each.name for each in listed.tools] == MCP_READS


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, MESSAGE, 401),
        ({"authorization": "Bearer wrong"}, MESSAGE, 401),
        ({"authorization": "Bearer t-ada", "content-type": "text/plain"}, MESSAGE, 415),
        ({"authorization": "Bearer t-ada"}, '{"jsonrpc": "2.0", "jsonrpc": "2.0"}', 400),
        ({"authorization": "Bearer t-ada", "mcp-protocol-version": "1999-01-01"}, MESSAGE, 400),
        ({"authorization": "Bearer t-ada", "accept": "text/html"}, MESSAGE, 406),
        ({"authorization": "Bearer t-ada"}, '{"id": NaN}', 400),
        ({"authorization": "Bearer t-ada"}, "[" * 1000, 400),
        ({"authorization": "Bearer t-ada"}, " " * (2**20 + 1), 413),
    ],
)
def test_a_message_is_checked_before_the_protocol_sees_it(guarded_of_mcp, headers, body, status):
    sent = body if isinstance(body, str) else json.dumps(body)
    answer = guarded_of_mcp.ask("POST", "/graphs/towns/mcp", content=sent, headers={**HEADERS, **headers})
    assert answer.status_code == status
    assert answer.json()["error"]


def test_there_are_no_sessions(guarded_of_mcp):
    headers = {**HEADERS, "authorization": "Bearer t-ada"}
    answer = guarded_of_mcp.ask("POST", "/graphs/towns/mcp", json=MESSAGE, headers=headers)
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers
    assert answer.headers["omnigraph-applied-revision"].startswith("sha256:")
    for method in ("GET", "DELETE"):
        assert guarded_of_mcp.ask(method, "/graphs/towns/mcp", headers=headers).status_code == 405
    assert guarded_of_mcp.ask("POST", "/graphs/other/mcp", json=MESSAGE, headers=headers).status_code == 404


def test_a_failure_of_the_server_is_logged_and_not_quoted(tmp_path):
    graph = served(town_graph(tmp_path))
    shutil.rmtree(graph.uri)
    message = {**MESSAGE, "method": "tools/call", "params": {"name": "towns", "arguments": {}}}
    with running(generation(graph)) as server:
        answer = server.ask("POST", "/graphs/towns/mcp", json=message, headers=HEADERS)
        server.until(lambda: any(record["event"] == "request" for record in server.log))
    assert answer.status_code == 500
    assert answer.json()["code"] == "internal"
    assert [record["route"] for record in server.log if record["event"] == "defect"] == ["mcp"]


def operations(document):
    return [(path, form) for path, methods in document["paths"].items() for form in methods.values()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return generation(served(town_graph(tmp_path_factory.mktemp("graphs"))))


def test_the_kept_document_is_that_of_the_routes():
    assert read_page(PAGE) == openapi_page(), "run `make docs`"


def test_the_page_for_people_loads_nothing_from_elsewhere_and_runs_its_own_script_alone(made):
    with running(made, tokens(ada="t-ada")) as server:
        answer = server.ask("GET", "/docs")
    page, rules = answer.text, answer.headers["content-security-policy"]
    assert re.findall(r"https?:|//[a-z]|src=|\burl\(|@import|innerHTML|\bon[a-z]+=", page) == []
    assert "'unsafe" not in rules
    assert rules.startswith("default-src 'none'; script-src 'sha256-")
    for tag in ("script", "style"):
        (text,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in rules


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_the_page(made, tmp_path):
    with running(made) as server:
        address = f"http://127.0.0.1:{server.port}/docs#towns"
        words = ["chromium", "--headless", "--no-sandbox", f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000"]
        shown = subprocess.run([*words, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True)
    assert "<code>/graphs/{graph_id}/queries/{name}</code> Run a stored query" in shown.stdout
    assert "<summary>town: One town.</summary>" in shown.stdout
    assert (
        f"curl 'http://127.0.0.1:{server.port}/graphs/towns/queries/town' --json '{{\"params\":{{}}}}'" in shown.stdout
    )
    assert '<p id="problem" class="problem" role="alert"></p>' in shown.stdout


def test_operations_have_unique_ids_and_those_of_a_graph_say_so():
    found = operations(make_document(ROUTES, secured=True))
    ids = [form["operationId"] for _, form in found]
    # HEAD is an operation where it answers otherwise than GET.
    assert len({*ids}) == len(ids) == len(ROUTES) + 1
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
        assert free == {"docs", "health", "openapi", "protectedResource", "mcpProtectedResource"}
        known = server.ask("GET", "/openapi.json", headers={"If-None-Match": f'"x", W/{answer.headers["etag"]}'})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", answer.headers["etag"])
