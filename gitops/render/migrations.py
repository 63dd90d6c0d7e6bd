"""A plan's effects, and the steps of its migrations. Names are listed if something is removed, otherwise counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Disposition, Tier
from gitops.cluster.model.plan import AffectedQuery, Plan, QueryChange, SchemaImpact, type_change
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import MigrationPreview, StepCount
from gitops.database.language.schema.step_terms import Reversibility, Shown, Sort, Style, Words
from gitops.database.language.schema.steps import (
    ChangeEmbedding,
    ChangeType,
    UnsupportedChange,
    reversibility_of,
    step_from_json,
)
from gitops.render.json_text import to_line
from gitops.render.markdown import code, text

SHOWN = 20
"""Maximum number of names in a list; further ones are only counted."""

_BACK = {
    Reversibility.REVERSIBLE: "reversible",
    Reversibility.LOSSY: "lossy: a later plan can add it back only without its data",
    Reversibility.IRREVERSIBLE: "irreversible: no later plan undoes it",
}
_WHOLE = {
    Reversibility.REVERSIBLE: "a later plan can undo it",
    Reversibility.LOSSY: "a later plan can undo it, but without the dropped data",
    Reversibility.IRREVERSIBLE: "a later plan cannot undo all of it",
}


@dataclass(frozen=True, slots=True)
class QueryUser:
    """A query, and `how` it uses what a step changes, such as `reads, changed here`."""

    query: Address
    how: str


@dataclass(frozen=True, slots=True)
class StepView:
    """A step and its users: the first ones by name and the number of others (`more`), or a `note` instead.

    `counted` says how many rows the step affects. `breaks` means that rows keep it from being applied. `empties` means
    that the migration removes every type of a graph that contains rows.
    """

    step: Any
    users: tuple[QueryUser, ...] = ()
    more: int = 0
    note: str = ""
    counted: str = ""
    breaks: bool = False
    empties: bool = False

    @property
    def keeps_from_landing(self) -> bool:
        """Whether the step prevents the migration, because it is not supported or rows break it."""
        return self.breaks or self.step.get("kind") == UnsupportedChange.kind

    @property
    def using(self) -> int:
        """The number of queries that use the changed part by name."""
        return len(self.users) + self.more

    @property
    def used(self) -> str:
        """The users of the changed part, on one plain line. Empty if there are none."""
        users = ", ".join(f"{user.query} ({user.how})" for user in self.users)
        more = f" and {self.more} more" if self.more else ""
        return f"used by {users}{more}" if users else self.note

    @property
    def back(self) -> str:
        """The cost of undoing the step, starting with its class. Empty if the step is unknown or never runs."""
        if self.empties and self.reversibility is Reversibility.IRREVERSIBLE:
            return "irreversible: removing every type destroys the data of the graph"
        if self.reversibility is Reversibility.LOSSY and self.step["kind"] == ChangeType.kind:
            return "lossy: a later plan cannot bring back the values that become null"
        if self.reversibility is Reversibility.LOSSY and self.step["kind"] == ChangeEmbedding.kind:
            return "lossy: a later plan can only compute the former vectors again"
        return "" if self.reversibility is None else _BACK[self.reversibility]

    @property
    def reversibility(self) -> Reversibility | None:
        """How hard it is to undo the step. None if the step is unknown or never runs."""
        found = None if self.step.get("kind") == UnsupportedChange.kind else reversibility_of(self.step)
        return Reversibility.IRREVERSIBLE if self.empties and found is Reversibility.LOSSY else found


@dataclass(frozen=True, slots=True)
class ResultView:
    """A query whose result changes: the columns that it loses and gains.

    If there are none, only their order changes.
    """

    query: str
    loses: tuple[str, ...]
    gains: tuple[str, ...]

    @property
    def changes(self) -> str:
        """Return the differences on one line. A column whose type changes counts as one difference.

        Empty if only the order changes.
        """
        old, new = (dict(each.partition(": ")[::2] for each in columns) for columns in (self.loses, self.gains))
        parts = [f"column {type_change(name, old[name], new[name])}" for name in old if name in new]
        lost, gained = (
            [f"`{name}: {own[name]}`" for name in own if name not in other] for own, other in ((old, new), (new, old))
        )
        return "; ".join([*parts, *_several("removed", lost), *_several("added", gained)])


@dataclass(frozen=True, slots=True)
class MigrationView:
    """One schema's migration."""

    resource: str
    supported: bool
    steps: tuple[StepView, ...]
    results: tuple[ResultView, ...] = ()

    @property
    def back(self) -> str:
        """The cost of undoing the complete migration. Empty if nothing runs or a step is unknown."""
        found = {each.reversibility for each in self.steps}
        if not self.supported or not found or None in found:
            return ""
        return _WHOLE[next(each for each in reversed(Reversibility) if each in found)]


