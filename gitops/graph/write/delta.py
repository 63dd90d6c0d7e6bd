"""What one mutation has changed so far: rows by id that take the place of the committed ones, and rows that are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.manifest import TableEntry
from gitops.graph.root import GraphFolder
from gitops.graph.write.committed import CommittedTable
from gitops.language.schema import Catalog, EdgeType, NodeType

__all__ = ["MAX_BYTES", "MAX_ENTITIES", "GraphChanges", "TableChanges"]

MAX_ENTITIES = 8192
"""Most rows that one mutation writes to one table."""

MAX_BYTES = 32 * 1024 * 1024
"""Most bytes of cells that one mutation writes to one table."""

_FIXED_BYTES = 8


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
