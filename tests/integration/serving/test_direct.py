"""Reads of rows in memory: the same answers, records and counts as the general way, and never an older version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from gitops.serving.http.app import HttpApp
from gitops.serving.http.call import Scope
from tests.integration.serving.test_routes import ACTORS, POLICY, bearer
from tests.support.pages import ROOT
from tests.support.query_graphs import put, road
from tests.support.query_server import BundleEngine, Running, generation, running, served, tokens, town_graph

QUERIES = b"""
query town($key: String) { match { $t: Town { key: $key } } return { $t.key, $t.size, $t.name } }
query near($key: String) { match { $t: Town { key: $key }  $t road $u } return { $u, $u.name as name } limit 3 }
query named($name: String?) { match { $t: Town { name: $name } } return { $t.size } }
query all_towns() { match { $t: Town } return { $t.key } order { $t.key asc } }
query resize($key: String, $size: I32?) { update Town set { size: $size } where key = $key }
"""
PATH = "/graphs/towns/queries"
WARM = 6


class Counted:
    """Counts what an observer hears of, and keeps what a recorder of calls is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.used: list[tuple[Any, ...]] = []

    def count(self, _generation: Any, graph: Any, query: str, params: Any, client: str) -> None:
        self.used.append((graph.graph_id, query, params or {}, client))

    def recorded(self, result: str) -> None: ...

    def answered(self, record: Any) -> None:
        self.heard.append((record["route"], record["graph"], record["status"], record["actor"]))

    def decided(self, scope: str, action: Any, decision: Any) -> None:
        self.heard.append((scope, action, decision))

    def stuck(self) -> None: ...

    def refused(self, reason: str) -> None:
        self.heard.append((reason,))

    def rejected(self, reason: str) -> None: ...


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of requests that go the general way."""
    paths: list[str] = []
    exchange = HttpApp._exchange

    async def counted(app: HttpApp, scope: Scope, *more: Any) -> None:
        paths.append(scope["path"])
        await exchange(app, scope, *more)

    monkeypatch.setattr(HttpApp, "_exchange", counted)
    return paths


def ask(server: Running, query: str, **body: Any) -> Any:
    """Run a stored query; the answer."""
    answer = server.ask("POST", f"{PATH}/{query}", headers=bearer("bob"), json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def warm(server: Running) -> None:
    """Ask until the rows are in memory."""
    for _ in range(WARM):
        ask(server, "town", params={"key": "a"})
        ask(server, "near", params={"key": "a"})
        ask(server, "named", params={"name": "Ash"})


UNUSUAL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("town", {"json": {"params": {"key": "a"}}}),
    ("town", {"json": {"params": {"key": "nowhere"}}}),
    ("near", {"json": {"params": {"key": "a"}}}),
    ("near", {"json": {"params": {"key": "a"}, "branch": " main ", "expect_mutation": False}}),
    ("named", {"json": {"params": {"name": "Ash"}}}),
    ("named", {}),
    ("named", {"content": b"", "headers": {"Content-Type": "application/json"}}),
    ("town", {}),
    ("town", {"json": {"params": {"key": None}}}),
    ("town", {"json": {"params": {"key": 1}}}),
    ("town", {"json": {"params": {"key": "a", "other": 1}}}),
    ("town", {"json": {"params": {"key": "a"}, "more": 1}}),
    ("town", {"json": {"params": {"key": "a"}, "expect_mutation": True}}),
    ("town", {"json": {"params": {"key": "a"}, "branch": "other"}}),
    ("town", {"json": {"params": {"key": "a"}, "snapshot": "0" * 26}}),
    ("town", {"content": b'{"params": {"key": "\\ud800"}}', "headers": {"Content-Type": "application/json"}}),
    ("town", {"content": b'{"params": {"key": "a", "key": "b"}}', "headers": {"Content-Type": "application/json"}}),
    ("town", {"content": b"{", "headers": {"Content-Type": "application/json"}}),
    ("town", {"content": b"{}", "headers": {"Content-Type": "text/plain"}}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": {"X-Request-Id": "mine"}}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": {"Omnigraph-If-Applied-Revision": "sha256:00"}}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": {"Omnigraph-If-Graph-Commit": "0"}}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": bearer("dan")}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": bearer("guy")}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": {"Authorization": "Bearer nobody"}}),
    ("town", {"json": {"params": {"key": "a"}}, "headers": {"Authorization": "Basic x"}}),
    ("town?key=a", {"json": {"params": {"key": "a"}}}),
    ("t%6fwn", {"json": {"params": {"key": "a"}}}),
    ("absent", {"json": {"params": {"key": "a"}}}),
    ("all_towns", {"json": {}}),
)
DIRECT = 5
"""So many of them are answered directly: plain ones whose parameter is right or may be left out."""


def test_both_ways_give_the_same_answers_records_and_counts(tmp_path: Path, general: list[str]) -> None:
    graph = served(town_graph(tmp_path), queries=QUERIES, engine=BundleEngine(POLICY))
    counts = Counted(), Counted()
    told: list[list[Any]] = []
    with ExitStack() as stack:
        servers = [
            stack.enter_context(
                running(generation(graph), tokens(**ACTORS), observer=counted, direct=direct, use=cast(Any, counted))
            )
            for counted, direct in zip(counts, (True, False), strict=True)
        ]
        warm(servers[1])
        for server, counted in zip(servers, counts, strict=True):
            server.log.clear()
            counted.heard.clear()
            counted.used.clear()
            general.clear()
            told.append([])
            for path, options in UNUSUAL:
                headers = {**bearer("bob"), **options.get("headers", {})}
                answer = server.ask("POST", f"{PATH}/{path}", **{**options, "headers": headers})
                assert answer.headers["x-request-id"] == server.log[-1]["request_id"]
                shown = sorted(item for item in answer.headers.items() if item[0] not in ("date", "x-request-id"))
                record = {name: value for name, value in server.log[-1].items() if name not in ("ms", "request_id")}
                told[-1].append((path, answer.status_code, shown, answer.content, record))
            went_general = len(general)
            assert went_general == len(UNUSUAL) - (DIRECT if server is servers[0] else 0)
    for one, other in zip(*told, strict=True):
        assert one == other
    assert counts[0].heard == counts[1].heard
    # What succeeds is recorded, with its parameters and the actor of its token, and nothing else is.
    assert counts[0].used == counts[1].used
    assert len(counts[0].used) == sum(status == 200 for _, status, *_ in told[0])
    assert ("towns", "town", {"key": "a"}, "bob") in counts[0].used


WRITER = """
import sys
from datetime import UTC, datetime
from gitops.database.graph import Mutator, MutationOptions, open_snapshot
from gitops.database.language.query import check_query, parse_queries
from gitops.repository.wiring.system import RandomIds, SystemClock
root, text = sys.argv[1:]
catalog = open_snapshot(root).schema().catalog
queries = {each.name.text: check_query(each, catalog) for each in parse_queries(text.encode())}
writer, options = Mutator(SystemClock(), RandomIds()), MutationOptions(datetime.now(UTC))
for line in sys.stdin:
    writer.run(root, queries["resize"], {"key": "b", "size": int(line)}, options)
    print(flush=True)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that sets the size of a town to each number that it reads, and answers with a line."""
    argv = (sys.executable, "-c", WRITER, str(tmp_path / "towns.omni"), QUERIES.decode())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    put(town_graph(tmp_path), [road("a", "c")], start=7_000)
    with subprocess.Popen(argv, cwd=ROOT, text=True, **pipes) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


def test_the_next_read_sees_a_write_of_another_process(
    tmp_path: Path, writer: subprocess.Popen[str], general: list[str]
) -> None:
    assert writer.stdin is not None
    assert writer.stdout is not None
    graph = served(str(tmp_path / "towns.omni"), queries=QUERIES, engine=BundleEngine(POLICY))
    with running(generation(graph), tokens(**ACTORS)) as server:
        warm(server)
        for size in range(20):
            writer.stdin.write(f"{size}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "\n"
            assert ask(server, "town", params={"key": "b"})["rows"] == [
                {"t.key": "b", "t.size": size, "t.name": "Birch"}
            ]
            general.clear()
            assert ask(server, "town", params={"key": "b"})["rows"][0]["t.size"] == size
            assert general == []
