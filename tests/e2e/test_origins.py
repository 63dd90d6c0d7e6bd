"""Whose work a change is and whose signature counts, over real git: attacks, pitfalls, and what the audit accepts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cli.shared import bot_of
from gitops.cluster.approvals.documents import statement_message, write_approval
from gitops.cluster.approvals.pushes import PUSHES
from gitops.cluster.model.approval import STATEMENT_VERSION, Approval, ApprovalStatement
from gitops.cluster.model.change import Action, Change, GateName
from gitops.cluster.model.kinds import Gate, GraphKind, Situation
from gitops.cluster.model.ledger import How
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.forge.events import ManualEvent
from gitops.forge.merge import MergeMethod
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.signatures import sign
from tests.e2e.conftest import Built
from tests.support.bot_stage import take_lock
from tests.support.loop import (
    APPROVALS,
    CONFIG,
    DELETE_LEGACY,
    FILES,
    LEDGER,
    MAIN,
    SIGNERS,
    TRUSTED,
    WITHOUT_LEGACY,
    Loop,
    codes,
    email,
)
from tests.support.loop_data import audited, load
from tests.support.origins import SIGNED, approved, errors_of, newest_origins, pushed
from tests.support.remedies import remedies
from tests.support.signed import signer

pytestmark = pytest.mark.e2e


def test_a_comment_asks_the_author_for_signatures_and_nobody_for_an_approval_in_vain(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("mallory", DELETE_LEGACY, key=None))
    comment = loop.comment(1)
    assert "no one can approve it yet (`approval_authors_unknown`): commit `" in comment
    assert "its author, first: update the target: `git fetch origin`; sign the commits: `git rebase --exec" in comment
    assert "gitops approve" not in comment
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY))
    assert "no one can approve it yet" not in loop.comment(1)
    assert "gitops approve graph.legacy --request 1" in loop.comment(1)


def test_another_author_line_does_not_make_another_author(loop: Loop) -> None:
    """Bob commits in the name of mallory, unsigned, and pushes over a path: he may not approve, and neither may carol."""
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    loop.push("bob", f"{head}:{MAIN}")
    for who in ("bob", "carol"):
        assert "approval_authors_unknown" in approved(loop, who)
    assert loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_the_printed_remedy_opens_the_gate(loop: Loop) -> None:
    """Revert what is merged without an origin, then propose it again, signed."""
    loop.move(MAIN, loop.commit("mallory", DELETE_LEGACY, key=None))
    assert errors_of(loop.sign_approval("carol", "graph.legacy")) == {"approval_authors_unknown"}
    config = loop.store.read(loop.store.commit(loop.store.commit(loop.tip()).parents[0]).tree, "cluster/cluster.yaml")
    loop.move(MAIN, loop.commit("bob", {"cluster/cluster.yaml": config}))
    loop.move(MAIN, loop.commit("bob", DELETE_LEGACY))
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()
    approved(loop, "carol")
    assert not loop.graph("legacy").exists()


def test_the_commands_after_a_merge_take_it_out(loop: Loop) -> None:
    """The comment on the merged request has them all, and after them the change can be proposed again."""
    loop.move("refs/heads/retire", loop.commit("mallory", DELETE_LEGACY, key=None))
    loop.merge("carol", 1)
    commands = [each.words for each in remedies(loop.comment(1)) if each.words[0] == "git"]
    assert [words[1] for words in commands] == ["fetch", "switch", "revert", "push"]
    assert commands[2][-1] == loop.store.commit(loop.tip()).parents[1]
    signing = ("-c", "gpg.format=ssh", "-c", f"user.signingKey={loop.key('bob')}")
    for _, *words in commands:
        loop.program("bob", "git", *signing, *words, at=loop.clone("bob"))
    loop.move(loop.request(2).source, loop.request(2).head)
    loop.merge("carol", 2)
    loop.move("refs/heads/again", loop.commit("bob", DELETE_LEGACY))
    loop.merge("carol", 3)
    approved(loop, "carol")
    assert not loop.graph("legacy").exists()


def test_what_was_taken_back_before_any_run_does_not_count_after_the_next_one(loop: Loop) -> None:
    """The commit without an origin and its revert arrive together, so that a run finds nothing to change."""
    before = loop.store.read(loop.store.commit(loop.tip()).tree, "cluster/cluster.yaml")
    gone = loop.commit("mallory", DELETE_LEGACY, key=None)
    back = loop.commit("bob", {"cluster/cluster.yaml": before}, gone)
    loop.move(MAIN, loop.commit("bob", {"cluster/README.md": b"Words.\n"}, back))
    loop.move(MAIN, loop.commit("bob", DELETE_LEGACY))
    approved(loop, "carol")
    assert not loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_the_remedy_opens_the_gate_of_rules(loop: Loop) -> None:
    rules = loop.store.read(loop.store.commit(loop.tip()).tree, "gitops.yaml") or b""
    newer = {"gitops.yaml": rules.replace(b"allowed_signers\n", b"allowed_signers\n  expires_after: 6d\n", 1)}
    loop.move(MAIN, loop.commit("mallory", newer, key=None))
    assert errors_of(loop.sign_approval("carol", "trust.brain")) == {"approval_authors_unknown"}
    loop.move(MAIN, loop.commit("bob", {"gitops.yaml": rules}))
    loop.move(MAIN, loop.commit("bob", newer))
    assert loop.sign_approval("carol", "trust.brain").ok


def test_a_signed_push_is_an_origin(loop: Loop) -> None:
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    done = pushed(loop, "bob", f"{head}:{MAIN}")
    assert done.code == 0, done.text
    assert newest_origins(loop) == {head: (How.CERTIFICATE, email("bob"))}
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()
    assert approved(loop, "carol") == set()
    assert not loop.graph("legacy").exists()
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_a_push_while_another_run_applies_keeps_its_pusher(loop: Loop) -> None:
    """Bob holds the lock, pushes, and gives the lock back: the run that applies his commit knows him from the record."""
    take_lock(loop)
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    assert "already running" in pushed(loop, "bob", f"{head}:{MAIN}").text
    lock = "refs/gitops/locks/brain"
    loop.store.update_refs([RefUpdate(lock, loop.store.resolve(lock) or "", ZERO)])
    given = loop.sign_approval("bob", "graph.legacy", blind=True)
    assert given.ok
    loop.move("refs/heads/elsewhere", loop.commit("carol", {"README.md": b"Words.\n"}))
    loop.move(MAIN, loop.commit("carol", {"README.md": b"More words.\n"}))
    assert newest_origins(loop)[head] == (How.CERTIFICATE, email("bob"))
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


@pytest.mark.parametrize("loop", ["sha1", "sha256"], indirect=True)
def test_a_hook_that_never_ran_is_not_needed(loop: Loop) -> None:
    """The client died before post-receive: the next sweep applies the commit with its pusher."""
    (loop.server / "hooks" / "post-receive").unlink()
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    pushed(loop, "bob", f"{head}:{MAIN}")
    given = loop.sign_approval("bob", "graph.legacy", blind=True)
    assert given.ok
    local = loop.local()
    bot = bot_of(local, local.forge(), "local", local.git.person())
    list(run_verb(bot, "sweep", ManualEvent()))
    assert newest_origins(loop) == {head: (How.CERTIFICATE, email("bob"))}
    assert loop.graph("legacy").exists()


@pytest.mark.parametrize("name", ["REMOTE_USER", "GL_USER"])
def test_a_shared_path_gives_no_identity(loop: Loop, name: str) -> None:
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    pushed(loop, "bob", f"{head}:{MAIN}", environ={name: "alice"}, signed=False)
    assert loop.store.resolve(PUSHES) is None
    assert "approval_authors_unknown" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


def test_a_certificate_of_another_push_does_not_count(loop: Loop) -> None:
    """On a shared path bob names an old certificate of alice in the variables of git."""
    first = loop.commit("alice", {"README.md": b"Words.\n"}, away=True)
    pushed(loop, "alice", f"{first}:refs/heads/words")
    certificate = next(blob for blob in _blobs(loop) if _text(loop, blob).startswith("certificate version"))
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    spoofed = {"GIT_PUSH_CERT": certificate, "GIT_PUSH_CERT_STATUS": "G", "GIT_PUSH_CERT_NONCE_STATUS": "OK"}
    pushed(loop, "bob", f"{head}:{MAIN}", environ=spoofed, signed=False)
    assert newest_origins(loop)[head][0] is How.UNKNOWN
    assert "approval_authors_unknown" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


def _blobs(loop: Loop) -> list[str]:
    command = ("git", "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")
    lines = loop.program("bot", *command, at=loop.server).text.splitlines()
    return [line.removesuffix(" blob") for line in lines if line.endswith(" blob")]


def _text(loop: Loop, blob: str) -> str:
    return loop.program("bot", "git", "cat-file", "blob", blob, at=loop.server).text


def test_what_was_pushed_elsewhere_first_stays_the_work_of_that_pusher(loop: Loop) -> None:
    """Bob's commit lies on a branch that no request names; carol merges it by hand, and bob approves."""
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    pushed(loop, "bob", f"{head}:refs/tags/v1")
    pushed(loop, "carol", f"{head}:{MAIN}")
    assert newest_origins(loop)[head] == (How.CERTIFICATE, email("bob"))
    assert "approval_self" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


