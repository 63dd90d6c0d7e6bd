"""Change requests from a clone of a bare repository: opened, looked at, commented on, merged and closed through the hooks."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest

from gitops.forge.port import RequestState
from gitops.git.port import ZERO, RefUpdate
from tests.support.bot_stage import QUERY, take_lock
from tests.support.loop import CLUSTER_YAML, DELETE_LEGACY, MAIN, Loop, email

pytestmark = pytest.mark.e2e


def _branch(loop: Loop, who: str, name: str) -> None:
    """A branch with a change of a stored query, in a person's clone only."""
    loop.program(who, "git", "switch", "-q", "-c", name)
    path = loop.clone(who) / "cluster" / "notes.gq"
    path.write_text(path.read_text().replace("$n.title", "$n.text"))
    loop.program(who, "git", "commit", "-q", "-a", "-m", "Return texts")


def test_a_request_is_opened_read_and_merged_from_a_clone(loop: Loop) -> None:
    _branch(loop, "alice", "texts")
    opened = loop.gitops("alice", "request", "open").text
    assert "request 1: open for texts, head " in opened
    assert "success  gitops/plan/brain: 1 change" in opened
    # It is open already: that is said, and nothing is pushed.
    assert "request 1: open for texts" in loop.gitops("alice", "request", "open", "texts").text
    listed = loop.gitops("bob", "request", "list")
    assert "success  gitops/plan/brain: 1 change" in listed.text
    (form,) = json.loads(loop.gitops("bob", "request", "list", "--json").text)
    assert [status["context"] for status in form["statuses"]] == ["gitops/plan/brain"]
    changed = loop.gitops("bob", "request", "diff", "1").text
    assert "-    return { $n.title }" in changed
    assert "+    return { $n.text }" in changed
    merged = loop.gitops("carol", "request", "merge", "1").text
    assert f"request 1: merged as {loop.tip()}" in merged
    assert "success  gitops/apply/brain: 1 applied" in merged
    listed = loop.gitops("bob", "request", "list").text
    assert f"merged as {loop.tip()[:12]}" in listed
    assert "success  gitops/apply/brain: 1 applied" in listed
    assert "gitops/plan/brain" not in listed


def test_a_request_whose_check_fails_is_not_merged(loop: Loop) -> None:
    """A missing approval is a failing check. What is printed leads on: carol approves, then it merges."""
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    before = loop.tip()
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (refused.code, loop.tip(), loop.request(1).state) == (1, before, RequestState.OPEN)
    assert "request_checks_failed" in refused.text
    assert "gitops/plan/brain: request 1 is not merged: failure gitops/plan/brain: " in refused.text
    assert "needs approval: graph.legacy" in refused.text
    (command,) = re.findall(r"approve: gitops (.+?);", refused.text)
    assert loop.confirmed("carol", *shlex.split(command)).code == 0
    merged = loop.gitops("carol", "request", "merge", "1", "--json")
    form = json.loads(merged.text)
    assert (merged.code, form["ok"], form["outcome"], form["commit"]) == (0, True, "applied", loop.tip())
    assert form["clusters"] == [{"cluster": "brain", "outcome": "applied"}]
    assert not loop.graph("legacy").exists()


def test_the_check_of_another_head_does_not_count(loop: Loop) -> None:
    head = loop.commit("alice", {"cluster/notes.gq": QUERY})
    loop.move("refs/heads/texts", head)
    assert loop.status(head, "plan") == "success: 1 change"
    newer = loop.commit("alice", DELETE_LEGACY, head)
    # No hook sees this push: the request has the old head still.
    loop.store.update_refs([RefUpdate("refs/heads/texts", head, newer)])
    assert "request_head_moved" in loop.gitops("carol", "request", "merge", "1", check=False).text
    loop.book.open_or_update("refs/heads/texts", MAIN, newer, "Texts", email("alice"))
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert f"missing gitops/plan/brain: no run planned head {newer[:12]} yet" in refused.text
    assert "gitops bot sweep" in refused.text
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server), check=False).code in (0, 3)
    refused = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (refused.code, "needs approval: graph.legacy" in refused.text) == (1, True)


