"""Acting alone, taking back and countersigning over a server with hooks; what says no is not undone by deleting a branch."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approvals.documents import decision_message
from gitops.cluster.ledger.chain import (
    ANCHOR_KEY,
    COUNTERSIGNATURES,
    REVOCATIONS,
    StorageAnchor,
    read_anchor,
    write_anchor,
)
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.approval import DECISION_VERSION, Decision, DecisionKind
from gitops.cluster.model.outcome import VerbOutcome
from gitops.forge.events import ReviewEvent
from gitops.forge.port import Permission, ReviewState
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.repository.wiring.local import LocalRepository
from tests.e2e.conftest import Built
from tests.support.bot_stage import BOB, Stage, said
from tests.support.loop import (
    APPROVALS,
    CONFIG,
    DELETE_LEGACY,
    LEDGER,
    MAIN,
    Done,
    Loop,
    email,
)
from tests.support.prefork import PROGRAM
from tests.support.signed import drafted, signer

pytestmark = pytest.mark.e2e

ULID = "01BX5ZZKBKACTAV9WEVGEMMVS0"
WORDS = {"cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    by: String?\n}\n"}


@pytest.fixture(scope="session")
def ruled(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: carol may act alone, two others would be needed; alice's delete waits."""
    rules = "  required: 2\n  break_glass: [carol@people.example]\n"
    loop = built(CONFIG + rules).copied(tmp_path_factory.mktemp("ruled") / "loop")
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
        assert (asked.code, "only gitops creates" in asked.text) == (1, True)


def test_the_plan_of_a_request_shows_an_emergency_as_one(held: Loop) -> None:
    """Two people would have to approve; the row of an approval by one alone must not look like theirs."""
    held.move("refs/heads/empty", held.commit("alice", {"cluster/cluster.yaml": b"version: 1\n"}))
    assert "  - **needs 2 approvals** from " in held.comment(1)
    arguments = ["graph.notes", "--request", "1", "--break-glass", "--reason", "it leaks"]
    assert held.confirmed("carol", "approve", *arguments).code == 0
    row = "  - approved by `carol@people.example` **alone, in an emergency**\n"
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
    assert (asked.code, "usage_error" in asked.text) == (2, True)


def test_a_ledger_folder_knows_no_emergencies(held: Loop, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "cluster.yaml").write_text("version: 1\n")
    asked = held.confirmed(
        "carol", "approve", "graph.legacy", "--rows", "0", "--break-glass", "--reason", "x", "--config", str(folder)
    )
    assert (asked.code, "usage_error" in asked.text) == (2, True)


def test_an_approval_is_taken_back_before_it_is_used(held: Loop) -> None:
    first = _id(held.confirmed("bob", "approve", "graph.legacy", "--rows", "0").text)
    told = held.confirmed("bob", "revoke", first, "--reason", "not yet").text
    assert f"Revoked: approval {first} of graph.legacy, by {email('bob')}" in told
    held.confirmed("carol", "approve", "graph.legacy", "--rows", "0")
    assert held.graph("legacy").exists()
    _id(held.confirmed("bob", "approve", "graph.legacy", "--rows", "0").text)
    assert not held.graph("legacy").exists()
    used = held.confirmed("bob", "revoke", first)
    assert "Revoked: " in used.text
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


@pytest.fixture
def waiting(quorum: Loop) -> Loop:
    """Two people are needed, and alice's delete waits."""
    quorum.move(MAIN, quorum.commit("alice", DELETE_LEGACY, key="alice"))
    return quorum


def test_a_revocation_is_recorded_when_it_is_pushed_and_deleting_its_branch_undoes_nothing(waiting: Loop) -> None:
    assert waiting.sign_approval("bob", "graph.legacy").ok
    identity = waiting.approvals()[0].removeprefix(APPROVALS)
    given = waiting.tip(waiting.approvals()[0])
    told = waiting.gitops("bob", "revoke", identity, "--reason", "not yet", "--commit", given).text
    assert f"Revoked: approval {identity} of graph.legacy" in told
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


# -- the ledger itself -------------------------------------------------------------------------------------------------


def fresh(loop: Loop, name: str = "fresh") -> LocalRepository:
    """A clone of the bot that never saw the ledger, on the machine with the graphs."""
    place = loop.home("bot") / name
    loop.program("bot", "git", "clone", "-q", str(loop.server), str(place), at=loop.home("bot"))
    loop.program("bot", "git", "-C", str(place), "config", "gitops.root", str(loop.folder / "data"))
    return LocalRepository(str(place), environ=loop.environment("bot"))