def test_a_commit_that_somebody_unknown_brought_first_stays_unknown(loop: Loop) -> None:
    head = loop.commit("mallory", DELETE_LEGACY, key=None, away=True)
    loop.push("bob", f"{head}:refs/heads/topic")
    pushed(loop, "carol", f"{head}:{MAIN}")
    assert "approval_authors_unknown" in approved(loop, "bob")
    assert loop.graph("legacy").exists()


def test_who_has_logged_in_is_known_by_the_rules_alone(web: Loop) -> None:
    head = web.commit("mallory", DELETE_LEGACY, key=None, away=True)
    web.push("bob", f"{head}:{MAIN}")
    assert newest_origins(web) == {head: (How.PUSH, f"local:{email('bob')}")}
    assert "approval_self" in approved(web, "bob")
    approved(web, "carol")
    assert not web.graph("legacy").exists()


def test_a_name_that_no_rule_maps_is_nobody(web: Loop) -> None:
    head = web.commit("alice", DELETE_LEGACY, key=None, away=True)
    web.push("mallory", f"{head}:{MAIN}")
    assert "approval_authors_unknown" in approved(web, "bob")
    assert web.graph("legacy").exists()


def test_a_push_is_recorded_before_a_ref_moves(loop: Loop, tmp_path: Path) -> None:
    """Whatever ends the push after pre-receive, the record is there; a push that is refused leaves none."""
    head = loop.commit("mallory", {"README.md": b"Words.\n"}, key=None, away=True)
    hook = loop.server / "hooks" / "update"
    hook.write_text(f"#!/bin/sh\ngit rev-parse {PUSHES} > {tmp_path}/seen\nexit 1\n")
    hook.chmod(0o755)
    loop.clone("bob")
    alternates = loop.clone("bob") / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{loop.workshop}/objects\n")
    assert loop.program("bob", "git", *SIGNED, f"{head}:refs/heads/topic", check=False).code
    assert (tmp_path / "seen").read_text().strip() == loop.store.resolve(PUSHES)
    broken = loop.commit("alice", {"cluster/cluster.yaml": b"version: 1\ngraphs: 7\n"}, away=True)
    before = loop.tip(PUSHES)
    assert "gitops:" in loop.program("bob", "git", *SIGNED, f"{broken}:{MAIN}", check=False).text
    assert loop.tip(PUSHES) == before


