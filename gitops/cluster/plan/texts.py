"""Recorded and declared texts of a plan's changes, which only explain the plan.

The recorded text of a query, policy or strategy is in the ledger's catalog; that of a schema is in git or in the live
graph. Unreadable texts are silently omitted, because the verbs that need them report the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.model.plan import Plan, RecordedGraph, TextChange
from gitops.cluster.plan.undo import data_names
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError
from gitops.database.graph.port import KeptData, MigrationPreview

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


_KINDS = [kind for kind, rules in KINDS.items() if rules.has_text]
_MOST = 50
"""Maximum number of texts. More would be too many to read, and take too long to fetch from a distant bucket."""


def changed_texts(current: Session, plan: Plan) -> tuple[TextChange, ...]:
    """Return the first fifty changed texts of a plan: schemas, policies, strategies, query files, each in address order.

    A query file is listed under the queries whose own text changes, or under all of its queries if none does.
    """
    found = []
    for changes in _by_text(plan.changes)[:_MOST]:
        before = next((each for each in changes if each.before is not None), None)
        after = next((each for each in changes if each.after is not None), None)
        recorded = None if before is None else _recorded(current, before)
        declared = None if after is None else current.desired.resources[after.address].content
        unread = (before is not None and recorded is None) or (after is not None and declared is None)
        if not unread and recorded != declared:
            own = [each for each in changes if each.address not in plan.republished] or changes
            found.append(TextChange(tuple(each.address for each in own), recorded, declared))
    return tuple(found)


def _by_text(changes: Iterable[Change]) -> list[list[Change]]:
    """Group changes of the same text, because a query file is the text of each of its queries."""
    ours = sorted((c for c in changes if c.address.kind in _KINDS), key=lambda c: _KINDS.index(c.address.kind))
    # If a query is added or removed and other queries in its file change too, the file itself is kept.
    stays = [c for c in ours if c.action is Action.UPDATE]
    after = {(c.address.graph, c.after): c.before for c in stays}
    before = {(c.address.graph, c.before): c.after for c in stays}
    found: dict[tuple[object, ...], list[Change]] = {}
    for change in ours:
        owner = change.address.graph or change.address
        old, new = change.before, change.after
        if change.address.kind is Kind.QUERY and old is None:
            old = after.get((change.address.graph, new))
        elif change.address.kind is Kind.QUERY and new is None:
            new = before.get((change.address.graph, old))
        found.setdefault((change.address.kind, owner, old, new), []).append(change)
    return list(found.values())


def _recorded(current: Session, change: Change) -> bytes | None:
    """Return a resource's recorded text, or None if it cannot be read."""
    address, digest = change.address, change.before or ""
    with suppress(GitopsError):
        if address.kind is not Kind.SCHEMA:
            return current.opened.ledger.blob(address, digest).content
        known = current.workspace.accepted_schema(address.name, digest)
        if known is not None or change.action is Action.DELETE:
            return known
        return current.opened.engine.read(current.opened.graph_uri(address.name)).schema_source
    return None


# Ledger records of the graphs whose schema or queries a plan changes. They are for explanation only.


def recorded_graphs(
    current: Session, changes: Sequence[Change], migrated: Mapping[Address, Schema | None]
) -> dict[Address, RecordedGraph]:
    """Return the record of each graph with a migration preview or an updated query, by schema address.

    `migrated` contains the accepted schema of each preview; None if it must be read from the graph. Unreadable texts
    are silently omitted, because the verbs that need them report the problem.
    """
    texts = _query_texts(current, changes, migrated)
    kept = texts.keys() - {c.address for c in changes if c.address.kind is Kind.SCHEMA}
    if not (migrated or kept):
        return {}
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    recorded: dict[Address, RecordedGraph] = {}
    for schema, known in migrated.items():
        with suppress(GitopsError, LanguageError):
            live = known or compile_schema(
                current.opened.engine.read(current.opened.graph_uri(schema.name)).schema_source
            )
            recorded[schema] = RecordedGraph(live, texts.get(schema, {}))
    for schema in kept:
        # The schema does not change, so the accepted schema is the declared one.
        declared = current.desired.graphs[schema.name].schema
        if declared is not None:
            recorded[schema] = RecordedGraph(declared, texts[schema])
    return recorded


def kept_data(current: Session, previews: Mapping[Address, MigrationPreview]) -> dict[Address, KeptData]:
    """Return the data that graph versions still have for everything that a migration adds, or nothing for unreadable graphs."""
    found: dict[Address, KeptData] = {}
    for schema, preview in previews.items() if current.opened.data_at_hand else ():
        with suppress(GitopsError):
            uri = current.opened.graph_uri(schema.name)
            found[schema] = current.opened.engine.kept_data(uri, data_names(preview))
    return found


def _query_texts(
    current: Session, changes: Sequence[Change], migrated: Mapping[Address, object]
) -> dict[Address, dict[Address, bytes]]:
    """Return the recorded texts of changed queries, by schema. A file with many queries is read once."""
    read: dict[tuple[Address, str], bytes | None] = {}
    texts: dict[Address, dict[Address, bytes]] = {}
    for change in changes:
        address, schema = change.address, change.address.schema_address
        if address.kind is not Kind.QUERY or schema is None or change.before is None:
            continue
        if change.action is not Action.UPDATE and schema not in migrated:
            continue
        place = (schema, change.before)
        if read.get(place) is None:
            read[place] = None
            with suppress(GitopsError):
                read[place] = current.opened.ledger.blob(address, change.before).content
        content = read[place]
        if content is not None:
            texts.setdefault(schema, {})[address] = content
    return texts


# Finds query updates that only republish a file, because the text of the query itself is unchanged.


def republished_queries(
    updates: Iterable[tuple[Address, str | None, str | None]], read: Callable[[Address, str], bytes | None]
) -> frozenset[Address]:
    """Return the queries whose own text is the same in both files, by address and file digests before and after.

    `read` returns a file for one of its queries and its digest; None if it cannot be read. Each file is read once.
    Changes that are not query updates are skipped.
    """
    files: dict[tuple[str | None, str, str], list[Address]] = {}
    for address, before, after in updates:
        if address.kind is Kind.QUERY and before is not None and after is not None:
            files.setdefault((address.graph, before, after), []).append(address)
    if not files:
        return frozenset()
    # Importing the query language is slow, and many changes are about something else.
    from gitops.database.language.query import query_texts

    found = set[Address]()
    for (_, before, after), queries in files.items():
        old, new = (query_texts(read(queries[0], digest) or b"") for digest in (before, after))
        found.update(each for each in queries if each.name in old and old[each.name] == new.get(each.name))
    return frozenset(found)
