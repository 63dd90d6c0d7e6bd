"""Ids that a test knows beforehand."""

from __future__ import annotations

from gitops.core.clock import encode_ulids


class SequentialIds:
    """Gives the same ids in the same order every time."""

    def __init__(self, start: int = 1) -> None:
        """Begin counting at `start`."""
        self._next = start

    def ulid(self) -> str:
        """The next ULID in sequence."""
        return self.ulids(1)[0]

    def ulids(self, count: int) -> list[str]:
        """The next ULIDs in sequence."""
        found = encode_ulids(1_700_000_000_000, self._next, count)
        self._next += count
        return found