@dataclass(frozen=True, slots=True)
class BreakItem:
    """A type or property that is removed or changed: its `subject`, the `step`, its `users` and the number of others (`more`)."""

    subject: str
    step: Any
    users: tuple[QueryUser, ...]
    more: int


@dataclass(frozen=True, slots=True)
class BreaksView:
    """The breaking effects of one schema's migration: by property, by query result, and by the graph's policies."""

    resource: str
    items: tuple[BreakItem, ...]
    results: tuple[ResultView, ...]
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AffectedView:
    """A changed resource's users: names, the number of omitted names (`more`), and the number of `queries`.

    If the graph's migration is known, its queries are only counted; `using` of them use the changed parts, or None if
    that is not known. `policies` are the graph's policies.
    """

    resource: Address
    names: tuple[Address, ...]
    more: int
    queries: int
    using: int | None
    policies: tuple[Address, ...]


def breaks_views(plan: Plan, migrations: Mapping[str, MigrationView]) -> tuple[BreaksView, ...]:
    """Return the breaking effects for each schema whose migration affects a stored query, in plan order."""
    views, known = [], _by_schema(plan)
    for resource, migration in migrations.items():
        items = []
        for each in migration.steps:
            if each.users:
                # Spelled as in schemas: `Person` or `Person.nick`, with its old name.
                step = each.step
                member = step.get("property_name") or step.get("from") or step.get("name") or ""
                names = ".".join(filter(None, (str(step.get("type_name", "")), str(member))))
                items.append(BreakItem(names or str(step.get("entity", "")), step, each.users, each.more))
        found = known.get(resource)
        if items or migration.results:
            policies = found.policies[:SHOWN] if found is not None else ()
            views.append(BreaksView(resource, tuple(items), migration.results, policies))
    return tuple(views)


def migration_views(plan: Plan) -> dict[str, MigrationView]:
    """Return the migrations by schema address, in plan order. Their users are empty if the plan does not contain them."""
    known = _by_schema(plan)
    views: dict[str, MigrationView] = {}
    for change in plan.changes:
        preview, found = change.migration, known.get(change.address)
        if preview is None:
            continue
        steps = step_views(preview)
        results: tuple[ResultView, ...] = ()
        if found is not None:
            steps = tuple(_with_users(view, queries) for view, queries in zip(steps, found.queries, strict=True))
            results = tuple(
                ResultView(
                    each.query,
                    loses=tuple(name for name in each.before if name not in each.after),
                    gains=tuple(name for name in each.after if name not in each.before),
                )
                for each in found.results
            )
        if preview.empties and change.tier is Tier.IRREVERSIBLE:
            steps = tuple(replace(step, empties=True) for step in steps)
        views[change.address] = MigrationView(change.address, preview.supported, steps, results)
    return views


def affected_views(plan: Plan) -> tuple[AffectedView, ...]:
    """Return the users of each changed resource that has any."""
    known, views = _by_schema(plan), []
    # An automatic update of a graph affects no one, and a new resource has no users yet.
    unfelt = {c.address for c in plan.changes if c.disposition is Disposition.DERIVED or c.action is Action.CREATE}
    for item in plan.impact:
        if item.resource in unfelt:
            continue
        kind, schema = item.resource.kind, item.resource.schema_address
        found = known.get(schema) if schema is not None and kind in (Kind.SCHEMA, Kind.GRAPH) else None
        names, using = item.affected, None
        policies: tuple[Address, ...] = ()
        if found is not None:
            names = tuple(each for each in names if each.kind is not Kind.QUERY or each.graph != item.resource.graph)
        if found is not None and kind is Kind.SCHEMA:
            # Removed queries no longer use anything.
            using = len({t.query for each in found.queries for t in each if t.change is not QueryChange.REMOVED})
            policies = found.policies[:SHOWN]
        if item.affected or found is not None:
            more, queries = max(0, len(names) - SHOWN), len(item.affected) - len(names)
            views.append(AffectedView(item.resource, names[:SHOWN], more, queries, using, policies))
    return tuple(views)


