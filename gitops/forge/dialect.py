"""What differs from forge to forge: how the API is asked, and how its answers are read.

A dialect is pure. It builds requests from the nouns of the port, and nouns of the port from the JSON that comes back. When
something is asked or written, and in which order, is the same for all forges: see `hosted`. A forge that lacks a
feature does not say so in `Features` and leaves out the methods of that feature.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, NoReturn

from gitops.core.codes import Code
from gitops.core.errors import BugError, UsageError
from gitops.forge import port
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, answer_object, linked_page

HEADS = "refs/heads/"
GONE = frozenset({404})
MAX_BODY = 1 << 20
"""Characters of a text that are read."""

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")


class Dialect(ABC):
    """The API of one repository on one kind of forge. Branches are short names here, numbers are those of change requests.

    Requests that create something are not repeatable. A status in `quiet` is an answer: 404 of a request about a change
    request says that it does not exist, 404 of a list says that the list is empty.
    """

    features: port.Features
    root: str = ""
    """Where the paths of the repository begin."""
    headers: ClassVar[Mapping[str, str]] = {}
    page: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The query that asks for the first page of a list."""
    requests_path: str = "/requests"
    """The path of change requests; issues are at `/issues`."""
    change_method: str = "PATCH"
    """The method of a request that changes something."""
    text_field: str = "body"
    """The field with the text of a change request or an issue."""
    closing: ClassVar[Mapping[str, str]] = {"state": "closed"}
    """What closes a change request or an issue."""
    longest_title: int = 255
    """Characters of the title of a change request or an issue."""
    statuses_within: str | None = None
    """The field that holds the list of statuses, where the answer is an object."""
    null_is_empty: bool = False
    """Whether the forge answers `null` for a list without entries."""

    # Requests that read

    @abstractmethod
    def viewer(self) -> WebRequest:
        """Whose token it is."""

    @abstractmethod
    def list_requests(
        self, state: port.RequestState | None = None, target: str | None = None, source: str | None = None
    ) -> WebRequest:
        """Change requests of a state and of branches. A forge may give more of them: the reader selects again."""

    def get_request(self, number: int) -> WebRequest:
        """One change request; 404 is quiet."""
        return self._get(f"{self.requests_path}/{number}", quiet=GONE)

    @abstractmethod
    def requests_of(self, commit: str) -> WebRequest:
        """The change requests that a commit belongs to; 404 is quiet."""

    def list_ended(self) -> WebRequest | None:
        """The change requests that ended, those that changed last first; None where `requests_of` never lags behind a merge."""
        return None

    def list_ended_numbers(self) -> WebRequest | None:
        """The same as issues, newest first, where `list_ended` may fail because of one request; else None."""
        return None

    def list_files(self, number: int) -> WebRequest:
        """Files that a change request changes; 404 is quiet."""
        return self._list(f"{self.requests_path}/{number}/files", quiet=GONE)

    @abstractmethod
    def list_comments(self, number: int) -> WebRequest:
        """Comments on a change request, oldest first; 404 is quiet."""

    @abstractmethod
    def list_statuses(self, commit: str) -> WebRequest:
        """Statuses of a commit; 404 is quiet."""

    def list_reviews(self, number: int) -> WebRequest:
        """Reviews of a change request; 404 is quiet. Feature `reviews`."""
        self._lacks("reviews", number)

    def list_reactions(self, number: int, comment: str) -> WebRequest:
        """The reactions of all accounts to a comment; 404 is quiet. Feature `reactions`."""
        self._lacks("reactions", number, comment)

    def get_permission(self, account: port.Account) -> WebRequest | None:
        """What an account may do, or None for an account that this forge cannot have; 404 is quiet. Feature `permissions`."""
        self._lacks("permissions", account)

    def list_issues(self, author: port.Account) -> WebRequest:
        """Open issues of an author. Feature `issues`."""
        self._lacks("issues", author)

    # Requests that write

    @abstractmethod
    def add_comment(self, number: int, text: str) -> WebRequest:
        """A new comment on a change request."""

    @abstractmethod
    def change_comment(self, number: int, comment: str, text: str) -> WebRequest:
        """Another text for a comment; 404 is quiet."""

    @abstractmethod
    def remove_comment(self, number: int, comment: str) -> WebRequest:
        """Remove a comment; 404 is quiet."""

    @abstractmethod
    def set_status(self, status: port.CheckStatus) -> WebRequest:
        """Set the status of a commit in a context."""

    @abstractmethod
    def open_request(self, source: str, target: str, title: str, text: str) -> WebRequest:
        """A new change request between two branches of the repository."""

    def change_request(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for a change request."""
        form = {"title": title, self.text_field: text}
        return self._send(self.change_method, f"{self.requests_path}/{number}", form)

    def close_request(self, number: int) -> WebRequest:
        """Close a change request."""
        return self._send(self.change_method, f"{self.requests_path}/{number}", self.closing)

    def react(self, number: int, comment: str, reaction: port.Reaction) -> WebRequest:
        """React to a comment; the same reaction twice is one. Feature `reactions`."""
        self._lacks("reactions", number, comment, reaction)

    def open_issue(self, title: str, text: str) -> WebRequest:
        """A new issue. Feature `issues`."""
        return self._send("POST", "/issues", {"title": title, self.text_field: text})

    def change_issue(self, number: int, title: str, text: str) -> WebRequest:
        """Another title and text for an issue; 404 is quiet. Feature `issues`."""
        form = {"title": title, self.text_field: text}
        return self._send(self.change_method, f"/issues/{number}", form, quiet=GONE)

    def close_issue(self, number: int) -> WebRequest:
        """Close an issue; 404 is quiet. Feature `issues`."""
        return self._send(self.change_method, f"/issues/{number}", self.closing, quiet=GONE)

    def comment_on_issue(self, number: int, text: str) -> WebRequest:
        """A new comment on an issue; where issues and change requests share their numbers, the same as `add_comment`."""
        return self.add_comment(number, text)

    # Answers

    @abstractmethod
    def read_account(self, data: JsonObject, /) -> port.Account:
        """An account."""

    @abstractmethod
    def read_request(self, data: JsonObject, /) -> port.ChangeRequest:
        """A change request, from a list or alone."""

    @abstractmethod
    def read_files(self, data: JsonObject, /) -> tuple[str, ...]:
        """The paths of one changed file: its own, and the one it had before."""

    @abstractmethod
    def read_comment(self, data: JsonObject, /) -> port.Comment | None:
        """A comment without its marker; None for a line that the forge wrote itself."""

    @abstractmethod
    def read_status(self, data: JsonObject, commit: str, /) -> port.CheckStatus:
        """A status of a commit."""

    def read_viewer(self, answer: WebAnswer, /) -> port.Account:
        """Whose token it is."""
        return self.read_account(answer_object(answer.body, "the account"))

    def read_text(self, data: JsonObject, /) -> str:
        """The text of a change request or an issue."""
        return data.text_or(self.text_field, most=MAX_BODY)

    def read_review(self, data: JsonObject, /) -> port.Review | None:
        """A review; None for one that is not given yet, or whose account was deleted. Feature `reviews`."""
        self._lacks("reviews", data)

    def read_reaction(self, data: JsonObject, /) -> tuple[str, port.Reaction | None]:
        """The id of an account, and its reaction; None for one that the bot never gives. Feature `reactions`."""
        self._lacks("reactions", data)

    def read_permission(self, data: JsonObject, account: port.Account, now: datetime, /) -> port.Permission:
        """What an account may do at a time; NONE if the answer is about another account. Feature `permissions`."""
        self._lacks("permissions", data, account, now)

    def read_issue(self, data: JsonObject, /) -> port.Issue | None:
        """An issue; None for a change request or a closed issue in the list. Feature `issues`."""
        self._lacks("issues", data)

    # Both

    def next_page(self, base: str, request: WebRequest, answer: WebAnswer, read: int) -> WebRequest | None:
        """The request of the page after an answer, None after the last; `read` entries of the list were read so far."""
        return linked_page(base, request, answer, read)

    def escape(self, text: str) -> str:
        """A text as it is sent, and as it comes back: commands of the forge in it are disarmed."""
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
        """A request that writes. What creates something is not repeatable, unless `repeatable` says that it is."""
        again = method != "POST" if repeatable is None else repeatable
        return WebRequest(method, self.root + path, body=body, headers=self.headers, repeatable=again, quiet=quiet)

    def _lacks(self, feature: str, *_: object) -> NoReturn:
        raise BugError(f"{type(self).__name__} declares the feature {feature} without its methods")


def full_id(commit: str) -> str:
    """The full id of a commit, unchanged. Raises UsageError `usage_error` for anything else."""
    if not _OBJECT_ID.fullmatch(commit):
        raise UsageError(Code.USAGE_ERROR, f"{commit[:80]!r} is not the full id of a commit")
    return commit
