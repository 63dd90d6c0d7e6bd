"""The requests of one scope as bits, and what the rules of a bundle permit each combination of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from gitops.model.address import CLUSTER_SCOPE
from gitops.policy.bundle import (
    BRANCH_SCOPED,
    GRAPH_ACTIONS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    Action,
    BranchScope,
    Bundle,
    Rule,
)
from gitops.policy.decide import MAIN

__all__ = ["Cell", "Cells", "Runs", "Side", "bits_of"]

_ABOUT_BRANCHES = tuple(sorted(BRANCH_SCOPED | TARGET_SCOPED))
_ABOUT_GRAPH = tuple(sorted(GRAPH_ACTIONS - BRANCH_SCOPED - TARGET_SCOPED))
_ABOUT_SERVER = tuple(sorted(SERVER_ACTIONS))


def bits_of(mask: int) -> Iterator[int]:
    """The bits of a mask, each as a mask of its own, from the lowest on."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


class Cell(NamedTuple):
    """What one bit means: an action, None for running queries; an index of a branch; a class of queries."""

    action: Action | None
    branch: int | None = None
    queries: int | None = None


class Cells:
    """The classes of requests of one scope, on which every condition of the rules is constant.

    `branches` are those with a name, and None for all others. `queries` are the classes of stored queries: names on which all
    patterns agree; `writes` says whether they write before and after, None where there is no such query. `shown` has the bits
    that rows show: all but those of invoking a class of queries, whose runs are shown instead.
    """

    def __init__(
        self, scope: str, bundles: Sequence[Bundle], before: Mapping[str, bool], after: Mapping[str, bool]
    ) -> None:
        """`bundles` are all that may be in force on the scope; `before` and `after` its queries, and whether they write."""
        protected = frozenset[str]().union(*(bundle.protected_branches for bundle in bundles))
        self.branches: tuple[str | None, ...] = (*sorted(protected | {MAIN}), None)
        self.protected = protected
        graph = scope != CLUSTER_SCOPE
        names: dict[tuple[object, ...], list[str]] = {}
        patterns = sorted({pattern for bundle in bundles for rule in bundle.rules for pattern in rule.queries})
        for query in sorted(before.keys() | after.keys()) if graph else ():
            matched = tuple(pattern for pattern in patterns if fnmatchcase(query, pattern))
            names.setdefault((before.get(query), after.get(query), matched), []).append(query)
        self.queries = tuple(map(tuple, names.values()))
        self.writes = tuple((before.get(each[0]), after.get(each[0])) for each in self.queries)
        plain = _ABOUT_GRAPH if graph else _ABOUT_SERVER
        about = (
            [Cell(action, branch) for action in _ABOUT_BRANCHES for branch in range(len(self.branches))]
            if graph
            else []
        )
        invoked = [Cell(Action.INVOKE_QUERY, None, number) for number in range(len(self.queries))]
        base = [*about, *map(Cell, plain), *invoked]
        runs = [
            Cell(None, branch, number) for number in range(len(self.queries)) for branch in range(len(self.branches))
        ]
        self.cells = {1 << place: cell for place, cell in enumerate([*base, *runs])}
        self._bit = {cell: bit for bit, cell in self.cells.items()}
        self.shown = sum(bit for cell, bit in self._bit.items() if cell.queries is None or cell.action is None)
        self.unguarded = self.of_action(Action.READ)
        """What any token may do where there is no policy."""

    def of_action(self, action: Action) -> int:
        """The bits of an action on every branch."""
        return sum(bit for cell, bit in self._bit.items() if cell.action is action and cell.queries is None)

    def runs_of(self, writes: tuple[bool | None, bool | None]) -> int:
        """The bits of running the queries that write so before and after."""
        return sum(
            bit
            for cell, bit in self._bit.items()
            if cell.action is None and cell.queries is not None and self.writes[cell.queries] == writes
        )

    def run_needs(self, queries: int, *, writes: bool) -> tuple[int, int, int]:
        """What running a class of queries needs: the bit of invoking it, and where the bits of reading or changing begin.

        The third is where the bits of running it begin; both have one for each branch.
        """
        action = Action.CHANGE if writes else Action.READ
        needed, run = self._bit[Cell(action, 0)], self._bit[Cell(None, 0, queries)]
        return self._bit[Cell(Action.INVOKE_QUERY, None, queries)], needed.bit_length() - 1, run.bit_length() - 1

    def rule_mask(self, rule: Rule, protected: Collection[str]) -> int:
        """What a rule permits the members of its group, where these branches are protected."""
        mask = 0
        for bit, cell in self.cells.items():
            if cell.action is None or cell.action not in rule.actions:
                continue
            name = None if cell.queries is None else self.queries[cell.queries][0]
            if rule.queries and (name is None or not any(fnmatchcase(name, each) for each in rule.queries)):
                continue
            branch = cell.branch if cell.action in BRANCH_SCOPED else None
            target = cell.branch if cell.action in TARGET_SCOPED else None
            if self._covers(rule.branch_scope, branch, protected) and self._covers(
                rule.target_branch_scope, target, protected
            ):
                mask |= bit
        return mask

    def _covers(self, scope: BranchScope | None, branch: int | None, protected: Collection[str]) -> bool:
        if scope is None or scope is BranchScope.ANY:
            return True
        return branch is not None and (self.branches[branch] in protected) == (scope is BranchScope.PROTECTED)


