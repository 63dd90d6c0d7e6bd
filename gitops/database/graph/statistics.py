"""Statistics of tables: how many rows have no value in a column, and between which bounds numbers, dates and times are.

A manifest has them for each table, by groups of data files. With them, a check proves that no row breaks a rule without
opening the table, or finds out which files it has to read.

1. Every row of a table version is in a fragment of exactly one group. A fragment is the driver's unit of rows: its data
   files and its deletion file.
2. A group describes the rows that its fragments had when they were measured. Rows that were deleted later are still
   counted. So bounds can be too wide, and `rows` and `nulls` too high, but never the opposite. If the groups together
   have as many rows as the table, no row was deleted, and all numbers are exact.
3. Columns are identified by the driver's field ids. A column keeps its id if it is renamed, and gets a new one if it is
   converted. Nothing is known about a column that a group does not list.
4. Bounds are left out if a group has no such values, or if one is infinite. NaN is not within any bounds, and is not
   counted in them. Dates are days, and times are milliseconds since 1970-01-01.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from gitops.core.codes import Code
from gitops.core.documents.forms import text_form
from gitops.core.errors import IntegrityError

if TYPE_CHECKING:
    import pyarrow as pa

MAX_GROUPS = 8
"""Maximum number of groups of a table. Every manifest repeats them, so there are few."""


class ColumnStatistics(NamedTuple):
    """One column of a group of fragments. `low` and `high` are None if there are no such values, or nothing is known."""

    rows: int
    nulls: int
    low: float | None = None
    high: float | None = None

    def within(self, low: float | None, high: float | None) -> bool:
        """Return whether all values are proved to be between these bounds. None means no bound on that side."""
        if self.nulls == self.rows:
            return True
        if self.low is None or self.high is None:
            return False
        return (low is None or low <= self.low) and (high is None or self.high <= high)

    def joined(self, other: ColumnStatistics) -> ColumnStatistics:
        """Return the statistics of both groups together."""
        rows, nulls = self.rows + other.rows, self.nulls + other.nulls
        lows, highs = [], []
        for each in (self, other):
            if each.nulls == each.rows:
                continue
            if each.low is None or each.high is None:
                return ColumnStatistics(rows, nulls)
            lows.append(each.low)
            highs.append(each.high)
        return ColumnStatistics(rows, nulls, min(lows, default=None), max(highs, default=None))


Columns = Mapping[int, ColumnStatistics]
"""Statistics by field id."""


class RowGroup(NamedTuple):
    """The rows of some fragments. `fragments` has their ids in ascending order."""

    fragments: tuple[int, ...]
    rows: int
    columns: Columns

    def joined(self, other: RowGroup) -> RowGroup:
        """Return both groups as one."""
        shared = self.columns.keys() & other.columns.keys()
        columns = {each: self.columns[each].joined(other.columns[each]) for each in sorted(shared)}
        return RowGroup(tuple(sorted((*self.fragments, *other.fragments))), self.rows + other.rows, columns)


def count_nulls(texts: Sequence[str] | None, rows: int, field: int) -> int | None:
    """Return how many of a table's rows have no value in a column, or None if the statistics do not tell exactly.

    `texts` are the statistics of the table. Raises the same errors as `read_group`.
    """
    if not rows:
        return 0
    if texts is None:
        return None
    groups = [read_group(text) for text in texts]
    known = [group.columns.get(field) for group in groups]
    if not _all_known(known):
        return None
    nulls = sum(each.nulls for each in known)
    return nulls if not nulls or sum(group.rows for group in groups) == rows else None


def doubtful_fragments(
    texts: Sequence[str] | None, field: int, proves: Callable[[ColumnStatistics], bool]
) -> tuple[int, ...] | None:
    """Return the fragments whose statistics do not prove a fact about a column. None stands for all fragments.

    Raises the same errors as `read_group`.
    """
    if texts is None:
        return None
    doubtful = (
        group.fragments
        for group in map(read_group, texts)
        if (found := group.columns.get(field)) is None or not proves(found)
    )
    return tuple(chain.from_iterable(doubtful))


def _all_known(columns: list[ColumnStatistics | None]) -> TypeGuard[list[ColumnStatistics]]:
    return None not in columns


class RowGroups:
    """The groups of a table while a writer changes it."""

    def __init__(self, texts: Sequence[str] | None) -> None:
        self._groups = [read_group(text) for text in texts or ()]

    def add(self, fragment: int, rows: int, columns: Columns) -> None:
        """Add a new fragment."""
        self._groups.append(RowGroup((fragment,), rows, columns))

    def widen(self, columns: Mapping[int, Columns]) -> None:
        """Add new columns, by fragment."""
        for at, group in enumerate(self._groups):
            parts = [RowGroup((each,), 0, columns.get(each, {})) for each in group.fragments]
            added = reduce(RowGroup.joined, parts).columns
            self._groups[at] = group._replace(columns={**group.columns, **added})

    def widen_empty(self, fields: Iterable[int]) -> None:
        """Add new columns without values."""
        for at, group in enumerate(self._groups):
            added = {number: ColumnStatistics(group.rows, group.rows) for number in fields}
            self._groups[at] = group._replace(columns={**group.columns, **added})

    def rewrite(self, before: Collection[int], after: Collection[int]) -> None:
        """Record that the same rows are in different fragments now."""
        gone, new = set(before) - set(after), tuple(sorted(set(after) - set(before)))
        if not new:
            return
        sources = [group for group in self._groups if not gone.isdisjoint(group.fragments)]
        if gone <= {each for group in sources for each in group.fragments}:
            kept = {each for group in sources for each in group.fragments} - gone
            joined = reduce(RowGroup.joined, sources)
            self._groups = [group for group in self._groups if group not in sources]
            self._groups.append(joined._replace(fragments=tuple(sorted((*kept, *new)))))

    def finish(self, rows: Mapping[int, int], fields: Collection[int]) -> tuple[str, ...]:
        """Return the texts of the groups of a table with these fragments, given with their numbers of rows, and these columns.

        The smallest groups are joined until there are few.
        """
        found, known = [], set[int]()
        for group in self._groups:
            fragments = tuple(each for each in group.fragments if each in rows)
            known.update(fragments)
            if fragments:
                columns = {number: each for number, each in group.columns.items() if number in fields}
                found.append(RowGroup(fragments, group.rows, columns))
        found += [RowGroup((each,), number, {}) for each, number in rows.items() if each not in known]
        while len(found) > MAX_GROUPS:
            found.sort(key=lambda group: (-group.rows, group.fragments))
            found.append(found.pop().joined(found.pop()))
        return tuple(group_text(group) for group in sorted(found))


def measure(rows: pa.Table | pa.RecordBatch, fields: Mapping[str, int]) -> Columns:
    """Return the statistics of columns. `fields` maps their names to field ids; ids of rows and Blobs are left out."""
    import pyarrow as pa

    return {
        fields[field.name]: measure_column(rows.column(field.name))
        for field in rows.schema
        if field.name in fields and field.name != "id" and not isinstance(field.type, pa.BaseExtensionType)
        if not pa.types.is_struct(field.type)
    }


def measure_column(column: pa.Array | pa.ChunkedArray) -> ColumnStatistics:
    """Return the statistics of a column."""
    low, high = _bounds(column)
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return ColumnStatistics(len(column), column.null_count)
    return ColumnStatistics(len(column), column.null_count, low, high)


def _bounds(column: pa.Array | pa.ChunkedArray) -> tuple[float | None, float | None]:
    """Return the lowest and the highest value, which can be infinite; (None, None) if there are no such values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_date(kind):
        column = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None, None
    low, high = (each.as_py() for each in pc.min_max(column).values())
    # A sum with zero has no negative zero.
    return (None, None) if low is None or math.isnan(low) else (low + 0, high + 0)


