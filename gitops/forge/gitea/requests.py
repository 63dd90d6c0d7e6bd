"""How Gitea and Forgejo are asked: one method of this class for each request, pure.

https://docs.gitea.com/api/ and https://forgejo.org/docs/latest/user/api-usage/
"""

from __future__ import annotations

from dataclasses import replace

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.forge.gitea import answers
from gitops.forge.port import Account, Features, RequestState
from gitops.forge.pulls_api import GONE, PullsDialect, segment
from gitops.forge.web import WebAnswer, WebRequest

__all__ = ["GiteaDialect"]

# An instance may give fewer entries than this (`MAX_RESPONSE_ITEMS`).
_PAGE = 50

_API = "/api/v1"
_HIDDEN = frozenset({403, 404})
_MAX_LABEL = 50
_GREY = "#6e7781"


class GiteaDialect(PullsDialect):
    """One repository on Gitea or Forgejo. There are no checks, deployments, review decisions and merge queues."""

    features = Features(reviews=True, labels=True, reactions=True, issues=True, permissions=True, branch_rules=True)
    null_is_empty = True
    page = (("page", "1"), ("limit", str(_PAGE)))

    # Answers

    read_account = staticmethod(answers.account)
    read_viewer = staticmethod(answers.viewer)
    read_request = staticmethod(answers.change_request)
    read_review = staticmethod(answers.review)
    read_status = staticmethod(answers.status)
    read_permission = staticmethod(answers.permission)

    def __init__(self, project: str, base: str) -> None:
        """`project` is `owner/name`; `base` is `https://HOST`, perhaps with a path, or that with `/api/v1`.

        Raises UsageError `usage_error`.
        """
        super().__init__(project, "" if base.endswith(_API) else _API)

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:  # noqa: ARG002
        """The page after an answer, by its number, until one is empty or all are read that the forge counts.

        An instance may give shorter pages than are asked for, so a short page is not the last one.
        """
        query = dict(request.query)
        rows = answer.body["statuses"] if isinstance(answer.body, dict) else answer.body
        total = answer.headers.get("x-total-count", "")
        if "page" not in query or not rows or (total.isdecimal() and read >= int(total)):
            return None
        return replace(request, query=tuple({**query, "page": str(int(query["page"]) + 1)}.items()))

    def viewer(self) -> WebRequest:
        """Whose token it is."""
        return WebRequest("GET", f"{self._start}/user")

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

    def requests_of(self, commit: str) -> WebRequest:
        """The request that merged a commit into the target branch."""
        return self._get(f"/commits/{segment(commit)}/pull", quiet=GONE)

    # Comments and labels

    def list_comments(self, number: int) -> WebRequest:
        """All comments on a request or an issue, which come on one page."""
        return self._get(f"/issues/{number}/comments", quiet=GONE)

    def labels(self, number: int) -> WebRequest:
        """Labels of a request, which come on one page."""
        return self._get(f"/issues/{number}/labels", quiet=GONE)

    def all_labels(self) -> WebRequest:
        """The labels that the repository has."""
        return self._list("/labels")

    def make_label(self, name: str) -> WebRequest:
        """A new label of the repository. Raises UsageError `usage_error` for a name that is longer than Gitea takes."""
        if not 0 < len(name) <= _MAX_LABEL:
            raise UsageError(
                Code.USAGE_ERROR, f"{name[:80]!r} cannot be a label: Gitea takes 1 to {_MAX_LABEL} characters"
            )
        return self._send("POST", "/labels", {"name": name, "color": _GREY}, repeatable=False)

    def add_labels(self, number: int, labels: list[int]) -> WebRequest:
        """Add labels to a request, by their numbers."""
        return self._send("POST", f"/issues/{number}/labels", {"labels": labels})

    def remove_label(self, number: int, label: int) -> WebRequest:
        """Remove a label from a request."""
        return self._send("DELETE", f"/issues/{number}/labels/{label}", None, quiet=GONE)

    # Branches and issues

    def branch(self, name: str) -> WebRequest:
        """A branch, with the part of its rules that every token may see."""
        return self._get(f"/branches/{segment(name)}", quiet=GONE)

    def protection(self, rule: str) -> WebRequest:
        """One rule of protection; only tokens of administrators of the repository may ask."""
        return self._get(f"/branch_protections/{segment(rule)}", quiet=_HIDDEN)

    def list_issues(self, author: Account) -> WebRequest:
        """Open issues by an author."""
        return self._list("/issues", ("state", "open"), ("type", "issues"), ("created_by", author.login))
