"""A worker's part of a preview: makes scratch copies of a graph, migrates one, and runs queries on both.

Errors of the engine are reduced to their codes, because their messages can quote values of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import add
from statistics import median
from typing import Any

from gitops.core.canonical import canonical
from gitops.core.clock import Clock, IdSource, parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database import graph
from gitops.database.graph.port import Existence, StepCount
from gitops.database.language.query import CheckedQuery, QueryEffect, check_query, parse_queries
from gitops.database.language.query.typed import (
    Absent,
    AggregateValue,
    Filter,
    NodeValue,
    ParameterValue,
    PropertyValue,
    ReturnItem,
    Scan,
    TextFilter,
    TypedRead,
)
from gitops.database.language.schema import Scalar, TypeKind
from gitops.database.language.schema.step_terms import Sort
from gitops.database.language.schema.steps import (
    AddConstraint,
    AddProperty,
    ChangeCardinality,
    ChangeEnds,
    ChangeType,
    MigrationStep,
    RenameProperty,
    RenameType,
    step_from_json,
)
from gitops.database.language.text import LanguageError
from gitops.review.previews import order as orders
from gitops.review.previews.compare import (
    ChangedRow,
    ResultSide,
    compare_columns,
    compare_rows,
    is_slower,
    pair_columns,
)
from gitops.review.previews.order import (
    AuditAnswer,
    AuditOrder,
    GraphOrder,
    QueryOrder,
    QueryTrialAnswer,
    ShownRow,
    Task,
)
from gitops.review.previews.record import (
    DataCheck,
    GraphPreview,
    MigrationRun,
    Parameters,
    QueryRun,
    ResultChanges,
    StepRows,
    TableEffect,
)
from gitops.review.tests.worker import judge_read

_ROUNDS = 3
_KINDS = ("added", "removed", "changed")
_READ_VALUES = 10_000
_ID = "#id:"
_CELL = 200


def carry_out(task: str, form: Mapping[str, Any], clock: Clock, ids: IdSource) -> Any:
    """Carry out a task and return its answer as JSON. Raises MalformedError for a malformed order."""
    if task == Task.GRAPH:
        return orders.GRAPH_ANSWER.write(_GraphTrial(orders.GRAPH_ORDER.read(form), clock, ids).run())
    if task == Task.AUDIT:
        return orders.AUDIT_ANSWER.write(_audited(orders.AUDIT_ORDER.read(form), clock))
    return orders.QUERY_ANSWER.write(_QueryTrial(orders.QUERY_ORDER.read(form), clock, ids).run())


def _audited(order: AuditOrder, clock: Clock) -> AuditAnswer:
    """Judge an audit. Its messages can quote rows, so only the verdict is answered."""
    now = parse_timestamp(order.now) or clock.now()
    options = graph.QueryOptions(now=now, timeout_s=orders.QUERY_SECONDS, memory_bytes=orders.QUERY_BYTES)
    try:
        found = judge_read(graph.open_snapshot(order.root), dict(order.job), options)
    except GitopsError as error:
        return AuditAnswer(ok=False, code=error.code.value)
    return AuditAnswer(found["verdict"] == "passed", found["code"] if found["verdict"] == "error" else None)


# -- copies and migration ----------------------------------------------------------------------------------------------


class _GraphTrial:
    """Makes the copies of one graph and migrates one of them."""

    def __init__(self, order: GraphOrder, clock: Clock, ids: IdSource) -> None:
        self._order = order
        self._clock = clock
        self._ids = ids
        # A worker has no key of an embedding service, and texts of live rows are not sent to one for a preview.
        self._engine = graph.LanceEngine(clock, ids, embedder=graph.HashEmbedder)

    def run(self) -> GraphPreview:
        nothing = GraphPreview(self._order.graph, self._order.version)
        try:
            return self._tried(nothing)
        except GitopsError as error:
            return replace(nothing, code=error.code.value)

    def _tried(self, found: GraphPreview) -> GraphPreview:
        order = self._order
        self._copy(order.before)
        if order.schema is None:
            return found
        source = order.schema.encode()
        preview = self._engine.preview(order.before, source)
        counts = self._engine.count_steps(order.before, source)
        steps = tuple(step for each in preview.steps if (step := step_from_json(each)) is not None)
        if not preview.supported:
            raise GitopsError(Code.GRAPH_MIGRATION_UNSUPPORTED, "a step of the migration is not supported")
        found = replace(found, checks=checks_of(steps, counts))
        if any(count is not None and count.breaking for count in counts):
            return found
        if self._engine.exists(order.after) is not Existence.ABSENT:
            self._engine.delete_tree(order.after)
        self._copy(order.after)
        begun = self._clock.monotonic()
        made = graph.scratch_size(order.after)
        self._engine.prepare_migration(order.after, source, actor=None).publish()
        ms = round((self._clock.monotonic() - begun) * 1000)
        size = graph.scratch_size(order.after)
        if size.bytes > orders.WRITTEN_BYTES or ms > orders.MIGRATION_SECONDS * 1000:
            raise GitopsError(Code.PREVIEW_LIMIT, "the migration is larger than a preview allows")
        rows = tuple(
            StepRows(step.kind, None if at is None else at.rows) for step, at in zip(steps, counts, strict=True)
        )
        touched = {f"{kind}:{name}" for step in steps if step.sort is not Sort.FREE for kind, name, _ in step.members}
        verified = graph.verify_graph(order.after, deep=True, tables=touched)
        migration = MigrationRun(ms, size.bytes - made.bytes, size.tables, rows)
        return replace(found, migration=migration, broken=sum(each.is_problem for each in verified.findings))

    def _copy(self, target: str) -> None:
        order = self._order
        if self._engine.exists(target) is Existence.ABSENT:
            copied = graph.clone_graph(order.uri, target, order.version)
        else:
            copied = graph.open_snapshot(target)
        if copied.manifest.txn_id != order.commit:
            raise GitopsError(Code.GRAPH_VERSION_GONE, f"version {order.version} of {order.graph} was replaced")


def checks_of(steps: Sequence[MigrationStep], counts: Sequence[StepCount | None]) -> tuple[DataCheck, ...]:
    """Return the steps that rows can break or that make values null, with the live rows."""
    found = []
    for step, count in zip(steps, counts, strict=True):
        if count is None or not (step.sort is Sort.CHECKED or count.breaking or count.lost):
            continue
        kind, owner, name = step.members[0]
        subject = owner if name is None or kind is TypeKind.INTERFACE else f"{owner}.{name}"
        found.append(DataCheck(subject, _rule_of(step), count.breaking, count.rows, not count.breaking, count.lost))
    return tuple(found)


def _rule_of(step: MigrationStep) -> str:
    """Name the rule that a step adds."""
    match step:
        case AddConstraint():
            return step.constraint.kind.value
        case ChangeCardinality():
            return "card"
        case ChangeEnds():
            return "ends"
        case AddProperty():
            return "required"
        case ChangeType():
            return "required" if step.requires and not step.rewrites else "type"
    return step.kind


# -- queries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ran:
    """One run of a read: its rows, the rows that its operators returned, and its milliseconds."""

    side: ResultSide
    touched: int
    ms: float
    limited: bool


@dataclass(frozen=True, slots=True)
class _Text:
    """A query's text, checked for the copy on which it runs."""

    root: str
    snapshot: graph.Snapshot
    query: CheckedQuery


