"""Branches, commits, loads and exports over HTTP, also of clients that are slow, or go away."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.database.graph import ReadTarget, export_records, list_branches, open_snapshot
from gitops.serving.answers import StreamAnswer
from gitops.serving.http.app import ROUTES
from gitops.serving.http.bodies import ProblemBody
from gitops.serving.http.call import PieceStream
from gitops.serving.http.route import Route, RouteTable
from gitops.serving.http.work import HttpLimits
from tests.support.query_graphs import road, town
from tests.support.query_server import BundleEngine, Running, generation, running, served, tokens, town_graph

AT = "/graphs/towns"
POLICY = Bundle(
    groups={"all": ("ann", "bob", "cyd"), "writers": ("bob", "cyd")},
    rules=(
        Rule("reading", "all", (PolicyAction.READ,)),
        Rule(
            "writing",
            "writers",
            (PolicyAction.CHANGE, PolicyAction.EXPORT, PolicyAction.SCHEMA_APPLY, PolicyAction.BRANCH_MERGE),
        ),
    ),
)
LIMITS = HttpLimits(inflight=1, streams=1, idle_s=30.0)


def ndjson(*records: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in records)


def bearer(actor: str) -> dict[str, str]:
    return {"Authorization": f"Bearer t-{actor}"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    graph = served(town_graph(tmp_path_factory.mktemp("guarded")), engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(ann="t-ann", bob="t-bob", cyd="t-cyd"), LIMITS) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(generation(served(town_graph(tmp_path))), limits=LIMITS) as found:
        yield found


def root_of(server: Running) -> str:
    return server.source.generation.graphs["towns"].uri


def lines(server: Running, branch: str = "main") -> list[str]:
    return list(export_records(open_snapshot(root_of(server), ReadTarget(branch))))


def branches(server: Running) -> list[str]:
    return [each.name for each in list_branches(root_of(server))]


def ask(server: Running, method: str, path: str, **options: Any) -> Any:
    """The document of a success, which has the form that its route declares."""
    answer = server.ask(method, AT + path, **options)
    assert answer.status_code == 200, answer.text
    route = RouteTable(ROUTES).find(method, (AT + path).partition("?")[0].encode()).route
    assert route is not None
    assert not isinstance(route.answer, str)
    route.answer.model_validate_json(answer.content)
    return answer.json()


def test_what_a_graph_has_is_told_in_the_declared_forms(server: Running) -> None:
    head = ask(server, "GET", "/snapshot?branch=%20main%20")
    commits = ask(server, "GET", "/commits")["commits"]
    assert head["graph_commit_id"] == commits[0]["graph_commit_id"]
    assert ask(server, "GET", f"/commits/{head['graph_commit_id']}") == commits[0]
    assert ask(server, "GET", "/commits?limit=1")["commits"] == commits[:1]
    assert "node Town" in ask(server, "GET", "/schema")["schema_source"]
    for path in ("/commits?limit=0", "/commits?limit=x", "/commits?brnach=main", "/snapshot?branch=%20"):
        assert server.ask("GET", AT + path).status_code == 400
    for path in ("/snapshot?branch=none", "/commits?branch=none", f"/commits/{'0' * 26}"):
        assert server.ask("GET", AT + path).status_code == 404


def test_branches_come_together_and_go(server: Running) -> None:
    for name in ("merge", "feat/x"):
        assert ask(server, "POST", "/branches", json={"name": name})["from"] == "main"
    assert ask(server, "GET", "/branches") == {"branches": ["feat/x", "main", "merge"]}
    assert server.ask("POST", f"{AT}/branches", json={"name": "merge"}).status_code == 409
    assert server.ask("POST", f"{AT}/branches", json={"name": "main"}).status_code == 400
    assert server.ask("POST", f"{AT}/branches", json={"name": "x", "from": "none"}).status_code == 404
    ask(server, "POST", "/load", json={"branch": "merge", "data": ndjson(town("d")).decode()})
    merged = ask(server, "POST", "/branches/merge", json={"source": "merge", "delete_branch": True})
    assert (merged["outcome"], merged["branch_deleted"]) == ("fast_forward", True)
    assert ask(server, "DELETE", "/branches/feat%2Fx")["name"] == "feat/x"
    assert server.ask("DELETE", f"{AT}/branches/merge").status_code == 404
    assert server.ask("DELETE", f"{AT}/branches/main").status_code == 400
    assert branches(server) == ["main"]


def test_scenario_49_a_merge_with_conflicts_leaves_the_target(server: Running) -> None:
    ask(server, "POST", "/load", json={"branch": "dev", "from": "main", "data": ndjson(town("a", size=5)).decode()})
    ask(server, "POST", "/load", json={"data": ndjson(town("a", size=6)).decode()})
    before = lines(server)
    answer = server.ask("POST", f"{AT}/branches/merge", json={"source": "dev"})
    assert (answer.status_code, answer.json()["code"], lines(server)) == (409, "conflict", before)
    assert [each["entity_id"] for each in answer.json()["merge_conflicts"]] == ["a"]


def test_scenario_50_a_schema_is_applied_from_the_cluster_folder(guarded: Running) -> None:
    asked = {"json": {"schema_source": "node Other { key: String @key }"}}
    allowed = guarded.ask("POST", f"{AT}/schema/apply", headers=bearer("bob"), **asked)
    denied = guarded.ask("POST", f"{AT}/schema/apply", headers=bearer("ann"), **asked)
    assert (allowed.status_code, denied.status_code) == (409, 403)
    assert "gitops apply" in allowed.json()["error"]


def test_scenario_47_a_branch_is_made_only_for_an_actor_who_may(guarded: Running) -> None:
    sent = {"data": ndjson(town("z")).decode(), "branch": "dev", "from": "main"}
    denied = guarded.ask("POST", f"{AT}/ingest", json=sent, headers=bearer("bob"))
    assert (denied.status_code, branches(guarded)) == (403, ["main"])
    without = guarded.ask("POST", f"{AT}/ingest", json={**sent, "from": None}, headers=bearer("bob"))
    assert (without.status_code, branches(guarded)) == (404, ["main"])
    taken = guarded.ask("POST", f"{AT}/ingest", json={**sent, "branch": "main"}, headers=bearer("bob"))
    assert (taken.status_code, taken.json()["actor_id"]) == (200, "bob")
    assert taken.headers["link"] == '<load>; rel="successor-version"'


def test_a_delete_that_is_denied_is_part_of_the_answer_of_the_merge(guarded: Running) -> None:
    body = {"source": "main", "target": "none", "delete_branch": True}
    assert guarded.ask("POST", f"{AT}/branches/merge", json=body, headers=bearer("ann")).status_code == 403
    assert guarded.ask("POST", f"{AT}/branches/merge", json=body, headers=bearer("bob")).status_code == 404


def test_a_stream_of_records_is_one_commit(server: Running) -> None:
    before = ask(server, "GET", "/commits")["commits"]
    sent = ndjson(*(town(f"n{n}", name="x" * 3000) for n in range(700)), road("n0", "n1"))
    headers = {"Content-Type": "application/x-ndjson"}
    pieces = (sent[at : at + 50_000] for at in range(0, len(sent), 50_000))
    done = ask(server, "POST", "/load/ndjson?branch=dev&from=main&mode=append", content=pieces, headers=headers)
    assert (done["total_entities"], done["branch_created"], done["mode"]) == (701, True, "append")
    history = ask(server, "GET", "/commits?branch=dev")["commits"]
    # The first version of the branch, and the load.
    assert len(history) == len(before) + 2
    assert history[0] == done["commit"]
    odd = server.ask("POST", f"{AT}/load/ndjson?mode=odd", content=b"", headers=headers)
    other = server.ask("POST", f"{AT}/load/ndjson", content=b"{}", headers={"Content-Type": "application/json"})
    assert (odd.status_code, other.status_code) == (400, 415)
    faulty = server.ask("POST", f"{AT}/load/ndjson?branch=bad&from=main", content=b"{}\n", headers=headers)
    assert (faulty.status_code, faulty.json()["problems"][0]["line"]) == (400, 1)
    assert branches(server) == ["main", "dev"]


def test_scenario_45_a_load_of_32_mib_at_most(server: Running) -> None:
    data = ndjson(*(town(f"big{n}", name="x" * 1_000_000) for n in range(10))).decode()
    assert ask(server, "POST", "/load", json={"data": data})["total_entities"] == 10
    too_long = (b"x" * 2**20 for _ in range(33))
    try:
        answer = server.ask("POST", f"{AT}/ingest", content=too_long, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
    except httpx.WriteError:
        # The server refused before it had read all of it.
        pass


def test_a_stream_beyond_the_limit_leaves_nothing(tmp_path: Path) -> None:
    few = [replace(each, limit=1000) if each.operation == "loadNdjson" else each for each in ROUTES]
    with running(generation(served(town_graph(tmp_path))), limits=LIMITS, routes=few) as server:
        before = lines(server)
        for content in (ndjson(*(town(f"n{n}") for n in range(50))), iter([b"x" * 600] * 2)):
            headers = {"Content-Type": "application/x-ndjson"}
            answer = server.ask("POST", f"{AT}/load/ndjson", content=content, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (413, "bad_request")
            assert answer.json()["graph_batch_request_bytes"] == {"limit": 1000}
        assert lines(server) == before


@contextmanager
def half_open(server: Running, head: str, body: bytes = b"") -> Iterator[socket.socket]:
    """A client that has sent the beginning of a request."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(f"POST {AT}{head}\r\nHost: localhost\r\n".encode() + body)
        yield client


