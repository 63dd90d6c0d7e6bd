"""Reads one graph version: a description, rows as JSON values, cells of Blob properties, or all records.

An export contains the records in the format that `load` reads, one JSON object per line. Edge types come before node
types, each in name order; rows are sorted by id. Loading the export in merge or overwrite mode produces an equal graph.
Memory is bounded because large tables are read in id ranges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.results import GraphDescription
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot, unknown_type
from gitops.database.graph.tables import call_driver, declared_type, key_columns, open_table, raw_columns
from gitops.database.graph.values import cell_to_json, compact_json
from gitops.database.graph.write.committed import ADDRESS, CommittedTable, id_range_filter
from gitops.database.language.schema import EdgeType, NodeType, PropType, Scalar
from gitops.database.language.suggest import choices

if TYPE_CHECKING:
    from lance.blob import BlobFile

MAX_ROWS = 10_000


def describe_graph(uri: str, version: int | None = None) -> GraphDescription:
    """Return a version of `main`: its identity, number, digests, and tables with row counts and columns.

    Raises the same errors as `open_snapshot`.
    """
    snapshot = open_snapshot(uri, ReadTarget(version=version))
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


def read_rows(uri: str, type_name: str, limit: int, version: int | None = None) -> list[dict[str, Any]]:
    """Return up to `limit` rows (0 to 10000) of a node or edge type in a version of `main`, sorted by id.

    Each row is an object of JSON values. Raises GitopsError `graph_type_unknown` if that version lacks the type;
    RemoteError `storage_failed`; the errors of `open_snapshot`.
    """
    snapshot = open_snapshot(uri, ReadTarget(version=version))
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
            # Read blobs row by row, because a scan returns only their addresses.
            files = dataset.take_blobs(name, ids=row_ids) if row_ids else []
            cells[name] = [None if file is None else file.readall() for file in files]
        return cells

    shown = call_driver(entry.path, read)
    for name, prop in declared.properties.items():
        shown[name] = [cell_to_json(cell, prop) for cell in shown[name]]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*(shown[name] for name in names), strict=True)]


@dataclass(frozen=True, slots=True)
class BlobCell:
    """One cell of a Blob property. Cells with equal tags have the same bytes, regardless of branch and commit."""

    size: int
    tag: str
    _path: str
    _file: BlobFile

    def read(self, start: int, length: int) -> bytes:
        """Read up to `length` bytes from offset `start`. Raises RemoteError `storage_failed`."""
        within = max(0, min(length, self.size - start))
        return bytes(call_driver(self._path, lambda: self._file.read_range(start, within))) if within else b""


def open_blob(snapshot: Snapshot, key: str, row_id: str, name: str) -> BlobCell | None:
    """Open the cell of a Blob property in one row of a table (`node:T`, `edge:E`).

    Returns None if the row or its cell is missing.

    Raises GitopsError `graph_type_unknown` if the version lacks the table or the Blob property; the errors of
    `open_table`; RemoteError `storage_failed`.
    """
    entry = snapshot.manifest.tables.get(key)
    if entry is None:
        raise unknown_type(f"version {snapshot.manifest.n}", key.partition(":")[2], snapshot.manifest.tables)
    declared = declared_type(snapshot.schema().catalog, key)
    kind = declared.properties.get(name)
    if kind is None or kind.scalar is not Scalar.BLOB:
        blobs = [each for each, kind in declared.properties.items() if kind.scalar is Scalar.BLOB]
        detail = f"{declared.name} has no Blob property {name[:80]!r}{choices(name, blobs)}"
        fix = "choose one of its Blob properties" if blobs else "choose a type that has a property of type Blob"
        raise GitopsError(Code.GRAPH_TYPE_UNKNOWN, detail, path=key, fix=fix)
    if not entry.rows:
        return None
    dataset = open_table(snapshot.folder, entry)
    address = CommittedTable(snapshot.folder, entry, declared, dataset).addresses([row_id]).get(row_id)
    if address is None:
        return None
    (file,) = call_driver(entry.path, lambda: dataset.take_blobs(name, addresses=[address]))
    if file is None:
        return None
    # A table version never changes. The tag is the same for every copy of the graph.
    commit = snapshot.manifest.commit(entry)
    tag = canonical_digest([snapshot.identity.graph_id, entry.path, entry.version, commit, address, name])[:32]
    return BlobCell(file.size(), tag, entry.path, file)


RANGE_BYTES = 16 * 1024 * 1024
"""Approximate bytes of rows that are read together."""

_BLOBS_AT_ONCE = 16
_ROWS_AT_ONCE = 1024
_SAMPLE_ROWS = 1024
_CELL_BYTES = 64


def export_records(snapshot: Snapshot, types: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the snapshot's records without line ends, either all or only those of `types` (`T`, `node:T`, `edge:E`).

    Before the first record, raises GitopsError `graph_type_unknown` for an unknown name, `graph_unreadable` for a table
    that does not open; the errors of `Snapshot.schema`. Later, raises GitopsError `graph_data_invalid` for a number
    that JSON cannot represent; RemoteError `storage_failed`.
    """
    catalog = snapshot.schema().catalog
    keys = sorted(snapshot.manifest.tables)
    if types is not None:
        for each in types:
            if each not in keys and f"node:{each}" not in keys and f"edge:{each}" not in keys:
                raise unknown_type(f"version {snapshot.manifest.n}", each, keys)
        keys = [key for key in keys if key in types or key.partition(":")[2] in types]

    tables = [
        CommittedTable(snapshot.folder, snapshot.manifest.tables[key], declared_type(catalog, key)) for key in keys
    ]
    for table in tables:
        table.open()

    def lines() -> Iterator[str]:
        for table in tables:
            declared = table.declared
            for rows in _read_ranges(table, declared):
                yield from _record_lines(table, declared, rows)

    return lines()


