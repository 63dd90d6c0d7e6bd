"""Named fault points in write paths, where a test can crash the process or make it fail.

Callers pass in the object. The default does nothing and costs one method call. It cannot be enabled from outside the
process, for example through an environment variable or a file. All names are in `tests.support.fault_points`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Faults(Protocol):
    """Hook that is called at each named point in a write path."""

    def reach(self, point: str) -> None:
        """Called when execution reaches `point`. Can raise, or end the process."""


class NoFaults:
    """The default hook, which does nothing."""

    def reach(self, point: str) -> None:
        """Do nothing."""


@contextlib.contextmanager
def around(faults: Faults, area: str, step: str) -> Iterator[None]:
    """Reach `area.before_step` on entry, and `area.after_step` once the block has succeeded.

    The block has one durable effect.
    """
    faults.reach(f"{area}.before_{step}")
    yield
    faults.reach(f"{area}.after_{step}")
