"""The result of a read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gitops.graph.query.encode import json_cells
from gitops.language.query import Access
from gitops.language.schema import PropType

__all__ = ["QueryResult"]


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
        cells = [json_cells(self.table.column(name), kind) for name, kind in zip(self.columns, self.types, strict=True)]
        if not cells:
            return []
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*cells, strict=True)]
