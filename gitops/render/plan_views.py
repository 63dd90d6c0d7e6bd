"""Descriptions of a plan, which the text, JSON and comment printers only lay out.

They are the first line, automatic updates, changes of access, the order of an atomic apply, the effect of a revert, and
the statements that strategies would run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from gitops.cluster.model.access import AccessDiff, Actors, place_of
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change, Disposition, Effect, Reason, Tier
from gitops.cluster.model.kinds import Classified
from gitops.cluster.model.plan import ExecutionGraph, Plan, Undo
from gitops.cluster.plan.classes import atomic_graph, classes_of, pivots
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.render.words import FORMATTING_ONLY, count

if TYPE_CHECKING:
    from gitops.cluster.model.compute import WhatIf, WhatIfAction
    from gitops.cluster.model.outcome import PlanOutcome
    from gitops.render.change_rows import ChangeRow
    from gitops.render.migrations import MigrationView

ATOMIC = "the apply is atomic: if one change fails, all are rolled back"

MOST_ROWS = 200
"""Maximum number of access rows in a comment and in a plan's text; the JSON contains all rows."""

_NAMES = 5
_QUERIES = 3
# A staged change is listed only if it is a two-phase migration.
_WHEN = {
    Effect.STAGE: "additions before the commit, drops after it",
    Effect.PIVOT: "last before the commit",
    Effect.FINISH: "after the commit",
}
_WORST_FIRST = tuple(reversed(Undo))
_UNDONE = {
    Undo.RESTORABLE: "{} can get its data back from an earlier version of the graph",
    Undo.UNKNOWN: "for {} that is not known here",
    Undo.LOST: "{} cannot be restored, because no version has the data",
    Undo.IRREVERSIBLE: "{} cannot be undone",
}
_DROPS = {"drop_type": "type", "drop_property": "property"}
_DROPPED = {"type": "types", "property": "properties"}


