"""What all parts of a server share: its clock, its counters, where its lines go, and the word that it stops."""

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

__all__ = ["Context", "Stop"]


class Stop:
    """Says that the server stops, and cuts short whoever waits."""

    def __init__(self) -> None:
        """It goes on, for now."""
        self._event = threading.Event()

    def set(self) -> None:
        """Stop."""
        self._event.set()

    @property
    def is_set(self) -> bool:
        """Whether the server stops."""
        return self._event.is_set()

    def wait(self, longest: timedelta) -> bool:
        """Wait; returns early, with true, when the server stops."""
        return self._event.wait(longest.total_seconds())

    def pause(self, seconds: float) -> None:
        """Wait as a client of a forge does. Raises RemoteError `forge_unavailable` when the server stops meanwhile."""
        if self._event.wait(seconds):
            raise RemoteError(Code.FORGE_UNAVAILABLE, "the server stops", retryable=True)


@dataclass(frozen=True, slots=True)
class Context:
    """See the module. `write` takes one line for the log, from any thread."""

    clock: Clock
    write: Callable[[str], None]
    redact: Redactor = field(default_factory=Redactor)
    counters: Counters = field(default_factory=Counters)
    stop: Stop = field(default_factory=Stop)
    faults: Faults = field(default_factory=NoFaults)

    def shown(self, text: str) -> str:
        """A text that may be shown and kept: no secret in it, and nothing that acts instead of being seen."""
        return visible(self.redact(text))

    def say(self, text: str) -> None:
        """One line for the log."""
        self.write(self.shown(text))
