"""A run's progress for people: a line for each finished change, and a view of running and waiting nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import Enum
from itertools import islice
from typing import Any

from gitops.cluster.model.plan import BARRIER_KIND, CHECK, LOOKS, LockClaim, NodeOutcome, RunEvent
from gitops.core.clock import timestamp
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.render.characters import visible

_ENDS = {
    "node_finished": "done",
    "node_failed": "failed",
    "node_cancelled": "cancelled",
    "node_indeterminate": "indeterminate",
    "node_skipped": "skipped",
}
_MOST_WAITING = 3


@dataclass(frozen=True, slots=True)
class RunView:
    """A run's state at one moment: totals, running nodes with their start times, and some of the nodes that wait for locks."""

    changes: int
    ended: dict[str, int]
    started: datetime
    running: tuple[tuple[str, datetime], ...]
    waiting: tuple[str, ...]
    waits: int

    def lines(self, now: datetime) -> Iterator[str]:
        """Yield the view as of `now`: counts first, then a line for each change that is running or waiting."""
        numbers = [f"{count} {how}" for how, count in self.ended.items() if count and how != "done"]
        numbers += [f"{len(self.running)} running"] + ([f"{self.waits} waiting"] if self.waits else [])
        done = f"{self.ended['done']} of {self.changes} done"
        yield f"apply {_clock(now - self.started)} {', '.join([done, *numbers])}"
        for text, since in self.running:
            yield f"  {_clock(now - since)} {text}"
        yield from (f"  waits {text}" for text in self.waiting)
        if self.waits > len(self.waiting):
            yield f"  waits {self.waits - len(self.waiting)} more"


class RunProgress:
    """One run's events so far. The output never contains characters that affect a terminal."""

    def __init__(self, start: RunEvent) -> None:
        """`start` is the first event, `apply_started`."""
        self._changes, self._began = start.facts["changes"], start.at
        self._running: dict[str, tuple[str, datetime]] = {}
        self._waiting: dict[str, str] = {}
        self._ended: Counter[str] = Counter(dict.fromkeys(_ENDS.values(), 0))

    def take(self, event: RunEvent) -> str | None:
        """Process the next event. Return the line about it, or None if people do not need one."""
        node, facts = event.node, event.facts
        if event.type == "apply_finished":
            numbers = ", ".join(f"{count} {how}" for how, count in self._ended.items() if count or how == "done")
            broken_off = ", then broken off" if facts["interrupted"] else ""
            return f"apply {_clock(event.at - self._began)} {numbers} of {self._changes}{broken_off}"
        if event.type == "apply_stopping":
            waits = (
                f", waits for {len(self._running)} running; interrupt again to stop waiting" if self._running else ""
            )
            return f"apply {_clock(event.at - self._began)} interrupted: starts nothing more{waits}"
        if node is None or facts["kind"] == BARRIER_KIND:
            return None
        text = visible(f"{CHECK if facts['kind'] in LOOKS else facts['action']} {node}")
        if event.type == "node_started":
            self._running[node] = text, event.at
            self._waiting.pop(node, None)
        elif event.type == "node_lock_wait":
            locks, holders = ", ".join(facts["locks"]), ", ".join(facts["holders"])
            self._waiting[node] = visible(f"{text} for {locks}, held by {holders}")
        elif event.type in _ENDS:
            return self._end(event, node, text)
        return None

    def view(self) -> RunView:
        """Return the run's current state."""
        running, waiting = tuple(self._running.values()), tuple(islice(self._waiting.values(), _MOST_WAITING))
        return RunView(self._changes, dict(self._ended), self._began, running, waiting, len(self._waiting))

    def _end(self, event: RunEvent, node: str, text: str) -> str | None:
        how = "dry run" if event.facts.get("outcome") is NodeOutcome.DRY_RUN else _ENDS[event.type]
        self._ended[how] += 1
        self._waiting.pop(node, None)
        self._running.pop(node, None)
        if how == "skipped":
            return None  # The final report lists all of them. Until then, the line about the failure is enough.
        width = len(str(self._changes))
        line = f"apply {_clock(event.at - self._began)} {sum(self._ended.values()):>{width}}/{self._changes} {text}"
        if how == "dry run":
            return f"{line}, {how}"
        line += f", {event.facts['duration_ms'] / 1000:.1f} s"
        problems: tuple[Diagnostic, ...] = event.facts.get("diagnostics", ())
        reasons = "".join(visible(f": {each.code}: {each.message}") for each in problems[:1])
        return line if how == "done" else f"{line}, {how.upper()}{reasons}"


def event_form(event: RunEvent) -> dict[str, Any]:
    """Return an event as plain JSON: `{v, seq, at, type, data: {node, ...facts}}`."""
    whole = timestamp(event.at).removesuffix("Z")
    at = f"{whole}.{event.at.microsecond // 1000:03}Z"
    node = {} if event.node is None else {"node": event.node}
    return {"v": 1, "seq": event.seq, "at": at, "type": event.type, "data": {**node, **_plain(event.facts)}}


def _plain(value: Any) -> Any:
    match value:
        case Diagnostic():
            return value.to_json()
        case LockClaim():
            return {"key": value.key, "mode": value.mode.value}
        case Enum():
            return value.value
        case dict():
            return {str(_plain(key)): _plain(each) for key, each in value.items()}
        case tuple():
            return [_plain(each) for each in value]
    return value


def _clock(span: timedelta) -> str:
    """Return a duration as `M:SS`, or `H:MM:SS`."""
    minutes, seconds = divmod(max(0, int(span.total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
