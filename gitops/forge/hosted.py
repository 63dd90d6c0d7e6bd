"""Reads from and writes to forges with a web API. One implementation for all, on top of each forge's dialect.

Rules of reading:

1. There are no hidden requests. The bot's account, which does not change during a run, is requested only once.
2. Lists are read to their end, within limits that raise `forge_limit`, and never from another host.
3. A number that no change request can have, or for which the forge returns 404, is `request_not_found`.
4. A comment has its marker only if the bot's account wrote it. An issue belongs to the account that the forge reports as its
   author: a marker alone proves nothing, and the reader does not matter.
5. Facts that a forge does not report are unknown: no list of pushes, no review decision, no branch rules, no permission.
6. A request that the forge cannot show does not hide others: see `merged_by`.

Rules of writing:

1. A text that is too long for some forge is refused before anything is sent.
2. A comment or an issue is the bot's own if the bot's account wrote it and its first line is the marker. Nothing else is
   ever changed or removed.
3. If a race left several of them, the oldest is kept and gets the text; the others are removed.
4. An unchanged text is not written again.
5. A request that creates something is sent once. If its response is lost, or the forge says that the object exists, the bot looks
   for it and creates it again only if it does not exist.
6. An ended issue or request is closed first and commented on afterwards. If anything is lost and this is repeated, it is already
   closed and gets no second comment.
7. Features that a forge lacks are not used. Its `Features` do not list them, and the status and the comment contain
   everything important.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.dialect import HEADS, Dialect
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckStatus,
    Comment,
    CommitCheck,
    Deployment,
    Features,
    Issue,
    MergedRequests,
    MergeOrder,
    Permission,
    Push,
    Reaction,
    RequestState,
    Review,
    ReviewDecision,
)
from gitops.forge.text import MAX_TEXT, first_line_marker, has_marker, same_text, with_marker
from gitops.forge.web import JsonObject, WebAnswer, WebRequest, WebSender, answer_object, read_list

T = TypeVar("T")

_OK = 200
_NOT_FOUND = 404
_BROKEN = 500
# 409 means a conflict. GitHub reports instead that it cannot process the request because the object exists.
_EXISTS = frozenset({409, 422})
_LARGEST_NUMBER = 2**31 - 1
_RECENT = 50


class HostedForge:
    """Forge for one repository. Only one thread at a time can use it."""

    def __init__(self, sender: WebSender, dialect: Dialect, clock: Clock) -> None:
        """`sender` calls the API with the bot's token."""
        self._sender = sender
        self._dialect = dialect
        self._clock = clock
        self._me: Account | None = None
        self._unlisted: RemoteError | None = None

    # Reading

    @property
    def features(self) -> Features:
        """The features of this forge."""
        return self._dialect.features

    def me(self) -> Account:
        """Return the token's account, requested once. Raises RemoteError `forge_unavailable`, GitopsError `forge_refused`."""
        if self._me is None:
            self._me = self._dialect.read_viewer(self._sender.send(self._dialect.viewer()))
        return self._me

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Return change requests by number: all, or those with this state and target (full ref name)."""
        if target is not None and not target.startswith(HEADS):
            return ()
        branch = None if target is None else target.removeprefix(HEADS)
        listed = map(self._read_request, self._list(self._dialect.list_requests(state, branch)))
        # A list that changes while it is read can contain a request twice.
        found = sorted({request.number: request for request in listed}.items())
        return tuple(r for _, r in found if state in (None, r.state) and target in (None, r.target))

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:
        """Return the change requests that any of these commits merged. Makes one call per commit, and one for the rest."""
        return self._find_merged(commits)[0]

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - not every forge lists them
        """Yield nothing, because the pushes are unknown."""
        return iter(())

    def request(self, number: int) -> ChangeRequest:
        """Return one change request. Raises GitopsError `request_not_found`."""
        return self._read_request(self._get_request(number))

    def files(self, number: int) -> tuple[str, ...]:
        """Return the sorted paths that a request changes, including old names. Raises GitopsError `request_not_found`."""
        return self._paths(self._list(self._dialect.list_files(number), about=number))

    def reviews(self, number: int) -> tuple[Review, ...]:
        """Return all reviews of a request in chronological order. Raises GitopsError `request_not_found`."""
        if not self.features.reviews:
            return ()
        entries = self._list(self._dialect.list_reviews(number), about=number)
        found = [review for review in map(self._dialect.read_review, entries) if review is not None]
        return tuple(sorted(found, key=lambda review: (review.at, int(review.id))))

    def review_decision(self, number: int) -> ReviewDecision:  # noqa: ARG002 - not every forge has one
        """Return UNKNOWN."""
        return ReviewDecision.UNKNOWN

    def merge_order(self, branch: str) -> MergeOrder:  # noqa: ARG002 - not every forge has a merge queue
        """Return an unknown order."""
        return MergeOrder()

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments on a request, oldest first. Raises GitopsError `request_not_found`."""
        me = self.me().id
        found = map(self._dialect.read_comment, self._list(self._dialect.list_comments(number), about=number))
        return tuple(
            replace(comment, marker=first_line_marker(comment.body)) if comment.account == me else comment
            for comment in found
            if comment is not None
        )

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        """Return the bot's own reactions to a comment. Raises UsageError `usage_error` for anything but a comment id."""
        _require_comment(number, comment)
        if not self.features.reactions:
            return ()
        entries = self._list(self._dialect.list_reactions(number, comment))
        given, me = map(self._dialect.read_reaction, entries), self.me().id
        return tuple(reaction for account, reaction in given if reaction is not None and account == me)

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Return the newest status of each context of a commit, by context. Empty for a commit that the forge does not have."""
        entries = list(self._list(self._dialect.list_statuses(commit), within=self._dialect.statuses_within))
        newest: dict[str, CheckStatus] = {}
        for entry in sorted(entries, key=lambda entry: entry.number("id", least=0)):
            status = self._dialect.read_status(entry, commit)
            newest[status.context] = status
        return tuple(newest[context] for context in sorted(newest))

    def issues(self, marker: str, author: Account) -> tuple[Issue, ...]:
        """Return an account's open issues with this marker, oldest first, by rule 4."""
        if not self.features.issues:
            return ()
        found = map(self._dialect.read_issue, self._list(self._dialect.list_issues(author)))
        own = [i for i in found if i is not None and i.account == author.id and has_marker(i.body, marker)]
        return tuple(sorted(own, key=lambda issue: issue.number))

    def permission(self, account: Account) -> Permission:
        """Return an account's current permission. NONE for strangers, and for a login that now belongs to a different account."""
        request = self._dialect.get_permission(account) if self.features.permissions else None
        answer = None if request is None else self._sender.send(request)
        if answer is None or answer.status != _OK:
            return Permission.NONE
        return self._dialect.read_permission(answer_object(answer.body, "the permission"), account, self._clock.now())

    def branch_rules(self, branch: str) -> BranchRules:  # noqa: ARG002 - not every forge has them
        """Return unknown rules."""
        return BranchRules()

    # Writing

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Create or update the bot's one comment with this marker.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        text = self._bounded(with_marker(marker, body))

        def update() -> bool | None:
            kept = None
            own = [c for c in self.comments(number) if c.marker is not None and has_marker(c.body, marker)]
            for comment in sorted(own, key=lambda comment: int(comment.id)):
                if kept:
                    self._sender.send(self._dialect.remove_comment(number, comment.id))
                elif same_text(comment.body, text):
                    kept = True
                else:
                    # If a person removed the first one in the meantime, keep the next.
                    answer = self._sender.send(self._dialect.change_comment(number, comment.id, text))
                    kept = answer.status != _NOT_FOUND or None
            return kept

        if update() is None:
            self._create(self._dialect.add_comment(number, text), update, lambda _: True)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, with one request."""
        self._sender.send(self._dialect.set_status(status))

    def set_check(self, check: CommitCheck) -> None:
        """Do nothing, unless the forge has checks with annotations."""

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """React to a comment. Raises UsageError `usage_error` for anything but a comment id."""
        _require_comment(number, comment)
        if self.features.reactions:
            self._sender.send(self._dialect.react(number, comment, reaction))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Do nothing, unless the forge has labels."""

    def record_deployment(self, deployment: Deployment) -> None:
        """Do nothing, unless the forge has deployments."""

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """Open or update the single open request of branch `source` into `target` (full ref names), and return it.

        Raises UsageError `usage_error` for anything but two branches, `comment_too_large`, RemoteError `forge_refused`, also
        if there is nothing to merge.
        """
        for ref in (source, target):
            if not ref.startswith(HEADS):
                raise UsageError(Code.USAGE_ERROR, f"{ref[:80]!r} is not the full name of a branch")
        text, name = self._bounded(body), self._dialect.fit_title(title)
        head, base = source.removeprefix(HEADS), target.removeprefix(HEADS)

        def read(answer: WebAnswer) -> ChangeRequest:
            return self._read_request(answer_object(answer.body, "the request"))

        def update() -> ChangeRequest | None:
            for found in self._list(self._dialect.list_requests(RequestState.OPEN, base, head)):
                known = self._read_request(found)
                # A branch in a fork can have the same name.
                if known.fork or (known.source, known.target) != (source, target):
                    continue
                if known.title == name and same_text(self._dialect.read_text(found), text):
                    return known
                return read(self._sender.send(self._dialect.change_request(known.number, name, text)))
            return None

        return update() or self._create(self._dialect.open_request(head, base, name, text), update, read)

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request with a final comment. Raises GitopsError `request_not_found`."""
        text = self._bounded(comment)
        if self.request(number).state is RequestState.OPEN:
            self._sender.send(self._dialect.close_request(number))
            self._comment_last(self._dialect.add_comment(number, text))

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Create or update the bot's one open issue with this marker. Return its URL for people."""
        if not self.features.issues:
            return ""
        text, name = self._bounded(with_marker(marker, body)), self._dialect.fit_title(title)

        def update() -> Issue | None:
            kept: Issue | None = None
            for issue in self.issues(marker, self.me()):
                if kept is not None:
                    self._sender.send(self._dialect.close_issue(issue.number))
                elif (issue.title == name and same_text(issue.body, text)) or (
                    self._sender.send(self._dialect.change_issue(issue.number, name, text)).status != _NOT_FOUND
                ):
                    kept = issue
            return kept

        def read(answer: WebAnswer) -> Issue | None:
            return self._dialect.read_issue(answer_object(answer.body, "the issue"))

        written = update() or self._create(self._dialect.open_issue(name, text), update, read)
        return "" if written is None else written.url

    def close_issue(self, marker: str, comment: str) -> None:
        """Close the bot's open issue with this marker, if any, with a final comment unless `comment` is empty."""
        if not self.features.issues:
            return
        text = self._bounded(comment)
        for issue in self.issues(marker, self.me()):
            self._sender.send(self._dialect.close_issue(issue.number))
            if text:
                self._comment_last(self._dialect.comment_on_issue(issue.number, text))

    # Inside

    def _read_request(self, found: JsonObject) -> ChangeRequest:
        return self._dialect.read_request(found)

    def _requests_of(self, commit: str) -> Iterator[JsonObject]:
        return self._list(self._dialect.requests_of(commit))

    def _find_merged(self, commits: Sequence[str]) -> tuple[MergedRequests, frozenset[str]]:
        """Return the requests that these commits merged, and the commits for which the forge reports none.

        The index of requests by commit lags behind a merge, by tens of seconds on GitHub. A commit that it does not
        have is searched for among the requests that ended last, which record their merge commits.
        """
        found: dict[int, ChangeRequest] = {}
        left: set[str] = set()
        unread: list[str] = []
        unsaid: dict[str, str] = {}
        for commit in dict.fromkeys(commits):
            problems: list[str] = []
            readable = self._readable(self._requests_of(commit), problems)
            known = [request for request in readable if request.state is RequestState.MERGED]
            found.update((request.number, request) for request in known)
            left.update(() if known else (commit,))
            if problems and not known:
                unsaid[commit] = problems[0]
        for request in self._ended(unread) if left else ():
            if request.state is RequestState.MERGED and request.merged_as in left:
                found[request.number] = request
                left.remove(request.merged_as)
        for commit in left if unread else ():
            unsaid.setdefault(commit, unread[0])
        said = {commit: why for commit, why in unsaid.items() if commit in left}
        return MergedRequests(tuple(found[number] for number in sorted(found)), said), frozenset(left)

    def _ended(self, unread: list[str]) -> Iterator[ChangeRequest]:
        """Yield the requests that ended last. Requests that the forge cannot show are skipped and added to `unread`.

        If one of them makes the list fail, requests are read one by one. If none can be read, the forge has failed, not
        a request. Raises RemoteError.
        """
        listed = self._dialect.list_ended()
        if listed is None:
            return
        try:
            if self._unlisted is not None:
                raise self._unlisted
            entries = list(islice(self._list(listed), _RECENT))
        except RemoteError as error:
            numbers = self._dialect.list_ended_numbers()
            if numbers is None or error.status != _BROKEN:
                raise
            self._unlisted = error
            entries = [entry for row in islice(self._list(numbers), _RECENT) for entry in self._alone(row, unread)]
            if unread and not entries:
                raise
        yield from self._readable(entries, unread)

    def _alone(self, row: JsonObject, unread: list[str]) -> Iterator[JsonObject]:
        """Yield the request in a row, looked up by number. Empty if the forge cannot show it."""
        request = self._dialect.get_request(row.number("number"))
        answer = self._sender.send(replace(request, quiet=request.quiet | {_BROKEN}))
        if answer.status == _OK:
            yield answer_object(answer.body, "the request")
        else:
            unread.append(f"the forge answers {request.method} {request.path} with status {answer.status}")

    def _readable(self, entries: Iterable[JsonObject], unread: list[str]) -> Iterator[ChangeRequest]:
        """Yield the entries that can be read. The reasons for skipping others are added to `unread`."""
        for entry in entries:
            try:
                request = self._read_request(entry)
            except RemoteError as error:
                unread.append(f"the forge lists a change request that cannot be read: {error.detail}")
            else:
                yield request

    def _get_request(self, number: int) -> JsonObject:
        answer = self._sender.send(self._dialect.get_request(_possible(number)))
        if answer.status != _OK:
            raise no_request(number)
        return answer_object(answer.body, "the request")

    def _paths(self, entries: Iterable[JsonObject]) -> tuple[str, ...]:
        return tuple(sorted({path for entry in entries for path in self._dialect.read_files(entry)}))

    def _list(
        self, request: WebRequest, *, within: str | None = None, about: int | None = None
    ) -> Iterator[JsonObject]:
        """Yield all entries of a list; none if a quiet status says that there is no list.

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

    def _bounded(self, text: str) -> str:
        if len(text) > MAX_TEXT:
            detail = f"the text has {len(text)} characters; at most {MAX_TEXT} are sent"
            raise UsageError(Code.COMMENT_TOO_LARGE, detail)
        return self._dialect.escape(text)

    def _create(self, request: WebRequest, find: Callable[[], T | None], read: Callable[[WebAnswer], T]) -> T:
        """Create an object that must not exist twice, by rule 5 of writing.

        `find` searches for it; `read` reads it from the response.
        """
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
        """Comment on a closed request. If the response is lost, there is no retry, because the comment may exist."""
        try:
            self._sender.send(request)
        except RemoteError as error:
            if not error.retryable:
                raise


def no_request(number: int) -> GitopsError:
    """Return the error for a change request that does not exist."""
    return GitopsError(Code.REQUEST_NOT_FOUND, f"change request {number} does not exist, or the token may not see it")


def _require_comment(number: int, comment: str) -> None:
    if not comment.isdecimal() or not comment.isascii():
        raise UsageError(Code.USAGE_ERROR, f"{comment[:80]!r} is not a comment on request {number}")


def _possible(number: int) -> int:
    if not 0 < number <= _LARGEST_NUMBER:
        raise no_request(number)
    return number
