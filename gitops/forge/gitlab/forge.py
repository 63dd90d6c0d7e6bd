"""Merge requests on GitLab, gitlab.com or self-managed: what only GitLab has, over what is common to hosted forges.

The address of the API is `https://HOST/api/v4`.
No text of the bot can hold a quick action, which GitLab would carry out with the bot's rights: see `GitLabDialect.escape`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.gitlab.requests import DEPLOYMENTS, UNSEEN, GitLabDialect
from gitops.forge.hosted import HostedForge, no_request
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    UNPROTECTED,
    Account,
    BranchRules,
    ChangeRequest,
    CheckStatus,
    Deployment,
    Review,
    ReviewDecision,
    ReviewState,
)
from gitops.forge.web import WebSender

__all__ = ["GitLabForge"]

ANY_CHECK = "*"
"""In `BranchRules.required_checks`: every status of a head must have succeeded, whatever its name."""

_REVIEWS = {"requested_changes": ReviewState.CHANGES_REQUESTED, "reviewed": ReviewState.COMMENTED}
_FINISHED = frozenset({"success", "failed", "canceled"})
_NO_ACCESS = 0
_DIGITS = 10
_OK = 200
_BAD_REQUEST = 400
_NOT_FOUND = 404
_CONFLICT = 409


class GitLabForge(HostedForge):
    """Implements Forge, with everything but checks and lists of pushes.

    A push of many branches is one event without commits there, and events are those of the whole project:
    https://docs.gitlab.com/administration/settings/push_event_activities_limit/
    """

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is a path (`group/sub/name`) or a number. Raises UsageError `usage_error` for anything else."""
        self._api = GitLabDialect(project)
        super().__init__(sender, self._api, clock)
        self._project: JsonObject | None = None

    def me(self) -> Account:
        """Whose token it is; asked once. A project access token is a bot of its own.

        Raises RemoteError `forge_unavailable`, GitopsError `forge_refused` for a token without an account, as CI_JOB_TOKEN.
        """
        try:
            return super().me()
        except RemoteError as error:
            if error.status not in {401, 403}:
                raise
            # See https://docs.gitlab.com/ci/jobs/ci_job_token/ for what a job's token may do.
            detail = (
                "GitLab does not say whose token this is. CI_JOB_TOKEN can neither comment nor set a status: give the "
                "job a project access token with the scope api as GITOPS_TOKEN"
            )
            raise GitopsError(Code.FORGE_REFUSED, detail) from error

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names of moved files included.

        Raises RemoteError `forge_limit` where GitLab would list only some of them, and, retryable, `forge_unavailable` while it
        still prepares the list.
        """
        expected = files_of(self._get_request(number))
        found = list(self._list(self._api.list_files(number)))
        if expected is not None and len(found) < expected:
            listed = f"{len(found)} of the {expected} files of merge request {number}"
            detail = f"GitLab lists {listed}: it still prepares them"
            raise RemoteError(Code.FORGE_UNAVAILABLE, detail, retryable=True)
        return self._paths(found)

    def reviews(self, number: int) -> tuple[Review, ...]:
        """The last comment of each reviewer and the approvals, objections at the end. GitLab keeps no commit with them."""
        return reviews(*self._opinions(self.request(number).number))

    def review_decision(self, number: int) -> ReviewDecision:
        """What GitLab's approval rules decide; UNKNOWN for editions and projects without any."""
        request = self._get_request(number)
        return review_decision(request, *self._opinions(number))

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name); unknown for tokens below the Maintainer role.

        `required_checks` is `*` where every status of a head must have succeeded: GitLab does not single any out.
        """
        try:
            protections = list(self._list(self._api.protected_branches()))
        except RemoteError as error:
            if error.status not in UNSEEN:
                raise
            return BranchRules(notes=("the token may not see protected branches: that takes the Maintainer role",))
        # null says that the edition has push rules and the project none.
        return branch_rules(branch, protections, self._settings())

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before; one request, unless GitLab refuses it.

        Raises UsageError `usage_error` for anything but a full id, RemoteError `forge_refused`.
        """
        answer = self._sender.send(self._api.set_status(status))
        if answer.status == _NOT_FOUND:
            ref = self._ref_of(status.commit)
            if ref is not None:
                answer = self._sender.send(self._api.set_status(status, ref))
        if answer.status == _BAD_REQUEST and any(
            (known.context, known.state) == (status.context, status.state) for known in self.statuses(status.commit)
        ):
            return
        if answer.status in {_BAD_REQUEST, _NOT_FOUND}:
            message = answer.body.get("message") if isinstance(answer.body, dict) else None
            detail = f"GitLab refuses the status {status.context} of {status.commit}: {str(message)[:200]!r}"
            raise RemoteError(Code.FORGE_REFUSED, detail, status=answer.status)

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels, in one request; others stay. A label in both lists is added.

        Raises GitopsError `request_not_found`, UsageError `usage_error` for a comma, which separates labels here.
        """
        for name in (*add, *remove):
            if "," in name or not name.strip():
                raise UsageError(Code.USAGE_ERROR, f"{name[:80]!r} cannot be a label on GitLab")
        off = [name for name in remove if name not in add]
        if (add or off) and self._sender.send(self._api.set_labels(number, add, off)).status == _NOT_FOUND:
            raise no_request(number)

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target` (full ref names), opened or updated.

        Raises as every forge does, and RemoteError `forge_unavailable` for a request that GitLab has and does not list.
        """
        try:
            return super().propose(source, target, title, body)
        except RemoteError as error:
            if error.status != _CONFLICT:
                raise
            raise RemoteError(Code.FORGE_UNAVAILABLE, "GitLab has this merge request and does not show it") from error

    def record_deployment(self, deployment: Deployment) -> None:
        """Record the state of a deployment of a commit to an environment, in one record that is updated.

        A deployment that has ended cannot change on GitLab: another one is created. GitLab requires a branch: it gets the
        default branch of the project.
        """
        wanted = DEPLOYMENTS[deployment.state]

        def newest() -> tuple[int, str] | None:
            answer = self._sender.send(self._api.deployments(deployment.environment))
            return newest_deployment(rows(answer.body, "deployments"), deployment.commit, self.me().id)

        def created() -> tuple[int, str] | None:
            found = newest()
            return found if found is not None and found[1] == wanted else None

        number, status = newest() or (0, "")
        if status == wanted:
            return
        if number and status not in _FINISHED:
            self._sender.send(self._api.update_deployment(number, deployment.state))
            return
        branch = self._settings().text("default_branch")
        request = self._api.add_deployment(deployment.environment, deployment.commit, branch, deployment.state)
        self._create(request, created, lambda _: (0, wanted))

    def _settings(self) -> JsonObject:
        """The project, asked for once."""
        if self._project is None:
            self._project = answer_object(self._sender.send(self._api.settings()).body, "the project")
        return self._project

    def _opinions(self, number: int) -> tuple[JsonObject | None, list[JsonObject]]:
        """Approvals, where the edition has them, and reviewers."""
        answer = self._sender.send(self._api.approvals(number))
        approvals = answer_object(answer.body, "the approvals") if answer.status == _OK else None
        return approvals, list(self._list(self._api.reviewers(number)))

    def _ref_of(self, commit: str) -> str | None:
        """A ref of this project that holds a commit which no branch of it does.

        For the head of a fork it is the ref of the merge request, for a commit of a merge train that of its pipeline.
        """
        numbers = [row.number("iid") for row in self._list(self._api.requests_of(commit))]
        if numbers:
            return f"refs/merge-requests/{max(numbers)}/head"
        answer = self._sender.send(self._api.pipelines_of(commit))
        return next((row.text("ref") for row in rows(answer.body, "pipelines")), None)