def _read_ranges(table: CommittedTable, declared: NodeType | EdgeType) -> Iterator[pa.Table]:
    """Yield the rows without blobs, sorted by id, range by range."""
    heads = key_columns(declared)
    plain = [name for name, kind in declared.properties.items() if kind.scalar is not Scalar.BLOB]
    width = sum(
        4 * (kind.dimension or 0) if kind.scalar is Scalar.VECTOR else _CELL_BYTES
        for kind in declared.properties.values()
    )
    width += _CELL_BYTES * len(heads)
    # Texts and lists can be longer than the assumed cell size.
    for sample in table.scan([*heads, *plain], limit=_SAMPLE_ROWS):
        width = max(width, sample.nbytes // max(1, sample.num_rows))
    bounds = _range_bounds(table, max(64, RANGE_BYTES // width))
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        batches = list(table.scan([*heads, *plain], id_range_filter(low, high)))
        if batches:
            yield pa.Table.from_batches(batches).sort_by("id")


def _range_bounds(table: CommittedTable, rows: int) -> list[str]:
    """Return ids that split the table into ranges of about this many rows."""
    if table.entry.rows <= rows:
        return []
    # Keep one id every few rows, and place the bounds at equal distances among the sorted ids.
    step = max(1, rows // 16)
    kept: list[str] = []
    seen = 0
    for batch in table.scan(["id"]):
        kept += batch.column("id").slice(-seen % step).to_pylist()[::step] if -seen % step < batch.num_rows else []
        seen += batch.num_rows
    return sorted(kept)[16::16]


def _record_lines(table: CommittedTable, declared: NodeType | EdgeType, rows: pa.Table) -> Iterator[str]:
    blobs = [name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB]
    size = _BLOBS_AT_ONCE if blobs else _ROWS_AT_ONCE
    names = ["id", *declared.properties]
    members = [f"{compact_json(name)}:" for name in names]
    # Nulls are left out, unless a load could compute a vector for a missing one.
    stated = [isinstance(declared, NodeType) and name in declared.embeds for name in names]
    kind_of, type_name = ("edge" if isinstance(declared, EdgeType) else "type"), compact_json(declared.name)
    for start in range(0, rows.num_rows, size):
        cells = raw_columns(rows.slice(start, size))
        if blobs:
            cells.update(table.blobs(blobs, cells[ADDRESS]))
        texts: list[list[str | None]] = [[compact_json(each) for each in cells["id"]]]
        for name, kind in declared.properties.items():
            texts.append(_json_texts(cells[name], kind, f"{declared.name}.{name}"))
        ends = [""] * len(texts[0])
        if kind_of == "edge":
            pairs = zip(cells["src"], cells["dst"], strict=True)
            ends = [f'"from":{compact_json(src)},"to":{compact_json(dst)},' for src, dst in pairs]
        for row, places in zip(zip(*texts, strict=True), ends, strict=True):
            data = ",".join(
                member + ("null" if text is None else text)
                for member, text, always in zip(members, row, stated, strict=True)
                if text is not None or always
            )
            yield f'{{"{kind_of}":{type_name},{places}"data":{{{data}}}}}'


def _json_texts(cells: list[Any], kind: PropType, place: str) -> list[str | None]:
    failure = GitopsError(Code.GRAPH_DATA_INVALID, f"{place} contains a number that JSON cannot represent")
    if kind.scalar is Scalar.VECTOR:
        vectors = [None if cell is None else np.array(cell, np.float32) for cell in cells]
        if not all(each is None or np.isfinite(each).all() for each in vectors):
            raise failure
        # The shortest numbers that give the same 32-bit floats when read back.
        return [None if each is None else f"[{','.join(each.astype('U'))}]" for each in vectors]
    if kind.scalar in (Scalar.F32, Scalar.F64):
        for cell in cells:
            if cell is not None and not all(map(math.isfinite, cell if kind.is_list else [cell])):
                raise failure
    return [None if cell is None else compact_json(cell_to_json(cell, kind)) for cell in cells]
