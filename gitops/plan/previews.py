"""Migrations of schema updates as a plan shows them, and what the ledger records of the graphs that they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gitops.cluster.session import Session
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.observation import MigrationPreview
from gitops.model.address import Address, Kind
from gitops.model.change import Action, Change
from gitops.model.plan import RecordedGraph

if TYPE_CHECKING:
    from gitops.language.schema import Schema


@dataclass(frozen=True, slots=True)
class Previewed:
    """A migration preview; `accepted` is the schema that it starts from, where that was read for it."""

    preview: MigrationPreview
    accepted: Schema | None = None


def preview_migrations(current: Session, changes: Sequence[Change]) -> dict[Address, Previewed]:
    """The preview of each schema update by address; a missing one is a warning of the session."""
    found: dict[Address, Previewed] = {}
    for change in changes:
        if change.address.kind is Kind.SCHEMA and change.action is Action.UPDATE:
            try:
                found[change.address] = _preview(current, change)
            except GitopsError as error:
                current.problems.add(Code.SCHEMA_PREVIEW_UNAVAILABLE, change.address, error.detail)
    return found


def recorded_graphs(
    current: Session, changes: Sequence[Change], found: Mapping[Address, Previewed]
) -> dict[Address, RecordedGraph]:
    """What is recorded of each graph with a preview, by schema address.

    It only explains, so what cannot be read is left out silently: the verbs that need it report it.
    """
    texts: dict[Address, dict[Address, bytes]] = {}
    for change in changes:
        schema = change.address.schema_address
        if change.address.kind is Kind.QUERY and change.before is not None and schema is not None and schema in found:
            content = _blob(current, change)
            if content is not None:
                texts.setdefault(schema, {})[change.address] = content
    recorded: dict[Address, RecordedGraph] = {}
    for schema, previewed in found.items():
        accepted = previewed.accepted or _live_schema(current, schema.name)
        if accepted is not None:
            recorded[schema] = RecordedGraph(accepted, texts.get(schema, {}))
    return recorded


def _preview(current: Session, change: Change) -> Previewed:
    """From the recorded schema, where git has its text, else from the live graph."""
    graph = change.address.name
    desired = current.desired.graphs[graph].schema
    source = current.workspace.accepted_schema(graph, change.before or "")
    if source is not None and desired is not None:
        from gitops.language.schema import compile_schema
        from gitops.language.schema.migration import plan_migration

        accepted = compile_schema(source)
        migration = plan_migration(accepted, desired)
        steps = tuple(step.to_json() for step in migration.steps)
        return Previewed(MigrationPreview(migration.supported, steps), accepted)
    content = current.desired.resources[change.address].content or b""
    return Previewed(current.opened.engine.preview(current.opened.graph_uri(graph), content))


def _live_schema(current: Session, graph: str) -> Schema | None:
    from gitops.language.schema import compile_schema
    from gitops.language.text import LanguageError

    try:
        return compile_schema(current.opened.engine.read(current.opened.graph_uri(graph)).schema_source)
    except (GitopsError, LanguageError):
        return None


def _blob(current: Session, change: Change) -> bytes | None:
    try:
        return current.opened.ledger.blob(change.address, change.before or "").content
    except GitopsError:
        return None
