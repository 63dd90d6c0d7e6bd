"""Differences between forges: how API requests are built and how responses are read.

A dialect is pure. It builds requests from the nouns of the port, and nouns of the port from the returned JSON. When requests
are sent, and in which order, is the same for all forges: see `hosted`. If a forge lacks a feature, its `Features` do not
list it, and the dialect omits the methods of that feature.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from gitops.core.codes import Code
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import BugError, UsageError
from gitops.forge import port
from gitops.forge.text import cut
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, answer_object, linked_page

HEADS = "refs/heads/"
GONE = frozenset({404})
MAX_BODY = 1 << 20
"""Maximum number of characters of a text."""


class Dialect(ABC):
    """The API of one repository on one kind of forge. Branches are short names here; numbers identify change requests.

    Requests that create something are not repeatable. A status in `quiet` is a valid response: 404 for a change request
    means that it does not exist, and 404 for a list means that the list is empty.
    """

    features: port.Features
    root: str = ""
    """The prefix of all paths of the repository."""
    headers: ClassVar[Mapping[str, str]] = {}
    page: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The query parameters for the first page of a list."""
    requests_path: str = "/requests"
    """The path of change requests. Issues are at `/issues`."""
    change_method: str = "PATCH"
    """The HTTP method of requests that change an object."""
    text_field: str = "body"
    """The field with the text of a change request or an issue."""
    closing: ClassVar[Mapping[str, str]] = {"state": "closed"}
    """The fields that close a change request or an issue."""
    longest_title: int = 255
    """Maximum number of characters in the title of a change request or an issue."""
    statuses_within: str | None = None
    """The field that contains the list of statuses, if the response is an object."""
    null_is_empty: bool = False
    """True if the forge returns `null` for an empty list."""

    def fit_title(self, title: str) -> str:
        """Return a title as the forge keeps it, so that the bot finds what it wrote and does not write it again."""
        return cut(title, self.longest_title)

    # Requests that read

    @abstractmethod
    def viewer(self) -> WebRequest:
        """Build the request for the token's account."""

    @abstractmethod
    def list_requests(
        self, state: port.RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Build the request for change requests by state and branches. A forge can return more, so the reader filters again."""

    def get_request(self, number: int) -> WebRequest:
        """Build the request for one change request; 404 is quiet."""
        return self._get(f"{self.requests_path}/{number}", quiet=GONE)

    @abstractmethod
    def requests_of(self, commit: str) -> WebRequest:
        """Build the request for the change requests that a commit belongs to; 404 is quiet."""

    def list_ended(self) -> WebRequest | None:
        """Build the request for ended change requests, last changed first. None if `requests_of` never lags behind a merge."""
        return None

    def list_ended_numbers(self) -> WebRequest | None:
        """Build the request that lists ended change requests as issues, newest first.

        It is the fallback for forges on which one broken change request makes `list_ended` fail. None on other forges.
        """
        return None

    def list_files(self, number: int) -> WebRequest:
        """Build the request for the changed files of a change request; 404 is quiet."""
        return self._list(f"{self.requests_path}/{number}/files", quiet=GONE)

    @abstractmethod
    def list_comments(self, number: int) -> WebRequest:
        """Build the request for comments on a change request, oldest first; 404 is quiet."""

    @abstractmethod
    def list_statuses(self, commit: str) -> WebRequest:
        """Build the request for the statuses of a commit; 404 is quiet."""

    def list_reviews(self, number: int) -> WebRequest:
        """Build the request for the reviews of a change request; 404 is quiet. Feature `reviews`."""
        self._lacks("reviews", number)

    def list_reactions(self, number: int, comment: str) -> WebRequest:
        """Build the request for everyone's reactions to a comment; 404 is quiet. Feature `reactions`."""
        self._lacks("reactions", number, comment)

    def get_permission(self, account: port.Account) -> WebRequest | None:
        """Build the request for an account's permission; 404 is quiet. None if no such account can exist.

        Feature `permissions`.
        """
        self._lacks("permissions", account)

    def list_issues(self, author: port.Account) -> WebRequest:
        """Build the request for an author's open issues. Feature `issues`."""
        self._lacks("issues", author)

    # Requests that write

    @abstractmethod
    def add_comment(self, number: int, text: str) -> WebRequest:
        """Build the request to add a comment to a change request."""

    @abstractmethod
    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:
        """Build the request to replace the text of a comment; 404 is quiet."""

    @abstractmethod
    def remove_comment(self, number: int, comment: str) -> WebRequest:
        """Build the request to remove a comment; 404 is quiet."""

    @abstractmethod
    def set_status(self, status: port.CheckStatus) -> WebRequest:
        """Build the request to set the status of a commit in a context."""

    @abstractmethod
    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """Build the request to open a change request between two branches of the repository."""

    def change_request(self, number: int, title: str, text: str) -> WebRequest:
        """Build the request to replace the title and text of a change request."""
        form = {"title": title, self.text_field: text}
        return self._send(self.change_method, f"{self.requests_path}/{number}", form)

    def close_request(self, number: int) -> WebRequest:
        """Build the request to close a change request."""
        return self._send(self.change_method, f"{self.requests_path}/{number}", self.closing)

    def react(self, number: int, comment: str, reaction: port.Reaction) -> WebRequest:
        """Build the request to react to a comment. Repeating the same reaction has no effect. Feature `reactions`."""
        self._lacks("reactions", number, comment, reaction)

    def open_issue(self, title: str, text: str) -> WebRequest:
        """Build the request to open an issue. Feature `issues`."""
        return self._send("POST", "/issues", {"title": title, self.text_field: text})

    def change_issue(self, number: int, title: str, text: str) -> WebRequest:
        """Build the request to replace the title and text of an issue; 404 is quiet. Feature `issues`."""
        form = {"title": title, self.text_field: text}
        return self._send(self.change_method, f"/issues/{number}", form, quiet=GONE)

    def close_issue(self, number: int) -> WebRequest:
        """Build the request to close an issue; 404 is quiet. Feature `issues`."""
        return self._send(self.change_method, f"/issues/{number}", self.closing, quiet=GONE)

    def comment_on_issue(self, number: int, text: str) -> WebRequest:
        """Build the request to comment on an issue. Same as `add_comment` if issues and change requests share numbers."""
        return self.add_comment(number, text)

    # Answers

    @abstractmethod
    def read_account(self, data: JsonObject, /) -> port.Account:
        """Read an account."""

    @abstractmethod
    def read_request(self, data: JsonObject, /) -> port.ChangeRequest:
        """Read a change request, from a list or from a single response."""

    @abstractmethod
    def read_files(self, data: JsonObject, /) -> tuple[str, ...]:
        """Return both paths of one changed file: its current path and its previous one."""

    @abstractmethod
    def read_comment(self, data: JsonObject, /) -> port.Comment | None:
        """Read a comment without its marker. None for a line that the forge itself wrote."""

    @abstractmethod
    def read_status(self, data: JsonObject, commit: str, /) -> port.CheckStatus:
        """Read a status of a commit."""

    def read_viewer(self, answer: WebAnswer, /) -> port.Account:
        """Read the token's account."""
        return self.read_account(answer_object(answer.body, "the account"))

    def read_text(self, data: JsonObject, /) -> str:
        """Return the text of a change request or an issue."""
        return data.text_or(self.text_field, most=MAX_BODY)

    def read_review(self, data: JsonObject, /) -> port.Review | None:
        """Read a review. None if it is not submitted yet or its account was deleted. Feature `reviews`."""
        self._lacks("reviews", data)

    def read_reaction(self, data: JsonObject, /) -> tuple[str, port.Reaction | None]:
        """Return the account id and the reaction, or None for a reaction that the bot never uses. Feature `reactions`."""
        self._lacks("reactions", data)

    def read_permission(self, data: JsonObject, account: port.Account, now: datetime, /) -> port.Permission:
        """Return an account's permission at a time. NONE if the response is about a different account. Feature `permissions`."""
        self._lacks("permissions", data, account, now)

    def read_issue(self, data: JsonObject, /) -> port.Issue | None:
        """Read an issue from a list. None for a change request or a closed issue. Feature `issues`."""
        self._lacks("issues", data)

    # Both

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:
        """Build the request for the page after a response; None after the last page. `read` entries were read so far."""
        return linked_page(base, request, answer, read)

    def escape(self, text: str) -> str:
        """Return a text as it is sent, with the forge's own commands disabled."""
        return text

    def _get(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return WebRequest("GET", self.root + path, query, headers=self.headers, quiet=quiet)

    def _list(self, path: str, *query: tuple[str, str], quiet: frozenset[int] = frozenset()) -> WebRequest:
        return self._get(path, *query, *self.page, quiet=quiet)

    def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        quiet: frozenset[int] = frozenset(),
        repeatable: bool | None = None,
    ) -> WebRequest:
        """Return a request that writes.

        A request that creates an object is not repeatable unless `repeatable` is True.
        """
        again = method != "POST" if repeatable is None else repeatable
        return WebRequest(method, self.root + path, body=body, headers=self.headers, repeatable=again, quiet=quiet)

    def _lacks(self, feature: str, *_: object) -> NoReturn:
        raise BugError(f"{type(self).__name__} declares the feature {feature} without its methods")


def full_id(commit: str) -> str:
    """Return the full id of a commit unchanged. Raises UsageError `usage_error` for anything else."""
    if not is_object_id(commit):
        raise UsageError(Code.USAGE_ERROR, f"{commit[:80]!r} is not the full id of a commit")
    return commit
