"""The access diff: what each actor gains and loses between two states, with cause and rule.

1. Each group in the relevant bundles of a scope has one bit; actors with equal bits form one combination.
2. The masks of its groups determine a combination's permissions before and after; the differences are its gains and losses.
3. The cause of a difference is the first part of the change whose reversal alone undoes it (`access_parts`).
4. Copying a protected branch is a separate difference only if an actor can read the copy but not the branch.
5. Differences with the same cause, rule, action and class become one row for equal actors, over branches and then over queries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.model.access import FROM, RUN, AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.cluster.model.address import CLUSTER_SCOPE
from gitops.cluster.policy.access import AccessState, PolicyText, class_of
from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    GRAPH_ACTIONS,
    READS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    BranchScope,
    Bundle,
    PolicyAction,
    Rule,
)
from gitops.cluster.policy.decide import MAIN


def access_diff(before: AccessState, after: AccessState) -> AccessDiff:
    """Return the gains and losses from the first state to the second."""
    rows: list[AccessRow] = []
    unread = []
    for scope in sorted(before.scopes | after.scopes):
        policy = before.policy(scope)
        if scope in before.scopes and policy is not None and policy.bundle is None:
            unread.append(scope)
        if _differs(before, after, scope):
            rows += _ScopeRows(PolicyScopeChange(before, after, scope)).rows()
    classes = tuple(AccessClass)
    rows.sort(
        key=lambda row: (not row.gain, classes.index(row.row_class), row.scope, row.action, row.queries, row.branches)
    )
    new = after.scopes - before.scopes
    return AccessDiff(before.digest, after.digest, tuple(rows), new, tuple(unread))


def _differs(before: AccessState, after: AccessState, scope: str) -> bool:
    """Return True if anything that decides on a scope differs."""
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

    def __init__(self, change: PolicyScopeChange) -> None:
        self._change = change
        self._cells = change.cells
        # The combinations of groups, by key and by the mask of differences.
        self._found: dict[_Key, dict[int, list[int]]] = {}
        self._bases: dict[tuple[bool, int, int], dict[int, int]] = {}

    def rows(self) -> Iterator[AccessRow]:
        """Yield all differences of the scope."""
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
        """Record which permissions a combination of groups gains or loses, by cause and rule."""
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
        """Map the permissions behind the differences to the differences."""
        bases = self._bases.get((gain, flipped, changed))
        if bases is None:
            bases = self._bases[gain, flipped, changed] = {}
            for bit in bits_of(flipped):
                base = view.derived.base_of(bit, changed)
                bases[base] = bases.get(base, 0) | bit
        return bases

    def _merged(self, key: _Key, cells: Mapping[int, int], sets: ActorSets) -> Iterator[AccessRow]:
        """Yield the rows of one cause and rule; `cells` contains the actors of each bit."""
        # First merge branches with equal actors, by action, class and class of queries. Then merge queries with equal
        # actors and branches.
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
    """Return a set of places as a mask."""
    found = bytearray((number + 7) // 8)
    for place in places:
        found[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(found, "little")


# Splits the changes on one scope into parts, and finds the part that causes a difference: the first one whose reversal
# alone undoes it.
#
# The parts are tried in this order: group members of an existing policy, its rules, its `protected_branches`, the bound
# policy, the graph with its binding, and its queries. A difference that no part undoes alone has several causes.


_NAMES = 3
_SEVERAL = AccessCause(CauseKind.SEVERAL, "several changes")


class View(NamedTuple):
    """The permissions on a scope: its policy, what follows from them, and whether the scope is served at all."""

    policy: Side
    derived: Derived
    served: bool = True

    def allowed(self, groups: int, instead: Mapping[int, int] = MappingProxyType({})) -> int:
        """Return the permissions of members of these groups. `instead` replaces the masks of some groups."""
        return self.derived.added(self.policy.allowed(groups, instead)) if self.served else 0


class _PartOfChange(NamedTuple):
    """Permissions after one part of a change is reverted.

    It affects members of the groups in `touched` (None for everyone), or members of one group in `member` but not the
    other, whose permissions the second group then loses or gains. `only` are the affected cells.
    """

    cause: AccessCause
    view: View
    touched: int | None = None
    instead: Mapping[int, int] = MappingProxyType({})
    member: tuple[int, int] | None = None
    only: int = -1

    def undoes(self, groups: int, before: int) -> int:
        """Return the cells in which the members of some groups have the same permissions as before."""
        if self.member is not None:
            old, new = self.member
            if bool(groups & old) == bool(groups & new):
                return 0
            groups ^= new
        elif self.touched is not None and not groups & self.touched:
            return 0
        return ~(self.view.allowed(groups, self.instead) ^ before) & self.only


class PolicyScopeChange:
    """One scope before and after a change. `combinations` are the actors' sets of groups; the first one is empty.

    `members` are the actors of each combination of groups. Actors without a group belong to the first one.
    """

    def __init__(self, before: AccessState, after: AccessState, scope: str) -> None:
        self.scope, self._states = scope, (before, after)
        self.old, self.new = old, new = before.policy(scope), after.policy(scope)
        # The currently bound policy in its earlier version, and the earlier policy in its current version.
        self._was = None if new is None else before.policies.get(new.name)
        self._still = None if old is None else after.policies.get(old.name, old)
        texts = [each for each in (old, new, self._was, self._still) if each is not None]
        bundles = list({id(each.bundle): each.bundle for each in texts if each.bundle is not None}.values())
        graph = scope.partition(".")[2]
        queries = [state.queries.get(graph, {}) for state in self._states]
        self.cells = Cells(scope, bundles, *queries)
        # Most groups are the same before and after, so both share one bit.
        shared: dict[tuple[str, tuple[str, ...]], int] = {}
        self._bits = {
            id(bundle): {
                name: shared.setdefault((name, members), 1 << len(shared)) for name, members in bundle.groups.items()
            }
            for bundle in bundles
        }
        self._derived = [Derived(self.cells, [writes[side] for writes in self.cells.writes]) for side in (0, 1)]
        self._masks: dict[int, Side] = {}
        self.before, self.after = (
            View(self._side(text), derived, scope in state.scopes)
            for text, derived, state in zip((old, new), self._derived, self._states, strict=True)
        )
        self._combine(shared)
        self._parts = tuple(self._changed_parts())

    def _combine(self, shared: Mapping[tuple[str, tuple[str, ...]], int]) -> None:
        found: dict[str, int] = {}
        for (_, members), bit in shared.items():
            for actor in members:
                found[actor] = found.get(actor, 0) | bit
        combined: dict[int, list[str]] = {0: []}
        for actor, groups in found.items():
            combined.setdefault(groups, []).append(actor)
        self.combinations, self.members = tuple(combined), tuple(combined.values())

    def group_sets(self, *, gain: bool) -> dict[str, int]:
        """Return the combinations of each group by name, then the remaining groups.

        They are in the later state, or for a loss in the earlier state.
        """
        texts = [state.policy(self.scope) for state in (reversed(self._states) if gain else self._states)]
        bits: dict[str, int] = {}
        for text in texts:
            for name, bit in self._bits_of(text).items():
                bits.setdefault(name, bit)
        return {name: self._places[bit] for name, bit in bits.items()}

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """Return the combinations of each group, by its bit."""
        size = (len(self.combinations) + 7) // 8
        masks: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(size))
        for place, groups in enumerate(self.combinations):
            for bit in bits_of(groups):
                masks[bit][place >> 3] |= 1 << (place & 7)
        return defaultdict(int, {bit: int.from_bytes(mask, "little") for bit, mask in masks.items()})

    def causes(self, groups: int, before: int, flipped: int) -> Iterator[tuple[AccessCause, int]]:
        """Yield each cause of a changed permission (`flipped`) for members of some groups, with its cells."""
        for part in self._parts:
            if undone := part.undoes(groups, before) & flipped:
                yield part.cause, undone
                flipped &= ~undone
                if not flipped:
                    return
        if flipped:
            yield _SEVERAL, flipped

    def _bits_of(self, text: PolicyText | None) -> Mapping[str, int]:
        return {} if text is None or text.bundle is None else self._bits[id(text.bundle)]

    def _side(self, text: PolicyText | None) -> Side:
        """Return the permissions of a policy on the scope, or of its absence."""
        if text is None:
            return Side(self.cells, None, {}, self.cells.unguarded)
        found = self._masks.get(id(text))
        if found is None:
            found = self._masks[id(text)] = Side(self.cells, text.bundle, self._bits_of(text))
        return found

    def _changed_parts(self) -> Iterator[_PartOfChange]:
        """Yield the parts of the change in the order in which they are tried."""
        old, new = self.old, self.new
        if self.after.served and self._was and self._was.bundle and new and new.bundle:
            yield from self._content_parts(self._was.bundle, new.bundle)
        server = self.scope == CLUSTER_SCOPE
        if self.before.served != self.after.served:
            gone, made = ("last graph deleted", "first graph") if server else ("graph deleted", "new graph")
            taken_back = View(self._side(self._still), self._derived[0], self.before.served)
            yield _PartOfChange(AccessCause(CauseKind.GRAPH, made if self.after.served else gone), taken_back)
            return
        names = [None if each is None else each.name for each in (old, new)]
        if names[0] != names[1]:
            bound = f"policy {names[1]} bound" if names[0] is None else f"policy {names[0]} no longer bound"
            words = bound if None in names else f"policy {names[0]} -> {names[1]}"
            yield _PartOfChange(
                AccessCause(CauseKind.BINDING, words, names[1] or names[0] or ""),
                View(self._side(self._still), self._derived[1]),
            )
        for kinds in sorted(set(self.cells.writes), key=str):
            if kinds[0] != kinds[1]:
                cause = AccessCause(CauseKind.QUERY, _query_words(*kinds))
                view = View(self.after.policy, self._derived[0])
                yield _PartOfChange(cause, view, only=self.cells.runs_of(kinds))

    def _content_parts(self, was: Bundle, now: Bundle) -> Iterator[_PartOfChange]:
        """Yield the parts of a policy that change: members, rules, and the protected branches."""
        old_bits, bits = self._bits[id(was)], self._bits[id(now)]
        for group in sorted(was.groups.keys() & now.groups.keys()):
            left, joined = (
                set(was.groups[group]) - set(now.groups[group]),
                set(now.groups[group]) - set(was.groups[group]),
            )
            if left or joined:
                words = f"group {group}: {_difference(joined, left)}"
                cause = AccessCause(CauseKind.MEMBERSHIP, words, group)
                yield _PartOfChange(cause, self.after, member=(old_bits[group], bits[group]))
        olds, news = ({rule.id: rule for rule in bundle.rules} for bundle in (was, now))
        for rule in sorted(olds.keys() | news.keys()):
            old, new = olds.get(rule), news.get(rule)
            if (change := _rule_words(old, new)) is not None:
                instead = self._without(now, old, new)
                cause = AccessCause(CauseKind.RULE, change, rule, None if new is None else new.line)
                yield _PartOfChange(cause, self.after, sum(instead), instead)
        if was.protected_branches != now.protected_branches:
            words = _difference(
                now.protected_branches - was.protected_branches, was.protected_branches - now.protected_branches
            )
            back = replace(now, protected_branches=was.protected_branches)
            view = View(Side(self.cells, back, bits), self._derived[1])
            yield _PartOfChange(AccessCause(CauseKind.PROTECTED_BRANCHES, f"protected_branches: {words}"), view)

    def _without(self, bundle: Bundle, old: Rule | None, new: Rule | None) -> dict[int, int]:
        """Return the masks of a rule's groups with the earlier version of the rule."""
        bits, instead = self._bits[id(bundle)], dict[int, int]()
        for group in {rule.group for rule in (old, new) if rule is not None and rule.group in bits}:
            rules = [each for each in bundle.rules if each.group == group and each is not new]
            rules += [old] if old is not None and old.group == group else []
            mask = 0
            for each in rules:
                mask |= self.cells.rule_mask(each, bundle.protected_branches)
            instead[bits[group]] = mask
        return instead


