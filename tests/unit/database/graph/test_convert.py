"""Columns convert as the rules say of each value."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.database.graph.convert import convert_column
from gitops.database.graph.tables import arrow_field, raw_type
from gitops.database.graph.values import DAYS, MOMENTS, key_text
from gitops.database.language.schema import PropType, Scalar, TypeKind
from gitops.database.language.schema.conversion import Exactness, convertible, keeps_text, read_text
from gitops.database.language.schema.steps import ChangeType
from tests.reference.cells import LARGEST_SINGLE, RANGES, single
from tests.reference.converting import DoesNotConvertError, convert, spelled

WHOLE = sorted(
    {sign * 2**power + offset for power in (0, 7, 24, 31, 32, 53, 63, 64) for sign in (1, -1) for offset in (-1, 0, 1)}
)
FRACTIONS = [0.0, -0.0, 0.1, -0.5, 1.5, 1e-7, 1e-5, 0.0001, 5e-324, 1e15, 1e16, 1e21, 1.7976931348623157e308, 1e39]
FLOATS = [*FRACTIONS, *map(float, WHOLE), math.nextafter(2.0**63, 0), LARGEST_SINGLE, math.inf, -math.inf, math.nan]
DATES = [*DAYS, -1, 0, 1, 59, 18321, 18322]
MOMENTS_MS = [*MOMENTS, *(day * 86_400_000 for day in DATES), -1, 1, 86_399_999, 1_582_934_400_001]
TEXTS = [
    "", " ", "x", "y", "z", "X", "true", "false", "True", "1 ", " 1", "+1", "01", "-0", "-01", "0x1", "1_0", "\u0661",
    "1.",     ".5", "1.0", "1e2", "1E+2", "1e400", "-1e400", "1e39", "1e-400", "NaN", "Infinity", "-Infinity", "inf",
    "nan",     "0" * 30, "9" * 30, "-" + "9" * 18, "2020-02-29", "2021-02-29", "2020-02-30", "2020-2-3", "0001-01-01",
    "0000-01-01", "9999-12-31", "10000-01-01",     "2020-02-29 ",     "2020-02-29T00:00:00Z",
    "2020-02-29T23:59:59.999Z", "2020-02-29T24:00:00Z", "2020-02-29T00:00:60Z",
    "2020-02-29T00:00:00.5Z",     "2020-02-29T00:00:00+01:00", "2021-02-29T00:00:00.000Z", "2020-02-29T00:00:00.0000Z",
    "2020-02-29t00:00:00z", "null", "1\n",
]  # fmt: skip
EDGES: dict[Scalar, list[Any]] = {
    Scalar.STRING: [*TEXTS, *map(str, WHOLE), *(spelled(number, Scalar.F64) for number in FLOATS)],
    Scalar.BOOL: [True, False],
    **{scalar: [each for each in WHOLE if low <= each <= high] for scalar, (low, high) in RANGES.items()},
    Scalar.F32: sorted({single(number) for number in FLOATS}, key=str),
    Scalar.F64: FLOATS,
    Scalar.DATE: DATES,
    Scalar.DATETIME: MOMENTS_MS,
}
ENUMS = [PropType(Scalar.STRING, enum_values=members) for members in (("x", "y"), ("x", "z"), ("x",), ("w", "x", "y"))]
TYPES = [*map(PropType, EDGES), *ENUMS]
TYPES += [each._replace(is_list=True) for each in TYPES if each.enum_values is None]
PAIRS = [pair for pair in itertools.product(TYPES, TYPES) if convertible(*pair) is not None]
RENAMED: list[dict[str, str]] = [{}, {"y": "z"}]


def edges(kind: PropType) -> list[Any]:
    cells = EDGES[kind.scalar] if kind.enum_values is None else list(kind.enum_values)
    if kind.is_list:
        cells = [[], *([cell] for cell in cells), cells[:2], [None], [None, cells[0]]]
    return [None, *cells, None]


def column(cells: list[Any], kind: PropType) -> pa.Array:
    stored = arrow_field("cells", kind).type
    return pa.array(cells, raw_type(stored)).cast(stored)


def cells_of(found: pa.Array) -> list[Any]:
    return found.cast(raw_type(found.type)).to_pylist()


def same(one: Any, other: Any) -> bool:
    """Whether two cells are the same, also if they are not numbers, and of one type."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))  # noqa: PLR0124


