"""Change requests from a clone of a bare repository: opened, looked at, commented on, merged and closed through the hooks."""

from __future__ import annotations

import json

import pytest

from gitops.forge.port import RequestState
from gitops.git.port import ZERO, RefUpdate
from tests.support.loop import DELETE_LEGACY, MAIN, Loop, email

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
