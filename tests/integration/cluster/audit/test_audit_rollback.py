"""A ledger that was rewound, deleted, replaced or frozen, as an auditor's clone notices it."""

from __future__ import annotations

import shutil

import pytest

from gitops.cluster.ledger.heads import HeadPin
from tests.support.audit_desk import APPROVALS, SEEN, TRACKED, Desk
from tests.support.audited import CLUSTER, Lie, saying
from tests.support.git_fixture import run


def test_what_an_audit_verified_is_remembered(desk: Desk) -> None:
    head = desk.life.chain()[-1]
    assert desk.run("audit")[0] == 0
    assert desk.git("rev-parse", SEEN) == head
    assert HeadPin(desk.clone / ".git", CLUSTER).read() == head


@pytest.mark.parametrize("lost", [[], ["ref"], ["note"]])
def test_a_rewound_ledger_is_refused_by_every_command_offline_too(desk: Desk, lost: list[str]) -> None:
    desk.run("audit")
    # Behind every approval, which would tell of it themselves.
    desk.serve(desk.life.chain()[12])
    desk.fetch()
    if "ref" in lost:
        desk.git("update-ref", "-d", SEEN)
    if "note" in lost:
        (desk.clone / ".git/gitops/seen/brain").unlink()
    assert desk.codes() == ["ledger_diverged"]
    for command in (["log"], ["status"], ["plan", "--cluster", CLUSTER], ["audit", "--verify-envelope", "/dev/null"]):
        code, text = desk.run(*command)
        assert (code, "ledger_diverged" in text) == (1, True), command
    desk.serve(desk.life.chain()[13])
    desk.fetch()
    assert desk.codes() == []


@pytest.mark.parametrize(("fetched", "behind"), [(11, "2 entries behind: "), (12, "1 entry behind: ")])
def test_a_clone_that_has_not_fetched_is_behind_and_not_rewound(desk: Desk, fetched: int, behind: str) -> None:
    """A command that asks the server has seen newer entries than the branch that was fetched last."""
    head = desk.life.chain()[-1]
    desk.serve(desk.life.chain()[fetched])
    desk.forget_approvals()
    desk.fetch()
    shutil.rmtree(desk.clone / ".git/logs/refs/remotes/origin/gitops", ignore_errors=True)
    desk.serve(head)
    assert desk.run("status")[0] == 0
    for command in (["log"], ["audit"]):
        code, text = desk.run(*command)
        assert (code, text.count("ledger_diverged"), text.count("ledger_behind")) == (1, 0, 1), command
        assert f"this clone is {behind}" in text
        assert "fix: fetch, and run the same command again: git fetch origin;" in text
    desk.fetch()
    for command in (["log"], ["audit"]):
        assert desk.run(*command)[0] == 0


def test_a_deleted_ledger_is_refused(desk: Desk) -> None:
    desk.run("audit")
    desk.serve(None)
    desk.fetch()
    assert desk.git("for-each-ref", TRACKED) == ""
    for command in (["audit"], ["log"], ["status"], ["plan", "--cluster", CLUSTER]):
        code, text = desk.run(*command)
        assert (code, "ledger_diverged" in text) == (1, True), command


def test_a_fresh_clone_is_told_by_the_approvals(desk: Desk) -> None:
    for head in (desk.life.chain()[8], None):
        desk.serve(head)
        desk.fetch()
        for command in (["status"], ["plan", "--cluster", CLUSTER]):
            code, text = desk.run(*command)
            assert (code, "ledger_diverged" in text, "gitops/approvals/brain/" in text) == (1, True, True), command
        assert desk.git("for-each-ref", SEEN) == ""
    desk.serve(desk.life.chain()[13])
    assert desk.run("status")[0] == 0


def test_a_clone_that_is_up_to_date_is_told_when_it_plans(desk: Desk) -> None:
    approvals = dict(
        line.split()[::-1] for line in desk.git("show-ref", at=desk.server).splitlines() if APPROVALS in line
    )
    desk.forget_approvals()
    desk.serve(desk.life.chain()[8])
    assert desk.run("status")[0] == 0
    for ref, commit in approvals.items():
        desk.serve(commit, ref)
    code, text = desk.run("plan", "--cluster", CLUSTER)
    assert (code, "ledger_diverged" in text, "gitops/approvals/brain/" in text) == (1, True, True)


