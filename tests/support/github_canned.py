"""Canned answers of GitHub and a forge that gets them, both ways held against the official description."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gitops.core.errors import RemoteError
from gitops.forge.github import GitHubForge
from gitops.forge.web import WebAnswer, WebRequest
from tests.support.clock import FixedClock
from tests.support.forges.github_forms import FULL_NAME, Forms
from tests.support.forges.records import Account, Comment, Pull, Review
from tests.support.github_contract import CheckedSender

HEAD, OTHER, MERGE = "a" * 40, "b" * 40, "c" * 40
AT = "2026-07-02T10:00:00Z"
MARKER = "<!-- gitops:plan library -->"
ACCOUNTS = {
    account.login: account
    for account in (
        Account(1, "mira"),
        Account(2, "ada"),
        Account(3, "octo", type="Organization"),
        Account(41898282, "github-actions[bot]", type="Bot"),
    )
}
BOT = "github-actions[bot]"
FORMS = Forms("https://api.github.com", "https://github.com", ACCOUNTS)
_CLOCK = FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC))
ROOT = f"/repos/{FULL_NAME}"


def ok(body: Any, status: int = 200, **headers: str) -> WebAnswer:
    return WebAnswer(status, headers, body)


def no(status: int, message: str = "Not Found") -> WebAnswer:
    return WebAnswer(
        status, {}, {"message": message, "documentation_url": "https://docs.github.com/rest", "status": str(status)}
    )


def lost(_: WebRequest) -> WebAnswer:
    """The service may have done it: nobody knows."""
    raise RemoteError("forge_unavailable", "the answer was lost", retryable=True)


def more(path: str, page: int) -> str:
    return f'<https://api.github.com{path}?page={page}>; rel="next", <https://api.github.com{path}?page=9>; rel="last"'


@dataclass
class Unjudged:
    """A sender that gives `answers` in order, then always the same, unchecked: GitHub does not always do what it describes."""

    answer: WebAnswer
    base: str = "https://api.github.com"
    sent: list[WebRequest] = field(default_factory=list)
    answers: Iterator[WebAnswer] = field(default_factory=lambda: iter(()))

    def wait(self, seconds: float) -> None:
        """Nothing."""

    def send(self, request: WebRequest) -> WebAnswer:
        self.sent.append(request)
        return next(self.answers, self.answer)


def unjudged(body: Any, base: str = "https://api.github.com") -> tuple[GitHubForge, Unjudged]:
    """A forge whose service answers everything with the same body."""
    sender = Unjudged(ok(body), base)
    return GitHubForge(sender, FULL_NAME, _CLOCK), sender


VIEWER = ok({"data": {"viewer": {"login": BOT, "databaseId": 41898282}}})


def forge_with(handlers: dict[str, Any]) -> tuple[GitHubForge, CheckedSender]:
    """A forge of the bot whose service answers from a table."""
    sender = CheckedSender({"POST /graphql": VIEWER, **handlers})
    return GitHubForge(sender, FULL_NAME, _CLOCK), sender


def calls(sender: CheckedSender) -> list[str]:
    return [f"{request.method} {request.path.removeprefix(ROOT)}" for request in sender.sent]


def pull(number: int = 1, *, full: bool = False, **values: Any) -> dict[str, Any]:
    fields = {"source": "topic", "repository": FULL_NAME, "head": HEAD, "base": OTHER, **values}
    form = Pull(100 + number, number, "Add authors", "", fields.pop("author", "mira"), AT, **fields)
    made = FORMS.pull(form, full=full)
    # In lists, GitHub's description does not know a label without a description.
    return made | {"labels": [label | {"description": ""} for label in made["labels"]]}


def comment(number: int, author: str, body: str) -> dict[str, Any]:
    return FORMS.comment(1, Comment(number, author, body, AT, AT))


def review(number: int, author: str, state: str, commit: str = HEAD) -> dict[str, Any]:
    return FORMS.review(1, Review(number, author, state, commit, AT))


def bodies(sender: CheckedSender, method: str) -> Sequence[Any]:
    """Bodies of what was sent by a method, without the questions in GraphQL."""
    return [request.body for request in sender.sent if request.method == method and request.path != "/graphql"]


def given_permission(role: str, permission: str, identifier: int = 2) -> dict[str, object]:
    """What GitHub says of the rights of `ada`."""
    user = FORMS.user("ada") | {
        "id": identifier,
        "role_name": role,
        "permissions": {"pull": True, "triage": True, "push": True, "maintain": False, "admin": False},
    }
    return {"permission": permission, "role_name": role, "user": user}


def rule(kind: str, **parameters: object) -> dict[str, object]:
    """A rule of a ruleset of the repository."""
    form: dict[str, object] = {"type": kind, "ruleset_source_type": "Repository", "ruleset_source": "octo/brain"}
    return form | {"ruleset_id": 1} | ({"parameters": parameters} if parameters else {})


RULES = [
    rule("deletion"),
    rule("non_fast_forward"),
    rule(
        "required_status_checks",
        required_status_checks=[{"context": "gitops/plan/library"}],
        strict_required_status_checks_policy=True,
    ),
]
