"""What Gitea and Forgejo are asked: one function of this class for each request, pure.

https://docs.gitea.com/api/ and https://forgejo.org/docs/latest/user/api-usage/
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.forge.port import CheckStatus, Reaction, RequestState
from gitops.forge.text import cut
from gitops.forge.web import WebRequest

__all__ = ["PAGE", "GiteaApi"]

PAGE = 50
"""Entries of a page that are asked for; an instance may give fewer (`MAX_RESPONSE_ITEMS`)."""

_API = "/api/v1"
_PROJECT = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_GONE = frozenset({404})
_NO_COMMIT = frozenset({400, 404})
_UNTOLD = frozenset({403, 404})
_MAX_TITLE = 255
_MAX_DESCRIPTION = 255
_MAX_LABEL = 50
_GREY = "#6e7781"

# The default of the setting `REACTIONS`: https://docs.gitea.com/administration/config-cheat-sheet
_REACTIONS = {Reaction.SEEN: "eyes", Reaction.DONE: "+1", Reaction.REFUSED: "-1"}


class GiteaApi:
    """Builds the requests about one repository."""

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`; `base` is `https://HOST`, perhaps with a path, or that with `/api/v1`.

        Raises UsageError `usage_error`.
        """
        if not _PROJECT.fullmatch(project) or any(part.strip(".") == "" for part in project.split("/")):
            raise UsageError(Code.USAGE_ERROR, f"{project[:80]!r} is no repository on Gitea: use owner/name")
        self._top = "" if base.endswith(_API) else _API
        self._root = f"{self._top}/repos/{project}"

    def user(self) -> WebRequest:
        """Whose token this is."""
        return WebRequest("GET", f"{self._top}/user")

    # Requests

    def pulls(self, *, state: RequestState | None = None, target: str | None = None) -> WebRequest:
        """Change requests; `target` is the name of a branch, which older releases do not look at."""
        kind = {None: "all", RequestState.OPEN: "open"}.get(state, "closed")
        query = [("state", kind), ("sort", "oldest")]
        if target is not None:
            query.append(("base_branch", target))
        return self._get("/pulls", *query)

    def pull(self, number: int) -> WebRequest:
        """One change request."""
        return self._get(f"/pulls/{number}", quiet=_GONE)

    def pull_of(self, commit: str) -> WebRequest:
        """The request that a commit of the target branch brought in."""
        return self._get(f"/commits/{_name(commit)}/pull", quiet=_GONE)

    def pull_files(self, number: int) -> WebRequest:
        """What a request changes."""
        return self._get(f"/pulls/{number}/files", quiet=_GONE)

    def reviews(self, number: int) -> WebRequest:
        """Reviews of a request."""
        return self._get(f"/pulls/{number}/reviews", quiet=_GONE)

    def open_pull(self, source: str, target: str, title: str, body: str) -> WebRequest:
        """Open a request of one branch into another, both short names."""
        return self._post("/pulls", {"head": source, "base": target, "title": cut(title, _MAX_TITLE), "body": body})

    def change_pull(self, number: int, title: str, body: str) -> WebRequest:
        """Another title and text for a request."""
        return WebRequest("PATCH", f"{self._root}/pulls/{number}", body={"title": cut(title, _MAX_TITLE), "body": body})

    def close_pull(self, number: int) -> WebRequest:
        """Close a request."""
        return WebRequest("PATCH", f"{self._root}/pulls/{number}", body={"state": "closed"})

    # Comments and labels

    def comments(self, number: int) -> WebRequest:
        """All comments of a request or an issue, which come on one page."""
        return self._get(f"/issues/{number}/comments", quiet=_GONE)

    def add_comment(self, number: int, body: str) -> WebRequest:
        """A new comment."""
        return self._post(f"/issues/{number}/comments", {"body": body}, quiet=_GONE)

    def change_comment(self, comment: str, body: str) -> WebRequest:
        """Another text for a comment."""
        return WebRequest("PATCH", f"{self._root}/issues/comments/{comment}", body={"body": body}, quiet=_GONE)

    def remove_comment(self, comment: str) -> WebRequest:
        """Remove a comment."""
        return WebRequest("DELETE", f"{self._root}/issues/comments/{comment}", quiet=_GONE)

    def react(self, comment: str, reaction: Reaction) -> WebRequest:
        """A reaction; the same one a second time changes nothing."""
        body = {"content": _REACTIONS[reaction]}
        return WebRequest("POST", f"{self._root}/issues/comments/{comment}/reactions", body=body)

    def labels(self, number: int) -> WebRequest:
        """Labels of a request, which come on one page."""
        return self._get(f"/issues/{number}/labels", quiet=_GONE)

    def all_labels(self) -> WebRequest:
        """The labels that the repository has."""
        return self._get("/labels")

    def make_label(self, name: str) -> WebRequest:
        """A new label of the repository. Raises UsageError `usage_error` for a name that is longer than Gitea takes."""
        if not 0 < len(name) <= _MAX_LABEL:
            raise UsageError(Code.USAGE_ERROR, f"{name[:80]!r} is no label: Gitea takes 1 to {_MAX_LABEL} characters")
        return self._post("/labels", {"name": name, "color": _GREY})

    def add_labels(self, number: int, labels: list[int]) -> WebRequest:
        """Put labels on a request, by their numbers."""
        return WebRequest("POST", f"{self._root}/issues/{number}/labels", body={"labels": labels})

    def remove_label(self, number: int, label: int) -> WebRequest:
        """Take a label off a request."""
        return WebRequest("DELETE", f"{self._root}/issues/{number}/labels/{label}", quiet=_GONE)

    # Commits, people, branches

    def statuses(self, commit: str) -> WebRequest:
        """The newest status of a commit in each context."""
        return self._get(f"/commits/{_name(commit)}/status", quiet=_NO_COMMIT)

    def set_status(self, status: CheckStatus) -> WebRequest:
        """Set a status. The newest of a context counts, so setting it twice does no harm."""
        body = {
            "state": status.state.value,
            "context": status.context,
            "description": cut(status.description, _MAX_DESCRIPTION),
        }
        return WebRequest("POST", f"{self._root}/statuses/{_name(status.commit)}", body=body)

    def permission(self, login: str) -> WebRequest:
        """What somebody may do; only tokens of those who administer the repository may ask."""
        return self._get(f"/collaborators/{_name(login)}/permission", quiet=_GONE)

    def branch(self, name: str) -> WebRequest:
        """A branch with what everybody may know of its rules."""
        return self._get(f"/branches/{_name(name)}", quiet=_GONE)

    def protection(self, rule: str) -> WebRequest:
        """One rule of protection; only tokens of those who administer the repository may ask."""
        return self._get(f"/branch_protections/{_name(rule)}", quiet=_UNTOLD)

    # Issues

    def issues(self, author: str) -> WebRequest:
        """Open issues by an author."""
        return self._get("/issues", ("state", "open"), ("type", "issues"), ("created_by", author))

    def open_issue(self, title: str, body: str) -> WebRequest:
        """A new issue."""
        return self._post("/issues", {"title": cut(title, _MAX_TITLE), "body": body})

    def change_issue(self, number: int, change: dict[str, str]) -> WebRequest:
        """Another title, text or state for an issue."""
        if "title" in change:
            change = {**change, "title": cut(change["title"], _MAX_TITLE)}
        return WebRequest("PATCH", f"{self._root}/issues/{number}", body=change)

    def _get(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return WebRequest("GET", self._root + path, query=query, quiet=quiet)

    def _post(self, path: str, body: dict[str, Any], quiet: frozenset[int] = frozenset()) -> WebRequest:
        """A request that makes something, and is therefore sent once."""
        return WebRequest("POST", self._root + path, body=body, repeatable=False, quiet=quiet)


def _name(text: str) -> str:
    """A name as one part of a path. Raises UsageError `usage_error` for one that would lead elsewhere."""
    if text.strip(".") == "":
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is no name on Gitea")
    return quote(text, safe="")
