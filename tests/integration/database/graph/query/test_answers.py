"""What a query answers on Lance: exact numbers, groups and order, limits of work, and searches in a branch or version."""

from __future__ import annotations

import gc
import itertools
import operator
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import cmp_to_key
from pathlib import Path
from types import FrameType
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.dataset import LanceDataset

from gitops.cli.main import main
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.query.bindings import Groups, distinct_rows, equal_pairs
from gitops.database.graph.query.cache import ReadCache
from gitops.database.graph.query.exact import (
    MOST_PUSHED,
    NEVER,
    compare,
    contains,
    evaluate_condition,
    push_conditions,
    starts_with,
)
from gitops.database.graph.query.options import Budget, Strategy
from gitops.database.graph.query.plan import Condition, ConstantCell
from gitops.database.graph.query.project import aggregate, first_rows, group, ranks
from gitops.database.graph.query.tables import PushedFilter, ReadTable
from gitops.database.graph.search import TextColumn
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from gitops.database.graph.tables import open_table
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.query.ast import AggregateFunction, ComparisonOperator
from gitops.database.language.query.ast import ComparisonOperator as Sign
from gitops.database.language.query.limits import LIMITS
from gitops.database.language.query.typed import PropertyValue
from gitops.database.language.schema import PropType, Scalar
from gitops.database.language.schema.types import TypeKind
from tests.support.effort import cases
from tests.support.ids import SequentialIds
from tests.support.query_dimensions import DIMENSIONS, MUTATIONS, many, reading
from tests.support.query_graphs import CLOCK, NOW, TOWNS, ask, create, put, road, town, towns, values
from tests.support.s3 import S3Place

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


NUMBERS = st.none() | st.sampled_from([0.0, -0.0, 1.5, 1e16, -1e16, 1.0, 3.0, 1e308, 5e-324])
WHOLE = st.none() | st.sampled_from([0, 1, 2**63 - 1, -(2**63), 2**53 + 1, 2**53 - 1, -(2**53)])
HUGE = st.none() | st.sampled_from([0, 1, 2**64 - 1, 2**63])
WORDS = st.none() | st.sampled_from(["", "a", "B", "é", "\U0001f600", "\ufffd"])
GROUPS_AND_ORDER_COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), NUMBERS),
    (pa.int64(), WHOLE),
    (pa.uint64(), HUGE),
    (pa.string(), WORDS),
    (pa.bool_(), st.none() | st.booleans()),
]


def columns(
    count: int, among: list[Any] = GROUPS_AND_ORDER_COLUMNS
) -> st.SearchStrategy[tuple[pa.DataType, list[Any]]]:
    return st.sampled_from(among).flatmap(
        lambda pair: st.tuples(st.just(pair[0]), st.lists(pair[1], min_size=count, max_size=count))
    )


@given(st.data(), st.integers(0, 12))
def test_aggregates_are_exact_and_groups_are_as_first_seen(data: st.DataObject, count: int) -> None:
    keys = data.draw(st.lists(columns(count), max_size=2))
    kind, cells = data.draw(columns(count, GROUPS_AND_ORDER_COLUMNS[:3]))
    groups = group([Groups.of(pa.array(key, each)) for each, key in keys], count)
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


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        (pa.string(), ["b", None, "a", "b", None]),
        (pa.int64(), [7, None, -(2**63), 7, None]),
        (pa.bool_(), [True, None, False, True, None]),
        (pa.date32(), [9, None, 3, 9, None]),
        (pa.float32(), [0.0, None, 1.5, -0.0, None]),
        (pa.float64(), [-0.0, None, 1.5, 0.0, None]),
        (pa.list_(pa.float64()), [[0.0], None, [None], [-0.0], None]),
    ],
    ids=str,
)
def test_equal_cells_are_a_group_from_its_first_row_on(kind: pa.DataType, cells: list[Any]) -> None:
    groups = Groups.of(pa.array(cells, kind))
    assert (groups.firsts.tolist(), groups.of_row.tolist()) == ([0, 1, 2], [0, 1, 2, 0, 1])


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    "cells", [[2**53 - 1, 1, 1, 1], [2**53 - 1, 1, 1, 1, -(2**53)], [2**53 + 1, -(2**53)], [2**60] * 9]
)
def test_a_sum_that_no_float_can_hold_on_the_way_is_exact(cells: list[int], sign: int) -> None:
    column = pa.array([3, *(sign * cell for cell in cells), 4], pa.int64())
    groups = Groups.of(pa.array(["few", *["many"] * len(cells), "few"]))
    assert aggregate(AggregateFunction.SUM, column, groups).to_pylist() == [7.0, float(sign * sum(cells))]
    assert aggregate(AggregateFunction.AVG, column, groups).to_pylist() == [3.5, sign * sum(cells) / len(cells)]


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


