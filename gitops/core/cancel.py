"""Cancellation of a run from a signal handler or another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue


class CancelledError(Exception):
    """Raised by work that stopped on request before it had any effect."""


class Cancellation:
    """A request to stop a run. After the first one, no more work starts; after the second, running work is abandoned.

    A signal handler or another thread can make the request. It cannot be withdrawn.
    """

    def __init__(self) -> None:
        self._asked = 0
        self._at_work = 0
        self._watchers: list[Callable[[], None]] = []

    @property
    def requested(self) -> bool:
        """Whether the run was asked to stop."""
        return self._asked > 0

    @property
    def abandoned(self) -> bool:
        """Whether the run was asked to stop a second time."""
        return self._asked > 1

    @property
    def at_work(self) -> bool:
        """Whether the run is between its first side effect and its record, where a signal only requests a stop (see `work`)."""
        return self._at_work > 0

    def request(self) -> None:
        """Request a stop and wake the watchers."""
        self._asked += 1
        for wake in tuple(self._watchers):
            wake()

    def check(self) -> None:
        """Raise CancelledError if a stop was requested. Call this only from work that has had no effect yet."""
        if self.requested:
            raise CancelledError

    def wait(self, seconds: float) -> None:
        """Wait for `seconds` or until a stop is requested."""
        # A put is safe in a signal handler: https://docs.python.org/3/library/queue.html
        asked: SimpleQueue[None] = SimpleQueue()
        with self.watched(lambda: asked.put(None)), suppress(Empty):
            if not self.requested:
                asked.get(timeout=seconds)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Mark the part of a run between its first side effect and its record. A signal never aborts this part."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` on each stop request. This can happen at any moment, for example in a signal handler."""
        self._watchers.append(wake)
        try:
            yield
        finally:
            self._watchers.remove(wake)
