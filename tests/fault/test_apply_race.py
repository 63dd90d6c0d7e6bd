"""Two processes apply one cluster again and again: one runs at a time, everything that was written stays."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
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
from gitops.cluster.ledger.layout import STATE
from gitops.cluster.model.ledger import LedgerState, LockInfo
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.errors import ConflictError
from gitops.core.faults import NoFaults
from gitops.database.storage.local import LocalStore
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.audited import FILES, Life, declared
from tests.support.crowd import run_together
from tests.support.git_http import GitServer
from tests.support.memory_engine import MemoryEngine

ROUNDS = 50
DEADLINE = 280
CHILD = "import sys; from tests.fault import test_apply_race as t; t.child(*sys.argv[1:])"
NAMES = ("one", "two")
MAY_HAPPEN = {"state_lock_held", "merge_not_current"}
UNLOCK = re.compile(r"force-unlock [0-9A-HJKMNP-TV-Z]{26}$")


class Alone:
    """A ledger that says while its lock is held, by a folder; finding one that is there already ends the process."""

    marker: Path

    def acquire(self, info: LockInfo) -> None:
        """As the real one."""
        super().acquire(info)  # type: ignore[misc]
        self.marker.mkdir()

    def release(self, lock_id: str) -> None:
        """As the real one."""
        self.marker.rmdir()
        super().release(lock_id)  # type: ignore[misc]


class AloneInFolder(Alone, FolderLedger):
    """In a folder."""


class AloneOnBranch(Alone, BranchLedger):
    """On a branch."""


def policy(name: str, turn: int) -> bytes:
    """What a process publishes in one round: nothing that the engine has to do with."""
    return f"version: 1\nrules: []\n# {name} {turn}\n".encode()


CLUSTER = declared("notes") + b"".join(
    f"{'policies:' if n == 'one' else ''}\n  {n}: {{file: {n}.policy.yaml, applies_to: [{scope}]}}\n".encode()
    for n, scope in zip(NAMES, ("cluster", "notes"), strict=True)
)
START = {f"cluster/{name}.policy.yaml": policy(name, 0) for name in NAMES} | {"cluster/cluster.yaml": CLUSTER}


@dataclass
class Race:
    """One of the places that a cluster can be at, as one process sees it. `url` is `folder`, `self`, or of the remote."""

    home: Path
    url: str
    name: str

    def __post_init__(self) -> None:
        """Open it."""
        AloneInFolder.marker = AloneOnBranch.marker = self.home / "held"
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

        tree = FolderTree(str(root), confined=True)
        return Workspace(tree, "cluster", stores, SystemClock(), RandomIds(), actor=self.name)

    def edit(self, turn: int) -> None:
        """Change what this process may change, in a way that another process does not undo."""
        path, content = f"cluster/{self.name}.policy.yaml", policy(self.name, turn)
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

    def begin(self) -> None:
        """The first apply."""
        if self.life is None:
            (self.home / "cluster").mkdir()
            for path, content in {**FILES, **START}.items():
                if path.startswith("cluster/"):
                    (self.home / path).write_bytes(content)
        else:
            rules = {
                "gitops.yaml": self.life.config.encode(),
                ".gitops/allowed_signers": self.life.signers("bot", "ada", "dora"),
            }
            self.life.change("dora", {**FILES, **START, **rules})
        assert import_cluster(self.workspace()).ok
        assert apply(self.workspace()).converged

    def state(self) -> LedgerState:
        """What is recorded now."""
        if self.life is None:
            return read_state((self.home / "cluster" / STATE).read_bytes())
        return self.life.state(len(self.life.chain()))


def child(home: str, url: str, name: str) -> None:
    """What each process does when it is told to go: fifty rounds; says what became of each."""
    race = Race(Path(home), url, name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    results = []
    for turn in range(1, ROUNDS + 1):
        race.edit(turn)
        results.append(_said(apply(race.workspace())))
    sys.stdout.write(json.dumps(results))


def _said(outcome: ApplyOutcome) -> dict[str, Any]:
    problems = [d for d in outcome.diagnostics if d.severity == "error"]
    return {
        "ok": outcome.ok,
        "written": outcome.state_written,
        "entry": outcome.entry_id,
        "codes": [d.code for d in problems],
        "messages": [d.message for d in problems],
    }


@contextlib.contextmanager
def folder(home: Path) -> Iterator[str]:
    yield "folder"


@contextlib.contextmanager
def itself(home: Path) -> Iterator[str]:
    yield "self"


@contextlib.contextmanager
def path(home: Path) -> Iterator[str]:
    yield str(home / "life.git")


@contextlib.contextmanager
def http(home: Path) -> Iterator[str]:
    with GitServer(home) as server:
        yield server.url("life.git")


@pytest.mark.slow
@pytest.mark.timeout(DEADLINE + 20)
@pytest.mark.parametrize("place", [folder, itself, path, http])
def test_two_processes_apply_fifty_times_each(
    tmp_path: Path, place: Callable[[Path], contextlib.AbstractContextManager[str]]
) -> None:
    with place(tmp_path) as url:
        first = Race(tmp_path, "folder" if url == "folder" else "self", "first")
        first.begin()
        start, chain = first.state(), () if first.life is None else first.life.chain()
        said = run_together(CHILD, [(str(tmp_path), url, name) for name in NAMES], timeout=DEADLINE)
    runs = [json.loads(each) for each in said]

    every = [each for one in runs for each in one]
    refused = [each for each in every if not each["ok"]]
    written = [each for each in every if each["written"]]
    assert {code for each in refused for code in each["codes"]} <= MAY_HAPPEN
    held = [message for each in refused if "state_lock_held" in each["codes"] for message in each["messages"]]
    assert any(UNLOCK.search(message) for message in held)
    assert not (tmp_path / "held").exists()

    end = first.state()
    assert end.revision == start.revision + len(written)
    if first.life is not None:
        added = first.life.chain()[len(chain) :]
        assert first.life.chain()[: len(chain)] == chain
        assert sorted(added) == sorted(each["entry"] for each in written)
        assert first.life.audit(first.life.chain()[-1]).finding is None
    assert apply(first.workspace()).converged
    for one, name in zip(runs, NAMES, strict=True):
        assert any(each["written"] for each in one), f"{name} never had a turn"
