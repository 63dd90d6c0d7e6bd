"""Comparisons: exact over all widths, three-valued, by code point; and the same on the disk as in memory."""

from __future__ import annotations

import itertools
import operator
from datetime import date
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.database.graph.query.exact import (
    MOST_PUSHED,
    NEVER,
    compare,
    contains,
    evaluate_condition,
    push_conditions,
    starts_with,
)
from gitops.database.graph.query.options import Budget
from gitops.database.graph.query.plan import Condition, ConstantCell
from gitops.database.graph.query.project import ranks
from gitops.database.graph.query.tables import PushedFilter, ReadTable
from gitops.database.language.query.ast import ComparisonOperator
from gitops.database.language.query.ast import ComparisonOperator as Sign
from gitops.database.language.query.typed import PropertyValue
from gitops.database.language.schema import PropType, Scalar
from gitops.database.language.schema.types import TypeKind
from tests.support.effort import cases

COMPARED = {
    ComparisonOperator.EQ: operator.eq,
    ComparisonOperator.NE: operator.ne,
    ComparisonOperator.LT: operator.lt,
    ComparisonOperator.LE: operator.le,
    ComparisonOperator.GT: operator.gt,
    ComparisonOperator.GE: operator.ge,
}
EDGES = [0, 1, -1, 2**31 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
SIGNED = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
UNSIGNED = st.sampled_from([0, 1, 2**53 + 1, 2**63, 2**64 - 1]) | st.integers(0, 2**64 - 1)
FLOATS = st.sampled_from([0.0, -0.0, 0.5, -0.5, 2.0**53, 2.0**63, -(2.0**63), 2.0**64, 1e300]) | st.floats(
    allow_nan=False, allow_infinity=False
)
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "i32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "i64": (pa.int64(), SIGNED),
    "u64": (pa.uint64(), UNSIGNED),
    "f64": (pa.float64(), FLOATS),
    "f32": (pa.float32(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
}


def cell(value: Any, scalar: Scalar = Scalar.F64) -> ConstantCell:
    return ConstantCell(value, PropType(scalar), "x")


@settings(max_examples=cases(300), deadline=None)
@given(st.data(), st.sampled_from(list(COMPARED)))
def test_numbers_of_any_width_compare_by_their_value(data: st.DataObject, sign: ComparisonOperator) -> None:
    sides, arrays = [], []
    for name in data.draw(st.tuples(st.sampled_from(list(COLUMNS)), st.sampled_from(list(COLUMNS)))):
        kind, numbers = COLUMNS[name]
        cells = data.draw(st.lists(st.none() | numbers, min_size=6, max_size=6))
        sides.append(cells)
        arrays.append(pa.array(cells, kind))
    expected = [a is not None and b is not None and COMPARED[sign](a, b) for a, b in zip(*sides, strict=True)]
    assert compare(sign, arrays[0], arrays[1], 6).tolist() == expected
    one = sides[1][0]
    with_constant = [a is not None and one is not None and COMPARED[sign](a, one) for a in sides[0]]
    assert compare(sign, arrays[0], cell(one), 6).tolist() == with_constant


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=3), min_size=2, max_size=8))
def test_texts_compare_by_code_point(texts: list[str | None]) -> None:
    left, right = pa.array(texts, pa.string()), pa.array(texts[::-1], pa.string())
    for sign, holding in COMPARED.items():
        expected = [a is not None and b is not None and holding(a, b) for a, b in zip(texts, texts[::-1], strict=True)]
        assert compare(sign, left, right, len(texts)).tolist() == expected
    order = ranks(left)
    for a, one in zip(texts, order, strict=True):
        for b, other in zip(texts, order, strict=True):
            if a is not None and b is not None:
                assert (a < b, a == b) == (one < other, one == other)


@given(
    st.lists(st.none() | st.text("a%_é", max_size=4), min_size=1, max_size=6),
    st.none() | st.text("a%_é", max_size=2),
)
def test_parts_of_texts_are_plain_characters(texts: list[str | None], part: str | None) -> None:
    column, count = pa.array(texts, pa.string()), len(texts)
    inside = [text is not None and part is not None and part in text for text in texts]
    before = [text is not None and part is not None and text.startswith(part) for text in texts]
    parts = pa.array([part] * count, pa.string())
    assert contains(column, cell(part, Scalar.STRING), count).tolist() == inside
    assert contains(column, parts, count).tolist() == inside
    assert starts_with(column, cell(part, Scalar.STRING), count).tolist() == before
    assert starts_with(column, parts, count).tolist() == before


def test_a_list_has_an_equal_item_and_never_a_null() -> None:
    lists = pa.array([[1, None, 2**53 + 1], [], None, [None], [2]], pa.list_(pa.int64()))
    assert contains(lists, cell(2.0), 5).tolist() == [False, False, False, False, True]
    assert contains(lists, cell(2.0**53), 5).tolist() == [False] * 5
    assert contains(lists, cell(None), 5).tolist() == [False] * 5
    assert contains(lists, pa.array([1.0, 1.0, 1.0, 1.0, None]), 5).tolist() == [True, False, False, False, False]


