"""Branches that anybody pushes where approvals are looked for cost a bounded amount of work, and hide nothing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from gitops.cluster.ledger import evidence
from gitops.cluster.ledger.evidence import LedgerEntries, WitnessedLedger, WitnessKind, verify_witness
from gitops.cluster.model.address import Address
from gitops.git.repository import GitRepository
from tests.support.audited import CLUSTER, Life, declared
from tests.support.junk import push_junk

_BRANCHES, _COMMITS = 60, 300


def _life(folder: Path) -> Life:
    life = Life(folder)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    return life


def test_a_foreign_history_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    life = _life(tmp_path)
    life.approve("ada", "graph.legacy")
    push_junk(Path(life.git.git_dir), _BRANCHES, _COMMITS)
    read: Counter[str] = Counter()
    commit = GitRepository.commit

    def counted(self: GitRepository, commit_id: str) -> object:
        read[commit_id] += 1
        return commit(self, commit_id)

    monkeypatch.setattr(GitRepository, "commit", counted)
    ledger = life.ledger(life.repository.config().cluster(None))
    ledger.view()
    read.clear()
    listing = ledger.approvals()
    assert (listing.problem, len(listing.evidence)) == (None, _BRANCHES + 1)
    # A few looks at the head of each branch and at the commit below it, whatever is below that.
    assert len(read) < 2 * _BRANCHES + 20
    assert read.total() < 8 * _BRANCHES + 50
    assert [e.approval.resource for e in listing.evidence if e.approval is not None] == [Address("graph.legacy")]


@pytest.mark.parametrize(("steps", "kind"), [(0, WitnessKind.UNREAD), (1, WitnessKind.UNREAD), (9, WitnessKind.NEWER)])
def test_a_chain_beyond_the_bound_is_unread_and_still_contradicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, kind: WitnessKind
) -> None:
    """The ledger was rewound by two entries; the bound is for all witnesses of one reading together."""
    life = _life(tmp_path)
    life.apply()
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    life.apply()
    chain = life.chain()
    store, old = life.git, chain[-3]
    monkeypatch.setattr(evidence, "MOST_STEPS", steps)
    ledger = WitnessedLedger(CLUSTER, old, LedgerEntries(store, old), lambda _: None)
    found = verify_witness(store, chain[-1], ledger)
    assert (found.kind, found.contradicts) == (kind, True)
