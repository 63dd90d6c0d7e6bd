"""Recorded and declared texts of a plan's changes, which only explain the plan.

The recorded text of a query, policy or strategy is in the ledger's catalog; that of a schema is in git or in the live
graph. Unreadable texts are silently omitted, because the verbs that need them report the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import KINDS
from gitops.cluster.model.plan import Plan, RecordedGraph, SameTexts, TextChange
from gitops.cluster.plan.undo import converted_names, data_names
from gitops.cluster.session.session import Session
from gitops.core.canonical import canonical, digest
from gitops.core.errors import GitopsError
from gitops.database.graph.port import KeptData, MigrationPreview

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


_KINDS = [kind for kind, rules in KINDS.items() if rules.has_text]
_MOST = 50
"""Maximum number of texts. More would be too many to read, and take too long to fetch from a distant bucket."""


TextReader = Callable[[Address, str], bytes | None]
"""Returns the text of a resource with a digest; None if it cannot be read."""


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
    address = change.address
    known = _recorded_text(current, address, change.before or "")
    if known is not None or address.kind is not Kind.SCHEMA or change.action is Action.DELETE:
        return known
    return _live_schema(current, address)


def _live_schema(current: Session, schema: Address) -> bytes | None:
    with suppress(GitopsError):
        return current.opened.engine.read(current.opened.graph_uri(schema.name)).schema_source
    return None


def _recorded_text(current: Session, address: Address, wanted: str) -> bytes | None:
    """Return the text with a digest from the ledger's catalog or, for a schema, from git; None if it cannot be read."""
    with suppress(GitopsError):
        if address.kind is not Kind.SCHEMA:
            return current.opened.ledger.blob(address, wanted).content
        return current.workspace.accepted_schema(address.name, wanted)
    return None


# Ledger records of the graphs whose schema or queries a plan changes. They are for explanation only.


def recorded_graphs(
    current: Session, changes: Sequence[Change], migrated: Mapping[Address, Schema | None], read: TextReader
) -> dict[Address, RecordedGraph]:
    """Return the record of each graph with a migration preview or an updated query, by schema address.

    `migrated` contains the accepted schema of each preview; None if it must be read from the graph. `read` is a
    `text_reader`. Unreadable texts are silently omitted, because the verbs that need them report the problem.
    """
    texts = _query_texts(changes, migrated, read)
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
            found[schema] = current.opened.engine.kept_data(uri, data_names(preview), converted_names(preview))
    return found


def _query_texts(
    changes: Sequence[Change], migrated: Mapping[Address, object], read: TextReader
) -> dict[Address, dict[Address, bytes]]:
    """Return the recorded texts of changed queries, by schema."""
    texts: dict[Address, dict[Address, bytes]] = {}
    for change in changes:
        address, schema = change.address, change.address.schema_address
        if address.kind is not Kind.QUERY or schema is None or change.before is None:
            continue
        if change.action is not Action.UPDATE and schema not in migrated:
            continue
        content = read(address, change.before)
        if content is not None:
            texts.setdefault(schema, {})[address] = content
    return texts


# Updates that change the bytes of a text, but not what it means. They are found by address and digests, so that plans,
# applies and the audit trail say the same about a change.


def same_texts(updates: Iterable[tuple[Address, str | None, str | None]], read: TextReader) -> SameTexts:
    """Sort out the updates, given as an address with the digests before and after, that do not change any meaning.

    A text that cannot be read counts as changed. Each query file is read once, for one of its queries. Changes that are
    not updates are skipped.
    """
    files: dict[tuple[str | None, str, str], list[Address]] = {}
    same, formatting = set[Address](), set[Address]()
    for address, before, after in updates:
        if before is None or after is None or before == after:
            continue
        if address.kind is Kind.QUERY:
            files.setdefault((address.graph, before, after), []).append(address)
        elif address.kind in _MEANINGS:
            old, new = read(address, before), read(address, after)
            if old is not None and new is not None and _MEANINGS[address.kind](old, new):
                formatting.add(address)
    for (_, before, after), queries in files.items():
        old, new = (read(queries[0], each) for each in (before, after))
        if old is not None and new is not None:
            found = _same_queries(queries, old, new)
            same |= found.republished
            formatting |= found.formatting
    return SameTexts(frozenset(same), frozenset(formatting))


def _same_queries(queries: Collection[Address], before: bytes, after: bytes) -> SameTexts:
    """Sort out the queries of a file. If none of its queries changed, neither in text nor in number, its layout did."""
    # Importing the query language is slow, and many changes are about something else.
    from gitops.database.language.meaning import query_meanings

    old, new = query_meanings(before), query_meanings(after)
    meant = {each for each in queries if each.name in old and each.name in new}
    meant = {each for each in meant if old[each.name].meaning == new[each.name].meaning}
    kept = {each for each in meant if old[each.name].text == new[each.name].text}
    if {name: each.text for name, each in old.items()} == {name: each.text for name, each in new.items()}:
        return SameTexts(formatting=frozenset(kept))
    return SameTexts(frozenset(kept), frozenset(meant - kept))


def _same_schema(before: bytes, after: bytes) -> bool:
    from gitops.database.language.meaning import same_schema

    return same_schema(before, after)


def _same_policy(before: bytes, after: bytes) -> bool:
    from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

    try:
        return canonical(to_plain(parse_yaml(before))) == canonical(to_plain(parse_yaml(after)))
    except (YamlError, ValueError):
        return False


_MEANINGS: Mapping[Kind, Callable[[bytes, bytes], bool]] = {Kind.SCHEMA: _same_schema, Kind.POLICY: _same_policy}


def text_reader(current: Session) -> TextReader:
    """Return a reader of the declared and the recorded texts of a session. It reads each text once."""
    known: dict[tuple[Address, str], bytes | None] = {}

    def read(address: Address, wanted: str) -> bytes | None:
        declared = current.desired.resources.get(address)
        if declared is not None and declared.digest == wanted:
            return declared.content
        # All queries of a file have its text.
        place = address.schema_address or address, wanted
        if known.get(place) is None:
            known[place] = _recorded_text(current, address, wanted)
            if known[place] is None and address.kind is Kind.SCHEMA:
                live = _live_schema(current, address)
                known[place] = live if live is not None and digest(live) == wanted else None
        return known[place]

    return read
