"""Queues for concurrent mutations of one branch by several threads, which are published in groups.

Rules of this module:

1. Mutations are carried out in the order in which they arrived. One thread carries out a whole group while the others
   wait.
2. A group has at most 64 mutations by one actor, because a version names only one. Either all of them are deletes or
   none is, because a delete reads committed rows. A mutation that expects a version of the branch is alone in its
   group, so the version in its receipt contains no other mutation.
3. After the version is published, each caller gets its answer or its own error. An error in one mutation undoes only
   that mutation's changes.
4. While groups have more than one member, the next group waits up to 4 ms to become as large as the last one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Protocol

from gitops.database.graph.results import MutationResult

_MOST = 64
_LINGER_S = 0.004


class Waiting(Protocol):
    """A waiting mutation, and its outcome, which is set after it ran."""

    outcome: MutationResult | BaseException | None

    def fits(self, first: Any) -> bool:
        """Return whether this mutation can join the group that `first` starts."""
        ...


class MutationQueue:
    """A thread-safe queue of mutations that wait for one branch."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._waiting: deque[Waiting] = deque()
        self._busy = False
        self._last = 1

    def add(self, mutation: Waiting) -> None:
        """Add a mutation to the queue. The caller must call `finish` for each one."""
        with self._turn:
            self._waiting.append(mutation)
            self._turn.notify_all()

    def finish(self, mutation: Waiting, carry_out: Callable[[Sequence[Any]], None]) -> MutationResult:
        """Return a queued mutation's result, or raise its error.

        `carry_out` sets a group's outcomes in order. Members without an outcome stay in the queue.
        """
        with self._turn:
            self._turn.wait_for(lambda: mutation.outcome is not None or not self._busy)
            leads = mutation.outcome is None
            self._busy = self._busy or leads
        try:
            while mutation.outcome is None:
                self._carry_out_group(carry_out)
        finally:
            if leads:
                with self._turn:
                    self._busy = False
                    self._turn.notify_all()
        if isinstance(mutation.outcome, BaseException):
            raise mutation.outcome
        return mutation.outcome

    def _carry_out_group(self, carry_out: Callable[[Sequence[Any]], None]) -> None:
        """Run the next group."""
        with self._turn:
            if self._last > 1:
                self._turn.wait_for(lambda: len(self._waiting) >= self._last, _LINGER_S)
            first = self._waiting[0]
            group = list(takewhile(lambda each: each.fits(first), list(self._waiting)[:_MOST]))
        try:
            carry_out(group)
        except BaseException as error:  # noqa: BLE001 - each caller raises it
            for each in group:
                each.outcome = each.outcome or error
        with self._turn:
            for each in group:
                if each.outcome is not None:
                    self._waiting.remove(each)
            self._last = len(group)
            self._turn.notify_all()
