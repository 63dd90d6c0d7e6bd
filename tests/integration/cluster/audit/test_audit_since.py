"""An audit that begins behind an entry that is believed comes to the verdict of one from the first entry."""

from __future__ import annotations

import pytest

from gitops.cluster.audit.verb import AuditScope
from tests.integration.cluster.audit.test_audit import LIES
from tests.support.audited import MAIN, Lie, Life, saying

ENTRIES = 14


@pytest.mark.parametrize("number", range(1, ENTRIES + 1))
def test_from_every_entry_on_a_true_ledger_is_good(life: Life, number: int) -> None:
    # Among them are entries with an announced create or delete that a later one completes.
    chain = life.chain()
    report = life.audit(chain[-1], scope=AuditScope(since=chain[number - 1]))
    assert (report.findings, report.since, report.entries, report.verified) == ((), number, ENTRIES, ENTRIES)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_behind_it_is_found_where_it_is_told(life: Life, name: str) -> None:
    number, lie, code, words = LIES[name]
    forged = life.forge(number, lie)
    whole = life.audit(forged)
    report = life.audit(forged, scope=AuditScope(since=life.chain()[number - 2]))
    assert report.findings == whole.findings
    assert (report.findings[0].number, report.findings[0].code) == (number, code)
    assert words in report.findings[0].detail


def test_what_lies_before_it_is_not_looked_at(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    above = life.forge(6, Lie(saying(previous=forged)))
    report = life.audit(above, scope=AuditScope(since=forged))
    assert (report.findings, report.since, report.verified) == ((), 5, 6)


def test_an_entry_of_another_ledger_is_no_beginning(life: Life) -> None:
    chain = life.chain()
    for since in (life.forge(6, Lie(saying(operation="other"))), life.git.resolve(MAIN) or "", "ab" * 20):
        report = life.audit(chain[-1], scope=AuditScope(since=since))
        (finding,) = report.findings
        assert (finding.number, finding.code, report.verified) == (0, "ledger_diverged", 0)
    rewound = life.audit(chain[5], scope=AuditScope(since=chain[9]))
    assert [f.code for f in rewound.findings] == ["ledger_diverged"]


def test_an_announced_delete_whose_approval_does_not_hold_is_not_completed_behind_it(life: Life) -> None:
    # 13 announces the delete of graph.extra, 14 says that it happened.
    announced = life.forge(13, Lie(saying(approvals=(), changes=())))
    forged = life.forge(14, Lie(saying(previous=announced)))
    (finding,) = life.audit(forged, scope=AuditScope(since=announced)).findings
    assert (finding.number, finding.code) == (14, "ledger_change_unapproved")


def test_every_entry_that_holds_is_told_in_order_and_no_other(life: Life) -> None:
    told: list[int] = []
    scope = AuditScope(since=life.chain()[2], verified=lambda found: told.append(found.entry.number))
    life.audit(life.forge(9, Lie(saying(changes=(), approvals=()))), scope=scope)
    assert told == [4, 5, 6, 7, 8]
