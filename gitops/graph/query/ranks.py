"""Values as whole numbers that order, and equal each other, just as the values do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["NULL", "ranks"]

NULL = -1


def ranks(column: pa.Array) -> np.ndarray:
    """A number per cell: 0 for the smallest value and so on, equal for equal ones, `NULL` for null.

    Texts by code point, false before true, 0.0 equal to -0.0, lists item by item with null items first.
    """
    if pa.types.is_nested(column.type):
        return _ranks_of_lists(column)
    if pa.types.is_string(column.type):
        encoded = column.dictionary_encode()
        order = np.asarray(pc.array_sort_indices(encoded.dictionary))
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        at = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
        return np.where(at < 0, NULL, places[at] if len(places) else NULL)
    valid = np.asarray(column.is_valid())
    found = np.full(len(column), NULL, np.int64)
    found[valid] = np.unique(_values(column.drop_null()), return_inverse=True)[1]
    return found


def _values(column: pa.Array) -> np.ndarray:
    kind = column.type
    if pa.types.is_boolean(kind):
        return np.asarray(column).astype(np.int8)
    if pa.types.is_date32(kind):
        return np.asarray(column.cast(pa.int32()))
    if pa.types.is_date64(kind):
        return np.asarray(column.cast(pa.int64()))
    values = np.asarray(column)
    # Adding zero makes 0.0 of -0.0.
    return values + 0.0 if values.dtype.kind == "f" else values


def _ranks_of_lists(column: pa.Array) -> np.ndarray:
    cells = [None if cell is None else tuple(map(_item, cell)) for cell in column.to_pylist()]
    places = {cell: place for place, cell in enumerate(sorted({cell for cell in cells if cell is not None}))}
    return np.array([NULL if cell is None else places[cell] for cell in cells], np.int64)


def _item(item: Any) -> tuple[bool, Any]:
    return (False, 0) if item is None else (True, item)
