"""Change requests on GitHub, github.com or Enterprise, over a sender.

Rules:

1. No hidden calls: a plan needs whose token it is, the list of open requests, a status, the list of comments, a comment and a
   check, six in all; and the moves of its branch where an approval opens a gate.
2. What is not repeatable is sent once. When its answer is lost, we look whether it is there before anything is sent again.
3. The bot's own comment or issue is found by its author's number and its first line; what others wrote is never touched.
4. Nothing here decides what may be applied.

The REST address of Enterprise is `https://HOST/api/v3`, its GraphQL address `https://HOST/api/graphql`: a sender for it has the
base `https://HOST/api`, which `gitops.forge.client.forge_service` makes of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.github import answers
from gitops.forge.github.requests import MAX_FILES, GitHubApi
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.paging import pages
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    CheckReport,
    CheckStatus,
    Comment,
    Deployment,
    Features,
    Permission,
    Push,
    Reaction,
    RequestState,
    Review,
    ReviewVerdict,
)
from gitops.forge.text import carries, with_marker
from gitops.forge.web import WebAnswer, WebRequest, WebSender

__all__ = ["GitHubForge"]

T = TypeVar("T")

MAX_COMMENT = 65_536
"""Characters of a comment or an issue. https://docs.github.com/en/rest/issues/comments"""

_MOST_PUSHES = 3
_BRANCHES = "refs/heads/"
_OK = 200
_NOT_FOUND = 404
_ALREADY = 422
_FEATURES = Features(
    reviews=True,
    verdicts=True,
    checks=True,
    deployments=True,
    labels=True,
    reactions=True,
    issues=True,
    permissions=True,
    branch_rules=True,
    queue=True,
    pushes=True,
)


