"""One column of an Arrow batch as cells of a property: `values.json_to_cell` for columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from gitops.database.graph.tables import arrow_field
from gitops.database.graph.values import DAYS, MOMENTS, CellError
from gitops.database.language.schema import FLOATS, INTEGERS, PropType, Scalar

__all__ = ["cell_type", "column_cells"]

_DAY_MS = 86_400_000
_ACCEPTED: Mapping[Scalar, tuple[Callable[[pa.DataType], bool], ...]] = {
    Scalar.STRING: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    Scalar.BOOL: (pa.types.is_boolean,),
    **dict.fromkeys(INTEGERS, (pa.types.is_integer,)),
    **dict.fromkeys(FLOATS, (pa.types.is_integer, pa.types.is_floating)),
    Scalar.DATE: (pa.types.is_date,),
    Scalar.DATETIME: (pa.types.is_integer, pa.types.is_date64),
    Scalar.BLOB: (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
}


def cell_type(kind: PropType) -> pa.DataType:
    """The type of a column of cells; that of a blob is bytes until it is stored."""
    return pa.large_binary() if kind.scalar is Scalar.BLOB else arrow_field("cells", kind).type


def column_cells(column: pa.Array, kind: PropType) -> pa.Array:
    """The cells of a column, nulls left as they are; blobs are bytes. Raises CellError."""
    try:
        column.validate(full=True)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), cell_type(kind))
        if kind.is_list:
            return _lists(column, kind)
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return _vectors(plain, kind) if kind.scalar is Scalar.VECTOR else _plain_cells(plain, kind.scalar)
    except CellError:
        raise
    except (pa.ArrowException, ValueError, NotImplementedError) as error:
        # Arrow raises any of these for a value that it cannot convert.
        raise CellError(str(error).partition("\n")[0]) from error


def _lists(column: pa.Array, kind: PropType) -> pa.Array:
    items, lengths = _items(column)
    if items.null_count:
        raise CellError("a list holds a null")
    cells = column_cells(items, PropType(kind.scalar, enum_values=kind.enum_values))
    ends = pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, cells, type=cell_type(kind), mask=lengths.is_null())


def _items(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The items of all lists, and the length of each list, null for no list."""
    listed = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in listed):
        raise CellError(f"got {column.type}")
    return column.flatten(), pc.list_value_length(column).cast(pa.int32())


def _plain_cells(column: pa.Array, scalar: Scalar) -> pa.Array:
    """The cells of a property that is neither a list nor a vector.

    A time with a zone is a moment; one without is taken for UTC. What is finer than a millisecond is cut off.
    """
    if scalar is Scalar.DATE and pa.types.is_integer(column.type):
        column = column.cast(pa.int32()).cast(pa.date32())
    elif scalar is Scalar.DATETIME and pa.types.is_timestamp(column.type):
        floored = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit)), unit="millisecond")
        column = floored.cast(pa.timestamp("ms")).cast(pa.int64())
    elif scalar is Scalar.DATETIME and pa.types.is_date32(column.type):
        column = pc.multiply_checked(column.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    if not any(accepts(column.type) for accepts in _ACCEPTED[scalar]):
        raise CellError(f"got {column.type}")
    if scalar is Scalar.DATETIME:
        numbers = column.cast(pa.int64())
        _require_between(numbers, MOMENTS)
        return pa.Array.from_buffers(pa.date64(), len(numbers), numbers.buffers(), offset=numbers.offset)
    cells = column.cast(cell_type(PropType(scalar)), safe=scalar not in FLOATS)
    if scalar in FLOATS and not pc.all(pc.is_finite(cells), min_count=0).as_py():
        raise CellError("a number is not finite, or too large")
    if scalar is Scalar.DATE:
        _require_between(cells.cast(pa.int32()), DAYS)
    return cells


def _require_between(numbers: pa.Array, bounds: tuple[int, int]) -> None:
    low, high = bounds
    if not pc.all(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)), min_count=0).as_py():
        raise CellError("the time is not within the years 1 to 9999")


def _vectors(column: pa.Array, kind: PropType) -> pa.Array:
    items, lengths = _items(column)
    dimension = kind.dimension or 0
    if not pc.all(pc.equal(lengths, dimension), min_count=0).as_py():
        odd = next(each for each in lengths.to_pylist() if each not in (None, dimension))
        raise CellError(f"got {odd} dimensions")
    if items.null_count:
        raise CellError("a vector holds a null")
    numbers = column_cells(items, PropType(Scalar.F32))
    taken = pc.cumulative_sum(lengths.is_valid().cast(pa.int64()))
    rows = pc.if_else(lengths.is_valid(), pc.subtract(taken, 1), pa.scalar(None, pa.int64()))
    return pa.FixedSizeListArray.from_arrays(numbers, type=cell_type(kind)).take(rows)
