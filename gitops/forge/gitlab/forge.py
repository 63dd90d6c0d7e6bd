"""Merge requests on GitLab, gitlab.com or self-managed: what only GitLab has, over the common reader and writer.

The address of the API is `https://HOST/api/v4`.
No text of the bot can hold a quick action, which GitLab would carry out with the bot's rights: see `requests.inert`.
"""

from __future__ import annotations

from collections.abc import Sequence

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.gitlab import answers
from gitops.forge.gitlab.requests import DEPLOYMENTS, UNSEEN, GitLabDialect
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import Account, BranchRules, ChangeRequest, CheckStatus, Deployment, Review, ReviewDecision
from gitops.forge.reader import no_request
from gitops.forge.web import WebSender
from gitops.forge.writer import HostedForge

__all__ = ["GitLabForge"]

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
        expected = answers.files_of(self._get_request(number))
        found = list(self._list(self._api.list_files(number)))
        if expected is not None and len(found) < expected:
            detail = (
                f"GitLab lists {len(found)} of the {expected} files of merge request {number}: it still prepares them"
            )
            raise RemoteError(Code.FORGE_UNAVAILABLE, detail, retryable=True)
        return self._paths(iter(found))

    def reviews(self, number: int) -> tuple[Review, ...]:
        """The last comment of each reviewer and the approvals, objections at the end. GitLab keeps no commit with them."""
        return answers.reviews(*self._opinions(self.request(number).number))

    def review_decision(self, number: int) -> ReviewDecision:
        """What GitLab's approval rules decide; UNKNOWN for editions and projects without any."""
        request = self._get_request(number)
        return answers.review_decision(request, *self._opinions(number))

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
        rule = self._sender.send(self._api.push_rule())
        # null says that the edition has push rules and the project none.
        push_rule = answer_object(rule.body, "the push rule") if rule.status == _OK and rule.body is not None else None
        return answers.branch_rules(branch, protections, self._settings(), push_rule)

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
        status = DEPLOYMENTS[deployment.state]

        def newest() -> answers.DeploymentRow | None:
            answer = self._sender.send(self._api.deployments(deployment.environment))
            found = [answers.deployment(row) for row in answers.rows(answer.body, "deployments")]
            own = [row for row in found if (row.commit, row.account) == (deployment.commit, self.me().id)]
            return max(own, key=lambda row: row.number, default=None)

        def created() -> answers.DeploymentRow | None:
            found = newest()
            return found if found is not None and found.status == status else None

        known = newest()
        if known is not None and not known.finished and known.status != status:
            self._sender.send(self._api.update_deployment(known.number, deployment.state))
        elif known is None or known.status != status:
            branch = self._settings().text("default_branch")
            request = self._api.add_deployment(deployment.environment, deployment.commit, branch, deployment.state)
            self._create(request, created, lambda _: known)

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
        return next((row.text("ref") for row in answers.rows(answer.body, "pipelines")), None)
