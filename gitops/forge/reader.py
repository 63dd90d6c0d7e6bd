"""What the bot reads from a forge with a web API: one implementation for all of them, over the dialect of each.

Rules:

1. No hidden requests. What does not change during a run, the account of the bot, is asked for once.
2. Lists are read to their end, within bounds that raise `forge_limit`, and never from another host.
3. A number that no change request can have, or that the forge answers with 404, is `request_not_found`.
4. A comment has its marker only if the account of the bot wrote it.
5. What a forge does not say is unknown: no list of pushes, no review decision, no branch rules, no permission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.dialect import HEADS, Dialect
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.paging import read_list
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckStatus,
    Comment,
    Features,
    Permission,
    Push,
    RequestState,
    Review,
    ReviewDecision,
)
from gitops.forge.text import first_line_marker
from gitops.forge.web import WebRequest, WebSender

__all__ = ["HostedReader", "no_request"]

_OK = 200
_LARGEST_NUMBER = 2**31 - 1


class HostedReader:
    """Implements ForgeReader for one repository; safe for one thread at a time."""

    def __init__(self, sender: WebSender, dialect: Dialect, clock: Clock) -> None:
        """`sender` talks to the API with the token of the bot."""
        self._sender = sender
        self._dialect = dialect
        self._clock = clock
        self._me: Account | None = None

    @property
    def features(self) -> Features:
        """What this forge offers."""
        return self._dialect.features

    def me(self) -> Account:
        """Whose token it is; asked once. Raises RemoteError `forge_unavailable`, GitopsError `forge_refused`."""
        if self._me is None:
            self._me = self._dialect.read_viewer(self._sender.send(self._dialect.viewer()))
        return self._me

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        if target is not None and not target.startswith(HEADS):
            return ()
        branch = None if target is None else target.removeprefix(HEADS)
        found = self._by_number(self._list(self._dialect.list_requests(state, branch)))
        return tuple(r for r in found if state in (None, r.state) and target in (None, r.target))

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:
        """The requests that any of these commits brought in, by number; one call for each commit."""
        found = self._by_number(entry for commit in dict.fromkeys(commits) for entry in self._requests_of(commit))
        return tuple(request for request in found if request.state is RequestState.MERGED)

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - not every forge lists them
        """None: unknown."""
        return iter(())

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        return self._read_request(self._get_request(number))

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names of moved files included. Raises GitopsError `request_not_found`."""
        return self._paths(self._list(self._dialect.list_files(number), about=number))

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a request in the order in which they were given. Raises GitopsError `request_not_found`."""
        if not self.features.reviews:
            return ()
        entries = self._list(self._dialect.list_reviews(number), about=number)
        found = [review for review in map(self._dialect.read_review, entries) if review is not None]
        return tuple(sorted(found, key=lambda review: (review.at, int(review.id))))

    def review_decision(self, number: int) -> ReviewDecision:  # noqa: ARG002 - not every forge has one
        """Unknown."""
        return ReviewDecision.UNKNOWN

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        me = self.me().id
        found = map(self._dialect.read_comment, self._list(self._dialect.list_comments(number), about=number))
        return tuple(
            replace(comment, marker=first_line_marker(comment.body)) if comment.account == me else comment
            for comment in found
            if comment is not None
        )

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each. None for a commit that the forge does not have."""
        entries = list(self._list(self._dialect.list_statuses(commit), within=self._dialect.statuses_within))
        newest: dict[str, CheckStatus] = {}
        for entry in sorted(entries, key=lambda entry: entry.number("id")):
            status = self._dialect.read_status(entry, commit)
            newest[status.context] = status
        return tuple(newest[context] for context in sorted(newest))

    def permission(self, account: Account) -> Permission:
        """What an account may do now; NONE for strangers, and for a login that belongs to another account now."""
        request = self._dialect.get_permission(account) if self.features.permissions else None
        answer = None if request is None else self._sender.send(request)
        if answer is None or answer.status != _OK:
            return Permission.NONE
        return self._dialect.read_permission(answer_object(answer.body, "the permission"), account, self._clock.now())

    def branch_rules(self, branch: str) -> BranchRules:  # noqa: ARG002 - not every forge has them
        """Unknown."""
        return BranchRules()

    # Inside

    def _read_request(self, found: JsonObject) -> ChangeRequest:
        return self._dialect.read_request(found)

    def _requests_of(self, commit: str) -> Iterator[JsonObject]:
        return self._list(self._dialect.requests_of(commit))

    def _by_number(self, entries: Iterator[JsonObject]) -> list[ChangeRequest]:
        """Requests by number; a list that changes while it is read may name one twice."""
        found = {request.number: request for request in map(self._read_request, entries)}
        return [found[number] for number in sorted(found)]

    def _get_request(self, number: int) -> JsonObject:
        answer = self._sender.send(self._dialect.get_request(_possible(number)))
        if answer.status != _OK:
            raise no_request(number)
        return answer_object(answer.body, "the request")

    def _paths(self, entries: Iterator[JsonObject]) -> tuple[str, ...]:
        return tuple(sorted({path for entry in entries for path in self._dialect.read_files(entry)}))

    def _list(
        self, request: WebRequest, *, within: str | None = None, about: int | None = None
    ) -> Iterator[JsonObject]:
        """All entries of a list; none where a quiet status says that there is no list.

        Raises GitopsError `request_not_found` for that status if the list is `about` a change request.
        """
        if about is not None:
            _possible(about)
        missing = None if about is None else no_request(about)
        return read_list(
            self._sender,
            request,
            self._dialect.next_page,
            within=within,
            null_is_empty=self._dialect.null_is_empty,
            missing=missing,
        )


def no_request(number: int) -> GitopsError:
    """The error for a change request that does not exist."""
    return GitopsError(Code.REQUEST_NOT_FOUND, f"there is no change request {number}, or the token may not see it")


def _possible(number: int) -> int:
    if not 0 < number <= _LARGEST_NUMBER:
        raise no_request(number)
    return number
