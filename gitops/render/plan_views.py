"""What people read of a plan beside its changes, made once: printers of text, JSON and comments only lay it out.

Who gains what, how it lands, what goes back, and what strategies would do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from gitops.cluster.model.access import AccessDiff, Actors, place_of
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Effect
from gitops.cluster.model.kinds import Classified
from gitops.cluster.model.plan import ExecutionGraph, Plan, Undo
from gitops.cluster.plan.classes import atomic_graph, classes_of, pivots
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.cluster.model.compute import WhatIf, WhatIfAction
    from gitops.render.change_rows import ChangeRow
    from gitops.render.migrations import MigrationView

LANDS_WHOLE = "whole or not at all; what is not listed here is prepared first, and taken back if something fails"

MOST_ROWS = 200
"""Rows of access of a comment, and of the text of a plan; the JSON has all."""

_NAMES = 5
_QUERIES = 3
# What people read of a class; a staged change is listed only if it is a migration in halves.
_WHEN = {Effect.STAGE: "in halves", Effect.PIVOT: "last before the commit", Effect.FINISH: "after the commit"}
_WORST_FIRST = tuple(reversed(Undo))


class PlanView:
    """A plan as people read it. Each part is made when a printer first asks for it, and is the same for all of them."""

    def __init__(self, plan: Plan, *, atomic: bool = False) -> None:
        """`atomic` says that an apply lands the plan whole or not at all."""
        self.plan = plan
        self.atomic = atomic

    @cached_property
    def classes(self) -> Mapping[Address, Classified]:
        """The class of each change that an apply carries out."""
        return classes_of(self.plan.changes)

    @cached_property
    def graph(self) -> ExecutionGraph:
        """The execution graph of the run that carries out the plan."""
        return atomic_graph(self.plan.graph) if self.atomic else self.plan.graph

    @cached_property
    def landing(self) -> tuple[LandingView, ...]:
        """What an atomic run does not simply stage, grouped by its class and the reason for that; none for any other run."""
        kept = {node.address for node in self.plan.graph.nodes}
        found: dict[tuple[Effect, str], list[Address]] = {}
        for address, each in self.classes.items() if self.atomic else ():
            if address in kept and (each.effect in (Effect.PIVOT, Effect.FINISH) or each.expanded is not None):
                found.setdefault((each.effect, each.reason), []).append(address)
        parts = len(pivots(self.plan.graph))
        in_parts = f"carried out in {parts} parts, each whole or not at all, one after the other until one fails"
        rows: list[LandingView] = []
        for (effect, reason), names in sorted(found.items(), key=lambda item: (item[0][0].rank, item[0][1])):
            pivot = effect is Effect.PIVOT
            first = pivot and parts > 1 and all(row.effect is not effect for row in rows)
            resources = tuple(sorted(names))
            rows.append(LandingView(effect, reason, resources, parts if pivot else 1, in_parts if first else ""))
        return tuple(rows)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """The changes that people made, and what follows from them."""
        from gitops.render.change_rows import PLANNED, change_rows

        return change_rows((*self.plan.edits, *self.plan.derived), PLANNED, self.plan, self.broken)

    @cached_property
    def broken(self) -> Mapping[Address, tuple[str, ...]]:
        """What callers of stored queries cannot rely on any more, as lines by query."""
        from gitops.render.change_rows import broken_queries

        return broken_queries(self.plan)

    @cached_property
    def migrations(self) -> Mapping[str, MigrationView]:
        """The migrations by the address of their schema."""
        from gitops.render.migrations import migration_views

        return migration_views(self.plan)

    @cached_property
    def undone(self) -> tuple[Undone, ...]:
        """What does not simply come back by a plan back, the worst first."""
        worse = [each for each in self.plan.undoings if each.undo is not Undo.COMPLETE]
        found = []
        for each in sorted(worse, key=lambda each: (_WORST_FIRST.index(each.undo), each.resource)):
            # The types that come back empty, by the version that has their rows.
            types: dict[int, list[str]] = {}
            for part in each.parts:
                if part.comes_back and part.version is not None:
                    types.setdefault(part.version, []).append(part.name)
            restore = tuple(
                f"restores: {{{each.resource.name}: {{version: {version}, types: [{', '.join(sorted(names))}]}}}}"
                for version, names in sorted(types.items())
            )
            found.append(Undone(each.resource, each.undo, tuple(part.words for part in each.parts), restore))
        return tuple(found)

    @cached_property
    def undo_counts(self) -> str:
        """How many changes of a plan back are of which class, the best first; empty for any other plan."""
        found = Counter(each.undo for each in self.plan.undoings)
        return ", ".join(f"{found[undo]} {undo.value}" for undo in Undo if found[undo])


@dataclass(frozen=True, slots=True)
class LandingView:
    """The `resources` of one class and reason: several of effect `pivot` are carried out in as many `parts`.

    `note` says so below the first of them.
    """

    effect: Effect
    reason: str
    resources: tuple[Address, ...]
    parts: int
    note: str

    @property
    def when(self) -> str:
        """When they are carried out, in words."""
        return _WHEN[self.effect]


@dataclass(frozen=True, slots=True)
class Undone:
    """A change that does not simply come back: its class, what becomes of its parts, and what to declare to restore rows."""

    resource: Address
    undo: Undo
    lines: tuple[str, ...]
    restore: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessView:
    """A difference of access in words.

    `sign` is + or -, `access_class` in upper case; `action` with the first `queries` that are run and `more_queries`, `place`,
    `branches` (empty for what is about none), `who`, `rule` (empty where there is no policy), `where` that is, and the `cause`.
    """

    sign: str
    access_class: str
    action: str
    queries: tuple[str, ...]
    more_queries: int
    place: str
    branches: str
    who: str
    rule: str
    where: str
    cause: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The columns of a table."""
        return (
            f"{self.sign} {self.access_class}",
            " ".join(filter(None, (self.action, _counted(self.queries, self.more_queries)))),
            self.place,
            self.branches or "-",
            self.who,
            ", ".join(filter(None, (self.rule, self.where))) or "no policy",
            self.cause,
        )


