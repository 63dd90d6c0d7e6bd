"""The caller's options for one query run, and its time and memory limits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

if TYPE_CHECKING:
    from gitops.database.graph.embedding import Embedder

_MIB = 2**20


class Strategy(StrEnum):
    """How hops find neighbours. Result rows never depend on it.

    `INDEX` queries the edge table for the edges of the current nodes, `SCAN` reads all edges per step, `CSR` uses an
    adjacency in memory, which is built once per version, and `AUTO` chooses the cheapest strategy for each hop.
    """

    AUTO = "auto"
    INDEX = "index"
    CSR = "csr"
    SCAN = "scan"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Query options. `now` is the value of `now()`, in milliseconds. A limit of None means no limit.

    `timeout_s` is checked between operators and between batches. `memory_bytes` limits the query's own memory: the
    current rows, the columns read, and any adjacency that it builds. `approximate` allows `nearest` to use an index,
    which can miss near rows. `cache_dir` is the folder for adjacencies shared between processes; None disables it.
    """

    now: datetime
    timeout_s: float | None = None
    memory_bytes: int | None = None
    strategy: Strategy = Strategy.AUTO
    explain: bool = False
    embedder: Embedder | None = None
    cache_dir: Path | None = None
    approximate: bool = False


class Budget:
    """One query's limits and current usage.

    `held` is the memory used by the current rows and columns. `need` checks that more memory is available.
    """

    def __init__(
        self, timeout_s: float | None, memory_bytes: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._timeout = timeout_s
        self._deadline = None if timeout_s is None else clock() + timeout_s
        self._memory = memory_bytes
        self.held = 0
        self.peak = 0

    @property
    def bounded(self) -> bool:
        """Return whether memory is limited."""
        return self._memory is not None

    @property
    def left_s(self) -> float:
        """Remaining seconds, which are infinite without a limit."""
        return math.inf if self._deadline is None else self._deadline - self._clock()

    def affords(self, nbytes: int) -> bool:
        """Return whether this many more bytes are within the limit, without reserving them."""
        return self._memory is None or self.held + nbytes <= self._memory

    def check(self) -> None:
        """Raise GitopsError `query_timeout` if the time is up."""
        if self._deadline is not None and self._clock() >= self._deadline:
            raise GitopsError(Code.QUERY_TIMEOUT, f"the query was stopped after {self._timeout:g} s")

    def need(self, nbytes: int, what: str) -> None:
        """Check that memory and time are within the limits.

        Raises GitopsError `query_memory_exceeded` and `query_timeout`.
        """
        self.check()
        self.peak = max(self.peak, self.held + nbytes)
        if self._memory is not None and self.held + nbytes > self._memory:
            limit = f"{self._memory / _MIB:.1f} MiB"
            raise GitopsError(
                Code.QUERY_MEMORY_EXCEEDED,
                f"{what} would take the query to {(self.held + nbytes) / _MIB:.1f} MiB; it may use {limit}",
            )

    def hold(self, nbytes: int, what: str) -> None:
        """Reserve memory and hold it."""
        self.need(nbytes, what)
        self.held += nbytes
