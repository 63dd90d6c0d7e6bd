"""Eight processes apply one cluster folder at once: one at a time, and the others are told who holds them up.

In every round a process changes a query of its own and applies until it has had its turn. A run that finds the lock taken
gives up at once, as the command does; it is the process that tries again.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.ledger.documents import read_state
from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.address import Kind
from gitops.cluster.model.ledger import LockInfo
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.fault.test_apply_race import AloneInFolder
from tests.support.cluster import QUERY, SCHEMA
from tests.support.crowd import run_together
from tests.support.memory_engine import MemoryEngine

ROUNDS = 200
DEADLINE = 550
NAMES = tuple(f"p{number}" for number in range(8))
CHILD = "import sys; from tests.fault import test_apply_crowd as t; t.child(*sys.argv[1:])"
HELD = re.compile(
    r"the ledger is locked by (?P<operation>\w+) since (?P<since>\S+), for (?P<age>\d+) s \(process (?P<pid>\d+)\); "
    r"if that process has ended: gitops force-unlock [0-9A-HJKMNP-TV-Z]{26}"
)
# The holder was gone again before anybody could look who it was.
FREED = "the lock was just freed; run the command again"


class Holding(AloneInFolder):
    """Also counts how often this process had the lock."""

    taken = 0

    def acquire(self, info: LockInfo) -> None:
        """As the real one."""
        super().acquire(info)
        Holding.taken += 1


def workspace(home: Path, name: str) -> Workspace:
    """The cluster as process `name` sees it now."""
    AloneInFolder.marker = home / "held"
    root = home / "cluster"

    def stores(_: str | None) -> Stores:
        ledger = Holding(LocalStore(root), clock=SystemClock(), faults=NoFaults())
        return Stores(ledger, MemoryEngine(), lambda graph: f"memory/{graph}")

    tree = FolderTree(str(root), confined=True)
    return Workspace(tree, "cluster", stores, SystemClock(), RandomIds(), actor=name, workers=2, pid=os.getpid())


def put(home: Path, path: str, content: bytes) -> None:
    """Write a file by rename: a reader sees the old text or the new one."""
    draft = home / f"{os.getpid()}.draft"
    draft.write_bytes(content)
    draft.replace(home / "cluster" / path)


def query(name: str, turn: int) -> bytes:
    """What a process publishes in one round: nothing that the engine has to do with."""
    return QUERY.replace("find_person", name).encode() + f"// {turn}\n".encode()


def child(place: str, name: str) -> None:
    """What each process does when it is told to go; says what became of its rounds."""
    home = Path(place)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    rounds: list[dict[str, Any]] = []
    refusals: set[tuple[str, str]] = set()
    for turn in range(1, ROUNDS + 1):
        put(home, f"{name}.gq", query(name, turn))
        while True:
            outcome = apply(workspace(home, name))
            if outcome.ok:
                break
            refusals |= {(d.code, d.message) for d in outcome.diagnostics if d.severity == "error"}
        rounds.append({"written": outcome.state_written, "revision": outcome.observations.state_revision})
    said = {"pid": os.getpid(), "taken": Holding.taken, "rounds": rounds, "refusals": sorted(refusals)}
    sys.stdout.write(json.dumps(said))


def begin(home: Path) -> None:
    """A cluster with a query per process, converged."""
    (home / "cluster").mkdir()
    queries = ", ".join(f"{name}.gq" for name in NAMES)
    put(home, "cluster.yaml", f"version: 1\ngraphs: {{all: {{schema: all.pg, queries: [{queries}]}}}}\n".encode())
    put(home, "all.pg", SCHEMA.encode())
    for name in NAMES:
        put(home, f"{name}.gq", query(name, 0))
    assert import_cluster(workspace(home, "first")).ok
    assert apply(workspace(home, "first")).converged


@pytest.mark.timeout(60)
def test_a_process_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    fifo = tmp_path / "open"
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    started = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], pass_fds=[f.fileno()])"
    hangs = f"import subprocess, sys; f = open(sys.argv[1], 'w'); {started}; print('ready', flush=True); f.close()"
    with pytest.raises(subprocess.TimeoutExpired):
        run_together(f"{hangs}; sys.stdin.readline(); sys.stdin.read()", [(str(fifo),)], timeout=0.1)
    # The fifo is at its end as soon as no process has it open.
    os.set_blocking(end, True)
    assert os.read(end, 1) == b""
    os.close(end)


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE + 30)
def test_eight_processes_apply_two_hundred_times_each(tmp_path: Path) -> None:
    begin(tmp_path)
    root = tmp_path / "cluster"
    start = read_state((root / STATE).read_bytes()).revision
    said: list[dict[str, Any]] = [
        json.loads(each) for each in run_together(CHILD, [(str(tmp_path), name) for name in NAMES], timeout=DEADLINE)
    ]
    rounds = [each for process in said for each in process["rounds"]]
    assert len(rounds) == len(NAMES) * ROUNDS

    # One at a time: whoever found another holder inside would have ended with an exception (see `AloneInFolder`).
    assert [process["taken"] for process in said] == [ROUNDS] * len(NAMES)
    refused = [tuple(refusal) for process in said for refusal in process["refusals"]]
    assert {code for code, _ in refused} == {"state_lock_held"}
    told = [HELD.fullmatch(message) for _, message in refused if message != FREED]
    assert told, "nobody ever had to wait"
    pids = {str(process["pid"]) for process in said}
    for holder in told:
        assert holder is not None
        assert holder["operation"] == "apply"
        assert holder["pid"] in pids
        assert parse_timestamp(holder["since"]) is not None

    # Nothing is lost: every write has a revision of its own, without gaps.
    written = sorted(each["revision"] for each in rounds if each["written"])
    assert written == list(range(start + 1, start + 1 + len(written)))
    end = read_state((root / STATE).read_bytes())
    assert end.revision == start + len(written)
    assert all(any(each["written"] for each in process["rounds"]) for process in said)

    # Nothing is left, and every blob is whole.
    assert not (root / LOCK).exists()
    assert not (tmp_path / "held").exists()
    blobs = [p for p in (root / "__cluster/resources").rglob("*") if p.is_file()]
    assert {p.stem for p in blobs} == {digest(p.read_bytes()) for p in blobs}
    assert {r.digest for a, r in end.resources.items() if a.kind is Kind.QUERY} <= {p.stem for p in blobs}
    assert apply(workspace(tmp_path, "last")).converged