def test_only_an_approver_merges_in_spite_of_a_check_and_the_request_says_so(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    before = loop.tip()
    refused = loop.gitops("mallory", "request", "merge", "1", "--force", check=False)
    assert (refused.code, loop.tip()) == (1, before)
    assert "request_force_refused" in refused.text
    assert f"{email('mallory')} is not an approver of brain" in refused.text
    merged = loop.gitops("bob", "request", "merge", "1", "--force", check=False)
    assert merged.code == 3, merged.text
    assert "merged in spite of failure gitops/plan/brain: 2 changes; needs approval: graph.legacy" in merged.text
    assert "failure  gitops/apply/brain: 0 applied, 2 deferred or blocked" in merged.text
    comment = loop.book.comments(1)[-1]
    assert comment.author == f"bob <{email('bob')}> (not verified)"
    assert comment.body.startswith("Merging with `--force`, in spite of:\n\n- failure gitops/plan/brain: ")
    assert loop.graph("legacy").exists()
    # What is printed leads on.
    (command,) = re.findall(r"^  approve: gitops (.+)$", merged.text, re.MULTILINE)
    assert loop.confirmed("carol", *shlex.split(command)).code == 0
    assert not loop.graph("legacy").exists()


def test_a_merge_that_cannot_be_applied_is_no_success(loop: Loop) -> None:
    """The plan is good; then something else lies where the new graph belongs."""
    yaml = CLUSTER_YAML + "  drafts:\n    schema: notes.pg\n"
    loop.move("refs/heads/drafts", loop.commit("alice", {"cluster/cluster.yaml": yaml.encode()}))
    shutil.copytree(loop.graph("notes"), loop.graph("drafts"))
    merged = loop.gitops("carol", "request", "merge", "1", check=False)
    assert merged.code == 1, merged.text
    assert "failure  gitops/apply/brain: nothing is applied" in merged.text
    assert "see why: gitops request show 1" in merged.text


def test_a_merge_that_another_run_holds_up_waits(loop: Loop) -> None:
    loop.move("refs/heads/texts", loop.commit("alice", {"cluster/notes.gq": QUERY}))
    take_lock(loop)
    merged = loop.gitops("carol", "request", "merge", "1", "--timeout", "1s", check=False)
    assert merged.code == 3, merged.text
    assert f"request 1: merged as {loop.tip()}" in merged.text
    lock = "refs/gitops/locks/brain"
    loop.store.update_refs([RefUpdate(lock, loop.tip(lock), ZERO)])
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server)).code == 0
    (command,) = re.findall(r"another run is at work; to wait: gitops (.+)$", merged.text, re.MULTILINE)
    assert loop.gitops("carol", *shlex.split(command)).code == 0


def test_a_merge_that_no_hook_sees_waits(loop: Loop) -> None:
    loop.move("refs/heads/texts", loop.commit("alice", {"cluster/notes.gq": QUERY}))
    (loop.server / "hooks" / "post-receive").unlink()
    merged = loop.gitops("carol", "request", "merge", "1", check=False)
    assert (merged.code, "no hook answered; the next `gitops bot sweep` applies it" in merged.text) == (3, True)
    assert loop.gitops("bot", "bot", "sweep", "--repo", str(loop.server)).code == 0
    assert loop.status(loop.tip(), "apply") == "success: 1 applied"


def test_a_comment_is_pushed_and_written_by_the_bot(web: Loop) -> None:
    web.move("refs/heads/retire", web.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    web.gitops("bob", "request", "comment", "1", "Who still reads\nthe contacts?")
    found = web.book.comments(1)[-1]
    assert (found.author, found.body, found.marker) == (email("bob"), "Who still reads\nthe contacts?", None)
    assert not web.store.refs("refs/gitops/comments")
    missing = web.gitops("bob", "request", "comment", "7", "Hello?", check=False)
    assert (missing.code, "request_not_found" in missing.text) == (1, True)


def test_an_author_whom_the_server_does_not_know_is_not_verified(loop: Loop) -> None:
    loop.move("refs/heads/retire", loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n"))
    loop.gitops("bob", "request", "comment", "1", "Fine.")
    assert loop.book.comments(1)[-1].author == f"bob <{email('bob')}> (not verified)"
    # Other commits are not comments, and a request that does not exist takes none.
    head = loop.commit("mallory", {}, away=True)
    for ref in (f"refs/gitops/comments/1/{head}", "refs/gitops/comments/1/x", f"refs/gitops/comments/9/{head}"):
        assert "a comment is a commit with a message" in loop.push("mallory", f"{head}:{ref}", check=False).text
    assert len(loop.book.comments(1)) == 2


def test_a_request_is_closed_and_its_commits_stay(loop: Loop) -> None:
    head = loop.commit("alice", DELETE_LEGACY, message="Retire legacy\n")
    loop.move("refs/heads/retire", head)
    closed = loop.gitops("carol", "request", "close", "1").text
    assert "request 1: closed; its branch retire is deleted on the server" in closed
    assert loop.request(1).state is RequestState.CLOSED
    assert loop.store.resolve("refs/heads/retire") is None
    assert loop.tip("refs/gitops/requests/1/head") == head
    assert "request_closed" in loop.gitops("carol", "request", "close", "1", check=False).text


def test_what_cannot_become_a_request_is_refused(loop: Loop) -> None:
    for branch, code in (
        ("main", "usage_error"),
        ("gitops/ledger/brain", "usage_error"),
        ("none", "git_object_missing"),
    ):
        assert code in loop.gitops("alice", "request", "open", branch, check=False).text
    loop.program("alice", "git", "switch", "-q", "-c", "docs")
    (loop.clone("alice") / "README.md").write_text("Only words.\n")
    loop.program("alice", "git", "commit", "-q", "-a", "-m", "Words")
    refused = loop.gitops("alice", "request", "open", check=False)
    assert refused.code == 1
    assert (
        "the server did not open a change request for it: it changes no cluster folder, keys or rules" in refused.text
    )
    # Pushed while no hook looked: the operator opens it with the sweep, or by name on the server.
    loop.store.update_refs([RefUpdate("refs/heads/late", ZERO, loop.commit("bob", DELETE_LEGACY))])
    assert "request 1: open for late" in loop.gitops("bot", "request", "open", "late", at=loop.server).text
    assert loop.tip() == loop.tip(MAIN)
