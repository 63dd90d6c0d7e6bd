"""The preview of a migration on real data: on a hidden branch of the live graph, which is removed afterwards.

The preview counts the rows that each step touches in the newest version of `main`, carries out the migration and reads the
result, so a migration that previews well has run once. `main` does not change, and the branch is not listed. Table versions
that the preview leaves are undone by the next writer, as those of any writer that did not publish, and removed by the next gc.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from gitops.core.errors import BugError, GitopsError, RemoteError
from gitops.graph.engine import LanceEngine, plan_migration
from gitops.graph.history.branches import make_branch, remove_branch
from gitops.graph.history.datasets import call_driver
from gitops.graph.lines import INTERNAL
from gitops.graph.manifest import Manifest
from gitops.graph.results import PreviewReport, StepEffect
from gitops.graph.root import GraphFolder
from gitops.graph.snapshot import ReadTarget, Snapshot, accept_schema, find_root, open_snapshot
from gitops.graph.staged import WriteContext
from gitops.graph.tables import open_table
from gitops.language.schema import Schema, TypeKind
from gitops.language.schema.steps import (
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    Migration,
    MigrationStep,
    RenameProperty,
    RenameType,
)

__all__ = ["preview_migration"]


def preview_migration(
    uri: str, schema_source: bytes, context: WriteContext, *, allow_data_loss: bool = False
) -> PreviewReport:
    """Carry out the change to a schema text on a hidden branch, report its effects, and remove the branch.

    `manifest_version` is the version of `main` that was previewed. Raises GitopsError for a text that does not compile; as
    `open_snapshot`; ConflictError `graph_conflict`; RemoteError `storage_failed`.
    """
    desired = accept_schema(schema_source)
    base = open_snapshot(uri)
    migration = plan_migration(base.schema(), desired, allow_data_loss=allow_data_loss)
    effects = _effects(base, migration)
    if not migration.supported:
        return PreviewReport(False, base.manifest.n, effects, {})
    name = f"{INTERNAL}preview_{context.ids.ulid().lower()}"
    make_branch(base, name, context)
    made: Manifest | None = None
    try:
        made = _carry_out(uri, name, desired, migration.steps, context)
        tables = _count(base, made)
    finally:
        remove_branch(base, name, context)
        if made is not None:
            _remove_tables(base, made)
    return PreviewReport(True, base.manifest.n, effects, tables)


def _carry_out(uri: str, name: str, desired: Schema, steps: Sequence[MigrationStep], context: WriteContext) -> Manifest:
    """Publish the migration on the branch. What a hard drop would remove is not removed."""
    engine = LanceEngine(context.clock, context.ids, context.faults)
    with find_root(uri).lease():
        branch = open_snapshot(uri, ReadTarget(name))
        staged = engine.stage_migration(branch, desired, steps, context.actor)
        staged.publish(purge=False)
    return staged.manifest


def _count(base: Snapshot, made: Manifest) -> dict[str, int]:
    """The rows of each table of the new version, read from the tables themselves."""
    found = {}
    for key, entry in made.tables.items():
        found[key] = call_driver(entry.path, open_table(base.folder, entry).count_rows)
        if found[key] != entry.rows:
            raise BugError(f"the migration left {found[key]} rows in {key}, and its manifest records {entry.rows}")
    return found


def _remove_tables(base: Snapshot, made: Manifest) -> None:
    """Remove the tables that only the preview has. After a failure the next gc removes the rest."""
    known = {entry.path for entry in base.manifest.tables.values()}
    for entry in made.tables.values():
        if entry.path not in known:
            with contextlib.suppress(OSError, RemoteError, GitopsError):
                base.folder.remove(entry.path)


def _effects(base: Snapshot, migration: Migration) -> tuple[StepEffect, ...]:
    """The steps with their rows; a step names a type as the desired schema does, so renames are followed."""
    source = {key: key for key in base.manifest.tables}
    effects = []
    for step in migration.steps:
        if isinstance(step, RenameType):
            source[f"{step.type_kind.value}:{step.to}"] = source[f"{step.type_kind.value}:{step.from_}"]
        effects.append(StepEffect(step, _rows(base.folder, base.manifest, source, step)))
    return tuple(effects)


def _rows(folder: GraphFolder, manifest: Manifest, source: dict[str, str], step: MigrationStep) -> int | None:
    if isinstance(step, AddType):
        return None if step.type_kind is TypeKind.INTERFACE else 0
    if isinstance(step, DropType):
        name = step.name
    elif isinstance(step, RenameType):
        name = step.to
    elif isinstance(step, AddProperty | RenameProperty | DropProperty):
        name = step.type_name
    else:
        return None
    key = source.get(f"{step.type_kind.value}:{name}")
    if key is None or key not in manifest.tables:
        return None
    entry = manifest.tables[key]
    if not isinstance(step, DropProperty) or not entry.rows:
        return entry.rows
    # A filter as text: the driver accepts no other for a table with lists of times or of unsigned numbers.
    scanner = open_table(folder, entry).scanner(
        columns=[], filter=f"`{step.property_name}` is not null", with_row_id=True
    )
    return call_driver(entry.path, scanner.count_rows)