PAIRS = [(a, b) for a in range(40) for b in range(40) if a != b]
LIMITS_HUGE = "query q() { match { $a: Town $b: Town $c: Town $d: Town $e: Town } return { count($a) } }"
LONG = "query q() { match { $a: Town $a road{1,3} $b $b road{1,3} $c } return { $a.key, $c.key } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 40, PAIRS)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A town has one road, so that no query multiplies rows."""
    return open_snapshot(
        towns(str(tmp_path_factory.mktemp("ring") / "g.omni"), 6, [(n, (n + 1) % 6) for n in range(6)])
    )


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("text", [LIMITS_HUGE, LONG, "query q() { match { $a: Town } return { $a.key } }"])
def test_time_is_looked_at_before_anything_is_read(graph: str, text: str, strategy: Strategy) -> None:
    with pytest.raises(GitopsError) as stopped:
        ask(graph, text, timeout_s=0.0, strategy=strategy)
    assert stopped.value.code == "query_timeout"


def test_the_deadline_is_met_between_steps() -> None:
    clock = itertools.count()
    budget = Budget(3.0, None, lambda: float(next(clock)))
    budget.check()
    budget.need(10**12, "anything")
    with pytest.raises(GitopsError) as stopped:
        budget.check()
    assert stopped.value.code == "query_timeout"
    assert "3 s" in stopped.value.detail


@pytest.mark.parametrize("strategy", Strategy)
def test_rows_that_multiply_are_stopped_before_they_are_made(graph: str, strategy: Strategy) -> None:
    for text in (LIMITS_HUGE, LONG):
        with pytest.raises(GitopsError) as stopped:
            ask(graph, text, memory_bytes=2**19, strategy=strategy)
        assert stopped.value.code == "query_memory_exceeded"
        assert "0.5 MiB" in stopped.value.detail


def test_a_product_is_tested_piece_by_piece(graph: str) -> None:
    text = "query q() { match { $a: Town $b: Town $c: Town $a.size > $c.size $b.size < $c.size } return { count($a) } }"
    free = ask(graph, text)
    assert values(ask(graph, text, memory_bytes=2**23)) == values(free)
    assert 0 < free.statistics["peak_bytes"] < 2**23


def test_what_one_run_held_is_not_held_against_the_next(graph: str) -> None:
    cache = ReadCache()
    few = 'query q() { match { $a: Town {key: "t1"} not { $a road $b $b.size > 99 } } return { $a.key } }'
    for _ in range(3):
        assert values(ask(graph, few, cache=cache, memory_bytes=2**21)) == ["t1"]


def test_an_adjacency_that_does_not_fit_is_not_built(tmp_path: Path, graph: str) -> None:
    with pytest.raises(GitopsError) as stopped:
        ask(graph, LONG, strategy=Strategy.CSR, memory_bytes=2**16, cache_dir=tmp_path)
    assert stopped.value.code == "query_memory_exceeded"
    assert "adjacency" in stopped.value.detail
    assert not list(tmp_path.rglob("*.csr"))


