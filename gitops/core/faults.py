"""Named fault points: places in a write path where a test may crash or fail the process.

The object is handed in. The default does nothing, costs one method call, and cannot be switched on from outside the
process: no environment variable, no file. All names are in `tests.support.fault_points`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Faults(Protocol):
    """Consulted at each named point of a write path."""

    def reach(self, point: str) -> None:
        """Called when execution reaches `point`; may raise, or end the process."""


class NoFaults:
    """The default: nothing ever happens."""

    def reach(self, point: str) -> None:
        """Do nothing."""


@contextlib.contextmanager
def around(faults: Faults, area: str, step: str) -> Iterator[None]:
    """Reach `area.before_step` on entry, and `area.after_step` when the block, one durable effect, has succeeded."""
    faults.reach(f"{area}.before_{step}")
    yield
    faults.reach(f"{area}.after_{step}")
