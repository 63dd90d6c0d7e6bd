"""What the parts of a server share: clock, metrics, log and stop signal."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import field

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.faults import Faults, NoFaults
from gitops.core.redact import Redactor
from gitops.render.characters import visible
from gitops.server.queue import EventState

# Metrics since the start of the process, in the Prometheus text format.
#
# Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format.

MEDIA_TYPE = "text/plain; version=0.0.4"
_COUNTED = {
    "deliveries": ("gitops_deliveries_total", "status", "Webhooks by the status of the answer."),
    "tokens": (
        "gitops_tokens_refused_total",
        "reason",
        "Tokens of identity providers that were refused, by the reason.",
    ),
    "events": ("gitops_events_total", "outcome", "Attempts to handle an event by their result."),
}
_TIMED = {
    "waits": ("gitops_event_wait_seconds", "Time that an event which could be handled waited for a worker."),
    "runs": ("gitops_event_seconds", "Time that an attempt to handle an event took."),
}
_BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics:
    """Counters of deliveries and events, and durations of events. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._found: Counter[tuple[str, str]] = Counter()
        self._times = {name: [0] * (len(_BOUNDS) + 1) for name in _TIMED}
        self._sums = dict.fromkeys(_TIMED, 0.0)

    def count(self, name: str, value: str) -> None:
        """Increment `deliveries`, `tokens` or `events`, labelled with one of a few values."""
        with self._guard:
            self._found[name, value] += 1

    def time(self, name: str, seconds: float) -> None:
        """Record a duration of `waits` or `runs`. If the clock was set back, record 0."""
        seconds = max(0.0, seconds)
        with self._guard:
            self._times[name][bisect_left(_BOUNDS, seconds)] += 1
            self._sums[name] += seconds

    def text(self, queued: Mapping[EventState, int]) -> str:
        """Return all metrics, and the number of events in each state."""
        with self._guard:
            found, sums = dict(self._found), dict(self._sums)
            times = {name: list(counts) for name, counts in self._times.items()}
        lines = []
        for name, (metric, label, summary) in _COUNTED.items():
            lines += [f"# HELP {metric} {summary}", f"# TYPE {metric} counter"]
            values = sorted((value, count) for (counted, value), count in found.items() if counted == name)
            lines += [f'{metric}{{{label}="{value}"}} {count}' for value, count in values]
        for name, (metric, summary) in _TIMED.items():
            lines += [f"# HELP {metric} {summary}", f"# TYPE {metric} histogram"]
            for number, bound in enumerate((*map(str, _BOUNDS), "+Inf"), start=1):
                lines.append(f'{metric}_bucket{{le="{bound}"}} {sum(times[name][:number])}')
            lines += [f"{metric}_sum {sums[name]:.3f}", f"{metric}_count {sum(times[name])}"]
        lines += ["# HELP gitops_queue_events Events in the queue by their state.", "# TYPE gitops_queue_events gauge"]
        lines += [f'gitops_queue_events{{state="{state}"}} {queued[state]}' for state in EventState]
        return "\n".join(lines) + "\n"


class StopSignal(threading.Event):
    """Signals that the server is stopping and interrupts every wait."""

    def pause(self, seconds: float) -> None:
        """Wait between two attempts of a forge client. Raises RemoteError `forge_unavailable` when the server stops."""
        if self.wait(seconds):
            raise RemoteError(Code.FORGE_UNAVAILABLE, "the server stops", retryable=True)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Clock, metrics, log and stop signal of a server. `logger` accepts lines from any thread."""

    clock: Clock
    logger: logging.Logger
    redact: Redactor = field(default_factory=Redactor)
    metrics: Metrics = field(default_factory=Metrics)
    stop: StopSignal = field(default_factory=StopSignal)
    faults: Faults = field(default_factory=NoFaults)

    def safe(self, text: str) -> str:
        """Remove secrets and control characters from a text, so that it can be shown and stored."""
        return visible(self.redact(text))

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Write one line to the log."""
        self.logger.log(level, "%s", self.safe(text))


_LOGGED_A_MINUTE = 30


class RefusalLog:
    """Logs only some refusals per minute and then their count, so that strangers cannot fill the disk."""

    def __init__(self, context: ServerContext, what: str) -> None:
        """Create the log. `what` is a plural noun for the refused requests."""
        self._context, self._what, self._guard = context, what, threading.Lock()
        self._minute, self._count = 0, 0

    def log(self, text: str) -> None:
        """Log a refusal."""
        minute, left_out = int(self._context.clock.now().timestamp()) // 60, 0
        with self._guard:
            if minute != self._minute:
                left_out, self._minute, self._count = self._count - _LOGGED_A_MINUTE, minute, 0
            self._count += 1
            logged = self._count <= _LOGGED_A_MINUTE
        if left_out > 0:
            self._context.log(f"{left_out} more {self._what} were refused", logging.WARNING)
        if logged:
            self._context.log(text, logging.WARNING)


class UnwrittenError(GitopsError):
    """The forge refused to write something about an event, for example because the token lacks a permission.

    `outcome` is `partial` if something else about it was written, otherwise `refused`.
    """

    def __init__(self, refusal: GitopsError, *, partly: bool) -> None:
        """Create the error from the first refusal."""
        super().__init__(refusal.code, refusal.detail, path=refusal.path, fix=refusal.fix)
        self.outcome = "partial" if partly else "refused"
