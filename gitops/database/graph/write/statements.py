"""The statements of a mutation, one after the other, on the rows of a snapshot and what earlier ones changed (§4.3 to §4.6).

What a mutation has changed so far are rows by id that take the place of the committed ones, and rows that are gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from gitops.core.clock import IdSource
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.manifest import TableEntry
from gitops.database.graph.root import GraphFolder
from gitops.database.graph.search.embedding import Embedder
from gitops.database.graph.tables import raw_columns
from gitops.database.graph.write.committed import ADDRESS, CommittedTable
from gitops.database.graph.write.filters import NEVER, comparison_filter, comparison_holds
from gitops.database.graph.write.operands import Operands, mutation_error
from gitops.database.graph.write.rules import embed_rows, node_id, row_faults
from gitops.database.language.query import ComparisonOperator
from gitops.database.language.query.typed import (
    Assignment,
    Predicate,
    TypedDelete,
    TypedInsert,
    TypedStatement,
    TypedUpdate,
)
from gitops.database.language.schema import Catalog, EdgeType, NodeType, Scalar, TypeKind

__all__ = ["GraphChanges", "MutationRun", "TableChanges"]

MAX_ENTITIES = 8192
"""Most rows that one mutation writes to one table."""

MAX_BYTES = 32 * 1024 * 1024
"""Most bytes of cells that one mutation writes to one table."""

_FIXED_BYTES = 8

_ENDS = {"from": "src", "to": "dst"}
Row = dict[str, Any]


@dataclass(slots=True)
class TableChanges:
    """The changes of one table.

    `written` has whole rows by id. `gone` has the addresses of deleted rows by id. `replaced` has the addresses of the
    committed rows that written ones are known to replace; an id of `new` is known to replace none.
    """

    declared: NodeType | EdgeType
    committed: CommittedTable
    written: dict[str, dict[str, Any]] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    new: set[str] = field(default_factory=set)
    bytes: int = 0

    @property
    def touched(self) -> bool:
        """Whether there is any change."""
        return bool(self.written or self.gone)

    def write(self, row_id: str, row: dict[str, Any]) -> None:
        """Put a whole row. Raises GitopsError `resource_limit`."""
        self.bytes += sum(map(_size, row.values())) - sum(map(_size, self.written.get(row_id, {}).values()))
        self.written[row_id] = row
        name = self.declared.name
        if len(self.written) > MAX_ENTITIES:
            raise GitopsError(Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_ENTITIES} rows of {name}")
        if self.bytes > MAX_BYTES:
            raise GitopsError(Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_BYTES} bytes to {name}")

    def replaced_addresses(self) -> dict[str, int]:
        """The addresses of the committed rows that written ones replace."""
        unknown = self.written.keys() - self.replaced.keys() - self.new
        self.replaced.update(self.committed.addresses(unknown))
        self.new.update(unknown - self.replaced.keys())
        return self.replaced


@dataclass(slots=True)
class GraphChanges:
    """The changes of all tables, made as they are asked for; `entries` are the committed tables by key."""

    folder: GraphFolder
    entries: Mapping[str, TableEntry]
    catalog: Catalog
    _tables: dict[str, TableChanges] = field(default_factory=dict)

    def node(self, name: str) -> TableChanges:
        """The changes of a node type."""
        return self._table(f"node:{name}", self.catalog.nodes[name])

    def edge(self, name: str) -> TableChanges:
        """The changes of an edge type."""
        return self._table(f"edge:{name}", self.catalog.edges[name])

    def touched(self) -> dict[str, TableChanges]:
        """The tables with a change, by key, in key order."""
        return {key: self._tables[key] for key in sorted(self._tables) if self._tables[key].touched}

    def _table(self, key: str, declared: NodeType | EdgeType) -> TableChanges:
        if key not in self._tables:
            self._tables[key] = TableChanges(declared, CommittedTable(self.folder, self.entries[key], declared))
        return self._tables[key]


def _size(cell: Any) -> int:
    """Bytes that a column needs for the cell, near enough."""
    if isinstance(cell, str | bytes):
        return len(cell)
    return _FIXED_BYTES if not isinstance(cell, list) else sum(map(_size, cell))


@dataclass(slots=True)
class MutationRun:
    """One run of a mutation: `changes` grow from statement to statement, and the counts with them.

    `ends` has the node ids that inserted edges need at the snapshot, by node type, each with the edge type and the column that
    asked first. `sources` has the nodes whose number of edges changes, by edge type.
    """

    catalog: Catalog
    changes: GraphChanges
    operands: Operands
    ids: IdSource
    embedder: Embedder | None = None
    nodes: int = 0
    edges: int = 0
    ends: dict[str, dict[str, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    sources: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def run(self, statement: TypedStatement) -> None:
        """Carry out one statement. Raises GitopsError `mutation_invalid`, `resource_limit`; as reading the tables."""
        if isinstance(statement, TypedUpdate):
            self._update(statement)
        elif isinstance(statement, TypedDelete):
            self._delete(statement)
        elif statement.kind is TypeKind.EDGE:
            self._insert_edge(statement)
        else:
            self._insert_node(statement)

    def _insert_node(self, statement: TypedInsert) -> None:
        declared = self.catalog.nodes[statement.type_name]
        row: Row = dict.fromkeys(declared.properties)
        given = self._assigned(declared, statement.assignments)
        row.update(given)
        embed_rows(declared, [row], [given], self.embedder)
        _check(declared, row)
        table = self.changes.node(declared.name)
        own = node_id(declared, row)
        if own is None:
            own = self.ids.ulid()
            table.new.add(own)
        table.write(own, {"id": own, **row})
        self.nodes += 1

    def _insert_edge(self, statement: TypedInsert) -> None:
        declared = self.catalog.edges[statement.type_name]
        row: Row = {"id": self.ids.ulid(), "src": None, "dst": None, **dict.fromkeys(declared.properties)}
        row.update(self._assigned(declared, statement.assignments))
        _check(declared, row)
        for column, owner in (("src", declared.source), ("dst", declared.target)):
            if row[column] is None:
                raise mutation_error(f"edge {declared.name}: {column} is null")
            if row[column] not in self.changes.node(owner).written:
                self.ends[owner].setdefault(row[column], (declared.name, column))
        table = self.changes.edge(declared.name)
        table.new.add(row["id"])
        table.write(row["id"], row)
        self.sources[declared.name].add(row["src"])
        self.edges += 1

    def _update(self, statement: TypedUpdate) -> None:
        declared = self.catalog.nodes[statement.type_name]
        for each in statement.assignments:
            if each.name in (declared.key or ()):
                raise mutation_error(
                    f"cannot update @key property {declared.name}.{each.name}; delete the node, insert another"
                )
        values = self._assigned(declared, statement.assignments)
        table = self.changes.node(declared.name)
        column, sign, operand = self._comparison(declared, statement.predicate)
        found = {row["id"]: row for row in table.written.values() if comparison_holds(row[column], sign, operand)}
        found |= self._committed_rows(table, statement.predicate)
        for row_id in sorted(found):
            row = found[row_id] | values
            _check(declared, row)
            table.write(row_id, row)
        self.nodes += len(found)

    def _committed_rows(self, table: TableChanges, predicate: Predicate) -> dict[str, Row]:
        """The whole committed rows that pass, but for those that the query has written."""
        kinds = table.declared.properties
        blobs = [name for name, kind in kinds.items() if kind.scalar is Scalar.BLOB]
        plain = ["id", *(name for name in kinds if name not in blobs)]
        found: dict[str, Row] = {}
        for row in self._select(table, predicate, plain):
            if row["id"] in table.written:
                continue
            table.replaced[row["id"]] = row.pop(ADDRESS)
            found[row["id"]] = row
            if len(found) > MAX_ENTITIES:
                raise GitopsError(
                    Code.RESOURCE_LIMIT, f"one mutation writes at most {MAX_ENTITIES} rows of {table.declared.name}"
                )
        if blobs and found:
            cells = table.committed.blobs(blobs, [table.replaced[row_id] for row_id in found])
            for name in blobs:
                for row, cell in zip(found.values(), cells[name], strict=True):
                    row[name] = cell
        return found

    def _delete(self, statement: TypedDelete) -> None:
        name = statement.type_name
        if statement.kind is TypeKind.EDGE:
            table = self.changes.edge(name)
            self._remove_edges(table, list(self._select(table, statement.predicate, ["id", "src"])))
            return
        table = self.changes.node(name)
        found = [row for row in self._select(table, statement.predicate, ["id"]) if row["id"] not in table.gone]
        table.gone.update((row["id"], row[ADDRESS]) for row in found)
        self.nodes += len(found)
        removed = {row["id"] for row in found}
        for edge in self.catalog.edges.values():
            for column, owner in (("src", edge.source), ("dst", edge.target)):
                if owner == name:
                    table = self.changes.edge(edge.name)
                    for columns in table.committed.find(column, removed, ["id", "src"]):
                        self._remove_edges(table, _rows(columns))

    def _remove_edges(self, table: TableChanges, rows: Sequence[Row]) -> None:
        rows = [row for row in rows if row["id"] not in table.gone]
        table.gone.update((row["id"], row[ADDRESS]) for row in rows)
        self.sources[table.declared.name].update(row["src"] for row in rows)
        self.edges += len(rows)

    def _select(self, table: TableChanges, predicate: Predicate, columns: Sequence[str]) -> Iterator[Row]:
        """The committed rows that pass, with these columns; only whole where the driver can narrow them down."""
        name, sign, operand = self._comparison(table.declared, predicate)
        narrowed = comparison_filter(name, table.committed.kind(name), sign, operand)
        if narrowed == NEVER:
            return
        if narrowed is not None:
            for batch in table.committed.scan(list(dict.fromkeys((*columns, name))), narrowed):
                yield from (row for row in _rows(raw_columns(batch)) if comparison_holds(row[name], sign, operand))
            return
        ids: list[str] = []
        for batch in table.committed.scan(["id", name]):
            ids += [row["id"] for row in _rows(raw_columns(batch)) if comparison_holds(row[name], sign, operand)]
        for found in table.committed.find("id", ids, columns):
            yield from _rows(found)

    def _comparison(self, declared: NodeType | EdgeType, predicate: Predicate) -> tuple[str, ComparisonOperator, Any]:
        """The column that a predicate tests, how, and what it is compared with."""
        column = _ENDS.get(predicate.name, predicate.name) if isinstance(declared, EdgeType) else predicate.name
        place = f"{declared.name}.{predicate.name}"
        return column, predicate.operator, self.operands.compared(predicate.value, predicate.type, place)

    def _assigned(self, declared: NodeType | EdgeType, assignments: Sequence[Assignment]) -> Row:
        ends = _ENDS if isinstance(declared, EdgeType) else {}
        return {
            ends.get(each.name, each.name): self.operands.written(each.value, each.type, f"{declared.name}.{each.name}")
            for each in assignments
        }


def _check(declared: NodeType | EdgeType, row: Row) -> None:
    for fault in row_faults(declared, row):
        raise mutation_error(fault)


def _rows(columns: dict[str, list[Any]]) -> list[Row]:
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
