"""The control plane's graph engine, on Lance datasets in local folders or under object store prefixes.

The content of kept versions is read from their manifests. A table is opened only to count the values in a column. Data
that a migration dropped stays in the previous version until gc or a purge removes that version.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gitops.core.canonical import digest
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.errors import BugError, ConflictError, GitopsError, IntegrityError, RemoteError, system_reason
from gitops.core.faults import Faults, NoFaults, around
from gitops.database.graph import layout, port, require_driver
from gitops.database.graph.ancestry import require_merged_branches
from gitops.database.graph.delete import (
    check_delete,
    check_fence,
    delete_graph,
    deleted_by,
    finish_delete,
    raise_fence,
    replaced_rows,
)
from gitops.database.graph.files import find_missing
from gitops.database.graph.manifest import RESTORE, GraphIdentity, Manifest, TableEntry, find_manifest, publish
from gitops.database.graph.presence import existence
from gitops.database.graph.snapshot import (
    ReadTarget,
    Snapshot,
    accept_schema,
    find_root,
    held_rows,
    kept_versions,
    open_snapshot,
    unreadable,
)
from gitops.database.graph.staged import StagedGraph, StagedVersion, WriteContext, require_no_branches
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import ObjectStore

if TYPE_CHECKING:
    from gitops.database.graph.embedding import Embedder
    from gitops.database.language.schema import Schema
    from gitops.database.language.schema.steps import Migration, MigrationStep


class LanceEngine:
    """A GraphEngine that loads the Lance driver only to create or change a table.

    Safe for several processes and, on an object store, several hosts: if writers race, one of them publishes and the
    others get `graph_conflict`.
    """

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        faults: Faults | None = None,
        embedder: Callable[[], Embedder | None] = lambda: None,
    ) -> None:
        """`clock` and `ids` provide the time and ids of new versions; the clock is read once per operation.

        `embedder` returns the operator's embedding service, and is called only by migrations that compute vectors.
        """
        self._clock = clock
        self._ids = ids
        self._faults = faults or NoFaults()
        self._embedder = embedder

    def exists(self, uri: str) -> port.Existence:
        """Return whether anything exists at the root. ABSENT means a definite not-found response."""
        return existence(uri)

    def read(self, uri: str) -> port.GraphReading:
        """Return the accepted schema text and the newest version.

        Raises GitopsError `graph_missing` or `graph_unreadable`.
        """
        snapshot = open_snapshot(uri)
        with _unreadable(uri):
            reads: tuple[Callable[[], Any], ...] = (
                snapshot.schema_source,
                partial(held_rows, snapshot),
                snapshot.schema_ir,
            )
            source, rows, _ = in_parallel(lambda read: read(), reads, snapshot.store.parallel)
            return port.GraphReading(
                source, snapshot.manifest.n, snapshot.identity.graph_id, rows, snapshot.manifest.fence or 0
            )

    def schema_text(self, uri: str, digest: str) -> bytes:
        """Return the text of a current or earlier schema, given its digest.

        An old text can be missing after garbage collection.
        """
        with _unreadable(uri):
            return open_snapshot(uri).schema_text(digest)

    def check_files(self, uri: str) -> None:
        """Check that the files of every table exist, without reading them."""
        snapshot = open_snapshot(uri)
        with _unreadable(uri):
            missing = find_missing(snapshot)
            if missing and (now := open_snapshot(uri)).manifest != snapshot.manifest:
                # Gc can remove the files of a superseded version at any time.
                missing = find_missing(now)
        if missing:
            key, file = missing[0]
            are = "is" if len(missing) == 1 else f"and {len(missing) - 1} more are"
            kind, _, name = key.partition(":")
            detail = f"{file} of {kind} type {name} {are} missing below {snapshot.store.location}"
            raise IntegrityError(Code.GRAPH_UNREADABLE, detail, path=uri)

    def deleted_by(self, uri: str, incarnation: str) -> frozenset[str]:
        """Return the approvals of earlier deletes of this incarnation, as recorded at the root."""
        with _storage(uri):
            return deleted_by(uri, incarnation)

    def kept_data(self, uri: str, names: Collection[str], converted: Collection[str] = ()) -> port.KeptData:
        """Find the versions of `main` with data in these tables and columns, using only manifests where possible."""
        snapshot = open_snapshot(uri)
        with _unreadable(uri):
            found = find_kept(snapshot, names)
            lost = {name: what for name in converted if (what := _lost_in_conversion(snapshot, name)) is not None}
            return replace(found, held={**found.held, **lost})

    def replaced_rows(self, uri: str, since: int, types: Collection[str] = (), rows: int = 0) -> int:
        """Count replaced rows by the rules of `gitops.database.graph.delete`.

        The driver is loaded only if a table has changed.
        """
        return replaced_rows(open_snapshot(uri), since, types, rows)

    def preview(self, uri: str, schema_source: bytes) -> port.MigrationPreview:
        """Preview the effects of `prepare_migration`. Raises the errors of `read` and of an invalid schema text."""
        snapshot = open_snapshot(uri)
        with _unreadable(uri):
            accepted = snapshot.schema()
        return port.MigrationPreview.between(accepted, accept_schema(schema_source))

    def count_steps(self, uri: str, schema_source: bytes) -> tuple[port.StepCount | None, ...]:
        """Count the rows of each step by `gitops.database.graph.step_counts`."""
        snapshot, desired = open_snapshot(uri), accept_schema(schema_source)
        with _unreadable(uri):
            accepted = snapshot.schema()
        migration = plan_migration(accepted, desired)
        with require_driver():
            from gitops.database.graph.step_counts import count_steps

            return count_steps(snapshot.folder, snapshot.manifest, migration.steps, desired.catalog)

    def check_restore(self, uri: str, order: port.RestoreOrder, schema_source: bytes) -> int:
        """Count the rows in the tables that `restore` would replace."""
        from gitops.database.graph.restore import restored_tables

        now = open_snapshot(uri)
        with _unreadable(uri):
            found = restored_tables(uri, now, accept_schema(schema_source).catalog, order)
        tables = {key: now.manifest.tables[key] for key in found if key in now.manifest.tables}
        return sum(entry.rows for key, entry in tables.items() if entry != found[key])

    def was_restored(self, uri: str, fence: int, since: int) -> bool:
        """Return whether a manifest after version `since` records a restore with number `fence`."""
        from gitops.database.graph.restore import find_restore

        snapshot = open_snapshot(uri)
        with _unreadable(uri):
            return find_restore(snapshot, fence, since)

    def restore(
        self,
        uri: str,
        order: port.RestoreOrder,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
    ) -> int:
        """Restore rows by the steps in `gitops.database.graph.restore`, under a lease."""
        from gitops.database.graph.restore import check_rules, restored_tables

        with find_root(uri).lease():
            now = open_snapshot(uri)
            check_fence(now, fence)
            _require_incarnation(now, uri, incarnation)
            restored = restored_tables(uri, now, now.schema().catalog, order)
            if all(now.manifest.tables.get(key) == entry for key, entry in restored.items()):
                return now.manifest.n
            require_merged_branches(now)
            tables = {**now.manifest.tables, **restored}
            with require_driver():
                check_rules(now, tables, restored)
            message = f"{', '.join(order.types)} of version {order.version}"
            context = WriteContext(self._clock, self._ids, actor, message, self._faults)
            number = now.manifest.fence if fence is None else fence
            return StagedVersion(now, RESTORE, context, tables=tables, fence=number).publish()

    def check_migration(self, uri: str, schema_source: bytes, *, incarnation: str | None = None) -> None:
        """Raise the error that `prepare_migration` would raise, without writing anything."""
        snapshot, migration = _admit_migration(uri, accept_schema(schema_source), incarnation=incarnation)
        self._require_embedder(snapshot, migration.steps)

    def prepare_create(
        self, uri: str, schema_source: bytes, *, actor: str | None, fence: int | None = None
    ) -> port.PreparedVersion:
        """Stage a new, empty graph that is not visible yet. Raises GitopsError `graph_exists` if the root is taken."""
        schema = accept_schema(schema_source)
        now = timestamp(self._clock.now())
        identity = GraphIdentity(self._ids.ulid(), now)
        with _storage(uri):
            staging = find_root(uri).stage(identity)
        try:
            with _storage(uri), require_driver():
                from gitops.database.graph.migrate import create_tables

                store = staging.folder.store
                store.write(layout.IDENTITY, identity.to_bytes())
                _write_schema(store, schema)
                self._faults.reach("engine.create.before_tables")
                commit, tables = self._ids.ulid(), create_tables(staging.folder, schema.catalog, self._ids)
                manifest = Manifest(
                    n=1,
                    txn_id=commit,
                    operation="create",
                    actor=actor,
                    ts=now,
                    schema_source=digest(schema.source),
                    schema_ir=schema.ir_digest,
                    tables={key: entry.committed(commit) for key, entry in tables.items()},
                    fence=fence,
                )
                publish(store, manifest)
        except BaseException:
            staging.discard()
            raise
        self._faults.reach("engine.create.staged")
        return StagedGraph(staging, self._faults)

    def prepare_migration(
        self,
        uri: str,
        schema_source: bytes,
        *,
        actor: str | None,
        incarnation: str | None = None,
        fence: int | None = None,
        allow_data_loss: bool = False,
    ) -> port.PreparedVersion:
        """Stage a migration to a new schema text. The version advances even if there are no steps.

        Drops are soft. With `allow_data_loss` all drops are hard, and older versions of the affected tables are removed
        when the new version is published. Raises GitopsError `graph_migration_unsupported` with the first unsupported
        step, `graph_has_branches`, and the errors listed in the port.
        """
        desired = accept_schema(schema_source)
        with find_root(uri).lease():
            snapshot, migration = _admit_migration(
                uri, desired, incarnation=incarnation, fence=fence, allow_data_loss=allow_data_loss
            )
            embedder = self._require_embedder(snapshot, migration.steps)
            require_rows(snapshot, desired, migration.steps)
            staged = self.stage_migration(snapshot, desired, migration.steps, actor, fence=fence, embedder=embedder)
        self._faults.reach("engine.migrate.staged")
        return staged

    def _require_embedder(self, snapshot: Snapshot, steps: Sequence[MigrationStep]) -> Embedder | None:
        """Return the embedding service if rows need it. Raises GitopsError `graph_migration_unsupported` without one."""
        from gitops.database.language.schema.steps import ChangeEmbedding, plain_words

        if not any(isinstance(step, ChangeEmbedding) and step.rewrites for step in steps):
            return None
        with require_driver():
            from gitops.database.graph.table_changes import table_changes

            tables = table_changes(snapshot.manifest, steps).tables.values()
        rows = {plan.embeds[0]: snapshot.manifest.tables[plan.source].rows for plan in tables if plan.embeds}
        found = self._embedder()
        first = next((step for step, number in rows.items() if number), None)
        if found is None and first is not None:
            detail = f"{plain_words(first.to_json())}: no embedding service is set"
            fix = "set GITOPS_EMBEDDINGS to MODEL@https://HOST/v1 where the plan and the apply run"
            raise GitopsError(Code.GRAPH_MIGRATION_UNSUPPORTED, detail, path=snapshot.root.location, fix=fix)
        return found

    def stage_migration(
        self,
        snapshot: Snapshot,
        desired: Schema,
        steps: Sequence[MigrationStep],
        actor: str | None,
        *,
        fence: int | None = None,
        embedder: Embedder | None = None,
    ) -> StagedVersion:
        """Stage steps on the snapshot's branch, regardless of other branches.

        Raises the same errors as `prepare_migration`.
        """
        base = snapshot.manifest
        tables, dropped = base.tables, base.dropped
        purged: tuple[str, ...] = ()
        if steps:
            with require_driver():
                from gitops.database.graph.migrate import migrate_tables
                from gitops.database.graph.table_changes import RowsBreakStepError

                try:
                    tables, dropped, purged = migrate_tables(
                        snapshot.folder, base, steps, desired.catalog, self._ids, embedder
                    )
                except RowsBreakStepError as error:
                    # All rows are counted only for the message, so that other migrations read each column once.
                    require_rows(snapshot, desired, steps, converting=True)
                    raise BugError("a value did not convert, but no row breaks a step") from error
        self._faults.reach("engine.migrate.after_tables")
        _write_schema(snapshot.store, desired)
        return StagedVersion(
            snapshot,
            "migrate",
            WriteContext(self._clock, self._ids, actor, faults=self._faults),
            stamp=timestamp,
            purged=purged,
            schema_source=digest(desired.source),
            schema_ir=desired.ir_digest,
            tables=tables,
            dropped=dropped,
            fence=base.fence if fence is None else fence,
        )

    def fence(self, uri: str, fence: int) -> None:
        """Raise the graph's fence, so that earlier operations are refused."""
        with _storage(uri):
            raise_fence(uri, fence, WriteContext(self._clock, self._ids, faults=self._faults))

    def check_delete(self, uri: str, order: port.DeleteOrder) -> None:
        """Raise the error that `delete` would raise before its first change, without checking the fence."""
        with _storage(uri):
            check_delete(uri, order)

    def delete(self, uri: str, order: port.DeleteOrder) -> None:
        """Remove only the incarnation in the order, by the steps in `gitops.database.graph.delete`."""
        with _storage(uri):
            delete_graph(uri, order, WriteContext(self._clock, self._ids, faults=self._faults))

    def finish_delete(self, uri: str) -> None:
        """Finish an interrupted delete (steps 5 and 6 in `gitops.database.graph.delete`), and clear an absent root."""
        with _storage(uri):
            finish_delete(uri, WriteContext(self._clock, self._ids, faults=self._faults))

    def delete_tree(self, uri: str) -> None:
        """Remove everything at the root, and the leftovers of crashed writers next to it.

        Succeeds for absent and partial roots.
        """
        with _storage(uri):
            root = find_root(uri)
            with around(self._faults, "engine.delete", "remove"):
                root.remove()


