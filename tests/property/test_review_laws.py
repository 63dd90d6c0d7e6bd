"""Laws of comparing results with expectations, and of rewriting what is expected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.review.tests.compare import cell_is, compare_rows
from gitops.review.tests.update import update_file
from gitops.review.tests.verdicts import QueryTestResult, QueryTestVerdict
from gitops.review.tests.worker import judge_rows
from tests.support.review_files import TEST_FILE, collected

pytestmark = pytest.mark.law

TEXTS = st.sampled_from(["", "a", "b", "ab", "a b", "true", "7", "#", "- x", "é", "\t", "💡"]) | st.text(
    "ab1 :#-{}[],&*!|>%@'\"\\\n\té💡\u2028\x07", max_size=6
)
CELLS = st.none() | st.sampled_from([0.1, 0.1 + 1e-12, 2.5]) | st.integers(0, 3)
ROWS = st.lists(st.fixed_dictionaries({"a": CELLS, "b": st.sampled_from(["x", "y", None])}), max_size=7)
MATCHERS = st.sampled_from([["any"], ["regex", "x|y"], ["is", "x"], ["is", None]])
EXPECTED = st.lists(
    st.fixed_dictionaries({"a": st.just(["any"]) | CELLS.map(lambda cell: ["is", cell]), "b": MATCHERS}), max_size=6
)


def exactly(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: ["is", value] for name, value in row.items()} for row in rows]


@given(ROWS, st.randoms(use_true_random=False))
def test_rows_are_themselves_in_every_form_and_as_a_bag_in_any_order(rows, chance):
    shuffled = chance.sample(rows, len(rows))
    assert compare_rows("ordered", exactly(rows), rows) is None
    assert compare_rows("bag", exactly(rows), shuffled) is None
    assert compare_rows("contains", exactly(shuffled[1:]), rows) is None


@given(EXPECTED, ROWS, st.randoms(use_true_random=False))
def test_a_bag_does_not_depend_on_the_order_of_either_side(expected, rows, chance):
    same = compare_rows("bag", expected, rows)
    again = compare_rows("bag", chance.sample(expected, len(expected)), chance.sample(rows, len(rows)))
    assert (same is None) is (again is None)
    if same is not None and again is not None:
        # As many rows as possible are matched, whatever the order.
        missing, unexpected, changed = same["counts"]
        assert (missing + changed, unexpected + changed) == (
            again["counts"][0] + again["counts"][2],
            again["counts"][1] + again["counts"][2],
        )


@given(EXPECTED, ROWS)
def test_what_holds_in_order_holds_as_a_bag_and_what_holds_as_a_bag_is_contained(expected, rows):
    holds = {form: compare_rows(form, expected, rows) is None for form in ("ordered", "bag", "contains")}
    assert holds["ordered"] <= holds["bag"] <= holds["contains"]


@given(EXPECTED, ROWS, ROWS, st.data())
def test_more_rows_or_fewer_expectations_never_break_contains(expected, rows, more, data):
    if compare_rows("contains", expected, rows) is None:
        fewer = [each for each in expected if data.draw(st.booleans())]
        assert compare_rows("contains", fewer, [*rows, *more]) is None


@given(EXPECTED, ROWS)
def test_a_difference_explains_the_verdict(expected, rows):
    found = compare_rows("bag", expected, rows)
    matched = len(expected) - sum(found["counts"][::2]) if found else len(expected)
    # A greedy matching never finds more pairs than the largest one.
    left, pairs = list(rows), 0
    for want in expected:
        fit = next((row for row in left if all(cell_is(cell, row[name]) for name, cell in want.items())), None)
        if fit is not None:
            left.remove(fit)
            pairs += 1
    assert matched >= pairs
    for change in found["changed"] if found else ():
        assert change["cells"]
        assert all(shown is not None or got is not None for shown, got in change["cells"].values())


VALUES = st.lists(
    st.fixed_dictionaries({"i.name": TEXTS, "i.size": st.integers(-(2**31), 2**31 - 1)}),
    max_size=4,
)


@given(VALUES, VALUES, st.sampled_from(["flow", "block"]), st.sampled_from(["rows", "bag", "ordered"]))
def test_an_update_makes_the_test_pass_and_a_second_one_changes_nothing(before, after, style, form):
    text = _file(before, style, form)
    updated = _updated(text, after)
    found = collected(updated)
    assert list(found.problems) == []
    (test, other) = found.tests
    assert judge_rows(test.job["expect"], after)["verdict"] == "passed"
    assert other.job == collected(text).tests[1].job
    # What is around the value keeps its bytes.
    begin, end = text.index(f"{form}:"), text.index("  # the end")
    assert updated.startswith(text[:begin])
    assert updated.endswith(text[end:])
    if updated != text:
        assert _updated(updated, after) == updated


def _file(rows: list[dict[str, Any]], style: str, form: str) -> str:
    from gitops.review.tests.update import _inline

    listed = (
        "".join(f"\n        - {_inline(row)}" for row in rows) if style == "block" and rows else f" {_inline(rows)}"
    )
    return (
        "version: 1 # a comment\ntests:\n  - id: one # another\n    query: named\n    params: {name: x}\n    expect:\n"
        f"      {form}:{listed}\n  # the end\n  - {{id: two, query: all, expect: {{count: 0}}}}\n"
    )


def _updated(text: str, rows: list[dict[str, Any]]) -> str:
    test = collected(text).tests[0]
    found = judge_rows(test.job["expect"], rows, actual=True)
    if found["verdict"] == "passed":
        return text
    result = QueryTestResult(
        test.id, test.resource, test.at, QueryTestVerdict.FAILED, message=found["message"], actual=found["actual"]
    )
    done = update_file(TEST_FILE, text.encode(), [(test, result)])
    assert done.skipped == ()
    return done.after.decode()
