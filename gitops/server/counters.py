"""The counters of a server, in the text format of Prometheus: numbers of deliveries and events, and nothing else.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from gitops.server.queue import EventState

__all__ = ["MEDIA_TYPE", "Counters"]

MEDIA_TYPE = "text/plain; version=0.0.4"
_COUNTED = {
    "deliveries": ("gitops_deliveries_total", "status", "Webhooks by the status of the answer."),
    "events": ("gitops_events_total", "outcome", "Attempts to handle an event by their result."),
}
_WAITING = ("gitops_queue_events", "Events in the queue by their state.")


class Counters:
    """Counts since the start of the process. Thread-safe."""

    def __init__(self) -> None:
        """All counters are zero."""
        self._guard = threading.Lock()
        self._found: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, value: str) -> None:
        """Count one of `deliveries` or `events`, by a value from a small set."""
        with self._guard:
            self._found[name, value] += 1

    def text(self, queued: Mapping[EventState, int]) -> str:
        """All counters, and the number of events in each state."""
        with self._guard:
            found = dict(self._found)
        lines = []
        for name, (metric, label, summary) in _COUNTED.items():
            lines += [f"# HELP {metric} {summary}", f"# TYPE {metric} counter"]
            values = sorted((value, count) for (counted, value), count in found.items() if counted == name)
            lines += [f'{metric}{{{label}="{value}"}} {count}' for value, count in values]
        metric, summary = _WAITING
        lines += [f"# HELP {metric} {summary}", f"# TYPE {metric} gauge"]
        lines += [f'{metric}{{state="{state}"}} {queued[state]}' for state in EventState]
        return "\n".join(lines) + "\n"
