"""Answers a query for one row, identified by its key, from a key file and without loading Lance.

Only `key = constant → plain properties` is answered here, with the same checks, conversions and comparison as in every
other query. Everything else is left to `run`, which gives the same answer. So is a query whose key file is in doubt.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph.files import version_digest
from gitops.database.graph.query.key_file import UNREADABLE, KeyFile, KeyFileHeader, KeyFolder, key_file_name
from gitops.database.graph.query.options import Budget, QueryOptions
from gitops.database.graph.query.plan import ConstantCell, Constants, ScanOp, has_form, plan_block
from gitops.database.graph.results import QueryRows
from gitops.database.graph.snapshot import Snapshot
from gitops.database.graph.values import cell_to_json
from gitops.database.language.query import CheckedQuery, ComparisonOperator
from gitops.database.language.query.typed import NodeValue, PropertyValue, TypedRead
from gitops.database.language.schema import PropType, Scalar

_ID = PropType(Scalar.STRING)
# What a query may hold in memory for each byte that it reads, at most.
_HELD_BYTES = 64


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """A query for one row by its key: the table, its key property, the requested cell, and the returned columns.

    Columns have their types. `read` maps each result column to the property that it shows, or to `id`.
    """

    table: str
    key: str
    kind: PropType
    cell: Any
    read: Mapping[str, tuple[str, PropType]]

    @classmethod
    def of(cls, snapshot: Snapshot, query: CheckedQuery, params: object, options: QueryOptions) -> KeyLookup | None:
        """Return the lookup that a query makes, or None if it is any other query.

        Raises GitopsError `query_params_invalid`, `query_literal_invalid`.
        """
        read = query.body
        if not isinstance(read, TypedRead) or read.aggregated or read.order or read.limit == 0 or options.explain:
            return None
        block = plan_block(read.clauses, Constants(query, params, options.now), lambda _: 0)
        scan = block.operators[0] if len(block.operators) == 1 else None
        if not isinstance(scan, ScanOp) or len(scan.conditions) != 1 or scan.table not in snapshot.manifest.tables:
            return None
        left, sign, right = scan.conditions[0].left, scan.conditions[0].sign, scan.conditions[0].right
        if (
            sign is not ComparisonOperator.EQ
            or not isinstance(left, PropertyValue)
            or not isinstance(right, ConstantCell)
        ):
            return None
        if not has_form(right, left.type):
            return None
        columns: dict[str, tuple[str, PropType]] = {}
        for item in read.items:
            if isinstance(item.value, PropertyValue):
                columns[item.column] = item.value.name, item.value.type
            elif isinstance(item.value, NodeValue):
                columns[item.column] = "id", _ID
            else:
                return None
        return cls(scan.table, left.name, left.type, right.value, columns)


def read_by_key(snapshot: Snapshot, query: CheckedQuery, params: object, options: QueryOptions) -> QueryRows | None:
    """Answer a query for one row by its key from a key file. Return None if `run_query` must answer it.

    Raises GitopsError `query_params_invalid`, `query_literal_invalid`, `query_timeout`.
    """
    if options.cache_dir is None:
        return None
    budget = Budget(options.timeout_s, options.memory_bytes)
    wanted = KeyLookup.of(snapshot, query, params, options)
    if wanted is None:
        return None
    folder, name = KeyFolder(options.cache_dir), key_file_name(snapshot, wanted.table)
    with folder.open(name) as file:
        if file is None or not _serves(file.header, snapshot, wanted):
            return None
        try:
            rows = _find(file, wanted)
        except UNREADABLE:
            folder.remove(name)
            return None
        if not budget.affords(_HELD_BYTES * file.bytes_read):
            return None
    folder.mark_used(name)
    budget.check()
    return QueryRows(snapshot.manifest.n, tuple(wanted.read), rows)


def _serves(header: KeyFileHeader, snapshot: Snapshot, wanted: KeyLookup) -> bool:
    """Return whether a file was made from the wanted table version, and has the columns."""
    columns = header.columns or {}
    kinds = dict((*wanted.read.values(), (wanted.key, wanted.kind)))
    held = all(
        name in columns and (columns[name].scalar, columns[name].is_list) == (kind.scalar, kind.is_list)
        for name, kind in kinds.items()
    )
    if not held or header.key != wanted.key:
        return False
    with contextlib.suppress(GitopsError):
        return header.table == version_digest(snapshot, snapshot.manifest.tables[wanted.table])
    return False


def _find(file: KeyFile, wanted: KeyLookup) -> list[dict[str, Any]]:
    """Return the rows of the result: one or none. Raises one of `UNREADABLE`."""
    row = file.find(wanted.key, wanted.kind, wanted.cell)
    if row is None:
        return []
    return [{column: cell_to_json(file.cell(name, row), kind) for column, (name, kind) in wanted.read.items()}]
