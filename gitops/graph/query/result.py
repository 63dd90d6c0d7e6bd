"""The result of a read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gitops.graph.tables import raw_columns
from gitops.graph.values import cell_to_json
from gitops.language.query import Access
from gitops.language.schema import PropType, Scalar

__all__ = ["QueryResult"]

_AS_THEY_ARE = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Result rows by column, with facts about the run.

    `types` are the columns' types in the order of `columns`; of two return items of one name the later one is there.
    `touched` are the types whose tables the plan reads, whether or not the run got as far as each. `explanation` has the
    operators if it was asked for.
    """

    manifest_version: int
    columns: tuple[str, ...]
    types: tuple[PropType, ...]
    table: pa.Table
    touched: frozenset[Access]
    explanation: tuple[Mapping[str, Any], ...]
    statistics: Mapping[str, Any]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return int(self.table.num_rows)

    def rows(self) -> list[dict[str, Any]]:
        """The rows as JSON objects."""
        cells = [
            _json_cells(self.table.column(name), kind) for name, kind in zip(self.columns, self.types, strict=True)
        ]
        if not cells:
            return []
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _json_cells(column: pa.ChunkedArray, kind: PropType) -> list[Any]:
    """The JSON value of each cell: whole numbers as they are, floats that are not finite by name, dates and times as text."""
    cells: list[Any] = raw_columns(pa.table({"cells": column}))["cells"]
    if kind.scalar in _AS_THEY_ARE:
        return cells
    if kind.scalar is Scalar.F64 and not kind.is_list:
        return [cell if cell is None or math.isfinite(cell) else cell_to_json(cell, kind) for cell in cells]
    return [cell_to_json(cell, kind) for cell in cells]