def _admit_migration(
    uri: str,
    desired: Schema,
    *,
    incarnation: str | None = None,
    fence: int | None = None,
    allow_data_loss: bool = False,
) -> tuple[Snapshot, Migration]:
    """Check whether a migration is possible; return the current graph and the steps to the new schema.

    Raises the errors of `prepare_migration` if it is not.
    """
    snapshot = open_snapshot(uri)
    check_fence(snapshot, fence)
    _require_incarnation(snapshot, uri, incarnation)
    with _unreadable(uri):
        accepted = snapshot.schema()
        migration = plan_migration(accepted, desired, allow_data_loss=allow_data_loss)
        if allow_data_loss:
            require_no_branches(snapshot)
        elif desired.ir_digest != snapshot.manifest.schema_ir:
            require_merged_branches(snapshot, partial(_breaking_rows, uri, desired, migration.steps))
    if not migration.supported:
        first = migration.unsupported[0]
        raise GitopsError(Code.GRAPH_MIGRATION_UNSUPPORTED, f"{first.entity}: {first.text}", path=uri)
    return snapshot, migration


def _breaking_rows(uri: str, desired: Schema, steps: Sequence[MigrationStep], branch: str) -> str:
    """Return which step the rows of a branch break, with their number. Empty if there is none."""
    try:
        require_rows(open_snapshot(uri, ReadTarget(branch)), desired, steps, converting=True)
    except GitopsError as error:
        return error.detail if error.code == Code.GRAPH_ROWS_BREAK_SCHEMA else ""
    return ""


