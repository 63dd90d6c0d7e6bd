"""What all parts of a server share: clock, counters, log, and the signal to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.core.faults import Faults, NoFaults
from gitops.core.redact import Redactor
from gitops.render.characters import visible
from gitops.server.counters import Counters

__all__ = ["ServerContext", "StopSignal"]


class StopSignal:
    """Says that the server stops, and ends every wait."""

    def __init__(self) -> None:
        """Not set."""
        self._event = threading.Event()

    def set(self) -> None:
        """Stop."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether the server stops."""
        return self._event.is_set()

    def wait(self, longest: timedelta) -> bool:
        """Wait; returns early, and true, when the server stops."""
        return self._event.wait(longest.total_seconds())

    def pause(self, seconds: float) -> None:
        """Wait between two attempts of a forge client. Raises RemoteError `forge_unavailable` when the server stops."""
        if self._event.wait(seconds):
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
