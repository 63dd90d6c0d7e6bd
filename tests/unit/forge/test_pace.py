"""How fast a forge is written to."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.forge.client import Pace

NOON = datetime(2026, 7, 2, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

pytestmark = pytest.mark.law


def test_a_burst_goes_at_once_and_the_next_one_waits() -> None:
    pace = Pace(3)
    assert [pace.wait(NOON + timedelta(seconds=after)) for after in (0, 0, 10)] == [0, 0, 0]
    assert pace.wait(NOON + timedelta(seconds=20)) == 40
    # The second write of the burst is as old; the third is from ten seconds later.
    assert pace.wait(NOON + timedelta(seconds=60)) == 0
    assert pace.wait(NOON + timedelta(seconds=60)) == 10


@given(st.integers(1, 5), st.lists(st.floats(0, 90), max_size=30))
def test_no_minute_has_more_than_the_forge_takes(most: int, gaps: list[float]) -> None:
    pace, now, sent = Pace(most), NOON, []
    for gap in gaps:
        now += timedelta(seconds=gap)
        now += timedelta(seconds=pace.wait(now))
        sent.append(now)
    assert all(
        later - earlier >= MINUTE - timedelta(milliseconds=1) for earlier, later in zip(sent, sent[most:], strict=False)
    )