def find_untrue(
    group: RowGroup, names: Mapping[int, str], batches: Iterable[pa.RecordBatch], *, exact: bool
) -> str | None:
    """Return what is not true about a group with these rows, or None. `names` are the columns of the table by field id.

    With `exact`, all numbers must be those of the rows. Without, they can include rows that were deleted.
    """
    if unknown := group.columns.keys() - names.keys():
        return f"the table has no column with the id {min(unknown)}"
    rows, nulls = 0, dict.fromkeys(group.columns, 0)
    ends: dict[int, list[float]] = {number: [] for number in group.columns}
    for batch in batches:
        rows += batch.num_rows
        for number in group.columns:
            column = batch.column(names[number])
            nulls[number] += column.null_count
            ends[number] += [each for each in _bounds(column) if each is not None]
    if rows > group.rows or (exact and rows < group.rows):
        return f"{rows} rows, but {group.rows} are recorded"
    for number, stated in group.columns.items():
        name, low, high = names[number], min(ends[number], default=None), max(ends[number], default=None)
        if nulls[number] > stated.nulls or (exact and nulls[number] < stated.nulls):
            return f"{name} has {nulls[number]} nulls, but {stated.nulls} are recorded"
        if stated.nulls == stated.rows and nulls[number] < rows:
            return f"{name} has values, but none are recorded"
        if stated.low is None or stated.high is None:
            continue
        wide = low is None or high is None or (stated.low <= low and high <= stated.high)
        if not wide or (exact and (low, high) != (stated.low, stated.high)):
            return f"{name} has the bounds {low}..{high}, but {stated.low}..{stated.high} are recorded"
    return None


