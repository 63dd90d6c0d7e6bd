"""What all parts of a server share: clock, metrics, log, and the signal to stop."""

from __future__ import annotations

import logging
import threading
from dataclasses import field

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError
from gitops.core.faults import Faults, NoFaults
from gitops.core.redact import Redactor
from gitops.render.characters import visible
from gitops.server.metrics import Metrics

__all__ = ["ServerContext", "StopSignal"]


class StopSignal(threading.Event):
    """Says that the server stops, and ends every wait."""

    def pause(self, seconds: float) -> None:
        """Wait between two attempts of a forge client. Raises RemoteError `forge_unavailable` when the server stops."""
        if self.wait(seconds):
            raise RemoteError(Code.FORGE_UNAVAILABLE, "the server stops", retryable=True)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """See the module. `logger` takes lines from any thread."""

    clock: Clock
    logger: logging.Logger
    redact: Redactor = field(default_factory=Redactor)
    metrics: Metrics = field(default_factory=Metrics)
    stop: StopSignal = field(default_factory=StopSignal)
    faults: Faults = field(default_factory=NoFaults)

    def safe(self, text: str) -> str:
        """A text without secrets and control characters, which may be shown and kept."""
        return visible(self.redact(text))

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Write one line to the log."""
        self.logger.log(level, "%s", self.safe(text))