PUSHED: dict[str, tuple[pa.DataType, Scalar, list[Any]]] = {
    "i": (pa.int32(), Scalar.I32, [None, 0, 1, -1, 2**31 - 1, -(2**31)]),
    "j": (pa.int64(), Scalar.I64, [None, 0, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]),
    "s": (pa.string(), Scalar.STRING, [None, "", "a", "a%", "é'", "\U0001f600"]),
    "camelCase": (pa.string(), Scalar.STRING, [None, "A", "a", "''", '"', "\\"]),
    "b": (pa.bool_(), Scalar.BOOL, [None, True, False, None, True, False]),
    "day": (pa.date32(), Scalar.DATE, [None, -1, 0, 1, -719162, 2932896]),
    "f": (pa.float64(), Scalar.F64, [None, 0.0, -0.0, 1.5, -1.5, 1e300]),
}
CONSTANTS: dict[Scalar, list[Any]] = {
    Scalar.I32: [0, 1, 2**31, -(2**31), -(2**31) - 1, 0.5, -0.5, 1e300, -1e300, None],
    Scalar.I64: [0, 2**53, 2**53 + 1, 2.0**53, 2.0**63, -(2.0**63), 2**63 - 1, 0.1, None],
    Scalar.STRING: ["", "a", "%", "'", "é'", "\\", "\U0001f600", None],
    Scalar.BOOL: [True, False, None],
    Scalar.DATE: [-1, 0, 2932896, None],
    Scalar.F64: [0, 0.0, 1, 1.5, None],
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ReadTable:
    columns = {name: pa.array(cells, pa.int32()).cast(kind) if name == "day" else pa.array(cells, kind)
               for name, (kind, _, cells) in PUSHED.items()}  # fmt: skip
    path = tmp_path_factory.mktemp("pushed") / "t.lance"
    dataset = lance.write_dataset(pa.table(columns), path, enable_stable_row_ids=True, data_storage_version="2.2")
    return ReadTable("node:T", dataset, 6)


@pytest.mark.parametrize("name", PUSHED)
@pytest.mark.parametrize("sign", ComparisonOperator)
def test_what_is_tested_on_reading_passes_the_same_rows(table: ReadTable, name: str, sign: ComparisonOperator) -> None:
    kind, scalar, _ = PUSHED[name]
    if sign in (ComparisonOperator.CONTAINS, ComparisonOperator.STARTS_WITH) and scalar is not Scalar.STRING:
        return
    whole = table.whole([name], Budget(None, None))
    for constant in CONSTANTS[scalar]:
        left = PropertyValue("x", TypeKind.NODE, "T", name, PropType(scalar, nullable=True))
        condition = Condition(left, sign, cell(constant, scalar))
        mask = evaluate_condition(
            condition, lambda side: side if isinstance(side, ConstantCell) else whole.columns[name], 6
        )
        filter_, rest = push_conditions([condition], {name: kind})
        if filter_ is NEVER:
            assert not mask.any(), constant
        elif filter_ is not None:
            assert rest == []
            assert scanned(table, filter_) == np.flatnonzero(mask).tolist(), (constant, str(filter_))
        else:
            assert scalar in (Scalar.F64, Scalar.BOOL), "floats and odd truth values alone are left"


def scanned(table: ReadTable, filter_: PushedFilter) -> list[int]:
    """The ids of the rows that the driver gives."""
    batches = table.scan([], Budget(None, None), filter_)
    return sorted(np.concatenate([np.empty(0, np.int64), *(rows.ids for rows in batches)]).tolist())


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 16, 40, 200])
def test_of_many_conditions_the_driver_tests_eight_and_the_rest_are_left(table: ReadTable, count: int) -> None:
    left = {name: PropertyValue("x", TypeKind.NODE, "T", name, PropType(kind)) for name, (_, kind, _) in PUSHED.items()}
    tests = [
        ("i", Sign.GE, -1),
        ("s", Sign.NE, "z"),
        ("j", Sign.GT, -(2**62)),
        ("s", Sign.CONTAINS, "a"),
        ("i", Sign.LT, 9),
    ]
    chosen = list(itertools.islice(itertools.cycle(tests), count))
    conditions = [Condition(left[name], sign, cell(value, PUSHED[name][1])) for name, sign, value in chosen]
    whole = table.whole(["i", "j", "s"], Budget(None, None))

    def passing(some: list[Condition]) -> np.ndarray:
        value = lambda side: side if isinstance(side, ConstantCell) else whole.columns[side.name]  # noqa: E731
        return np.all([np.ones(6, bool), *(evaluate_condition(each, value, 6) for each in some)], axis=0)

    filter_, rest = push_conditions(conditions, table.types)
    assert filter_ is not None
    assert len(filter_.columns) == min(count, MOST_PUSHED) == count - len(rest)
    kept = np.isin(np.arange(6), scanned(table, filter_)) & passing(rest)
    assert kept.tolist() == passing(conditions).tolist()
    never = Condition(left["i"], Sign.EQ, cell(None, Scalar.I32))
    assert push_conditions([*conditions, never], table.types) == (NEVER, [])


def test_dates_are_what_they_look_like(table: ReadTable) -> None:
    rows = table.whole(["day"], Budget(None, None))
    assert rows.columns["day"].to_pylist()[1:4] == [date(1969, 12, 31), date(1970, 1, 1), date(1970, 1, 2)]
