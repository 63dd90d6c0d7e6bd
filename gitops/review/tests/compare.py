"""Compares the result of a run with what a test expects, and finds the least difference. Pure, on JSON values.

An expected cell is `["is", value]`, `["any"]` or `["regex", pattern]`; an expected row maps column names to such cells.
It runs in the worker, because a hostile pattern or a large result can take any time.

1. Rows compare as a list (`ordered`) or as a bag. As a bag, as many rows as possible are matched, each with one row.
2. Rows that remain are paired by the number of equal cells, so that a changed cell shows as one and not as two rows.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

MAX_SHOWN = 20
"""Largest number of differences in one list."""
RELATIVE = 1e-9
_MAX_PAIRED = 200

Row = Mapping[str, Any]
Expected = Mapping[str, Sequence[Any]]
RowDifference = dict[str, list[Any]]
"""`missing` and `unexpected` rows, and `changed` ones: `{"row": place, "cells": {column: [expected, actual]}}`."""


def compare_rows(
    form: str, expected: Sequence[Expected], actual: Sequence[Row], tolerance: float | None = None
) -> RowDifference | None:
    """Compare rows in the form `ordered`, `bag` or `contains`. Returns None if they are as expected."""
    close = RELATIVE if tolerance is None else tolerance
    if form == "ordered":
        if len(expected) == len(actual):
            pairs = enumerate(zip(expected, actual, strict=True))
            changed = [
                _changed(place, want, got, close) for place, (want, got) in pairs if not _row_is(want, got, close)
            ]
            return _difference([], [], changed) if changed else None
        if _same_start(expected, actual, close):
            longer = len(expected) > len(actual)
            rest = expected[len(actual) :] if longer else []
            return _difference(rest, [] if longer else actual[len(expected) :], [])
    missing, unexpected = _unmatched(expected, actual, close)
    if form == "contains":
        if not missing:
            return None
        lost, _, changed = _paired(missing, unexpected, close)
        return _difference(lost, [], changed)
    if not missing and not unexpected and form != "ordered":
        return None
    return _difference(*_paired(missing, unexpected, close))


def count_is(bounds: Mapping[str, int], number: int) -> bool:
    """Return whether a number of rows is within `min` and `max`."""
    return bounds.get("min", 0) <= number <= bounds.get("max", number)


def cell_is(want: Sequence[Any], got: Any, close: float = RELATIVE) -> bool:
    """Return whether a cell is as expected. Floats are equal if they differ relatively by at most `close`."""
    if want[0] == "any":
        return True
    if want[0] == "regex":
        return isinstance(got, str) and re.fullmatch(want[1], got, re.DOTALL) is not None
    return _value_is(want[1], got, close)


def _value_is(want: Any, got: Any, close: float) -> bool:
    if isinstance(want, bool) or isinstance(got, bool):
        return want is got
    if isinstance(want, float) and isinstance(got, int | float):
        return math.isclose(want, got, rel_tol=close)
    if isinstance(want, list) and isinstance(got, list):
        return len(want) == len(got) and all(_value_is(one, other, close) for one, other in zip(want, got, strict=True))
    return bool(want == got)


def _row_is(want: Expected, got: Row, close: float) -> bool:
    return all(name in got and cell_is(cell, got[name], close) for name, cell in want.items())


def _same_start(expected: Sequence[Expected], actual: Sequence[Row], close: float) -> bool:
    return all(_row_is(want, got, close) for want, got in zip(expected, actual, strict=False))


def _exact(cell: Sequence[Any]) -> bool:
    """Return whether equal JSON is necessary for a match."""
    return cell[0] == "is" and not _has_float(cell[1])


def _has_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, list) and any(map(_has_float, value)))


def _key(values: Sequence[Any]) -> str:
    return json.dumps(values)


def _unmatched(
    expected: Sequence[Expected], actual: Sequence[Row], close: float
) -> tuple[list[Expected], list[tuple[int, Row]]]:
    """Match as many expected rows as possible, each with another row. Return what remains of both, in order.

    Rows are compared only within groups that are equal in the columns that every expected row states exactly. Of these
    groups, only those with patterns, floats or left-out columns need a search.
    """
    exact = _exact_columns(expected)
    rows: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(actual):
        rows[_key([row.get(name) for name in exact])].append(place)
    wanted: dict[str, list[int]] = defaultdict(list)
    for place, want in enumerate(expected):
        wanted[_key([want[name][1] for name in exact])].append(place)
    matched: dict[int, int] = {}
    for key, places in wanted.items():
        matched |= _matching(places, rows.get(key, []), expected, actual, close)
    taken = set(matched.values())
    return (
        [want for place, want in enumerate(expected) if place not in matched],
        [(place, row) for place, row in enumerate(actual) if place not in taken],
    )


def _exact_columns(expected: Sequence[Expected]) -> list[str]:
    names = list(expected[0]) if expected else []
    return [name for name in names if all(name in want and _exact(want[name]) for want in expected)]


def _matching(
    wanted: Sequence[int], rows: Sequence[int], expected: Sequence[Expected], actual: Sequence[Row], close: float
) -> dict[int, int]:
    """Return a largest matching of expected rows to rows, by augmenting paths, without recursion."""
    if all(_exact(cell) for want in wanted for cell in expected[want].values()) and _alike(wanted, expected):
        # All of these rows are equal.
        return dict(zip(wanted, rows, strict=False))
    fits = {want: [row for row in rows if _row_is(expected[want], actual[row], close)] for want in wanted}
    owner: dict[int, int] = {}
    matched: dict[int, int] = {}
    for start in wanted:
        # Breadth-first over alternating paths: `came` remembers from which expected row a row was reached.
        came: dict[int, int] = {}
        frontier, end = [start], None
        while frontier and end is None:
            reached: list[int] = []
            for want in frontier:
                for row in fits[want]:
                    if row in came:
                        continue
                    came[row] = want
                    if row not in owner:
                        end = row
                        break
                    reached.append(owner[row])
                if end is not None:
                    break
            frontier = reached
        while end is not None:
            want = came[end]
            before = matched.get(want)
            owner[end], matched[want] = want, end
            end = before
    return matched


def _alike(wanted: Sequence[int], expected: Sequence[Expected]) -> bool:
    """Return whether these rows state the same columns as all others, so that their group has only equal rows."""
    names = len(_exact_columns(expected))
    return all(len(expected[want]) == names for want in wanted)


def _paired(
    missing: Sequence[Expected], unexpected: Sequence[tuple[int, Row]], close: float
) -> tuple[list[Expected], list[Row], list[dict[str, Any]]]:
    """Pair missing and unexpected rows that share most cells. Returns what remains of both, and the pairs as changes."""
    few, others = missing[:_MAX_PAIRED], unexpected[:_MAX_PAIRED]
    alike = [
        (-sum(name in row and cell_is(cell, row[name], close) for name, cell in want.items()), at, to)
        for at, want in enumerate(few)
        for to, (_, row) in enumerate(others)
    ]
    left, right, changed = set(range(len(missing))), set(range(len(unexpected))), []
    for equal, at, to in sorted(alike):
        if equal and at in left and to in right:
            left.remove(at)
            right.remove(to)
            place, row = others[to]
            changed.append(_changed(place, few[at], row, close))
    changed.sort(key=lambda each: int(each["row"]))
    return [missing[at] for at in sorted(left)], [unexpected[to][1] for to in sorted(right)], changed


def _changed(place: int, want: Expected, got: Row, close: float) -> dict[str, Any]:
    cells = {
        name: [shown_cell(cell), got.get(name)]
        for name, cell in want.items()
        if name not in got or not cell_is(cell, got[name], close)
    }
    return {"row": place, "cells": cells}


def _difference(missing: Sequence[Expected], unexpected: Sequence[Row], changed: list[dict[str, Any]]) -> RowDifference:
    shown = [{name: shown_cell(cell) for name, cell in want.items()} for want in missing[:MAX_SHOWN]]
    return {
        "missing": shown,
        "unexpected": [dict(row) for row in unexpected[:MAX_SHOWN]],
        "changed": changed[:MAX_SHOWN],
        "counts": [len(missing), len(unexpected), len(changed)],
    }


def shown_cell(cell: Sequence[Any]) -> Any:
    """Return an expected cell as it is written in a test file."""
    if cell[0] == "any":
        return {"$any": True}
    return {"$regex": cell[1]} if cell[0] == "regex" else cell[1]
