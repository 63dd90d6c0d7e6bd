"""Carries out migration steps on one graph's tables without making the result visible.

All steps except hard drops change only metadata: columns are added as nulls, renamed and dropped without rewriting
data, a dropped type keeps its files, and a renamed type keeps its folder. Older graph versions are unaffected.

A hard drop removes data permanently. The rest of the table is copied to a new folder, and the old folder, with all
older versions of the table, is removed after the new version is published.

A soft drop leaves the data in older versions. `purge_dropped` reads every kept version of `main`, finds data that is no
longer in the current schema, and publishes one version with the effect of a hard drop. If a table lost a property, the
rest of the table is copied to a new folder, and the old folder is removed with all its versions. Older versions of the
graph remain, but their affected tables can no longer be opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any

from gitops.core.clock import IdSource
from gitops.core.dataclass import dataclass
from gitops.core.errors import BugError
from gitops.database.graph import layout
from gitops.database.graph.manifest import DroppedTable, Manifest, TableEntry, find_manifest, line_numbers
from gitops.database.graph.results import PurgeResult
from gitops.database.graph.root import GraphFolder, tables_at_once
from gitops.database.graph.snapshot import find_root, open_snapshot, table_keys
from gitops.database.graph.staged import StagedVersion, WriteContext, hold_lease, require_no_branches
from gitops.database.graph.tables import (
    TableWriter,
    arrow_field,
    arrow_schema,
    arrow_table,
    create_table,
    declared_type,
    key_columns,
    raw_columns,
    stage_rows,
)
from gitops.database.graph.write.committed import ADDRESS, CommittedTable
from gitops.database.language.schema import Catalog, PropType, Scalar, TypeKind
from gitops.database.language.schema.steps import (
    AddProperty,
    AddType,
    DropMode,
    DropProperty,
    DropType,
    MigrationStep,
    RenameProperty,
    RenameType,
    UnsupportedChange,
)
from gitops.database.storage.parallel import in_parallel


@dataclass(slots=True)
class _TablePlan:
    """Effects of the steps on one existing table; `source` is its key before the migration."""

    source: str
    drops: list[str] = field(default_factory=list)
    renames: list[tuple[str, str]] = field(default_factory=list)
    adds: list[tuple[str, PropType]] = field(default_factory=list)
    hard: bool = False


def create_tables(folder: GraphFolder, catalog: Catalog, ids: IdSource) -> dict[str, TableEntry]:
    """Create an empty table for every type in the catalog, each in a separate folder."""
    keys = [*(f"node:{name}" for name in catalog.nodes), *(f"edge:{name}" for name in catalog.edges)]
    return _create_all(folder, catalog, keys, ids)


def migrate_tables(
    folder: GraphFolder, manifest: Manifest, steps: Iterable[MigrationStep], catalog: Catalog, ids: IdSource
) -> tuple[dict[str, TableEntry], tuple[DroppedTable, ...], tuple[str, ...]]:
    """Stage the migration from the tables of `manifest` to the desired `catalog`.

    Returns the tables and tombstones of the next manifest, and the folders to remove after it is published. Raises
    ConflictError `graph_conflict`; RemoteError `storage_failed`; GitopsError `graph_unreadable`.
    """
    plans = {key: _TablePlan(key) for key in manifest.tables}
    added: list[str] = []
    dropped = list(manifest.dropped)
    for step in steps:
        if isinstance(step, UnsupportedChange) or step.type_kind is TypeKind.INTERFACE:
            continue
        match step:
            case DropType():
                key = _table_key(step.type_kind, step.name)
                entry = manifest.tables[plans.pop(key).source]
                dropped.append(DroppedTable(key, entry.path, entry.version, step.mode is DropMode.HARD))
            case AddType():
                added.append(_table_key(step.type_kind, step.name))
            case RenameType():
                plans[_table_key(step.type_kind, step.to)] = plans.pop(_table_key(step.type_kind, step.from_))
            case AddProperty():
                plan = plans[_table_key(step.type_kind, step.type_name)]
                plan.adds.append((step.property_name, step.property_type))
            case RenameProperty():
                plans[_table_key(step.type_kind, step.type_name)].renames.append((step.from_, step.to))
            case DropProperty():
                plan = plans[_table_key(step.type_kind, step.type_name)]
                plan.drops.append(step.property_name)
                plan.hard = plan.hard or step.mode is DropMode.HARD
    altered = in_parallel(
        lambda plan: _alter_table(folder, manifest.tables[plan.source], plan), plans.values(), tables_at_once(folder)
    )
    tables = dict(zip(plans, altered, strict=True))
    for key in [key for key, plan in plans.items() if plan.hard]:
        dropped.append(DroppedTable(key, tables[key].path, tables[key].version, purged=True))
        tables[key] = copy_table(folder, tables[key], catalog, key, ids)
    tables |= _create_all(folder, catalog, added, ids)
    # The tables must have exactly the columns of the catalog; otherwise the published graph would not open.
    types = {key: declared_type(catalog, key) for key in table_keys(catalog)}
    wanted = {key: {*key_columns(declared), *declared.properties} for key, declared in types.items()}
    found = {key: set(entry.fields) for key, entry in tables.items()}
    if found != wanted:
        odd = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        raise BugError(f"after the migration the columns of {odd[0]} are not those of the schema")
    purged = tuple(entry.path for entry in dropped[len(manifest.dropped) :] if entry.purged)
    return tables, tuple(dropped), purged


def _alter_table(folder: GraphFolder, entry: TableEntry, plan: _TablePlan) -> TableEntry:
    """Change a table, with one version per kind of change. Drops come first, so that a name is free before it is reused."""
    if not (plan.drops or plan.renames or plan.adds):
        return entry
    writer = TableWriter(folder, entry)
    if plan.drops:
        writer.change(lambda dataset: dataset.drop_columns(plan.drops))
    if plan.renames:
        renames: list[Any] = [{"path": old, "name": new} for old, new in plan.renames]
        writer.change(lambda dataset: dataset.alter_columns(*renames))
    if plan.adds:
        writer.change(lambda dataset: dataset.add_columns([arrow_field(name, kind) for name, kind in plan.adds]))
    return writer.finish(recount=False)


def _create_all(folder: GraphFolder, catalog: Catalog, keys: Sequence[str], ids: IdSource) -> dict[str, TableEntry]:
    """Create empty tables for these keys.

    Ids are generated in order, even if tables are created concurrently.
    """
    new = [(key, ids.ulid()) for key in keys]
    made = in_parallel(lambda each: _create_empty(folder, catalog, *each), new, tables_at_once(folder))
    return dict(zip(keys, made, strict=True))


def _create_empty(folder: GraphFolder, catalog: Catalog, key: str, table_id: str) -> TableEntry:
    path = layout.table_path(key.partition(":")[0], table_id)
    return create_table(folder, path, arrow_schema(declared_type(catalog, key)))


def copy_table(folder: GraphFolder, entry: TableEntry, catalog: Catalog, key: str, ids: IdSource) -> TableEntry:
    """Copy a table's rows to a new folder, batch by batch, keeping only the columns of the catalog."""
    fresh = _create_empty(folder, catalog, key, ids.ulid())
    if not entry.rows:
        return fresh
    declared = declared_type(catalog, key)
    source = CommittedTable(folder, entry, declared)
    blobs = [name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB]
    plain = [name for name in fresh.fields if name not in blobs]
    staged: list[Any] = []
    for batch in source.scan(plain):
        columns = raw_columns(batch)
        addresses = columns.pop(ADDRESS)
        columns |= source.blobs(blobs, addresses)
        staged += stage_rows(folder, fresh, arrow_table(declared, columns))
    writer = TableWriter(folder, fresh)
    writer.exchange(staged, ())
    return writer.finish(recount=True)


