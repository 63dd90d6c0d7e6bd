"""Acting alone, taking back and countersigning with the real commands, over a server with its hooks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.ledger.chain import COUNTERSIGNATURES, REVOCATIONS
from gitops.cluster.model.approval import DECISION_VERSION, Decision, DecisionKind
from gitops.forge.events import ReviewEvent
from gitops.forge.port import Permission, ReviewState
from gitops.git.port import ZERO
from tests.support.bot_stage import Stage, said
from tests.support.loop import (
    APPROVALS,
    CONFIG,
    DELETE_LEGACY,
    LEDGER,
    MAIN,
    Loop,
    email,
)
from tests.support.signed import drafted, signer

pytestmark = pytest.mark.e2e

BOB = "12"
ULID = "01BX5ZZKBKACTAV9WEVGEMMVS0"
WORDS = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    by: String?\n}\n"}


@pytest.fixture(scope="session")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: carol may act alone, two others would be needed; alice's delete waits."""
    rules = "  required: 2\n  break_glass: [carol@people.example]\n"
    loop = Loop.build(tmp_path_factory.mktemp("ruled"), CONFIG + rules)
    loop.move(MAIN, loop.commit("alice", DELETE_LEGACY))
    return loop


@pytest.fixture
def held(ruled: Loop, tmp_path: Path) -> Loop:
    """As `ruled`."""
    return ruled.copied(tmp_path / "held")


def _id(text: str) -> str:
    found = re.search(r"\(approval (\w{26})\)", text)
    assert found, text
    return found[1]


def _acted(loop: Loop) -> str:
    """Carol acts alone; the push makes the server apply."""
    told = loop.confirmed(
        "carol", "approve", "graph.legacy", "--rows", "0", "--break-glass", "--reason", "it leaks"
    ).text
    assert not loop.graph("legacy").exists()
    return _id(told)


def test_an_emergency_from_the_command_to_the_audit(held: Loop) -> None:
    identity = _acted(held)
    status = held.gitops("bob", "status")
    assert (status.code, f"gitops countersign {identity}" in status.text) == (0, True)

    held.move(MAIN, held.commit("alice", WORDS))
    assert "debt_open" in held.status(held.tip(), "apply")

    refused = held.confirmed("carol", "countersign", identity)
    assert (refused.code, "decision_refused" in refused.text) == (1, True)
    told = json.loads(held.confirmed("bob", "countersign", identity, "--reason", "seen", "--json").text)
    assert (told["ok"], told["operation"], told["decided_by"]) == (True, "countersign", email("bob"))

    assert held.status(held.tip(), "apply").startswith("success")
    log = held.program("bob", "git", "log", "--format=%s", "--max-count=4", held.tip(LEDGER), at=held.server).text
    assert "countersign(brain): settles 1 debt(s)" in log
    held.program("bob", "git", "fetch", "-q", "origin")
    audit = held.gitops("bob", "audit")
    assert audit.code == 0, audit.text
    assert "debt_open" not in held.gitops("bob", "status").text


def test_git_and_openssh_say_the_same_of_what_people_sign(held: Loop, tmp_path: Path) -> None:
    """Approval, revocation and countersignature verify without this program, and a message by hand cannot pass for one."""
    signed = [held.tip(APPROVALS + _id(held.confirmed("bob", "approve", "graph.legacy", "--rows", "0").text))]
    held.confirmed("bob", "revoke", held.approvals()[0].removeprefix(APPROVALS))
    signed += list(held.store.refs(REVOCATIONS.rstrip("/")).values())
    held.confirmed("bob", "countersign", _acted(held))
    signed += list(held.store.refs(COUNTERSIGNATURES.rstrip("/")).values())
    assert len(signed) == 3
    allowed = tmp_path / "allowed"
    allowed.write_bytes(held.signers("bob"))
    for commit in signed:
        argv = ("git", "-c", f"gpg.ssh.allowedSignersFile={allowed}", "verify-commit", "-v", commit)
        assert f'Good "git" signature for {email("bob")}' in held.program("bob", *argv, at=held.server).text
        by_hand = tmp_path / "message"
        by_hand.write_text(held.store.commit(commit).message)
        asked = held.gitops("alice", "hook", "run", "commit-msg", str(by_hand), check=False)
        assert (asked.code, "made by gitops" in asked.text) == (1, True)