def test_a_returned_constant_is_asked_for_before_it_is_made_for_every_row(graph: str) -> None:
    for text in (f'"{"x" * 2**15}" as c', f"[{many(2**12, '1', ', ')}] as c"):
        with pytest.raises(GitopsError) as stopped:
            ask(graph, reading(items=text), memory_bytes=2**19)
        assert (stopped.value.code, "a returned constant" in stopped.value.detail) == ("query_memory_exceeded", True)


def test_a_search_for_many_words_looks_at_the_time(graph: str) -> None:
    snapshot = open_snapshot(graph)
    column = TextColumn(open_table(snapshot.folder, snapshot.manifest.tables["node:Town"]), "name")
    assert len(column.resembling(many(64, "word#"), 99)) == 40
    looked = itertools.count()

    def check() -> None:
        if next(looked) == 3:
            raise GitopsError(Code.QUERY_TIMEOUT, "")

    with pytest.raises(GitopsError):
        replace(column, check=check).resembling(many(64, "word#"), 2)


def work(run: Callable[[], object]) -> int:
    """How much a query takes, the same on every machine: calls of this thread, and the bytes that Lance is sent as filters."""
    counted = [0]
    scanner = LanceDataset.scanner

    def counting(self: LanceDataset, **given: Any) -> Any:
        if isinstance(given.get("filter"), pc.Expression):
            counted[0] += len(bytes(given["filter"].to_substrait(self.schema)))
        return scanner(self, **given)

    def event(_frame: FrameType, what: str, _argument: object) -> None:
        counted[0] += what in ("call", "c_call")

    LanceDataset.scanner = counting
    # A collection calls what others have registered for it.
    gc.disable()
    sys.setprofile(event)
    try:
        run()
    finally:
        sys.setprofile(None)
        gc.enable()
        LanceDataset.scanner = scanner
    return counted[0]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_work_grows_at_most_linearly_with_each_dimension_of_a_query(ring: Snapshot, dimension: str) -> None:
    """From small to its limit: what twice as much adds is about twice what half of it added."""

    def measured(count: int) -> int:
        # What a first query makes once, the second one finds.
        text = DIMENSIONS[dimension].text(count)
        ask(ring, text)
        return work(lambda: ask(ring, text))

    for most in (16, DIMENSIONS[dimension].most):
        first, second, third = measured(most // 4), measured(most // 2), measured(most)
        assert third - second <= 2.5 * (second - first) + 1_000


@pytest.mark.parametrize("kind", MUTATIONS)
def test_work_grows_at_most_linearly_with_the_statements_of_a_mutation(tmp_path: Path, kind: str) -> None:
    root = towns(str(tmp_path / "g.omni"), 6, [])
    catalog = open_snapshot(root).schema().catalog
    starts = itertools.count(1_000_000, 10_000)

    def change(count: int) -> int:
        checked = check_query(parse_queries(MUTATIONS[kind](count).encode())[0], catalog)
        mutator = Mutator(CLOCK, SequentialIds(next(starts)))
        return work(lambda: mutator.run(root, checked, None, MutationOptions(now=NOW)))

    change(4)
    first, second, third = change(32), change(64), change(128)
    assert third - second <= 2.5 * (second - first) + 1_000


def test_every_limit_of_a_read_is_measured() -> None:
    # These bound words and numbers, each of which costs nothing by being large; statements are those of mutations.
    words = {"bytes", "characters", "digits", "steps", "rows", "statements"}
    assert {each.limit for each in DIMENSIONS.values()} - {None} == LIMITS.keys() - words


ALL = "query q() { match { $t: Town } return { $t.key } order { $t.key } }"
NEXT = "query q() { match { $t: Town  $t road $u } return { $t.key, $u.key } order { $t.key, $u.key } }"


def migrate(root: str, schema: bytes, start: int = 5_000) -> None:
    LanceEngine(CLOCK, SequentialIds(start)).prepare_migration(root, schema, actor=None).publish()


@pytest.fixture
def graph_of_targets(tmp_path: Path) -> str:
    root = create(str(tmp_path / "g.omni"))
    put(root, [town("a", size=1), town("b", size=2), road("a", "b")])
    return root


@pytest.mark.parametrize("strategy", Strategy)
def test_an_old_version_is_read_as_it_was(graph_of_targets: str, strategy: Strategy) -> None:
    cache, old = ReadCache(), open_snapshot(graph_of_targets)
    put(graph_of_targets, [town("c"), town("a", size=9), road("b", "c"), road("b", "a")], start=2_000)
    for _ in range(2):
        assert values(ask(old, NEXT, cache=cache, strategy=strategy)) == [("a", "b")]
        assert values(ask(graph_of_targets, NEXT, cache=cache, strategy=strategy)) == [
            ("a", "b"),
            ("b", "a"),
            ("b", "c"),
        ]
        assert values(ask(old, ALL, cache=cache, strategy=strategy)) == ["a", "b"]
    assert ask(old, ALL).manifest_version + 1 == ask(graph_of_targets, ALL).manifest_version


def test_a_command_asks_an_older_version_for_what_was_dropped_since(
    graph_of_targets: str, capsys: pytest.CaptureFixture[str]
) -> None:
    migrate(graph_of_targets, TOWNS.replace(b"size: I32?", b""))

    def size(*at: str) -> tuple[int, str]:
        text = 'query q() { match { $t: Town {key: "b"} } return { $t.size } }'
        words = ["graph", "query", "towns", "--root", graph_of_targets, "--text", text, "--format", "csv"]
        return main([*words, *at]), capsys.readouterr().out

    assert size("--at", "2") == (0, "t.size\n2\n")
    assert size()[0] == 1


def test_a_type_or_property_that_the_version_lacks_is_an_error(graph_of_targets: str) -> None:
    old = open_snapshot(graph_of_targets)
    migrate(
        graph_of_targets,
        TOWNS.replace(b"name: String?", b"name: String?  mayor: String?") + b"\nnode Lake { key: String @key }\n",
    )
    catalog = open_snapshot(graph_of_targets).schema().catalog
    for text, told in {
        "query q() { match { $l: Lake } return { $l.key } }": "Lake",
        'query q() { match { $t: Town {mayor: "x"} } return { $t.key } }': "Town.mayor",
        "query q() { match { $t: Town } return { $t.mayor } }": "Town.mayor",
        "query q() { match { $t: Town } return { count($t.mayor) as n } }": "Town.mayor",
        "query q() { match { $t: Town } return { $t.key } order { $t.mayor } }": "Town.mayor",
        "query q() { match { $t: Town not { $l: Lake $l.key = $t.key } } return { $t.key } limit 0 }": "Lake",
    }.items():
        with pytest.raises(GitopsError) as refused:
            ask(old, text, catalog=catalog)
        assert refused.value.code == "query_target_differs"
        assert refused.value.path == told
        assert values(ask(graph_of_targets, text)) in ([], [0], ["a", "b"], [None, None])


def test_a_type_that_was_dropped_and_made_anew_is_empty(graph_of_targets: str) -> None:
    cache = ReadCache()
    assert values(ask(graph_of_targets, NEXT, cache=cache, strategy=Strategy.CSR)) == [("a", "b")]
    migrate(graph_of_targets, TOWNS.partition(b"edge")[0])
    migrate(graph_of_targets, TOWNS, start=6_000)
    assert values(ask(graph_of_targets, NEXT, cache=cache, strategy=Strategy.CSR)) == []
    assert values(ask(graph_of_targets, ALL, cache=cache)) == ["a", "b"]


def test_parameters_are_refused_before_anything_is_read(graph_of_targets: str) -> None:
    text = "query q($n: I32, $d: Date?) { match { $t: Town  $t.size > $n } return { $t.key } }"
    for params, told in (({}, "n"), ({"n": None}, "n"), ({"n": "x"}, "n"), ({"n": 2**40}, "n"), ([], "")):
        with pytest.raises(GitopsError) as refused:
            ask(graph_of_targets, text, params)
        assert (refused.value.code, refused.value.path) == ("query_params_invalid", told)
    for bad in ("2001-02-29", "yesterday", "\ud800"):
        with pytest.raises(GitopsError) as refused:
            ask(graph_of_targets, text, {"n": 1, "d": bad})
        assert (refused.value.code, refused.value.path) == ("query_params_invalid", "d")
    assert values(ask(graph_of_targets, text, {"n": "1", "d": "2000-02-29", "unknown": {}})) == ["b"]


def test_a_literal_that_is_no_day_is_an_error_wherever_it_stands(graph_of_targets: str) -> None:
    for text in (
        'query q() { match { $t: Town  date("1999-02-29") = date("2000-01-01") } return { $t.key } }',
        'query q() { match { $t: Town } return { date("noon") as d } }',
    ):
        with pytest.raises(GitopsError) as refused:
            ask(graph_of_targets, text)
        assert refused.value.code == "query_literal_invalid"


def test_a_mutation_is_no_read(graph_of_targets: str) -> None:
    with pytest.raises(GitopsError) as refused:
        ask(graph_of_targets, 'query q() { insert Town { key: "z" } }')
    assert refused.value.code == "query_unsupported"


TYPES = ["Blob", "Vector(3)", "Bool", "F32", "U32", "U64", "Date", "DateTime", "enum(x, y)"]
LISTS = ["[String]", "[Bool]", "[I64]", "[U32]", "[U64]", "[F32]", "[F64]", "[Date]", "[DateTime]"]


@pytest.mark.parametrize("other", [*TYPES, *LISTS])
def test_filters_work_whatever_else_a_table_holds(tmp_path: Path, other: str) -> None:
    kinds = f"node Town {{ key: String @key  size: I32?  other: {other}? }}"
    root = create(str(tmp_path / "g.omni"), f"{kinds}\nedge Road: Town -> Town {{ other: {other}? }}".encode())
    put(root, [*(town(f"t{n}", size=n % 4) for n in range(8)), road("t1", "t3"), road("t2", "t3"), road("t3", "t5")])
    text = 'query q() { match { $t: Town {size: 3, key: "t3"}  $t road $u  $u.size < 2 } return { $u.key } }'
    for each in Strategy:
        assert values(ask(root, text, strategy=each)) == ["t5"]
    top = "query q() { match { $t: Town {size: 3} } return { $t.key } order { $t.key desc } limit 1 }"
    assert values(ask(root, top)) == ["t7"]
    ends = 'query q() { match { $t: Town  $t.key starts_with "t"  $t.size >= 2.5 } return { $t.key } order { $t.key } }'
    assert values(ask(root, ends)) == ["t3", "t7"]


@pytest.mark.parametrize("strategy", Strategy)
def test_an_object_store_gives_the_same(s3: S3Place, tmp_path: Path, strategy: Strategy) -> None:
    root = create(f"s3://{s3.bucket}/graphs/g.omni")
    put(root, [town("a", size=1), town("b", size=2), town("c"), road("a", "b"), road("b", "c"), road("c", "a")])
    text = "query q() { match { $t: Town  $t road{1,2} $u  not { $u road $t } } return { $t.key, $u.key } }"
    for _ in range(2):
        found = ask(root, text, strategy=strategy, cache_dir=tmp_path)
        assert values(found) == [("a", "b"), ("b", "c"), ("c", "a")]
    if strategy is not Strategy.AUTO:
        assert len(list(tmp_path.rglob("*.csr"))) == (strategy is Strategy.CSR)
