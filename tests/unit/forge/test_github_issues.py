"""Proposals and issues on GitHub: opened once, updated in place, closed with a last word."""

from __future__ import annotations

from typing import Any

import pytest

from gitops.core.errors import RemoteError
from tests.support.forges import records
from tests.support.forges.github_forms import FULL_NAME
from tests.support.github_canned import (
    AT,
    BOT,
    FORMS,
    HEAD,
    MARKER,
    ROOT,
    bodies,
    calls,
    comment,
    forge_with,
    lost,
    no,
    ok,
    pull,
)

COMMENTS = f"{ROOT}/issues/1/comments"
BODY = f"{MARKER}\nthe plan"


def test_a_proposal_is_opened_once_and_then_updated() -> None:
    mine = pull(5, author=BOT, source="gitops/drift/library")
    full = pull(5, full=True, author=BOT, source="gitops/drift/library")
    handlers = {
        f"GET {ROOT}/pulls": [ok([]), ok([mine, pull(6, repository="mira/brain")])],
        f"POST {ROOT}/pulls": ok(full, 201),
        f"PATCH {ROOT}/pulls/5": ok(full),
    }
    forge, sender = forge_with(handlers)
    for _ in range(2):
        assert forge.propose("refs/heads/gitops/drift/library", "refs/heads/main", "Adopt", "text").number == 5
    assert dict(sender.sent[0].query)["head"] == "octo:gitops/drift/library"
    assert bodies(sender, "POST") == [
        {"head": "gitops/drift/library", "base": "main", "title": "Adopt", "body": "text"}
    ]
    assert bodies(sender, "PATCH") == [{"title": "Adopt", "body": "text"}]


def test_a_proposal_of_nothing_is_refused() -> None:
    handlers = {f"GET {ROOT}/pulls": ok([]), f"POST {ROOT}/pulls": no(422, "No commits between main and drift")}
    forge, _ = forge_with(handlers)
    with pytest.raises(RemoteError) as refused:
        forge.propose("refs/heads/drift", "refs/heads/main", "Adopt", "text")
    assert (refused.value.code, refused.value.status) == ("forge_refused", 422)


def _issue(number: int, author: str, body: str) -> dict[str, Any]:
    return FORMS.issue(records.Issue(number, number, "Drift", body, author, AT))


def _not_ours() -> list[dict[str, Any]]:
    request = records.Pull(8, 8, "x", BODY, BOT, AT, source="x", repository=FULL_NAME, head=HEAD, base=HEAD)
    return [_issue(2, "mira", BODY), _issue(3, BOT, f"x\n{MARKER}"), _issue(4, BOT, ""), FORMS.issue(request)]


def test_an_issue_is_written_once_and_then_updated() -> None:
    handlers = {
        f"GET {ROOT}/issues": [ok(_not_ours()), ok([*_not_ours(), _issue(5, BOT, f"{MARKER}\nold")])],
        f"POST {ROOT}/issues": ok(_issue(5, BOT, BODY), 201),
        f"PATCH {ROOT}/issues/5": ok(_issue(5, BOT, BODY)),
    }
    forge, sender = forge_with(handlers)
    for _ in range(2):
        assert forge.upsert_issue(MARKER, "Drift", "the plan") == "https://github.com/octo/brain/issues/5"
    assert bodies(sender, "POST") == bodies(sender, "PATCH") == [{"title": "Drift", "body": BODY}]
    assert dict(sender.sent[1].query)["creator"] == BOT


@pytest.mark.parametrize("said", [ok(comment(1, BOT, "gone"), 201), lost], ids=["heard", "lost"])
def test_an_issue_is_closed_with_a_last_word(said: Any) -> None:
    handlers = {
        f"GET {ROOT}/issues": ok([_issue(5, BOT, BODY)]),
        f"POST {ROOT}/issues/5/comments": said,
        f"PATCH {ROOT}/issues/5": ok(_issue(5, BOT, BODY)),
    }
    forge, sender = forge_with(handlers)
    forge.close_issue(MARKER, "gone")
    assert bodies(sender, "POST") == [{"body": "gone"}]
    assert bodies(sender, "PATCH") == [{"state": "closed", "state_reason": "completed"}]


def test_an_issue_is_closed_although_its_last_comment_is_refused() -> None:
    handlers = {
        f"GET {ROOT}/issues": ok([_issue(5, BOT, BODY)]),
        f"PATCH {ROOT}/issues/5": ok(_issue(5, BOT, BODY)),
        f"POST {ROOT}/issues/5/comments": no(403, "locked"),
    }
    forge, sender = forge_with(handlers)
    with pytest.raises(RemoteError) as refused:
        forge.close_issue(MARKER, "gone")
    assert refused.value.code == "forge_refused"
    assert bodies(sender, "PATCH") == [{"state": "closed", "state_reason": "completed"}]


def test_no_issue_is_closed_where_there_is_none() -> None:
    forge, sender = forge_with({f"GET {ROOT}/issues": ok(_not_ours())})
    forge.close_issue(MARKER, "gone")
    assert calls(sender) == ["POST /graphql", "GET /issues"]