class PlanView:
    """A plan to display. Each part is created on first use, and all printers share it."""

    def __init__(self, plan: Plan, *, atomic: bool = False) -> None:
        """An `atomic` plan is applied completely or not at all."""
        self.plan = plan
        self.atomic = atomic

    @cached_property
    def counts(self) -> str:
        """The number of added, changed and deleted resources, such as `+108 ~3 −1`."""
        found = Counter(change.action for change in self.plan.edits)
        adopted = f" · {count(found[Action.ADOPT], 'resource')} adopted" if found[Action.ADOPT] else ""
        return f"+{found[Action.CREATE]:,} ~{found[Action.UPDATE]:,} −{found[Action.DELETE]:,}{adopted}"

    @cached_property
    def losses(self) -> tuple[str, ...]:
        """The data that the plan destroys or drops, in words and worst first."""
        graphs: list[Change] = []
        emptied: list[Change] = []
        recreated, restored, dropped = 0, 0, Counter[str]()
        for change in self.plan.edits:
            kind = change.address.kind
            if kind is Kind.GRAPH and change.action is Action.DELETE:
                graphs.append(change)
            elif kind is Kind.GRAPH and change.action is Action.CREATE and change.tier is Tier.IRREVERSIBLE:
                recreated += 1
            elif kind is Kind.RESTORE and change.tier is not None:
                restored += 1
            elif change.migration is not None and change.migration.supported:
                if change.migration.empties and change.tier is Tier.IRREVERSIBLE:
                    emptied.append(change)
                elif change.seen is None or change.seen.rows:
                    dropped.update(
                        _DROPS[step["kind"]]
                        for step in change.migration.steps
                        if step.get("kind") in _DROPS and step.get("type_kind") != "interface"
                    )
        parts = [_graphs(graphs, "destroyed"), _graphs(emptied, "emptied")]
        parts += [f"{count(recreated, 'lost graph')} created again, empty"] if recreated else []
        parts += [f"rows of {count(restored, 'graph')} replaced by an earlier version"] if restored else []
        names = [count(dropped[noun], noun, plural) for noun, plural in _DROPPED.items() if dropped[noun]]
        parts += [f"{' and '.join(names)} dropped"] if names else []
        return tuple(filter(None, parts))

    @cached_property
    def effects(self) -> tuple[str, ...]:
        """Other effects that a reviewer must know: wider access, broken callers, or that nothing changes but layout."""
        plan, parts = self.plan, []
        if wider := len(plan.widens):
            parts.append(f"{count(wider, 'change')} {'widens' if wider == 1 else 'widen'} access")
        if broken := len(self.broken) if plan.breaks or plan.schema_impact else 0:
            parts.append("1 query breaks callers" if broken == 1 else f"{broken:,} queries break callers")
        if plan.formatting and all(change.address in plan.formatting for change in plan.edits):
            parts.append(FORMATTING_ONLY)
        return tuple(parts)

    @cached_property
    def automatic(self) -> tuple[str, ...]:
        """The updates that only result from other changes, one line each."""
        return automatic_updates(self.plan.changes, self.plan.republished)

    @cached_property
    def classes(self) -> Mapping[Address, Classified]:
        """The class of each change that an apply makes."""
        return classes_of(self.plan.changes)

    @cached_property
    def graph(self) -> ExecutionGraph:
        """The execution graph of the run that applies the plan."""
        return atomic_graph(self.plan.graph) if self.atomic else self.plan.graph

    @cached_property
    def landing(self) -> tuple[LandingView, ...]:
        """Changes that an atomic run does not only stage, grouped by class and reason. Empty for other runs."""
        kept = {node.address for node in self.plan.graph.nodes}
        found: dict[tuple[Effect, str], list[Address]] = {}
        for address, each in self.classes.items() if self.atomic else ():
            if address in kept and (each.effect in (Effect.PIVOT, Effect.FINISH) or each.expanded is not None):
                found.setdefault((each.effect, each.reason), []).append(address)
        parts = len(pivots(self.plan.graph))
        in_parts = (
            f"applied in {parts} parts, one after the other; each part is atomic, and the first failure stops the rest"
        )
        rows: list[LandingView] = []
        for (effect, reason), names in sorted(found.items(), key=lambda item: (item[0][0].rank, item[0][1])):
            pivot = effect is Effect.PIVOT
            first = pivot and parts > 1 and all(row.effect is not effect for row in rows)
            resources = tuple(sorted(names))
            rows.append(LandingView(effect, reason, resources, parts if pivot else 1, in_parts if first else ""))
        return tuple(rows)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """The changes that people made, and those that result from them."""
        from gitops.render.change_rows import PLANNED, change_rows

        return change_rows(
            (*self.plan.edits, *self.plan.derived), PLANNED, self.plan, self.broken, self.plan.formatting
        )

    @cached_property
    def broken(self) -> Mapping[Address, tuple[str, ...]]:
        """Changes that break callers of stored queries, as lines by query."""
        from gitops.render.change_rows import broken_queries

        return broken_queries(self.plan)

    @cached_property
    def migrations(self) -> Mapping[str, MigrationView]:
        """The migrations by schema address."""
        from gitops.render.migrations import migration_views

        return migration_views(self.plan)

    @cached_property
    def undone(self) -> tuple[Undone, ...]:
        """The changes that a revert does not fully restore, worst first."""
        worse = [each for each in self.plan.undoings if each.undo is not Undo.COMPLETE]
        found = []
        for each in sorted(worse, key=lambda each: (_WORST_FIRST.index(each.undo), each.resource)):
            # The types that come back empty, by the version that contains their rows.
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
        """A revert's effects, on one line. Empty for other plans."""
        found, all_of_them = Counter(each.undo for each in self.plan.undoings), len(self.plan.undoings)
        if not all_of_them:
            return ""
        whole = found[Undo.COMPLETE]
        first = "all" if whole == all_of_them and whole > 1 else f"{whole} of"
        parts = [f"this revert restores {first} {count(all_of_them, 'change')}"]
        parts += [words.format(count(found[undo], "change")) for undo, words in _UNDONE.items() if found[undo]]
        return "; ".join(parts)


NO_CHANGES = "no changes"


def headline(
    outcome: PlanOutcome, view: PlanView | None, missing: int, more: Sequence[str] = (), *, ready: str = ""
) -> str:
    """Return a plan's first line, for all printers: counts, losses, obstacles, effects, then `missing` approvals and `more`.

    `ready` ends the line if nothing blocks the apply.
    """
    errors = sum(each.severity is Severity.ERROR for each in outcome.diagnostics)
    if not outcome.ok or view is None:
        return f"failed with {count(errors, 'error')}"
    if not view.plan.changes and outcome.lands:
        return NO_CHANGES
    obstacles = len({each.path for each in outcome.blockers if each.code != Code.DEBT_OPEN})
    stuck = [f"{count(obstacles, 'problem')} {'blocks' if obstacles == 1 else 'block'} the apply"] if obstacles else []
    asked = [f"{count(missing, 'approval')} missing"] if missing else []
    waits = (*asked, *more) or ("" if stuck else ready,)
    return " · ".join(filter(None, (view.counts, *view.losses, *stuck, *view.effects, *waits)))