def _difference(joined: Collection[str], left: Collection[str]) -> str:
    """Describe additions and removals, by name up to a few."""
    words = [f"{mark}{name}" for mark, names in (("+", joined), ("-", left)) for name in sorted(names)[:_NAMES]]
    more = sum(max(0, len(names) - _NAMES) for names in (joined, left))
    return ", ".join(words) + (f" and {more} more" if more else "")


def _rule_words(old: Rule | None, new: Rule | None) -> str | None:
    """Describe a rule's change, or return None if only its line changes."""
    if old is None or new is None:
        return "new rule" if old is None else "rule removed"
    words = []
    if old.group != new.group:
        words.append(f"group {old.group} -> {new.group}")
    if set(old.actions) != set(new.actions):
        words.append(f"actions {_difference(set(new.actions) - set(old.actions), set(old.actions) - set(new.actions))}")
    for name in ("branch_scope", "target_branch_scope"):
        was, now = getattr(old, name) or "any", getattr(new, name) or "any"
        if was != now:
            words.append(f"{name} {was} -> {now}")
    if set(old.queries) != set(new.queries):
        words.append(f"queries {', '.join(old.queries) or 'all'} -> {', '.join(new.queries) or 'all'}")
    return f"rule: {'; '.join(words)}" if words else None


