"""Serve a newer revision without a restart: the next generation is made aside, and takes over in one step, or not at all.

1. The ledger is read again. A revision that is served already changes nothing.
2. While an interrupted operation is not settled, nothing is exchanged: the graphs may be half-way between two revisions.
3. A ledger that went back is refused: a server never serves an older state than it did, unless it is started again.
4. The new generation passes every check of a boot. Where one fails, requests are answered from the old one, as before.
5. Requests under way keep the generation that they began with, to their last byte.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from gitops.cluster.model.served import RevisionIdentity
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.serving.process import Booted, BootInputs, ServingGeneration, boot_process
from gitops.serving.texts import Compiled

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache

__all__ = ["Reload", "ReloadResult", "Reloader", "Watch"]

RETRY_S = 30.0
"""A revision that was refused is tried again after so long: what was wrong may have been outside of it."""


class ReloadResult(StrEnum):
    """What became of an attempt."""

    EXCHANGED = "exchanged"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reload:
    """An attempt: the revision that is served after it, the one that was offered, None where none could be read, and why.

    `behind` is how many states the offered revision is newer, where it is not served.
    """

    result: ReloadResult
    served: RevisionIdentity
    offered: RevisionIdentity | None
    problems: tuple[Diagnostic, ...] = ()
    behind: int = 0

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the errors, in the order of the checks."""
        return tuple(dict.fromkeys(each.code.value for each in self.problems if each.severity is Severity.ERROR))

    @property
    def form(self) -> Mapping[str, Any]:
        """As logs and answers have it."""
        return {
            "result": self.result.value,
            "served_revision": f"sha256:{self.served.digest}",
            "offered_revision": None if self.offered is None else f"sha256:{self.offered.digest}",
            "codes": sorted(self.codes),
        }


class Reloader:
    """Exchanges the generation of a process. Safe between threads: there is one attempt at a time."""

    def __init__(
        self,
        inputs: BootInputs,
        source: ServingGeneration,
        *,
        compiled: Compiled,
        rows: Callable[[], ReadCache],
        note: Callable[[Reload], None],
    ) -> None:
        """`compiled` and `rows` are those of the boot, of which `rows` gives the same cache each time.

        `note` is called with each attempt.
        """
        compiled.keep(source.current())
        self._inputs, self._source, self._note = inputs, source, note
        self._compiled, self._rows = compiled, rows
        self._turn = threading.Lock()
        self._pending: Reload | None = None

    @property
    def pending(self) -> Reload | None:
        """The last attempt, if the newest revision could not be served then."""
        return self._pending

    def reload(self) -> Reload:
        """Serve the newest revision, if that is another one and in order. Never raises."""
        with self._turn:
            made = self._attempt()
            self._pending = made if made.result in (ReloadResult.WAITING, ReloadResult.REFUSED) else None
            self._note(made)
        return made

    def _attempt(self) -> Reload:
        served = self._source.current().revision
        try:
            booted = boot_process(self._inputs, compiled=self._compiled, rows=self._rows)
        except GitopsError as error:
            unreadable = Diagnostics()
            unreadable.add_error(error)
            return Reload(ReloadResult.REFUSED, served, None, tuple(unreadable))
        offered = None if booted.revision is None else booted.revision.identity
        problems = booted.outcome.diagnostics
        if offered is not None and offered.digest == served.digest:
            return Reload(ReloadResult.UNCHANGED, served, offered)
        if _is_interrupted(booted):
            return Reload(ReloadResult.WAITING, served, offered, problems, _behind(offered, served))
        if offered is not None and offered.state_revision <= served.state_revision:
            rewound = Diagnostics()
            message = (
                f"the ledger is at number {offered.state_revision} of its state; {served.state_revision} is served"
            )
            rewound.add(Code.REVISION_REWOUND, "state", message)
            return Reload(ReloadResult.REFUSED, served, offered, tuple(rewound))
        if booted.generation is None:
            return Reload(ReloadResult.REFUSED, served, offered, problems, _behind(offered, served))
        self._source.publish(booted.generation)
        self._compiled.keep(booted.generation)
        return Reload(ReloadResult.EXCHANGED, booted.generation.revision, offered, problems)


def _behind(offered: RevisionIdentity | None, served: RevisionIdentity) -> int:
    return 0 if offered is None else max(0, offered.state_revision - served.state_revision)


def _is_interrupted(booted: Booted) -> bool:
    found = [] if booted.revision is None else [each for of in booted.revision.broken.values() for each in of]
    return any(each.code is Code.CLUSTER_RECOVERY_PENDING for each in found)


class Watch:
    """Looks at the ledger from time to time, and reloads when its state is another one."""

    def __init__(self, reloader: Reloader, identify: Callable[[], str | None], now: Callable[[], float]) -> None:
        """`identify` gives the identity of the newest state, None where it cannot be seen; `now` counts seconds."""
        self._reloader, self._identify, self._now = reloader, identify, now
        self._tried: tuple[str, float] | None = None

    def look(self) -> None:
        """Look once. Never raises."""
        try:
            seen = self._identify()
        except GitopsError:
            # The ledger does not answer; the revision that is served stays good.
            return
        if seen is None or (self._tried is not None and self._tried[0] == seen and self._now() < self._tried[1]):
            return
        made = self._reloader.reload()
        settled = made.result in (ReloadResult.EXCHANGED, ReloadResult.UNCHANGED)
        pause = float("inf") if settled else 0.0 if made.result is ReloadResult.WAITING else RETRY_S
        self._tried = seen, self._now() + pause

    def run(self, every_s: float, stopped: threading.Event) -> None:
        """Look until it is stopped."""
        while not stopped.wait(every_s):
            self.look()
