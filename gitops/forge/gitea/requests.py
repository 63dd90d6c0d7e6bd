"""How Gitea and Forgejo are asked: one method of this class for each request, pure.

https://docs.gitea.com/api/ and https://forgejo.org/docs/latest/user/api-usage/
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.forge.dialect import Dialect
from gitops.forge.gitea import answers
from gitops.forge.port import Account, CheckStatus, Features, Reaction, RequestState
from gitops.forge.text import cut
from gitops.forge.web import WebAnswer, WebRequest

__all__ = ["PAGE", "GiteaDialect"]

PAGE = 50
"""Entries of a page that are asked for; an instance may give fewer (`MAX_RESPONSE_ITEMS`)."""

_API = "/api/v1"
_PROJECT = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_GONE = frozenset({404})
_NO_COMMIT = frozenset({400, 404})
_UNTOLD = frozenset({403, 404})
_MAX_DESCRIPTION = 255
_MAX_LABEL = 50
_GREY = "#6e7781"

# The default of the setting `REACTIONS`: https://docs.gitea.com/administration/config-cheat-sheet
_REACTIONS = {Reaction.SEEN: "eyes", Reaction.DONE: "+1", Reaction.REFUSED: "-1"}


class GiteaDialect(Dialect):
    """One repository on Gitea or Forgejo. There are no checks, deployments, review decisions and merge queues."""

    features = Features(reviews=True, labels=True, reactions=True, issues=True, permissions=True, branch_rules=True)
    statuses_within = "statuses"
    null_is_empty = True

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
        """`project` is `owner/name`; `base` is `https://HOST`, perhaps with a path, or that with `/api/v1`.

        Raises UsageError `usage_error`.
        """
        if not _PROJECT.fullmatch(project) or any(part.strip(".") == "" for part in project.split("/")):
            raise UsageError(Code.USAGE_ERROR, f"{project[:80]!r} is no repository on Gitea: use owner/name")
        self._top = "" if base.endswith(_API) else _API
        self._root = f"{self._top}/repos/{project}"

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:  # noqa: ARG002
        """The page after an answer, by its number, until one is empty or all are read that the forge counts.

        An instance may give shorter pages than are asked for, so a short page is not the last one.
        """
        query = dict(request.query)
        rows = answer.body[self.statuses_within] if isinstance(answer.body, dict) else answer.body
        total = answer.headers.get("x-total-count", "")
        if "page" not in query or not rows or (total.isdecimal() and read >= int(total)):
            return None
        return replace(request, query=tuple({**query, "page": str(int(query["page"]) + 1)}.items()))

    def viewer(self) -> WebRequest:
        """Whose token it is."""
        return WebRequest("GET", f"{self._top}/user")

    # Requests

    def list_requests(
        self, state: RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Change requests. Gitea does not look at `source`, older releases not at `target` either."""
        del source
        kind = {None: "all", RequestState.OPEN: "open"}.get(state, "closed")
        query = [("state", kind), ("sort", "oldest")]
        if target is not None:
            query.append(("base_branch", target))
        return self._list("/pulls", *query)

    def get_request(self, number: int) -> WebRequest:
        """One change request."""
        return self._get(f"/pulls/{number}", quiet=_GONE)

    def requests_of(self, commit: str) -> WebRequest:
        """The request that a commit of the target branch brought in."""
        return self._get(f"/commits/{_name(commit)}/pull", quiet=_GONE)

    def list_files(self, number: int) -> WebRequest:
        """What a request changes."""
        return self._list(f"/pulls/{number}/files", quiet=_GONE)

    def list_reviews(self, number: int) -> WebRequest:
        """Reviews of a request."""
        return self._list(f"/pulls/{number}/reviews", quiet=_GONE)

    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """A new request."""
        return self._post("/pulls", {"head": source, "base": target, "title": title, "body": text})

    def change_request(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for a request."""
        return WebRequest("PATCH", f"{self._root}/pulls/{number}", body={"title": title, "body": text})

    def close_request(self, number: int) -> WebRequest:
        """Close a request."""
        return WebRequest("PATCH", f"{self._root}/pulls/{number}", body={"state": "closed"})

    # Comments and labels

    def list_comments(self, number: int) -> WebRequest:
        """All comments of a request or an issue, which come on one page."""
        return self._get(f"/issues/{number}/comments", quiet=_GONE)

    def add_comment(self, number: int, text: str) -> WebRequest:
        """A new comment on a request or an issue."""
        return self._post(f"/issues/{number}/comments", {"body": text})

    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Another text for a comment."""
        return WebRequest("PATCH", f"{self._root}/issues/comments/{comment}", body={"body": text}, quiet=_GONE)

    def remove_comment(self, number: int, comment: str) -> WebRequest:  # noqa: ARG002 - its id is enough
        """Remove a comment."""
        return WebRequest("DELETE", f"{self._root}/issues/comments/{comment}", quiet=_GONE)

    def react(self, number: int, comment: str, reaction: Reaction) -> WebRequest:  # noqa: ARG002 - its id is enough
        """A reaction; the same one a second time changes nothing."""
        body = {"content": _REACTIONS[reaction]}
        return WebRequest("POST", f"{self._root}/issues/comments/{comment}/reactions", body=body)

    def labels(self, number: int) -> WebRequest:
        """Labels of a request, which come on one page."""
        return self._get(f"/issues/{number}/labels", quiet=_GONE)

    def all_labels(self) -> WebRequest:
        """The labels that the repository has."""
        return self._list("/labels")

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

    def list_statuses(self, commit: str) -> WebRequest:
        """The newest status of a commit in each context."""
        return self._list(f"/commits/{_name(commit)}/status", quiet=_NO_COMMIT)

    def set_status(self, status: CheckStatus) -> WebRequest:
        """Set a status. The newest of a context counts, so setting it twice does no harm."""
        body = {
            "state": status.state.value,
            "context": status.context,
            "description": cut(status.description, _MAX_DESCRIPTION),
        }
        return WebRequest("POST", f"{self._root}/statuses/{_name(status.commit)}", body=body)

    def get_permission(self, account: Account) -> WebRequest:
        """What somebody may do; only tokens of those who administer the repository may ask."""
        return self._get(f"/collaborators/{_name(account.login)}/permission", quiet=_GONE)

    def branch(self, name: str) -> WebRequest:
        """A branch with what everybody may know of its rules."""
        return self._get(f"/branches/{_name(name)}", quiet=_GONE)

    def protection(self, rule: str) -> WebRequest:
        """One rule of protection; only tokens of those who administer the repository may ask."""
        return self._get(f"/branch_protections/{_name(rule)}", quiet=_UNTOLD)

    # Issues

    def list_issues(self, author: Account) -> WebRequest:
        """Open issues by an author."""
        return self._list("/issues", ("state", "open"), ("type", "issues"), ("created_by", author.login))

    def open_issue(self, title: str, text: str) -> WebRequest:
        """A new issue."""
        return self._post("/issues", {"title": title, "body": text})

    def change_issue(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for an issue."""
        return WebRequest("PATCH", f"{self._root}/issues/{number}", body={"title": title, "body": text}, quiet=_GONE)

    def close_issue(self, number: int) -> WebRequest:
        """Close an issue."""
        return WebRequest("PATCH", f"{self._root}/issues/{number}", body={"state": "closed"}, quiet=_GONE)

    def _get(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return WebRequest("GET", self._root + path, query=query, quiet=quiet)

    def _list(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return self._get(path, *query, ("page", "1"), ("limit", str(PAGE)), quiet=quiet)

    def _post(self, path: str, body: dict[str, Any]) -> WebRequest:
        """A request that creates something, and is therefore sent once."""
        return WebRequest("POST", self._root + path, body=body, repeatable=False)


def _name(text: str) -> str:
    """A name as one part of a path. Raises UsageError `usage_error` for one that would lead elsewhere."""
    if text.strip(".") == "":
        raise UsageError(Code.USAGE_ERROR, f"{text[:80]!r} is no name on Gitea")
    return quote(text, safe="")