def require_rows(
    snapshot: Snapshot, desired: Schema, steps: Sequence[MigrationStep], *, converting: bool | None = None
) -> None:
    """Raise GitopsError `graph_rows_break_schema` if rows of the snapshot keep a step from being applied.

    Unless `converting`, rows that their conversion itself finds are not looked for. The default looks for them if there
    is a new key, which is made before, or if texts would be sent for nothing. If others are found, all are counted for
    the message.
    A migration that starts from this snapshot is published only if no other writer has published since.
    """
    from gitops.database.language.schema import ConstraintKind
    from gitops.database.language.schema.step_terms import Sort
    from gitops.database.language.schema.steps import AddConstraint, ChangeEmbedding

    if all(step.sort is not Sort.CHECKED for step in steps):
        return
    if converting is None:
        keys = (step.constraint.kind for step in steps if isinstance(step, AddConstraint))
        converting = ConstraintKind.KEY in keys or any(isinstance(step, ChangeEmbedding) for step in steps)
    with require_driver():
        from gitops.database.graph.step_counts import count_steps, refusal

        counts = count_steps(snapshot.folder, snapshot.manifest, steps, desired.catalog, converting=converting)
        if not (reason := refusal(steps, counts)):
            return
        if not converting:
            counts = count_steps(snapshot.folder, snapshot.manifest, steps, desired.catalog)
            reason = refusal(steps, counts)
        raise GitopsError(Code.GRAPH_ROWS_BREAK_SCHEMA, reason, path=snapshot.root.location)