UPLOAD = "/load/ndjson?branch=dev&from=main HTTP/1.1"
PART = b"Content-Type: application/x-ndjson\r\nContent-Length: 10000\r\n\r\n" + ndjson(town("d"))


def test_an_upload_is_denied_before_its_body_is_read(guarded: Running) -> None:
    head = b"Authorization: Bearer t-ann\r\nContent-Type: application/x-ndjson\r\nContent-Length: 10000\r\n\r\n"
    with half_open(guarded, "/load/ndjson HTTP/1.1", head) as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 403 ")


def records_of(server: Running, operation: str) -> list[Any]:
    return [each for each in server.log if each["event"] == "request" and each["route"] == operation]


def test_a_client_that_stops_leaves_nothing(server: Running) -> None:
    before = lines(server)
    with half_open(server, UPLOAD, PART):
        pass
    server.until(lambda: records_of(server, "loadNdjson"))
    assert records_of(server, "loadNdjson")[0]["status"] is None
    assert (lines(server), branches(server)) == (before, ["main"])


def test_a_client_that_sends_nothing_more_is_refused(tmp_path: Path) -> None:
    with (
        running(generation(served(town_graph(tmp_path))), limits=HttpLimits(idle_s=0.1)) as server,
        half_open(server, UPLOAD, PART) as client,
    ):
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")
        assert branches(server) == ["main"]


