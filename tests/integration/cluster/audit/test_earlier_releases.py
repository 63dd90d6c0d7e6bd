"""The audit of ledgers that earlier releases wrote; the `make.py` beside each of them says what happened in it."""

from __future__ import annotations

from pathlib import Path

from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.verb import AuditScope, audit
from gitops.cluster.ledger.chain import VerifiedEntry
from gitops.cluster.model.change import Disposition, Tier
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.repository.wiring.git import open_commit_tree
from tests.support.git_fixture import opened, run
from tests.support.loop import CLUSTER, LEDGER
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data"


def _audited(release: str, folder: Path) -> tuple[AuditReport, list[LedgerEntry]]:
    """The report of the audit, and the entries that it verified."""
    place, verified = folder / "ledger.git", list[VerifiedEntry]()
    run("git", "clone", "-q", "--mirror", str(DATA / release / "ledger.bundle"), str(place), home=folder)
    reader, scope = opened(place), AuditScope(verified=verified.append)
    head = reader.resolve(LEDGER) or ""
    report = audit(reader, head, CLUSTER, lambda r, tree: open_commit_tree(r, tree, "cluster"), scope)
    return report, [found.entry for found in verified]


def test_it_is_accepted_and_says_who_approved_their_own_change(tmp_path: Path) -> None:
    """A rebased request is accepted, whichever of its commits was gated; merges that crossed hid an author, and are named."""
    report, entries = _audited("second-release", tmp_path)
    assert report.ok, report.findings
    assert {entry.version for entry in entries} == {3}
    (note,) = report.notes
    assert note.startswith(
        "entry 13: bob@people.example approved the change of graph.legacy, and is one of its authors"
    )


def test_the_tiers_of_the_third_release_stand_for_its_gates(tmp_path: Path) -> None:
    """Its gated policy, migrations and delete are accepted as that release recorded them, without gates."""
    report, entries = _audited("third-release", tmp_path)
    assert (report.findings, report.notes, {entry.version for entry in entries}) == ((), (), {4})
    applied = [
        (change.resource, change.tier)
        for entry in entries
        for change in entry.changes
        if entry.kind is EntryKind.APPLY and change.tier is not None and change.disposition == Disposition.APPLIED
    ]
    assert applied == [
        ("policy.k", Tier.REVERSIBLE),
        ("schema.notes", Tier.REVERSIBLE),
        ("schema.notes", Tier.IRREVERSIBLE),
        ("graph.legacy", Tier.IRREVERSIBLE),
    ]
