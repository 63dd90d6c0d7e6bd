"""Previews a migration with real data, on a hidden branch of the live graph that is removed afterwards.

The preview counts the rows of the newest version of `main` that each step affects, runs the migration and reads the
result. So a successful preview means that the migration has run once. `main` does not change, and the branch is not
listed. The leftover table versions are undone by the next writer, like any unpublished write, and removed by the next
gc.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from gitops.core.errors import BugError, GitopsError, RemoteError
from gitops.database.graph.embedding import HashEmbedder
from gitops.database.graph.engine import LanceEngine, plan_migration
from gitops.database.graph.history.branches import make_branch, remove_branch
from gitops.database.graph.lines import INTERNAL
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.results import PreviewReport, StepEffect
from gitops.database.graph.snapshot import ReadTarget, accept_schema, find_root, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.graph.step_counts import count_steps, refusal
from gitops.database.graph.tables import call_driver, open_table


def preview_migration(
    uri: str, schema_source: bytes, context: WriteContext, *, allow_data_loss: bool = False
) -> PreviewReport:
    """Migrate a hidden branch to a schema text, report the effects, and remove the branch.

    `manifest_version` in the report is the previewed version of `main`. Raises GitopsError for a text that does not
    compile; the errors of `open_snapshot`; ConflictError `graph_conflict`; RemoteError `storage_failed`.
    """
    desired = accept_schema(schema_source)
    base = open_snapshot(uri)
    migration = plan_migration(base.schema(), desired, allow_data_loss=allow_data_loss)
    counts = count_steps(base.folder, base.manifest, migration.steps, desired.catalog)
    effects = tuple(map(StepEffect, migration.steps, counts))
    if not migration.supported or refusal(migration.steps, counts):
        return PreviewReport(False, base.manifest.n, effects, {})
    name = f"{INTERNAL}preview_{context.ids.ulid().lower()}"
    make_branch(base, name, context)
    made: Mapping[str, TableEntry] = {}
    try:
        with find_root(uri).lease():
            engine = LanceEngine(context.clock, context.ids, context.faults)
            branch = open_snapshot(uri, ReadTarget(name))
            # No text leaves for a preview; vectors of the right length are enough.
            staged = engine.stage_migration(branch, desired, migration.steps, context.actor, embedder=HashEmbedder())
            # The preview does not remove the data that a hard drop would remove.
            staged.publish(purge=False)
        made = staged.manifest.tables
        # Read the row counts from the tables, not from the manifest.
        tables = {key: call_driver(at.path, open_table(base.folder, at).count_rows) for key, at in made.items()}
        odd = next((key for key, at in made.items() if tables[key] != at.rows), None)
        if odd is not None:
            raise BugError(f"the migration left {tables[odd]} rows in {odd}, but its manifest records {made[odd].rows}")
    finally:
        remove_branch(base, name, context)
        # Remove the tables that only the preview has. After a failure the next gc removes the rest.
        known = {entry.path for entry in base.manifest.tables.values()}
        for path in (entry.path for entry in made.values() if entry.path not in known):
            with contextlib.suppress(OSError, RemoteError, GitopsError):
                base.folder.remove(path)
    return PreviewReport(True, base.manifest.n, effects, tables)
