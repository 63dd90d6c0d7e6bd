"""Named fault points: places in a write path where a test may crash or fail the process.

The object is handed in. The default does nothing, costs one method call, and cannot be switched on from outside the
process: no environment variable, no file.
"""

from __future__ import annotations

from typing import Protocol


class Faults(Protocol):
    """Consulted at each named point of a write path."""

    def reach(self, point: str) -> None:
        """Called when execution reaches `point`; may raise, or end the process."""
        ...


class NoFaults:
    """The default: nothing ever happens."""

    def reach(self, point: str) -> None:
        """Do nothing."""
