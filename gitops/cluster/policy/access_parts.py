"""What changes on one scope, part by part, and which part a difference is due to: the first one whose reversal alone undoes it.

The parts are tried in this order: who is in a group of a policy that was there, its rules, its `protected_branches`, which policy
is bound, the graph with its binding, and its queries. What no part undoes alone is due to several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.model.access import AccessCause, CauseKind
from gitops.cluster.model.address import CLUSTER_SCOPE
from gitops.cluster.policy.access import AccessState, PolicyText
from gitops.cluster.policy.access_cells import Cells, Derived, Side, bits_of
from gitops.cluster.policy.bundle import Bundle, Rule

__all__ = ["ScopeChange", "View"]

_NAMES = 3
_SEVERAL = AccessCause(CauseKind.SEVERAL, "several changes")


class View(NamedTuple):
    """What may be done on a scope: its policy, what follows from that, and whether it is served at all."""

    policy: Side
    derived: Derived
    served: bool = True

    def allowed(self, groups: int, instead: Mapping[int, int] = MappingProxyType({})) -> int:
        """What the members of some groups may do; `instead` has other masks of groups."""
        return self.derived.added(self.policy.allowed(groups, instead)) if self.served else 0


class _Part(NamedTuple):
    """A part of a change, taken back: what is permitted then.

    It matters to those who are in one of the groups `touched`, None for everybody, or in one of `member` and not in the other,
    of which the second is then taken or given. `only` are the cells that it is about.
    """

    cause: AccessCause
    view: View
    touched: int | None = None
    instead: Mapping[int, int] = MappingProxyType({})
    member: tuple[int, int] | None = None
    only: int = -1

    def undoes(self, groups: int, before: int) -> int:
        """The cells of which the members of some groups may do the same as before."""
        if self.member is not None:
            old, new = self.member
            if bool(groups & old) == bool(groups & new):
                return 0
            groups ^= new
        elif self.touched is not None and not groups & self.touched:
            return 0
        return ~(self.view.allowed(groups, self.instead) ^ before) & self.only


class ScopeChange:
    """One scope before and after a change. `combinations` are the sets of groups that actors are in, the first of none of them.

    `members` are the actors of each combination; those of the first are all who are in none of the groups.
    """

    def __init__(self, before: AccessState, after: AccessState, scope: str) -> None:
        self.scope, self._states = scope, (before, after)
        self.old, self.new = old, new = before.policy(scope), after.policy(scope)
        # The policy that is bound afterwards as it was, and the one that was bound as it is afterwards.
        self._was = None if new is None else before.policies.get(new.name)
        self._still = None if old is None else after.policies.get(old.name, old)
        texts = [each for each in (old, new, self._was, self._still) if each is not None]
        bundles = list({id(each.bundle): each.bundle for each in texts if each.bundle is not None}.values())
        graph = scope.partition(".")[2]
        queries = [state.queries.get(graph, {}) for state in self._states]
        self.cells = Cells(scope, bundles, *queries)
        # Most groups are the same before and after, and have one bit.
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
        """The combinations of each group by name, as it is afterwards or, of what is lost, before; then other groups."""
        texts = [state.policy(self.scope) for state in (reversed(self._states) if gain else self._states)]
        bits: dict[str, int] = {}
        for text in texts:
            for name, bit in self._bits_of(text).items():
                bits.setdefault(name, bit)
        return {name: self._places[bit] for name, bit in bits.items()}

    @cached_property
    def _places(self) -> Mapping[int, int]:
        """The combinations of each group, by its bit."""
        size = (len(self.combinations) + 7) // 8
        masks: defaultdict[int, bytearray] = defaultdict(lambda: bytearray(size))
        for place, groups in enumerate(self.combinations):
            for bit in bits_of(groups):
                masks[bit][place >> 3] |= 1 << (place & 7)
        return defaultdict(int, {bit: int.from_bytes(mask, "little") for bit, mask in masks.items()})

    def causes(self, groups: int, before: int, flipped: int) -> Iterator[tuple[AccessCause, int]]:
        """Why members of some groups may do differently from `before` what is `flipped`; each cause with its cells."""
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
        """What a policy permits on the scope, or its absence."""
        if text is None:
            return Side(self.cells, None, {}, self.cells.unguarded)
        found = self._masks.get(id(text))
        if found is None:
            found = self._masks[id(text)] = Side(self.cells, text.bundle, self._bits_of(text))
        return found

    def _changed_parts(self) -> Iterator[_Part]:
        """The parts of the change in the order in which they are tried."""
        old, new = self.old, self.new
        if self.after.served and self._was and self._was.bundle and new and new.bundle:
            yield from self._content_parts(self._was.bundle, new.bundle)
        server = self.scope == CLUSTER_SCOPE
        if self.before.served != self.after.served:
            gone, made = ("last graph deleted", "first graph") if server else ("graph deleted", "new graph")
            taken_back = View(self._side(self._still), self._derived[0], self.before.served)
            yield _Part(AccessCause(CauseKind.GRAPH, made if self.after.served else gone), taken_back)
            return
        names = [None if each is None else each.name for each in (old, new)]
        if names[0] != names[1]:
            bound = f"policy {names[1]} bound" if names[0] is None else f"policy {names[0]} no longer bound"
            words = bound if None in names else f"policy {names[0]} -> {names[1]}"
            yield _Part(
                AccessCause(CauseKind.BINDING, words, names[1] or names[0] or ""),
                View(self._side(self._still), self._derived[1]),
            )
        for kinds in sorted(set(self.cells.writes), key=str):
            if kinds[0] != kinds[1]:
                cause = AccessCause(CauseKind.QUERY, _query_words(*kinds))
                view = View(self.after.policy, self._derived[0])
                yield _Part(cause, view, only=self.cells.runs_of(kinds))

    def _content_parts(self, was: Bundle, now: Bundle) -> Iterator[_Part]:
        """What changes in a policy: members, rules, and the branches that are protected."""
        old_bits, bits = self._bits[id(was)], self._bits[id(now)]
        for group in sorted(was.groups.keys() & now.groups.keys()):
            left, joined = (
                set(was.groups[group]) - set(now.groups[group]),
                set(now.groups[group]) - set(was.groups[group]),
            )
            if left or joined:
                words = f"group {group}: {_difference(joined, left)}"
                cause = AccessCause(CauseKind.MEMBERSHIP, words, group)
                yield _Part(cause, self.after, member=(old_bits[group], bits[group]))
        olds, news = ({rule.id: rule for rule in bundle.rules} for bundle in (was, now))
        for rule in sorted(olds.keys() | news.keys()):
            old, new = olds.get(rule), news.get(rule)
            if (change := _rule_words(old, new)) is not None:
                instead = self._without(now, old, new)
                cause = AccessCause(CauseKind.RULE, change, rule, None if new is None else new.line)
                yield _Part(cause, self.after, sum(instead), instead)
        if was.protected_branches != now.protected_branches:
            words = _difference(
                now.protected_branches - was.protected_branches, was.protected_branches - now.protected_branches
            )
            back = replace(now, protected_branches=was.protected_branches)
            view = View(Side(self.cells, back, bits), self._derived[1])
            yield _Part(AccessCause(CauseKind.PROTECTED_BRANCHES, f"protected_branches: {words}"), view)

    def _without(self, bundle: Bundle, old: Rule | None, new: Rule | None) -> dict[int, int]:
        """The masks of the groups of a rule, as if it were as before."""
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
    """What joins and what leaves, by name up to a few."""
    words = [f"{mark}{name}" for mark, names in (("+", joined), ("-", left)) for name in sorted(names)[:_NAMES]]
    more = sum(max(0, len(names) - _NAMES) for names in (joined, left))
    return ", ".join(words) + (f" and {more} more" if more else "")


def _rule_words(old: Rule | None, new: Rule | None) -> str | None:
    """How a rule changes; None if only its line does."""
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