def rows(body: Any, what: str) -> tuple[JsonObject, ...]:
    """The objects of a list that comes on one page."""
    if not isinstance(body, list):
        raise RemoteError(Code.FORGE_UNAVAILABLE, f"GitLab answers for {what} with something that is not a list")
    return tuple(answer_object(item, f"{what}[{index}]") for index, item in enumerate(body))


def files_of(data: JsonObject) -> int | None:
    """How many files a merge request changes, None while GitLab does not say.

    Raises GitopsError `forge_limit` for `1000+`, where GitLab lists no more: https://docs.gitlab.com/administration/diff_limits/
    """
    count = data.text_or("changes_count")
    if not count:
        return None
    if count.endswith("+"):
        detail = f"GitLab lists only the first {count[:-1][:20]} files of this merge request"
        raise RemoteError(Code.FORGE_LIMIT, detail)
    return int(count) if count.isascii() and count.isdecimal() and len(count) < _DIGITS else None


def reviews(approvals: JsonObject | None, reviewers: Sequence[JsonObject]) -> tuple[Review, ...]:
    """Comments of reviewers, then the approvals by time, then the objections.

    GitLab does not say which commit was approved, so `commit` is empty and such a review never belongs to a given commit. Nor
    does it say when a reviewer objected, so `at` is empty there, and an objection comes after any approval of the same person.
    Sources: https://docs.gitlab.com/api/merge_request_approvals/ and https://docs.gitlab.com/api/merge_requests/.
    """
    approved: list[Review] = []
    for row in () if approvals is None else approvals.parts("approved_by"):
        who = GitLabDialect.read_account(row.part("user"))
        at = row.moment("approved_at") if row.has("approved_at") else ""
        approved.append(Review(f"approval-{who.id}", who, ReviewState.APPROVED, "", at))
    by_state: dict[ReviewState, list[Review]] = {ReviewState.COMMENTED: [], ReviewState.CHANGES_REQUESTED: []}
    for row in reviewers:
        state, who = _REVIEWS.get(row.text_or("state")), GitLabDialect.read_account(row.part("user"))
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


