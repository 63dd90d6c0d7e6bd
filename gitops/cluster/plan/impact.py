"""The impact of schema updates: which queries use the changed parts.

Subjects are the types and properties that a migration step changes, and those that a checked query uses.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from gitops.cluster.model.address import Address, Kind, query_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import (
    AffectedQuery,
    BreakKind,
    ContractBreak,
    QueryChange,
    RecordedGraph,
    ResultChange,
    SchemaImpact,
)
from gitops.cluster.model.resource import DesiredState, edges_near
from gitops.database.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.database.language.query.typed import (
    NodeValue,
    PropertyValue,
    Scan,
    Traverse,
    TypedDelete,
    TypedInsert,
    TypedRead,
    TypedStatement,
    TypedUpdate,
)
from gitops.database.language.schema import PropType, TypeKind
from gitops.database.language.schema.steps import RenameProperty, RenameType, step_from_json
from gitops.database.language.text import LanguageError

_QUERY_CHANGES = {
    Action.CREATE: QueryChange.ADDED,
    Action.UPDATE: QueryChange.CHANGED,
    Action.DELETE: QueryChange.REMOVED,
}
_ENDPOINTS = frozenset({"from", "to"})

Step = Mapping[str, Any]


class Subject(NamedTuple):
    """A type, or one of its properties. `kind` is `node` or `edge`."""

    kind: str
    type_name: str
    property_name: str | None = None


class StepSubjects(NamedTuple):
    """The names that a step refers to in the accepted and in the desired schema."""

    before: frozenset[Subject]
    after: frozenset[Subject]


class SubjectUse(NamedTuple):
    """How a query uses a subject."""

    reads: bool
    writes: bool


def schema_impact(
    changes: Sequence[Change], desired: DesiredState, recorded: Mapping[Address, RecordedGraph]
) -> tuple[SchemaImpact, ...]:
    """Return the queries that use changed parts, for each schema update in `recorded` with a migration preview.

    `recorded` is keyed by schema address. Declared queries are found by their use of the desired schema, and changed or
    removed queries also by their use of the accepted one, if their recorded text is known and checks.
    """
    if not recorded:
        return ()
    query_changes = {c.address: _QUERY_CHANGES[c.action] for c in changes if c.address.kind is Kind.QUERY}
    return tuple(
        _impact_of(change, desired, recorded[change.address], query_changes)
        for change in changes
        if change.migration is not None and change.address in recorded
    )


def _impact_of(
    change: Change, desired: DesiredState, recorded: RecordedGraph, query_changes: Mapping[Address, QueryChange]
) -> SchemaImpact:
    graph, steps = change.address.name, change.migration.steps if change.migration else ()
    files = _QueryFiles(recorded, desired)
    declared = {query_address(graph, name): query for name, query in desired.graphs[graph].queries.items()}
    subjects = step_subjects(steps)
    old, new = (frozenset().union(*side) for side in zip(*subjects, strict=True)) if subjects else ((), ())
    # A query can use one of these only if its file contains the name. Properties are always named, but an edge can lead
    # to an unnamed type.
    names = [each.property_name and each.property_name.encode() for each in old]
    former = files.former({text: c for text, c in recorded.queries.items() if any(not n or n in c for n in names)})
    after = {text: used_subjects(query) for text, query in declared.items() if _uses_any(query, new)}
    before = {text: used_subjects(query) for text, query in former.items() if _uses_any(query, old)}
    queries = tuple(tuple(_affected_queries(each, before, after)) for each in subjects)
    affected = sorted({each.query for found in queries for each in found})
    kept = {text for text in affected if query_changes.get(text) is QueryChange.CHANGED and files.has_same_text(text)}
    queries = tuple(
        tuple(
            each if each.query in kept else replace(each, change=query_changes.get(each.query, QueryChange.KEPT))
            for each in found
        )
        for found in queries
    )
    # An unchanged query has the same result, unless a step changes the type of a property.
    retyped = {
        each.query
        for step, found in zip(steps, queries, strict=True)
        for each in found
        if (known := step_from_json(step)) is not None and known.changes_types and each.query not in query_changes
    }
    former.update(files.former({text: desired.resources[text].content or b"" for text in retyped}))
    edited = {t: recorded.queries[t] for t in affected if t in recorded.queries and t not in former}
    former.update(files.former(edited))
    policies = {
        edge.source
        for edge in edges_near(desired.dependencies, {change.address.name})
        if edge.source.kind is Kind.POLICY and edge.target == change.address.graph_address
    }
    return SchemaImpact(
        schema=change.address,
        queries=queries,
        results=tuple(_results(affected, former, declared)),
        policies=tuple(sorted(policies)),
    )


def _uses_any(query: CheckedQuery, subjects: Collection[Subject]) -> bool:
    """Quickly check whether the checker recorded any of these names.

    Nodes and edges are not distinguished, nor are names and uses.
    """
    types = {access.type_name for access in (*query.reads, *query.writes)}
    return any(
        (s.type_name, s.property_name) in query.uses if s.property_name else s.type_name in types for s in subjects
    )


def _affected_queries(
    subjects: StepSubjects,
    before: Mapping[Address, Mapping[Subject, SubjectUse]],
    after: Mapping[Address, Mapping[Subject, SubjectUse]],
) -> Iterator[AffectedQuery]:
    for text in sorted({*before, *after}):
        found = [before[text][s] for s in subjects.before if s in before.get(text, ())]
        found += [after[text][s] for s in subjects.after if s in after.get(text, ())]
        if found:
            reads, writes = any(u.reads for u in found), any(u.writes for u in found)
            yield AffectedQuery(text, reads, writes, QueryChange.KEPT)


def _results(
    affected: Iterable[Address], former: Mapping[Address, CheckedQuery], declared: Mapping[Address, CheckedQuery]
) -> Iterator[ResultChange]:
    for text in affected:
        if text in former and text in declared:
            before, after = (
                tuple(
                    f"{column.column}: {'Node' if column.type is None else column.type}"
                    for column in each[text].columns
                )
                for each in (former, declared)
            )
            if before != after:
                yield ResultChange(text, before, after)


class _QueryFiles:
    """Query files as recorded and as declared; each is parsed once, however many queries it contains."""

    def __init__(self, recorded: RecordedGraph, desired: DesiredState) -> None:
        self._recorded = recorded
        self._desired = desired
        self._parsed: dict[bytes, Mapping[str, Query]] = {}

    def former(self, texts: Mapping[Address, bytes]) -> dict[Address, CheckedQuery]:
        """Check the queries of these files against the accepted schema, and return the valid ones."""
        found: dict[Address, CheckedQuery] = {}
        for text in sorted(texts):
            query = self._query(text, texts[text])
            if query is not None:
                with suppress(LanguageError):
                    found[text] = check_query(query, self._recorded.schema.catalog)
        return found

    def has_same_text(self, text: Address) -> bool:
        """Return True if a query is the same in both of its files, so that another query of the file changed."""
        before, after = self._recorded.queries.get(text), self._desired.resources[text].content
        old = None if before is None else self._query(text, before)
        if before is None or after is None or old is None:
            return False
        spelled = before[old.span.start : old.span.end]
        # This search finds most changed texts, and is much faster than parsing the new file.
        new = self._query(text, after) if spelled in after else None
        return new is not None and spelled == after[new.span.start : new.span.end]

    def _query(self, text: Address, content: bytes) -> Query | None:
        if content not in self._parsed:
            try:
                self._parsed[content] = {query.name.text: query for query in reversed(parse_queries(content))}
            except LanguageError:
                self._parsed[content] = {}
        return self._parsed[content].get(text.name)


def step_subjects(steps: Sequence[Step]) -> tuple[StepSubjects, ...]:
    """Return each step's subjects.

    A preview comes from an engine that may be newer. A step of an unknown kind or form has no subjects, nor does a step
    on an interface, because queries cannot use interfaces by name. Names in steps are those of the desired schema,
    except for `from`, the name of a dropped subject, and the type of a dropped property (`rename_type` comes first).
    """
    parsed = [step_from_json(step) for step in steps]
    types = {Subject(s.type_kind, s.to): s.from_ for s in parsed if isinstance(s, RenameType)}
    properties = {Subject(s.type_kind, s.type_name, s.to): s.from_ for s in parsed if isinstance(s, RenameProperty)}
    found = []
    for step in parsed:
        members = () if step is None else step.members
        named = [Subject(*member) for member in members if member[0] is not TypeKind.INTERFACE]
        accepted = [
            Subject(s.kind, types.get(Subject(s.kind, s.type_name), s.type_name), properties.get(s, s.property_name))
            for s in named
        ]
        # Dropped items have no desired name, and added items no accepted name.
        before = () if step is None or step.adds else accepted
        after = () if step is None or step.drops else named
        found.append(StepSubjects(frozenset(before), frozenset(after)))
    return tuple(found)


def used_subjects(query: CheckedQuery) -> dict[Subject, SubjectUse]:
    """Return the subjects that a query's text uses: a type itself, a variable of that type in an expression, or a property.

    Using a property implies using its type. Types that a query touches without containing their name are omitted, so
    that the result remains useful: the ends of a hop that have no variable in use, and the edges that are deleted with
    a node.
    """
    found: dict[Subject, SubjectUse] = {}
    for subject, use in _read_uses(query.body) if isinstance(query.body, TypedRead) else _mutation_uses(query.body):
        for each in {subject, Subject(subject.kind, subject.type_name)}:
            known = found.get(each, use)
            found[each] = SubjectUse(known.reads or use.reads, known.writes or use.writes)
    return found


def _read_uses(body: TypedRead) -> Iterator[tuple[Subject, SubjectUse]]:
    reading = SubjectUse(reads=True, writes=False)
    # The checked tree consists of tuples at every level; the class of a node shows whether it contains a name.
    pending: list[Any] = [body.clauses, body.items, body.order]
    while pending:
        node = pending.pop()
        if isinstance(node, PropertyValue):
            yield Subject(node.kind.value, node.owner, node.name), reading
        elif isinstance(node, NodeValue):
            yield Subject(TypeKind.NODE.value, node.owner), reading
        elif isinstance(node, Scan):
            yield Subject(TypeKind.NODE.value, node.type_name), reading
        elif isinstance(node, Traverse):
            yield Subject(TypeKind.EDGE.value, node.edge), reading
        if isinstance(node, tuple):
            pending.extend(node)


def _mutation_uses(body: tuple[TypedStatement, ...]) -> Iterator[tuple[Subject, SubjectUse]]:
    reading, writing = SubjectUse(reads=True, writes=False), SubjectUse(reads=False, writes=True)
    for statement in body:
        kind = TypeKind.NODE if isinstance(statement, TypedUpdate) else statement.kind
        # The ends of an edge look like properties, but are not.
        ends = _ENDPOINTS if kind is TypeKind.EDGE else frozenset[str]()
        yield Subject(kind.value, statement.type_name), writing
        if isinstance(statement, TypedInsert | TypedUpdate):
            for each in statement.assignments:
                if each.name not in ends:
                    yield Subject(kind.value, statement.type_name, each.name), writing
        if isinstance(statement, TypedUpdate | TypedDelete) and statement.predicate.name not in ends:
            yield Subject(kind.value, statement.type_name, statement.predicate.name), reading


# Effects of a plan on callers of stored queries: which queries keep their text, and which break their callers.
#
# A query file is the text of each query in it, so one edit changes the digests of all of them. People are interested in
# the text of the query itself, and callers in its contract: its parameters, its result, and whether it writes.


def broken_contracts(
    changes: Sequence[Change],
    desired: DesiredState,
    recorded: Mapping[Address, RecordedGraph],
    republished: Collection[Address],
) -> tuple[ContractBreak, ...]:
    """Return the contract breaks of updated queries, in change order.

    `recorded` is keyed by schema address. A query without a recorded text breaks nothing that is known. The text of a
    `republished` query is unchanged, so only a migration can break it.
    """
    files: dict[bytes, Mapping[str, Query]] = {}
    migrated = {c.address.graph for c in changes if c.address.kind is Kind.SCHEMA}
    breaks = list[ContractBreak]()
    for change in changes:
        address, schema = change.address, change.address.schema_address
        if address.kind is not Kind.QUERY or change.action is not Action.UPDATE:
            continue
        graph = None if schema is None else recorded.get(schema)
        before = None if graph is None else graph.queries.get(address)
        after = desired.resources[address].content
        if graph is None or before is None or after is None:
            continue
        if address in republished and address.graph not in migrated:
            continue
        old, new = (_parsed(files, content).get(address.name) for content in (before, after))
        if old is None or new is None:
            continue
        declared = desired.graphs[address.graph or ""].queries.get(address.name)
        with suppress(LanguageError):
            if declared is not None:
                breaks += contract_breaks(address, check_query(old, graph.schema.catalog), declared)
    return tuple(breaks)


def _parsed(files: dict[bytes, Mapping[str, Query]], content: bytes) -> Mapping[str, Query]:
    """Return the queries of a file by name, parsing each file once; empty if it cannot be parsed."""
    if content not in files:
        files[content] = {}
        with suppress(LanguageError):
            files[content] = {query.name.text: query for query in reversed(parse_queries(content))}
    return files[content]


def contract_breaks(address: Address, before: CheckedQuery, after: CheckedQuery) -> Iterator[ContractBreak]:
    """Yield the parts of the contract that callers of `before` can no longer rely on.

    These are the effect, the parameters by name, and the result columns.
    """
    if before.kind is not after.kind:
        yield ContractBreak(address, BreakKind.EFFECT, "", before.kind.value, after.kind.value)
    for name, wanted in after.params.items():
        known = before.params.get(name)
        if known is None and not wanted.nullable:
            yield ContractBreak(address, BreakKind.PARAMETER_ADDED, f"${name}", "", str(wanted))
        elif known is not None and (_bare(known) != _bare(wanted) or (known.nullable and not wanted.nullable)):
            yield ContractBreak(address, BreakKind.PARAMETER_CHANGED, f"${name}", str(known), str(wanted))
    for name, known in before.params.items():
        if name not in after.params:
            yield ContractBreak(address, BreakKind.PARAMETER_DROPPED, f"${name}", str(known), "")
    columns = {column.column: column for column in after.columns}
    for column in before.columns if before.kind is after.kind else ():
        found = columns.get(column.column)
        old = "Node" if column.type is None else str(column.type)
        if found is None:
            yield ContractBreak(address, BreakKind.COLUMN_DROPPED, column.column, old, "")
            continue
        new = "Node" if found.type is None else str(found.type)
        more = column.type is not None and found.type is not None and found.type.nullable and not column.type.nullable
        if more or _bare(column.type) != _bare(found.type):
            yield ContractBreak(address, BreakKind.COLUMN_CHANGED, column.column, old, new)


def _bare(kind: PropType | None) -> PropType | None:
    """Return a type, ignoring whether it can be null and which members an enum has."""
    return None if kind is None else kind._replace(nullable=False, enum_values=None)
