"""What is known of a rename that waits for its approval, while the ledger goes on."""

from __future__ import annotations

from pathlib import Path

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.model.address import Address
from gitops.repository.apply import move_cluster
from tests.support.audited import CONFIG, Life
from tests.support.governed import WITHOUT_LEGACY, deleted, errors, means, newest

RENAMED = CONFIG.replace("name: brain", "name: mind, renamed_from: brain").encode()


def test_who_renames_a_cluster_does_not_approve_it_after_a_refresh(tmp_path: Path) -> None:
    """The entry of a refresh lists no changes."""
    life = Life(tmp_path)
    life.begin()
    life.change("ada", {"gitops.yaml": RENAMED})
    life.run()
    life.engine.load("memory/notes", 5)
    refresh(life.workspace(in_place=True))
    assert newest(life).kind == "refresh"

    life.change("dora", {"gitops.yaml": RENAMED + b"# Words.\n"})
    assert errors(sign_approval(life.workspace(), Address("cluster.brain"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "cluster.brain")
    moved, _ = life.run()
    assert moved.rule is not None
    assert moved.rule.name == "mind"


def test_what_waits_beside_a_rename_keeps_its_authors(tmp_path: Path) -> None:
    """The entry of the rename is the first one after the commit of the delete."""
    life = Life(tmp_path)
    life.begin()
    life.change("ada", WITHOUT_LEGACY)
    life.change("dora", {"gitops.yaml": RENAMED})
    life.approve("ben", "cluster.brain")
    moved, _ = life.run()
    assert moved.outcome is not None
    assert errors(sign_approval(life.workspace(), Address("graph.legacy"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "graph.legacy")
    assert deleted(life.run()[1])


def test_what_waits_beside_a_delete_that_died_keeps_its_authors(tmp_path: Path) -> None:
    """The entry of the intents is the first one after the commit of the rename, and announces the delete alone."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", WITHOUT_LEGACY)
    life.change("ada", {"gitops.yaml": RENAMED})
    life.approve("ben", "graph.legacy")
    life.run(dying_at="cluster_apply.after_graph_delete")
    assert newest(life).kind == "intent"
    assert errors(sign_approval(life.workspace(), Address("cluster.brain"), means(life, "ada"))) == ["approval_self"]
    life.approve("ben", "cluster.brain")
    assert life.run()[0].outcome is not None


def test_a_dry_run_shows_an_approved_rename_alone_and_records_nothing(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"gitops.yaml": RENAMED})
    for approved in (False, True):
        if approved:
            life.approve("ben", "cluster.brain")
        rule, before = life.rule(), life.git.refs("refs/")
        moved = move_cluster(
            life.repository,
            rule,
            life.repository.position(rule),
            life.repository.config(),
            life.workspace,
            dry_run=True,
        )
        assert life.git.refs("refs/") == before
        assert moved.rule == rule
        assert [each.code for each in moved.refused] == ["cluster_change_pending"] * approved
        assert moved.outcome is None or (moved.outcome.dry_run, moved.outcome.applied_count) == ((), 1)
