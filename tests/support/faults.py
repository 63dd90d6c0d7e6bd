"""Fault points in tests: where a run fails, dies, or something else happens."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from gitops.core.errors import GitopsError


class Death(BaseException):
    """The end of a process, as far as a run can tell."""


class DoAt:
    """Does something when a point is reached, such as what another process would do then, and notes what is reached.

    With a `visit` it is done at the n-th time only.
    """

    def __init__(self, point: str = "", deed: Callable[[], object] | None = None, visit: int = 0) -> None:
        self._point, self._deed, self._visit = point, deed, visit
        self.reached: list[str] = []

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if point == self._point and self._deed is not None and self._visit in (0, self.reached.count(point)):
            self._deed()


class DieAt(DoAt):
    """Kills this process at a named point, as a power cut would."""

    def __init__(self, point: str, visit: int = 1) -> None:
        super().__init__(point, partial(signal.raise_signal, signal.SIGKILL), visit)


class EndAt(DoAt):
    """Ends a run of this process at a named point, as if it were killed."""

    def __init__(self, point: str = "", visit: int = 1) -> None:
        super().__init__(point, self._end, visit)

    def _end(self) -> None:
        raise Death(self._point)


def visits(reached: Iterable[str]) -> list[tuple[str, int]]:
    """Each point that was reached, with the number of its visit."""
    seen: Counter[str] = Counter()
    found = []
    for point in reached:
        seen[point] += 1
        found.append((point, seen[point]))
    return found


class FailAt:
    """Lets a run fail at named points, once at each."""

    def __init__(self, *points: str) -> None:
        self._points = set(points)
        self.reached: list[str] = []

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if point in self._points:
            self._points.discard(point)
            fail(point)


def fail(point: str) -> None:
    """The failure of a test."""
    raise GitopsError("injected_failpoint", f"a test fails this run at {point}")
