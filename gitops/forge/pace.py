"""How fast a forge is written to: a burst of as many writes as it takes in a minute, then one when one of them is a minute old.

What a forge takes is in `gitops.forge.registry`. A limit of writes costs more than waiting does: GitHub refuses everything for a
while, also the status that decides about a merge. So the program keeps below it by itself.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

__all__ = ["Pace"]

_SPAN = timedelta(minutes=1)


class Pace:
    """The writes of the last minute. Pure: the time is an argument."""

    def __init__(self, writes_a_minute: int) -> None:
        """Nothing is written yet."""
        self._sent: deque[datetime] = deque(maxlen=writes_a_minute)

    def wait(self, now: datetime) -> float:
        """Note that one more is written as soon as possible; returns the seconds until then."""
        at = now
        if len(self._sent) == self._sent.maxlen:
            at = max(now, self._sent[0] + _SPAN)
        self._sent.append(at)
        return (at - now).total_seconds()