def branch_rules(branch: str, protections: Sequence[JsonObject], project: JsonObject) -> BranchRules:
    """What is enforced on a branch; of several rules that match, the most permissive is in force.

    `pushers` are `gitlab:<number>` for people, `group:<number>`, `deploy-key:<number>`, and roles by their names. Sources:
    https://docs.gitlab.com/user/project/repository/branches/protected/ and https://docs.gitlab.com/api/protected_branches/.
    """
    # In the name of a protection, `*` stands for anything.
    patterns = (".*".join(map(re.escape, row.text("name").split("*"))) for row in protections)
    matching = [
        row for row, pattern in zip(protections, patterns, strict=True) if re.fullmatch(pattern, branch, re.DOTALL)
    ]
    checks = (ANY_CHECK,) if project.flag("only_allow_merge_if_pipeline_succeeds") else ()
    queue = project.flag("merge_trains_enabled") if project.has("merge_trains_enabled") else None
    if not matching:
        return replace(UNPROTECTED, required_checks=checks, queue=queue)
    pushers = tuple(sorted({name for row in matching for name in _pushers(row)}))
    return BranchRules(
        protected=True,
        request_needed=not pushers,
        force_push=any(row.flag("allow_force_push") for row in matching),
        deletion=False,
        required_checks=checks,
        pushers=pushers,
        queue=queue,
        notes=("an account that may remove the protection can delete the branch on GitLab's pages",),
    )


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


def newest_deployment(deployments: Iterable[JsonObject], commit: str, account: str) -> tuple[int, str] | None:
    """The number and the status of the newest deployment of a commit by an account: https://docs.gitlab.com/api/deployments/."""
    own = [
        (row.number("id"), row.text("status"))
        for row in deployments
        if row.commit("sha") == commit
        and row.has("user")
        and GitLabDialect.read_account(row.part("user")).id == account
    ]
    return max(own, default=None)
