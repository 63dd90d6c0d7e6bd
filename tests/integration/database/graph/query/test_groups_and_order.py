"""Groups, aggregates and order, against what Python says of the same cells."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.query.project import aggregate, first_rows, group
from gitops.database.graph.query.tables import distinct_rows, equal_pairs
from gitops.database.language.query.ast import AggregateFunction

NUMBERS = st.none() | st.sampled_from([0.0, -0.0, 1.5, 1e16, -1e16, 1.0, 3.0, 1e308, 5e-324])
WHOLE = st.none() | st.sampled_from([0, 1, 2**63 - 1, -(2**63), 2**53 + 1])
HUGE = st.none() | st.sampled_from([0, 1, 2**64 - 1, 2**63])
WORDS = st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f600", "\ufffd"])
COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), NUMBERS),
    (pa.int64(), WHOLE),
    (pa.uint64(), HUGE),
    (pa.string(), WORDS),
    (pa.bool_(), st.none() | st.booleans()),
]


def columns(count: int, among: list[Any] = COLUMNS) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    return st.sampled_from(among).flatmap(
        lambda pair: st.tuples(st.just(pair[0]), st.lists(pair[1], min_size=count, max_size=count))
    )


@given(st.data(), st.integers(0, 12))
def test_aggregates_are_exact_and_groups_are_as_first_seen(data: st.DataObject, count: int) -> None:
    keys = data.draw(st.lists(columns(count), max_size=2))
    kind, cells = data.draw(columns(count, COLUMNS[:3]))
    groups = group([pa.array(key, each) for each, key in keys], count)
    expected: dict[tuple[Any, ...], list[Any]] = {} if keys else {(): []}
    for row in range(count):
        expected.setdefault(tuple(key[row] for _, key in keys), []).append(cells[row])
    assert [tuple(key[at] for _, key in keys) for at in groups.firsts if keys] == [name for name in expected if keys]

    def told(function: AggregateFunction) -> list[Any]:
        found: list[Any] = aggregate(function, pa.array(cells, kind), groups).to_pylist()
        return found

    def wanted(function: Callable[[list[Any]], Any]) -> list[Any]:
        present = [[cell for cell in each if cell is not None] for each in expected.values()]
        return [function(each) if each else None for each in present]

    assert told(AggregateFunction.COUNT) == [sum(cell is not None for cell in each) for each in expected.values()]
    assert told(AggregateFunction.MIN) == wanted(min)
    assert told(AggregateFunction.MAX) == wanted(max)
    total = wanted(lambda each: rounded(sum(map(Fraction, each), Fraction())))
    assert told(AggregateFunction.SUM) == total
    if kind != pa.float64():
        assert told(AggregateFunction.AVG) == wanted(
            lambda each: rounded(sum(map(Fraction, each), Fraction()) / len(each))
        )


def rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


@given(st.data(), st.integers(1, 40), st.none() | st.integers(0, 45))
def test_rows_are_ordered_as_the_language_says(data: st.DataObject, count: int, limit: int | None) -> None:
    keys = data.draw(st.lists(st.tuples(columns(count), st.booleans()), min_size=1, max_size=3))
    names = data.draw(st.permutations([f"id{n}" for n in range(count)]))
    arrays = [(pa.array(cells, kind), descending) for (kind, cells), descending in keys]

    def before(one: int, other: int) -> int:
        for (_, cells), descending in keys:
            a, b = cells[one], cells[other]
            unknown = a is None or b is None
            found = (b is None) - (a is None) if unknown else (a > b) - (a < b)
            if found:
                return -found if descending else found
        return 0

    def wholly_before(one: int, other: int) -> int:
        return before(one, other) or (names[one] > names[other]) - (names[one] < names[other])

    whole = sorted(range(count), key=cmp_to_key(wholly_before))
    asked: list[int] = []

    def ties(positions: np.ndarray) -> list[pa.Array]:
        asked.extend(positions.tolist())
        return [pa.array([names[at] for at in positions])]

    assert first_rows(arrays, count, limit, ties).tolist() == whole[: count if limit is None else limit]
    assert len(asked) == len(set(asked)), "nobody is asked for twice"
    stable = sorted(range(count), key=cmp_to_key(before))
    assert first_rows(arrays, count, limit, None).tolist() == stable[: count if limit is None else limit]


CODES = st.integers(-3, 3) | st.integers(-(10**12), 10**12)


@given(st.integers(0, 12).flatmap(lambda n: st.lists(st.lists(CODES, min_size=n, max_size=n), max_size=3)))
def test_rows_are_told_apart(cells: list[list[int]]) -> None:
    count = len(cells[0]) if cells else 5
    firsts, which = distinct_rows([np.array(each, np.int64) for each in cells], count)
    rows = [tuple(each[row] for each in cells) for row in range(count)]
    assert [rows[firsts[at]] for at in which] == rows
    assert sorted(firsts.tolist()) == sorted({row: at for at, row in reversed(list(enumerate(rows)))}.values())


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8))
def test_a_join_gives_every_pair_of_equal_values(left: list[str | None], right: list[str | None]) -> None:
    found = equal_pairs(pa.array(left, pa.string()), pa.array(right, pa.string()))
    expected = [
        (a, b) for a, one in enumerate(left) for b, other in enumerate(right) if one is not None and one == other
    ]
    assert list(zip(found[0].tolist(), found[1].tolist(), strict=True)) == expected
