"""GitLab's REST API, the asking half: requests as values. Pure.

Reference: https://docs.gitlab.com/api/rest/ (paths with an encoded project, paging) and the page that each method names. What
comes back is read in `gitlab_answers`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.forge.port import CheckState, CheckStatus, DeploymentState, Reaction, RequestState
from gitops.forge.web import WebAnswer, WebRequest

PER_PAGE = 100
"""Rows of a page, the most that GitLab gives: https://docs.gitlab.com/api/rest/#pagination."""

LONGEST_STATUS = 255
"""Characters of a status's name and of its description."""

_STATES = {RequestState.OPEN: "opened", RequestState.MERGED: "merged", RequestState.CLOSED: "closed"}
_CHECKS = {
    CheckState.PENDING: "pending",
    CheckState.SUCCESS: "success",
    CheckState.FAILURE: "failed",
    # GitLab has no "error". A canceled status stops a merge as a failed one does, and says that there is no verdict.
    CheckState.ERROR: "canceled",
}
_DEPLOYMENTS = {
    DeploymentState.RUNNING: "running",
    DeploymentState.SUCCESS: "success",
    DeploymentState.FAILURE: "failed",
}
_EMOJI = {Reaction.SEEN: "eyes", Reaction.DONE: "thumbsup", Reaction.REFUSED: "thumbsdown"}
_MISSING = frozenset({404})
# https://docs.gitlab.com/user/reserved_names/
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_QUICK_ACTION = re.compile(r"^([ \t]*)/(?!gitops\b)(?=\w+(?:\s|$))", re.MULTILINE)


def inert(text: str) -> str:
    """A text of the bot in which GitLab finds no quick action: a line such as `/merge` would be done in the bot's name.

    A backslash before the slash is not shown outside of code. Our own commands stay as they are, to be copied. Source:
    https://docs.gitlab.com/user/project/quick_actions/
    """
    return _QUICK_ACTION.sub(r"\1\\/", text)


def next_page(request: WebRequest, answer: WebAnswer) -> WebRequest | None:
    """The request for the page that an answer counts as its next (`x-next-page`), or None if it counts none.

    Raises RemoteError `forge_unavailable` for a number that is none. Source: https://docs.gitlab.com/api/rest/#pagination
    """
    counted = answer.headers.get("x-next-page", "").strip()
    if not counted:
        return None
    if not (counted.isascii() and counted.isdecimal()):
        raise RemoteError(Code.FORGE_UNAVAILABLE, "GitLab's answer has an x-next-page that is not a number")
    return replace(request, query=(*((n, v) for n, v in request.query if n != "page"), ("page", counted)))


def emoji(reaction: Reaction) -> str:
    """The name of the emoji for a reaction."""
    return _EMOJI[reaction]


def deployment_status(state: DeploymentState) -> str:
    """The name of the status of a deployment."""
    return _DEPLOYMENTS[state]