def _require_incarnation(snapshot: Snapshot, uri: str, incarnation: str | None) -> None:
    """Raise ConflictError `graph_replaced` if the graph is a different incarnation from the expected one."""
    if incarnation is not None and snapshot.identity.graph_id != incarnation:
        detail = f"{uri} contains graph {snapshot.identity.graph_id}, but the change is for {incarnation}"
        raise ConflictError(Code.GRAPH_REPLACED, detail, path=uri)


def plan_migration(accepted: Schema, desired: Schema, *, allow_data_loss: bool = False) -> Migration:
    """Plan the migration steps from one schema to another. With `allow_data_loss`, every drop is hard."""
    from gitops.database.language.schema.migration import plan_migration as plan

    migration = plan(accepted, desired)
    return migration.hardened() if allow_data_loss else migration


def _write_schema(store: ObjectStore, schema: Schema) -> None:
    """Store a schema's text and canonical form under their digests. Raises IntegrityError if different bytes exist there.

    Existing objects are rewritten because gc uses their last write time.
    """
    objects = {
        layout.source_key(digest(schema.source)): schema.source,
        layout.ir_key(schema.ir_digest): schema.ir.to_bytes(),
    }

    def write(key: str) -> None:
        if store.create(key, objects[key]):
            return
        if store.read(key) != objects[key]:
            raise IntegrityError(
                Code.GRAPH_UNREADABLE, f"{store.display(key)} does not match the digest in its name", path=key
            )
        store.write(key, objects[key])

    in_parallel(write, objects, store.parallel)


