"""Open requests of a bare repository beside each other: what their comments say before one of them is merged."""

from __future__ import annotations

import json

import pytest

from gitops.forge.events import RequestAction, RequestEvent
from gitops.forge.port import MergeOrder
from tests.support.bot_stage import Stage
from tests.support.loop import DELETE_LEGACY, FILES, Loop

NOTES = FILES["cluster/notes.pg"]
WITHOUT_TEXT = {"cluster/notes.pg": b"node Note {\n    title: String @key\n}\n"}
READS_TEXT = {
    "cluster/notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title, $n.text }\n}\n"
}
pytestmark = pytest.mark.e2e

CONFLICTS = "### Conflicts with other requests"
LATER = "### After earlier merges"


def section(comment: str, title: str) -> str:
    """One section of a comment, up to the next one."""
    return comment.partition(title)[2].partition("\n### ")[0].strip() if title in comment else ""


def opened(loop: Loop, branch: str, who: str, files: dict[str, bytes | None], title: str) -> None:
    loop.move(f"refs/heads/{branch}", loop.commit(who, files, loop.tip(), message=f"{title}\n"))


def test_a_query_that_breaks_on_the_schema_of_another_request_is_said_in_both_comments(loop: Loop) -> None:
    opened(loop, "drop", "alice", WITHOUT_TEXT, "Drop the text")
    opened(loop, "read", "carol", READS_TEXT, "Read the text")
    assert [loop.status(loop.request(n).head, "plan").split(":")[0] for n in (1, 2)] == ["success", "success"]
    error = "with both, `query_typecheck_error` at `graphs.notes.queries.titles`"
    assert "request 2, Read the text" in section(loop.comment(1), CONFLICTS)
    assert "request 1, Drop the text" in section(loop.comment(2), CONFLICTS)
    assert all(error in section(loop.comment(n), CONFLICTS) for n in (1, 2))
    # The command and its JSON say the same from a clone.
    assert f"conflicts with request 2: {error.replace('`', '')}" in loop.gitops("bob", "plan", "--request", "1").text
    form = json.loads(loop.gitops("bob", "plan", "--request", "2", "--json").text)
    (conflict,) = form["other_requests"]["conflicts"]
    assert (conflict["request"], conflict["problems"][0]["code"]) == (1, "query_typecheck_error")
    # A push that ends the conflict ends it in both comments, and so does closing one of them.
    loop.move(
        "refs/heads/read", loop.commit("carol", {"cluster/notes.gq": FILES["cluster/notes.gq"]}, loop.request(2).head)
    )
    assert [CONFLICTS in loop.comment(n) for n in (1, 2)] == [False, False]


def test_a_conflict_of_lines_is_said_in_both_comments_until_one_request_is_closed(loop: Loop) -> None:
    opened(
        loop, "one", "alice", {"cluster/notes.pg": NOTES.replace(b"text: String?", b"body: String?")}, "Call it body"
    )
    opened(
        loop, "two", "carol", {"cluster/notes.pg": NOTES.replace(b"text: String?", b"words: String?")}, "Call it words"
    )
    opened(
        loop,
        "three",
        "carol",
        {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    phone: String?\n}\n"},
        "Phones",
    )
    for number in (1, 2):
        assert "git can't merge both: `cluster/notes.pg`" in section(loop.comment(number), CONFLICTS)
    assert CONFLICTS not in loop.comment(3)
    # A push that has nothing to do with them writes nothing on their comments.
    before = [loop.comment(n) for n in (1, 2)]
    lines = loop.move(
        "refs/heads/three", loop.commit("carol", {"cluster/README.md": b"Phones.\n"}, loop.request(3).head)
    )
    assert [loop.comment(n) for n in (1, 2)] == before
    assert not any(line.startswith(("request 1:", "request 2:")) for line in lines), lines
    loop.move("refs/heads/two", "0" * 40)
    assert CONFLICTS not in loop.comment(1)


PHONES: dict[str, bytes | None] = {
    "cluster/legacy.pg": b"node Contact {\n    name: String @key\n    phone: String?\n}\n"
}


def test_requests_follow_the_order_of_the_merge_queue_and_others_come_after_it(loop: Loop) -> None:
    stage = Stage(loop)
    for name, files in (("drop", WITHOUT_TEXT), ("read", READS_TEXT), ("phones", PHONES)):
        stage.propose("alice", name, dict(files), message=name)
    stage.order = MergeOrder((3, 2), frozenset({1}))

    def told(number: int, action: RequestAction = RequestAction.OPENED) -> None:
        stage.handle(RequestEvent(number, action, loop.request(number).head))

    for number in (1, 2, 3):
        told(number)
    first = "These requests will probably be merged first: request"
    assert LATER not in loop.comment(3)
    assert f"{first} 3 (queued).\n\nThen this plan stays the same." in loop.comment(2)
    text = section(loop.comment(1), LATER)
    assert f"{first} 3 (queued), request 2 (queued)." in text
    assert "Then this plan fails:" in text
    assert "`query_typecheck_error` at `graphs.notes.queries.titles`" in text
    # An event about one request asks once for the order of all, and writes on no other comment if nothing moved.
    stage.calls.clear()
    told(3)
    assert (stage.calls["merge_order"], stage.calls["upsert_comment"]) == (1, 1)
    # Request 2 leaves the queue closed, so nothing is left that breaks request 1.
    loop.book.close(2)
    stage.order = MergeOrder((3,), frozenset({1}))
    told(2, RequestAction.CLOSED)
    assert "Then this plan stays the same." in section(loop.comment(1), LATER)
    assert CONFLICTS not in loop.comment(1)


def test_a_plan_after_the_approved_request_before_it_is_said_and_goes_with_its_merge(loop: Loop) -> None:
    opened(loop, "retire", "alice", DELETE_LEGACY, "Retire legacy")
    opened(
        loop,
        "reword",
        "carol",
        {"cluster/legacy.pg": b"node Contact {\n    name: String @key\n    phone: String?\n}\n"},
        "Phones",
    )
    assert LATER not in loop.comment(2)
    loop.confirmed("bob", "approve", "graph.legacy", "--request", "1")
    loop.arrived(loop.approvals()[0])
    assert LATER not in loop.comment(1)
    text = section(loop.comment(2), LATER)
    assert "These requests will probably be merged first: request 1 (approved)." in text
    assert "after request 1 (approved): " in loop.gitops("bob", "plan", "--request", "2").text
    opened(loop, "query", "carol", READS_TEXT, "Read the text")
    assert "Then this plan stays the same." in section(loop.comment(3), LATER)
    loop.merge("carol", 1)
    assert [LATER in loop.comment(n) for n in (2, 3)] == [False, False]
