"""Break-glass: one person permits a change, which leaves a debt that nothing gets past but a second person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.approving.decide import countersign, revoke
from gitops.cluster.ledger.chain import COUNTERSIGNATURES
from gitops.cluster.model.approval import Decision, DecisionKind, Via
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import status
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render import json
from tests.support.audited import LEDGER, Life, person
from tests.support.governed import (
    PERMISSIVE,
    alone,
    branches,
    deleted,
    errors,
    made,
    newest,
    office,
    pushed_again,
    waiting,
    warnings,
)
from tests.support.signed import signer

QUERY = {
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.title as t }\n}\n"
}


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Two people would be needed; ada may act alone; the delete of a graph by mallory waits."""
    return waiting(tmp_path, PERMISSIVE + "  required: 2\n")


@pytest.fixture
def owing(life: Life) -> tuple[Life, str]:
    """The same after ada acted alone."""
    identity = made(alone(life))
    assert deleted(life.apply())
    return life, identity


def test_one_person_is_enough_and_leaves_one_debt(life: Life) -> None:
    assert not deleted(life.apply())
    identity = made(alone(life))
    outcome = life.apply()
    assert deleted(outcome)
    entry = newest(life)
    (debt,) = entry.debts
    assert (debt.approval_id, debt.resource, debt.principal, debt.reason) == (
        identity,
        "graph.legacy",
        "ada",
        "it leaks",
    )
    assert [use.via for use in entry.approvals] == [Via.BREAK_GLASS]
    assert debt.commit in life.git.commit(life.chain()[-1]).parents
    assert life.state(len(life.chain())).debts == (debt,)
    assert outcome.debts == (debt,)
    assert life.audit(life.chain()[-1]).ok


def test_nothing_else_is_applied_while_the_debt_is_open(owing: tuple[Life, str]) -> None:
    life, identity = owing
    (debt,) = newest(life).debts
    life.change("dora", QUERY)
    head = life.git.resolve(LEDGER)
    planned = plan(life.workspace())
    assert (planned.lands, [each.code for each in planned.obstacles]) == (False, ["debt_open"])
    refused = life.apply()
    assert errors(refused) == ["debt_open"]
    (told,) = [d for d in refused.diagnostics if d.code == "debt_open"]
    assert told.fix is not None
    assert told.fix.endswith(f" to run: gitops countersign {identity} --commit {debt.commit} --cluster brain")
    assert life.git.resolve(LEDGER) == head


def test_plan_status_and_refresh_warn_of_the_debt(owing: tuple[Life, str]) -> None:
    life, identity = owing
    planned = plan(life.workspace())
    assert [d.approval_id for d in planned.debts] == [identity]
    (told,) = json.envelope(planned)["debts"]
    assert (told["approval_id"], told["principal"], told["reason"]) == (identity, "ada", "it leaks")
    for outcome in (planned, status(life.workspace()), refresh(life.workspace())):
        assert outcome.ok
        assert "debt_open" in warnings(outcome)


def test_a_run_without_changes_passes_and_warns(owing: tuple[Life, str]) -> None:
    life, _ = owing
    assert plan(life.workspace()).lands
    outcome = life.apply()
    assert outcome.ok
    assert "debt_open" in warnings(outcome)


def test_another_approver_settles_it_and_the_next_run_goes_on(owing: tuple[Life, str]) -> None:
    life, identity = owing
    life.change("dora", QUERY)
    assert errors(life.apply()) == ["debt_open"]
    agreed = countersign(office(life, "ben"), identity, "seen")
    assert (agreed.ok, agreed.decided_by, agreed.resource) == (True, "ben@example.org", "graph.legacy")
    assert plan(life.workspace()).debts == ()
    outcome = life.apply()
    assert (outcome.ok, outcome.converged, outcome.debts) == (True, True, ())
    settling, applied = life.entry(len(life.chain()) - 1), newest(life)
    assert (settling.kind, applied.kind) == (EntryKind.COUNTERSIGN, EntryKind.APPLY)
    assert [(s.approval_id, s.principal) for s in settling.settled] == [(identity, "ben@example.org")]
    assert settling.changes == ()
    assert agreed.commit in life.git.commit(life.chain()[-2]).parents
    assert life.state(len(life.chain())).debts == ()
    assert life.audit(life.chain()[-1]).ok


