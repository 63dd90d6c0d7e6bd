"""How GitHub is asked: one method of this class for each request, pure.

https://docs.github.com/en/rest?apiVersion=2022-11-28
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import UsageError
from gitops.forge.dialect import Dialect
from gitops.forge.github import answers
from gitops.forge.port import (
    Account,
    Annotation,
    CheckState,
    CheckStatus,
    CommitCheck,
    Deployment,
    DeploymentState,
    Features,
    Reaction,
    RequestState,
)
from gitops.forge.text import cut, cut_markdown
from gitops.forge.web import WebRequest

__all__ = ["MAX_FILES", "TASK", "GitHubDialect"]

MAX_FILES = 3000
"""Files of one request that GitHub lists at most: https://docs.github.com/en/rest/pulls/pulls#list-pull-requests-files"""

TASK = "gitops"
"""What the bot's deployments are called, so that they are told from those of others."""

_HEADERS = {
    # The second form is what GitHub's own description calls its answers; see the media types of the REST interface.
    "Accept": "application/vnd.github+json, application/json",
    "X-GitHub-Api-Version": "2022-11-28",
}
_PROJECT = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_PAGE = ("per_page", "100")
_GONE = frozenset({404})
_NO_COMMIT = frozenset({404, 422})

# Limits: https://docs.github.com/en/rest/checks/runs#create-a-check-run and .../commits/statuses#create-a-commit-status
_MAX_DESCRIPTION = 140
_MAX_SUMMARY = 65_535
_MAX_NOTES_A_CALL = 50
_MAX_NOTES = 500
_MAX_NOTE = 16_000
_MAX_TITLE = 255

_LEVELS = {Severity.ERROR: "failure", Severity.WARNING: "warning"}
_CONCLUSIONS = {CheckState.SUCCESS: "success", CheckState.FAILURE: "failure", CheckState.ERROR: "failure"}
_REACTIONS = {Reaction.SEEN: "eyes", Reaction.DONE: "+1", Reaction.REFUSED: "-1"}
_DEPLOYMENT_STATES = {
    DeploymentState.RUNNING: "in_progress",
    DeploymentState.SUCCESS: "success",
    DeploymentState.FAILURE: "failure",
}


