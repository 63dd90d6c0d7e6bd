"""Carries out migration steps on one graph's tables without making the result visible.

Free steps except hard drops change only metadata: columns are added as nulls, renamed and dropped without rewriting
data, a dropped type keeps its files, and a renamed type keeps its folder. A converted column is written to new files
beside the others, batch by batch. If a value does not convert, these files are removed. Older graph versions are
unaffected. Vectors are computed by the operator's embedding service.

A new key gives the rows of a type new ids. The ends of its edges are then written again too.

A hard drop removes data permanently. The rest of the table is copied to a new folder, and the old folder, with all
older versions of the table, is removed after the new version is published.

A soft drop leaves the data in older versions. `purge_dropped` reads every kept version of `main`, finds data that is no
longer in the current schema, and publishes one version with the effect of a hard drop. If a table lost a property, the
rest of the table is copied to a new folder, and the old folder is removed with all its versions. Older versions of the
graph remain, but their affected tables can no longer be opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.clock import IdSource
from gitops.core.errors import BugError
from gitops.database.graph import layout
from gitops.database.graph.embedding import Embedder, embed_column
from gitops.database.graph.manifest import DroppedTable, Manifest, TableEntry, find_manifest, line_numbers
from gitops.database.graph.results import PurgeResult
from gitops.database.graph.root import GraphFolder, tables_at_once
from gitops.database.graph.snapshot import Snapshot, find_root, open_snapshot, table_keys
from gitops.database.graph.staged import StagedVersion, WriteContext, hold_lease, require_no_branches
from gitops.database.graph.table_changes import (
    BATCH_ROWS,
    MigratedImage,
    MigratedTable,
    MigratedTables,
    RowsBreakStepError,
    table_changes,
    table_key,
)
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
from gitops.database.graph.write.columns import key_ids
from gitops.database.graph.write.committed import ADDRESS, CommittedTable
from gitops.database.language.schema import Catalog, Scalar, TypeKind
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.steps import ChangeEmbedding, DropProperty, MigrationStep
from gitops.database.storage.parallel import in_parallel

_MADE = "Made"
"""Names of converted columns until they replace the former ones. No property begins with a capital letter."""

_BATCH_NUMBERS = 1 << 22
"""How many numbers of vectors are computed at a time."""


def create_tables(folder: GraphFolder, catalog: Catalog, ids: IdSource) -> dict[str, TableEntry]:
    """Create an empty table for every type in the catalog, each in a separate folder."""
    keys = [*(f"node:{name}" for name in catalog.nodes), *(f"edge:{name}" for name in catalog.edges)]
    return _create_all(folder, catalog, keys, ids)


def migrate_tables(
    folder: GraphFolder,
    manifest: Manifest,
    steps: Iterable[MigrationStep],
    catalog: Catalog,
    ids: IdSource,
    embedder: Embedder | None = None,
) -> tuple[dict[str, TableEntry], tuple[DroppedTable, ...], tuple[str, ...]]:
    """Stage the migration from the tables of `manifest` to the desired `catalog`.

    Returns the tables and tombstones of the next manifest, and the folders to remove after it is published. Raises
    RowsBreakStepError if a value does not convert; ConflictError `graph_conflict`; RemoteError `storage_failed`;
    GitopsError `graph_unreadable`; the errors of `embedder`.
    """
    changes = table_changes(manifest, steps)
    plans, dropped = changes.tables, changes.dropped
    ids_of = {key: _new_ids(folder, manifest, changes, catalog, key) for key, plan in plans.items() if plan.rekeys}
    altered = in_parallel(
        lambda key: _alter_table(
            folder, manifest.tables[plans[key].source], plans[key], _ids(catalog, key, ids_of), embedder
        ),
        plans,
        tables_at_once(folder),
    )
    tables = dict(zip(plans, altered, strict=True))
    for key in [key for key, plan in plans.items() if plan.hard]:
        dropped.append(DroppedTable(key, tables[key].path, tables[key].version, purged=True))
        tables[key] = copy_table(folder, tables[key], catalog, key, ids)
    tables |= _create_all(folder, catalog, changes.added, ids)
    # The tables must have exactly the columns of the catalog; otherwise the published graph would not open.
    types = {key: declared_type(catalog, key) for key in table_keys(catalog)}
    wanted = {key: {*key_columns(declared), *declared.properties} for key, declared in types.items()}
    found = {key: set(entry.fields) for key, entry in tables.items()}
    if found != wanted:
        odd = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
        raise BugError(f"after the migration the columns of {odd[0]} are not those of the schema")
    purged = tuple(entry.path for entry in dropped[len(manifest.dropped) :] if entry.purged)
    return tables, tuple(dropped), purged


_NewIds = tuple[pa.Array, pa.Array]
"""The former and the new ids of a type's rows, in the same order."""


def _new_ids(folder: GraphFolder, manifest: Manifest, changes: MigratedTables, catalog: Catalog, key: str) -> _NewIds:
    """Return the ids that follow from a type's desired key."""
    declared = catalog.nodes[key.partition(":")[2]]
    names = declared.key or ()
    image = MigratedImage(folder, manifest.tables, changes, catalog)
    kinds = {"id": pa.string()} | {name: arrow_field(name, declared.properties[name]).type for name in names}
    batches = list(image.batches(key, list(kinds)))
    cells = {
        name: pa.concat_arrays([rows.column(name) for rows in batches] or [pa.array([], kind)])
        for name, kind in kinds.items()
    }
    return cells["id"], key_ids(declared, names, cells)


