"""The parts of a new entry, without a store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.ledger.files import following
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import ApprovalUse, EntryChange, EntryKind, SourceRevision
from tests.support.branch_ledger import written

GRAPH = Address("graph.people")


@pytest.mark.parametrize("kind", [EntryKind.REVOKE, EntryKind.REPAIR, EntryKind.CHANGESET])
def test_entry_that_applies_nothing_takes_over_where_it_is_and_nothing_that_happened(kind: EntryKind) -> None:
    known = written(3).entry
    assert known is not None
    stays = replace(known, source=SourceRevision("2" * 40, "3" * 40), changeset="chs-" + "a" * 16, authors=("ada",))
    before = replace(
        stays,
        kind=EntryKind.REFRESH,
        plan_digest="4" * 64,
        changes=(EntryChange(GRAPH, "delete", "7" * 64, None, "applied"),),
        approvals=(ApprovalUse("01K2H7S6P0T4V8WXAYZ2B6CDEF", "8" * 40, GRAPH, "ada@example.org"),),
        recovered=("operation-1",),
        vanished=(GRAPH,),
        quarantined=("9" * 40,),
    )
    after = following(
        before, kind, operation="operation-4", at="2026-07-03T09:00:00Z", actor="bo", trust_digest="1" * 64
    )
    moved = {"operation": "operation-4", "at": "2026-07-03T09:00:00Z", "actor": "bo", "number": 0}
    assert after == replace(stays, kind=kind, policy_digest="1" * 64, trust_digest="1" * 64, **moved)