def _query_words(before: bool | None, after: bool | None) -> str:
    if before is None or after is None:
        return "new query" if before is None else "query deleted"
    return "query writes now" if after else "query only reads now"


# Represents the requests of one scope as bits, and the permissions of each combination of groups under a bundle.


_ABOUT_BRANCHES = tuple(sorted(BRANCH_SCOPED | TARGET_SCOPED))
_ABOUT_GRAPH = tuple(sorted(GRAPH_ACTIONS - BRANCH_SCOPED - TARGET_SCOPED))
_ABOUT_SERVER = tuple(sorted(SERVER_ACTIONS))


def bits_of(mask: int) -> Iterator[int]:
    """Yield the bits of a mask, lowest first, each as its own mask."""
    while mask:
        low = mask & -mask
        yield low
        mask ^= low


class Cell(NamedTuple):
    """The meaning of one bit: an action (None for running queries), a branch index, and a class of queries.

    With `copied`, the bit means using the action to copy the branch to a branch without a name, which is not protected.
    """

    action: PolicyAction | None
    branch: int | None = None
    queries: int | None = None
    copied: bool = False

    @property
    def derived(self) -> bool:
        """Whether the permission follows from others, so that rules do not mention it."""
        return self.copied or self.action is None

    @property
    def label(self) -> str:
        """The action as shown in rows."""
        return RUN if self.action is None else f"{self.action}{FROM if self.copied else ''}"