PLACE = f"{APPROVALS}01BBBBBBBBBBBBBBBBBBBBBBBB"
BEFORE_IT_EXPIRED = 1_500_000_000
OTHER_SIGNATURE = "-----BEGIN PGP SIGNATURE-----\n\niQEzBAABCAAdFiEE\n=abcd\n-----END PGP SIGNATURE-----"


def _made(loop: Loop, who: str = "bob") -> tuple[Approval, ApprovalStatement]:
    """What somebody's approval of the pending delete says; the approval itself is taken away again."""
    made = loop.sign_approval(who, "graph.legacy")
    (ref,) = loop.approvals()
    loop.drop(ref)
    return loop.evidence(made.commit or "")


def _commit(loop: Loop, approval: Approval, told: ApprovalStatement, committer: Person, who: str = "bob") -> NewCommit:
    """The commit of an approval by any committer at any time; `who` signed the statement."""
    files = {f"__cluster/approvals/{approval.approval_id}.json": write_approval(approval)}
    tree = loop.store.write_files(loop.store.commit(told.ledger_head).tree, files)
    message = statement_message(
        told, f"{approval.operation} {approval.resource}", sign=signer(loop.store, loop.key(who))
    )
    return NewCommit(tree, (told.ledger_head,), committer, message)


def _placed(loop: Loop, commit: str) -> list[str]:
    """Put a commit where approvals are looked for, past the guard; what the bot then says."""
    loop.store.update_refs([RefUpdate(PLACE, ZERO, commit)])
    return loop.arrived(PLACE)


