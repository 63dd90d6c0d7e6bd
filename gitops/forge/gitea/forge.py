"""Change requests on Gitea and Forgejo, over a sender.

Rules:

1. What is not repeatable is sent once. When its answer is lost, we look whether it is there before anything is sent again.
2. The bot's own comment or issue is found by its author's number and its first line; what others wrote is never touched.
3. Lists are read page by page until one is empty or the number is reached that the forge names: an instance may give shorter
   pages than are asked for, so a short page is not the last one.
4. There are no checks with notes, deployments, merge queues and verdicts here: what the bot would say there is in its status
   and its comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.forge.gitea import answers
from gitops.forge.gitea.requests import PAGE, GiteaApi
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.paging import MOST_PAGES
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
from gitops.forge.refs.records import MAX_COMMENT, selected
from gitops.forge.text import carries, with_marker
from gitops.forge.web import WebAnswer, WebRequest, WebSender

__all__ = ["GiteaForge"]

T = TypeVar("T")

_BRANCHES = "refs/heads/"
_NOT_FOUND = 404
_ALREADY = 409
_FEATURES = Features(reviews=True, labels=True, reactions=True, issues=True, permissions=True, branch_rules=True)


class GiteaForge:
    """Implements Forge for one repository; safe for one thread at a time."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else.

        All adapters are given a clock; this one needs none, since the forge says of everything when it was.
        """
        del clock
        self._sender = sender
        self._api = GiteaApi(project, sender.base)
        self._me: Account | None = None

    @property
    def features(self) -> Features:
        """All but checks, deployments, verdicts and queues."""
        return _FEATURES

    # Reading

    def me(self) -> Account:
        """Whose token it is; asked once. Raises RemoteError `forge_unavailable`, `forge_refused`."""
        if self._me is None:
            answer = self._sender.send(self._api.user())
            # Gitea has no sign for bots but that of its own jobs; this account is one, whatever it is called.
            self._me = replace(answers.account(answer_object(answer.body, "the user")), bot=True)
        return self._me

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        branch = None if target is None else target.removeprefix(_BRANCHES)
        forms = self._listed(self._api.pulls(state=state, target=branch), "requests")
        # A list that changes while it is read may name a request twice.
        found = {read.number: read for read in map(answers.change_request, forms)}
        return selected((found[number] for number in sorted(found)), state, target)

    def merged_by(self, commits: Sequence[str]) -> tuple[ChangeRequest, ...]:
        """The requests that any of these commits brought in, by number; one call for each commit.

        Of a request that was rebased only the last commit is known.
        """
        found: dict[int, ChangeRequest] = {}
        for commit in dict.fromkeys(commits):
            answer = self._sender.send(self._api.pull_of(commit))
            if answer.status != _NOT_FOUND:
                request = answers.change_request(answer_object(answer.body, "the request"))
                found[request.number] = request
        return tuple(found[number] for number in sorted(found) if found[number].state is RequestState.MERGED)

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - nothing to ask
        """Unknown: the feeds of Gitea keep no ids of commits by which one could tell that none is missing."""
        return iter(())

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        answer = _found(number, self._sender.send(self._api.pull(number)))
        return answers.change_request(answer_object(answer.body, "the request"))

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted, old names included. Raises GitopsError `request_not_found`."""
        forms = self._listed(self._api.pull_files(number), "files", number=number)
        return tuple(sorted({name for form in forms for name in answers.file_names(form)}))

    def reviews(self, number: int) -> tuple[Review, ...]:
        """All reviews of a request in the order in which they were given. Raises GitopsError `request_not_found`."""
        forms = self._listed(self._api.reviews(number), "reviews", number=number)
        found = [review for review in map(answers.review, forms) if review is not None]
        return tuple(sorted(found, key=lambda review: (review.at, int(review.id))))

    def verdict(self, number: int) -> ReviewVerdict:  # noqa: ARG002 - it tells of none
        """Unknown: Gitea counts official reviews when it merges, and does not tell beforehand."""
        return ReviewVerdict.UNKNOWN

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        me = self.me()
        answer = _found(number, self._sender.send(self._api.comments(number)))
        return tuple(answers.comment(form, me) for form in answers.entries(answer, "comments"))

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context; the newest of each. None for a commit that is not there."""
        found: dict[str, CheckStatus] = {}
        for form in self._listed(self._api.statuses(commit), "the statuses", within="statuses"):
            status = answers.status(form, commit)
            found.setdefault(status.context, status)
        return tuple(found[context] for context in sorted(found))

    def permission(self, account: Account) -> Permission:
        """What an account may do now; NONE for strangers, and for a login that is another account's now.

        Raises RemoteError `forge_refused` for a token that does not administer the repository: only those may ask.
        """
        answer = self._sender.send(self._api.permission(account.login))
        return Permission.NONE if answer.status == _NOT_FOUND else answers.permission(answer, account)

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name), as far as the token may see it; unknown for one that is not there."""
        answer = self._sender.send(self._api.branch(branch))
        if answer.status == _NOT_FOUND:
            return BranchRules(notes=(f"there is no branch {branch[:100]!r}",))
        rule = answers.protected_by(answer)
        if rule is None:
            return answers.unprotected()
        protection = self._sender.send(self._api.protection(rule)) if rule else None
        return answers.branch_rules(answer, protection)

    # Writing

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's one comment with this marker, or update it in place.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        text = _bounded(with_marker(marker, body))

        def update() -> bool | None:
            return self._settle_comment(number, marker, text) or None

        if update() is None:
            _once(lambda: bool(_found(number, self._sender.send(self._api.add_comment(number, text)))), update)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, in one call."""
        self._sender.send(self._api.set_status(status))

    def report_check(self, report: CheckReport) -> None:
        """Nothing: there are no checks with notes here."""

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction: eyes, a thumb up, a thumb down."""
        if not comment.isdecimal() or not comment.isascii():
            raise UsageError(Code.USAGE_ERROR, f"{comment[:80]!r} is no comment of request {number}")
        self._sender.send(self._api.react(comment, reaction))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Put labels on a request and take labels off; a label that the repository lacks is made.

        Raises GitopsError `request_not_found`, UsageError `usage_error` for a name that is longer than Gitea takes.
        """
        if not add and not remove:
            return
        forms = answers.entries(_found(number, self._sender.send(self._api.labels(number))), "labels")
        has = {form.text("name"): form.number("id") for form in forms}
        missing = [label for label in dict.fromkeys(add) if label not in has]
        if missing:
            self._sender.send(self._api.add_labels(number, self._label_numbers(missing)))
        for label in dict.fromkeys(remove):
            if label in has and label not in add:
                self._sender.send(self._api.remove_label(number, has[label]))

    def record_deployment(self, deployment: Deployment) -> None:
        """Nothing: there are no deployments here."""

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target`, opened or given this title and text."""
        head, base, text = source.removeprefix(_BRANCHES), target.removeprefix(_BRANCHES), _bounded(body)

        def update() -> WebAnswer | None:
            known = self.requests(state=RequestState.OPEN, target=target)
            own = [request for request in known if request.source == source and not request.fork]
            return self._sender.send(self._api.change_pull(own[0].number, title, text)) if own else None

        def create() -> WebAnswer:
            return self._sender.send(self._api.open_pull(head, base, title, text))

        answer = update() or _once(create, update)
        return answers.change_request(answer_object(answer.body, "the request"))

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
            known = self._issues(marker)
            # The oldest stays, so that all who race keep the same one.
            for twin in known[1:]:
                self._sender.send(self._api.change_issue(twin, {"state": "closed"}))
            return (
                self._sender.send(self._api.change_issue(known[0], {"title": title, "body": text})) if known else None
            )

        answer = update() or _once(lambda: self._sender.send(self._api.open_issue(title, text)), update)
        return answer_object(answer.body, "the issue").text_or("html_url")

    def close_issue(self, marker: str, remark: str) -> None:
        """Close the bot's open issue with this marker, if there is one, with a last comment."""
        text = _bounded(remark)
        for number in self._issues(marker):
            # Closed first: whoever does this again finds it closed, and says nothing twice.
            self._sender.send(self._api.change_issue(number, {"state": "closed"}))
            self._sender.send(self._api.add_comment(number, text))

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
        return self._sender.send(self._api.change_comment(own[0].id, text)).status != _NOT_FOUND

    def _label_numbers(self, names: Sequence[str]) -> list[int]:
        """The numbers of labels of the repository; those that it lacks are made."""
        known = {form.text("name"): form.number("id") for form in self._listed(self._api.all_labels(), "labels")}
        return [known.get(name) or self._make_label(name) for name in names]

    def _make_label(self, name: str) -> int:
        answer = self._sender.send(self._api.make_label(name))
        return answer_object(answer.body, "the label").number("id")

    def _issues(self, marker: str) -> list[int]:
        """Numbers of the bot's open issues with this marker, oldest first."""
        me, found = self.me(), []
        for form in self._listed(self._api.issues(me.login), "issues"):
            # A request is an issue, too.
            if form.has("pull_request") or form.text("state") != "open":
                continue
            seen = answers.comment(form, me)
            if seen.marker is not None and carries(seen.body, marker):
                found.append(form.number("number"))
        return sorted(found)

    def _listed(
        self, request: WebRequest, what: str, *, within: str | None = None, number: int | None = None
    ) -> list[JsonObject]:
        """Everything in a list, by rule 3; nothing where the forge quietly says that there is no such thing.

        Raises GitopsError `request_not_found` for that, where `number` is given, and RemoteError `forge_limit`.
        """
        found: list[JsonObject] = []
        for page in range(1, MOST_PAGES + 1):
            query = (*request.query, ("page", str(page)), ("limit", str(PAGE)))
            answer = self._sender.send(replace(request, query=query))
            if answer.status in request.quiet:
                return found if number is None else answers.entries(_found(number, answer), what)
            forms = answers.entries(answer, what, within)
            found += forms
            total = answer.headers.get("x-total-count", "")
            if not forms or (total.isdecimal() and len(found) >= int(total)):
                return found
        raise RemoteError(Code.FORGE_LIMIT, f"{request.path} has more than {MOST_PAGES} pages")


def _once(create: Callable[[], T], look: Callable[[], T | None]) -> T:
    """Make something that must not be there twice: after a lost answer, or a no because it is there, one looks for it."""
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


def _found(number: int, answer: WebAnswer) -> WebAnswer:
    if answer.status == _NOT_FOUND:
        raise GitopsError(Code.REQUEST_NOT_FOUND, f"there is no change request {number}, or the token may not see it")
    return answer


def _bounded(text: str) -> str:
    if len(text) > MAX_COMMENT:
        raise UsageError(
            Code.COMMENT_TOO_LARGE, f"the text has {len(text)} characters; at most {MAX_COMMENT} are taken"
        )
    return text


def _plain(text: str) -> str:
    """A text as it is compared: a forge may change ends of lines."""
    return text.replace("\r\n", "\n").rstrip()
