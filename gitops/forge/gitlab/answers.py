"""Answers of GitLab as the nouns of the port: pure functions, silent about fields that they do not use.

Everything raises RemoteError `forge_unavailable` for an answer of another form than documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.forge.dialect import ForgeIssue
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
    ReviewDecision,
    ReviewState,
)
from gitops.git.port import ZERO

ANY_CHECK = "*"
"""In `BranchRules.required_checks`: every status of a head must have succeeded, whatever its name."""

_TITLE = 1_024
_BODY = 2_000_000
# "locked" is a request while it is being merged; https://docs.gitlab.com/api/merge_requests/
_STATES = {
    "opened": RequestState.OPEN,
    "locked": RequestState.OPEN,
    "merged": RequestState.MERGED,
    "closed": RequestState.CLOSED,
}
_CHECKS = {"success": CheckState.SUCCESS, "failed": CheckState.FAILURE, "canceled": CheckState.ERROR}
_REVIEWS = {"requested_changes": ReviewState.CHANGES_REQUESTED, "reviewed": ReviewState.COMMENTED}
# https://docs.gitlab.com/api/project_members/, highest first.
_ROLES = ((50, Permission.ADMIN), (40, Permission.MAINTAIN), (30, Permission.WRITE), (10, Permission.READ))
_NO_ACCESS = 0
_DIGITS = 10


@dataclass(frozen=True, slots=True)
class DeploymentRow:
    """A deployment; `finished` ones cannot be brought forward any more."""

    number: int
    commit: str
    account: str
    status: str

    @property
    def finished(self) -> bool:
        """Whether its status is its last."""
        return self.status in {"success", "failed", "canceled"}


def rows(body: Any, what: str) -> tuple[JsonObject, ...]:
    """The objects of a list that comes on one page."""
    if not isinstance(body, list):
        raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitLab answers for {what} with something that is not a list")
    return tuple(answer_object(item, f"{what}[{index}]") for index, item in enumerate(body))


def account(data: JsonObject) -> Account:
    """A user: https://docs.gitlab.com/api/users/. Only the answer about oneself says whether it is a bot."""
    return Account(str(data.number("id")), data.text("username"), data.flag("bot"))


def change_request(data: JsonObject) -> ChangeRequest:
    """A merge request: https://docs.gitlab.com/api/merge_requests/.

    Its head has a ref in the target project, also if its branch is in a fork. GitLab does not say who pushed: the author
    stands for them.
    """
    number = data.number("iid")
    state = _STATES.get(data.text("state"))
    if state is None:
        raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitLab gives merge request {number} a state that is not documented")
    author, merged_as = account(data.part("author")), None
    if state is RequestState.MERGED:
        # The merge commit, else the squashed one, else, after a fast-forward, the head.
        merged_as = data.commit_or("merge_commit_sha") or data.commit_or("squash_commit_sha") or data.commit_or("sha")
    return ChangeRequest(
        number=number,
        title=data.line("title", _TITLE),
        source=f"refs/heads/{data.text('source_branch')}",
        target=f"refs/heads/{data.text('target_branch')}",
        # Without any commit, or while GitLab still prepares it, a merge request has no head.
        head=data.commit_or("sha") or ZERO,
        state=state,
        opened_at=data.moment("created_at"),
        pushers=(f"gitlab:{author.id}",),
        merged_as=merged_as,
        author=author,
        head_ref=f"refs/merge-requests/{number}/head",
        # The branch's project is null once a fork is gone.
        fork=not data.has("source_project_id") or data.number("source_project_id") != data.number("target_project_id"),
        url=data.text_or("web_url"),
        labels=tuple(sorted(name for name in data.values("labels") if isinstance(name, str))),
    )


def file_names(data: JsonObject) -> tuple[str, ...]:
    """The path of a changed file, and where it was before."""
    return data.text("old_path", 4_096), data.text("new_path", 4_096)


def description(data: JsonObject) -> str:
    """The text of a merge request or an issue."""
    return data.text_or("description", most=_BODY)


def files_of(data: JsonObject) -> int | None:
    """How many files a merge request changes, None while GitLab does not say.

    Raises GitopsError `forge_limit` for `1000+`, where GitLab lists no more: https://docs.gitlab.com/administration/diff_limits/
    """
    count = data.text_or("changes_count")
    if not count:
        return None
    if count.endswith("+"):
        raise RemoteError(
            Code.FORGE_LIMIT, f"GitLab lists only the first {count[:-1][:20]} files of this merge request"
        )
    return int(count) if count.isascii() and count.isdecimal() and len(count) < _DIGITS else None


def reviews(approvals: JsonObject | None, reviewers: Sequence[JsonObject]) -> tuple[Review, ...]:
    """Comments of reviewers, then the approvals by time, then the objections.

    GitLab does not say which commit was approved, so `commit` is empty and such a review never belongs to a given commit. Nor
    does it say when a reviewer objected, so `at` is empty there, and an objection comes after any approval of the same person.
    Sources: https://docs.gitlab.com/api/merge_request_approvals/ and https://docs.gitlab.com/api/merge_requests/.
    """
    approved: list[Review] = []
    for row in () if approvals is None else approvals.parts("approved_by"):
        who = account(row.part("user"))
        at = row.moment("approved_at") if row.has("approved_at") else ""
        approved.append(Review(f"approval-{who.id}", who, ReviewState.APPROVED, "", at))
    by_state: dict[ReviewState, list[Review]] = {ReviewState.COMMENTED: [], ReviewState.CHANGES_REQUESTED: []}
    for row in reviewers:
        state, who = _REVIEWS.get(row.text_or("state")), account(row.part("user"))
        if state is not None:
            by_state[state].append(Review(f"review-{who.id}", who, state, "", ""))
    in_time = sorted(approved, key=lambda review: review.at)
    return (*by_state[ReviewState.COMMENTED], *in_time, *by_state[ReviewState.CHANGES_REQUESTED])


