"""Clocks for tests: they show what they are set to."""

from __future__ import annotations

from datetime import datetime, timedelta


class FixedClock:
    """A clock that stands still, or moves by a fixed step with each reading."""

    def __init__(self, start: datetime, step: timedelta = timedelta(0)) -> None:
        """Begin at `start`; each reading moves on by `step`."""
        self._now = start
        self._passed = timedelta(0)
        self._step = step

    def now(self) -> datetime:
        """The current reading, then one step on."""
        moment = self._now
        self.advance(self._step)
        return moment

    def monotonic(self) -> float:
        """How much time has passed, in seconds, then one step on."""
        passed = self._passed
        self.advance(self._step)
        return passed.total_seconds()

    def advance(self, by: timedelta) -> None:
        """Let time pass."""
        self._now += by
        self._passed += by

    def jump(self, by: timedelta) -> None:
        """Move the hands: no time passes."""
        self._now += by


class Hours:
    """A clock that moves only when a test sleeps; pauses and what is said of them are kept."""

    def __init__(self) -> None:
        """Nothing has passed."""
        self.now = 0.0
        self.pauses: list[float] = []
        self.said: list[str] = []

    def sleep(self, seconds: float) -> None:
        """Let the time pass."""
        self.pauses.append(seconds)
        self.now += seconds