# -- the form in documents ---------------------------------------------------------------------------------------------

_COUNT = r"(?:0|[1-9][0-9]{0,18})"
_NUMBER = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-]?[0-9]{1,3})?"
_RANGE = rf"{_COUNT}(?:\.\.{_COUNT})?"
_COLUMN = re.compile(rf"({_COUNT}): ({_COUNT}) null(?:, ({_NUMBER})\.\.({_NUMBER}))?", re.ASCII)
_GROUP = re.compile(
    rf"fragments ({_RANGE}(?: {_RANGE})*); rows ({_COUNT})"
    rf"((?:; {_COUNT}: {_COUNT} null(?:, {_NUMBER}\.\.{_NUMBER})?)*)",
    re.ASCII,
)
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_MAX_FRAGMENTS = 1 << 20

GROUP_TEXT = text_form(lambda text: _GROUP.fullmatch(text) is not None, "the statistics of a group of fragments")
"""The form of a group. Whether its numbers are possible is checked when it is read, because most groups never are."""


def group_text(group: RowGroup) -> str:
    """Return a group as text.

    `fragments 0..3 7; rows 90; 5: 2 null, -5..8` is about 90 rows of five fragments. In the column with the field id 5, 2
    rows have no value, and the others have values from -5 to 8.
    """
    ranges: list[list[int]] = []
    for each in group.fragments:
        if ranges and each == ranges[-1][1] + 1:
            ranges[-1][1] = each
        else:
            ranges.append([each, each])
    spans = " ".join(str(first) if first == last else f"{first}..{last}" for first, last in ranges)
    parts = [f"fragments {spans}", f"rows {group.rows}"]
    for number, column in sorted(group.columns.items()):
        bounds = "" if column.low is None else f", {column.low!r}..{column.high!r}"
        parts.append(f"{number}: {column.nulls} null{bounds}")
    return "; ".join(parts)


@lru_cache(256)
def read_group(text: str) -> RowGroup:
    """Read a group. Raises IntegrityError `graph_unreadable`."""
    found = _GROUP.fullmatch(text)
    if found is not None:
        rows, columns, fragments = int(found[2]), dict[int, ColumnStatistics](), list[int]()
        for number, nulls, low, high in _COLUMN.findall(found[3]):
            ends = (_number(low), _number(high)) if low else (None, None)
            columns[int(number)] = ColumnStatistics(rows, int(nulls), *ends)
        for each in found[1].split(" "):
            first, _, last = each.partition("..")
            span = range(int(first), int(last or first) + 1)
            fragments += span if len(span) <= _MAX_FRAGMENTS else ()
        group = RowGroup(tuple(fragments), rows, columns)
        ascending = fragments == sorted(set(fragments))
        if ascending and group_text(group) == text and all(map(_is_possible, columns.values())):
            return group
    raise IntegrityError(Code.GRAPH_UNREADABLE, f"the statistics {text[:80]!r} are not possible")


def _number(text: str) -> float:
    return int(text) if _INTEGER.fullmatch(text) else float(text)


def _is_possible(column: ColumnStatistics) -> bool:
    low, high = column.low, column.high
    ordered = low is None or high is None or (low <= high and math.isfinite(low) and math.isfinite(high))
    return ordered and column.nulls <= column.rows
