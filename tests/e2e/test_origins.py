"""Who pushed what: attacks by which people approved their own change, on a bare repository. None of them may delete the graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.bot.dispatch import run_verb
from gitops.cli.shared import bot_of
from gitops.cluster.approvals.pushes import PUSHES
from gitops.cluster.model.ledger import How
from gitops.forge.events import ManualEvent
from gitops.git.port import ZERO, RefUpdate
from tests.support.bot_stage import take_lock
from tests.support.loop import DELETE_LEGACY, MAIN, Loop, email
from tests.support.origins import SIGNED, approved, errors_of, newest_origins, pushed

pytestmark = pytest.mark.e2e


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