@pytest.mark.parametrize(
    ("who", "said"), [("ada", "gave the emergency approval"), ("bot", "not an approver"), ("mallory", "not trusted")]
)
def test_nobody_else_settles_it(owing: tuple[Life, str], who: str, said: str) -> None:
    life, identity = owing
    before = branches(life)
    draft = _countersigned(life, who, identity, "01BX5ZZKBKACTAV9WEVGEMMVS0")
    assert said in next(d.message for d in plan(life.workspace()).diagnostics if d.code == "decision_refused")
    life.git.update_refs([RefUpdate(f"{COUNTERSIGNATURES}brain/01BX5ZZKBKACTAV9WEVGEMMVS0", draft, ZERO)])
    refused = countersign(office(life, who), identity, "fine")
    assert errors(refused) == ["decision_refused"]
    assert said in refused.diagnostics[0].message
    assert branches(life) == before


def _countersigned(life: Life, who: str, approval_id: str, name: str) -> str:
    """A countersignature of the newest entry's debt, put past the guard under any name; its commit."""
    told = Decision(
        kind=DecisionKind.COUNTERSIGN,
        decision_id=name,
        target=newest(life).target,
        approval_id=approval_id,
        subject=newest(life).debts[0].commit,
        reason="x",
        ledger_head=life.chain()[-1],
        created_at="2026-07-02T10:00:00Z",
        nonce="n",
    )
    tree = life.git.commit(told.ledger_head).tree
    commit = NewCommit(
        tree, (told.ledger_head,), person(who), decision_message(told, sign=signer(life.git, life.keys[who]))
    )
    draft = life.git.write_commit(commit, signing_key=str(life.keys[who]))
    life.git.update_refs([RefUpdate(f"{COUNTERSIGNATURES}brain/{name}", ZERO, draft)])
    return draft


def test_a_countersignature_under_an_id_that_is_taken_settles_nothing(owing: tuple[Life, str]) -> None:
    """Ben names his countersignature like the approval, whose record would hide it."""
    life, identity = owing
    (debt,) = newest(life).debts
    _countersigned(life, "ben", identity, identity)
    assert life.apply().debts == (debt,)
    assert newest(life).kind is EntryKind.APPLY
    assert countersign(office(life, "ben"), identity, "again").ok
    assert life.apply().debts == ()
    assert life.audit(life.chain()[-1]).ok


def test_a_countersignature_is_made_once(owing: tuple[Life, str]) -> None:
    life, identity = owing
    first = countersign(office(life, "ben"), identity, "seen")
    assert countersign(office(life, "ben"), identity, "again").commit == first.commit
    life.apply()
    assert errors(countersign(office(life, "ben"), identity, "late")) == ["debt_not_found"]