def test_the_plan_of_a_request_shows_an_emergency_as_one(held: Loop) -> None:
    """Two people would have to approve; the row of an approval by one alone must not look like theirs."""
    held.move("refs/heads/empty", held.commit("alice", {"cluster/cluster.yaml": b"version: 1\n"}))
    row = "| approval of `graph.notes` | **missing** | 0 of 2 approvals, gate irreversible, environment production;"
    assert row in held.comment(1)
    arguments = ["graph.notes", "--request", "1", "--break-glass", "--reason", "it leaks"]
    assert held.confirmed("carol", "approve", *arguments).code == 0
    row = "| approval of `graph.notes` | good | signed by `carol@people.example` alone, in an emergency |"
    assert row in held.comment(1), held.comment(1)


def test_who_is_not_listed_does_not_act_alone(held: Loop) -> None:
    asked = held.confirmed("bob", "approve", "graph.legacy", "--rows", "0", "--break-glass", "--reason", "hurry")
    assert (asked.code, "approval_signer_not_allowed" in asked.text) == (1, True)
    assert "is not listed in approvals.break_glass" in asked.text
    assert held.graph("legacy").exists()
    assert held.approvals() == ()


@pytest.mark.parametrize("words", [["--break-glass"], ["--reason", "hurry"]])
def test_acting_alone_takes_a_reason_and_a_reason_takes_that(held: Loop, words: list[str]) -> None:
    asked = held.confirmed("carol", "approve", "graph.legacy", "--rows", "0", *words)
    assert (asked.code, "usage_error" in asked.text) == (1, True)


def test_a_ledger_folder_knows_no_emergencies(held: Loop, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "cluster.yaml").write_text("version: 1\n")
    asked = held.confirmed(
        "carol", "approve", "graph.legacy", "--rows", "0", "--break-glass", "--reason", "x", "--config", str(folder)
    )
    assert (asked.code, "usage_error" in asked.text) == (1, True)


def test_an_approval_is_taken_back_before_it_is_used(held: Loop) -> None:
    first = _id(held.confirmed("bob", "approve", "graph.legacy", "--rows", "0").text)
    told = held.confirmed("bob", "revoke", first, "--reason", "not yet").text
    assert f"approval {first} of graph.legacy revoked by {email('bob')}" in told
    held.confirmed("carol", "approve", "graph.legacy", "--rows", "0")
    assert held.graph("legacy").exists()
    _id(held.confirmed("bob", "approve", "graph.legacy", "--rows", "0").text)
    assert not held.graph("legacy").exists()
    used = held.confirmed("bob", "revoke", first)
    assert "revoked by" in used.text
    spent = held.approvals()[-1].removeprefix(APPROVALS)
    late = held.confirmed("bob", "revoke", spent)
    assert (late.code, "approval_spent" in late.text) == (1, True)
    held.program("bob", "git", "fetch", "-q", "origin")
    assert held.gitops("bob", "audit").code == 0


@pytest.mark.parametrize("after", [ReviewState.CHANGES_REQUESTED, ReviewState.DISMISSED])
def test_a_review_that_is_taken_back_after_the_merge_opens_nothing(known: Loop, after: ReviewState) -> None:
    """The same person says yes, which is attested, and then no: what was merged meanwhile stays undone."""
    stage = Stage(known, people={BOB: Permission.WRITE})
    head = stage.propose("alice", "retire", dict(DELETE_LEGACY))
    stage.review(BOB, ReviewState.APPROVED, head)
    assert "approved by bob@people.example" in said(stage.handle(ReviewEvent(1)))
    assert known.status(head, "plan").startswith("success")
    before = known.tip()
    landed = stage.land(1)
    stage.review(BOB, after, head)
    assert "revoked" in said(stage.handle(ReviewEvent(1)))
    assert "revoked" not in said(stage.handle(ReviewEvent(1)))
    stage.pushed(before, landed)
    assert known.graph("legacy").exists()
    given = known.sign_approval("bob", "graph.legacy")
    assert given.approval is not None, given.diagnostics
    stage.pushed(before, landed)
    assert not known.graph("legacy").exists()
    assert len(known.store.refs(REVOCATIONS.rstrip("/"))) == 1


