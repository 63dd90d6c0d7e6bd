"""The query server: requests per second and latency, what a start and an exchange of the revision take, and memory.

Server and load generator are processes of one machine and share its cores with everything else that runs there, so the CPU time
of the server per request says more than what passes: a worker cannot answer more requests in a second than it goes into one.
Requests are put by eight connections for each worker: first as fast as they are answered, then at half of that rate.
Reads beside writers are put in turns to a server and to one that does nothing, so that their ratio holds on a busy machine.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.clusters import write_cluster
from tests.bench.measure import Effort, Figure, Goals, Program, Usage, clocked, process_figures
from tests.bench.served import (
    GRAPH,
    TOKEN,
    Server,
    gitops,
    handle,
    listening,
    load,
    people_cluster,
    publish_revision,
    serve_argv,
    written_beside,
)
from tests.bench.serving_parts import part_figures

_CONNECTIONS = 8
_AUTH = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json"
_POINT = "point read"
# A worker answers 600 point reads in a second if one takes no more CPU time than this.
_POINT_CPU_MS = 1000 / 600
_P99_MS = 15.0
_BOOT_MS = 5000.0
_BODIES = 500
_HOP = "1 hop"
# A read costs at most so many times as much as a request to a server that does nothing.
_TIMES_FLOOR = 2.5
_P99_TIMES_P50 = 5.0
_WRITERS = (0, 1, 8)


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request that is put again and again."""

    name: str
    head: str
    bodies: Sequence[str]

    @classmethod
    def of_query(cls, label: str, query: str, people: int, **params: str) -> _Ask:
        """A stored query, about one person after the other."""
        head = f"POST /graphs/{GRAPH}/queries/{query} HTTP/1.1\r\n{_AUTH}"
        handles = (handle(number * 7919 % people) for number in range(_BODIES))
        return cls(label, head, [json.dumps({"params": {"handle": each, **params}}) for each in handles])


def figures(effort: Effort) -> Iterator[Figure]:
    """The server beside one that does nothing and beside the command line; the parts of a request; a thousand graphs."""
    people = 200 if effort.quick else 20_000
    folder = people_cluster(effort, effort.folder("serving"), people)
    yield from _floor_figures(effort, folder)
    asks = [
        _Ask("health", "GET /healthz HTTP/1.1", [""]),
        _Ask.of_query(_POINT, "point", people),
        _Ask.of_query(_HOP, "hop", people),
        _Ask.of_query("mutation", "rename", people, name="another"),
    ]
    counts = (1, 2) if effort.quick else sorted({1, 2, os.cpu_count() or 1})
    for workers in counts:
        with listening(effort, folder, serve_argv(workers), workers) as server:
            for ask in asks:
                yield from _ask_figures(effort, folder, server, ask)
    yield from _beside_writers(effort, folder, people)
    yield from _command_figures(effort, folder)
    yield from part_figures(effort, folder, people)
    yield from _many_graphs(effort)


def _command_figures(effort: Effort, folder: Path) -> Iterator[Figure]:
    """One point read by a command that opens the graph itself, and by one that asks a server, by turns."""
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with listening(effort, folder, serve_argv(1)) as server:
        client = ("query", "--server", f"http://127.0.0.1:{server.port}", "--token-file", str(token))
        runs: dict[str, list[Usage]] = {"graph query": [], "query of a server": []}
        for number in range(effort.processes):
            for asked, command in zip(runs.values(), (("graph", "query"), client), strict=True):
                read = (*command, GRAPH, "point", "--param", f"handle={handle(number)}")
                asked.append(gitops(effort, folder, *read))
    for name, found in runs.items():
        yield from process_figures(f"{_POINT} on the command line, {name}", found)


def _floor_figures(effort: Effort, folder: Path) -> Iterator[Figure]:
    """A server that reads the request and answers with a constant."""
    ask = _Ask("a server that does nothing", f"POST /nothing HTTP/1.1\r\n{_AUTH}", ["{}"])
    with listening(effort, folder, (sys.executable, "-m", "tests.bench.idle_app")) as server:
        yield from _ask_figures(effort, folder, server, ask)