def codes(outcome: VerbOutcome) -> list[str]:
    """The codes of its errors."""
    return [d.code for d in outcome.diagnostics if d.severity == "error"]


def anchor_path(loop: Loop) -> Path:
    """Where the anchor is."""
    return loop.folder / "data" / "brain" / ANCHOR_KEY


def anchor(loop: Loop) -> StorageAnchor:
    """What it says."""
    return read_anchor(anchor_path(loop).read_bytes())


def test_the_anchor_names_the_ledger_beside_the_graphs(loop: Loop) -> None:
    found = anchor(loop)
    chain = [c.id for c in loop.store.commits_between(None, loop.tip(LEDGER), first_parent=True)]
    assert (found.cluster, found.repository) == ("brain", "loop")
    assert (found.genesis, found.head, found.number) == (chain[-1], chain[0], len(chain))
    local = fresh(loop)
    assert refresh(local.workspace(local.rule(), "bot")).ok
    assert (anchor(loop).genesis, anchor(loop).number) == (chain[-1], len(chain) + 1)


def test_a_fresh_clone_does_not_import_over_a_ledger_that_was_deleted(loop: Loop) -> None:
    head = loop.tip(LEDGER)
    loop.clone("alice")
    loop.drop(LEDGER)
    local = fresh(loop)
    before = anchor(loop)
    outcome = import_cluster(local.workspace(local.rule(), "bot"))
    assert codes(outcome) == ["ledger_adopt_required"]
    (problem,) = [d for d in outcome.diagnostics if d.severity == "error"]
    assert f"git push origin {head}:{LEDGER}" in problem.message
    assert loop.store.resolve(LEDGER) is None
    assert anchor(loop) == before
    assert codes(apply(local.workspace(local.rule(), "bot"))) == ["ledger_anchor_mismatch"]

    # The printed command restores it, from any clone that has the commit.
    loop.program("alice", "git", "push", "-q", "origin", f"{head}:{LEDGER}", at=loop.clone("alice"))
    assert apply(local.workspace(local.rule(), "bot")).ok


def test_the_bot_does_not_import_over_it_either(loop: Loop) -> None:
    """Also where it forgot what it saw: in a job, or after the pins went with the branch."""
    loop.drop(LEDGER)
    loop.drop("refs/gitops/seen/brain")
    (loop.server / "gitops" / "seen" / "brain").unlink()
    lines = loop.move(MAIN, loop.commit("alice", {"cluster/README.md": b"Later.\n"}, key="alice"))
    assert any(
        "import of brain refused: the ledger branch is missing, and an earlier ledger existed" in line for line in lines
    ), lines
    assert loop.store.resolve(LEDGER) is None


def test_graphs_alone_refuse_an_import(loop: Loop) -> None:
    """Graphs of the first release have no anchor; neither have those of a storage that somebody tidied."""
    loop.drop(LEDGER)
    anchor_path(loop).unlink()
    local = fresh(loop)
    outcome = import_cluster(local.workspace(local.rule(), "bot"))
    assert codes(outcome) == ["ledger_adopt_required"]
    assert "graphs without a ledger: legacy, notes" in outcome.diagnostics[-1].message


def test_an_approval_that_names_the_lost_ledger_refuses_an_import(waiting: Loop) -> None:
    assert waiting.sign_approval("bob", "graph.legacy").ok
    waiting.drop(LEDGER)
    anchor_path(waiting).unlink()
    local = fresh(waiting)
    assert codes(import_cluster(local.workspace(local.rule(), "bot"))) == ["ledger_diverged"]


def test_a_rewound_ledger_is_refused_by_every_verb_that_writes(loop: Loop) -> None:
    head = loop.tip(LEDGER)
    (before,) = loop.store.commit(head).parents[:1]
    loop.store.update_refs([RefUpdate(LEDGER, head, before)])
    local = fresh(loop)
    for verb in (apply, refresh):
        outcome = verb(local.workspace(local.rule(), "bot"))
        assert codes(outcome) == ["ledger_anchor_mismatch"]
        assert loop.tip(LEDGER) == before
    loop.store.update_refs([RefUpdate(LEDGER, before, head)])
    assert apply(local.workspace(local.rule(), "bot")).ok


def test_an_anchor_that_is_behind_is_normal(loop: Loop) -> None:
    """A run died before it wrote it, or the entry came from a machine without the storage."""
    old = anchor_path(loop).read_bytes()
    local = fresh(loop)
    assert refresh(local.workspace(local.rule(), "bot")).ok
    newest = anchor(loop)
    anchor_path(loop).write_bytes(old)
    assert refresh(local.workspace(local.rule(), "bot")).ok
    assert anchor(loop).number == newest.number + 1


