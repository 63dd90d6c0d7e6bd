"""Answers of Gitea and Forgejo as the nouns of the port: pure functions, silent about fields that they do not use.

https://docs.gitea.com/api/
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckState,
    CheckStatus,
    Permission,
    RequestState,
    Review,
    ReviewState,
)
from gitops.forge.web import WebAnswer

_MAX_TITLE = 255
_HEADS = "refs/heads/"
_FOUND = 200
_LARGEST = 10**18
_REVIEWS = {
    "APPROVED": ReviewState.APPROVED,
    "REQUEST_CHANGES": ReviewState.CHANGES_REQUESTED,
    "COMMENT": ReviewState.COMMENTED,
}
# Reviews that are not submitted, and requests for a review.
_NOT_GIVEN = frozenset({"PENDING", "REQUEST_REVIEW", ""})
# Any other state is an error.
_STATES = {"pending": CheckState.PENDING, "success": CheckState.SUCCESS, "failure": CheckState.FAILURE}
_PERMISSIONS = {
    "owner": Permission.ADMIN,
    "admin": Permission.ADMIN,
    "write": Permission.WRITE,
    "read": Permission.READ,
}


def account(data: JsonObject) -> Account:
    """An account. Those of the forge itself have negative numbers: the bot of its jobs, and deleted accounts.

    https://docs.gitea.com/usage/actions/comparison
    """
    # An account has a number: the second reading refuses 0.
    number = data.number("id", least=-_LARGEST) or data.number("id")
    return Account(str(number), data.text("login", 100), number < 0)


def change_request(data: JsonObject) -> ChangeRequest:
    """A pull request, from a list or by itself."""
    base, head = data.part("base"), data.part("head")
    number, user, merged = data.number("number"), data.optional("user"), data.flag("merged")
    author = None if user is None else account(user)
    state = RequestState.OPEN if data.text("state") == "open" else RequestState.CLOSED
    return ChangeRequest(
        number=number,
        title=data.line("title", _MAX_TITLE),
        source=_source(head),
        target=_HEADS + base.text("ref"),
        head=head.commit("sha"),
        state=RequestState.MERGED if merged else state,
        opened_at=data.moment("created_at"),
        # Gitea does not say who pushed. The author is known; authors of commits are found in git.
        pushers=() if author is None else (f"gitea:{author.id}",),
        merged_as=data.commit_or("merge_commit_sha") if merged else None,
        author=author,
        head_ref=f"refs/pull/{number}/head",
        fork=_repository(head) != _repository(base),
        url=data.text_or("html_url"),
        labels=tuple(label.text("name") for label in data.parts("labels")),
    )


def _source(head: JsonObject) -> str:
    """The branch of a request. After it is deleted, only its label names it; a push to `refs/for` has no branch."""
    ref = head.text("ref")
    if not ref.startswith("refs/"):
        return _HEADS + ref
    label = head.text_or("label")
    return _HEADS + label if label else ref


def _repository(branch: JsonObject) -> int | None:
    """The number of a branch's repository, or None for one that was deleted."""
    repository = branch.optional("repo")
    return None if repository is None else repository.number("id")


def review(data: JsonObject) -> Review | None:
    """A review; None for one that is not submitted, or whose account was deleted."""
    user, state = data.optional("user"), data.text_or("state")
    if user is None or state in _NOT_GIVEN:
        return None
    known = ReviewState.DISMISSED if data.flag("dismissed") else _REVIEWS.get(state, ReviewState.COMMENTED)
    return Review(
        id=str(data.number("id")),
        account=account(user),
        state=known,
        # Comments outside of a review are on no commit.
        commit=data.commit_or("commit_id") or "" if data.text_or("commit_id") else "",
        at=data.moment("submitted_at"),
    )


def viewer(answer: WebAnswer) -> Account:
    """Whose token it is. Gitea marks only its own accounts as bots; this one is a bot, whatever it is called."""
    return replace(account(answer_object(answer.body, "the user")), bot=True)


def status(data: JsonObject, commit: str) -> CheckStatus:
    """A status of a commit."""
    state = _STATES.get(data.text_or("status"), CheckState.ERROR)
    return CheckStatus(commit, data.text("context"), state, data.line("description", 1024), data.moment("updated_at"))


def permission(data: JsonObject, who: Account, now: datetime) -> Permission:  # noqa: ARG001 - permissions have no end here
    """What an account may do; NONE if the answer is about another account, as after a login was reused."""
    user = data.optional("user")
    if user is None or account(user).id != who.id:
        return Permission.NONE
    return _PERMISSIONS.get(data.text_or("permission"), Permission.NONE)


def protected_by(branch: WebAnswer) -> str | None:
    """The name of the rule that protects a branch, None if there is none; empty if the token may not see the name."""
    data = answer_object(branch.body, "the branch")
    return data.text_or("effective_branch_protection_name") if data.flag("protected") else None


def unprotected() -> BranchRules:
    """The rules of a branch without protection."""
    return BranchRules(
        protected=False,
        request_needed=False,
        force_push=True,
        deletion=True,
        signatures_needed=False,
        required_checks=(),
        queue=False,
    )


def branch_rules(branch: WebAnswer, protection: WebAnswer | None) -> BranchRules:
    """The rules of a protected branch; details are unknown if the token may not read its rule.

    https://docs.gitea.com/usage/access-control/protected-branches
    """
    data = answer_object(branch.body, "the branch")
    checks = _checks(data)
    if protection is None or protection.status != _FOUND:
        note = "the rule of the branch cannot be read with this token: it has to administer the repository"
        return BranchRules(protected=True, deletion=False, required_checks=checks, queue=False, notes=(note,))
    rule = answer_object(protection.body, "the rule")
    pushing = rule.flag("enable_push")
    listed = pushing and rule.flag("enable_push_whitelist")
    exempt = rule.text_or("unprotected_file_patterns")
    return BranchRules(
        protected=True,
        request_needed=not pushing,
        force_push=rule.flag("enable_force_push"),
        # A protected branch is never deleted.
        deletion=False,
        signatures_needed=rule.flag("require_signed_commits"),
        required_checks=checks,
        pushers=_pushers(rule) if listed else None,
        queue=False,
        notes=(f"files that are exempt: {exempt}",) if exempt else (),
    )


def _checks(data: JsonObject) -> tuple[str, ...]:
    if not data.flag("enable_status_check"):
        return ()
    return tuple(sorted(text for text in data.values("status_check_contexts") if isinstance(text, str)))


def _pushers(rule: JsonObject) -> tuple[str, ...]:
    names = [*rule.values("push_whitelist_usernames"), *rule.values("push_whitelist_teams")]
    keys = ["deploy keys"] if rule.flag("push_whitelist_deploy_keys") else []
    return tuple(sorted([*(name for name in names if isinstance(name, str)), *keys]))