def _beside_writers(effort: Effort, folder: Path, people: int) -> Iterator[Figure]:
    """Reads in a closed loop of eight connections, while some others write, as multiples of the floor in the same round."""
    rounds, seconds = (1, 0.4) if effort.quick else (5, 3.0)
    nothing = _Ask("nothing", f"POST /nothing HTTP/1.1\r\n{_AUTH}", ["{}"])
    reads = [_Ask.of_query(_POINT, "point", people), _Ask.of_query(_HOP, "hop", people)]
    write = _Ask.of_query("mutation", "rename", people, name="another")
    idle = (sys.executable, "-m", "tests.bench.idle_app")
    with (
        listening(effort, effort.folder("serving-floor"), idle) as floor,
        listening(effort, folder, serve_argv(1)) as server,
    ):
        for writers in _WRITERS:
            found: dict[str, list[tuple[float, float, float]]] = {each.name: [] for each in reads}
            written = []
            for _ in range(rounds):
                base = load(effort, folder, _job(nothing, floor, _CONNECTIONS, seconds))
                for each in reads:
                    with written_beside(effort, folder, _job(write, server, writers, seconds + 1.0)) as beside:
                        got = load(effort, folder, _job(each, server, _CONNECTIONS, seconds))
                    times = base["count"] / base["seconds"] / (got["count"] / got["seconds"])
                    found[each.name].append((times, got["p50_ms"], got["p99_ms"]))
                    written += [one["count"] / one["seconds"] for one in beside]
            for name, rows in found.items():
                label = f"{name}, {writers} writers"
                bounds = (None, None) if effort.quick else (_TIMES_FLOOR, _P99_TIMES_P50)
                yield Figure(f"{label}: floor / rate", "ratio", tuple(each[0] for each in rows), bounds[0])
                yield Figure(f"{label}: p50", "ms", tuple(each[1] for each in rows))
                yield Figure(f"{label}: p99 / p50", "ratio", tuple(each[2] / each[1] for each in rows), bounds[1])
            if writers:
                yield Figure(f"mutations beside reads, {writers} writers", "1/s", tuple(written))


def _job(ask: _Ask, server: Server, connections: int, seconds: float) -> dict[str, object]:
    """A closed loop."""
    return {
        "port": server.port,
        "head": ask.head,
        "bodies": ask.bodies,
        "connections": connections,
        "seconds": seconds,
        "rate": None,
        "processes": server.answering,
    }


def _ask_figures(effort: Effort, folder: Path, server: Server, ask: _Ask) -> Iterator[Figure]:
    rounds, seconds = (1, 0.4) if effort.quick else (3, 3.0)
    workers = len(server.answering)
    job = _job(ask, server, _CONNECTIONS * workers, seconds)
    closed = [load(effort, folder, job) for _ in range(rounds)]
    rates = tuple(each["count"] / each["seconds"] for each in closed)
    half = [load(effort, folder, {**job, "rate": rate / 2}) for rate in rates]
    label = f"{ask.name}, {workers} worker{'s' if workers > 1 else ''}"
    is_point = ask.name == _POINT and not effort.quick
    yield Figure(label, "1/s", rates)
    cpu = tuple(each["server_cpu_ms"] / each["count"] for each in closed)
    yield Figure(f"{label}: CPU of the server", "ms", cpu, _POINT_CPU_MS if is_point else None)
    yield Figure(
        f"{label}: CPU of the load generator", "ms", tuple(each["own_cpu_ms"] / each["count"] for each in closed)
    )
    for name, found, goal in (("as fast as possible", closed, None), ("at half that rate", half, _P99_MS)):
        for key in ("p50", "p99"):
            bound = goal if is_point and key == "p99" else None
            yield Figure(f"{label}: {key} {name}", "ms", tuple(each[f"{key}_ms"] for each in found), bound)


def _many_graphs(effort: Effort) -> Iterator[Figure]:
    """Starts and exchanges with many graphs of one query each."""
    count, exchanges = (6, 2) if effort.quick else (1000, 10)
    folder = write_cluster(effort.folder("serving-many"), graphs=count, queries=1)
    for command in (["import"], ["apply"]):
        gitops(effort, folder, *command)
    check = Program((*serve_argv(), "--check", "--unauthenticated"), folder, effort.environment())
    runs = [check.run() for _ in range(1 if effort.quick else 5)]
    yield from process_figures(f"serve --check, {count} graphs", runs, Goals(None if effort.quick else _BOOT_MS))
    with listening(effort, folder, serve_argv(2), 2) as server:
        yield Figure(f"until it listens, {count} graphs, 2 workers", "ms", (server.start_ms,))
        yield Figure(f"memory of each of 2 workers, {count} graphs", "MiB", (server.resident_mib,))
    with listening(effort, folder, serve_argv()) as server:
        yield Figure(
            f"until it listens, {count} graphs, 1 worker", "ms", (server.start_ms,), None if effort.quick else _BOOT_MS
        )
        memory, took, cpu = [server.resident_mib], [], []
        for _ in range(exchanges):
            publish_revision(folder)
            before = server.cpu_ms()
            took.append(clocked(server.exchange)[1])
            cpu.append(server.cpu_ms() - before)
            memory.append(server.resident_mib)
    yield Figure(f"exchange of the revision, {count} graphs", "ms", tuple(took))
    yield Figure(f"exchange of the revision, {count} graphs, CPU", "ms", tuple(cpu))
    for name, at in (("at first", 0), ("after one exchange", 1), (f"after {exchanges} exchanges", exchanges)):
        yield Figure(f"memory of a worker, {count} graphs: {name}", "MiB", (memory[at],))