def test_an_anchor_of_another_ledger_is_refused(loop: Loop) -> None:
    """Such as storage that another cluster uses: nothing of it is applied over."""
    other = loop.commit("alice", {})
    found = anchor(loop)
    wrong = StorageAnchor("other", "elsewhere", other, other, 3, found.trust_digest)
    anchor_path(loop).write_bytes(write_anchor(wrong))
    local = fresh(loop)
    outcome = apply(local.workspace(local.rule(), "bot"))
    assert codes(outcome) == ["ledger_anchor_mismatch"]
    assert f"begins with {other[:12]}" in outcome.diagnostics[-1].message


@pytest.mark.parametrize("content", [b"", b"{}\n", json.dumps({"version": 2}).encode()])
def test_an_anchor_that_cannot_be_read_is_refused(loop: Loop, content: bytes) -> None:
    anchor_path(loop).write_bytes(content)
    local = fresh(loop)
    assert codes(apply(local.workspace(local.rule(), "bot"))) == ["ledger_anchor_invalid"]


def test_reading_commands_need_no_anchor(loop: Loop) -> None:
    anchor_path(loop).write_bytes(b"{}")
    assert loop.gitops("alice", "plan").code == 0
    assert loop.gitops("alice", "status").code == 0


def test_a_document_of_another_copy_stops_nothing_and_is_named(loop: Loop) -> None:
    """The same bot signs the ledger of a copy; somebody pushes a commit on top of an entry of that one."""
    store, head = loop.store, loop.tip(LEDGER)
    first = store.commits_between(None, head, first_parent=True)[-1]
    entry = read_entry(store.read(first.tree, "entry.json") or b"")
    copy = replace(entry, operation="of a copy")
    tree = store.write_files(first.tree, {"entry.json": write_entry(copy)})
    new = NewCommit(tree, (), first.author, commit_message(copy))
    other = store.write_commit(new, signing_key=str(loop.key("bot")))
    ref = f"{APPROVALS}01BX5ZZKBKACTAV9WEVGEMMVS0"
    loop.store.update_refs([RefUpdate(ref, ZERO, loop.commit("mallory", {}, other))])

    local = fresh(loop)
    outcome = apply(local.workspace(local.rule(), "bot"))
    assert outcome.ok
    (warning,) = [d for d in outcome.diagnostics if d.code == "ledger_foreign_document"]
    assert f"git push origin --delete {ref.removeprefix('refs/heads/')}" in warning.message
    loop.program("bot", "git", "fetch", "-q", "origin", at=loop.clone("alice"))
    audit = loop.gitops("alice", "audit")
    assert (audit.code, "proves nothing" in audit.text) == (0, True)


# -- repair ------------------------------------------------------------------------------------------------------------


def bot_gitops(loop: Loop, local: LocalRepository, *arguments: str, check: bool = True) -> Done:
    """This program in a clone of the bot."""
    return loop.program("bot", *PROGRAM, *arguments, at=Path(local.git.work_tree or ""), check=check)


def printed_command(text: str) -> list[str]:
    """The command that repairs a ledger, as it is printed."""
    (line,) = [line for line in text.splitlines() if "gitops ledger repair" in line]
    return line.partition("gitops ")[2].split()


def test_a_bad_commit_on_top_is_named_and_kept_and_the_ledger_goes_on(loop: Loop) -> None:
    good = loop.tip(LEDGER)
    bad = loop.commit("mallory", {"x": b"x\n"}, good, message="nothing to see\n")
    worse = loop.commit("mallory", {"y": b"y\n"}, bad)
    loop.store.update_refs([RefUpdate(LEDGER, good, worse)])
    loop.clone("alice")

    local = fresh(loop)
    for verb in (apply, refresh):
        outcome = verb(local.workspace(local.rule(), "bot"))
        assert codes(outcome) == ["ledger_chain_broken"]
        (problem,) = [d.message for d in outcome.diagnostics if d.severity == "error"]
        number = anchor(loop).number
        assert f"the newest good entry is {number}, {good[:12]}; {bad[:12]} above it is not good" in problem
        assert "gitops ledger repair --cluster brain" in problem
    assert loop.tip(LEDGER) == worse

    shown = bot_gitops(loop, local, "ledger", "repair", check=False)
    assert (shown.code, f"not good: {worse}" in shown.text, f"not good: {bad}" in shown.text) == (1, True, True)
    done = bot_gitops(loop, local, *printed_command(shown.text))
    assert f"follows {good}" in done.text
    assert loop.store.resolve(f"refs/heads/gitops/quarantine/brain/{worse}") == worse
    assert bot_gitops(loop, local, "ledger", "repair").text.endswith("every entry of the branch is good\n")

    assert apply(local.workspace(local.rule(), "bot")).ok
    assert refresh(fresh(loop, "another").workspace(local.rule(), "bot")).ok
    loop.program("alice", "git", "fetch", "-q", "--force", "origin")
    audit = loop.gitops("alice", "audit")
    assert (audit.code, f"commits removed: {worse[:12]}, {bad[:12]}" in audit.text) == (0, True)
    assert f"quarantined {worse}" in loop.gitops("alice", "log").text


