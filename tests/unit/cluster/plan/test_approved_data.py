"""Step 8: which data an approval covers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.approvals.verify import data_refusal
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.trust import DataGrowth
from tests.support.planning import SEEN, change

DELETE = change("graph.g", "delete")


def refusal(then: Seen | None, now: Seen | None, growth: DataGrowth | None = None) -> str | None:
    found = data_refusal(replace(DELETE, seen=now), then, growth or DataGrowth())
    return None if found is None else found[0]


def rows(number: int) -> Seen:
    return replace(SEEN, rows=number)


@pytest.mark.parametrize(("then", "now"), [(None, SEEN), (SEEN, None), (None, None)])
def test_unknown_data_is_refused(then: Seen | None, now: Seen | None) -> None:
    assert refusal(then, now) == "approval_data_unknown"


def test_another_incarnation_is_refused_whatever_it_holds() -> None:
    assert refusal(SEEN, replace(SEEN, incarnation="other")) == "approval_other_graph"
    assert refusal(SEEN, replace(SEEN, incarnation="other", rows=0)) == "approval_other_graph"


@pytest.mark.parametrize(
    ("then", "now", "growth", "refused"),
    [
        (0, 0, DataGrowth(), False),
        (0, 1, DataGrowth(), True),
        (0, 1, DataGrowth(1000, 10**9), True),
        (1, 1001, DataGrowth(), False),
        (1, 1002, DataGrowth(), True),
        (100_000, 110_000, DataGrowth(), False),
        (100_000, 110_001, DataGrowth(), True),
        (9731, 1204, DataGrowth(), False),
        (5, 5, DataGrowth(0, 0), False),
        (5, 6, DataGrowth(0, 0), True),
    ],
)
def test_growth_is_bounded_by_percent_or_rows(then: int, now: int, growth: DataGrowth, refused: bool) -> None:
    assert refusal(rows(then), rows(now), growth) == ("approval_data_grew" if refused else None)


@pytest.mark.parametrize(("approved", "covered"), [([], None), ([None], None), ([200, None, 9], 19), ([9, 0], 0)])
def test_a_delete_takes_what_every_approval_covers(approved: list[int | None], covered: int | None) -> None:
    seen = [None if number is None else rows(number) for number in approved]
    assert DataGrowth(0, 10).covered(seen) == covered


@pytest.mark.parametrize(
    "each", [change("query.g.q", "delete"), change("graph.g", "create"), change("schema.g", "create")]
)
def test_other_changes_are_about_no_data(each: Change) -> None:
    assert data_refusal(each, None, DataGrowth()) is None
