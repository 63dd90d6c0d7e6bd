"""The law of filters: the driver lets every row through that the exact comparison lets through.

Texts are the hostile part: whatever a text holds, the driver must take it for that text and nothing else.
"""

from __future__ import annotations

from typing import Any

import lance
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.database.graph.tables import arrow_schema, arrow_table
from gitops.database.graph.write.committed import (
    NEVER,
    comparison_filter,
    comparison_holds,
    id_range_filter,
    membership_filter,
)
from gitops.database.language.query.ast import ComparisonOperator
from gitops.database.language.schema import NodeType, PropType, Scalar
from tests.support.effort import cases

SPELLING = st.text(st.sampled_from(list("'\"\\`%_;-/*$?{}:aAé\0\n\r\t😀 ")), max_size=6)
SINGLE = [
    0.0,
    -0.0,
    0.10000000149011612,
    -1.5,
    9.99994610111476e-41,
    3.4028234663852886e38,
    1.401298464324817e-45,
    16777216.0,
]
DOUBLE = [0.0, -0.0, 0.1, -1.5, 5e-324, 1.7976931348623157e308, 9007199254740992.0, 1.8446744073709552e19]
KINDS: dict[str, tuple[PropType, list[Any]]] = {
    "b": (PropType(Scalar.BOOL, nullable=True), [True, False]),
    "i": (PropType(Scalar.I32, nullable=True), [-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    "j": (PropType(Scalar.I64, nullable=True), [-(2**63), 0, 2**53, 2**53 + 1, 2**63 - 1]),
    "u": (PropType(Scalar.U32, nullable=True), [0, 1, 2**32 - 1]),
    "v": (PropType(Scalar.U64, nullable=True), [0, 1, 2**53 + 1, 2**63, 2**64 - 1]),
    "f": (PropType(Scalar.F32, nullable=True), SINGLE),
    "d": (PropType(Scalar.F64, nullable=True), DOUBLE),
    "day": (PropType(Scalar.DATE, nullable=True), [-719162, -1, 0, 1, 2932896]),
    "at": (PropType(Scalar.DATETIME, nullable=True), [-62135596800000, -1, 0, 1, 86_400_001, 253402300799999]),
    "t": (PropType(Scalar.STRING, nullable=True), ["", "'", "''", "\\", "\\'", "a", "é", "\0", "😀", "a' or 'a'='a"]),
    "doc": (PropType(Scalar.BLOB, nullable=True), [b"x"]),
    "tags": (PropType(Scalar.STRING, nullable=True, is_list=True), [[], ["a"]]),
}
TYPE = NodeType("T", {name: KINDS[name][0] for name in sorted(KINDS)})
ROWS = 12
COMPARED = sorted(set(KINDS) - {"doc", "tags"})
NUMBERS = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(SINGLE + DOUBLE)
)


@pytest.fixture(scope="module", params=["without indexes", "with indexes"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> lance.LanceDataset:
    cells = {name: [*values, None] for name, (_, values) in KINDS.items()}
    columns = {name: [values[at % len(values)] for at in range(ROWS)] for name, values in cells.items()}
    columns["id"] = [f"{text}{at}" for at, text in enumerate((KINDS["t"][1] * 2)[:ROWS])]
    path = str(tmp_path_factory.mktemp("filters") / "t.lance")
    dataset = lance.write_dataset(
        arrow_table(TYPE, columns),
        path,
        schema=arrow_schema(TYPE),
        data_storage_version="2.2",
        enable_stable_row_ids=True,
    )
    if request.param == "with indexes":
        for name in ("id", *COMPARED):
            dataset.create_scalar_index(name, "BTREE")
    return lance.dataset(path)


def cells_of(name: str) -> list[Any]:
    values = [*KINDS[name][1], None]
    return [values[at % len(values)] for at in range(ROWS)]


def passed(table: lance.LanceDataset, where: str | None) -> set[int]:
    """The rows that the driver lets through, by their place."""
    return set(table.scanner(columns=[], filter=where, with_row_id=True).to_table()["_rowid"].to_pylist())


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, ComparisonOperator, Any]:
    name = draw(st.sampled_from(COMPARED))
    kind, values = KINDS[name]
    operand: Any = draw(st.sampled_from(values))
    if kind.scalar is Scalar.STRING:
        operand = draw(st.sampled_from(values) | SPELLING)
    elif kind.scalar not in (Scalar.BOOL, Scalar.DATE, Scalar.DATETIME):
        operand = draw(st.sampled_from(values) | NUMBERS)
    sign = draw(
        st.sampled_from(
            [
                each
                for each in ComparisonOperator
                if each not in (ComparisonOperator.CONTAINS, ComparisonOperator.STARTS_WITH)
            ]
        )
    )
    return name, sign, operand


@settings(max_examples=cases(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(comparisons())
def test_no_row_that_passes_is_filtered_out(
    table: lance.LanceDataset, comparison: tuple[str, ComparisonOperator, Any]
) -> None:
    name, sign, operand = comparison
    exact = {at for at, cell in enumerate(cells_of(name)) if comparison_holds(cell, sign, operand)}
    narrowed = comparison_filter(name, KINDS[name][0], sign, operand)
    if narrowed == NEVER:
        assert exact == set()
    assert exact <= passed(table, narrowed)


@settings(max_examples=cases(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPELLING | st.sampled_from(KINDS["t"][1]), SPELLING)
def test_a_text_is_that_text_and_nothing_else(table: lance.LanceDataset, text: str, other: str) -> None:
    where = membership_filter("t", KINDS["t"][0], [text, other])
    assert passed(table, where) == {at for at, cell in enumerate(cells_of("t")) if cell in (text, other)}


@pytest.mark.parametrize("name", COMPARED)
def test_each_value_is_found(table: lance.LanceDataset, name: str) -> None:
    kind, values = KINDS[name]
    for value in values:
        found = {at for at, cell in enumerate(cells_of(name)) if cell is not None and cell == value}
        assert passed(table, membership_filter(name, kind, [value])) == found


@pytest.mark.parametrize("name", ["doc", "tags"])
def test_what_the_driver_cannot_look_up_has_no_filter(name: str) -> None:
    assert membership_filter(name, KINDS[name][0], ["a"]) is None


@settings(max_examples=cases(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SPELLING, SPELLING)
def test_a_range_of_ids_is_cut_by_code_points(table: lance.LanceDataset, low: str, high: str) -> None:
    ids = table.to_table(columns=["id"])["id"].to_pylist()
    assert passed(table, id_range_filter(low, high)) == {at for at, row_id in enumerate(ids) if low <= row_id < high}


def test_nothing_compares_with_a_null() -> None:
    assert all(comparison_filter(name, KINDS[name][0], ComparisonOperator.NE, None) == NEVER for name in COMPARED)