def _refused(loop: Loop, lines: list[str], code: str) -> None:
    assert code in codes(lines)
    assert loop.graph("legacy").exists()
    assert loop.tip(PLACE) not in loop.store.commit(loop.tip(LEDGER)).parents


def test_the_committer_is_a_name_and_the_key_is_the_person(pending: Loop) -> None:
    """Row 1: git says "good" of a commit by alice that bob signed. It is bob's approval, not the author's own."""
    approval, told = _made(pending)
    commit = _commit(pending, approval, told, Person("alice", email("alice"), BEFORE_IT_EXPIRED))
    _placed(pending, pending.store.write_commit(commit, signing_key=str(pending.key("bob"))))
    assert not pending.graph("legacy").exists()
    entry = pending.applied()
    pending.program("bob", "git", "fetch", "-q", "origin")
    assert f"approved by {email('bob')}" in pending.gitops("bob", "log").text
    assert entry.parents[1:] == (pending.tip(PLACE),)


def test_a_committer_with_a_good_name_and_a_strange_key_is_nobody(pending: Loop) -> None:
    """Row 1, the other way round: bob's name, mallory's key."""
    approval, told = _made(pending)
    commit = _commit(pending, approval, told, Person("bob", email("bob"), BEFORE_IT_EXPIRED), "mallory")
    forged = pending.store.write_commit(commit, signing_key=str(pending.key("mallory")))
    _refused(pending, _placed(pending, forged), "approval_signer_unknown")


@pytest.mark.parametrize("version", [1, 3])
def test_amending_a_commit_that_somebody_drafted_approves_nothing(pending: Loop, version: int) -> None:
    """Mallory drafts bob's approval, as either release would write it; bob signs it as he signs every commit."""
    approval, told = _made(pending)
    pending.push("bob", f"{told.ledger_head}:refs/heads/topic")
    told = replace(told, version=version, seen=told.seen if version == STATEMENT_VERSION else None)
    draft = pending.write_approval(approval, told, "mallory", away=True)
    pending.push("mallory", f"{draft}:refs/heads/topic")
    pending.program("bob", "git", "fetch", "-q", "origin", "topic")
    pending.program("bob", "git", "checkout", "-q", "FETCH_HEAD")
    pending.program("bob", "git", "-c", "gpg.format=ssh", "commit", "-q", "--amend", "--no-edit", "-S")
    ref = f"{APPROVALS}{approval.approval_id}"
    pushed = pending.push("bob", f"HEAD:{ref}", check=False)
    code = "approval_stale" if version == 1 else "approval_signature_invalid"
    assert (pushed.code, code in pushed.text) == (1, True)
    pending.push("bob", "HEAD:refs/heads/topic", "--force")
    _refused(pending, _placed(pending, pending.tip("refs/heads/topic")), code)