def test_scenario_44_an_upload_counts_while_it_arrives(guarded: Running) -> None:
    head = b"Authorization: Bearer t-bob\r\nExpect: 100-continue\r\n" + PART
    sent = {"data": ndjson(town("z")).decode()}
    with half_open(guarded, "/load/ndjson HTTP/1.1", head) as client:
        # The server asks for the body once it reads it.
        assert client.recv(25).startswith(b"HTTP/1.1 100")
        busy = guarded.ask("POST", f"{AT}/load", json=sent, headers=bearer("bob"))
        denied = guarded.ask("POST", f"{AT}/load", json=sent, headers=bearer("ann"))
        other = guarded.ask("POST", f"{AT}/load", json=sent, headers=bearer("cyd"))
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "60")
        assert (denied.status_code, other.status_code) == (403, 200)
    guarded.until(lambda: records_of(guarded, "loadNdjson"))
    assert guarded.ask("POST", f"{AT}/load", json=sent, headers=bearer("bob")).status_code == 200


def test_scenario_46_an_export_is_that_of_the_graph(server: Running) -> None:
    answer = server.ask("POST", f"{AT}/export", json={"type_names": ["Town"]})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["omnigraph-snapshot-id"] == ask(server, "GET", "/snapshot")["graph_commit_id"]
    assert answer.text.splitlines() == [each for each in lines(server) if '"type":"Town"' in each]
    assert server.ask("POST", f"{AT}/export").text.splitlines() == lines(server)
    for body, status in (({"type_names": ["Twon"]}, 400), ({"branch": "none"}, 404), ({"table_keys": []}, 400)):
        assert server.ask("POST", f"{AT}/export", json=body).status_code == status


