"""What the group `serving` asks: clusters that are served, a server as a process, and a load on it by another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gitops.cluster.ledger.documents import read_state, write_state
from gitops.cluster.ledger.layout import STATE
from tests.bench.http_load import cpu_seconds
from tests.bench.measure import Effort, Program, Usage

GRAPH, TOKEN = "people", "t-bench"
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps({f"act-{n}": f"t-{n}" for n in range(9)} | {"ada": TOKEN})}
_SCHEMA = """node Person {
  handle: String @key
  name: String
  age: I32?
}
edge Knows: Person -> Person {
  since: I32?
}
"""
_QUERIES = """query point($handle: String) { match { $p: Person { handle: $handle } } return { $p.name, $p.age } }
query hop($handle: String) {
  match {
    $p: Person { handle: $handle }
    $p knows $q
  }
  return { $q.handle, $q.name }
}
query rename($handle: String, $name: String) { update Person set { name: $name } where handle = $handle }
"""
_POLICY = """version: 1
groups:
  staff: [ada, act-1, act-2]
rules:
  - id: reading
    allow: {actors: {group: staff}, actions: [read, change], branch_scope: any}
  - id: running
    allow: {actors: {group: staff}, actions: [invoke_query]}
"""
_CLUSTER = f"""version: 1
graphs:
  {GRAPH}:
    schema: schema.pg
    queries: queries.gq
policies:
  staff:
    file: staff.policy.yaml
    applies_to: [{GRAPH}]
"""
_STEP = 7919
# What a start takes at least, in CPU time, and how long a process that has started does nothing.
_START_S, _REST_S = 0.05, 0.3


def gitops(effort: Effort, folder: Path, *arguments: str) -> Usage:
    """Run a command on a cluster folder to its end."""
    argv = (sys.executable, "-m", "gitops", "--as", "bench", *arguments)
    return Program(argv, folder, effort.environment(), timeout_s=900.0).run()


def people_cluster(effort: Effort, folder: Path, people: int) -> Path:
    """A cluster of one graph of people who know three others each, applied, with a policy."""
    files = {"schema.pg": _SCHEMA, "queries.gq": _QUERIES, "staff.policy.yaml": _POLICY, "cluster.yaml": _CLUSTER}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    handles = [handle(n) for n in range(people)]
    nodes = (
        {"type": "Person", "data": {"handle": h, "name": f"Person {h}", "age": n % 90}} for n, h in enumerate(handles)
    )
    edges = (
        {"edge": "Knows", "from": h, "to": handles[(n * _STEP + step) % people]}
        for n, h in enumerate(handles)
        for step in (1, 2, 3)
    )
    with (folder / "seed.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for part in (nodes, edges) for record in part)
    for command in (["import"], ["apply"], ["graph", "load", GRAPH, "seed.jsonl"]):
        gitops(effort, folder, *command)
    return folder


def publish_revision(folder: Path) -> None:
    """Make the state of a ledger a newer one that says the same."""
    file = folder / STATE
    state = read_state(file.read_bytes())
    file.write_bytes(write_state(replace(state, revision=state.revision + 1)))


def handle(number: int) -> str:
    """The key of a person."""
    return f"p{number:06}"


@dataclass(frozen=True, slots=True)
class Server:
    """A server that listens: the port, the first process, and those that answer."""

    port: int
    process: subprocess.Popen[str]
    answering: Sequence[int]
    log: Path
    start_ms: float

    @property
    def resident_mib(self) -> float:
        """Memory of those that answer, on average."""
        return sum(map(_resident_kib, self.answering)) / len(self.answering) / 1024

    def cpu_ms(self) -> float:
        """CPU time that they have used."""
        return cpu_seconds(self.answering) * 1000

    def exchange(self) -> None:
        """Ask for the newest revision, and wait until it is served."""
        done = self._exchanges() + 1
        self.process.send_signal(signal.SIGHUP)
        while self._exchanges() < done:
            time.sleep(0.005)

    def _exchanges(self) -> int:
        return self.log.read_text(encoding="utf-8").count("result=exchanged")


@contextmanager
def listening(effort: Effort, folder: Path, argv: Sequence[str], workers: int = 1) -> Iterator[Server]:
    """Start a server that says where it listens, and end it with the block."""
    log, begin = folder / "server.log", time.monotonic()
    with log.open("w") as errors:
        process = subprocess.Popen(
            argv,
            cwd=folder,
            env={**effort.environment(), **TOKENS},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            took = (time.monotonic() - begin) * 1000
            if not said.startswith("OMNIGRAPH_LISTEN_ADDR="):
                raise RuntimeError(f"the server does not start: {log.read_text()[-2000:]}")
            answering = _children(process.pid, workers) if "--workers" in argv else [process.pid]
            _await_rest(answering)
            yield Server(int(said.rpartition(":")[2]), process, answering, log, took)
        finally:
            process.terminate()
            process.communicate()


def serve_argv(workers: int = 1, *more: str) -> tuple[str, ...]:
    """The server of the folder that it is started in, with its log of requests."""
    options = ("--cluster", ".", "--bind", "127.0.0.1:0", "--workers", str(workers))
    return (sys.executable, "-m", "gitops", "serve", *options, *more)


@contextmanager
def written_beside(effort: Effort, folder: Path, job: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Put a load during the block, if it has connections; its result is in the list afterwards."""
    found: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: found.append(load(effort, folder, job, "job-beside.json")))
    if job["connections"]:
        thread.start()
        time.sleep(_REST_S)
    try:
        yield found
    finally:
        if job["connections"]:
            thread.join()


def load(effort: Effort, folder: Path, job: Mapping[str, Any], name: str = "job.json") -> dict[str, Any]:
    """What `tests.bench.http_load` prints of a job, which it reads from a file of this name."""
    file = folder / name
    file.write_text(json.dumps(job), encoding="utf-8")
    argv = (sys.executable, "-m", "tests.bench.http_load", str(file))
    done = subprocess.run(
        argv, cwd=folder, env=effort.environment(), capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"the load did not run: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    if found["failed"]:
        raise RuntimeError(f"{found['failed']} of {found['count']} requests failed: {job['head']}")
    return found


def _children(pid: int, count: int) -> list[int]:
    """The workers of a supervisor, once it has all of them."""
    while True:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
        if len(found) >= count:
            return [int(each) for each in found]
        time.sleep(0.01)


def _await_rest(processes: Sequence[int]) -> None:
    """Wait until none of them is at work: a worker that is ready earlier than others would get all connections."""
    before = -1.0
    while (now := cpu_seconds(processes)) != before or not all(cpu_seconds([each]) > _START_S for each in processes):
        before = now
        time.sleep(_REST_S)


def _resident_kib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024