def test_a_rewound_branch_is_repaired_forward_from_what_the_anchor_knows(loop: Loop) -> None:
    head = loop.tip(LEDGER)
    local = fresh(loop)
    (before,) = loop.store.commit(head).parents[:1]
    loop.store.update_refs([RefUpdate(LEDGER, head, before)])
    shown = bot_gitops(loop, local, "ledger", "repair", check=False)
    assert f"--from {before} --to {head}" in shown.text
    bot_gitops(loop, local, *printed_command(shown.text))
    assert loop.store.commit(loop.tip(LEDGER)).parents == (head,)
    assert apply(local.workspace(local.rule(), "bot")).ok


def test_a_branch_that_is_gone_is_restored(loop: Loop) -> None:
    head = loop.tip(LEDGER)
    loop.clone("alice")
    local = fresh(loop)
    loop.drop(LEDGER)
    shown = json.loads(bot_gitops(loop, local, "ledger", "repair", "--json", check=False).text)
    assert (shown["head"], shown["good"]["commit"], shown["bad"]) == (None, head, [])
    bot_gitops(loop, local, *shown["command"].removeprefix("gitops ").split(), "--json")
    assert loop.store.commit(loop.tip(LEDGER)).parents == (head,)
    loop.program("alice", "git", "fetch", "-q", "origin")
    assert loop.gitops("alice", "audit").code == 0


@pytest.mark.damaged_ledger(reason="a commit that is no entry is on top")
def test_a_repair_is_refused_for_other_ids_other_keys_and_two_ledgers(loop: Loop) -> None:
    good = loop.tip(LEDGER)
    bad = loop.commit("mallory", {"x": b"x\n"}, good)
    local = fresh(loop)
    nothing = bot_gitops(loop, local, "ledger", "repair", "--from", good, "--to", good, check=False)
    assert (nothing.code, "ledger_repair_refused" in nothing.text) == (1, True)
    loop.store.update_refs([RefUpdate(LEDGER, good, bad)])
    for ids in (("--from", good, "--to", good), ("--from", bad, "--to", bad)):
        asked = bot_gitops(loop, local, "ledger", "repair", *ids, check=False)
        assert (asked.code, "ledger_repair_refused" in asked.text) == (1, True)
        assert (
            "show the damage again: gitops ledger repair --cluster brain; then run the command that it prints"
            in asked.text
        )
    half = bot_gitops(loop, local, "ledger", "repair", "--from", bad, check=False)
    assert (half.code, "usage_error" in half.text) == (2, True)
    (look,) = re.findall("gitops (ledger repair --cluster brain)\n", half.text)
    assert f"--from {bad} --to {good}" in bot_gitops(loop, local, *look.split(), check=False).text
    other = loop.gitops("alice", "ledger", "repair", "--from", bad, "--to", good, check=False)
    assert (other.code, "ledger_not_writable" in other.text) == (1, True)
    assert loop.tip(LEDGER) == bad
    assert not loop.local().ledger(loop.local().rule()).observe_lock().held


# -- adoption ----------------------------------------------------------------------------------------------------------


def lost(loop: Loop) -> LocalRepository:
    """Every copy of the ledger is gone; a fresh clone of the bot."""
    loop.drop(LEDGER)
    loop.drop("refs/gitops/seen/brain")
    (loop.server / "gitops" / "seen" / "brain").unlink()
    return fresh(loop)


def test_a_lost_ledger_is_adopted_only_with_the_approval_of_its_people(loop: Loop) -> None:
    before = anchor(loop)
    local = lost(loop)
    done = bot_gitops(loop, local, "import", "--adopt")
    assert done.code == 0
    assert anchor(loop) == before
    outcome = apply(local.workspace(local.rule(), "bot"))
    assert codes(outcome) == ["ledger_adopt_required"]
    assert codes(refresh(local.workspace(local.rule(), "bot"))) == ["ledger_adopt_required"]
    assert len(loop.store.commits_between(None, loop.tip(LEDGER), first_parent=True)) == 1

    given = loop.sign_approval("bob", "cluster.brain")
    assert given.ok, given.diagnostics
    outcome = apply(fresh(loop, "next").workspace(local.rule(), "bot"))
    assert outcome.ok, outcome.diagnostics
    after = anchor(loop)
    assert after.genesis not in (before.genesis, after.head)
    loop.program("alice", "git", "fetch", "-q", "origin")
    audit = loop.gitops("alice", "audit")
    assert (audit.code, "follows an earlier ledger" in audit.text) == (0, True)
    assert "adopt cluster.brain" in loop.gitops("alice", "log").text