@contextlib.contextmanager
def _storage(uri: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, uri), path=uri) from error


@contextlib.contextmanager
def _unreadable(uri: str) -> Iterator[None]:
    """Convert storage failures while a graph is opened; see `unreadable`."""
    try:
        yield
    except RemoteError as error:
        raise unreadable(uri, error) from error


def find_kept(snapshot: Snapshot, names: Collection[str]) -> port.KeptData:
    """For each table or column in `names` that is not in the newest version, find the newest version with data in it.

    Versions are read until all are found.
    """
    newest = snapshot.manifest
    rows: dict[str, int | None] = {key: entry.rows for key, entry in newest.tables.items()}
    for name in names:
        table, _, column = name.partition(".")
        if column and table in newest.tables and column in newest.tables[table].fields:
            rows[name] = _values(snapshot, newest.tables[table], column)
    left = set(names) - rows.keys()
    purged = {each.path for each in newest.dropped if each.purged}
    held: dict[str, port.HeldData] = {}
    numbers = list(kept_versions(snapshot.store, snapshot.line))
    for line, n in numbers:
        if not left:
            break
        manifest = newest if (line, n) == (newest.line, newest.n) else find_manifest(snapshot.store, n, line)
        tables = {} if manifest is None else manifest.tables
        for name in sorted(left):
            table, _, column = name.partition(".")
            entry = tables.get(table)
            if entry is None or not entry.rows or entry.path in purged or (column and column not in entry.fields):
                continue
            held[name] = port.HeldData(n, _values(snapshot, entry, column) if column else entry.rows)
            left.discard(name)
    return port.KeptData(newest.n, rows, held, complete=len(numbers) == newest.n)


def _lost_in_conversion(snapshot: Snapshot, name: str) -> port.HeldData | None:
    """Return the version before the last conversion of a column, with the number of values lost; None if none was lost.

    A conversion writes another column, and changes no rows.
    """
    table, _, column = name.partition(".")
    after = snapshot.manifest.tables.get(table)
    for line, n in kept_versions(snapshot.store, snapshot.line):
        manifest = find_manifest(snapshot.store, n, line)
        before = None if manifest is None else manifest.tables.get(table)
        if before is None or after is None or column not in before.fields or column not in after.fields:
            return None
        if before.fields[column] != after.fields[column]:
            had, has = _values(snapshot, before, column), _values(snapshot, after, column)
            lost = None if had is None or has is None else had - has
            return port.HeldData(n, lost) if lost is None or lost > 0 else None
        after = before
    return None


def _values(snapshot: Snapshot, entry: TableEntry, column: str) -> int | None:
    """Count the rows with a value in a column; None if the table cannot be opened here."""
    try:
        # Importing the driver is slow, and few plans need this count.
        from gitops.database.graph.tables import count_values
    except ImportError:
        return None
    try:
        return count_values(snapshot.folder, entry, column)
    except GitopsError:
        return None