class Cells:
    """The classes of requests on one scope. Within a class, every rule condition has the same value.

    `branches` are the named ones, plus None for all others. `queries` are the classes of stored queries, which contain
    names on which all patterns agree; `writes` is whether they write before and after, or None if there is no such
    query. `shown` contains the bits that rows show: all except those for invoking a class of queries, whose runs are
    shown instead, and for copying branches, which are shown if they are `exposed`.
    """

    def __init__(
        self, scope: str, bundles: Sequence[Bundle], before: Mapping[str, bool], after: Mapping[str, bool]
    ) -> None:
        """`bundles` are all bundles that may be in force on the scope.

        `before` and `after` map its queries to True if they write.
        """
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
        invoked = [Cell(PolicyAction.INVOKE_QUERY, None, number) for number in range(len(self.queries))]
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
        self.unguarded = self.of_action(PolicyAction.READ)
        """The permissions of any token if there is no policy."""

    def of_action(self, action: PolicyAction) -> int:
        """Return the bits of an action for all branches."""
        cells = self._bit.items()
        return sum(bit for cell, bit in cells if cell.action is action and cell.queries is None and not cell.copied)

    def runs_of(self, writes: tuple[bool | None, bool | None]) -> int:
        """Return the bits for running queries with these write flags before and after."""
        return sum(
            bit
            for cell, bit in self._bit.items()
            if cell.action is None and cell.queries is not None and self.writes[cell.queries] == writes
        )

    def needs(
        self, writes: Sequence[bool | None]
    ) -> Mapping[tuple[PolicyAction | None, int | None], tuple[int, int, int]]:
        """Return, for each derived action, a bit that it requires and the first bit of the other action that it requires.

        Derived actions are running a class of queries and copying. The third value is the first bit of the derived
        action; both ranges have one bit per branch. `writes` is whether the queries of each class write; None if there
        are none.
        """
        found: dict[tuple[PolicyAction | None, int | None], tuple[int, int, int]] = {}
        for number, each in enumerate(writes):
            if each is not None:
                invoke = self._bit[Cell(PolicyAction.INVOKE_QUERY, None, number)]
                needed = self._start(Cell(PolicyAction.CHANGE if each else PolicyAction.READ, 0))
                found[None, number] = invoke, needed, self._start(Cell(None, 0, number))
        for action in self._copies:
            first, needed = self._bit[Cell(action, len(self.branches) - 1)], self._start(Cell(READS[action], 0))
            found[action, None] = first, needed, self._start(Cell(action, 0, copied=True))
        return found

    def exposed(self, allowed: Iterable[int]) -> int:
        """Return the bits for copying branches that an actor cannot read, if the actor can read unnamed branches.

        For rules, a branch is either protected or not, so an actor who can read one unnamed branch can read all of
        them.
        """
        if not self._copies:
            return 0
        read, export = self._start(Cell(PolicyAction.READ, 0)), self._start(Cell(PolicyAction.EXPORT, 0))
        others, unread = 1 << len(self.branches) - 1, 0
        for mask in allowed:
            learned = mask >> read | mask >> export
            if learned & others:
                unread |= (others - 1) & ~learned
        return sum(unread << self._start(Cell(action, 0, copied=True)) for action in self._copies)

    def _start(self, cell: Cell) -> int:
        """Return the first bit of an action, which has one bit per branch."""
        return self._bit[cell].bit_length() - 1

    def rule_mask(self, rule: Rule, protected: Collection[str]) -> int:
        """Return the permissions that a rule gives the members of its group, given these protected branches."""
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
    """The consequences of permissions: the queries that can be run and the branches that can be copied.

    `writes` is whether each class of queries writes, or None if it has none.
    """

    def __init__(self, cells: Cells, writes: Sequence[bool | None]) -> None:
        self._cells = cells
        self._moves = cells.needs(writes)
        self._branches = (1 << len(cells.branches)) - 1
        self._known: dict[int, int] = {}

    def base_of(self, bit: int, changed: int) -> int:
        """Return the permission that a derived one is based on (to invoke or to copy).

        If only the other required permission `changed`, return that one. For other bits, return the bit itself.
        """
        cell = self._cells.cells[bit]
        if not cell.derived:
            return bit
        first, needed, _ = self._moves[cell.action, cell.queries]
        branch = 1 << needed + (cell.branch or 0)
        return branch if changed & branch and not changed & first else first

    def added(self, base: int) -> int:
        """Return the permissions and those derived from them."""
        found = self._known.get(base)
        if found is None:
            found = base
            for first, needed, start in self._moves.values():
                if base & first:
                    found |= (base >> needed & self._branches) << start
            self._known[base] = found
        return found


