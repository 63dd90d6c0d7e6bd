"""Impact of schema updates: which queries use what they change."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.language.query import CheckedQuery, Query, ResultColumn, check_query, parse_queries
from gitops.language.text import LanguageError
from gitops.model.address import Address, Kind, query_address
from gitops.model.change import Action, Change
from gitops.model.plan import AffectedQuery, QueryChange, RecordedGraph, ResultChange, SchemaImpact
from gitops.model.resource import DesiredState
from gitops.plan.subjects import StepSubjects, Subject, Use, step_subjects, used_subjects

_QUERY_CHANGES = {
    Action.CREATE: QueryChange.ADDED,
    Action.UPDATE: QueryChange.CHANGED,
    Action.DELETE: QueryChange.REMOVED,
}
_RETYPING = frozenset({"extend_enum", "unsupported_change"})


def schema_impact(
    changes: Sequence[Change], desired: DesiredState, recorded: Mapping[Address, RecordedGraph]
) -> tuple[SchemaImpact, ...]:
    """Per schema update of `recorded` that has a migration preview, the queries that use what it changes.

    `recorded` is keyed by schema address. Queries as declared are found by their use of the desired schema, and those
    that are changed or removed also by their use of the accepted one, where their recorded text is known and checks.
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
    former = files.former({text: content for text, content in recorded.queries.items() if _may_name(content, old)})
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
    # A query that is not edited keeps its result, except where a step gives a property another type.
    retyped = {
        each.query
        for step, found in zip(steps, queries, strict=True)
        for each in found
        if step.get("kind") in _RETYPING and each.query not in query_changes
    }
    former.update(files.former({text: desired.resources[text].content or b"" for text in retyped}))
    edited = {t: recorded.queries[t] for t in affected if t in recorded.queries and t not in former}
    former.update(files.former(edited))
    policies = {
        edge.source
        for edge in desired.dependencies
        if edge.source.kind is Kind.POLICY and edge.target == change.address.graph_address
    }
    return SchemaImpact(
        schema=change.address,
        queries=queries,
        results=tuple(_results(affected, former, declared)),
        policies=tuple(sorted(policies)),
    )


def _may_name(content: bytes, subjects: Collection[Subject]) -> bool:
    """Whether a query in this file can use one of them: a property is always named, a type may be reached through an edge."""
    return any(s.property_name is None or s.property_name.encode() in content for s in subjects)


def _uses_any(query: CheckedQuery, subjects: Collection[Subject]) -> bool:
    """A cheap test with what the checker noted: nodes and edges, and names and uses, are not distinguished."""
    types = {access.type_name for access in (*query.reads, *query.writes)}
    return any(
        (s.type_name, s.property_name) in query.uses if s.property_name else s.type_name in types for s in subjects
    )


def _affected_queries(
    subjects: StepSubjects,
    before: Mapping[Address, Mapping[Subject, Use]],
    after: Mapping[Address, Mapping[Subject, Use]],
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
            before, after = (tuple(map(_column_text, each[text].columns)) for each in (former, declared))
            if before != after:
                yield ResultChange(text, before, after)


def _column_text(column: ResultColumn) -> str:
    return f"{column.column}: {'Node' if column.type is None else column.type}"


class _QueryFiles:
    """Query files as recorded and as declared, each parsed once however many queries it holds."""

    def __init__(self, recorded: RecordedGraph, desired: DesiredState) -> None:
        self._recorded = recorded
        self._desired = desired
        self._parsed: dict[bytes, Mapping[str, Query]] = {}

    def former(self, texts: Mapping[Address, bytes]) -> dict[Address, CheckedQuery]:
        """The queries of these files as the accepted schema sees them; what it refuses is left out."""
        found: dict[Address, CheckedQuery] = {}
        for text in sorted(texts):
            query = self._query(text, texts[text])
            if query is not None:
                with suppress(LanguageError):
                    found[text] = check_query(query, self._recorded.schema.catalog)
        return found

    def has_same_text(self, text: Address) -> bool:
        """Whether a query reads the same in both of its files: then what changed is another query of the file."""
        before, after = self._recorded.queries.get(text), self._desired.resources[text].content
        old = None if before is None else self._query(text, before)
        if before is None or after is None or old is None:
            return False
        spelled = before[old.span.start : old.span.end]
        # This search finds most texts that changed, and is far cheaper than parsing the new file.
        new = self._query(text, after) if spelled in after else None
        return new is not None and spelled == after[new.span.start : new.span.end]

    def _query(self, text: Address, content: bytes) -> Query | None:
        if content not in self._parsed:
            try:
                self._parsed[content] = {query.name.text: query for query in reversed(parse_queries(content))}
            except LanguageError:
                self._parsed[content] = {}
        return self._parsed[content].get(text.name)