def _table_key(kind: TypeKind, name: str) -> str:
    return f"{kind.value}:{name}"


def purge_dropped(uri: str, context: WriteContext, *, dry_run: bool = False) -> PurgeResult:
    """Permanently remove dropped data. By design, readers of older versions lose access to the affected tables.

    Raises the same errors as `open_snapshot`; ConflictError `graph_has_branches`, and `graph_conflict` if another
    writer published first; RemoteError `storage_failed`.
    """
    with find_root(uri).lease():
        snapshot = open_snapshot(uri)
        require_no_branches(snapshot)
        base, version = snapshot.manifest, snapshot.manifest.n
        types = [entry for entry in base.dropped if not entry.purged]
        # Earlier column names of the current tables, by table key; a renamed column keeps its number.
        keys = {entry.path: key for key, entry in base.tables.items()}
        lost: dict[str, set[str]] = defaultdict(set)
        for n in line_numbers(snapshot.store):
            manifest = find_manifest(snapshot.store, n)
            for entry in () if manifest is None else manifest.tables.values():
                if (key := keys.get(entry.path)) is not None:
                    now = set(base.tables[key].fields.values())
                    lost[key].update(name for name, number in entry.fields.items() if number not in now)
        properties = {key: tuple(sorted(names)) for key, names in lost.items() if names}
        if not dry_run and (types or properties):
            with hold_lease(snapshot, context):
                tables, gone, catalog = dict(base.tables), [], snapshot.schema().catalog
                for key in sorted(properties):
                    entry = base.tables[key]
                    gone.append(DroppedTable(key, entry.path, entry.version, purged=True))
                    tables[key] = copy_table(snapshot.folder, entry, catalog, key, context.ids)
                version = StagedVersion(
                    snapshot,
                    "migrate",
                    context,
                    purged=[entry.path for entry in (*types, *gone)],
                    tables=tables,
                    dropped=(*(replace(entry, purged=True) for entry in base.dropped), *gone),
                    message="what was dropped is purged",
                ).publish()
    return PurgeResult(dry_run, version, tuple(sorted(entry.key for entry in types)), properties)