class _QueryTrial:
    """Runs one query on both copies."""

    def __init__(self, order: QueryOrder, clock: Clock, ids: IdSource) -> None:
        self._order = order
        self._clock = clock
        self._ids = ids
        now = parse_timestamp(order.now)
        if now is None:
            raise IntegrityError(Code.PREVIEW_UNAVAILABLE, "the order has no valid time")
        self._options = graph.QueryOptions(
            now=now, timeout_s=orders.QUERY_SECONDS, memory_bytes=orders.QUERY_BYTES, explain=True
        )
        self._now = now
        self._cache = graph.ReadCache()

    def run(self) -> QueryTrialAnswer:
        order = self._order
        try:
            before, after = self._text(order.before, order.recorded), self._text(order.after, order.declared)
            newest = after or before
            if newest is None:
                return QueryTrialAnswer(QueryRun(order.query, Parameters.NONE))
            if newest.query.kind is QueryEffect.MUTATION:
                return QueryTrialAnswer(self._mutated(before, after, newest))
            return self._read(before, after, newest)
        except GitopsError as error:
            return QueryTrialAnswer(QueryRun(order.query, Parameters.NONE, code=error.code.value))

    def _text(self, root: str, text: str | None) -> _Text | None:
        if text is None:
            return None
        snapshot = graph.open_snapshot(root)
        try:
            parsed = {each.name.text: each for each in reversed(parse_queries(text.encode()))}
            if self._order.query not in parsed:
                return None
            return _Text(root, snapshot, check_query(parsed[self._order.query], snapshot.schema().catalog))
        except LanguageError:
            raise GitopsError(Code.QUERY_TARGET_DIFFERS, "the query does not match the schema of the copy") from None

    # Reads

    def _read(self, before: _Text | None, after: _Text | None, newest: _Text) -> QueryTrialAnswer:
        order = self._order
        origin, sets = self._parameters(before or newest)
        run = QueryRun(order.query, origin, len(sets))
        if before is not None and after is not None:
            pairs = _column_pairs(before.query, after.query, self._renames)
            columns = compare_columns(_types(before.query), _types(after.query), pairs)
            run = replace(run, columns=columns)
        else:
            pairs = {}
        changed: list[ChangedRow] = []
        total, touched, limited = ResultChanges(), [0, 0], False
        for values in sets:
            sides = [None if text is None else self._ran(text, values, before, after) for text in (before, after)]
            old, new = sides
            for at, side in enumerate(sides):
                touched[at] += 0 if side is None else side.touched
                limited = limited or (side is not None and side.limited)
            if old is not None and new is not None:
                counts, differing = compare_rows(old.side, new.side, pairs)
                total += counts
                changed += differing
            else:
                total += ResultChanges(*(0 if side is None else len(side.side.rows) for side in sides))
        ms = self._timed(before, after, sets[0]) if sets else [0.0, 0.0]
        slower = before is not None and after is not None and is_slower(touched, ms)
        run = replace(run, rows=total, touched=tuple(touched), ms=tuple(map(round, ms)), limited=limited, slower=slower)
        return QueryTrialAnswer(run, tuple(self._shown(changed, pairs)))

    def _ran(
        self, text: _Text, values: Mapping[str, Any], before: _Text | None = None, after: _Text | None = None
    ) -> _Ran:
        """Run a read once. Raises the errors of `run_query`; GitopsError `preview_limit` for too many rows."""
        query, shared = text.query, _shared_variables(before, after)
        body = query.body
        if not isinstance(body, TypedRead):
            raise IntegrityError(Code.PREVIEW_UNAVAILABLE, "the query is not a read")
        ids = [] if body.aggregated else [each for each in shared if each in body.variables]
        more = tuple(ReturnItem(NodeValue(name, body.variables[name]), None, f"{_ID}{name}") for name in ids)
        asked = query._replace(body=body._replace(items=(*body.items, *more)))
        begun = self._clock.monotonic()
        result = graph.run_query(text.snapshot, asked, dict(values), self._options, self._cache)
        ms = (self._clock.monotonic() - begun) * 1000
        if result.table.num_rows > orders.COMPARED_ROWS:
            raise GitopsError(Code.PREVIEW_LIMIT, "the result has more rows than a preview compares")
        rows = result.rows()
        keys: list[tuple[Any, ...]] | None = None
        if ids:
            keys = [tuple(row.pop(f"{_ID}{name}") for name in ids) for row in rows]
        elif body.aggregated:
            groups = [each.column for each in body.items if not isinstance(each.value, AggregateValue)]
            keys = [tuple(row[name] for name in groups) for row in rows]
        columns = dict(_types(query))
        limited = body.limit is not None and len(rows) >= body.limit
        return _Ran(ResultSide(columns, rows, keys), _touched(result.explanation), ms, limited)

    def _timed(self, before: _Text | None, after: _Text | None, values: Mapping[str, Any]) -> list[float]:
        """Return the median time of a run on each copy, in turn. The runs before were the warm-up."""
        found: list[list[float]] = [[], []]
        for _ in range(_ROUNDS):
            for at, text in enumerate((before, after)):
                if text is not None:
                    found[at].append(self._ran(text, values).ms)
        return [median(each) if each else 0.0 for each in found]

    @property
    def _renames(self) -> dict[tuple[str, str], str]:
        """The new name of each property that the migration renames, by its type's former name and its own."""
        steps = [step for each in self._order.steps if (step := step_from_json(each)) is not None]
        former = {step.to: step.from_ for step in steps if isinstance(step, RenameType)}
        renamed = (step for step in steps if isinstance(step, RenameProperty))
        return {(former.get(step.type_name, step.type_name), step.from_): step.to for step in renamed}

    def _shown(self, changed: Sequence[ChangedRow], pairs: Mapping[str, str]) -> Iterator[ShownRow]:
        """Yield the rows that the rules allow to show, with only the allowed columns."""
        rule = self._order.rows
        for each in changed[: 0 if rule is None else rule.limit]:
            cells = {}
            for name in () if rule is None else rule.columns:
                old = {pairs.get(column, column): cell for column, cell in (each.before or {}).items()}.get(name)
                new = (each.after or {}).get(name)
                texts = [_cell(old)] if each.after is None else [_cell(new)] if each.before is None else []
                texts = texts or ([_cell(old)] if old == new else [_cell(old), _cell(new)])
                if name in old_names(each, pairs) or name in (each.after or {}):
                    cells[name] = " → ".join(texts)
            yield ShownRow(each.kind, cells)

    # Parameters

    def _parameters(self, text: _Text) -> tuple[Parameters, tuple[Mapping[str, Any], ...]]:
        """Return the parameter sets of a read, and where they come from."""
        declared, samples = text.query.params, self._order.samples[: orders.MOST_SETS]
        if not declared:
            return Parameters.NONE, ({},)
        if samples:
            return Parameters.SAMPLES, samples
        compared = dict(_compared(text.query.body))
        values = {name: self._live_values(text, compared[name]) for name in declared if name in compared}
        if any(not values.get(name) and not kind.nullable for name, kind in declared.items()):
            return Parameters.MISSING, ()
        most = max((len(each) for each in values.values()), default=0)
        sets = [{name: found[at % len(found)] for name, found in values.items() if found} for at in range(max(1, most))]
        return Parameters.DERIVED, tuple(sets[: orders.MOST_SETS])

    def _live_values(self, text: _Text, compared: PropertyValue) -> list[Any]:
        """Return values of a property in the order of their digests, which no one chooses. They are never shown."""
        if compared.type.scalar in (Scalar.VECTOR, Scalar.BLOB):
            return []
        catalog, owner = text.snapshot.schema().catalog, compared.owner
        match = f"$x: {owner}"
        if compared.kind is TypeKind.EDGE:
            match = f"$a: {catalog.edges[owner].source} $a $x:{owner[:1].lower()}{owner[1:]} $b"
        query = f"query q() {{ match {{ {match} }} return {{ $x.{compared.name} }} limit {_READ_VALUES} }}"
        checked = check_query(parse_queries(query.encode())[0], catalog)
        rows = graph.run_query(text.snapshot, checked, {}, self._options).rows()
        column = checked.columns[0].column
        cells = [cell for row in rows for cell in (row[column] or () if compared.type.is_list else [row[column]])]
        unique = {canonical(cell): cell for cell in cells if cell is not None}
        salt = text.snapshot.identity.graph_id.encode()
        return [unique[each] for each in sorted(unique, key=lambda cell: hashlib.sha256(salt + cell).digest())][
            : orders.MOST_SETS
        ]

    # Mutations

    def _mutated(self, before: _Text | None, after: _Text | None, newest: _Text) -> QueryRun:
        """Run a mutation with each sample on a new branch of both copies, and compare what it affects."""
        order = self._order
        samples = order.samples[: orders.MOST_SETS]
        if not newest.query.params:
            samples = samples or ({},) if order.samples else ()
        run = QueryRun(order.query, Parameters.SAMPLES if samples else Parameters.MISSING, len(samples))
        if not samples:
            return run
        sides = [None if text is None else self._mutated_copy(text, samples) for text in (before, after)]
        affected = [number for side in sides for number in (side[0] if side is not None else (0, 0))]
        effects: list[TableEffect] = []
        old, new = sides
        if old is not None and new is not None:
            # Tables are compared by their names after the change.
            was = {self._table_after(name): counts for name, counts in old[1].items()}
            for name in sorted({*was, *new[1]}):
                one, other = was.get(name, (0, 0, 0)), new[1].get(name, (0, 0, 0))
                effects += [TableEffect(name, one, other)] if one != other else []
        return replace(run, affected=tuple(affected), effects=tuple(effects))

    def _mutated_copy(
        self, text: _Text, samples: Sequence[Mapping[str, Any]]
    ) -> tuple[tuple[int, int], dict[str, tuple[int, ...]]]:
        """Return what a mutation affects with all samples: nodes and edges, and the changed rows of each table."""
        nodes, edges, tables = 0, 0, dict[str, tuple[int, ...]]()
        for values in samples:
            (more_nodes, more_edges), counts = self._changed_by(text, values)
            nodes, edges = nodes + more_nodes, edges + more_edges
            for name, kinds in counts.items():
                found = (kinds[kind] for kind in _KINDS)
                tables[name] = tuple(map(add, tables.get(name, (0, 0, 0)), found))
        return (nodes, edges), tables

    def _table_after(self, name: str) -> str:
        """Return the name of a table after the change."""
        kind, _, type_name = name.partition(":")
        steps = (step_from_json(each) for each in self._order.steps)
        renamed = {step.from_: step.to for step in steps if isinstance(step, RenameType)}
        return f"{kind}:{renamed.get(type_name, type_name)}"

    def _changed_by(
        self, text: _Text, values: Mapping[str, Any]
    ) -> tuple[tuple[int, int], Mapping[str, Mapping[str, int]]]:
        name = f"preview-{self._ids.ulid().lower()}"
        context = graph.WriteContext(self._clock, self._ids)
        graph.create_branch(text.root, name, context)
        try:
            options = graph.MutationOptions(now=self._now, branch=name)
            done = graph.Mutator(self._clock, self._ids).run(text.root, text.query, dict(values), options)
            summary = graph.summarize_diff(text.root, graph.ReadTarget(), graph.ReadTarget(branch=name))
            return (done.affected_nodes, done.affected_edges), summary.tables
        finally:
            with suppress(GitopsError):
                graph.delete_branch(text.root, name, context)


