"""A graph as records in the format that `load` reads, one JSON object per line.

Edge types come before node types, each in name order; rows come by id. Loading all of it in merge or overwrite mode gives an
equal graph. Memory is bounded: of a large table, one range of ids is read after the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.snapshot import Snapshot, unknown_type
from gitops.database.graph.tables import declared_type, key_columns, raw_columns
from gitops.database.graph.values import cell_to_json, compact_json
from gitops.database.graph.write.committed import ADDRESS, CommittedTable
from gitops.database.graph.write.filters import id_range_filter
from gitops.database.language.schema import EdgeType, NodeType, PropType, Scalar

__all__ = ["export_records"]

RANGE_BYTES = 16 * 1024 * 1024
"""About so many bytes of rows are read at once."""

_BLOBS_AT_ONCE = 16
_ROWS_AT_ONCE = 1024
_SAMPLE_ROWS = 1024
_CELL_BYTES = 64


def export_records(snapshot: Snapshot, types: Sequence[str] | None = None) -> Iterator[str]:
    """The records of the snapshot, without line ends; of the types (`T`) and tables (`node:T`, `edge:E`) that are named, or all.

    Raises before the first record: GitopsError `graph_type_unknown` for a name that the schema does not have, `graph_unreadable`
    for a table that does not open; as `Snapshot.schema`. Later: GitopsError `graph_data_invalid` for a number that JSON cannot
    represent; RemoteError `storage_failed`.
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
    """The rows but for their blobs, sorted by id, range by range."""
    heads = key_columns(declared)
    plain = [name for name, kind in declared.properties.items() if kind.scalar is not Scalar.BLOB]
    width = sum(
        4 * (kind.dimension or 0) if kind.scalar is Scalar.VECTOR else _CELL_BYTES
        for kind in declared.properties.values()
    )
    width += _CELL_BYTES * len(heads)
    # Texts and lists may be longer than a cell is taken to be.
    for sample in table.scan([*heads, *plain], limit=_SAMPLE_ROWS):
        width = max(width, sample.nbytes // max(1, sample.num_rows))
    bounds = _range_bounds(table, max(64, RANGE_BYTES // width))
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        batches = list(table.scan([*heads, *plain], id_range_filter(low, high)))
        if batches:
            yield pa.Table.from_batches(batches).sort_by("id")


def _range_bounds(table: CommittedTable, rows: int) -> list[str]:
    """Ids that cut the table into ranges of about so many rows."""
    if table.entry.rows <= rows:
        return []
    # Every few rows one id is kept; among these, sorted, the cuts are at equal distances.
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
    # A null is left out, but where a load could make a vector in its place.
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
    failure = GitopsError(Code.GRAPH_DATA_INVALID, f"{place} holds a number that JSON cannot represent")
    if kind.scalar is Scalar.VECTOR:
        vectors = [None if cell is None else np.array(cell, np.float32) for cell in cells]
        if not all(each is None or np.isfinite(each).all() for each in vectors):
            raise failure
        # The shortest numbers that read back the same at 32 bits.
        return [None if each is None else f"[{','.join(each.astype('U'))}]" for each in vectors]
    if kind.scalar in (Scalar.F32, Scalar.F64):
        for cell in cells:
            if cell is not None and not all(map(math.isfinite, cell if kind.is_list else [cell])):
                raise failure
    return [None if cell is None else compact_json(cell_to_json(cell, kind)) for cell in cells]
