"""One version of a graph for people: a description, rows as JSON values, and the list of versions."""

from __future__ import annotations

from typing import Any

from gitops.database.graph.history.datasets import call_driver
from gitops.database.graph.results import GraphDescription
from gitops.database.graph.snapshot import ReadTarget, open_snapshot, unknown_type
from gitops.database.graph.tables import declared_type, key_columns, open_table, raw_columns
from gitops.database.graph.values import cell_to_json
from gitops.database.language.schema import Scalar

__all__ = ["describe_graph", "read_rows"]

MAX_ROWS = 10_000


def describe_graph(uri: str, version: int | None = None, *, target: ReadTarget | None = None) -> GraphDescription:
    """Identity, version, digests, and each table with its rows and columns, at a version of `main` or at a target.

    Raises as `open_snapshot`.
    """
    snapshot = open_snapshot(uri, target or ReadTarget(version=version))
    manifest, catalog = snapshot.manifest, snapshot.schema().catalog
    tables = {}
    for key in sorted(manifest.tables):
        columns = {name: str(kind) for name, kind in declared_type(catalog, key).properties.items()}
        tables[key] = {"rows": manifest.tables[key].rows, "columns": columns}
    return GraphDescription(
        graph_id=snapshot.identity.graph_id,
        created_at=snapshot.identity.created_at,
        branch=snapshot.branch,
        commit=manifest.txn_id,
        manifest_version=manifest.n,
        schema_digest=manifest.schema_source,
        tables=tables,
        dropped=tuple(entry.key for entry in manifest.dropped),
    )


def read_rows(
    uri: str, type_name: str, limit: int, version: int | None = None, *, target: ReadTarget | None = None
) -> list[dict[str, Any]]:
    """At most `limit` rows (0 to 10000) of a node or edge type, by id, at a version of `main` or at a target.

    Each is an object of JSON values. Raises GitopsError `graph_type_unknown` when that version has no such type; RemoteError
    `storage_failed`; and as `open_snapshot`.
    """
    snapshot = open_snapshot(uri, target or ReadTarget(version=version))
    catalog = snapshot.schema().catalog
    declared = catalog.nodes.get(type_name) or catalog.edge(type_name)
    if declared is None:
        raise unknown_type(f"version {snapshot.manifest.n}", type_name, snapshot.manifest.tables, path=uri)
    kind = "node" if type_name in catalog.nodes else "edge"
    entry = snapshot.manifest.tables[f"{kind}:{declared.name}"]
    dataset = open_table(snapshot.folder, entry)
    names, most = [*key_columns(declared), *declared.properties], max(0, min(limit, MAX_ROWS))
    if not most:
        return []
    blobs = [name for name, prop in declared.properties.items() if prop.scalar is Scalar.BLOB]

    def read() -> dict[str, list[Any]]:
        plain = [name for name in names if name not in blobs]
        cells = raw_columns(dataset.scanner(columns=plain, order_by=["id"], limit=most, with_row_id=True).to_table())
        row_ids = cells.pop("_rowid")
        for name in blobs:
            # By row: a scan gives only the addresses of blobs.
            files = dataset.take_blobs(name, ids=row_ids) if row_ids else []
            cells[name] = [None if file is None else file.readall() for file in files]
        return cells

    shown = call_driver(entry.path, read)
    for name, prop in declared.properties.items():
        shown[name] = [cell_to_json(cell, prop) for cell in shown[name]]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*(shown[name] for name in names), strict=True)]