def old_names(row: ChangedRow, pairs: Mapping[str, str]) -> set[str]:
    """Return the columns of a row before the change, with their names after it."""
    return {pairs.get(column, column) for column in row.before or {}}


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else canonical(value).decode()
    return text if len(text) <= _CELL else text[:_CELL] + "…"


def _types(query: CheckedQuery) -> dict[str, str]:
    return {each.column: "Node" if each.type is None else str(each.type) for each in query.columns}


def _column_pairs(before: CheckedQuery, after: CheckedQuery, renames: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the columns that both results have, following renamed properties."""
    by_value = {
        (item.value.variable, item.value.name): item.column
        for item in getattr(after.body, "items", ())
        if isinstance(item.value, PropertyValue)
    }
    renamed = {}
    for item in getattr(before.body, "items", ()):
        value = item.value
        if isinstance(value, PropertyValue) and (new := renames.get((value.owner, value.name))) is not None:
            renamed[item.column] = by_value.get((value.variable, new), "")
    return pair_columns(_types(before), _types(after), renamed)


def _shared_variables(before: _Text | None, after: _Text | None) -> list[str]:
    """Return the node variables by whose ids rows are paired: none unless both texts bind the same ones."""
    bound = [text.query.body.variables for text in (before, after) if text and isinstance(text.query.body, TypedRead)]
    return list(bound[0]) if len(bound) == 2 and bound[0].keys() == bound[1].keys() else []  # noqa: PLR2004 - both texts


def _touched(explanation: Sequence[Mapping[str, Any]]) -> int:
    """Return the rows that all operators returned."""
    return sum(int(each.get("rows", 0)) + _touched(each.get("operators", ())) for each in explanation)


def _compared(body: object) -> Iterator[tuple[str, PropertyValue]]:
    """Yield the parameters of a read, each with a property that it is compared with."""
    if not isinstance(body, TypedRead):
        return
    pending: list[Any] = [*reversed(body.clauses)]
    while pending:
        clause = pending.pop()
        if isinstance(clause, Absent):
            pending.extend(reversed(clause.clauses))
        elif isinstance(clause, Scan):
            for test in clause.tests:
                if isinstance(test.value, ParameterValue):
                    yield test.value.name, test.property
        elif isinstance(clause, TextFilter) and isinstance(clause.match.query, ParameterValue):
            yield clause.match.query.name, clause.match.field
        elif isinstance(clause, Filter):
            for one, other in ((clause.left, clause.right), (clause.right, clause.left)):
                if isinstance(one, PropertyValue) and isinstance(other, ParameterValue):
                    yield other.name, one