def _ids(catalog: Catalog, key: str, ids_of: Mapping[str, _NewIds]) -> Mapping[str, _NewIds]:
    """Return the new ids by column of a table: its own, or those of an edge's ends."""
    kind, _, name = key.partition(":")
    if kind == TypeKind.NODE.value:
        return {"id": ids_of[key]} if key in ids_of else {}
    edge = catalog.edges[name]
    ends = {"src": f"node:{edge.source}", "dst": f"node:{edge.target}"}
    return {column: ids_of[end] for column, end in ends.items() if end in ids_of}


def _alter_table(
    folder: GraphFolder,
    entry: TableEntry,
    plan: MigratedTable,
    new_ids: Mapping[str, _NewIds],
    embedder: Embedder | None,
) -> TableEntry:
    """Change a table, with one version per kind of change.

    Converted columns are made before drops, which free a name before it is reused.
    """
    if not (plan.drops or plan.renames or plan.adds or plan.changes or plan.embeds or new_ids):
        return entry
    writer = TableWriter(folder, entry)
    kinds = {each.property_name: each.to for each in plan.rewrites}
    kinds |= {each.property_name: each.property_type for each in plan.fills}
    vectors = {each.property_name: each.to for each in plan.embeds}
    made = {name: f"{_MADE}{at}" for at, name in enumerate([*kinds, *vectors, *new_ids])}
    if made:
        fields = [arrow_field(made[name], kind) for name, kind in (kinds | vectors).items()]
        keyed = {name: writer.dataset.schema.field(name) for name in new_ids}
        fields += [
            pa.field(made[name], field.type, nullable=False, metadata=field.metadata) for name, field in keyed.items()
        ]
        schema = pa.schema(fields)

        def make(rows: pa.RecordBatch) -> pa.RecordBatch:
            columns = plan.columns(rows, list(kinds), strict=True)
            columns += [_embedded(rows, plan, each, embedder) for each in plan.embeds]
            columns += [new.take(pc.index_in(rows.column(name), old)) for name, (old, new) in new_ids.items()]
            return pa.RecordBatch.from_arrays(columns, schema=schema)

        former = [plan.accepted_name(each.property_name) for each in plan.rewrites]
        new = {each.property_name for each in plan.adds}
        sources = {plan.accepted_name(each.source) for each in plan.embeds if each.source and each.source not in new}
        largest = max((kind.dimension or 1 for kind in vectors.values()), default=1)
        # A scan without columns has no rows.
        read = list(dict.fromkeys([*former, *sorted(sources), *new_ids])) or ["id"]
        writer.add_columns(schema, make, read, max(1, min(BATCH_ROWS, _BATCH_NUMBERS // largest)))
        plan.drops.extend([*former, *map(plan.accepted_name, vectors), *new_ids])
    if plan.drops:
        writer.change(lambda dataset: dataset.drop_columns(plan.drops))
    altered: list[Any] = [{"path": old, "name": new} for old, new in plan.renames.items() if old not in plan.drops]
    altered += [{"path": column, "name": name} for name, column in made.items()]
    if altered:
        writer.change(lambda dataset: dataset.alter_columns(*altered))
    loosened: list[Any] = [
        {"path": each.property_name, "nullable": each.to.nullable}
        for each in plan.changes
        if not each.rewrites and each.from_.nullable is not each.to.nullable
    ]
    if loosened:
        writer.change(lambda dataset: dataset.alter_columns(*loosened))
    empty = [each for each in plan.adds if each not in plan.fills]
    if empty:
        writer.add_empty_columns([arrow_field(each.property_name, each.property_type) for each in empty])
    return writer.finish(recount=False) if made or plan.drops or altered or loosened or empty else entry


def _embedded(rows: pa.RecordBatch, plan: MigratedTable, step: ChangeEmbedding, embedder: Embedder | None) -> pa.Array:
    """Return the vectors of the texts that the rows have after the migration."""
    (texts,) = plan.columns(rows, [step.source or ""], strict=True)
    if texts.null_count and not step.to.nullable:
        raise RowsBreakStepError
    if embedder is None:
        raise BugError("a migration computes vectors without an embedding service")
    return embed_column(embedder, texts, arrow_field("vectors", step.to).type, step.model)


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


def _dropped_properties(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Return the properties that migrations dropped from tables that are still there, by current table key.

    A conversion and new ids also replace a column, but drop no property. A renamed column keeps its number.
    """
    base, lost = snapshot.manifest, defaultdict[str, set[str]](set)
    keys = {entry.path: key for key, entry in base.tables.items()}
    later, after = base, snapshot.schema().ir
    for n in line_numbers(snapshot.store):
        earlier = find_manifest(snapshot.store, n) if n < base.n else None
        if earlier is None:
            continue
        before = after if earlier.schema_ir == later.schema_ir else replace(snapshot, manifest=earlier).schema().ir
        fields = {entry.path: entry.fields for entry in earlier.tables.values()}
        for step in plan_migration(before, after).steps if before is not after else ():
            if isinstance(step, DropProperty) and step.type_kind is not TypeKind.INTERFACE:
                path = later.tables[table_key(step.type_kind, step.type_name)].path
                if path in keys and fields[path][step.property_name] not in base.tables[keys[path]].fields.values():
                    lost[keys[path]].add(step.property_name)
        later, after = earlier, before
    return {key: tuple(sorted(names)) for key, names in lost.items()}


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
        properties = _dropped_properties(snapshot)
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
