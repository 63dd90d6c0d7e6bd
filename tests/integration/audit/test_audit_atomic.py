"""A ledger of atomic runs, two of which died, is as true at every moment as one of runs that land what they can."""

from __future__ import annotations

from pathlib import Path

from tests.support.audited import Life


def test_every_moment_of_a_ledger_of_atomic_runs_is_good(tmp_path: Path) -> None:
    life = Life(tmp_path, atomic=True).live()
    kinds = [life.entry(number).kind.value for number in range(1, len(life.chain()) + 1)]
    assert "changeset" in kinds
    for head in life.chain():
        report = life.audit(head)
        assert report.findings == (), (kinds, report.findings[0].number, report.findings[0].detail)
    assert life.ledger(life.rule()).changesets().open == ()
