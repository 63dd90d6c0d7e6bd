"""What the bot writes to a forge with a web API: one implementation for all of them, over the dialect of each.

Rules:

1. A text that is too long for some forge is refused before anything is sent.
2. A comment or an issue is the bot's own if the account of the bot wrote it and its first line is the marker. Nothing else is
   ever changed or removed.
3. Of several own ones, which a race left behind, the oldest stays and gets the text; the others are removed.
4. What has the text already is not written again.
5. A request that creates something is sent once. If its answer is lost, or the forge says that it exists, the bot looks for
   it; only what is not there is created a second time.
6. What ends is closed first and commented on afterwards. If anything is lost and this is done again, it is closed already and
   gets no second comment.
7. What a forge lacks is not written: its features say so, and the status and the comment hold all that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from gitops.core.codes import Code
from gitops.core.errors import RemoteError, UsageError
from gitops.forge.dialect import HEADS, ForgeIssue
from gitops.forge.json_object import answer_object
from gitops.forge.port import (
    ChangeRequest,
    CheckStatus,
    Comment,
    CommitCheck,
    Deployment,
    Reaction,
    RequestState,
)
from gitops.forge.reader import HostedReader
from gitops.forge.text import MAX_TEXT, cut, has_marker, same_text, with_marker
from gitops.forge.web import WebAnswer, WebRequest

__all__ = ["HostedForge"]

T = TypeVar("T")

_NOT_FOUND = 404
# Conflict, and what GitHub says instead: it cannot be processed because it exists.
_EXISTS = frozenset({409, 422})


class HostedForge(HostedReader):
    """Implements Forge for one repository; safe for one thread at a time."""

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        text = self._bounded(with_marker(marker, body))

        def update() -> bool | None:
            kept = None
            for comment in self._own_comments(number, marker):
                if kept:
                    self._sender.send(self._dialect.remove_comment(number, comment.id))
                elif same_text(comment.body, text):
                    kept = True
                else:
                    # A person may have removed it since: then the next one stays.
                    answer = self._sender.send(self._dialect.change_comment(number, comment.id, text))
                    kept = answer.status != _NOT_FOUND or None
            return kept

        if update() is None:
            self._create(self._dialect.add_comment(number, text), update, lambda _: True)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, in one request."""
        self._sender.send(self._dialect.set_status(status))

    def set_check(self, check: CommitCheck) -> None:
        """Nothing, unless the forge has checks with annotations."""

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction. Raises UsageError `usage_error` for anything but the id of a comment."""
        if not comment.isdecimal() or not comment.isascii():
            raise UsageError(Code.USAGE_ERROR, f"{comment[:80]!r} is not a comment on request {number}")
        if self.features.reactions:
            self._sender.send(self._dialect.react(number, comment, reaction))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Nothing, unless the forge has labels."""

    def record_deployment(self, deployment: Deployment) -> None:
        """Nothing, unless the forge has deployments."""

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target` (full ref names), opened or updated.

        Raises UsageError `usage_error` for anything but two branches, `comment_too_large`, RemoteError `forge_refused`, also
        where there is nothing to merge.
        """
        for ref in (source, target):
            if not ref.startswith(HEADS):
                raise UsageError(Code.USAGE_ERROR, f"{ref[:80]!r} is not the full name of a branch")
        text, name = self._bounded(body), cut(title, self._dialect.longest_title)
        head, base = source.removeprefix(HEADS), target.removeprefix(HEADS)

        def read(answer: WebAnswer) -> ChangeRequest:
            return self._read_request(answer_object(answer.body, "the request"))

        def update() -> ChangeRequest | None:
            for found in self._list(self._dialect.list_requests(RequestState.OPEN, base, head)):
                known = self._read_request(found)
                # The branch of a fork may have the same name.
                if known.fork or (known.source, known.target) != (source, target):
                    continue
                if known.title == name and same_text(self._dialect.read_text(found), text):
                    return known
                return read(self._sender.send(self._dialect.change_request(known.number, name, text)))
            return None

        return update() or self._create(self._dialect.open_request(head, base, name, text), update, read)

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request, with a last comment. Raises GitopsError `request_not_found`."""
        text = self._bounded(comment)
        if self.request(number).state is RequestState.OPEN:
            self._sender.send(self._dialect.close_request(number))
            self._comment_last(self._dialect.add_comment(number, text))

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns its address for people."""
        if not self.features.issues:
            return ""
        text, name = self._bounded(with_marker(marker, body)), cut(title, self._dialect.longest_title)

        def update() -> ForgeIssue | None:
            kept: ForgeIssue | None = None
            for issue in self._own_issues(marker):
                if kept is not None:
                    self._sender.send(self._dialect.close_issue(issue.number))
                elif (issue.title == name and same_text(issue.body, text)) or (
                    self._sender.send(self._dialect.change_issue(issue.number, name, text)).status != _NOT_FOUND
                ):
                    kept = issue
            return kept

        def read(answer: WebAnswer) -> ForgeIssue | None:
            return self._dialect.read_issue(answer_object(answer.body, "the issue"))

        written = update() or self._create(self._dialect.open_issue(name, text), update, read)
        return "" if written is None else written.url

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment unless that is empty."""
        if not self.features.issues:
            return
        text = self._bounded(comment)
        for issue in self._own_issues(marker):
            self._sender.send(self._dialect.close_issue(issue.number))
            if text:
                self._comment_last(self._dialect.comment_on_issue(issue.number, text))

    # Inside

    def _bounded(self, text: str) -> str:
        if len(text) > MAX_TEXT:
            raise UsageError(
                Code.COMMENT_TOO_LARGE, f"the text has {len(text)} characters; at most {MAX_TEXT} are sent"
            )
        return self._dialect.escape(text)

    def _own_comments(self, number: int, marker: str) -> list[Comment]:
        own = [c for c in self.comments(number) if c.marker is not None and has_marker(c.body, marker)]
        return sorted(own, key=lambda comment: int(comment.id))

    def _own_issues(self, marker: str) -> Iterator[ForgeIssue]:
        me = self.me()
        found = map(self._dialect.read_issue, self._list(self._dialect.list_issues(me)))
        own = [i for i in found if i is not None and i.account == me.id and has_marker(i.body, marker)]
        return iter(sorted(own, key=lambda issue: issue.number))

    def _create(self, request: WebRequest, find: Callable[[], T | None], read: Callable[[WebAnswer], T]) -> T:
        """Create what must not exist twice, by rule 5; `find` looks for it, `read` makes it of the answer."""
        try:
            return read(self._sender.send(request))
        except RemoteError as error:
            if not error.retryable and error.status not in _EXISTS:
                raise
            found = find()
            if found is not None:
                return found
            if not error.retryable:
                raise
        return read(self._sender.send(request))

    def _comment_last(self, request: WebRequest) -> None:
        """Comment on what is closed. If the answer is lost, the comment may be there, and is not worth a second try."""
        try:
            self._sender.send(request)
        except RemoteError as error:
            if not error.retryable:
                raise