def test_a_mirror_that_prunes_remembers_beside_its_refs(desk: Desk) -> None:
    mirror = desk.home / "mirror.git"
    run("git", "clone", "-q", "--mirror", str(desk.server), str(mirror), home=desk.home)
    assert desk.run("audit", at=mirror)[0] == 0
    for head in (desk.life.chain()[12], None):
        desk.serve(head)
        desk.serve(head, SEEN)
        desk.git("remote", "update", "--prune", at=mirror)
        assert desk.git("for-each-ref", "--format=%(objectname)", SEEN, at=mirror) == (head or "")
        code, text = desk.run("audit", at=mirror)
        assert (code, "ledger_diverged" in text) == (1, True)


def test_replaced_objects_and_grafts_change_nothing(desk: Desk) -> None:
    forged = desk.life.forge(8, Lie(saying(changes=(), approvals=())))
    desk.serve(forged)
    desk.fetch()
    broken = desk.json("audit", "--json")["findings"]
    true = desk.life.chain()[7]
    desk.git("replace", forged, true)
    assert desk.git("cat-file", "commit", forged) == desk.git("cat-file", "commit", true)
    assert desk.json("audit", "--json")["findings"] == broken
    (desk.clone / ".git/info").mkdir(exist_ok=True)
    (desk.clone / ".git/info/grafts").write_text(f"{forged} {desk.life.chain()[6]}\n")
    assert "grafts" in desk.run("audit")[1]


def test_a_repository_that_cannot_be_written_is_audited_with_a_note(desk: Desk) -> None:
    for place in (".git/refs/gitops", ".git/gitops"):
        (desk.clone / place).write_text("in the way")
    report = desk.json("audit", "--json")
    assert report["ok"]
    assert "could not remember the head" in report["notes"][0]


def test_accepting_another_ledger_takes_its_whole_head(desk: Desk) -> None:
    desk.run("audit")
    anew = desk.life.forge(1, Lie(saying(operation="begin again")))
    desk.serve(anew)
    desk.forget_approvals()
    desk.fetch()
    assert desk.codes() == ["ledger_diverged"]
    for wrong in (anew[:12], desk.life.chain()[-1], "main"):
        assert "usage_error" in desk.run("audit", "--accept", wrong)[1]
        assert desk.git("rev-parse", SEEN) == desk.life.chain()[-1]
    code, text = desk.run("audit", "--accept", anew)
    assert (code, text.count("no longer remembered")) == (0, 2)
    assert desk.codes() == []
    assert desk.run("status")[0] == 0


def test_a_ledger_that_does_not_hold_is_not_accepted(desk: Desk) -> None:
    desk.run("audit")
    forged = desk.life.forge(2, Lie(message="nothing\n"))
    desk.serve(forged)
    desk.fetch()
    assert desk.run("audit", "--accept", forged)[0] == 1
    assert desk.git("rev-parse", SEEN) == desk.life.chain()[-1]


def test_approvals_of_the_ledger_before_are_named_when_another_is_accepted(desk: Desk) -> None:
    desk.run("audit")
    anew = desk.life.forge(1, Lie(saying(operation="begin again")))
    desk.serve(anew)
    desk.fetch()
    code, text = desk.run("audit", "--accept", anew)
    assert (code, text.count("names an entry that the ledger does not have; delete that branch")) == (0, 3)
    assert desk.codes() == ["ledger_diverged"]


def test_a_witness_reveals_a_frozen_ledger(desk: Desk) -> None:
    colleague = desk.home / "colleague"
    run("git", "clone", "-q", str(desk.server), str(colleague), home=desk.home)
    desk.run("status", at=colleague)
    frozen = desk.life.chain()[12]
    desk.serve(frozen)
    desk.fetch()
    assert desk.codes() == []
    assert set(desk.codes("--witness", str(colleague))) == {"ledger_behind"}
    desk.git("remote", "add", "second", str(colleague))
    assert set(desk.codes("--witness", "second")) == {"ledger_behind"}
    assert desk.json("audit", "--json", "--witness", str(desk.server))["notes"][0].endswith("has the same head")
    empty = desk.home / "empty.git"
    run("git", "init", "-q", "--bare", str(empty), home=desk.home)
    assert "witness_unproven" in desk.run("audit", "--witness", str(empty))[1]
    assert "git_remote_unavailable" in desk.run("audit", "--witness", str(desk.home / "nowhere"))[1]