def expected(cells: list[Any], step: ChangeType) -> tuple[list[Any], list[bool]]:
    made, failed = [], []
    for cell in cells:
        try:
            made.append(convert(cell, step.from_, step.to, dict(step.renamed)))
            failed.append(False)
        except DoesNotConvertError:
            made.append(None)
            failed.append(True)
    return made, failed


def check(cells: list[Any], old: PropType, new: PropType, renamed: dict[str, str]) -> None:
    """Convert there and back, and compare with the rules."""
    step = ChangeType(TypeKind.NODE, "T", "p", old, new, renamed=tuple(renamed.items()))
    made, failed = convert_column(column(cells, old), step)
    wanted, lost = expected(cells, step)
    assert made.type == arrow_field("p", new).type
    assert failed.to_pylist() == lost
    different = [each for each in zip(cells, cells_of(made), wanted, strict=True) if not same(*each[1:])]
    assert different == []
    if step.exactness is Exactness.ALWAYS:
        assert not any(lost)
    if keeps_text(old, new) and not (old.is_list or new.is_list or renamed):
        # The row of a key keeps its id, so both are written alike.
        for before, after in zip(cells, wanted, strict=True):
            assert after is None or key_text(before, old) == key_text(after, new)
    if convertible(new, old) is None or old.scalar is Scalar.STRING:
        return
    again, never = convert_column(made, ChangeType(TypeKind.NODE, "T", "p", new, old))
    for before, between, after, missed in zip(cells, wanted, cells_of(again), never.to_pylist(), strict=True):
        # A text such as NaN stands for no number.
        if between is not None and not {"NaN", "Infinity", "-Infinity"}.intersection(np.ravel(between)):
            assert not missed
            assert after == before or same(after, before)


@pytest.mark.parametrize(("old", "new"), PAIRS, ids=str)
def test_edge_values_convert_as_the_rules_say(old: PropType, new: PropType) -> None:
    for renamed in RENAMED if new.enum_values and old.enum_values else [{}]:
        check(edges(old), old, new, renamed)


def test_an_empty_column_and_one_of_nulls_convert() -> None:
    for old, new in PAIRS:
        for cells in ([], [None, None]):
            check(cells, old, new, {})


RANDOM: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.from_regex(r"\A-?[0-9]{1,20}(\.[0-9]{1,4})?([eE][+-]?[0-9]{1,3})?\Z")
    | st.dates().map(str)
    | st.integers(*MOMENTS).map(lambda at: spelled(at, Scalar.DATETIME))
    | st.text(max_size=6).filter(lambda text: "\0" not in text),
    Scalar.BOOL: st.booleans(),
    **{scalar: st.integers(*RANGES[scalar]) for scalar in RANGES},
    Scalar.F32: st.floats(width=32) | st.integers(-(2**40), 2**40).map(lambda each: single(float(each))),
    Scalar.F64: st.floats() | st.integers(-(2**70), 2**70).map(float) | st.floats(width=32),
    Scalar.DATE: st.integers(*DAYS),
    Scalar.DATETIME: st.integers(*MOMENTS) | st.integers(*DAYS).map(lambda day: day * 86_400_000),
}


@given(st.data())
def test_any_values_convert_as_the_rules_say(data: st.DataObject) -> None:
    old, new = data.draw(st.sampled_from(PAIRS))
    values = RANDOM[old.scalar] if old.enum_values is None else st.sampled_from(old.enum_values)
    values = st.lists(values, max_size=3) if old.is_list else values
    check(data.draw(st.lists(st.none() | values, max_size=20)), old, new, {})


@given(st.data())
def test_the_value_of_a_hint_is_the_one_that_its_text_converts_to(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([each for each in TYPES if not each.is_list]))
    text = data.draw(RANDOM[Scalar.STRING] | st.sampled_from(EDGES[Scalar.STRING]))
    try:
        wanted = convert(text, PropType(Scalar.STRING), kind, {})
    except DoesNotConvertError:
        wanted = None
    assert same(read_text(text, kind), wanted)
