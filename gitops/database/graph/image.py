"""Checks graph-wide rules: ids and unique groups are unique, edge ends exist, and cardinalities are in bounds.

Each violation identifies its row. Tables are read column by column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.results import RowProblem
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.tables import DRIVER_ERRORS, declared_type, key_columns, open_table, raw_columns
from gitops.database.graph.write.keys import hash_rows
from gitops.database.graph.write.rules import (
    cardinality_violation,
    find_mismatches,
    node_id,
    row_faults,
    unique_violation,
)
from gitops.database.language.schema import Catalog, EdgeType, NodeType, RangeBound, Scalar

_SHOWN = 80
_EXACT = 2**53


class GraphImage:
    """Tables at given versions, published or not. Every method raises the errors of `open_table`, and RemoteError."""

    def __init__(self, folder: GraphFolder, tables: Mapping[str, TableEntry], catalog: Catalog) -> None:
        self._folder = folder
        self._tables = tables
        self._catalog = catalog

    def declared(self, key: str) -> NodeType | EdgeType:
        """Return a table's type."""
        return declared_type(self._catalog, key)

    def duplicate_ids(self, key: str) -> Iterator[RowProblem]:
        """Return the ids that more than one row has."""
        for (row_id,), _ in self._repeated(key, ("id",)):
            yield RowProblem(key, row_id, "DuplicateId", "id", f"id {row_id[:_SHOWN]!r} occurs more than once")

    def unique(self, key: str, declared: NodeType | EdgeType | None = None) -> Iterator[RowProblem]:
        """Return rows that share a unique group's values with another row. Rows with a null member are exempt.

        `declared` replaces the table's type, to check only some of its groups.
        """
        declared = self.declared(key) if declared is None else declared
        for group in declared.unique:
            for values, row_ids in self._repeated(key, group):
                detail = unique_violation(declared, group, values)
                for row_id in row_ids:
                    yield RowProblem(key, row_id, "UniqueViolation", ", ".join(group), detail)

    def orphans(self, key: str) -> Iterator[RowProblem]:
        """Return the edges with a missing end."""
        edge = self._edge(key)
        batches = list(self._batches(key, ["id", "src", "dst"]))
        edges = pa.Table.from_batches(batches) if batches else None
        for column, owner in (("src", edge.source), ("dst", edge.target)):
            if edges is None:
                return
            # One lookup for all edges: each lookup hashes the set of known ids again.
            known = self._column(f"node:{owner}", "id")
            lost = edges.filter(pc.invert(pc.is_in(edges.column(column).combine_chunks(), known)))
            for row_id, end in zip(lost.column("id").to_pylist(), lost.column(column).to_pylist(), strict=True):
                detail = f"edge {edge.name}: {column} {end[:_SHOWN]!r} not found in {owner}"
                yield RowProblem(key, row_id, "OrphanEdge", column, detail)

    def cardinality(self, key: str) -> Iterator[RowProblem]:
        """Return the sources with too few or too many edges. Sources without edges are not checked."""
        edge = self._edge(key)
        low, high = edge.cardinality
        if (low, high) == (0, None):
            return
        counts = self._column(key, "src").value_counts()
        for source, count in sorted(
            zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)
        ):
            if count < low or (high is not None and count > high):
                detail = cardinality_violation(edge, source, count)
                yield RowProblem(key, source, "CardinalityViolation", "src", detail)

    def values(self, key: str, declared: NodeType | EdgeType | None = None) -> Iterator[RowProblem]:
        """Return rows that violate a single-row rule, and rows whose id differs from the one made from their key.

        `declared` replaces the table's type, to check only some of its rules.
        """
        declared = self.declared(key) if declared is None else declared
        blobs = [name for name, kind in declared.properties.items() if kind.scalar is Scalar.BLOB]
        for batch in self._batches(
            key, [*key_columns(declared), *(name for name in declared.properties if name not in blobs)]
        ):
            cells = raw_columns(batch.filter(unchecked_rows(declared, batch)))
            for row in (dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)):
                # The only rule for a blob is that it exists. A scan cannot check that, but the driver does.
                yield from row_violations(key, declared, row | dict.fromkeys(blobs, b""))

    def _edge(self, key: str) -> EdgeType:
        return self._catalog.edges[key.partition(":")[2]]

    def _repeated(self, key: str, group: Sequence[str]) -> Iterator[tuple[tuple[Any, ...], list[str]]]:
        """Return the duplicate values of a group of columns, with the ids of their rows.

        Hashes show which rows may have duplicates, so that only these are compared.
        """
        kinds, names = self.declared(key).properties, list(dict.fromkeys(group))
        if any(name in kinds and (kinds[name].is_list or kinds[name].scalar is Scalar.VECTOR) for name in group):
            repeated = None
        else:
            repeated = self._repeated_hashes(key, names)
            if not repeated.size:
                return
        owners: dict[tuple[Any, ...], list[str]] = {}
        for row_id, *members in self._tuples(key, ("id", *group), repeated):
            if None not in members:
                owners.setdefault(tuple(members), []).append(row_id)
        yield from sorted(((values, ids) for values, ids in owners.items() if len(ids) > 1), key=lambda each: each[1])

    def _repeated_hashes(self, key: str, names: Sequence[str]) -> np.ndarray[Any, Any]:
        """Return the hashes that several rows without nulls have, in ascending order."""
        hashes, end = np.empty(self._tables[key].rows if key in self._tables else 0, np.uint64), 0
        for batch in self._batches(key, names):
            rows = pa.Table.from_batches([batch]).drop_null()
            found = hash_rows([column.combine_chunks() for column in rows.columns])
            hashes[end : end + found.size] = found
            end += found.size
        hashes = hashes[:end]
        hashes.sort()
        return np.unique(hashes[1:][hashes[1:] == hashes[:-1]])

    def _tuples(
        self, key: str, names: Sequence[str], hashes: np.ndarray[Any, Any] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of some columns. With `hashes`, only rows without nulls whose columns after the first have one."""
        for batch in self._batches(key, list(dict.fromkeys(names))):
            rows = pa.Table.from_batches([batch])
            if hashes is not None:
                rows = rows.drop_null()
                found = hash_rows([rows.column(name).combine_chunks() for name in dict.fromkeys(names[1:])])
                rows = rows.filter(pa.array(np.isin(found, hashes)))
            columns = raw_columns(rows)
            lists = [[tuple(c) if isinstance(c, list) else c for c in columns[name]] for name in names]
            yield from zip(*lists, strict=True)

    def _column(self, key: str, name: str) -> pa.Array:
        parts = [batch.column(name) for batch in self._batches(key, [name])]
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def _batches(self, key: str, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        entry = self._tables[key]
        if not entry.rows:
            return
        try:
            yield from open_table(self._folder, entry).scanner(columns=list(names)).to_batches()
        except DRIVER_ERRORS as error:
            raise RemoteError(Code.STORAGE_FAILED, f"table {entry.path} is not readable") from error


def unchecked_rows(declared: NodeType | EdgeType, batch: pa.RecordBatch) -> pa.Array:
    """Return the rows to check one by one, because the columns do not prove that they satisfy every rule.

    Numbers are compared by column only if the bound has the column's type, because other comparisons are inexact.
    """
    mask = pa.array(np.zeros(batch.num_rows, bool))
    for name, kind in declared.properties.items():
        if kind.scalar is not Scalar.BLOB and not kind.nullable:
            mask = pc.or_(mask, pc.is_null(batch.column(name)))
        if kind.enum_values is not None:
            odd = pc.invert(pc.is_in(batch.column(name), pa.array(kind.enum_values, pa.string())))
            known = None if kind.is_list else pc.and_(odd, pc.is_valid(batch.column(name)))
            mask = pc.or_(mask, pc.is_valid(batch.column(name)) if known is None else known)
    if not isinstance(declared, NodeType):
        return mask
    for bound in declared.ranges:
        mask = pc.or_(mask, _out_of_range(batch.column(bound.property_name), bound))
    for check in declared.checks:
        odd = np.zeros(batch.num_rows, bool)
        odd[find_mismatches(check, batch.column(check.property_name))] = True
        mask = pc.or_(mask, pa.array(odd))
    if declared.key is not None:
        own = batch.column(declared.key[0])
        simple = len(declared.key) == 1 and pa.types.is_string(own.type)
        odd = pc.fill_null(pc.not_equal(own, batch.column("id")), fill_value=True) if simple else pc.is_valid(own)
        mask = pc.or_(mask, odd)
    return mask


def _out_of_range(column: pa.Array, bound: RangeBound) -> pa.Array:
    # Most often the lowest and the highest number are within the range. Python compares them exactly.
    lowest, highest = (end.as_py() for end in pc.min_max(column).values())
    if lowest is None or ((bound.low is None or lowest >= bound.low) and (bound.high is None or highest <= bound.high)):
        return pa.array(np.zeros(len(column), bool))
    ends = [end for end in (bound.low, bound.high) if end is not None]
    if not all(isinstance(end, int) == pa.types.is_integer(column.type) and abs(end) < _EXACT for end in ends):
        return pc.is_valid(column)
    if pa.types.is_unsigned_integer(column.type) and min(ends, default=0) < 0:
        return pc.is_valid(column)
    # The widest type for an exact comparison; an unsigned number may not fit a signed type.
    whole = pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64()
    mask = pa.array(np.zeros(len(column), bool))
    for end, compare in ((bound.low, pc.greater_equal), (bound.high, pc.less_equal)):
        if end is not None:
            within = compare(column, pa.scalar(end, whole if isinstance(end, int) else pa.float64()))
            mask = pc.or_(mask, pc.fill_null(pc.invert(within), fill_value=False))
    return mask


def row_violations(key: str, declared: NodeType | EdgeType, row: Mapping[str, Any]) -> Iterator[RowProblem]:
    """Return one row's violations of single-row rules."""
    for fault in row_faults(declared, row):
        # Messages begin with the property, such as `T.p`.
        named = next((name for name in declared.properties if f"{declared.name}.{name}" in fault), "")
        yield RowProblem(key, row["id"], "ValueConstraintViolation", named, fault)
    if not isinstance(declared, NodeType) or any(row[name] is None for name in declared.key or ()):
        return
    own = node_id(declared, row)
    if own is not None and own != row["id"]:
        detail = f"the key of {declared.name} requires the id {own[:_SHOWN]!r}"
        yield RowProblem(key, row["id"], "ValueConstraintViolation", "id", detail)