def result_line(view: ResultView) -> str:
    """Describe how a result changes, on one plain line."""
    return f"result of {view.query}" + (
        f": {view.changes}" if view.changes else " has its columns in a different order"
    )


def _several(verb: str, names: Sequence[str]) -> list[str]:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [f"{verb} {', '.join(names[:SHOWN])}{more}"] if names else []


def _by_schema(plan: Plan) -> dict[str, SchemaImpact]:
    return {found.schema: found for found in plan.schema_impact}


def step_views(preview: MigrationPreview) -> tuple[StepView, ...]:
    """Return the steps of a migration with their counts, without their users."""
    counts = preview.counts or (None,) * len(preview.steps)
    known = preview.counts is not None
    return tuple(
        StepView(step, counted=_counted(step, count, known=known), breaks=count is not None and count.breaking > 0)
        for step, count in zip(preview.steps, counts, strict=True)
    )


def _counted(step: Mapping[str, Any], count: StepCount | None, *, known: bool) -> str:
    found = step_from_json(step)
    if found is None or found.sort is Sort.FREE:
        return ""
    if count is None:
        return "" if known else "its rows are not counted here"
    if count.breaking:
        return count.text
    if isinstance(found, ChangeEmbedding):
        texts, letters, rows = (
            f"{number:,} {name if number == 1 else name + 's'}"
            for number, name in ((count.rows, "text"), (count.characters, "character"), (count.lost, "row"))
        )
        sent = f"{texts} with {letters} {'is' if count.rows == 1 else 'are'} sent to the embedding service"
        return (
            f"{sent}; {rows} without a text {'loses its' if count.lost == 1 else 'lose their'} vector"
            if count.lost
            else sent
        )
    if found.sort is Sort.CHECKED and not count.lost:
        return count.text
    rows = f"{count.rows:,} {'row is' if count.rows == 1 else 'rows are'} converted"
    return (
        f"{rows}, {count.lost:,} of them {'loses its' if count.lost == 1 else 'lose their'} value"
        if count.lost
        else rows
    )


def _with_users(view: StepView, queries: Sequence[AffectedQuery]) -> StepView:
    step = view.step
    found = step_from_json(step)
    if found is None or not found.is_listed:
        number = len(queries)
        return replace(view, note=f"used by {number} {'query' if number == 1 else 'queries'}" if number else "")
    if not queries:
        return replace(view, note="used by no stored query")
    users = []
    for each in queries[:SHOWN]:
        use = " and ".join(word for word, is_so in (("reads", each.reads), ("writes", each.writes)) if is_so)
        users.append(QueryUser(each.query, f"{use}, {each.change.value}"))
    return replace(view, users=tuple(users), more=max(0, len(queries) - SHOWN))


# -- migration steps in words: Markdown for comments, plain text for a terminal ----------------------------------------


def in_words(step: Mapping[str, Any] | StepView) -> str:
    """Describe one step as Markdown on one line. Steps of an unknown kind or structure are shown as they are.

    A step of a row is described with the rows that it affects, and without where the data of a soft drop stays. Raises
    TypeError for any other value.
    """
    if isinstance(step, StepView):
        counted = f" ({text(step.counted)})" if step.counted else ""
        found = step_from_json(step.step)
        return f"{in_words(step.step) if found is None else _joined(found.brief)}{counted}"
    if not isinstance(step, Mapping):
        raise TypeError("this value is not a step")
    found = step_from_json(step)
    # The preview may come from a newer engine, so show an unknown step as well.
    return code(to_line(step)) if found is None else _joined(found.words)


def _joined(words: Words) -> str:
    return "".join(map(_markdown, words))


def _markdown(part: str | Shown) -> str:
    if isinstance(part, str):
        return part
    if part.style is Style.STRONG:
        return f"**{part.text}**"
    return code(part.text) if part.style is Style.NAME else text(part.text)
