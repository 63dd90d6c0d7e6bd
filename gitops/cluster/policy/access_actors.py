"""Sets of actors in words: `*`, up to three groups that are exactly these, or names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gitops.cluster.model.access import Actors

__all__ = ["ActorSets"]

_GROUPS = 3
ALL = "*"


class ActorSets:
    """Sets of the actors of a scope, as masks with one bit for each combination of groups; the first has no group.

    `groups` are masks of the groups by name, of the side that a set is described for.
    """

    def __init__(self, members: Sequence[Sequence[str]], groups: Mapping[str, int]) -> None:
        self._members = members
        self._groups = {name: mask for name, mask in groups.items() if mask}
        self._all = (1 << len(members)) - 1
        self._known: dict[int, Actors] = {}

    def described(self, wanted: int) -> Actors:
        """The actors of a set."""
        found = self._known.get(wanted)
        if found is None:
            names = sorted(name for place in _places(wanted) for name in self._members[place])
            union, minus = self._words(wanted)
            found = self._known[wanted] = Actors(tuple(names), bool(wanted & 1), union, minus)
        return found

    def _words(self, wanted: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The groups that a set is the union of, and those that are left out of it, the fewest first."""
        if wanted == self._all:
            return (ALL,), ()
        inside = {name: mask for name, mask in self._groups.items() if not mask & ~wanted}
        outside = {name: mask for name, mask in self._groups.items() if not mask & wanted}
        # Most sets cannot be put together from groups, which all groups that fit show at once.
        is_union, left_out = self._union(inside) == wanted, self._union(outside)
        for number in range(1, _GROUPS + 1):
            if is_union and (found := next(_covers(wanted, inside, number), None)):
                return found, ()
            for kept in range(number - 1, 0, -1):
                for base in self._bases(wanted, kept):
                    rest = self._union(base) & ~wanted
                    if not rest & ~left_out and (left := next(_covers(rest, outside, number - kept), None)):
                        return base, left
        return (), ()

    def _bases(self, wanted: int, number: int) -> Iterator[tuple[str, ...]]:
        """Unions of so many groups that have all of a set, and more."""
        if number == 1:
            yield (ALL,)
        yield from _covers(wanted, self._groups, number)

    def _union(self, names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            mask |= self._all if name == ALL else self._groups[name]
        return mask


def _covers(wanted: int, groups: Mapping[str, int], number: int) -> Iterator[tuple[str, ...]]:
    """Each way to cover a set by so many of the groups: one of them has its first member."""
    first = wanted & -wanted
    for name, mask in groups.items():
        if not mask & first:
            continue
        if number == 1:
            if not wanted & ~mask:
                yield (name,)
            continue
        rest = wanted & ~mask
        if rest:
            for others in _covers(rest, groups, number - 1):
                yield (name, *others)


def _places(mask: int) -> Iterator[int]:
    # Most sets are a few of thousands, so that it pays to look for ones in the digits.
    digits = f"{mask:b}"[::-1]
    place = digits.find("1")
    while place >= 0:
        yield place
        place = digits.find("1", place + 1)
