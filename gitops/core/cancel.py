"""Asking a run to stop, from a signal handler or another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue


class CancelledError(Exception):
    """Work was asked to stop, and has done so without any effect."""


class Cancellation:
    """A request to stop: asked once, nothing more is started; asked again, what still runs is not waited for either.

    It may be asked by a signal handler or by another thread, and is never taken back.
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
        """Whether it was asked again."""
        return self._asked > 1

    @property
    def at_work(self) -> bool:
        """Whether a run is where it has to stop by itself: see `work`."""
        return self._at_work > 0

    def request(self) -> None:
        """Ask, and wake those who watch."""
        self._asked += 1
        for wake in tuple(self._watchers):
            wake()

    def check(self) -> None:
        """Raise CancelledError if the run was asked to stop: for work that has had no effect yet."""
        if self.requested:
            raise CancelledError

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the run is asked to stop."""
        # A put is safe in a signal handler: https://docs.python.org/3/library/queue.html
        asked: SimpleQueue[None] = SimpleQueue()
        with self.watched(lambda: asked.put(None)), suppress(Empty):
            if not self.requested:
                asked.get(timeout=seconds)

    @contextmanager
    def work(self) -> Iterator[None]:
        """Mark the part of a run between its first side effect and its record: a signal asks it, and never breaks it off."""
        self._at_work += 1
        try:
            yield
        finally:
            self._at_work -= 1

    @contextmanager
    def watched(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call `wake` for each request; it has to bear being called at any moment, like a signal handler."""
        self._watchers.append(wake)
        try:
            yield
        finally:
            self._watchers.remove(wake)
