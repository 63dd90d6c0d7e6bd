"""Columns as JSON values (§3.7), by their declared types."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa

from gitops.graph.tables import raw_columns
from gitops.graph.values import cell_to_json
from gitops.language.schema import PropType, Scalar

__all__ = ["json_cells"]

_AS_THEY_ARE = (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64)


def json_cells(column: pa.ChunkedArray, kind: PropType) -> list[Any]:
    """The JSON value of each cell: whole numbers as they are, floats that are not finite by name, dates and times as text."""
    cells: list[Any] = raw_columns(pa.table({"cells": column}))["cells"]
    if kind.scalar in _AS_THEY_ARE:
        return cells
    if kind.scalar is Scalar.F64 and not kind.is_list:
        return [cell if cell is None or math.isfinite(cell) else cell_to_json(cell, kind) for cell in cells]
    return [cell_to_json(cell, kind) for cell in cells]