def access_views(diff: AccessDiff) -> tuple[AccessView, ...]:
    """Each difference in words: gains before losses, the gravest first."""
    views = []
    for row in diff.rows:
        branches = _listed(row.branches, _NAMES)
        if row.other_branches:
            branches = f"* except {_listed(row.except_branches, _NAMES)}" if row.except_branches else "*"
        views.append(
            AccessView(
                sign="+" if row.gain else "-",
                access_class=row.row_class.upper(),
                action=row.action,
                queries=row.queries[:_QUERIES],
                more_queries=max(0, len(row.queries) - _QUERIES),
                place=place_of(row.scope),
                branches=branches,
                who=who(row.actors),
                rule=row.rule or "",
                where="" if row.file is None else f"{row.file}:{row.line}",
                cause=row.cause.words,
            )
        )
    return tuple(views)


def access_counts(diff: AccessDiff) -> str:
    """How much is gained and lost, in a line."""
    gains = len(diff.gains)
    losses = len(diff.rows) - gains
    found = [f"{gains} gain{'' if gains == 1 else 's'}"] if gains else []
    found += [f"{losses} loss{'' if losses == 1 else 'es'}"] if losses else []
    return ", ".join(found) or "no gains, no losses"


def who(actors: Actors) -> str:
    """The actors of a row in words: by groups with their number, or by name where that takes several groups for a few."""
    if actors.union == ("*",) and not actors.minus:
        return "*"
    number = len(actors.members)
    few = len(actors.union + actors.minus) > 1 and number <= _NAMES and not actors.others
    if few or not actors.union:
        named = _listed(actors.members, _NAMES)
        return f"{named} and any other token" if actors.others else named
    left_out = f" except {', '.join(actors.minus)}" if actors.minus else ""
    known = "" if actors.others else f" ({number})"
    return f"{', '.join(actors.union)}{left_out}{known}"


def _listed(names: Sequence[str], most: int) -> str:
    return _counted(names[:most], len(names) - most)


def _counted(names: Sequence[str], more: int) -> str:
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """What strategies would do with a compute cluster: `actions`, or `said`, why there are none.

    `refused` are sizes that the target does not have, and the wishes beyond the limits. `played` compares the last days, with the
    command that says how they were played; it is empty where the target recorded none.
    """

    place: str
    actions: tuple[WhatIfAction, ...]
    said: str
    refused: tuple[str, ...]
    played: str


def what_if_views(found: Iterable[WhatIf]) -> tuple[WhatIfView, ...]:
    """Each compute cluster in words."""
    views = []
    for each in found:
        said = f"not known: {each.said}{f' ({each.code})' if each.code else ''}" if each.said else "nothing to do"
        refused = [
            f"an apply refuses these strategies: target {each.target} has no size {size} ({Code.REPLICA_SIZE_INVALID})"
            for size in each.unlisted
        ]
        refused += [f"left out: {wanted} ({Code.REPLICA_LIMIT_EXCEEDED})" for wanted in each.refused]
        place = each.key if each.key == each.cluster else f"{each.key} ({each.cluster})"
        before, after, played = each.before, each.after, ""
        if before is not None and after is not None:
            parts = [
                f"replica-hours from {before.replica_hours:.2f} to {after.replica_hours:.2f}",
                f"credits from {before.credits:.2f} to {after.credits:.2f}",
            ]
            if before.unserved_s or after.unserved_s:
                parts.append(f"minutes unserved from {before.unserved_s // 60} to {after.unserved_s // 60}")
            command = f"gitops strategies simulate --from-audit {each.key}"
            played = f"the last {each.days} days, played again: {', '.join(parts)}; what that assumes: `{command}`"
        views.append(WhatIfView(place, each.actions, said, tuple(refused), played))
    return tuple(views)
