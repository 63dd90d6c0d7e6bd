"""Reports the revision that this server serves, for commands that wait for a new one.

1. A server is one replica, regardless of its number of processes. Each process records its revision on a board, and the
   first process reports the oldest of these revisions.
2. A report is written when it changes, and again before it expires. It is removed when the server stops. A crashed
   server's report expires.
3. A failed report causes one warning. The server continues, and tries again when the next report is due.
"""

from __future__ import annotations

import json
import logging
import re
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from mmap import mmap

from gitops.cluster.ledger.served import MAX_CODES, ServingReports
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport
from gitops.core.clock import Clock, timestamp
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import MAX_LINE
from gitops.core.errors import GitopsError
from gitops.render.characters import visible
from gitops.serving.process import Reload, ReloadResult

EVERY_S, TTL_S = 20, 60
"""How often a report is renewed, and how long it is valid, so that two of three reports can be late."""
_LOOK_S = 0.5
_STOP_S = 5.0
_SLOT = 4096
_HEADER = struct.Struct(">HI")


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The revision that a process serves, the newest revision that it has seen, and why it refuses that one."""

    accepted: RevisionIdentity
    offered: RevisionIdentity | None
    codes: tuple[str, ...] = ()

    @classmethod
    def after(cls, made: Reload) -> WorkerStatus:
        """Return the status after an attempt to serve a newer revision.

        A process that waits for an operation does not count as refusing.
        """
        codes = made.codes[:MAX_CODES] if made.result is ReloadResult.REFUSED else ()
        return cls(made.served, made.offered, codes)


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """Fixed facts about a server: its name, the requested revision, and when it checks for a newer revision."""

    replica: str
    cluster: str
    follows: Follows


def replica_name(host: str, chance: str) -> str:
    """Return a name for a server on a host if none was given. `chance` distinguishes servers on the same host."""
    plain = re.sub(r"[^0-9A-Za-z_.-]+", "-", host).lstrip("_.-")[:40] or "server"
    return f"{plain}-{chance.lower()}"


def replica_report(statuses: Sequence[WorkerStatus], facts: ReplicaFacts, at: str) -> ServerReport:
    """Return the report for a server with these processes (at least one). It contains their oldest revision."""
    oldest = min(statuses, key=lambda each: each.accepted.state_revision)
    # A process that refuses the offered revision is more informative than one that has not checked yet.
    seen = max(statuses, key=lambda each: (bool(each.codes), each.offered.state_revision if each.offered else -1))
    cluster = facts.cluster[:MAX_LINE]
    return ServerReport(
        facts.replica, cluster, facts.follows, oldest.accepted, seen.offered, seen.codes, at=at, ttl_s=TTL_S
    )


class StatusBoard:
    """The served revisions of a server's processes, in shared memory. Each process writes to a separate slot."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._memory = mmap(-1, workers * _SLOT)

    def put(self, number: int, status: WorkerStatus) -> None:
        """Set the status of the process with this number."""
        offered = status.offered
        form = [_parts(status.accepted), None if offered is None else _parts(offered), list(status.codes)]
        data = json.dumps(form).encode()
        start = number * _SLOT
        self._memory[start : start + _HEADER.size + len(data)] = _HEADER.pack(len(data), zlib.crc32(data)) + data

    def statuses(self) -> tuple[WorkerStatus, ...]:
        """Return the statuses of processes that already serve, or nothing while one of them is being written."""
        found = []
        for start in range(0, self._workers * _SLOT, _SLOT):
            size, check = _HEADER.unpack_from(self._memory, start)
            data = self._memory[start + _HEADER.size : start + _HEADER.size + size]
            if zlib.crc32(data) != check:
                return ()
            if data:
                accepted, offered, codes = json.loads(data)
                seen = None if offered is None else RevisionIdentity(*offered)
                found.append(WorkerStatus(RevisionIdentity(*accepted), seen, tuple(codes)))
        return tuple(found)


class Reporter:
    """Keeps a server's report up to date. Its methods are called by a single thread and never raise."""

    def __init__(
        self,
        board: StatusBoard,
        facts: ReplicaFacts,
        open_reports: Callable[[], ServingReports | None],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        """`open_reports` returns the place for reports; None if there is none."""
        self._board, self._facts, self._clock, self._log = board, facts, clock, log
        self._open = open_reports
        self._reports: ServingReports | None = None
        self._tried: ServerReport | None = None
        self._written: ServerReport | None = None
        self._due = 0.0
        self._failing = False

    def look(self) -> None:
        """Write the report if it has changed, or if it is time to renew it."""
        statuses = self._board.statuses()
        if not statuses:
            return
        report = replica_report(statuses, self._facts, timestamp(self._clock.now()))
        same = self._tried is not None and replace(report, at=self._tried.at) == self._tried
        if same and self._clock.monotonic() < self._due:
            return
        self._tried, self._due = report, self._clock.monotonic() + EVERY_S
        try:
            reports = self._reports = self._reports or self._open()
            if reports is None:
                return
            reports.write(report)
            if self._written is None:
                self._log.info("this server reports what it serves as %s", self._facts.replica)
                with suppress(GitopsError):
                    reports.remove_old(self._clock.now())
            elif self._failing:
                self._log.info("what is served is reported again")
            self._written, self._failing = report, False
        except GitopsError as error:
            if not self._failing:
                why = f"{error.code} {error.path or ''}: {error.detail}"
                self._log.warning(
                    "%s", visible(f"what is served is not reported, and no apply can wait for this server: {why}")
                )
            self._failing = True

    def take_back(self) -> None:
        """Remove the report, because the server stops serving."""
        if self._reports is not None and self._written is not None:
            with suppress(GitopsError):
                self._reports.take_back(self._written)

    def run(self, stopped: threading.Event) -> None:
        """Report until stopped, then remove the report."""
        while True:
            self.look()
            if stopped.wait(_LOOK_S):
                break
        self.take_back()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Report in a separate thread during the block.

        When the server stops, it does not wait long for slow storage.
        """
        stopped = threading.Event()
        thread = threading.Thread(target=self.run, args=(stopped,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join(_STOP_S)


def _parts(revision: RevisionIdentity) -> list[object]:
    return [revision.digest, revision.state_revision, revision.config_digest]
