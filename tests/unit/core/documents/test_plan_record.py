"""The record of a kept plan: what is written is read back, and nothing else is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.bot.report import moved_since
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Seen
from gitops.core.errors import IntegrityError
from gitops.repository.kept_plans import PLAN_RECORD, PlanRecord, SeenChange

_ids = st.from_regex(r"[0-9a-f]{40}", fullmatch=True)
_digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
_names = st.from_regex(r"graph\.[a-z]{1,4}", fullmatch=True)
_seen = st.builds(
    SeenChange,
    _names.map(Address),
    st.none() | _digests,
    _digests,
    st.builds(Seen, _names, st.integers(0, 9), st.integers(1, 9)),
)
_records = st.builds(
    PlanRecord,
    cluster=st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", fullmatch=True),
    request=st.integers(1, 2**31),
    head=_ids,
    base=_ids,
    plan_digest=st.none() | _digests,
    report_digest=_digests,
    changes=st.lists(_names, max_size=3).map(tuple),
    count=st.integers(0, 9),
    missing=st.lists(_names, max_size=3).map(tuple),
    errors=st.integers(0, 9),
    since=st.lists(_names, max_size=3).map(tuple),
    shown=st.booleans(),
    seen=st.lists(_seen, max_size=2).map(tuple),
)
RECORD = PlanRecord("brain", 7, "a" * 40, "b" * 40, None, "c" * 64)


@given(record=_records)
def test_reading_gives_back_what_was_written(record: PlanRecord) -> None:
    assert PLAN_RECORD.read(PLAN_RECORD.write(record)) == record


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": 1},
        {"changes": None},
        {"request": 0},
        {"head": "main"},
        {"told": None},
        {"plan_digest": "abc"},
        {"more": 1},
        {"cluster": ""},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    form = {**json.loads(PLAN_RECORD.write(RECORD)), **change}
    with pytest.raises(IntegrityError) as caught:
        PLAN_RECORD.read(json.dumps(form).encode())
    assert caught.value.code == "request_invalid"


NOW = replace(RECORD, changes=("graph.a", "graph.b"), count=2, missing=("graph.b",))


@pytest.mark.parametrize(
    ("before", "facts"),
    [
        (NOW, ()),
        (replace(NOW, since=("x",)), ("x",)),
        (
            replace(NOW, report_digest="d" * 64, head="e" * 40, base="f" * 40),
            (
                "the head moved from eeeeeeeeeeee to aaaaaaaaaaaa",
                "the target branch moved from ffffffffffff to bbbbbbbbbbbb",
            ),
        ),
        (
            replace(NOW, report_digest="d" * 64, changes=("graph.c",), count=1, missing=("graph.c",), errors=2),
            (
                "errors: 0, before 2",
                "it also changes `graph.a`, `graph.b`",
                "it no longer changes `graph.c`",
                "an approval is missing now for `graph.b`",
            ),
        ),
        (
            replace(NOW, report_digest="d" * 64, missing=("graph.a", "graph.b")),
            ("all approvals are there now for `graph.a`",),
        ),
        (
            replace(NOW, report_digest="d" * 64, plan_digest=None, changes=(), count=0, missing=("graph.b",), errors=1),
            ("errors: 0, before 1",),
        ),
        (replace(NOW, report_digest="d" * 64, count=300), ("changes: 2, before 300",)),
    ],
)
def test_what_moved_since_is_a_few_facts(before: PlanRecord, facts: tuple[str, ...]) -> None:
    assert moved_since(before, NOW) == facts


def test_at_most_five_facts_are_given() -> None:
    old = PlanRecord("brain", 7, "d" * 40, "e" * 40, None, "f" * 64, ("graph.c",), 1, ("graph.z",), 3)
    found = moved_since(old, NOW)
    assert len(found) == 5
    assert found[0] == "errors: 0, before 3"
