"""The time of a ledger is the later of the clock and the newest entry, for gates, expiry and entries alike."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.ledger.port import ledger_time
from gitops.core.clock import parse_timestamp
from tests.support.audited import CONFIG, START, Life, declared, moment
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.governed import deleted, newest

HOUR = timedelta(hours=1)
# The clock jumps by up to an hour at each look, which no change may run out of time for.
SHORT = CONFIG + "  expires_after: 2h\napply:\n  node_timeout: 30d\n"
ADA_UNTIL = {"ada": f'valid-before="{moment(3)}"'}
_skews = st.integers(-180, 180).map(lambda minutes: timedelta(minutes=minutes))


def _waiting(folder: Path, step: timedelta = timedelta(seconds=1)) -> tuple[Life, FixedClock]:
    """A delete that waits; ada's key is good for three hours."""
    clock = FixedClock(START, timedelta(seconds=1))
    life = Life(folder, config=SHORT, options=ADA_UNTIL, clock=clock)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    clock._step = step
    return life, clock


@settings(max_examples=cases(12))
@example(later=[4 * HOUR, -3 * HOUR, timedelta()], step=timedelta())
@example(later=[timedelta(), timedelta(minutes=115), timedelta()], step=timedelta(minutes=3))
@given(later=st.lists(_skews, min_size=3, max_size=3), step=st.sampled_from([timedelta(), 20 * HOUR / 60, HOUR]))
def test_the_audit_is_good_whatever_the_clocks_of_the_runs_say(later: list[timedelta], step: timedelta) -> None:
    """A refresh, an approval and an apply, each on a machine with another clock, and runs that take long."""
    with tempfile.TemporaryDirectory() as folder:
        life, clock = _waiting(Path(folder), step)
        clock.advance(later[0])
        assert refresh(life.workspace()).ok
        clock.advance(later[1])
        try:
            life.approve("ada", "graph.legacy")
        except AssertionError:
            # The key or the approval is not good at this time.
            return
        clock.advance(later[2])
        outcome = life.apply()
        report = life.audit(life.chain()[-1])
        assert report.findings == (), outcome.diagnostics
        at = parse_timestamp(newest(life).at)
        assert at is not None
        assert not deleted(outcome) or at < START + 3 * HOUR


def test_a_clock_that_is_behind_accepts_no_expired_key(tmp_path: Path) -> None:
    """The ledger is four hours on; a machine whose clock is three hours behind approves with a key that has expired."""
    life, clock = _waiting(tmp_path)
    clock.advance(4 * HOUR)
    assert refresh(life.workspace()).ok
    clock.advance(-3 * HOUR)
    with pytest.raises(AssertionError, match="approval_signer_unknown"):
        life.approve("ada", "graph.legacy")
    assert not deleted(life.apply())
    assert life.audit(life.chain()[-1]).findings == ()


def test_what_a_gate_accepted_does_not_expire_before_its_entry(tmp_path: Path) -> None:
    """A run that takes hours: the approval of two hours was good when the run began."""
    life, clock = _waiting(tmp_path)
    life.approve("ben", "graph.legacy")
    clock._step = 25 * HOUR / 60
    assert deleted(life.apply())
    assert life.audit(life.chain()[-1]).findings == ()


@given(minutes=st.integers(-600, 600))
def test_the_time_is_the_later_of_both(minutes: int) -> None:
    class Entry:
        at = "2026-07-02T10:00:00Z"

    now = START + timedelta(minutes=minutes, microseconds=5)
    found = ledger_time(now, Entry())  # type: ignore[arg-type]
    assert found == max(START, now.replace(microsecond=0))
    assert ledger_time(now, None) == now.replace(microsecond=0)
