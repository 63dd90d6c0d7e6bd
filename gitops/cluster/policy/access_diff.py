"""The access diff: what each actor gains and loses between two states, why, and by which rule.

1. The groups of all bundles that matter on a scope have one bit each; actors with equal bits are one combination.
2. A combination may do what the masks of its groups permit, before and after; the differences are what it gains and loses.
3. The cause of a difference is the first part of the change whose reversal alone undoes it (`access_parts`).
4. To copy a protected branch is a difference of its own only where an actor reads the copy who does not read the branch.
5. What has the same cause, rule, action and class becomes one row for equal actors, over branches and then over queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.model.access import AccessCause, AccessClass, AccessDiff, AccessRow, Actors
from gitops.cluster.policy.access import AccessState, class_of
from gitops.cluster.policy.access_actors import ActorSets
from gitops.cluster.policy.access_cells import bits_of
from gitops.cluster.policy.access_parts import ScopeChange, View
from gitops.cluster.policy.bundle import Rule

__all__ = ["access_diff"]


def access_diff(before: AccessState, after: AccessState) -> AccessDiff:
    """Who gains and who loses what by going from one state to another."""
    rows: list[AccessRow] = []
    unread = []
    for scope in sorted(before.scopes | after.scopes):
        policy = before.policy(scope)
        if scope in before.scopes and policy is not None and policy.bundle is None:
            unread.append(scope)
        if _differs(before, after, scope):
            rows += _ScopeRows(ScopeChange(before, after, scope)).rows()
    classes = tuple(AccessClass)
    rows.sort(
        key=lambda row: (not row.gain, classes.index(row.row_class), row.scope, row.action, row.queries, row.branches)
    )
    new = after.scopes - before.scopes
    return AccessDiff(before.digest, after.digest, tuple(rows), new, tuple(unread))


def _differs(before: AccessState, after: AccessState, scope: str) -> bool:
    """Whether anything that decides on a scope differs."""
    if (scope in before.scopes) != (scope in after.scopes) or before.bound.get(scope) != after.bound.get(scope):
        return True
    old, new, graph = before.policy(scope), after.policy(scope), scope.partition(".")[2]
    if (old and old.bundle) != (new and new.bundle):
        return True
    return bool(graph) and before.queries[graph] != after.queries[graph]


class _Key(NamedTuple):
    gain: bool
    cause: AccessCause
    rule: Rule | None


class _ScopeRows:
    """The rows of one scope."""

    def __init__(self, change: ScopeChange) -> None:
        self._change = change
        self._cells = change.cells
        # By key, and by the mask of what differs: the combinations of groups.
        self._found: dict[_Key, dict[int, list[int]]] = {}
        self._bases: dict[tuple[bool, int, int], dict[int, int]] = {}

    def rows(self) -> Iterator[AccessRow]:
        """All differences of the scope."""
        change = self._change
        allowed = [(change.before.allowed(groups), change.after.allowed(groups)) for groups in change.combinations]
        shown = self._cells.shown | self._cells.exposed(mask for sides in allowed for mask in sides)
        for place, (groups, (before, after)) in enumerate(zip(change.combinations, allowed, strict=True)):
            if flipped := (before ^ after) & shown:
                causes = tuple(change.causes(groups, before, flipped))
                self._note(place, groups, flipped & after, before ^ after, causes, gain=True)
                self._note(place, groups, flipped & before, before ^ after, causes, gain=False)
        sets = {gain: ActorSets(change.members, change.group_sets(gain=gain)) for gain in (True, False)}
        for key, found in self._found.items():
            cells: dict[int, int] = {}
            for mask, places in found.items():
                actors = _as_mask(places, len(change.combinations))
                for bit in bits_of(mask):
                    cells[bit] = cells.get(bit, 0) | actors
            yield from self._merged(key, cells, sets[key.gain])

    def _note(
        self,
        place: int,
        groups: int,
        flipped: int,
        changed: int,
        causes: Iterable[tuple[AccessCause, int]],
        *,
        gain: bool,
    ) -> None:
        """Note what a combination of groups gains or loses, by cause and rule."""
        if not flipped:
            return
        view = self._change.after if gain else self._change.before
        bases = self._bases_of(view, flipped, changed, gain=gain)
        for rule, decided in view.policy.deciding(groups, sum(bases)):
            mask = sum(runs for base, runs in bases.items() if base & decided)
            for cause, part in causes:
                if both := part & mask:
                    self._found.setdefault(_Key(gain, cause, rule), {}).setdefault(both, []).append(place)

    def _bases_of(self, view: View, flipped: int, changed: int, *, gain: bool) -> dict[int, int]:
        """What differs, by the permission that it rests on."""
        bases = self._bases.get((gain, flipped, changed))
        if bases is None:
            bases = self._bases[gain, flipped, changed] = {}
            for bit in bits_of(flipped):
                base = view.derived.base_of(bit, changed)
                bases[base] = bases.get(base, 0) | bit
        return bases

    def _merged(self, key: _Key, cells: Mapping[int, int], sets: ActorSets) -> Iterator[AccessRow]:
        """The rows of one cause and rule; `cells` has the actors of each bit."""
        # Equal actors over branches, by action, class and class of queries; then equal actors and branches over queries.
        by_branch: dict[tuple[str, AccessClass, int | None, int], list[int]] = {}
        for bit, actors in cells.items():
            cell = self._cells.cells[bit]
            name = None if cell.branch is None else self._cells.branches[cell.branch]
            row_class = class_of(cell.action, protected=name in self._cells.protected)
            branches = by_branch.setdefault((cell.label, row_class, cell.queries, actors), [])
            branches += [] if cell.branch is None else [cell.branch]
        by_query: dict[tuple[str, AccessClass, tuple[int, ...], int], list[str]] = {}
        for (action, row_class, number, actors), branches in by_branch.items():
            queries = by_query.setdefault((action, row_class, tuple(sorted(branches)), actors), [])
            queries += [] if number is None else self._cells.queries[number]
        for (action, row_class, found, actors), queries in by_query.items():
            yield self._row(key, action, row_class, found, sorted(queries), sets.described(actors))

    def _row(
        self,
        key: _Key,
        action: str,
        row_class: AccessClass,
        found: Iterable[int],
        queries: Iterable[str],
        actors: Actors,
    ) -> AccessRow:
        names = [self._cells.branches[place] for place in found]
        others = None in names
        named = tuple(name for name in names if name is not None)
        old, new = self._change.old, self._change.new
        policy = (new if key.gain else old) if key.rule is not None else None
        owner = new or old
        return AccessRow(
            gain=key.gain,
            row_class=row_class,
            action=action,
            scope=self._change.scope,
            branches=() if others else named,
            other_branches=others,
            except_branches=tuple(b for b in self._cells.branches if b is not None and b not in named)
            if others
            else (),
            queries=tuple(queries),
            actors=actors,
            policy=None if owner is None else owner.name,
            rule=None if key.rule is None else key.rule.id,
            file=None if policy is None else policy.path,
            line=None if key.rule is None else key.rule.line,
            cause=key.cause,
        )


def _as_mask(places: Iterable[int], number: int) -> int:
    """A set of places as a mask."""
    found = bytearray((number + 7) // 8)
    for place in places:
        found[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(found, "little")
