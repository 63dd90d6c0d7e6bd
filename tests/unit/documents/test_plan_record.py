"""The record of a kept plan: what is written is read back, and nothing else is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.bot.kept_plans import PLAN_RECORD, PlanRecord
from gitops.core.errors import IntegrityError

_ids = st.from_regex(r"[0-9a-f]{40}", fullmatch=True)
_digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
_records = st.builds(
    PlanRecord,
    cluster=st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", fullmatch=True),
    request=st.integers(1, 2**31),
    head=_ids,
    base=_ids,
    plan_digest=st.none() | _digests,
    report_digest=_digests,
)
RECORD = PlanRecord("brain", 7, "a" * 40, "b" * 40, None, "c" * 64)


@given(record=_records)
def test_reading_gives_back_what_was_written(record: PlanRecord) -> None:
    assert PLAN_RECORD.read(PLAN_RECORD.write(record)) == record


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
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