def automatic_updates(changes: Sequence[Change], republished: Collection[Address]) -> tuple[str, ...]:
    """Return the updates that only result from other changes, one line each. If a query is not updated, add the reason."""
    derived = (each.address for each in changes if each.disposition is Disposition.DERIVED)
    return automatic_lines(derived, {each.address: each.reason for each in changes if each.address in republished})


def automatic_lines(graphs: Iterable[Address], queries: Mapping[Address, Reason | None]) -> tuple[str, ...]:
    """Return a line for each graph that is updated because of its parts, and for each query republished with its file."""
    names = sorted(graph.name for graph in graphs)
    if not names:
        lines = []
    elif len(names) == 1:
        lines = [f"graph {names[0]} updates automatically"]
    else:
        lines = [f"{len(names):,} graphs update automatically: {_listed(names, _NAMES)}"]
    again = Counter((str(address.graph), reason) for address, reason in queries.items())
    for (graph, reason), number in sorted(again.items(), key=str):
        verb, also = ("keeps its", "is") if number == 1 else ("keep their", "are")
        then = (
            f"and {also} republished with the file" if reason is None else f"and {also} not republished: {reason.words}"
        )
        lines.append(f"{count(number, 'query', 'queries')} of graph {graph} {verb} text {then}")
    return tuple(lines)


def _graphs(changes: Sequence[Change], done: str) -> str:
    """Describe graphs with their number of rows, as far as known; empty if there are none."""
    number, known = len(changes), [change.seen.rows for change in changes if change.seen is not None]
    if not number:
        return ""
    if not known:
        return f"{count(number, 'graph')} {done}, number of rows unknown"
    if len(known) == number and not sum(known):
        return f"{count(number, 'empty graph')} {done}"
    least = "" if len(known) == number else "at least "
    return f"{count(number, 'graph')} with {least}{count(sum(known), 'row')} {done}"


@dataclass(frozen=True, slots=True)
class LandingView:
    """Changes to `resources` with the same class and reason. If the effect is `pivot`, they are applied in this many `parts`.

    `note` explains this below the first of them.
    """

    effect: Effect
    reason: str
    resources: tuple[Address, ...]
    parts: int
    note: str

    @property
    def when(self) -> str:
        """The time at which these changes are applied, in words."""
        return _WHEN[self.effect]


@dataclass(frozen=True, slots=True)
class Undone:
    """A change that a revert does not fully restore: its class, a line per part, and declarations that restore rows."""

    resource: Address
    undo: Undo
    lines: tuple[str, ...]
    restore: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessView:
    """One access change, in words.

    `sign` is + or -, and `access_class` is in upper case. The other parts are the `action` with the first `queries`
    that it runs and `more_queries`, the `place`, the `branches` (empty if the action has none), `who`, the `rule`
    (empty without a policy), `where` the rule is, and the `cause`.
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
        """The columns of its table row."""
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
    """Describe each difference: gains before losses, most severe first."""
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
    """Return how many permissions are added and removed, on one line."""
    gains = len(diff.gains)
    losses = len(diff.rows) - gains
    found = [f"{count(gains, 'permission')} added"] if gains else []
    found += [f"{count(losses, 'permission')} removed"] if losses else []
    return ", ".join(found) or "no permission changes"


def who(actors: Actors) -> str:
    """Describe a row's actors: groups with their size, or names if several groups have only a few members."""
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
    """The `actions` that strategies would take on a compute cluster. If there are none, `said` explains why.

    `refused` are sizes that the target does not have, and replicas beyond the limits. `played` compares a replay of the
    last days, with the command that explains it; empty if the target recorded no history.
    """

    place: str
    actions: tuple[WhatIfAction, ...]
    said: str
    refused: tuple[str, ...]
    played: str


def what_if_views(found: Iterable[WhatIf]) -> tuple[WhatIfView, ...]:
    """Describe the actions that strategies would take on each compute cluster."""
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
            played = f"replay of the last {each.days} days: {', '.join(parts)}; see its assumptions: `{command}`"
        views.append(WhatIfView(place, each.actions, said, tuple(refused), played))
    return tuple(views)
