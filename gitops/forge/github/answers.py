"""Answers of GitHub as the nouns of the port: pure functions, silent about fields that they do not use.

https://docs.github.com/en/rest?apiVersion=2022-11-28
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckState,
    CheckStatus,
    Permission,
    Push,
    RequestState,
    Review,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.web import WebAnswer

_MAX_TITLE = 256
_NOT_PROTECTED = "Branch not protected"
_LIMITED = frozenset({"RATE_LIMIT", "RATE_LIMITED"})
_NOT_FOUND = 404

_VERDICTS = {
    "APPROVED": ReviewDecision.APPROVED,
    "CHANGES_REQUESTED": ReviewDecision.CHANGES_REQUESTED,
    "REVIEW_REQUIRED": ReviewDecision.REQUIRED,
}
_REVIEWS = {
    "APPROVED": ReviewState.APPROVED,
    "CHANGES_REQUESTED": ReviewState.CHANGES_REQUESTED,
    "DISMISSED": ReviewState.DISMISSED,
}
# Roles of a repository, and the coarser values of `permission`, which stand for custom roles.
_PERMISSIONS = {
    "admin": Permission.ADMIN,
    "maintain": Permission.MAINTAIN,
    "write": Permission.WRITE,
    "triage": Permission.READ,
    "read": Permission.READ,
    "none": Permission.NONE,
}


def account(data: JsonObject) -> Account:
    """An account."""
    return Account(str(data.number("id")), data.text("login", 100), data.text_or("type") == "Bot")


def viewer(answer: WebAnswer) -> Account:
    """Whose token it is. Raises RemoteError `forge_refused` for what GraphQL refuses, and for a token without an account."""
    data = graphql_data(answer).part("viewer")
    login = data.text("login", 100)
    if not data.has("databaseId"):
        raise RemoteError(Code.FORGE_REFUSED, f"GitHub does not say which account {login} is")
    return Account(str(data.number("databaseId")), login, login.endswith("[bot]"))


def review_decision(answer: WebAnswer) -> ReviewDecision:
    """What the rules decide about the reviews. Raises as `graphql_data`."""
    request = graphql_data(answer).part("repository").part("pullRequest")
    return _VERDICTS.get(request.text_or("reviewDecision"), ReviewDecision.UNKNOWN)


def graphql_data(answer: WebAnswer) -> JsonObject:
    """The data of an answer without errors.

    Raises RemoteError: `forge_unavailable` for a limit, else `forge_refused`, with status 404 for what is not there.
    https://docs.github.com/en/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
    """
    data = answer_object(answer.body, "the answer")
    for error in data.parts("errors"):
        kind, message = error.text_or("type"), error.line("message", 300)
        if kind in _LIMITED:
            raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitHub answers: {message}", retryable=True)
        status = _NOT_FOUND if kind == "NOT_FOUND" else None
        raise RemoteError(Code.FORGE_REFUSED, f"GitHub answers: {message}", status=status)
    return data.part("data")


def change_request(data: JsonObject) -> ChangeRequest:
    """A pull request, from a list or by itself."""
    base, head = data.part("base"), data.part("head")
    # The repository of a fork may have been deleted since.
    fork = not head.has("repo") or head.part("repo").number("id") != base.part("repo").number("id")
    number, user = data.number("number"), data.optional("user")
    author = None if user is None else account(user)
    merged = data.has("merged_at")
    state = RequestState.OPEN if data.text("state") == "open" else RequestState.CLOSED
    return ChangeRequest(
        number=number,
        title=data.line("title", _MAX_TITLE),
        source="refs/heads/" + head.text("ref"),
        target="refs/heads/" + base.text("ref"),
        head=head.commit("sha"),
        state=RequestState.MERGED if merged else state,
        opened_at=data.moment("created_at"),
        # A request does not name who pushed: its author is known, the others are in the moves of its branch.
        pushers=() if author is None else (f"github:{author.id}",),
        merged_as=data.commit_or("merge_commit_sha") if merged else None,
        author=author,
        head_ref=f"refs/pull/{number}/head",
        fork=fork,
        project=head.part("repo").text_or("full_name") if fork and head.has("repo") else "",
        url=data.text_or("html_url"),
        labels=tuple(label_names(data.parts("labels"))),
    )


def push(data: JsonObject) -> Push:
    """One move of a branch. A merge, and any other move, is a push by the account that did it."""
    actor = data.optional("actor")
    pusher = "" if actor is None else f"github:{account(actor).id}"
    return Push(old=data.commit("before"), new=data.commit("after"), pusher=pusher)


def label_names(forms: Iterable[JsonObject]) -> list[str]:
    """Names of labels."""
    return [data.text("name") for data in forms]


def review(data: JsonObject) -> Review | None:
    """A review; None for one that is not submitted, or whose account was deleted."""
    user, state = data.optional("user"), data.text("state")
    if user is None or state == "PENDING":
        return None
    return Review(
        id=str(data.number("id")),
        account=account(user),
        state=_REVIEWS.get(state, ReviewState.COMMENTED),
        commit=data.commit_or("commit_id") or "",
        at=data.moment("submitted_at"),
    )


def status(data: JsonObject, commit: str) -> CheckStatus:
    """A status of a commit."""
    state = CheckState(data.text("state")) if data.text("state") in set(CheckState) else CheckState.ERROR
    return CheckStatus(commit, data.text("context"), state, data.line("description", 1024), data.moment("updated_at"))


def permission(data: JsonObject, who: Account, now: datetime) -> Permission:  # noqa: ARG001 - permissions have no end here
    """What an account may do; NONE if the answer is about another account, as after a login was reused.

    https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """
    user = data.optional("user")
    if user is None or str(user.number("id")) != who.id:
        return Permission.NONE
    role = data.text_or("role_name")
    return _PERMISSIONS.get(role, _PERMISSIONS.get(data.text("permission"), Permission.NONE))


def branch_rules(rules: Iterable[JsonObject], protection: WebAnswer) -> BranchRules:
    """What rulesets and the older protection enforce together; the latter is unknown where the token may not read it.

    https://docs.github.com/en/rest/repos/rules#get-rules-for-a-branch
    https://docs.github.com/en/rest/branches/branch-protection#get-branch-protection
    """
    by_type: dict[str, list[JsonObject]] = {}
    for rule in rules:
        by_type.setdefault(rule.text("type"), []).append(rule)
    older = _older(protection)
    checks = [
        check.text("context")
        for rule in by_type.get("required_status_checks", [])
        for check in rule.part("parameters").parts("required_status_checks")
    ]
    known = older is not None
    old = older or {}
    return BranchRules(
        protected=True if by_type or old.get("protected") else (False if known else None),
        request_needed=_either("pull_request" in by_type, old.get("request_needed")),
        force_push=_neither("non_fast_forward" in by_type, old.get("force_push")),
        deletion=_neither("deletion" in by_type, old.get("deletion")),
        signatures_needed=_either("required_signatures" in by_type, old.get("signatures_needed")),
        required_checks=tuple(sorted({*checks, *old.get("checks", ())})) if known or checks else None,
        # A ruleset that restricts updates names no accounts: those who bypass it push, and only administrators see them.
        pushers=() if "update" in by_type else old.get("pushers"),
        # The older protection has no queue.
        queue="merge_queue" in by_type or None,
        notes=() if known else ("branch protection cannot be read with this token; rules of rulesets can",),
    )


def _older(answer: WebAnswer) -> Mapping[str, Any] | None:
    """The older protection; None if the token may not read it."""
    if not isinstance(answer.body, dict):
        return None
    data = answer_object(answer.body, "the protection")
    if answer.status == _NOT_FOUND and data.text_or("message") == _NOT_PROTECTED:
        return {
            "protected": False,
            "force_push": True,
            "deletion": True,
            "request_needed": False,
            "signatures_needed": False,
        }
    if answer.status != 200:  # noqa: PLR2004 - the status of an answer
        return None
    checks, restricted = data.optional("required_status_checks"), data.optional("restrictions")
    contexts = [] if checks is None else [text for text in checks.values("contexts") if isinstance(text, str)]
    return {
        "protected": True,
        "request_needed": data.has("required_pull_request_reviews"),
        "force_push": _enabled(data, "allow_force_pushes"),
        "deletion": _enabled(data, "allow_deletions"),
        "signatures_needed": _enabled(data, "required_signatures"),
        "checks": contexts,
        "pushers": None if restricted is None else _pushers(restricted),
    }


def _pushers(data: JsonObject) -> tuple[str, ...]:
    users = [user.text("login", 100) for user in data.parts("users")]
    others = [group.text("slug") for kind in ("teams", "apps") for group in data.parts(kind)]
    return tuple(sorted([*users, *others]))


def _enabled(data: JsonObject, name: str) -> bool:
    part = data.optional(name)
    return part is not None and part.flag("enabled")


def _either(by_rule: bool, older: bool | None) -> bool | None:
    """Whether a ruleset or the older protection requires it."""
    return True if by_rule else older


def _neither(by_rule: bool, older: bool | None) -> bool | None:
    """Whether something is allowed: not if a ruleset or the older protection forbids it."""
    return False if by_rule else older
