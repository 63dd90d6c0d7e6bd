"""A forge: change requests, one comment each, statuses. Names are neutral: change request, not pull or merge request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class RequestState(StrEnum):
    """Life of a change request."""

    OPEN = "open"
    MERGED = "merged"
    CLOSED = "closed"


class CheckState(StrEnum):
    """State of a commit status; a missing approval is a failure, never neutral."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """A proposal to merge `head` into `target` (full ref name).

    `pushers` are the authenticated identities that pushed to it, in order, as far as the forge knows them. `merged_as` is
    the commit on the target branch that brought it in.
    """

    number: int
    title: str
    source: str
    target: str
    head: str
    state: RequestState
    opened_at: str
    pushers: tuple[str, ...] = ()
    merged_as: str | None = None


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; `marker` is set only if the bot itself wrote it."""

    author: str
    body: str
    at: str
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class CheckStatus:
    """The status of one commit in one context, such as `gitops/plan/<cluster>`."""

    commit: str
    context: str
    state: CheckState
    description: str
    at: str


class Forge(Protocol):
    """What the bot needs of a forge."""

    def requests(self) -> tuple[ChangeRequest, ...]:
        """All change requests, by number."""
        ...

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        ...

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises `request_not_found`."""
        ...

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place; at most 65,536 characters."""
        ...

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context."""
        ...

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before."""
        ...
