"""What a ledger records of the graphs whose schema or queries a plan changes. It only explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.plan import RecordedGraph
from gitops.cluster.plan.undo import data_names
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError
from gitops.database.graph.port import KeptData, MigrationPreview

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema


def recorded_graphs(
    current: Session, changes: Sequence[Change], migrated: Mapping[Address, Schema | None]
) -> dict[Address, RecordedGraph]:
    """What is recorded of each graph with a migration preview or an updated query, by schema address.

    `migrated` has the accepted schema of each preview, None where it has to be read from the graph. What cannot be read is left
    out silently: the verbs that need it report it.
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
        # The schema does not change, so the accepted one is the declared one.
        declared = current.desired.graphs[schema.name].schema
        if declared is not None:
            recorded[schema] = RecordedGraph(declared, texts[schema])
    return recorded


def kept_data(current: Session, previews: Mapping[Address, MigrationPreview]) -> dict[Address, KeptData]:
    """What the versions of each graph hold of what its migration adds; none of those that cannot be read here."""
    found: dict[Address, KeptData] = {}
    for schema, preview in previews.items() if current.opened.data_at_hand else ():
        with suppress(GitopsError):
            uri = current.opened.graph_uri(schema.name)
            found[schema] = current.opened.engine.kept_data(uri, data_names(preview))
    return found


def _query_texts(
    current: Session, changes: Sequence[Change], migrated: Mapping[Address, object]
) -> dict[Address, dict[Address, bytes]]:
    """The recorded texts of queries that change, by schema; of a file with many queries one is read."""
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
