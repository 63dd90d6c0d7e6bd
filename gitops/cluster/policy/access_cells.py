"""The requests of one scope as bits, and what the rules of a bundle permit each combination of groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.model.access import FROM, RUN
from gitops.cluster.model.address import CLUSTER_SCOPE
from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    GRAPH_ACTIONS,
    READS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    Action,
    BranchScope,
    Bundle,
    Rule,
)
from gitops.cluster.policy.decide import MAIN

__all__ = ["Cell", "Cells", "Derived", "Side", "bits_of"]

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
    """What one bit means: an action, None for running queries; an index of a branch; a class of queries.

    With `copied`, it is to copy the branch by the action to a branch without a name, which is not protected.
    """

    action: Action | None
    branch: int | None = None
    queries: int | None = None
    copied: bool = False

    @property
    def derived(self) -> bool:
        """Whether it follows from other permissions, and no rule is about it."""
        return self.copied or self.action is None

    @property
    def label(self) -> str:
        """The action as rows name it."""
        return RUN if self.action is None else f"{self.action}{FROM if self.copied else ''}"


class Cells:
    """The classes of requests of one scope, on which every condition of the rules is constant.

    `branches` are those with a name, and None for all others. `queries` are the classes of stored queries: names on which all
    patterns agree; `writes` says whether they write before and after, None where there is no such query. `shown` has the bits
    that rows show: all but those of invoking a class of queries, whose runs are shown instead, and of copying branches, which
    are shown where they are `exposed`.
    """

    def __init__(
        self, scope: str, bundles: Sequence[Bundle], before: Mapping[str, bool], after: Mapping[str, bool]
    ) -> None:
        """`bundles` are all that may be in force on the scope; `before` and `after` its queries, and whether they write."""
        protected = frozenset[str]().union(*(bundle.protected_branches for bundle in bundles))
        self.branches: tuple[str | None, ...] = (*sorted(protected | {MAIN}), None)
        self.protected = protected
        graph = scope != CLUSTER_SCOPE
        self._copies = tuple(sorted(READS)) if graph else ()
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
        copies = [Cell(action, branch, copied=True) for action in self._copies for branch in range(len(self.branches))]
        self.cells = {1 << place: cell for place, cell in enumerate([*base, *runs, *copies])}
        self._bit = {cell: bit for bit, cell in self.cells.items()}
        shown = (
            bit for cell, bit in self._bit.items() if cell.action is None or (cell.queries is None and not cell.copied)
        )
        self.shown = sum(shown)
        self.unguarded = self.of_action(Action.READ)
        """What any token may do where there is no policy."""

    def of_action(self, action: Action) -> int:
        """The bits of an action on every branch."""
        cells = self._bit.items()
        return sum(bit for cell, bit in cells if cell.action is action and cell.queries is None and not cell.copied)

    def runs_of(self, writes: tuple[bool | None, bool | None]) -> int:
        """The bits of running the queries that write so before and after."""
        return sum(
            bit
            for cell, bit in self._bit.items()
            if cell.action is None and cell.queries is not None and self.writes[cell.queries] == writes
        )

    def needs(self, writes: Sequence[bool | None]) -> Mapping[tuple[Action | None, int | None], tuple[int, int, int]]:
        """What each derived action needs, running a class of queries or copying: a bit, and where bits of another action begin.

        The third is where the bits of the derived action begin; both have one for each branch. `writes` says whether the queries
        of each class write, None where there are none.
        """
        found: dict[tuple[Action | None, int | None], tuple[int, int, int]] = {}
        for number, each in enumerate(writes):
            if each is not None:
                invoke = self._bit[Cell(Action.INVOKE_QUERY, None, number)]
                needed = self._start(Cell(Action.CHANGE if each else Action.READ, 0))
                found[None, number] = invoke, needed, self._start(Cell(None, 0, number))
        for action in self._copies:
            first, needed = self._bit[Cell(action, len(self.branches) - 1)], self._start(Cell(READS[action], 0))
            found[action, None] = first, needed, self._start(Cell(action, 0, copied=True))
        return found

    def exposed(self, allowed: Iterable[int]) -> int:
        """The bits of copying the branches that one of some actors does not read, who reads those without a name.

        To rules a branch is protected or it is not, so an actor who reads one branch without a name reads all of them.
        """
        if not self._copies:
            return 0
        read, export = self._start(Cell(Action.READ, 0)), self._start(Cell(Action.EXPORT, 0))
        others, unread = 1 << len(self.branches) - 1, 0
        for mask in allowed:
            learned = mask >> read | mask >> export
            if learned & others:
                unread |= (others - 1) & ~learned
        return sum(unread << self._start(Cell(action, 0, copied=True)) for action in self._copies)

    def _start(self, cell: Cell) -> int:
        """Where the bits of an action begin, of which there is one for each branch."""
        return self._bit[cell].bit_length() - 1

    def rule_mask(self, rule: Rule, protected: Collection[str]) -> int:
        """What a rule permits the members of its group, where these branches are protected."""
        mask = 0
        for bit, cell in self.cells.items():
            if cell.derived or cell.action not in rule.actions:
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


class Derived:
    """The queries that can be run and the branches that can be copied, given what is permitted.

    `writes` says whether each class of queries writes, None for no query.
    """

    def __init__(self, cells: Cells, writes: Sequence[bool | None]) -> None:
        self._cells = cells
        self._moves = cells.needs(writes)
        self._branches = (1 << len(cells.branches)) - 1
        self._known: dict[int, int] = {}

    def base_of(self, bit: int, changed: int) -> int:
        """The permission that a derived one rests on, to invoke or to copy, or the other if only that `changed`; else the bit."""
        cell = self._cells.cells[bit]
        if not cell.derived:
            return bit
        first, needed, _ = self._moves[cell.action, cell.queries]
        branch = 1 << needed + (cell.branch or 0)
        return branch if changed & branch and not changed & first else first

    def added(self, base: int) -> int:
        """What is permitted, with what follows from it."""
        found = self._known.get(base)
        if found is None:
            found = base
            for first, needed, start in self._moves.values():
                if base & first:
                    found |= (base >> needed & self._branches) << start
            self._known[base] = found
        return found


class Side:
    """What a policy permits on a scope, without what follows from it.

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
