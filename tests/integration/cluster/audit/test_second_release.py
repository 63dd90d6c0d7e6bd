"""The audit of a ledger that the second release wrote; `tests/data/second-release/make.py` says what happened in it."""

from __future__ import annotations

from pathlib import Path

from gitops.cluster.audit.verb import audit
from gitops.repository.wiring.git import open_commit_tree
from tests.support.git_fixture import opened, run
from tests.support.loop import CLUSTER, LEDGER
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "second-release"


def test_it_is_accepted_and_says_who_approved_their_own_change(tmp_path: Path) -> None:
    """A rebased request is accepted, whichever of its commits was gated; merges that crossed hid an author, and are named."""
    place = tmp_path / "ledger.git"
    run("git", "clone", "-q", "--mirror", str(DATA / "ledger.bundle"), str(place), home=tmp_path)
    reader = opened(place)
    report = audit(reader, reader.resolve(LEDGER) or "", CLUSTER, lambda r, tree: open_commit_tree(r, tree, "cluster"))
    assert report.ok, report.findings
    (note,) = report.notes
    assert note.startswith(
        "entry 13: bob@people.example approved the change of graph.legacy, and is one of its authors"
    )