class GitHubDialect(Dialect):
    """One repository on GitHub."""

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
    statuses_within = "statuses"

    # Answers

    read_account = staticmethod(answers.account)
    read_viewer = staticmethod(answers.viewer)
    read_request = staticmethod(answers.change_request)
    read_files = staticmethod(answers.file_names)
    read_review = staticmethod(answers.review)
    read_comment = staticmethod(answers.comment)
    read_status = staticmethod(answers.status)
    read_permission = staticmethod(answers.permission)
    read_issue = staticmethod(answers.issue)

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`, `base` the address of the service: `https://api.github.com`, or `https://HOST/api`.

        Below the latter, REST is at `v3/` and GraphQL at `graphql`. Raises UsageError `usage_error`.
        """
        self._start = "/v3" if base.endswith("/api") else ""
        self._root = self._start + _path_of(project)
        self._project = project

    # Who we are, and what GitHub itself thinks

    def viewer(self) -> WebRequest:
        """Whose token this is. In GraphQL, since tokens of apps and jobs have no REST `user`.

        https://docs.github.com/en/graphql/reference/queries
        """
        return _graphql("query { viewer { login databaseId } }")

    def review_decision(self, number: int) -> WebRequest:
        """What the rules of the target branch, code owners included, say of a request's reviews.

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

    def get_request(self, number: int) -> WebRequest:
        """One change request."""
        return self._get(f"/pulls/{number}", quiet=_GONE)

    def list_files(self, number: int) -> WebRequest:
        """Files that it changes."""
        return self._list(f"/pulls/{number}/files", quiet=_GONE)

    def list_reviews(self, number: int) -> WebRequest:
        """Its reviews, oldest first."""
        return self._list(f"/pulls/{number}/reviews", quiet=_GONE)

    def requests_of(self, commit: str) -> WebRequest:
        """Change requests that have a commit, or brought it in."""
        return self._list(f"/commits/{quote(commit, safe='')}/pulls", quiet=_NO_COMMIT)

    def activities(self, branch: str, project: str = "") -> WebRequest:
        """Moves of a branch (full ref name) of this repository or of a fork, newest first.

        https://docs.github.com/en/rest/repos/repos#list-repository-activities
        """
        root = self._start + _path_of(project or self._project)
        query = (("ref", branch), _PAGE)
        return WebRequest("GET", root + "/activity", query, headers=_HEADERS, quiet=_NO_COMMIT)

    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """A new change request; 422 says that there is one, or nothing to merge."""
        form = {"head": source, "base": target, "title": title, "body": text}
        return self._send("POST", "/pulls", form, repeatable=False)

    def change_request(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for a change request."""
        return self._send("PATCH", f"/pulls/{number}", {"title": title, "body": text})

    def close_request(self, number: int) -> WebRequest:
        """Close a change request."""
        return self._send("PATCH", f"/pulls/{number}", {"state": "closed"})

    # Comments

    def list_comments(self, number: int) -> WebRequest:
        """Comments of a request, oldest first."""
        return self._list(f"/issues/{number}/comments", quiet=_GONE)

    def add_comment(self, number: int, text: str) -> WebRequest:
        """A new comment. Sent twice, there would be two."""
        return self._send("POST", f"/issues/{number}/comments", {"body": text}, repeatable=False)

    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Another text for a comment, which may be gone."""
        return self._send("PATCH", f"/issues/comments/{comment}", {"body": text}, quiet=_GONE)

    def remove_comment(self, number: int, comment: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Remove a comment, which may be gone."""
        return self._send("DELETE", f"/issues/comments/{comment}", None, quiet=_GONE)

    def react(self, number: int, comment: str, reaction: Reaction) -> WebRequest:  # noqa: ARG002 - its id is enough
        """A reaction to a comment; the same one again changes nothing."""
        form = {"content": _REACTIONS[reaction]}
        return self._send("POST", f"/issues/comments/{comment}/reactions", form)

    # Statuses and checks

    def list_statuses(self, commit: str) -> WebRequest:
        """The newest status of each context of a commit."""
        return self._list(f"/commits/{quote(commit, safe='')}/status", quiet=_NO_COMMIT)

    def set_status(self, status: CheckStatus) -> WebRequest:
        """Set a status. The newest one of a context counts, so that sending it twice does no harm."""
        form = {
            "state": status.state.value,
            "context": status.context,
            "description": cut(status.description, _MAX_DESCRIPTION),
        }
        return self._send("POST", f"/statuses/{quote(status.commit, safe='')}", form)

    def check(self, report: CommitCheck) -> tuple[WebRequest, tuple[Mapping[str, Any], ...]]:
        """The request that writes a check, and the outputs that are to be added to it, see `add_to_check`.

        A newer check of the same name takes the place of the one before. The verdict is in the first request, so that it
        stands whatever becomes of the others.
        """
        notes = [_note(annotation) for annotation in report.annotations[:_MAX_NOTES]]
        summary, left_out = report.summary, len(report.annotations) - len(notes)
        if left_out:
            summary = cut_markdown(summary, _MAX_SUMMARY - 100) + f"\n\n{left_out} more notes are left out here."
        output = {"title": cut(report.title, _MAX_TITLE), "summary": cut_markdown(summary, _MAX_SUMMARY)}
        first, *others = [notes[i : i + _MAX_NOTES_A_CALL] for i in range(0, len(notes), _MAX_NOTES_A_CALL)] or [[]]
        form: dict[str, Any] = {"name": report.name, "head_sha": report.commit}
        if report.state is CheckState.PENDING:
            form["status"] = "in_progress"
        else:
            form |= {"status": "completed", "conclusion": _CONCLUSIONS[report.state]}
        form["output"] = {**output, "annotations": first}
        return self._send("POST", "/check-runs", form), tuple({**output, "annotations": more} for more in others)

    def add_to_check(self, check: int, output: Mapping[str, Any]) -> WebRequest:
        """Add notes to a check. GitHub adds them to those that it has: sent twice they would be there twice."""
        return self._send("PATCH", f"/check-runs/{check}", {"output": output}, repeatable=False)

    # Labels, deployments, issues

    def labels(self, number: int) -> WebRequest:
        """Labels of a request."""
        return self._list(f"/issues/{number}/labels", quiet=_GONE)

    def add_labels(self, number: int, labels: Sequence[str]) -> WebRequest:
        """Put labels on a request; those that it has stay."""
        return self._send("POST", f"/issues/{number}/labels", {"labels": list(labels)})

    def remove_label(self, number: int, label: str) -> WebRequest:
        """Take a label off, which may not be there."""
        return self._send("DELETE", f"/issues/{number}/labels/{quote(label, safe='')}", None, quiet=_GONE)

    def deployments(self, deployment: Deployment) -> WebRequest:
        """The bot's deployments of a commit to an environment, newest first."""
        query = (("sha", deployment.commit), ("environment", deployment.environment), ("task", TASK))
        return self._list("/deployments", *query)

    def open_deployment(self, deployment: Deployment) -> WebRequest:
        """A new deployment, without GitHub's merging of branches and waiting for checks."""
        form = {
            "ref": deployment.commit,
            "task": TASK,
            "auto_merge": False,
            "required_contexts": [],
            "environment": deployment.environment,
            "description": cut(deployment.description, _MAX_DESCRIPTION),
        }
        return self._send("POST", "/deployments", form, repeatable=False)

    def set_deployment(self, identifier: int, deployment: Deployment) -> WebRequest:
        """Where a deployment stands now; those before it in its environment become inactive when it succeeds."""
        form: dict[str, Any] = {
            "state": _DEPLOYMENT_STATES[deployment.state],
            "description": cut(deployment.description, _MAX_DESCRIPTION),
            "auto_inactive": True,
        }
        if deployment.url:
            form["log_url"] = deployment.url
        return self._send("POST", f"/deployments/{identifier}/statuses", form)

    def list_issues(self, author: Account) -> WebRequest:
        """Open issues that an account wrote, oldest first."""
        return self._list("/issues", ("state", "open"), ("creator", author.login), ("direction", "asc"))

    def open_issue(self, title: str, text: str) -> WebRequest:
        """A new issue."""
        return self._send("POST", "/issues", {"title": title, "body": text}, repeatable=False)

    def change_issue(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for an issue, which may be gone."""
        return self._send("PATCH", f"/issues/{number}", {"title": title, "body": text}, quiet=_GONE)

    def close_issue(self, number: int) -> WebRequest:
        """Close an issue as completed."""
        form = {"state": "closed", "state_reason": "completed"}
        return self._send("PATCH", f"/issues/{number}", form, quiet=_GONE)

    # Permissions and rules

    def get_permission(self, account: Account) -> WebRequest:
        """What an account may do; 404 for one that does not exist."""
        return self._get(f"/collaborators/{quote(account.login, safe='')}/permission", quiet=_GONE)

    def rules(self, branch: str) -> WebRequest:
        """Rules of rulesets that are in force for a branch, whoever set them."""
        return self._list(f"/rules/branches/{quote(branch, safe='')}")

    def protection(self, branch: str) -> WebRequest:
        """The branch protection of the older kind, which only administrators may read."""
        return self._get(f"/branches/{quote(branch, safe='')}/protection", quiet=frozenset({403, 404}))

    def _get(self, path: str, *, quiet: frozenset[int] = frozenset()) -> WebRequest:
        return WebRequest("GET", self._root + path, headers=_HEADERS, quiet=quiet)

    def _list(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return WebRequest("GET", self._root + path, (*query, _PAGE), headers=_HEADERS, quiet=quiet)

    def _send(
        self, method: str, path: str, body: Any, *, repeatable: bool = True, quiet: frozenset[int] = frozenset()
    ) -> WebRequest:
        return WebRequest(method, self._root + path, body=body, headers=_HEADERS, repeatable=repeatable, quiet=quiet)


def _path_of(project: str) -> str:
    if not _PROJECT.fullmatch(project) or any(part.strip(".") == "" for part in project.split("/")):
        raise UsageError(Code.USAGE_ERROR, f"{project[:80]!r} is no repository on GitHub: use owner/name")
    return f"/repos/{project}"


def _graphql(document: str, **variables: Any) -> WebRequest:
    return WebRequest("POST", "/graphql", body={"query": document, "variables": variables}, headers=_HEADERS)


def _note(annotation: Annotation) -> dict[str, Any]:
    start = max(1, annotation.line)
    note: dict[str, Any] = {
        "path": annotation.path,
        "start_line": start,
        "end_line": max(start, annotation.end_line or start),
        "annotation_level": _LEVELS[annotation.severity],
        "message": cut(annotation.message, _MAX_NOTE) or "-",
    }
    if annotation.title:
        note["title"] = cut(annotation.title, _MAX_TITLE)
    return note
