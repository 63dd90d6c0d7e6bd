"""What one query may use: time and memory, asked for between operators and batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from gitops.core.codes import Code
from gitops.core.errors import GitopsError

__all__ = ["Budget"]

_MIB = 2**20


class Budget:
    """The limits of one query and what it uses of them.

    `held` is what the rows and columns in flight take; `need` asks for more on top of it, before it is taken.
    """

    def __init__(
        self, timeout_s: float | None, memory_bytes: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """The time starts now."""
        self._clock = clock
        self._timeout = timeout_s
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._memory = memory_bytes
        self.held = 0
        self.peak = 0

    @property
    def bounded(self) -> bool:
        """Whether memory is limited."""
        return self._memory is not None

    def check(self) -> None:
        """Raise GitopsError `query_timeout` when the time is up."""
        if self._deadline is not None and self._clock() >= self._deadline:
            raise GitopsError(Code.QUERY_TIMEOUT, f"the query was stopped after {self._timeout:g} s")

    def need(self, nbytes: int, what: str) -> None:
        """Ask for memory, and look at the time. Raises GitopsError `query_memory_exceeded` and `query_timeout`."""
        self.check()
        self.peak = max(self.peak, self.held + nbytes)
        if self._memory is not None and self.held + nbytes > self._memory:
            limit = f"{self._memory / _MIB:.1f} MiB"
            raise GitopsError(
                Code.QUERY_MEMORY_EXCEEDED,
                f"{what} would take the query to {(self.held + nbytes) / _MIB:.1f} MiB; it may use {limit}",
            )

    def hold(self, nbytes: int, what: str) -> None:
        """Ask for memory and keep it."""
        self.need(nbytes, what)
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        """Give back what was held."""
        self.held -= nbytes
