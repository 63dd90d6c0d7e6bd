"""What a plan changes for those who call stored queries: which keep their text, and which break their callers.

A file of queries is the text of each query in it, so one edit changes the digest of all of them. People look at the text of the
query itself, and callers at its contract: what it takes, what it returns, and whether it writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import BreakKind, ContractBreak, RecordedGraph
from gitops.cluster.model.resource import DesiredState
from gitops.database.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.database.language.schema import PropType
from gitops.database.language.text import LanguageError


def query_facts(
    changes: Sequence[Change], desired: DesiredState, recorded: Mapping[Address, RecordedGraph]
) -> tuple[frozenset[Address], tuple[ContractBreak, ...]]:
    """The updated queries that are only published again, and what breaks the callers of the others, in order of the changes.

    `recorded` is keyed by schema address; a query whose recorded text is not in it is left out of both.
    """
    files: dict[bytes, Mapping[str, Query]] = {}
    migrated = {c.address.graph for c in changes if c.address.kind is Kind.SCHEMA}
    same, breaks = set(), list[ContractBreak]()
    for change in changes:
        address, schema = change.address, change.address.schema_address
        if address.kind is not Kind.QUERY or change.action is not Action.UPDATE:
            continue
        graph = None if schema is None else recorded.get(schema)
        before = None if graph is None else graph.queries.get(address)
        after = desired.resources[address].content
        if graph is None or before is None or after is None:
            continue
        old, new = (_parsed(files, content).get(address.name) for content in (before, after))
        if old is None or new is None:
            continue
        if before[old.span.start : old.span.end] == after[new.span.start : new.span.end]:
            same.add(address)
            if address.graph not in migrated:
                continue
        declared = desired.graphs[address.graph or ""].queries.get(address.name)
        with suppress(LanguageError):
            if declared is not None:
                breaks += contract_breaks(address, check_query(old, graph.schema.catalog), declared)
    return frozenset(same), tuple(breaks)


def _parsed(files: dict[bytes, Mapping[str, Query]], content: bytes) -> Mapping[str, Query]:
    """The queries of a file by name, each file parsed once; none of one that does not parse."""
    if content not in files:
        files[content] = {}
        with suppress(LanguageError):
            files[content] = {query.name.text: query for query in reversed(parse_queries(content))}
    return files[content]


def contract_breaks(address: Address, before: CheckedQuery, after: CheckedQuery) -> Iterator[ContractBreak]:
    """What callers of `before` cannot rely on after it: its effect, its parameters by name, and the columns of its result.

    What callers may ignore is left out: a new column, a new parameter that they need not give, a column that is never null now.
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
    """A type whether or not it may be null, and whichever members an enum has."""
    return None if kind is None else kind._replace(nullable=False, enum_values=None)