def test_an_export_that_fails_late_is_cut_off(server: Running) -> None:
    path = open_snapshot(root_of(server)).manifest.tables["node:Town"].path
    for file in (Path(root_of(server)) / path / "data").iterdir():
        file.unlink()
    with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
        server.ask("POST", f"{AT}/export")
    server.until(lambda: [each for each in server.log if each["event"] == "defect"])
    # Its place is free again.
    assert server.ask("POST", f"{AT}/export", json={"type_names": ["Road"]}).status_code == 200


class Endless:
    """A route whose answer never ends; it counts the pieces that are made."""

    def __init__(self) -> None:
        self.made = 0
        self.closed = threading.Event()

    def pieces(self) -> Iterator[bytes]:
        try:
            while True:
                self.made += 1
                yield b"x" * 65_536
        finally:
            self.closed.set()

    async def answer(self, call: Any) -> StreamAnswer:
        await call.shared.streams.take()
        return StreamAnswer(PieceStream(call, self.pieces()), "text/plain")

    @property
    def route(self) -> Route:
        return Route("POST", f"{AT.replace('towns', '{graph_id}')}/endless", "endless", "", self.answer, ProblemBody)


@pytest.fixture
def endless(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Running, Endless]]:
    found = Endless()
    limits = replace(LIMITS, idle_s=getattr(request, "param", LIMITS.idle_s))
    graph = served(town_graph(tmp_path))
    with running(generation(graph), limits=limits, routes=[*ROUTES, found.route]) as server:
        yield server, found


def test_a_reader_that_goes_away_ends_the_work(endless: tuple[Running, Endless]) -> None:
    server, source = endless
    with half_open(server, "/endless HTTP/1.1", b"Content-Length: 0\r\n\r\n") as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        refused = server.ask("POST", f"{AT}/export")
        assert (refused.status_code, refused.json()["resource_limit"]) == (413, {"resource": "exports", "limit": 1})
        # Other requests find free threads, whatever the reader takes.
        assert server.ask("GET", f"{AT}/snapshot").status_code == 200
    assert source.closed.wait(30)
    server.until(lambda: records_of(server, "endless"))
    assert server.ask("POST", f"{AT}/export").status_code == 200


@pytest.mark.parametrize("endless", [0.2], indirect=True)
def test_a_reader_that_takes_nothing_is_cut_off(endless: tuple[Running, Endless]) -> None:
    server, source = endless
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.connect(("127.0.0.1", server.port))
        client.sendall(f"POST {AT}/endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        assert source.closed.wait(30)
        # What was made is what the buffers of the connection took.
        assert source.made * 65_536 < 32 * 2**20
    assert server.ask("POST", f"{AT}/export").status_code == 200