@dataclass(frozen=True, slots=True)
class GitLabCalls:
    """The requests about one project, named by its path (`group/sub/name`) or its number.

    Raises UsageError `usage_error` for anything else: without a name, the paths here would be those of all projects. What is
    asked for by a number of the caller may be missing: status 404 is an answer then, as far as the methods say.
    """

    project: str

    def __post_init__(self) -> None:
        parts = self.project.split("/")
        named = len(parts) > 1 and all(_SEGMENT.fullmatch(part) and part.strip(".") for part in parts)
        if not (named or _NUMBER.fullmatch(self.project)):
            raise UsageError(Code.USAGE_ERROR, f"{self.project[:80]!r} is no project on GitLab: use group/name")

    @property
    def root(self) -> str:
        """The project's path in the API: https://docs.gitlab.com/api/rest/#namespaced-paths."""
        return f"/projects/{quote(self.project, safe='')}"

    def user(self) -> WebRequest:
        """Who the token is: https://docs.gitlab.com/api/users/."""
        return WebRequest("GET", "/user")

    def settings(self) -> WebRequest:
        """The project: https://docs.gitlab.com/api/projects/."""
        return WebRequest("GET", self.root)

    def merge_requests(self, state: RequestState | None, target: str | None) -> WebRequest:
        """Those of a state into a branch (short name): https://docs.gitlab.com/api/merge_requests/.

        Oldest first, so that what is opened meanwhile moves no page.
        """
        query = [("scope", "all"), ("state", "all" if state is None else _STATES[state])]
        if target is not None:
            query.append(("target_branch", target))
        return self._list("/merge_requests", *query, ("order_by", "created_at"), ("sort", "asc"))

    def merge_requests_between(self, source: str, target: str) -> WebRequest:
        """Open ones from one branch into another (short names), of forks, too."""
        query = (("scope", "all"), ("state", "opened"), ("source_branch", source), ("target_branch", target))
        return self._list("/merge_requests", *query)

    def merge_requests_of(self, commit: str) -> WebRequest:
        """Those that a commit belongs to; 404 if GitLab does not know it.

        https://docs.gitlab.com/api/commits/
        """
        return replace(self._list(f"/repository/commits/{commit}/merge_requests"), quiet=_MISSING)

    def merge_request(self, number: int) -> WebRequest:
        """One, or 404: https://docs.gitlab.com/api/merge_requests/."""
        return WebRequest("GET", self._request(number), quiet=_MISSING)

    def open_merge_request(self, source: str, target: str, title: str, body: str) -> WebRequest:
        """Open one: https://docs.gitlab.com/api/merge_requests/.

        409 if there is one already.
        """
        form = {"source_branch": source, "target_branch": target, "title": title, "description": inert(body)}
        return _write("POST", f"{self.root}/merge_requests", form, quiet=frozenset({409}))

    def update_merge_request(self, number: int, form: dict[str, Any]) -> WebRequest:
        """Change fields of one: https://docs.gitlab.com/api/merge_requests/."""
        return _write("PUT", self._request(number), form, quiet=_MISSING)

    def diffs(self, number: int) -> WebRequest:
        """What one changes: https://docs.gitlab.com/api/merge_requests/."""
        return self._list(f"/merge_requests/{number}/diffs")

    def approvals(self, number: int) -> WebRequest:
        """Who approved: https://docs.gitlab.com/api/merge_request_approvals/.

        404 where an edition has none.
        """
        return WebRequest("GET", f"{self._request(number)}/approvals", quiet=_MISSING)

    def reviewers(self, number: int) -> WebRequest:
        """What the reviewers said: https://docs.gitlab.com/api/merge_requests/."""
        return WebRequest("GET", f"{self._request(number)}/reviewers", quiet=_MISSING)

    def notes(self, number: int) -> WebRequest:
        """Comments, oldest first, or 404: https://docs.gitlab.com/api/notes/."""
        listed = self._list(f"/merge_requests/{number}/notes", ("order_by", "created_at"), ("sort", "asc"))
        return replace(listed, quiet=_MISSING)

    def add_note(self, number: int, body: str) -> WebRequest:
        """Write a comment."""
        return _write("POST", f"{self._request(number)}/notes", {"body": inert(body)})

    def update_note(self, number: int, note: str, body: str) -> WebRequest:
        """Write a comment anew, or 404."""
        return _write("PUT", f"{self._request(number)}/notes/{_id(note)}", {"body": inert(body)}, quiet=_MISSING)

    def delete_note(self, number: int, note: str) -> WebRequest:
        """Remove a comment, or 404."""
        return WebRequest("DELETE", f"{self._request(number)}/notes/{_id(note)}", quiet=_MISSING)

    def add_award(self, number: int, note: str, name: str) -> WebRequest:
        """React to a comment; 404 if the same reaction is there already, so that asking twice does no harm.

        https://docs.gitlab.com/api/emoji_reactions/#add-reactions-to-comments
        """
        path = f"{self._request(number)}/notes/{_id(note)}/award_emoji"
        return replace(_write("POST", path, {"name": name}, quiet=_MISSING), repeatable=True)

    def statuses(self, commit: str) -> WebRequest:
        """The newest statuses of a commit, or 404: https://docs.gitlab.com/api/commits/."""
        return replace(self._list(f"/repository/commits/{commit}/statuses"), quiet=_MISSING)

    def set_status(self, status: CheckStatus, ref: str | None = None) -> WebRequest:
        """Set one: https://docs.gitlab.com/api/commits/.

        The newest of a name counts, so that asking twice does no harm. 400 if the state cannot follow the one before, as
        pending cannot follow pending; 404 if no branch holds the commit and no `ref` is given.
        """
        form = {
            "state": _CHECKS[status.state],
            "name": status.context[:LONGEST_STATUS],
            "description": status.description[:LONGEST_STATUS],
        }
        if ref is not None:
            form["ref"] = ref
        sent = _write("POST", f"{self.root}/statuses/{status.commit}", form, quiet=frozenset({400, 404}))
        return replace(sent, repeatable=True)

    def pipelines_of(self, commit: str) -> WebRequest:
        """The newest pipelines of a commit: https://docs.gitlab.com/api/pipelines/."""
        return self._list("/pipelines", ("sha", commit), ("order_by", "id"), ("sort", "desc"))

    def member(self, account: str) -> WebRequest:
        """A member, also of the groups above, or 404.

        https://docs.gitlab.com/api/project_members/
        """
        return WebRequest("GET", f"{self.root}/members/all/{_id(account)}", quiet=_MISSING)

    def protected_branches(self) -> WebRequest:
        """All, with their patterns: https://docs.gitlab.com/api/protected_branches/.

        401, 403 and 404 say that the token may not see them.
        """
        return replace(self._list("/protected_branches"), quiet=frozenset({401, 403, 404}))

    def push_rule(self) -> WebRequest:
        """Rules for pushes, where the edition has them: https://docs.gitlab.com/api/project_push_rules/."""
        return WebRequest("GET", f"{self.root}/push_rule", quiet=frozenset({401, 403, 404}))

    def deployments(self, environment: str) -> WebRequest:
        """The newest of an environment: https://docs.gitlab.com/api/deployments/."""
        return self._list("/deployments", ("environment", environment), ("order_by", "id"), ("sort", "desc"))

    def add_deployment(self, environment: str, commit: str, branch: str, state: DeploymentState) -> WebRequest:
        """Record one: https://docs.gitlab.com/api/deployments/#create-a-deployment."""
        form = {"environment": environment, "sha": commit, "ref": branch, "tag": False, "status": _DEPLOYMENTS[state]}
        return _write("POST", f"{self.root}/deployments", form)

    def update_deployment(self, number: int, state: DeploymentState) -> WebRequest:
        """Bring one forward: https://docs.gitlab.com/api/deployments/#update-a-deployment."""
        return _write("PUT", f"{self.root}/deployments/{number}", {"status": _DEPLOYMENTS[state]})

    def issues(self, author: str) -> WebRequest:
        """Open ones by an account, oldest first: https://docs.gitlab.com/api/issues/."""
        query = (("scope", "all"), ("state", "opened"), ("author_id", _id(author)))
        return self._list("/issues", *query, ("order_by", "created_at"), ("sort", "asc"))

    def add_issue(self, title: str, body: str) -> WebRequest:
        """Open one: https://docs.gitlab.com/api/issues/."""
        return _write("POST", f"{self.root}/issues", {"title": title, "description": inert(body)})

    def update_issue(self, number: int, form: dict[str, Any]) -> WebRequest:
        """Change one: https://docs.gitlab.com/api/issues/."""
        return _write("PUT", f"{self.root}/issues/{number}", form, quiet=_MISSING)

    def add_issue_note(self, number: int, body: str) -> WebRequest:
        """Comment on one: https://docs.gitlab.com/api/notes/."""
        return _write("POST", f"{self.root}/issues/{number}/notes", {"body": inert(body)})

    def _request(self, number: int) -> str:
        return f"{self.root}/merge_requests/{number}"

    def _list(self, path: str, *query: tuple[str, str]) -> WebRequest:
        return WebRequest("GET", f"{self.root}{path}", query=(*query, ("per_page", str(PER_PAGE))))


def _write(method: str, path: str, form: dict[str, Any], *, quiet: frozenset[int] = frozenset()) -> WebRequest:
    """A request with a body. Only what replaces may be sent twice; a POST whose answer was lost is for its sender to settle."""
    return WebRequest(method, path, body=form, repeatable=method != "POST", quiet=quiet)


def _id(text: str) -> str:
    """A number of GitLab that came as text, for a path. Anything else is quoted, so that it stays one segment."""
    return quote(text, safe="")
