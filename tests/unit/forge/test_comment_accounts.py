"""Whose a comment is, by the number of the account: what a command in it may do rests on that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gitops.forge.gitea import GiteaDialect
from gitops.forge.github import GitHubDialect
from gitops.forge.gitlab.forge import GitLabDialect
from gitops.forge.hosted import HostedForge
from gitops.forge.port import Account, Comment
from gitops.forge.web import WebAnswer, WebRequest, answer_object
from tests.support.clock import FixedClock
from tests.support.github_canned import Unjudged

BOT = Account("9", "bot", bot=True)
MARKED = "<!-- cluster-gitops: plan brain -->\nThe plan."


def own(comment: Comment) -> Comment:
    """The comment as a reader of the bot `BOT` gives it."""

    class Dialect:
        null_is_empty = False

        def viewer(self) -> WebRequest:
            return WebRequest("GET", "/user")

        def read_viewer(self, answer: WebAnswer) -> Account:
            del answer
            return BOT

        def list_comments(self, number: int) -> WebRequest:
            return WebRequest("GET", f"/{number}")

        def next_page(self, *_: Any) -> None:
            return None

        def read_comment(self, data: Any) -> Comment:
            del data
            return comment

    reader = HostedForge(Unjudged(WebAnswer(200, {}, [{}])), Dialect(), FixedClock(datetime(2026, 7, 2, tzinfo=UTC)))  # type: ignore[arg-type]
    (found,) = reader.comments(1)
    return found


def github(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "user": author, "body": body, "created_at": "2026-07-02T10:21:36Z", **more}
    return own(GitHubDialect("o/r", "https://api.github.com").read_comment(answer_object(form)))


def gitea(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "user": author, "body": body, "created_at": "2026-07-02T10:21:36Z", **more}
    return own(GiteaDialect("o/r", "https://gitea.example.org").read_comment(answer_object(form)))


def gitlab(author: dict[str, Any] | None, body: str, **more: Any) -> Comment:
    form = {"id": 7, "author": author, "body": body, "created_at": "2026-07-02T10:21:36Z", "system": False, **more}
    found = GitLabDialect("o/r").read_comment(answer_object(form))
    assert found is not None
    return own(found)


def person(number: int, login: str) -> dict[str, Any]:
    """Somebody, under the names that the forges give to a login."""
    return {"id": number, "login": login, "username": login}


@pytest.mark.parametrize("forge", [github, gitea, gitlab])
def test_a_comment_says_which_account_wrote_it(forge: Any) -> None:
    assert forge(person(5, "bot"), MARKED) == Comment("bot", MARKED, "2026-07-02T10:21:36Z", None, "7", "5")
    own = forge(person(9, "renamed"), MARKED)
    assert (own.account, own.marker is not None) == ("9", True)


@pytest.mark.parametrize("forge", [github, gitea])
def test_a_comment_of_a_deleted_account_is_nobodys(forge: Any) -> None:
    found = forge(None, MARKED)
    assert (found.account, found.marker) == ("", None)


@pytest.mark.parametrize("forge", [github, gitea, gitlab])
@pytest.mark.parametrize(
    ("more", "edited"),
    [
        ({"updated_at": "2026-07-02T10:21:36Z"}, False),
        ({"updated_at": "2026-07-02T12:21:36+02:00"}, False),
        ({"updated_at": "2026-07-02T10:21:36.004Z"}, True),
        ({"updated_at": "2026-07-02T10:21:37Z"}, True),
        ({"updated_at": None}, True),
        ({"updated_at": "soon"}, True),
        ({}, True),
    ],
)
def test_a_comment_counts_as_edited_unless_the_forge_says_that_it_was_not(
    forge: Any, more: dict[str, Any], edited: bool
) -> None:
    assert forge(person(5, "ada"), "/gitops retry", **more).edited is edited