class Runs:
    """The queries that can be run, given what is permitted; `writes` says whether each class writes, None for no query."""

    def __init__(self, cells: Cells, writes: Sequence[bool | None]) -> None:
        self._cells = cells
        self._moves = {n: cells.run_needs(n, writes=each) for n, each in enumerate(writes) if each is not None}
        self._branches = (1 << len(cells.branches)) - 1
        self._known: dict[int, int] = {}

    def base_of(self, run: int, changed: int) -> int:
        """The permission that a run rests on: the one that `changed`, else to invoke it; of any other bit, the bit itself."""
        cell = self._cells.cells[run]
        if cell.action is not None or cell.queries is None:
            return run
        invoke, needed, _ = self._moves[cell.queries]
        branch = 1 << needed + (cell.branch or 0)
        return branch if changed & branch and not changed & invoke else invoke

    def added(self, base: int) -> int:
        """What is permitted, with the runs that follow from it."""
        found = self._known.get(base)
        if found is None:
            found = base
            for invoke, needed, run in self._moves.values():
                if base & invoke:
                    found |= (base >> needed & self._branches) << run
            self._known[base] = found
        return found


class Side:
    """What a policy permits on a scope; runs of queries follow from it.

    `masks` maps the bit of each group to what its members may do. Without a policy, any token may do `default`.
    """

    def __init__(self, cells: Cells, bundle: Bundle | None, groups: Mapping[str, int], default: int = 0) -> None:
        """`groups` are the bits of the groups of the bundle."""
        self._default = default
        self.masks = dict.fromkeys(groups.values(), 0)
        self._rules: dict[int, list[tuple[Rule, int]]] = {bit: [] for bit in self.masks}
        for rule in () if bundle is None else sorted(bundle.rules, key=lambda rule: rule.id):
            if bundle is not None and rule.group in groups:
                bit, mask = groups[rule.group], cells.rule_mask(rule, bundle.protected_branches)
                self._rules[bit].append((rule, mask))
                self.masks[bit] |= mask
        self._space = sum(self.masks)

    def allowed(self, groups: int, instead: Mapping[int, int] = MappingProxyType({})) -> int:
        """What members of these groups may do; `instead` has other masks of some groups."""
        mask, masks, rest = self._default, self.masks, groups & self._space
        while rest:
            low = rest & -rest
            mask |= instead[low] if low in instead else masks[low]
            rest ^= low
        return mask

    def deciding(self, groups: int, wanted: int) -> Iterator[tuple[Rule | None, int]]:
        """Which rule permits members of these groups what: the first by its id, None without one; in order of the ids."""
        if wanted & self._default:
            yield None, wanted & self._default
            wanted &= ~self._default
        found = [each for bit in bits_of(groups & self._space) for each in self._rules[bit] if each[1] & wanted]
        for rule, mask in sorted(found, key=lambda each: each[0].id):
            if mask & wanted:
                yield rule, mask & wanted
                wanted &= ~mask
