"""What Gitea and Forgejo answer, as the nouns of the port: readers, pure, tolerant of what they do not use.

https://docs.gitea.com/api/
"""

from __future__ import annotations

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
    Comment,
    Permission,
    RequestState,
    Review,
    ReviewState,
)
from gitops.forge.text import first_line_marker
from gitops.forge.web import WebAnswer

_MAX_TITLE = 255
_MAX_BODY = 1 << 20
_HEADS = "refs/heads/"
_FOUND = 200
_REVIEWS = {
    "APPROVED": ReviewState.APPROVED,
    "REQUEST_CHANGES": ReviewState.CHANGES_REQUESTED,
    "COMMENT": ReviewState.COMMENTED,
}
# Reviews that are being written, and the wish that somebody reviews: nothing that anybody has said.
_UNSAID = frozenset({"PENDING", "REQUEST_REVIEW", ""})
# A status in words that we do not have says nothing good.
_STATES = {"pending": CheckState.PENDING, "success": CheckState.SUCCESS, "failure": CheckState.FAILURE}
_PERMISSIONS = {
    "owner": Permission.ADMIN,
    "admin": Permission.ADMIN,
    "write": Permission.WRITE,
    "read": Permission.READ,
}


def entries(answer: WebAnswer, what: str, within: str | None = None) -> list[JsonObject]:
    """The objects of a list, or of the list called `within` in an object. Raises RemoteError `forge_unavailable`."""
    form = answer_object({what: answer.body}) if within is None else answer_object(answer.body, what)
    return list(form.parts(what if within is None else within))


def account(form: JsonObject) -> Account:
    """An account. Those of the forge itself have negative numbers: the bot of its jobs, and somebody who was deleted.

    https://docs.gitea.com/usage/actions/comparison
    """
    number: Any = dict(form.items()).get("id")
    if not isinstance(number, int) or isinstance(number, bool) or number == 0:
        raise RemoteError(Code.FORGE_UNAVAILABLE, "the forge names an account without a number")
    return Account(str(number), form.text("login", 100), number < 0)


def change_request(form: JsonObject) -> ChangeRequest:
    """A pull request, from a list or by itself."""
    base, head = form.part("base"), form.part("head")
    number, user, merged = form.number("number"), form.optional("user"), form.flag("merged")
    author = None if user is None else account(user)
    state = RequestState.OPEN if form.text("state") == "open" else RequestState.CLOSED
    return ChangeRequest(
        number=number,
        title=form.line("title", _MAX_TITLE),
        source=_source(head),
        target=_HEADS + base.text("ref"),
        head=head.commit("sha"),
        state=RequestState.MERGED if merged else state,
        opened_at=form.moment("created_at"),
        # Gitea does not tell who pushed. Whoever opened it is known; authors of commits are found in git.
        pushers=() if author is None else (f"gitea:{author.id}",),
        merged_as=form.commit_or("merge_commit_sha") if merged else None,
        author=author,
        head_ref=f"refs/pull/{number}/head",
        fork=_repository(head) != _repository(base),
        url=form.text_or("html_url"),
        labels=tuple(label.text("name") for label in form.parts("labels")),
    )


def _source(head: JsonObject) -> str:
    """The branch of a request. Once it is gone, only its label names it; one that was pushed to `refs/for` never had one."""
    ref = head.text("ref")
    if not ref.startswith("refs/"):
        return _HEADS + ref
    label = head.text_or("label")
    return _HEADS + label if label else ref


def _repository(branch: JsonObject) -> int | None:
    """The number of a branch's repository, or None for one that was deleted."""
    repository = branch.optional("repo")
    return None if repository is None else repository.number("id")


def file_names(form: JsonObject) -> tuple[str, ...]:
    """The path of a changed file, and where it was before."""
    before = form.text_or("previous_filename", most=4096)
    return (form.text("filename", 4096), *((before,) if before else ()))


def review(form: JsonObject) -> Review | None:
    """A review; None for one that is not given yet, or by nobody any more."""
    user, state = form.optional("user"), form.text_or("state")
    if user is None or state in _UNSAID:
        return None
    known = ReviewState.DISMISSED if form.flag("dismissed") else _REVIEWS.get(state, ReviewState.COMMENTED)
    return Review(
        id=str(form.number("id")),
        account=account(user),
        state=known,
        # Comments outside of a review are on no commit.
        commit=form.commit_or("commit_id") or "" if form.text_or("commit_id") else "",
        at=form.moment("submitted_at"),
    )


def comment(form: JsonObject, me: Account) -> Comment:
    """A comment, or an issue as one, with its marker if it is the bot's."""
    user = form.optional("user")
    author = None if user is None else account(user)
    body = form.text_or("body", most=_MAX_BODY)
    own = author is not None and author.id == me.id
    marker = first_line_marker(body) if own else None
    login, account_id = ("ghost", "") if author is None else (author.login, author.id)
    return Comment(login, body, form.moment("created_at"), marker, str(form.number("id")), account_id)


def status(form: JsonObject, commit: str) -> CheckStatus:
    """A status of a commit."""
    state = _STATES.get(form.text_or("status"), CheckState.ERROR)
    return CheckStatus(commit, form.text("context"), state, form.line("description", 1024), form.moment("updated_at"))


def permission(answer: WebAnswer, who: Account) -> Permission:
    """What an account may do; NONE where the answer is about another one, as after a login was given to somebody else."""
    form = answer_object(answer.body, "the permission")
    user = form.optional("user")
    if user is None or account(user).id != who.id:
        return Permission.NONE
    return _PERMISSIONS.get(form.text_or("permission"), Permission.NONE)


def protected_by(branch: WebAnswer) -> str | None:
    """The rule that protects a branch, None where none does; empty where the token may not know its name."""
    form = answer_object(branch.body, "the branch")
    return form.text_or("effective_branch_protection_name") if form.flag("protected") else None


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
    """The rules of a protected branch; how it is protected is unknown where the token may not read its rule.

    https://docs.gitea.com/usage/access-control/protected-branches
    """
    form = answer_object(branch.body, "the branch")
    checks = _checks(form)
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


def _checks(form: JsonObject) -> tuple[str, ...]:
    if not form.flag("enable_status_check"):
        return ()
    return tuple(sorted(text for text in form.values("status_check_contexts") if isinstance(text, str)))


def _pushers(rule: JsonObject) -> tuple[str, ...]:
    names = [*rule.values("push_whitelist_usernames"), *rule.values("push_whitelist_teams")]
    keys = ["deploy keys"] if rule.flag("push_whitelist_deploy_keys") else []
    return tuple(sorted([*(name for name in names if isinstance(name, str)), *keys]))