def _with_rules(loop: Loop, files: dict[str, bytes | None]) -> None:
    """Other keys and rules, by alice, approved by carol: in force with the next entry."""
    loop.move(MAIN, loop.commit("alice", files))
    assert loop.sign_approval("carol", "trust.brain").ok
    for ref in loop.approvals():
        loop.arrived(ref)


def test_dating_a_commit_back_does_not_bring_an_expired_key_back(pending: Loop) -> None:
    """Row 2: ssh-keygen holds the end of a key against the commit's own date, which its author chooses."""
    kind, blob = pending.key("bob").with_suffix(".pub").read_text().split()[:2]
    expired = f'{email("bob")} namespaces="git",valid-before="20240101Z" {kind} {blob}\n'
    approval, told = _made(pending)
    _with_rules(pending, {SIGNERS: pending.signers("bot", "alice", "carol", others=expired)})
    told = replace(told, ledger_head=pending.tip(LEDGER))
    commit = _commit(pending, approval, told, Person("bob", email("bob"), BEFORE_IT_EXPIRED))
    forged = pending.store.write_commit(commit, signing_key=str(pending.key("bob")))
    _refused(pending, _placed(pending, forged), "approval_signer_unknown")


def test_a_revoked_key_approves_no_more_and_the_past_stands(pending: Loop) -> None:
    """Row 8: a revocation file takes back the whole past; here it counts from the entry that brought it."""
    assert pending.sign_approval("bob", "graph.legacy").ok
    pending.arrived(pending.approvals()[0])
    assert not pending.graph("legacy").exists()
    revoked = pending.key("bob").with_suffix(".pub").read_bytes()
    config = CONFIG + "  revoked_keys: .gitops/revoked_keys\n"
    _with_rules(pending, {"gitops.yaml": config.encode(), ".gitops/revoked_keys": revoked})
    pending.move(MAIN, pending.commit("alice", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"}))
    outcome = pending.sign_approval("bob", "graph.notes")
    assert [d.code for d in outcome.diagnostics if d.severity == "error"] == ["approval_signer_unknown"]
    pending.program("carol", "git", "fetch", "-q", "origin")
    audit = pending.gitops("carol", "audit")
    assert (audit.code, audit.text.splitlines()[0].startswith("audit good")) == (0, True)


@pytest.mark.parametrize("key", [None, "bob"])
def test_signatures_of_another_kind_are_none(pending: Loop, key: str | None) -> None:
    """Rows 10 and 11: git takes OpenPGP keys that nobody vouched for, and those that have ended; here only SSH keys speak."""
    approval, told = _made(pending)
    raw = format_commit(_commit(pending, approval, told, Person("bob", email("bob"), 1)))
    armored = OTHER_SIGNATURE if key is None else sign(raw, str(pending.key(key))).replace("SSH SIG", "PGP SIG")
    forged = pending.store._write("commit", with_signature(raw, armored))
    _refused(pending, _placed(pending, forged), "approval_signature_invalid")


def test_replacement_of_objects_is_not_followed(pending: Loop) -> None:
    """Row 12: with `refs/replace`, git verifies the good commit in place of the evil one."""
    approval, told = _made(pending)
    unsigned = pending.write_approval(approval, told, None)
    good = pending.write_approval(approval, told, "bob")
    pending.program("bot", "git", "replace", unsigned, good, at=pending.server)
    (pending.folder / "allowed").write_bytes(pending.signers("bob"))
    assert (
        "Good"
        in pending.program(
            "bot",
            "git",
            "-c",
            f"gpg.ssh.allowedSignersFile={pending.folder}/allowed",
            "verify-commit",
            unsigned,
            at=pending.server,
            check=False,
        ).text
    )
    _refused(pending, _placed(pending, unsigned), "approval_unsigned")


def test_an_approval_of_another_repository_is_none_here(pending: Loop) -> None:
    """Row 13: a signature is good wherever the commit is taken to; the statement says which repository was meant."""
    approval, told = _made(pending)
    target = replace(told.target, repository="another")
    genuine_there = pending.write_approval(approval, replace(told, target=target), "bob")
    _refused(pending, _placed(pending, genuine_there), "approval_wrong_target")


@pytest.mark.parametrize("parents", [1, 2])
def test_a_signed_merge_is_no_approval(loop: Loop, parents: int) -> None:
    """Row 14: whoever merges, squashes or rebases says nothing about the gate, even with a key that could open it."""
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    tree = loop.store.commit(head).tree
    given = (loop.tip(), head)[:parents]
    merged = NewCommit(tree, given, Person("bob", email("bob"), BEFORE_IT_EXPIRED), "Approve everything\n")
    lines = loop.move(MAIN, loop.store.write_commit(merged, signing_key=str(loop.key("bob"))))
    assert loop.graph("legacy").exists()
    assert any("needs" in line or "deferred" in line for line in lines)
    assert loop.status(loop.tip(), "apply").startswith("failure")
    assert loop.approvals() == ()


_OTHERS = ({"README.md": b"Other words.\n"}, {"cluster/README.md": b"Better words.\n"})
_EMPTIED = {"cluster/legacy.pg": b"node Other {\n    name: String @key\n}\n"}
_WITHOUT_TEXT = {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}


@pytest.fixture(scope="module")
def with_gates(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Loop:
    """Built once, never changed: the rules gate what loses data, and the graph has some."""
    loop = built(f"{CONFIG}  gates: [lossy]\n").copied(tmp_path_factory.mktemp("gates") / "loop")
    load(loop, 3)
    return loop


_APPROVED = ("before", "after", "never")


def _is_quick(method: MergeMethod, place: int, moved: bool, approved: str) -> bool:
    """Nine cases, which have each pair of values."""
    at = [*MergeMethod].index(method)
    return approved == _APPROVED[(at + place) % 3] and moved is ((place - at) % 3 == 2)


@pytest.mark.parametrize(
    ("method", "place", "moved", "approved"),
    [
        pytest.param(*case, marks=() if _is_quick(*case) else pytest.mark.slow)
        for case in itertools.product(MergeMethod, range(3), (False, True), _APPROVED)
    ],
)
def test_the_audit_accepts_what_a_merge_writes(
    with_gates: Loop, tmp_path: Path, method: MergeMethod, place: int, moved: bool, approved: str
) -> None:
    """A request of three commits, of which one deletes, empties or migrates a graph; main may have moved meanwhile."""
    loop = with_gates.copied(tmp_path / "loop")
    address, change = ("schema.legacy", _EMPTIED) if place == 1 else ("graph.legacy", DELETE_LEGACY)
    edits: list[Mapping[str, bytes | None]] = [*_OTHERS]
    edits.insert(place, _WITHOUT_TEXT if approved == "never" else change)
    head = loop.tip()
    for edit in edits:
        head = loop.commit("alice", edit, head)
    loop.move("refs/heads/retire", head)
    if moved:
        loop.move(MAIN, loop.commit("carol", {"elsewhere.md": b"Something else.\n"}))
    if approved == "before":
        assert loop.sign_approval("bob", address, request=1).ok
        loop.arrived(loop.approvals()[0])
    loop.merge("carol", 1, method)
    if approved == "after":
        assert loop.sign_approval("bob", address).ok
        loop.arrived(loop.approvals()[0])
    assert loop.status(loop.tip(), "apply").startswith("success")
    assert loop.gitops("bob", "audit").text.startswith("audit good")


def _first_apply_gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *gated: str, signed: bool = True) -> Loop:
    """A first merge by alice, of which a rule gates new graphs with these names, and a later commit by carol."""
    others = GraphKind.gate

    def gate(kind: GraphKind, change: Change, situation: Situation) -> Gate | None:
        fresh = change.action is Action.CREATE and change.address.name in gated
        return Gate("it is new", (GateName.LOSSY,)) if fresh else others(kind, change, situation)

    monkeypatch.setattr(GraphKind, "gate", gate)
    loop = Loop.empty(tmp_path / "loop")
    rules = {"gitops.yaml": f"{CONFIG}  gates: [lossy]\n".encode(), SIGNERS: loop.signers(*TRUSTED)}
    files = {**FILES, **rules}
    loop.move(MAIN, loop.commit("alice", files) if signed else loop.commit("alice", files, key=None))
    assert audited(loop).ok
    assert loop.graph("notes").exists() is ("notes" not in gated)
    # A later commit of another person does not make her the only author.
    loop.move(MAIN, loop.commit("carol", {"cluster/README.md": b"Words.\n"}))
    return loop


@pytest.mark.parametrize("gated", [("legacy",), ("legacy", "notes")], ids=["in part", "completely"])
def test_who_wrote_what_a_first_apply_left_cannot_approve_it_and_others_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: tuple[str, ...]
) -> None:
    loop = _first_apply_gated(tmp_path, monkeypatch, *gated)
    for name in gated:
        assert approved(loop, "alice", f"graph.{name}") == {"approval_self"}
        assert not loop.graph(name).exists()
        assert approved(loop, "bob", f"graph.{name}") == set()
        assert loop.graph(name).exists()
        assert audited(loop).ok
    # From here on, only later commits count: the graph is alice's, and its delete is bob's.
    loop.move(MAIN, loop.commit("bob", DELETE_LEGACY))
    assert approved(loop, "bob") == {"approval_self"}
    assert approved(loop, "alice") == set()
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok


def test_an_unsigned_first_merge_is_proposed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = _first_apply_gated(tmp_path, monkeypatch, "legacy", signed=False)
    for who, why in (("alice", "approval_self"), ("bob", "approval_authors_unknown")):
        assert errors_of(loop.sign_approval(who, "graph.legacy")) == {why}
    loop.move(MAIN, loop.commit("bob", {"cluster/cluster.yaml": WITHOUT_LEGACY}))
    loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": FILES["cluster/cluster.yaml"]}))
    assert approved(loop, "alice") == {"approval_self"}
    assert approved(loop, "bob") == set()
    assert loop.graph("legacy").exists()
    assert audited(loop).ok


def test_a_history_too_long_before_the_first_apply_has_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the gated change the rest is applied, and from there on only later commits count."""
    monkeypatch.setattr("gitops.cluster.approvals.origins.MOST_COMMITS", 2)
    loop = _first_apply_gated(tmp_path, monkeypatch, "legacy")
    head = loop.tip()
    for number in range(3):
        head = loop.commit("carol", {"elsewhere.md": b"%d\n" % number}, head)
    lines = loop.move(MAIN, head)
    assert {"approval_history_too_long", "approval_authors_unknown"} & set(codes(lines)) == {
        "approval_history_too_long"
    }
    assert errors_of(loop.sign_approval("bob", "graph.legacy")) == {"approval_history_too_long"}
    loop.move(MAIN, loop.commit("bob", {"cluster/cluster.yaml": WITHOUT_LEGACY}))
    loop.move(MAIN, loop.commit("alice", {"cluster/cluster.yaml": FILES["cluster/cluster.yaml"]}))
    assert approved(loop, "alice") == {"approval_self"}
    assert approved(loop, "bob") == set()
    assert loop.graph("legacy").exists()
    assert audited(loop).ok


def test_the_audit_accepts_a_first_entry_of_which_a_graph_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise GitopsError(Code.GRAPH_CREATE_FAILED, "the disk is full")

    with monkeypatch.context() as disk:
        disk.setattr(LanceEngine, "prepare_create", fail)
        loop = Loop.build(tmp_path / "loop")
    assert not loop.graph("legacy").exists()
    assert audited(loop).ok
    loop.move(MAIN, loop.commit("carol", {"cluster/README.md": b"Words.\n"}))
    assert loop.graph("legacy").exists()
    assert audited(loop).ok
