"""How GitHub is asked, one method for each request, and how its answers are read. Pure.

https://docs.github.com/en/rest?apiVersion=2022-11-28
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import RemoteError
from gitops.forge.dialect import GONE
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import (
    Account,
    Annotation,
    CheckState,
    CommitCheck,
    Deployment,
    DeploymentState,
    Features,
    RequestState,
)
from gitops.forge.pulls_api import PullsDialect, repository_path, segment
from gitops.forge.text import cut, cut_markdown
from gitops.forge.web import WebAnswer, WebRequest

__all__ = ["MAX_FILES", "GitHubDialect", "graphql_data"]

MAX_FILES = 3000
"""Files of one request that GitHub lists at most: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests-files"""

# The task of the bot's deployments, which distinguishes them from others.
_TASK = "gitops"

_HEADERS = {
    # The second form is what GitHub's own description calls its answers; see the media types of the REST interface.
    "Accept": "application/vnd.github+json, application/json",
    "X-GitHub-Api-Version": "2022-11-28",
}
_NO_COMMIT = frozenset({404, 422})
_NOT_FOUND = 404
_HIDDEN = frozenset({403, 404})
_LIMITED = frozenset({"RATE_LIMIT", "RATE_LIMITED"})

# Limits: https://docs.github.com/en/rest/checks/runs#create-a-check-run and .../commits/statuses#create-a-commit-status
_MAX_DESCRIPTION = 140
_MAX_SUMMARY = 65_535
_ANNOTATIONS_A_REQUEST = 50
_MAX_ANNOTATIONS = 500
_MAX_MESSAGE = 16_000
_MAX_TITLE = 255

_LEVELS = {Severity.ERROR: "failure", Severity.WARNING: "warning"}
_CONCLUSIONS = {CheckState.SUCCESS: "success", CheckState.FAILURE: "failure", CheckState.ERROR: "failure"}
_DEPLOYMENT_STATES = {
    DeploymentState.RUNNING: "in_progress",
    DeploymentState.SUCCESS: "success",
    DeploymentState.FAILURE: "failure",
}


class GitHubDialect(PullsDialect):
    """One repository on GitHub."""

    forge = "github"
    features = Features(
        reviews=True,
        review_decisions=True,
        checks=True,
        deployments=True,
        labels=True,
        reactions=True,
        issues=True,
        permissions=True,
        branch_rules=True,
        queue=True,
        pushes=True,
    )
    longest_title = 256
    longest_description = _MAX_DESCRIPTION
    headers = _HEADERS
    page = (("per_page", "100"),)

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`, `base` the address of the service: `https://api.github.com`, or `https://HOST/api`.

        Below the latter, REST is at `v3/` and GraphQL at `graphql`. Raises UsageError `usage_error`.
        """
        super().__init__(project, "/v3" if base.endswith("/api") else "")

    # The account of the bot, and the decision about reviews

    def viewer(self) -> WebRequest:
        """Whose token it is. In GraphQL, since tokens of apps and jobs have no REST `user`.

        https://docs.github.com/en/graphql/reference/queries
        """
        return _graphql("query { viewer { login databaseId } }")

    def user(self) -> WebRequest:
        """The same in REST, for tokens of people where GraphQL is not offered.

        https://docs.github.com/en/rest/users/users#get-the-authenticated-user
        """
        return WebRequest("GET", f"{self._start}/user", headers=_HEADERS)

    def review_decision(self, number: int) -> WebRequest:
        """What the rules of the target branch, code owners included, say about the reviews of a request.

        https://docs.github.com/en/graphql/reference/enums#pullrequestreviewdecision
        """
        owner, _, name = self._project.partition("/")
        document = (
            "query($owner: String!, $name: String!, $number: Int!) "
            "{ repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewDecision } } }"
        )
        return _graphql(document, owner=owner, name=name, number=number)

    # Requests

    def list_requests(
        self, state: RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Change requests; GitHub looks for `source` among the branches of this repository only."""
        kind = {None: "all", RequestState.OPEN: "open"}.get(state, "closed")
        query = [("state", kind), ("sort", "created"), ("direction", "asc")]
        if target is not None:
            query.append(("base", target))
        if source is not None:
            query.append(("head", f"{self._project.partition('/')[0]}:{source}"))
        return self._list("/pulls", *query)

    def requests_of(self, commit: str) -> WebRequest:
        """Change requests that contain or merged a commit."""
        return self._list(f"/commits/{segment(commit)}/pulls", quiet=_NO_COMMIT)

    def list_ended(self) -> WebRequest:
        """Closed requests, those that changed last first."""
        return self._list("/pulls", ("state", "closed"), ("sort", "updated"), ("direction", "desc"))

    def activities(self, branch: str, project: str = "") -> WebRequest:
        """Moves of a branch (full ref name) of this repository or of a fork, newest first.

        https://docs.github.com/en/rest/repos/repos#list-repository-activities
        """
        path = f"{self._start}{repository_path(project or self._project)}/activity"
        return WebRequest("GET", path, (("ref", branch), *self.page), headers=_HEADERS, quiet=_NO_COMMIT)

    def newest_activities(self) -> WebRequest:
        """The newest moves of all branches, with the kind of each."""
        return self._list("/activity", quiet=_NO_COMMIT)

    # Checks, deployments, issues

    def check(self, check: CommitCheck) -> tuple[WebRequest, tuple[Mapping[str, Any], ...]]:
        """The request that writes a check, and the outputs that `add_to_check` adds to it.

        A newer check of the same name replaces the one before. The conclusion is in the first request, so that it counts even if
        the others fail.
        """
        found = [_annotation(annotation) for annotation in check.annotations[:_MAX_ANNOTATIONS]]
        summary, left_out = check.summary, len(check.annotations) - len(found)
        if left_out:
            summary = cut_markdown(summary, _MAX_SUMMARY - 100) + f"\n\n{left_out} more annotations are left out here."
        output = {"title": cut(check.title, _MAX_TITLE), "summary": cut_markdown(summary, _MAX_SUMMARY)}
        at_once = _ANNOTATIONS_A_REQUEST
        first, *others = (
            {**output, "annotations": found[start : start + at_once]} for start in range(0, len(found) or 1, at_once)
        )
        form: dict[str, Any] = {"name": check.name, "head_sha": check.commit, "output": first}
        if check.state is CheckState.PENDING:
            form |= {"status": "in_progress"}
        else:
            form |= {"status": "completed", "conclusion": _CONCLUSIONS[check.state]}
        return self._send("POST", "/check-runs", form, repeatable=True), tuple(others)

    def add_to_check(self, check: int, output: Mapping[str, Any]) -> WebRequest:
        """Add annotations to a check. GitHub appends them: sent twice, they would be there twice."""
        return self._send("PATCH", f"/check-runs/{check}", {"output": output}, repeatable=False)

    def deployments(self, deployment: Deployment) -> WebRequest:
        """The bot's deployments of a commit to an environment, newest first."""
        query = (("sha", deployment.commit), ("environment", deployment.environment), ("task", _TASK))
        return self._list("/deployments", *query)

    def open_deployment(self, deployment: Deployment) -> WebRequest:
        """A new deployment; GitHub does not merge branches or wait for checks."""
        form = {
            "ref": deployment.commit,
            "task": _TASK,
            "auto_merge": False,
            "required_contexts": [],
            "environment": deployment.environment,
            "description": cut(deployment.description, _MAX_DESCRIPTION),
        }
        return self._send("POST", "/deployments", form)

    def set_deployment(self, identifier: int, deployment: Deployment) -> WebRequest:
        """The state of a deployment; earlier ones in its environment become inactive when it succeeds."""
        form: dict[str, Any] = {
            "state": _DEPLOYMENT_STATES[deployment.state],
            "description": cut(deployment.description, _MAX_DESCRIPTION),
            "auto_inactive": True,
        }
        if deployment.url:
            form["log_url"] = deployment.url
        return self._send("POST", f"/deployments/{identifier}/statuses", form, repeatable=True)

    def list_issues(self, author: Account) -> WebRequest:
        """Open issues that an account wrote, oldest first."""
        return self._list("/issues", ("state", "open"), ("creator", author.login), ("direction", "asc"))

    def close_issue(self, number: int) -> WebRequest:
        """Close an issue as completed."""
        form = {"state": "closed", "state_reason": "completed"}
        return self._send("PATCH", f"/issues/{number}", form, quiet=GONE)

    # Permissions and rules

    def rules(self, branch: str) -> WebRequest:
        """Rules of all rulesets that are in force for a branch."""
        return self._list(f"/rules/branches/{segment(branch)}", quiet=_HIDDEN)

    def protection(self, branch: str) -> WebRequest:
        """The older branch protection, which only administrators may read."""
        return self._get(f"/branches/{segment(branch)}/protection", quiet=_HIDDEN)

    # Answers

    @staticmethod
    def read_account(data: JsonObject, /) -> Account:
        """An account."""
        return Account(str(data.number("id")), data.text("login", 100), data.text_or("type") == "Bot")

    def read_viewer(self, answer: WebAnswer, /) -> Account:
        """Whose token it is. Raises RemoteError `forge_refused` for what GraphQL refuses, and for a token without an account."""
        data = graphql_data(answer).part("viewer")
        login = data.text("login", 100)
        if not data.has("databaseId"):
            raise RemoteError(Code.FORGE_REFUSED, f"GitHub does not say which account {login} is")
        return Account(str(data.number("databaseId")), login, login.endswith("[bot]"))


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


def _graphql(document: str, **variables: Any) -> WebRequest:
    return WebRequest("POST", "/graphql", body={"query": document, "variables": variables}, headers=_HEADERS)


def _annotation(annotation: Annotation) -> dict[str, Any]:
    start = max(1, annotation.line)
    form: dict[str, Any] = {
        "path": annotation.path,
        "start_line": start,
        "end_line": max(start, annotation.end_line or start),
        "annotation_level": _LEVELS[annotation.severity],
        "message": cut(annotation.message, _MAX_MESSAGE) or "-",
    }
    if annotation.title:
        form["title"] = cut(annotation.title, _MAX_TITLE)
    return form