def test_other_rules_do_not_adopt(loop: Loop) -> None:
    """The rules that were pushed with the deletion do not decide: those of the anchor have to be back first."""
    loose = CONFIG.replace("bob@people.example, carol@people.example", "mallory@people.example")
    loop.move(MAIN, loop.commit("mallory", {"gitops.yaml": loose.encode()}))
    local = lost(loop)
    asked = bot_gitops(loop, local, "import", "--adopt", check=False)
    assert (asked.code, "differ from those of that ledger" in asked.text) == (1, True)
    assert loop.store.resolve(LEDGER) is None


def test_documents_of_the_lost_ledger_do_not_contradict_the_one_that_was_adopted(waiting: Loop) -> None:
    assert waiting.sign_approval("bob", "graph.legacy").ok
    local = lost(waiting)
    assert bot_gitops(waiting, local, "import", "--adopt").code == 0
    for who in ("bob", "carol"):
        assert waiting.sign_approval(who, "cluster.brain").ok
    outcome = apply(fresh(waiting, "next").workspace(local.rule(), "bot"))
    assert codes(outcome) == []
    assert waiting.graph("legacy").exists()


def test_a_folder_has_nothing_to_adopt(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("version: 1\n")
    asked = loop.gitops("alice", "import", "--adopt", "--config", str(tmp_path), check=False)
    assert (asked.code, "usage_error" in asked.text) == (2, True)


def test_a_revocation_that_no_run_has_seen_says_so_and_takes_the_approval_along(waiting: Loop) -> None:
    """A host without hooks and without rules for refs: until the bot runs, the revocation is only a branch."""
    for hook in (waiting.server / "hooks").iterdir():
        hook.unlink()
    assert waiting.sign_approval("bob", "graph.legacy").ok
    (ref,) = waiting.approvals()
    identity, given = ref.removeprefix(APPROVALS), waiting.tip(ref)
    words = ("revoke", identity, "--reason", "not yet", "--commit", given)
    told = waiting.gitops("bob", *words, "--json", check=False)
    form = json.loads(told.text)
    assert (told.code, form["ok"], form["recorded"], form["deleted"]) == (3, True, False, [ref])
    (problem,) = form["diagnostics"]
    assert problem["code"] == "revocation_not_recorded"
    assert waiting.approvals() == ()

    # The remedy, before and after the bot has run; now the approval can be pushed again, and its revocation deleted.
    again = shlex.split(problem["fix"].rpartition(": gitops ")[2])
    assert waiting.gitops("bob", *again, check=False).code == 3
    waiting.gitops("bot", "bot", "sweep", at=waiting.server, check=False)
    assert "the ledger records it" in waiting.gitops("bob", *again).text
    waiting.drop(next(iter(waiting.store.refs(REVOCATIONS.rstrip("/")))))
    waiting.store.update_refs([RefUpdate(ref, ZERO, given)])
    assert waiting.sign_approval("carol", "graph.legacy").ok
    waiting.gitops("bot", "bot", "sweep", at=waiting.server, check=False)
    assert waiting.graph("legacy").exists()
    assert "the ledger records it" in waiting.gitops("bob", *again).text
    waiting.program("bob", "git", "fetch", "-q", "origin")
    assert waiting.gitops("bob", "audit").code == 0


def test_where_the_host_deletes_no_branch_the_revocation_is_pushed_alone(waiting: Loop) -> None:
    for hook in (waiting.server / "hooks").iterdir():
        hook.unlink()
    waiting.program("bot", "git", "config", "receive.denyDeletes", "true", at=waiting.server)
    assert waiting.sign_approval("bob", "graph.legacy").ok
    (ref,) = waiting.approvals()
    told = waiting.gitops("bob", "revoke", ref.removeprefix(APPROVALS), "--commit", waiting.tip(ref), check=False)
    assert (told.code, "the branch of the approval stays:" in told.text) == (3, True), told.text
    assert waiting.approvals() == (ref,)
    assert len(waiting.store.refs(REVOCATIONS.rstrip("/"))) == 1
