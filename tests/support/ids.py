"""Ids that a test knows beforehand."""

from __future__ import annotations

from gitops.core.clock import encode_ulid


class SequentialIds:
    """Gives the same ids in the same order every time."""

    def __init__(self, start: int = 1) -> None:
        """Begin counting at `start`."""
        self._next = start

    def ulid(self) -> str:
        """The next ULID in sequence."""
        value = encode_ulid(1_700_000_000_000, self._next)
        self._next += 1
        return value
