"""One column of an Arrow batch as cells of a property: `values.json_to_cell` for columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from gitops.graph.tables import arrow_field
from gitops.graph.values import DAYS, MOMENTS, CellError
from gitops.language.schema import PropType, Scalar

__all__ = ["column_cells"]

_DAY_MS = 86_400_000


def column_cells(column: pa.Array, kind: PropType) -> pa.Array:
    """The cells of a column, nulls left as they are; blobs are bytes. Raises CellError."""
    try:
        column.validate(full=True)
        if pa.types.is_null(column.type):
            return pa.nulls(len(column), _target(kind))
        if kind.is_list:
            return _list(column, kind)
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return _READERS[kind.scalar](plain, kind)
    except CellError:
        raise
    except (pa.ArrowException, ValueError, NotImplementedError) as error:
        # Arrow raises any of these for a value that it cannot convert.
        raise CellError(str(error).partition("\n")[0]) from error


def _target(kind: PropType) -> pa.DataType:
    return pa.large_binary() if kind.scalar is Scalar.BLOB else arrow_field("cells", kind).type


def _list(column: pa.Array, kind: PropType) -> pa.Array:
    items, lengths = _items(column)
    if items.null_count:
        raise CellError("a list holds a null")
    cells = column_cells(items, PropType(kind.scalar, enum_values=kind.enum_values))
    return _lists(cells, lengths, _target(kind))


def _items(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The items of all lists, and the length of each list, null for no list."""
    listed = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(is_kind(column.type) for is_kind in listed):
        raise CellError(f"got {column.type}")
    return column.flatten(), pc.list_value_length(column).cast(pa.int32())


def _lists(items: pa.Array, lengths: pa.Array, target: pa.DataType) -> pa.Array:
    offsets = pa.concat_arrays(
        [pa.array([0], pa.int32()), pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())]
    )
    return pa.ListArray.from_arrays(offsets, items, type=target, mask=lengths.is_null())


def _text(column: pa.Array, kind: PropType) -> pa.Array:
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return column.cast(_expect(column, kind, *texts))


def _truth(column: pa.Array, kind: PropType) -> pa.Array:
    return column.cast(_expect(column, kind, pa.types.is_boolean))


def _integer(column: pa.Array, kind: PropType) -> pa.Array:
    return column.cast(_expect(column, kind, pa.types.is_integer))


def _float(column: pa.Array, kind: PropType) -> pa.Array:
    target = _expect(column, kind, pa.types.is_integer, pa.types.is_floating)
    cells = column.cast(target, safe=False)
    if not pc.all(pc.is_finite(cells), min_count=0).as_py():
        raise CellError("a number is not finite, or too large")
    return cells


def _date(column: pa.Array, kind: PropType) -> pa.Array:
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int32()).cast(pa.date32())
    target = _expect(column, kind, pa.types.is_date)
    cells = column.cast(target)
    return _between(cells, cells.cast(pa.int32()), DAYS)


def _datetime(column: pa.Array, kind: PropType) -> pa.Array:
    """A time with a zone is a moment; one without is taken for UTC. What is finer than a millisecond is cut off."""
    if pa.types.is_timestamp(column.type):
        floored = pc.floor_temporal(column.cast(pa.timestamp(column.type.unit)), unit="millisecond")
        column = floored.cast(pa.timestamp("ms")).cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = pc.multiply_checked(column.cast(pa.int32()).cast(pa.int64()), _DAY_MS)
    _expect(column, kind, pa.types.is_integer, pa.types.is_date64)
    numbers = column.cast(pa.int64())
    return _between(
        pa.Array.from_buffers(pa.date64(), len(numbers), numbers.buffers(), offset=numbers.offset), numbers, MOMENTS
    )


def _between(cells: pa.Array, numbers: pa.Array, bounds: tuple[int, int]) -> pa.Array:
    low, high = bounds
    if not pc.all(pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high)), min_count=0).as_py():
        raise CellError("the time is not within the years 1 to 9999")
    return cells


def _vector(column: pa.Array, kind: PropType) -> pa.Array:
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
    whole = pa.FixedSizeListArray.from_arrays(numbers, type=_target(kind))
    return whole.take(rows)


def _blob(column: pa.Array, kind: PropType) -> pa.Array:
    _expect(column, kind, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return column.cast(pa.large_binary())


def _expect(column: pa.Array, kind: PropType, *accepts: Callable[[pa.DataType], bool]) -> pa.DataType:
    if not any(accept(column.type) for accept in accepts):
        raise CellError(f"got {column.type}")
    return _target(PropType(kind.scalar))


_READERS: Mapping[Scalar, Callable[[pa.Array, PropType], pa.Array]] = {
    Scalar.STRING: _text,
    Scalar.BOOL: _truth,
    Scalar.I32: _integer,
    Scalar.I64: _integer,
    Scalar.U32: _integer,
    Scalar.U64: _integer,
    Scalar.F32: _float,
    Scalar.F64: _float,
    Scalar.DATE: _date,
    Scalar.DATETIME: _datetime,
    Scalar.VECTOR: _vector,
    Scalar.BLOB: _blob,
}