def test_a_further_emergency_may_pass_and_owes_too(owing: tuple[Life, str]) -> None:
    life, first = owing
    life.change("dora", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    second = made(alone(life, address="graph.notes", reason="worse"))
    assert life.apply().ok
    assert [d.approval_id for d in life.state(len(life.chain())).debts] == sorted([first, second])
    for identity in (first, second):
        assert countersign(office(life, "ben"), identity, "seen").ok
    assert life.apply().ok
    assert life.state(len(life.chain())).debts == ()
    assert len(newest(life).settled) == 2
    assert life.audit(life.chain()[-1]).ok


def test_an_emergency_is_not_used_where_enough_people_approved(tmp_path: Path) -> None:
    life = waiting(tmp_path)
    emergency = made(alone(life))
    life.approve("ben", "graph.legacy")
    assert deleted(life.apply())
    assert newest(life).debts == ()
    assert emergency not in life.state(len(life.chain())).approval_records


def test_who_wrote_the_change_may_act_alone_but_not_countersign_it_themself(tmp_path: Path) -> None:
    life = waiting(tmp_path, author="ada")
    assert errors(alone(life, "ben")) == ["approval_signer_not_allowed"]
    identity = made(alone(life, "ada"))
    assert deleted(life.apply())
    assert errors(countersign(office(life, "ada"), identity, "fine")) == ["decision_refused"]
    assert countersign(office(life, "ben"), identity, "seen").ok


def test_keys_and_rules_are_never_changed_in_an_emergency(life: Life) -> None:
    life.change("dora", {"gitops.yaml": life.config.replace("[ada]", "[ada, ben@example.org]").encode()})
    assert errors(alone(life, address="trust.brain")) == ["approval_via_refused"]


def test_an_emergency_is_bound_like_any_approval(life: Life) -> None:
    made(alone(life))
    life.change("dora", QUERY)
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_stale" in warnings(outcome)


def test_an_emergency_can_be_taken_back(life: Life) -> None:
    identity = made(alone(life))
    (ref,) = branches(life)
    commit = life.git.resolve(ref) or ""
    assert revoke(office(life, "ben"), identity, "no").ok
    pushed_again(life, ref, commit)
    outcome = life.apply()
    assert not deleted(outcome)
    assert "approval_revoked" in warnings(outcome)


def test_another_approval_under_the_same_id_changes_nothing(life: Life) -> None:
    """Ben signs an approval with the id of ada's emergency: nobody gains by it, and the ledger stays true."""
    identity = made(alone(life))
    (ref,) = branches(life)
    approval, said = life.approval(life.git.resolve(ref) or "")
    plain = replace(said, via=Via.SIGNATURE, emergency=None)
    for name in ("01AAAAAAAAAAAAAAAAAAAAAAAA", "01ZZZZZZZZZZZZZZZZZZZZZZZZ"):
        copy = life.forge_approval(replace(approval, approved_by="ben@example.org"), plain, "ben")
        life.git.update_refs([RefUpdate(f"{ref.rpartition('/')[0]}/{name}", ZERO, copy)])
    assert deleted(life.apply())
    (use,) = newest(life).approvals
    assert (use.approval_id, use.principal, use.via) == (identity, "ada", Via.BREAK_GLASS)
    assert [d.approval_id for d in newest(life).debts] == [identity]
    assert life.audit(life.chain()[-1]).ok


def test_a_run_cut_short_owes_what_it_announced(life: Life) -> None:
    identity = made(alone(life))
    (ref,) = branches(life)
    life.apply(dying_at="cluster_apply.after_graph_delete")
    commit = life.git.resolve(ref) or ""
    life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    assert life.apply().ok
    entry = newest(life)
    assert [d.approval_id for d in entry.debts] == [identity]
    assert entry.recovered
    life.change("dora", QUERY)
    assert errors(life.apply()) == ["debt_open"]
    assert life.audit(life.chain()[-1]).ok


def test_a_refresh_that_completes_a_run_owes_too(life: Life) -> None:
    identity = made(alone(life))
    life.apply(dying_at="cluster_apply.after_graph_delete")
    done = refresh(life.workspace())
    assert done.ok
    assert [d.approval_id for d in newest(life).debts] == [identity]
    assert life.audit(life.chain()[-1]).ok


def test_an_announced_emergency_that_did_nothing_owes_nothing(life: Life) -> None:
    made(alone(life))
    life.apply(dying_at="cluster_apply.before_graph_delete")
    outcome = life.apply()
    assert deleted(outcome)
    assert len(newest(life).debts) == 1
    assert len(life.state(len(life.chain())).debts) == 1


def test_a_countersignature_of_a_clone_travels_by_its_branch(owing: tuple[Life, str], tmp_path: Path) -> None:
    life, identity = owing
    clone = Life(
        tmp_path, config=life.config, clock=life.clock, ids=life.ids, name="ben-clone", url=str(life.git.git_dir)
    )
    clone.remote.fetch(["+refs/heads/*:refs/remotes/origin/*"])
    assert countersign(office(clone, "ben"), identity, "seen").ok
    assert [r.rpartition("/")[0] for r in branches(life) if "countersign" in r] == [
        "refs/heads/gitops/countersignatures/brain"
    ]
    assert life.apply().ok
    assert life.state(len(life.chain())).debts == ()
