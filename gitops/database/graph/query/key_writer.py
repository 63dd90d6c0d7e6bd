"""Writes key files from a table's columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from gitops.core.errors import GitopsError
from gitops.database.graph.files import version_digest
from gitops.database.graph.query.by_key import KeyLookup
from gitops.database.graph.query.key_file import (
    FORMATS,
    MAX_BYTES,
    KeyFileHeader,
    KeyFolder,
    StoredColumn,
    key_file_name,
    key_hash,
)
from gitops.database.graph.query.options import Budget, QueryOptions
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.tables import DRIVER_ERRORS, open_table, raw_columns
from gitops.database.language.query import CheckedQuery
from gitops.database.language.schema import NodeType, PropType, Scalar

# How often the rows of a file are in memory while it is written, at most.
_COPIES = 4


def note_read_by_key(snapshot: Snapshot, query: CheckedQuery, params: object, options: QueryOptions) -> None:
    """After a query that Lance answered, create a key file if the query could use one and the version was read before.

    The first query of a table version only leaves a note, because a file costs about as much as it saves once. An older
    version never replaces a newer one. Nothing is written if this needs more memory than the query may use. Failures
    are ignored.
    """
    with contextlib.suppress(GitopsError, *DRIVER_ERRORS):
        if options.cache_dir is None or not Budget(None, options.memory_bytes).affords(_COPIES * MAX_BYTES):
            return
        wanted = KeyLookup.of(snapshot, query, params, options)
        if wanted is None:
            return
        declared = snapshot.schema().catalog.nodes[wanted.table.partition(":")[2]]
        table = version_digest(snapshot, snapshot.manifest.tables[wanted.table])
        if table is None or declared.key != (wanted.key,):
            return
        folder, name = KeyFolder(options.cache_dir), key_file_name(snapshot, wanted.table)
        known = folder.header(name)
        if known is None or (known.table != table and known.n <= snapshot.manifest.n):
            folder.write(KeyFileHeader(name, snapshot.manifest.n, table, wanted.key))
        elif known.table == table and known.columns is None and not known.too_large:
            folder.write(*_made(snapshot, declared, KeyFileHeader(name, snapshot.manifest.n, table, wanted.key)))


def _made(snapshot: Snapshot, declared: NodeType, header: KeyFileHeader) -> tuple[KeyFileHeader, bytes]:
    """Return the header and the pages of a table's key file, or a header that says that the table is too large."""
    kinds = {"id": PropType(Scalar.STRING), **declared.properties}
    kinds = {name: kind for name, kind in kinds.items() if kind.scalar is Scalar.STRING or kind.scalar in FORMATS}
    rows = _whole(snapshot, f"node:{declared.name}", list(kinds))
    key, kind = header.key, kinds[header.key]
    if rows is None or not rows.num_rows:
        return replace(header, too_large=True), b""
    hashes = np.array([key_hash(cell, kind) for cell in raw_columns(rows.select([key]))[key]], "<u8")
    order = np.argsort(hashes)
    body = [hashes[order].tobytes()]
    size = len(body[0])
    columns: dict[str, StoredColumn] = {}
    for name, each in kinds.items():
        cells = _array(rows.column(name)).take(pa.array(order))
        parts = []
        for part in _parts(cells, each):
            parts.append((size, len(part)))
            body.append(part)
            size += len(part)
        columns[name] = StoredColumn(each.scalar, each.is_list, tuple(parts))
    return (
        (replace(header, rows=len(order), columns=columns), b"".join(body))
        if size <= MAX_BYTES
        else (replace(header, too_large=True), b"")
    )


def _whole(snapshot: Snapshot, key: str, columns: Sequence[str]) -> pa.Table | None:
    """Read whole columns of a table; None if they are larger than a file may be."""
    entry = snapshot.manifest.tables[key]
    opened = open_table(snapshot.folder, entry)
    batches, size = [], 0
    for batch in opened.scanner(columns=list(columns)).to_reader():
        batches.append(batch)
        size += batch.nbytes
        if size > MAX_BYTES:
            return None
    return pa.Table.from_batches(batches, pa.schema([opened.schema.field(name) for name in columns]))


def _array(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)


def _parts(cells: pa.Array, kind: PropType) -> Iterator[bytes]:
    """Yield the parts of a column, as `key_file` describes them."""
    yield _valid(cells)
    if kind.is_list:
        offsets = np.asarray(cells.offsets)
        yield (offsets - offsets[:1]).astype("<u4").tobytes()
        cells = cells.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        yield _valid(cells)
    yield from _texts(cells) if kind.scalar is Scalar.STRING else [_numbers(cells, FORMATS[kind.scalar])]


def _valid(cells: pa.Array) -> bytes:
    return np.asarray(cells.is_valid()).astype(np.uint8).tobytes()


def _texts(cells: pa.StringArray) -> Iterator[bytes]:
    if not len(cells):
        yield from (bytes(4), b"")
        return
    _, offsets, data = cells.fill_null("").buffers()
    bounds = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    yield (bounds - bounds[:1]).astype("<u4").tobytes()
    yield b"" if data is None else data.slice(int(bounds[0]), int(bounds[-1] - bounds[0])).to_pybytes()


def _numbers(cells: pa.Array, form: str) -> bytes:
    raw = {pa.date32(): pa.int32(), pa.date64(): pa.int64()}.get(cells.type)
    plain = cells if raw is None else cells.cast(raw)
    return np.asarray(plain.fill_null(False if form == "?" else 0)).astype(np.dtype(f"<{form}")).tobytes()
