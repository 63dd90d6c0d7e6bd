"""What all parts of a server share: clock, counters, log, and the signal to stop."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.core.faults import Faults, NoFaults
from gitops.core.redact import Redactor
from gitops.render.characters import visible
from gitops.server.queue import EventState

__all__ = ["MEDIA_TYPE", "Counters", "ServerContext", "StopSignal"]

MEDIA_TYPE = "text/plain; version=0.0.4"
"""That of the text format of Prometheus: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format."""
_COUNTED = {
    "deliveries": ("gitops_deliveries_total", "status", "Webhooks by the status of the answer."),
    "events": ("gitops_events_total", "outcome", "Attempts to handle an event by their result."),
}


class Counters:
    """Numbers of deliveries and events since the start of the process, and nothing else. Thread-safe."""

    def __init__(self) -> None:
        """All counters are zero."""
        self._guard = threading.Lock()
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: str) -> None:
        """Count one of `deliveries` or `events`, by a value from a small set."""
        with self._guard:
            self._found[name, value] += 1

    def text(self, queued: Mapping[EventState, int]) -> str:
        """All counters, and the number of events in each state, in the text format of Prometheus."""
        with self._guard:
            found = dict(self._found)
        lines = []
        for name, (metric, label, summary) in _COUNTED.items():
            lines += [f"# HELP {metric} {summary}", f"# TYPE {metric} counter"]
            values = sorted((value, count) for (counted, value), count in found.items() if counted == name)
            lines += [f'{metric}{{{label}="{value}"}} {count}' for value, count in values]
        lines += ["# HELP gitops_queue_events Events in the queue by their state.", "# TYPE gitops_queue_events gauge"]
        lines += [f'gitops_queue_events{{state="{state}"}} {queued[state]}' for state in EventState]
        return "\n".join(lines) + "\n"


class StopSignal(threading.Event):
    """Says that the server stops, and ends every wait."""

    def pause(self, seconds: float) -> None:
        """Wait between two attempts of a forge client. Raises RemoteError `forge_unavailable` when the server stops."""
        if self.wait(seconds):
            raise RemoteError(Code.FORGE_UNAVAILABLE, "the server stops", retryable=True)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """See the module. `write` takes one line for the log, from any thread."""

    clock: Clock
    write: Callable[[str], None]
    redact: Redactor = field(default_factory=Redactor)
    counters: Counters = field(default_factory=Counters)
    stop: StopSignal = field(default_factory=StopSignal)
    faults: Faults = field(default_factory=NoFaults)

    def safe(self, text: str) -> str:
        """A text without secrets and control characters, which may be shown and kept."""
        return visible(self.redact(text))

    def log(self, text: str) -> None:
        """Write one line to the log."""
        self.write(self.safe(text))
