"""Processes apply one cluster again and again: one runs at a time, the others hear who holds them up, nothing written is lost.

In every round a process changes a query of its own, and applies until it has had its turn. A run that finds the lock taken gives
up at once, as the command does; it is the process that tries again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.ledger.branch import BranchLedger
from gitops.cluster.ledger.documents import read_state
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.address import Kind
from gitops.cluster.model.ledger import LedgerState, LockInfo
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.canonical import digest
from gitops.core.clock import parse_timestamp
from gitops.core.errors import ConflictError
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.audited import FILES, Life
from tests.support.git_http import GitServer
from tests.support.memory_engine import MemoryEngine
from tests.support.pages import ROOT

__all__ = ["run_together"]


def run_together(code: str, arguments: Iterable[tuple[str, ...]], *, timeout: float) -> list[str]:
    """Start Python `code` once with each of the `arguments`, and return what the processes said after they were released.

    Each prints `ready`, and waits for a line. All of them have to end with code 0. Raises subprocess.TimeoutExpired where that
    takes one longer than `timeout` seconds. At the end, also after a failure, nothing runs any more that one of them started.
    """
    processes: list[subprocess.Popen[str]] = []
    try:
        for each in arguments:
            command = [sys.executable, "-c", code, *each]
            ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            processes.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **ends))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=timeout)[0] for process in processes]
        assert {process.returncode for process in processes} == {0}
        return said
    finally:
        for process in processes:
            # The id of a group is not used again while a process is in it, nor before its leader was waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


DEADLINE = 550
CHILD = "import sys; from tests.fault import test_apply_race as t; t.child(*sys.argv[1:])"
MAY_HAPPEN = {"state_lock_held", "merge_not_current"}
HELD = re.compile(
    r"the ledger is locked by (?P<operation>\w+) since (?P<since>\S+), for (?P<age>\d+) s \(process (?P<pid>\d+)\); "
    r"if that process has ended: gitops (cluster )?force-unlock [0-9A-HJKMNP-TV-Z]{26}"
)


class Alone:
    """A ledger that says while its lock is held, by a folder; finding one that is there already ends the process."""

    marker: Path
    taken = 0
    """How often this process had the lock."""

    def acquire(self, info: LockInfo) -> None:
        """As the real one."""
        super().acquire(info)  # type: ignore[misc]
        self.marker.mkdir()
        Alone.taken += 1

    def release(self, lock_id: str) -> None:
        """As the real one."""
        self.marker.rmdir()
        super().release(lock_id)  # type: ignore[misc]


class AloneInFolder(Alone, FolderLedger):
    """In a folder."""


class AloneOnBranch(Alone, BranchLedger):
    """On a branch."""


def query(name: str, turn: int) -> bytes:
    """What a process publishes in one round: nothing that the engine has to do with."""
    return FILES["cluster/notes.gq"].replace(b"titles", name.encode()) + f"// {turn}\n".encode()


@dataclass
class Race:
    """One of the places that a cluster can be at, as one process sees it. `url` is `folder`, `self`, or of the remote."""

    home: Path
    url: str
    name: str

    def __post_init__(self) -> None:
        """Open it."""
        Alone.marker = self.home / "held"
        self.life = None
        if self.url != "folder":
            name, url = ("life", None) if self.url == "self" else (self.name, self.url)
            self.life = Life(
                self.home, clock=SystemClock(), ids=RandomIds(), ledger_type=AloneOnBranch, name=name, url=url
            )

    def workspace(self) -> Workspace:
        """The cluster as it is now."""
        if self.life is not None:
            return self.life.workspace()
        root = self.home / "cluster"

        def stores(_: str | None) -> Stores:
            ledger = AloneInFolder(LocalStore(root), clock=SystemClock(), faults=NoFaults())
            return Stores(ledger, MemoryEngine(), lambda graph: f"memory/{graph}")

        tree, ids = FolderTree(str(root), confined=True), RandomIds()
        more: dict[str, Any] = {"actor": self.name, "workers": 2, "pid": os.getpid()}
        return Workspace(tree, "cluster", stores, SystemClock(), ids, **more)

    def edit(self, turn: int) -> None:
        """Change what this process may change, in a way that another process does not undo."""
        path, content = f"cluster/{self.name}.gq", query(self.name, turn)
        if self.life is None:
            # By rename: a reader sees the old text or the new one.
            draft = self.home / f"{self.name}.draft"
            draft.write_bytes(content)
            draft.replace(self.home / path)
            return
        for _ in range(1000):
            with contextlib.suppress(ConflictError):
                self.life.change("dora", {path: content})
                return
        raise AssertionError("the branch never stood still")

    def begin(self, names: list[str]) -> None:
        """A query of each process, converged."""
        queries = ", ".join(f"{name}.gq" for name in names)
        declared = f"version: 1\ngraphs: {{notes: {{schema: notes.pg, queries: [{queries}]}}}}\n"
        files = {
            **FILES,
            **{f"cluster/{name}.gq": query(name, 0) for name in names},
            "cluster/cluster.yaml": declared.encode(),
        }
        if self.life is None:
            (self.home / "cluster").mkdir()
            for path in (path for path in files if path.startswith("cluster/")):
                (self.home / path).write_bytes(files[path])
        else:
            signers = self.life.signers("bot", "ada", "dora")
            self.life.change(
                "dora", {**files, "gitops.yaml": self.life.config.encode(), ".gitops/allowed_signers": signers}
            )
        assert import_cluster(self.workspace()).ok
        assert apply(self.workspace()).converged

    def state(self) -> LedgerState:
        """What is recorded now."""
        if self.life is None:
            return read_state((self.home / "cluster" / STATE).read_bytes())
        return self.life.state(len(self.life.chain()))

    def chain(self) -> tuple[str, ...]:
        """The entries; a folder has none."""
        return () if self.life is None else self.life.chain()


def child(home: str, url: str, name: str, rounds: str) -> None:
    """What each process does when it is told to go; says what became of its rounds."""
    race = Race(Path(home), url, name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    done: list[dict[str, Any]] = []
    refusals: set[tuple[str, str]] = set()
    for turn in range(1, int(rounds) + 1):
        race.edit(turn)
        while not (outcome := apply(race.workspace())).ok:
            refusals |= {(d.code, d.message) for d in outcome.diagnostics if d.severity == "error"}
        revision = outcome.observations.state_revision
        done.append({"written": outcome.state_written, "revision": revision, "entry": outcome.entry_id})
    said = {"pid": os.getpid(), "taken": Alone.taken, "rounds": done, "refusals": sorted(refusals)}
    sys.stdout.write(json.dumps(said))


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


@contextlib.contextmanager
def http(home: Path) -> Iterator[str]:
    with GitServer(home) as server:
        yield server.url("life.git")


PLACES: dict[str, tuple[Callable[[Path], contextlib.AbstractContextManager[str]], int, int]] = {
    "folder": (lambda _: contextlib.nullcontext("folder"), 8, 200),
    "itself": (lambda _: contextlib.nullcontext("self"), 2, 50),
    "path": (lambda home: contextlib.nullcontext(str(home / "life.git")), 2, 50),
    "http": (http, 2, 50),
}
"""How a process reaches the ledger, how many there are, and how many rounds each has."""


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE + 30)
@pytest.mark.parametrize("place", PLACES)
def test_processes_apply_one_cluster_again_and_again(tmp_path: Path, place: str) -> None:
    reach, processes, rounds = PLACES[place]
    names = [f"p{number}" for number in range(processes)]
    with reach(tmp_path) as url:
        first = Race(tmp_path, "folder" if url == "folder" else "self", "first")
        first.begin(names)
        start, chain = first.state(), first.chain()
        arguments = [(str(tmp_path), url, name, str(rounds)) for name in names]
        said: list[dict[str, Any]] = [json.loads(each) for each in run_together(CHILD, arguments, timeout=DEADLINE)]
    assert [len(process["rounds"]) for process in said] == [rounds] * processes
    assert all(any(each["written"] for each in process["rounds"]) for process in said)

    # One at a time: whoever found another holder inside would have ended with an exception (see `Alone`).
    refused = [tuple(refusal) for process in said for refusal in process["refusals"]]
    assert {code for code, _ in refused} <= (MAY_HAPPEN if first.life else {"state_lock_held"})
    holders = [found for _, message in refused if (found := HELD.fullmatch(message))]
    assert holders, "nobody ever had to wait"
    for holder in holders:
        assert holder["operation"] == "apply"
        assert parse_timestamp(holder["since"]) is not None

    # Nothing is lost: every write has a revision of its own, without gaps.
    written = [each for process in said for each in process["rounds"] if each["written"]]
    end = first.state()
    assert sorted(each["revision"] for each in written) == list(range(start.revision + 1, end.revision + 1))
    assert not (tmp_path / "held").exists()
    if first.life is not None:
        assert first.chain()[: len(chain)] == chain
        assert sorted(first.chain()[len(chain) :]) == sorted(each["entry"] for each in written)
        assert first.life.audit(first.chain()[-1]).finding is None
    else:
        assert [process["taken"] for process in said] == [rounds] * processes
        assert {holder["pid"] for holder in holders} <= {str(process["pid"]) for process in said}
        # The holder may be gone again before anybody can look who it was.
        assert {message for _, message in refused if not HELD.fullmatch(message)} <= {
            "the lock was just released; run the command again"
        }
        # Nothing is left, and every blob is whole.
        root = tmp_path / "cluster"
        assert not (root / LOCK).exists()
        blobs = [p for p in (root / "__cluster/resources").rglob("*") if p.is_file()]
        assert {p.stem for p in blobs} == {digest(p.read_bytes()) for p in blobs}
        assert {r.digest for a, r in end.resources.items() if a.kind is Kind.QUERY} <= {p.stem for p in blobs}
    assert apply(first.workspace()).converged