def review_decision(
    request: JsonObject, approvals: JsonObject | None, reviewers: Sequence[JsonObject]
) -> ReviewDecision:
    """What GitLab's rules decide, the stricter of its answers.

    `detailed_merge_status` names only the first thing that stops a merge, and the approvals know only the rules of editions that
    have them: without `approvals_required`, or with none required, there are no rules. Source:
    https://docs.gitlab.com/api/merge_requests/
    """
    status = request.text_or("detailed_merge_status")
    if status == "requested_changes" or any(row.text_or("state") == "requested_changes" for row in reviewers):
        return ReviewDecision.CHANGES_REQUESTED
    if status == "not_approved":
        return ReviewDecision.REQUIRED
    if (
        approvals is None
        or not approvals.has("approvals_required")
        or not approvals.number("approvals_required", least=0)
    ):
        return ReviewDecision.UNKNOWN
    if not approvals.has("approvals_left") or approvals.number("approvals_left", least=0):
        return ReviewDecision.REQUIRED
    return ReviewDecision.APPROVED


def comment(data: JsonObject) -> Comment | None:
    """A comment, or None for a line that GitLab wrote itself: https://docs.gitlab.com/api/notes/."""
    if data.flag("system"):
        return None
    author = account(data.part("author"))
    body, at = data.text("body", _BODY), data.moment("created_at")
    return Comment(author.login, body, at, None, str(data.number("id")), author.id)


def status(data: JsonObject, commit: str) -> CheckStatus:
    """A status; jobs of GitLab CI have one, too.

    What GitLab calls running, manual, skipped and so on is pending, because it decides nothing. Source:
    https://docs.gitlab.com/api/commits/
    """
    state = _CHECKS.get(data.text("status"), CheckState.PENDING)
    at = next((data.moment(time) for time in ("finished_at", "started_at", "created_at") if data.has(time)), "")
    return CheckStatus(commit, data.text("name"), state, data.text_or("description"), at)


def permission(data: JsonObject, who: Account, now: datetime) -> Permission:
    """What a member may do: https://docs.gitlab.com/api/project_members/.

    NONE for the row of another account, one that is not active, and one that has expired.
    """
    if str(data.number("id")) != who.id or data.text_or("state", "active") != "active":
        return Permission.NONE
    if data.text_or("membership_state", "active") != "active":
        return Permission.NONE
    if data.has("expires_at") and data.text("expires_at")[:10] <= now.astimezone(UTC).date().isoformat():
        return Permission.NONE
    level = data.number("access_level", least=0)
    return next((role for least, role in _ROLES if level >= least), Permission.NONE)


def branch_rules(
    branch: str, protections: Sequence[JsonObject], project: JsonObject, push_rule: JsonObject | None
) -> BranchRules:
    """What is enforced on a branch; of several rules that match, the most permissive is in force.

    `pushers` are `gitlab:<number>` for people, `group:<number>`, `deploy-key:<number>`, and roles by their names. Sources:
    https://docs.gitlab.com/user/project/repository/branches/protected/ and https://docs.gitlab.com/api/protected_branches/.
    """
    matching = [row for row in protections if _matches(row.text("name"), branch)]
    checks = (ANY_CHECK,) if project.flag("only_allow_merge_if_pipeline_succeeds") else ()
    signed = None if push_rule is None else push_rule.flag("reject_unsigned_commits")
    queue = project.flag("merge_trains_enabled") if project.has("merge_trains_enabled") else None
    if not matching:
        return BranchRules(
            protected=False,
            request_needed=False,
            force_push=True,
            deletion=True,
            signatures_needed=signed,
            required_checks=checks,
            queue=queue,
        )
    pushers = tuple(sorted({name for row in matching for name in _pushers(row)}))
    return BranchRules(
        protected=True,
        request_needed=not pushers,
        force_push=any(row.flag("allow_force_push") for row in matching),
        deletion=False,
        signatures_needed=signed,
        required_checks=checks,
        pushers=pushers,
        queue=queue,
        notes=("an account that may remove the protection can delete the branch on GitLab's pages",),
    )


def _matches(pattern: str, branch: str) -> bool:
    """Whether the name of a protection, in which `*` stands for anything, is that of a branch."""
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), branch, re.DOTALL) is not None


def _pushers(row: JsonObject) -> Iterable[str]:
    for level in row.parts("push_access_levels"):
        if level.has("user_id"):
            yield f"gitlab:{level.number('user_id')}"
        elif level.has("group_id"):
            yield f"group:{level.number('group_id')}"
        elif level.has("deploy_key_id"):
            yield f"deploy-key:{level.number('deploy_key_id')}"
        elif level.number("access_level", least=0) != _NO_ACCESS:
            yield level.line("access_level_description", 200) or f"role {level.number('access_level', least=0)}"


def deployment(data: JsonObject) -> DeploymentRow:
    """A deployment: https://docs.gitlab.com/api/deployments/."""
    by = account(data.part("user")).id if data.has("user") else ""
    return DeploymentRow(data.number("id"), data.commit("sha"), by, data.text("status"))


def issue(data: JsonObject) -> ForgeIssue:
    """An issue: https://docs.gitlab.com/api/issues/."""
    author = account(data.part("author"))
    return ForgeIssue(data.number("iid"), author.id, data.text("title"), description(data), data.text_or("web_url"))