class GitHubForge:
    """Implements Forge for one repository; safe for one thread at a time."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else.

        All adapters are given a clock; this one needs none, since GitHub says of everything when it was.
        """
        del clock
        self._sender = sender
        self._api = GitHubApi(project, sender.base)
        self._me: Account | None = None
        # Labels as they were last read, so that labels that are right already cost no call.
        self._labels: dict[int, frozenset[str]] = {}

    @property
    def features(self) -> Features:
        """Everything."""
        return _FEATURES

    # Reading

    def me(self) -> Account:
        """Whose token it is; asked once. Raises RemoteError `forge_unavailable`, `forge_refused`."""
        if self._me is None:
            self._me = answers.viewer(self._sender.send(self._api.viewer()))
        return self._me

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        branch = None if target is None else target.removeprefix(_BRANCHES)
        found = self._requests(self._api.pulls(state=state, target=branch))
        return tuple(request for request in found if state is None or request.state is state)

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:
        """The requests that any of these commits brought in, by number; one call for each commit."""
        found = {r.number: r for commit in commits for r in self._requests(self._api.pulls_of(commit))}
        return tuple(found[number] for number in sorted(found) if found[number].state is RequestState.MERGED)

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:
        """The moves of a branch, newest first, at most 300; none of a repository that is not there, or not to be seen."""
        for answer in pages(self._sender, self._api.activities(branch, project), most=_MOST_PUSHES):
            if answer.status == _OK:
                yield from map(answers.push, answers.entries(answer, "the activities"))

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        answer = self._found(number, self._sender.send(self._api.pull(number)))
        return self._seen(answers.change_request(answer_object(answer.body, "the request")))

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names included.

        Raises GitopsError `request_not_found`, RemoteError `forge_limit` for as many as GitHub does not list.
        """
        forms = self._listed(number, self._api.pull_files(number), "files")
        if len(forms) >= MAX_FILES:
            raise RemoteError(
                Code.FORGE_LIMIT, f"request {number} changes {MAX_FILES} files or more: GitHub lists no more"
            )
        return tuple(sorted({name for form in forms for name in answers.file_names(form)}))

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a request in the order in which they were given. Raises GitopsError `request_not_found`."""
        forms = self._listed(number, self._api.reviews(number), "reviews")
        return tuple(review for review in map(answers.review, forms) if review is not None)

    def verdict(self, number: int) -> ReviewVerdict:
        """What the rules of the target branch say, code owners included. Raises GitopsError `request_not_found`."""
        try:
            return answers.verdict(self._sender.send(self._api.verdict(number)))
        except RemoteError as error:
            if error.status == _NOT_FOUND:
                raise _no_request(number) from error
            raise

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        me = self.me()
        forms = self._listed(number, self._api.comments(number), "comments")
        return tuple(answers.comment(form, me) for form in forms)

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each. None for a commit that is not there."""
        found: dict[str, CheckStatus] = {}
        for answer in self._pages(self._api.statuses(commit)):
            for form in answers.entries(answer, "the statuses", "statuses"):
                status = answers.status(form, commit)
                found.setdefault(status.context, status)
        return tuple(found[context] for context in sorted(found))

    def permission(self, account: Account) -> Permission:
        """What an account may do now; NONE for strangers, and for a login that is another account's now."""
        answer = self._sender.send(self._api.permission(account.login))
        return Permission.NONE if answer.status == _NOT_FOUND else answers.permission(answer, account)

    def branch_rules(self, branch: str) -> BranchRules:
        """What rulesets enforce on a branch (short name), and its older protection as far as the token may see it."""
        rules = [form for answer in self._pages(self._api.rules(branch)) for form in answers.entries(answer, "rules")]
        return answers.branch_rules(rules, self._sender.send(self._api.protection(branch)))

    # Writing

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        text = _bounded(with_marker(marker, body))

        def create() -> bool:
            self._sender.send(self._api.add_comment(number, text))
            return True

        def update() -> bool | None:
            return self._settle_comment(number, marker, text) or None

        if update() is None:
            self._once(create, update)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, in one call."""
        self._sender.send(self._api.set_status(status))

    def report_check(self, report: CheckReport) -> None:
        """Write the check of a commit with this name; the newest of a name counts. Only tokens of apps and jobs may."""
        first, others = self._api.check(report)
        answer = self._sender.send(first)
        identifier = answer_object(answer.body, "the check").number("id")
        for output in others:
            self._sender.send(self._api.add_to_check(identifier, output))

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction: eyes, a thumb up, a thumb down."""
        if not comment.isdecimal() or not comment.isascii():
            raise UsageError(Code.USAGE_ERROR, f"{comment[:80]!r} is no comment of request {number}")
        self._sender.send(self._api.react(comment, reaction))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Put labels on a request and take labels off. Only what differs from what was last read costs a call."""
        if number not in self._labels:
            forms = self._listed(number, self._api.labels(number), "labels")
            self._labels[number] = frozenset(answers.label_names(forms))
        # GitHub's labels are the same in capitals and small letters.
        has = {label.lower() for label in self._labels[number]}
        missing = [label for label in dict.fromkeys(add) if label.lower() not in has]
        extra = [label for label in dict.fromkeys(remove) if label.lower() in has]
        # What was read is not true any more from the first of these calls on, also if one of the others fails.
        self._labels.pop(number)
        if missing:
            self._sender.send(self._api.add_labels(number, missing))
        for label in extra:
            self._sender.send(self._api.remove_label(number, label))
        self._labels[number] = frozenset((has | {m.lower() for m in missing}) - {e.lower() for e in extra})

    def record_deployment(self, deployment: Deployment) -> None:
        """Record where a deployment stands, in the bot's one deployment of that commit to that environment."""
        identifier = self._deployment(deployment)
        if identifier is None:
            identifier = self._once(
                lambda: _identifier(self._sender.send(self._api.open_deployment(deployment))),
                lambda: self._deployment(deployment),
            )
        self._sender.send(self._api.set_deployment(identifier, deployment))

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target`, opened or given this title and text.

        Raises RemoteError `forge_refused`, also where GitHub does not let jobs open requests.
        """
        head, base = source.removeprefix(_BRANCHES), target.removeprefix(_BRANCHES)
        text = _bounded(body)

        def update() -> WebAnswer | None:
            found = self._requests(self._api.pulls(state=RequestState.OPEN, target=base, head=head))
            own = [request for request in found if not request.fork]
            return self._sender.send(self._api.change_pull(own[0].number, title, text)) if own else None

        def create() -> WebAnswer:
            return self._sender.send(self._api.open_pull(head, base, title, text))

        answer = update() or self._once(create, update)
        return self._seen(answers.change_request(answer_object(answer.body, "the request")))

    def withdraw(self, number: int, remark: str) -> None:
        """Close an open request, with a last comment. Raises GitopsError `request_not_found`.

        Closed first: if anything is lost and this is done again, there is no second comment.
        """
        text = _bounded(remark)
        if self.request(number).state is RequestState.OPEN:
            self._sender.send(self._api.close_pull(number))
            self._sender.send(self._api.add_comment(number, text))

    def upsert_issue(self, marker: str, title: str, body: str) -> str:
        """Write the bot's one open issue with this marker, or update it; returns its address for people."""
        text = _bounded(with_marker(marker, body))

        def update() -> WebAnswer | None:
            number = self._issue(marker)
            if number is None:
                return None
            return self._sender.send(self._api.change_issue(number, {"title": title, "body": text}))

        answer = update() or self._once(lambda: self._sender.send(self._api.open_issue(title, text)), update)
        return answer_object(answer.body, "the issue").text_or("html_url")

    def close_issue(self, marker: str, remark: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment."""
        number = self._issue(marker)
        if number is None:
            return
        try:
            self._sender.send(self._api.add_comment(number, _bounded(remark)))
        except RemoteError as error:
            # The remark may be there although its answer was lost, and the issue ends without it as well.
            if not error.retryable:
                raise
        self._sender.send(self._api.change_issue(number, {"state": "closed", "state_reason": "completed"}))

    # Inside

    def _settle_comment(self, number: int, marker: str, text: str) -> bool:
        """Bring the bot's comment with this marker to a text and remove its twins; whether there is one."""
        own = [c for c in self.comments(number) if c.marker is not None and carries(c.body, marker)]
        # The oldest stays, so that all who race keep the same one.
        for twin in own[1:]:
            self._sender.send(self._api.remove_comment(twin.id))
        if not own:
            return False
        if _plain(own[0].body) == _plain(text):
            return True
        answer = self._sender.send(self._api.change_comment(own[0].id, text))
        return answer.status != _NOT_FOUND

    def _once(self, create: Callable[[], T], look: Callable[[], T | None]) -> T:
        """Make something that must not be there twice.

        After a lost answer, and where GitHub says that there is one already, it looks; only what is not there is made again.
        """
        try:
            return create()
        except RemoteError as error:
            if not error.retryable and error.status != _ALREADY:
                raise
            found = look()
            if found is not None:
                return found
            if not error.retryable:
                raise
        return create()

    def _deployment(self, deployment: Deployment) -> int | None:
        me = self.me()
        for answer in self._pages(self._api.deployments(deployment)):
            for form in answers.entries(answer, "deployments"):
                creator = form.optional("creator")
                if creator is not None and answers.account(creator).id == me.id:
                    return form.number("id")
        return None

    def _issue(self, marker: str) -> int | None:
        me = self.me()
        for answer in self._pages(self._api.issues(me.login)):
            for form in answers.entries(answer, "issues"):
                # A request is an issue, too.
                if form.has("pull_request") or form.text("state") != "open":
                    continue
                found = answers.comment(form, me)
                if found.marker is not None and carries(found.body, marker):
                    return form.number("number")
        return None

    def _requests(self, request: WebRequest) -> list[ChangeRequest]:
        """Change requests of all pages of a list, by number; none for an answer that says that there is no such thing."""
        forms = [form for answer in self._pages(request) for form in answers.entries(answer, "requests")]
        found = {read.number: read for read in map(answers.change_request, forms)}
        return [self._seen(found[number]) for number in sorted(found)]

    def _seen(self, request: ChangeRequest) -> ChangeRequest:
        self._labels[request.number] = frozenset(request.labels)
        return request

    def _listed(self, number: int, request: WebRequest, what: str) -> list[JsonObject]:
        """Everything in a list about a request. Raises GitopsError `request_not_found`."""
        found = (self._found(number, answer) for answer in pages(self._sender, request))
        return [form for answer in found for form in answers.entries(answer, what)]

    def _found(self, number: int, answer: WebAnswer) -> WebAnswer:
        if answer.status == _NOT_FOUND:
            raise _no_request(number)
        return answer

    def _pages(self, request: WebRequest) -> Iterable[WebAnswer]:
        """All pages of a list; none when the first is a quiet no."""
        return (answer for answer in pages(self._sender, request) if answer.status not in request.quiet)


def _no_request(number: int) -> GitopsError:
    return GitopsError(Code.REQUEST_NOT_FOUND, f"there is no change request {number}, or the token may not see it")


def _identifier(answer: WebAnswer) -> int:
    """The number of a deployment that was made. Raises RemoteError `forge_unavailable` for an answer without one."""
    return answer_object(answer.body, "the deployment").number("id")


def _bounded(text: str) -> str:
    if len(text) > MAX_COMMENT:
        raise UsageError(Code.COMMENT_TOO_LARGE, f"the text has {len(text)} characters; GitHub takes {MAX_COMMENT}")
    return text


def _plain(text: str) -> str:
    """A text as it is compared: a forge may change ends of lines."""
    return text.replace("\r\n", "\n").rstrip()
