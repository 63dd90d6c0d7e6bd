"""The impact of a plan, as comments and the terminal show it: names if something is removed, else a count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gitops.graph.port import MigrationPreview
from gitops.language.schema.steps import Reversibility, UnsupportedChange, reversibility_of
from gitops.model.address import Kind
from gitops.model.plan import AffectedQuery, Plan, QueryChange, ResultChange, SchemaImpact

SHOWN = 20
"""The number of names in a list before the rest becomes a count."""

_NAMED_STEPS = frozenset(
    {"drop_type", "drop_property", "rename_type", "rename_property", "extend_enum", "unsupported_change"}
)

_BACK = {
    Reversibility.REVERSIBLE: "reversible",
    Reversibility.RETAINED: "retained: it can only come back empty",
    Reversibility.IRREVERSIBLE: "irreversible: no step leads back",
}
_WHOLE = {
    Reversibility.REVERSIBLE: "all of it can be taken back",
    Reversibility.RETAINED: "what it drops can only come back empty",
    Reversibility.IRREVERSIBLE: "not all of it can be taken back",
}


@dataclass(frozen=True, slots=True)
class User:
    """A query and how it uses what a step changes, such as `reads, changed here`."""

    query: str
    how: str


@dataclass(frozen=True, slots=True)
class StepView:
    """A step with its users: the first of them by name, how many `more` there are, or a `note` in place of both."""

    step: Any
    users: tuple[User, ...] = ()
    more: int = 0
    note: str = ""

    @property
    def using(self) -> int:
        """How many queries use it by name."""
        return len(self.users) + self.more

    @property
    def back(self) -> str:
        """What the way back costs, beginning with the class; empty for a step that nothing is known of or that never runs."""
        found = _class_of(self.step)
        return "" if found is None else _BACK[found]


@dataclass(frozen=True, slots=True)
class ResultView:
    """A query whose result changes: columns that go and columns that come; with neither, only their order changes."""

    query: str
    loses: tuple[str, ...]
    gains: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MigrationView:
    """The migration of one schema."""

    resource: str
    supported: bool
    steps: tuple[StepView, ...]
    results: tuple[ResultView, ...] = ()

    @property
    def back(self) -> str:
        """What the way back from the whole migration costs; empty where nothing runs or something is not known."""
        found = {_class_of(each.step) for each in self.steps}
        if not self.supported or not found or None in found:
            return ""
        return _WHOLE[next(each for each in reversed(Reversibility) if each in found)]


@dataclass(frozen=True, slots=True)
class AffectedView:
    """Who needs a resource: names, how many `more` there are, and queries that are only counted.

    `using` of the counted queries use what a migration changes; it is None where none is known. `policies` bind the graph.
    """

    resource: str
    names: tuple[str, ...] = ()
    more: int = 0
    queries: int = 0
    using: int | None = None
    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BreakView:
    """A type or property that goes or gets another form, with the queries that use it and how many `more` there are."""

    subject: str
    step: Any
    users: tuple[User, ...]
    more: int


@dataclass(frozen=True, slots=True)
class BreaksView:
    """What the migration of one schema breaks: by property, by result of a query, and the policies bound to its graph."""

    resource: str
    items: tuple[BreakView, ...]
    results: tuple[ResultView, ...]
    policies: tuple[str, ...]


def breaks_views(plan: Plan) -> tuple[BreaksView, ...]:
    """Per schema whose migration takes something from a stored query, what that is; in plan order."""
    views, known = [], _by_schema(plan)
    for resource, migration in migration_views(plan).items():
        items = tuple(
            BreakView(_subject(each.step), each.step, each.users, each.more) for each in migration.steps if each.users
        )
        found = known.get(resource)
        if items or migration.results:
            policies = found.policies[:SHOWN] if found is not None else ()
            views.append(BreaksView(resource, items, migration.results, policies))
    return tuple(views)


def _subject(step: Any) -> str:
    """What a step is about, as schemas spell it: `Person` or `Person.nick`, under its old name."""
    names = [
        str(step.get("type_name", "")),
        str(step.get("property_name") or step.get("from") or step.get("name") or ""),
    ]
    return ".".join(filter(None, names)) or str(step.get("entity", ""))


def migration_views(plan: Plan) -> dict[str, MigrationView]:
    """The migrations by schema address text, in plan order; users are left out where the plan does not know them."""
    known = _by_schema(plan)
    return {
        change.address: _migration(change.address, change.migration, known.get(change.address))
        for change in plan.changes
        if change.migration is not None
    }


def affected_views(plan: Plan) -> tuple[AffectedView, ...]:
    """Per change that something needs, who needs it; the queries of a graph with a known migration are counted only."""
    known, views = _by_schema(plan), []
    for item in plan.impact:
        kind, graph = item.resource.kind, item.resource.graph
        schema = item.resource.schema_address
        found = known.get(schema) if schema is not None and kind in (Kind.SCHEMA, Kind.GRAPH) else None
        if found is None:
            if item.affected:
                views.append(AffectedView(item.resource, item.affected[:SHOWN], max(0, len(item.affected) - SHOWN)))
            continue
        names = tuple(name for name in item.affected if name.kind is not Kind.QUERY or name.graph != graph)
        is_schema = kind == Kind.SCHEMA
        views.append(
            AffectedView(
                item.resource,
                names[:SHOWN],
                max(0, len(names) - SHOWN),
                len(item.affected) - len(names),
                _using(found) if is_schema else None,
                found.policies[:SHOWN] if is_schema else (),
            )
        )
    return tuple(views)


def users_line(view: StepView) -> str:
    """The users of a step on one plain line, empty when there is nothing to say."""
    if not view.users:
        return view.note
    more = f" and {view.more} more" if view.more else ""
    return "used by " + ", ".join(f"{user.query} ({user.how})" for user in view.users) + more


def step_note(view: StepView) -> str:
    """What the way back costs and who uses what the step changes, on one plain line."""
    return "; ".join(filter(None, (view.back, users_line(view))))


def result_line(view: ResultView) -> str:
    """The change of a result on one plain line."""
    parts = [f"{word} {', '.join(names)}" for word, names in (("loses", view.loses), ("gains", view.gains)) if names]
    return f"result of {view.query} " + (" and ".join(parts) or "has its columns in another order")


def _class_of(step: Any) -> Reversibility | None:
    return None if step.get("kind") == UnsupportedChange.kind else reversibility_of(step)


def _by_schema(plan: Plan) -> dict[str, SchemaImpact]:
    return {found.schema: found for found in plan.schema_impact}


def _migration(resource: str, preview: MigrationPreview, found: SchemaImpact | None) -> MigrationView:
    if found is None:
        return MigrationView(resource, preview.supported, tuple(StepView(step) for step in preview.steps))
    steps = tuple(_step(step, queries) for step, queries in zip(preview.steps, found.queries, strict=True))
    return MigrationView(resource, preview.supported, steps, tuple(map(_result, found.results)))


def _using(found: SchemaImpact) -> int:
    """How many declared queries use what changes."""
    return len({t.query for queries in found.queries for t in queries if t.change is not QueryChange.REMOVED})


def _step(step: Any, queries: Sequence[AffectedQuery]) -> StepView:
    if step.get("kind") not in _NAMED_STEPS:
        number = len(queries)
        return StepView(step, note=f"used by {number} {'query' if number == 1 else 'queries'}" if number else "")
    if not queries:
        return StepView(step, note="used by no stored query")
    users = tuple(User(touch.query, _how(touch)) for touch in queries[:SHOWN])
    return StepView(step, users, max(0, len(queries) - SHOWN))


def _how(touch: AffectedQuery) -> str:
    use = " and ".join(word for word, is_so in (("reads", touch.reads), ("writes", touch.writes)) if is_so)
    return f"{use}, {touch.change.value}"


def _result(change: ResultChange) -> ResultView:
    loses = tuple(name for name in change.before if name not in change.after)
    return ResultView(change.query, loses, tuple(name for name in change.after if name not in change.before))