class Side:
    """The permissions that a policy gives on a scope, without derived ones.

    `masks` maps the bit of each group to what its members are allowed to do. Without a policy, any token is allowed to do
    `default`.
    """

    def __init__(self, cells: Cells, bundle: Bundle | None, groups: Mapping[str, int], default: int = 0) -> None:
        """`groups` maps the groups of the bundle to their bits."""
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
        """Return the permissions of members of these groups. `instead` replaces the masks of some groups."""
        mask, masks, rest = self._default, self.masks, groups & self._space
        while rest:
            low = rest & -rest
            mask |= instead[low] if low in instead else masks[low]
            rest ^= low
        return mask

    def deciding(self, groups: int, wanted: int) -> Iterator[tuple[Rule | None, int]]:
        """Yield, in id order, the rules that give members of these groups the `wanted` actions. Without a policy, yield None."""
        if wanted & self._default:
            yield None, wanted & self._default
            wanted &= ~self._default
        found = [each for bit in bits_of(groups & self._space) for each in self._rules[bit] if each[1] & wanted]
        for rule, mask in sorted(found, key=lambda each: each[0].id):
            if mask & wanted:
                yield rule, mask & wanted
                wanted &= ~mask


# Describes sets of actors: `*`, up to three groups that are exactly the set, or names.


_GROUPS = 3
ALL = "*"


class ActorSets:
    """Sets of actors on a scope, as masks with one bit per combination of groups.

    The first combination has no group.

    `groups` are the masks of groups by name, on the side for which a set is described.
    """

    def __init__(self, members: Sequence[Sequence[str]], groups: Mapping[str, int]) -> None:
        self._members = members
        self._groups = {name: mask for name, mask in groups.items() if mask}
        self._all = (1 << len(members)) - 1
        self._known: dict[int, Actors] = {}

    def described(self, wanted: int) -> Actors:
        """Return the actors in a set."""
        found = self._known.get(wanted)
        if found is None:
            names = sorted(name for place in _places(wanted) for name in self._members[place])
            union, minus = self._words(wanted)
            found = self._known[wanted] = Actors(tuple(names), bool(wanted & 1), union, minus)
        return found

    def _words(self, wanted: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Describe a set as the union of groups minus other groups, using as few as possible."""
        if wanted == self._all:
            return (ALL,), ()
        inside = {name: mask for name, mask in self._groups.items() if not mask & ~wanted}
        outside = {name: mask for name, mask in self._groups.items() if not mask & wanted}
        # Most sets cannot be composed of groups, which becomes clear from all groups that fit.
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
        """Yield unions of this number of groups that contain the complete set and more."""
        if number == 1:
            yield (ALL,)
        yield from _covers(wanted, self._groups, number)

    def _union(self, names: Iterable[str]) -> int:
        mask = 0
        for name in names:
            mask |= self._all if name == ALL else self._groups[name]
        return mask


def _covers(wanted: int, groups: Mapping[str, int], number: int) -> Iterator[tuple[str, ...]]:
    """Yield each way to cover a set with this number of groups, one of which contains its first member."""
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
    # Most sets contain few of thousands of members, so searching the digits for them is faster.
    digits = f"{mask:b}"[::-1]
    place = digits.find("1")
    while place >= 0:
        yield place
        place = digits.find("1", place + 1)