# -- what the server takes ---------------------------------------------------------------------------------------------


def _decision(loop: Loop, kind: DecisionKind, who: str | None, **values: object) -> str:
    """A decision commit that only `push` finds."""
    given = loop.sign_approval("bob", "graph.legacy")
    assert given.approval is not None
    approval, statement = loop.evidence(given.commit or "")
    fields: dict[str, object] = {
        "kind": kind,
        "decision_id": ULID,
        "target": statement.target,
        "approval_id": approval.approval_id,
        "subject": given.commit,
        "reason": "x",
        "ledger_head": loop.tip(LEDGER),
        "created_at": "2026-07-02T10:00:00Z",
        "nonce": "n",
    }
    told = Decision(**{**fields, **values})  # type: ignore[arg-type]
    own = drafted if who is None else signer(loop.store, loop.key(who))
    message = decision_message(told, sign=own if told.version == DECISION_VERSION else None)
    return loop.commit("bob", {}, told.ledger_head, message=message, key=who, away=True)


@pytest.mark.parametrize("kind", DecisionKind)
@pytest.mark.parametrize("folder", [REVOCATIONS, COUNTERSIGNATURES])
def test_the_server_takes_each_decision_under_its_own_name(held: Loop, kind: DecisionKind, folder: str) -> None:
    commit = _decision(held, kind, "bob")
    right = (folder == REVOCATIONS) == (kind is DecisionKind.REVOKE)
    pushed = held.push("bob", f"{commit}:{folder}brain/{ULID}", check=False)
    assert (pushed.code == 0) is right
    assert ("decision_malformed" in pushed.text) is not right
    again = held.push("bob", f"{commit}:{folder}brain/01BX5ZZKBKACTAV9WEVGEMMVS1", check=False)
    assert (again.code, "decision_malformed" in again.text) == (1, True)


@pytest.mark.parametrize(("who", "code"), [("mallory", "decision_refused"), (None, "decision_refused")])
def test_the_server_takes_no_decision_of_strangers(held: Loop, who: str | None, code: str) -> None:
    commit = _decision(held, DecisionKind.REVOKE, who)
    pushed = held.push("bob", f"{commit}:{REVOCATIONS}brain/{ULID}", check=False)
    assert (pushed.code, code in pushed.text) == (1, True)


def test_a_decision_is_never_moved_or_deleted(held: Loop) -> None:
    ref = f"{REVOCATIONS}brain/{ULID}"
    held.push("bob", f"{_decision(held, DecisionKind.REVOKE, 'bob')}:{ref}")
    other = _decision(held, DecisionKind.REVOKE, "bob", nonce="other")
    for refspec in (f"+{other}:{ref}", f":{ref}"):
        pushed = held.push("bob", refspec, check=False)
        assert (pushed.code, "push_refused" in pushed.text) == (1, True)
    assert held.tip(ref) != ZERO


def test_there_is_nothing_to_decide_where_there_is_no_ledger(held: Loop) -> None:
    commit = _decision(held, DecisionKind.REVOKE, "bob")
    pushed = held.push("bob", f"{commit}:{REVOCATIONS}other/{ULID}", check=False)
    assert (pushed.code, "ledger_missing" in pushed.text) == (1, True)


@pytest.mark.parametrize("version", [1, 2])
def test_amending_a_commit_that_somebody_drafted_decides_nothing(held: Loop, version: int) -> None:
    """Mallory drafts a revocation by bob, as either release would write it; bob signs it as he signs every commit."""
    draft = _decision(held, DecisionKind.REVOKE, "mallory", version=version)
    place = held.clone("bob")
    held.push("bob", check=False)  # borrows the commits that the server does not have yet
    held.program("bob", "git", "checkout", "-q", draft, at=place)
    held.program(
        "bob", "git", "-c", "gpg.format=ssh", "commit", "-q", "--amend", "--allow-empty", "--no-edit", "-S", at=place
    )
    pushed = held.push("bob", f"HEAD:{REVOCATIONS}brain/{ULID}", check=False)
    assert (pushed.code, "decision_refused" in pushed.text) == (1, True)
