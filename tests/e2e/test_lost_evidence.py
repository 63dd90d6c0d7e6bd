"""What says no must not be undone by deleting a branch: revocations, the ledger itself, its newest entries. Over real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.ledger.chain import REVOCATIONS
from tests.support.loop import APPROVALS, CONFIG, DELETE_LEGACY, LEDGER, MAIN, Loop

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="session")
def two_needed(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: two people are needed, and alice's delete waits."""
    loop = Loop.build(tmp_path_factory.mktemp("two"), CONFIG + "  required: 2\n")
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY, key="alice"))
    return loop


@pytest.fixture
def waiting(two_needed: Loop, tmp_path: Path) -> Loop:
    """As `two_needed`."""
    return two_needed.copied(tmp_path / "waiting")


def test_a_revocation_is_recorded_when_it_is_pushed_and_deleting_its_branch_undoes_nothing(waiting: Loop) -> None:
    assert waiting.sign_approval("bob", "graph.legacy").ok
    identity = waiting.approvals()[0].removeprefix(APPROVALS)
    told = waiting.gitops("bob", "revoke", identity, "--reason", "not yet").text
    assert f"approval {identity} of graph.legacy revoked" in told
    newest = waiting.program("bob", "git", "log", "-1", "--format=%s", waiting.tip(LEDGER), at=waiting.server).text
    assert "revoke(brain): records 1 revocation(s)" in newest

    (ref,) = waiting.store.refs(REVOCATIONS.rstrip("/"))
    waiting.drop(ref)
    assert waiting.sign_approval("carol", "graph.legacy").ok
    for approval in waiting.approvals():
        waiting.arrived(approval)
    assert waiting.graph("legacy").exists()
    waiting.program("carol", "git", "fetch", "-q", "origin")
    audit = waiting.gitops("carol", "audit")
    assert (audit.code, f"{identity} stays revoked" in audit.text) == (0, True)
