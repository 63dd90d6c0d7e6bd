"""`gitops changeset` in the clone of a person, whose ledger is a branch of the server."""

from __future__ import annotations

import json
import subprocess

import pytest

from gitops.cluster.model.changeset import Changeset
from gitops.git.port import NewCommit, RefUpdate
from tests.support.changeset_stories import MERGES, created, failed, landed, record
from tests.support.loop import LEDGER, MAIN, PROGRAM, Loop

pytestmark = pytest.mark.e2e

ONE = created(MERGES[0])


def test_a_person_follows_a_merge_from_a_clone_without_a_checkout_of_the_ledger(loop: Loop) -> None:
    loop.clone("carol")
    before = loop.gitops("carol", "changeset", "list", "--all", "--json")
    known = json.loads(before.text)["changesets"]
    record(loop, ONE, landed(ONE)[:2])
    listed = json.loads(loop.gitops("carol", "changeset", "list", "--json").text)
    assert (listed["cluster"], [each["key"] for each in listed["changesets"]]) == ("brain", [ONE.key])
    command = [*PROGRAM, "changeset", "watch", "--commit", MERGES[0], "--timeout", "2m", "--json"]
    watch = subprocess.Popen(
        command, cwd=loop.clone("carol"), env=loop.environment("carol"), stdout=subprocess.PIPE, text=True
    )
    assert watch.stdout is not None
    with watch:
        assert json.loads(watch.stdout.readline())["type"] == "full_state"
        record(loop, ONE, landed(ONE)[2:5])
        types = [json.loads(line)["type"] for line in watch.stdout]
    assert types == ["resource_runtime_updated", "changeset_prepared", "changeset_committed"]
    assert watch.returncode == 0
    shown = loop.gitops(
        "carol", "changeset", "show", "--commit", MERGES[0], "--exit-code", "--until", "finalized", check=False
    )
    assert (shown.code, shown.text.splitlines()[0]) == (3, f"changeset {ONE.key}: committed")
    record(loop, ONE, landed(ONE)[5:])
    assert loop.gitops("carol", "changeset", "list").text.startswith("no changeset is open")
    after = json.loads(loop.gitops("carol", "changeset", "list", "--all", "--json").text)["changesets"]
    assert len(after) == len(known) + 1


def test_a_cluster_that_is_not_listed_is_no_failed_merge(loop: Loop) -> None:
    done = loop.gitops("carol", "changeset", "watch", ONE.key, "--cluster", "brian", check=False)
    assert done.code == 5
    assert "ERROR cluster_not_found" in done.text


def test_a_signer_of_the_ledger_gives_a_changeset_up_and_the_audit_holds(loop: Loop) -> None:
    server = ("--repo", str(loop.server))
    record(loop, ONE, landed(ONE)[:3])
    done = loop.gitops("carol", "changeset", "fail", ONE.key, "--error", "the node is full", check=False)
    assert (done.code, "its key may not sign the ledger" in done.text) == (1, True)
    assert "ERROR ledger_not_writable" in done.text
    done = loop.gitops("bot", "changeset", "fail", ONE.key, "--error", "the node is full", "--json", *server)
    assert json.loads(done.text)["changeset"]["state"] == "rolling_back"
    late = loop.gitops("carol", "changeset", "fail", ONE.key, "--error", "again", check=False)
    assert "ERROR changeset_state_invalid" in late.text
    loop.gitops("bot", "changeset", "fail", ONE.key, "--error", "given up", "--force", *server)
    shown = loop.gitops("carol", "changeset", "show", ONE.key, "--exit-code", check=False)
    assert (shown.code, "ERROR the node is full" in shown.text) == (1, True)
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")


def test_a_merge_that_failed_is_tried_again_until_the_branch_moves_on(loop: Loop) -> None:
    def merged(text: bytes) -> Changeset:
        """A merge of which the hooks of the server did not hear, and whose changeset failed."""
        new = loop.commit("alice", {"cluster/notes.gq": text})
        loop.store.update_refs([RefUpdate(MAIN, loop.tip(), new)])
        made = created(new)
        record(loop, made, failed(made))
        return made

    first, second = (b"query titles() { match { $n: Note } return { $n.%s } }\n" % name for name in (b"text", b"title"))
    one = merged(first)
    loop.gitops("bot", "changeset", "retry", one.key, "--repo", str(loop.server))
    listed = json.loads(loop.gitops("carol", "changeset", "list", "--all", "--json").text)["changesets"]
    assert [(each["attempt"], each["kind"], each["state"]) for each in listed[:2]] == [
        (2, "retry", "finalized"),
        (1, "merge", "failed"),
    ]
    assert listed[0]["retry_of"] == one.key
    assert loop.gitops("carol", "changeset", "watch", "--commit", one.covers[0]).code == 0
    two = merged(second)
    # What is merged elsewhere changes nothing of it, and is not waited for.
    moved = loop.commit("alice", {"README.md": b"Something else.\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), moved)])
    done = loop.gitops("carol", "changeset", "watch", "--commit", moved)
    assert done.text.endswith(f"commit {moved} has nothing to apply to brain: no changeset is recorded for it\n")
    shown = loop.gitops("carol", "changeset", "show", "--commit", moved, "--json", "--exit-code")
    assert (json.loads(shown.text)["no_change"], json.loads(shown.text)["changesets"]) == (True, [])
    moved = loop.commit("alice", {"cluster/notes.gq": b"query titles() { match { $m: Note } return { $m.title } }\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), moved)])
    done = loop.gitops("bot", "changeset", "retry", two.key, "--repo", str(loop.server), check=False)
    assert (done.code, "a later merge of the branch touches the cluster" in done.text) == (1, True)
    loop.program("carol", "git", "fetch", "-q")
    loop.gitops("carol", "audit")


@pytest.mark.damaged_ledger(reason="an entry has the message of another state")
def test_a_message_that_contradicts_the_files_is_reported_and_the_files_count(loop: Loop) -> None:
    record(loop, ONE, landed(ONE)[:4])
    head = loop.store.commit(loop.tip(LEDGER))
    lie = head.message.replace("Changeset-State: prepared", "Changeset-State: committed")
    assert lie != head.message
    new = NewCommit(head.tree, head.parents, head.author, lie)
    forged = loop.store.write_commit(new, signing_key=str(loop.key("bot")))
    loop.store.update_refs([RefUpdate(LEDGER, head.id, forged)])
    done = loop.gitops("carol", "changeset", "show", ONE.key, check=False)
    assert (done.code, done.text.splitlines()[0]) == (1, f"changeset {ONE.key}: prepared")
    assert "ERROR trailer_mismatch" in done.text
    shown = loop.gitops("carol", "changeset", "show", ONE.key, "--exit-code", "--json", check=False)
    form = json.loads(shown.text)
    assert (shown.code, form["ok"], form["changesets"][0]["state"]) == (3, False, "prepared")
