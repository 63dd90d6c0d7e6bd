"""A graph as records in the format that `load` reads, one JSON object per line.

Edge types come before node types, each in name order; rows come by id. Loading all of it in merge or overwrite mode gives an
equal graph. Memory is bounded: of a large table, one range of ids is read after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.snapshot import Snapshot
from gitops.graph.tables import declared_type, key_columns, raw_columns
from gitops.graph.values import cell_to_json, compact_json
from gitops.graph.write.committed import ADDRESS, CommittedTable
from gitops.graph.write.filters import id_range_filter
from gitops.language.schema import EdgeType, NodeType, PropType, Scalar

__all__ = ["export_records"]

RANGE_BYTES = 16 * 1024 * 1024
"""About so many bytes of rows are read at once."""

_BLOBS_AT_ONCE = 16
_CELL_BYTES = 64


def export_records(snapshot: Snapshot, types: Sequence[str] | None = None) -> Iterator[str]:
    """The records of the snapshot, without line ends; of the types (`T`) and tables (`node:T`, `edge:E`) that are named, or all.

    Raises GitopsError `graph_missing` for a name that the schema does not have, before the first record; `graph_data_invalid`
    for a number that JSON cannot represent; RemoteError `storage_failed`; as `Snapshot.schema`.
    """
    catalog = snapshot.schema().catalog
    keys = sorted(snapshot.manifest.tables)
    if types is not None:
        for each in types:
            if each not in keys and f"node:{each}" not in keys and f"edge:{each}" not in keys:
                raise GitopsError(Code.GRAPH_MISSING, f"version {snapshot.manifest.n} has no type {each[:80]!r}")
        keys = [key for key in keys if key in types or key.partition(":")[2] in types]
    declared = {key: declared_type(catalog, key) for key in keys}
    return _export_tables(snapshot, declared)


def _export_tables(snapshot: Snapshot, tables: dict[str, NodeType | EdgeType]) -> Iterator[str]:
    for key, declared in tables.items():
        table = CommittedTable(snapshot.folder, snapshot.manifest.tables[key], declared)
        for rows in _read_ranges(table, declared):
            yield from _record_lines(table, declared, rows)


def _read_ranges(table: CommittedTable, declared: NodeType | EdgeType) -> Iterator[pa.Table]:
    """The rows but for their blobs, sorted by id, range by range."""
    heads = key_columns(declared)
    plain = [name for name, kind in declared.properties.items() if kind.scalar is not Scalar.BLOB]
    width = sum(
        4 * (kind.dimension or 0) if kind.scalar is Scalar.VECTOR else _CELL_BYTES
        for kind in declared.properties.values()
    )
    bounds = _range_bounds(table, max(64, RANGE_BYTES // (width + _CELL_BYTES * len(heads))))
    for low, high in zip([None, *bounds], [*bounds, None], strict=True):
        batches = list(table.scan([*heads, *plain], id_range_filter(low, high)))
        if batches:
            yield pa.Table.from_batches(batches).sort_by("id")


def _range_bounds(table: CommittedTable, rows: int) -> list[str]:
    """Ids that cut the table into ranges of about so many rows."""
    if table.rows <= rows:
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
    size = _BLOBS_AT_ONCE if blobs else max(1, rows.num_rows)
    for start in range(0, rows.num_rows, size):
        part = rows.slice(start, size)
        cells = raw_columns(part)
        if blobs:
            cells.update(table.blobs(blobs, cells[ADDRESS]))
        texts: dict[str, list[str | None]] = {"id": [_json_text(each) for each in cells["id"]]}
        for name, kind in declared.properties.items():
            texts[name] = _json_texts(cells[name], kind, f"{declared.name}.{name}")
        yield from _assemble(declared, cells, texts)


def _assemble(
    declared: NodeType | EdgeType, cells: dict[str, list[Any]], texts: dict[str, list[str | None]]
) -> Iterator[str]:
    """Records from the texts of their members. A null is left out, but where a load could make a vector in its place."""
    members = [f"{_json_text(name)}:" for name in texts]
    stated = [isinstance(declared, NodeType) and name in declared.embeds for name in texts]
    kind, name = ("edge" if isinstance(declared, EdgeType) else "type"), _json_text(declared.name)
    for at, row in enumerate(zip(*texts.values(), strict=True)):
        data = ",".join(
            member + ("null" if text is None else text)
            for member, text, always in zip(members, row, stated, strict=True)
            if text is not None or always
        )
        ends = f'"from":{_json_text(cells["src"][at])},"to":{_json_text(cells["dst"][at])},' if kind == "edge" else ""
        yield f'{{"{kind}":{name},{ends}"data":{{{data}}}}}'


def _json_texts(cells: list[Any], kind: PropType, place: str) -> list[str | None]:
    if kind.scalar is Scalar.VECTOR:
        return [None if cell is None else _vector_text(cell, place) for cell in cells]
    if kind.scalar in (Scalar.F32, Scalar.F64):
        for cell in cells:
            if cell is not None and not all(map(math.isfinite, cell if kind.is_list else [cell])):
                raise _unrepresentable(place)
    return [None if cell is None else compact_json(cell_to_json(cell, kind)) for cell in cells]


def _vector_text(cell: list[float], place: str) -> str:
    """The shortest numbers that read back the same at 32 bits."""
    numbers = np.array(cell, np.float32)
    if not np.isfinite(numbers).all():
        raise _unrepresentable(place)
    return f"[{','.join(numbers.astype('U'))}]"


def _unrepresentable(place: str) -> GitopsError:
    return GitopsError(Code.GRAPH_DATA_INVALID, f"{place} holds a number that JSON cannot represent")


def _json_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
