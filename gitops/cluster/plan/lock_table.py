"""Which locks are held while a graph is carried out, and who waits for which of them. Without threads, clock or chance."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from gitops.cluster.model.plan import LockClaim, LockMode

Priority = tuple[int, str]
"""The place of a node in the plan order, and its id."""


def strongest(claims: Sequence[LockClaim]) -> tuple[LockClaim, ...]:
    """One claim per key: a node that asks for both modes gets the exclusive one."""
    if len(claims) <= 1:
        return tuple(claims)
    modes: dict[str, LockClaim] = {}
    for claim in claims:
        if claim.mode is LockMode.EXCLUSIVE or claim.key not in modes:
            modes[claim.key] = claim
    return tuple(sorted(modes.values()))


class Parked:
    """Ready nodes that wait for a lock: each is parked on one key, and all that it claims is kept for it from later nodes."""

    def __init__(self, priority: Mapping[str, Priority]) -> None:
        self._priority = priority
        self._on: dict[str, str] = {}
        self._lines: dict[str, list[Priority]] = {}
        self._exclusive: dict[str, list[Priority]] = {}

    def park(self, name: str, claims: Sequence[LockClaim], key: str) -> None:
        """Note that the node waits for `key`."""
        self._on[name] = key
        for lines, claim in self._lines_of(claims):
            insort(lines.setdefault(claim.key, []), self._priority[name])

    def leave(self, name: str, claims: Sequence[LockClaim]) -> None:
        """The node waits no more, if it did."""
        if self._on.pop(name, None) is None:
            return
        for lines, claim in self._lines_of(claims):
            line = lines[claim.key]
            del line[bisect_left(line, self._priority[name])]
            if not line:
                del lines[claim.key]

    def blocks(self, name: str, claim: LockClaim) -> bool:
        """Whether an earlier node waits for the key of this claim in a mode that it cannot share."""
        line = self._line(claim)
        return bool(line) and line[0] < self._priority[name]

    def first(self, name: str, claim: LockClaim) -> tuple[str, ...]:
        """The first of those earlier nodes, if there is any: a line may be as long as the plan."""
        return (self._line(claim)[0][1],) if self.blocks(name, claim) else ()

    def next_in_line(self, key: str) -> list[str]:
        """The nodes parked on the key whose turn it is: the first one, with all that share up to the first exclusive one."""
        line = self._lines.get(key)
        if not line:
            return []
        exclusive = self._exclusive.get(key)
        end = len(line) if not exclusive else max(1, bisect_left(line, exclusive[0]))
        return [name for _, name in line[:end] if self._on[name] == key]

    def _line(self, claim: LockClaim) -> Sequence[Priority]:
        lines = self._exclusive if claim.mode is LockMode.SHARED else self._lines
        return lines.get(claim.key, ())

    def _lines_of(self, claims: Sequence[LockClaim]) -> Iterator[tuple[dict[str, list[Priority]], LockClaim]]:
        for claim in claims:
            yield self._lines, claim
            if claim.mode is LockMode.EXCLUSIVE:
                yield self._exclusive, claim


class Locks:
    """Who claims which keys."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[str, LockMode]] = {}

    def against(self, claim: LockClaim) -> tuple[str, ...]:
        """The owners that `claim` cannot share its key with."""
        owners = self._owners.get(claim.key)
        # Who claims a key exclusively is its only owner, so one of them shows the mode of all.
        if owners is None or (claim.mode is LockMode.SHARED and LockMode.SHARED is next(iter(owners.values()))):
            return ()
        return tuple(owners)

    def take(self, owner: str, claims: Sequence[LockClaim]) -> None:
        """Add all claims of one owner, one per key."""
        for claim in claims:
            self._owners.setdefault(claim.key, {})[owner] = claim.mode

    def release(self, owner: str, claims: Sequence[LockClaim]) -> None:
        """Drop all claims of one owner."""
        for claim in claims:
            owners = self._owners[claim.key]
            del owners[owner]
            if not owners:
                del self._owners[claim.key]

    def keys(self) -> tuple[str, ...]:
        """All claimed keys, sorted."""
        return tuple(sorted(self._owners))
