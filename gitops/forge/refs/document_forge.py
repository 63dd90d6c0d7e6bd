"""A forge whose change requests are documents behind refs: what it does with them, whatever keeps the refs.

It has no accounts, no reviews, and no branch rules but those of its hook. Rules:

1. Who may give commands is set by the operator of the repository, in a place that no push reaches. All others have no
   permission.
2. Approvals are signed commits here and nothing else: there are no reviews and no review decision.
3. Branch rules are those that the hook enforces where it is installed, and unknown where it is not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.forge.port import (
    Account,
    BranchRules,
    ChangeRequest,
    Comment,
    Features,
    MergedRequests,
    Permission,
    Push,
    Reaction,
    RequestState,
    Review,
    ReviewDecision,
)
from gitops.forge.refs import records
from gitops.forge.refs.documents import REACTIONS, ReactionDocument
from gitops.forge.refs.records import DocumentFolder, PushedBranch
from gitops.forge.refs.reports import Amend, DocumentReports
from gitops.git.port import Person

__all__ = ["DocumentForge", "OperatorSettings"]

_OWN = "gitops/"


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What the operator of a repository has set, read when it is needed.

    `people` are those who may give commands, by the name that the server knows them by. `guarded` are the branches (short
    names) that the installed hook protects; None where no hook is installed, or where that cannot be seen.
    """

    people: Callable[[], Mapping[str, Permission]] = dict
    guarded: Callable[[], Collection[str] | None] = lambda: None


class DocumentForge(DocumentReports):
    """Implements Forge, and what a forge does by itself: opening, merging and closing requests, comments of people."""

    def __init__(self, bot: Person, clock: Clock, settings: OperatorSettings) -> None:
        """`bot` writes comments and issues, and knows its own by its name."""
        super().__init__(bot, clock)
        self._settings = settings

    # How documents are kept

    @abstractmethod
    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""

    @abstractmethod
    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes, sorted. Raises GitopsError `request_not_found`."""

    @abstractmethod
    def _all(self) -> tuple[ChangeRequest, ...]:
        """All requests, by number."""

    @abstractmethod
    def _tip(self, branch: str) -> str:
        """The head of a branch (full ref name). Raises GitopsError `git_object_missing`."""

    @abstractmethod
    def _push(self, push: PushedBranch, text: str | None) -> tuple[ChangeRequest, bool]:
        """The open request after a push, with a text if one is given, and whether it was opened now."""

    def _request_folder(self, number: int) -> DocumentFolder:
        ref = records.meta_ref(number)
        folder = None if records.number_of(ref) is None else self._folder(ref)
        if folder is None:
            raise records.not_found(number)
        records.read_request(folder, number)
        return folder

    def _amend_request(self, number: int, what: str, change: Amend) -> DocumentFolder:
        ref, missing = records.meta_ref(number), records.not_found(number)
        if records.number_of(ref) is None:
            raise missing

        def amend(folder: DocumentFolder) -> Mapping[str, bytes]:
            records.read_request(folder, number)
            return change(folder)

        return self._amend(ref, f"request {number}: {what}", amend, missing)

    # The bot, people and branches

    @property
    def features(self) -> Features:
        """What this forge offers."""
        return Features(
            checks=True,
            deployments=True,
            labels=True,
            reactions=True,
            issues=True,
            permissions=bool(self._settings.people()),
            branch_rules=self._settings.guarded() is not None,
        )

    def me(self) -> Account:
        """Who the bot is: what it commits as."""
        return Account(self._bot.email, self._bot.name, bot=True)

    def permission(self, account: Account) -> Permission:
        """What the operator permits an account."""
        return self._settings.people().get(account.id, Permission.NONE)

    def branch_rules(self, branch: str) -> BranchRules:
        """What the installed hook enforces on a branch (short name)."""
        known = self._settings.guarded()
        if known is None:
            return BranchRules()
        guarded = branch.startswith(_OWN) or branch in known
        return BranchRules(
            protected=guarded,
            request_needed=False,
            force_push=not guarded,
            deletion=not guarded,
            required_checks=(),
            queue=False,
        )

    # Requests

    def requests(self, *, state: RequestState | None = None, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Change requests, by number: all, or those of a state and a target (full ref name)."""
        return tuple(r for r in self._all() if state in (None, r.state) and target in (None, r.target))

    def merged_by(self, commits: Sequence[str]) -> MergedRequests:
        """The requests that any of these commits merged."""
        wanted = frozenset(commits)
        return MergedRequests(tuple(request for request in self._all() if request.merged_as in wanted))

    def pushes(self, branch: str, project: str = "") -> Iterator[Push]:  # noqa: ARG002 - nothing to ask
        """None are kept: a request names who pushed to it, and the hook sees who pushes to a target."""
        return iter(())

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]:
        """The open request of `source` into `target` (full ref names) with the new head; opened if there is none.

        The second value says whether it was opened now. `head` must be in the store. Raises IntegrityError
        `request_invalid` for a title or pusher that is not one plain line.
        """
        return self._push(PushedBranch(source, target, head, title, pusher), None)

    def propose(self, source: str, target: str, title: str, body: str) -> ChangeRequest:
        """The one open request of branch `source` into `target`, opened or updated.

        Raises GitopsError `git_object_missing` when there is no such branch, UsageError `comment_too_large`.
        """
        push = PushedBranch(source, target, self._tip(source), title, self._bot.email)
        return self._push(push, body)[0]

    def withdraw(self, number: int, comment: str) -> None:
        """Close an open request, with a last comment. Raises GitopsError `request_not_found`."""
        if records.read_request(self._request_folder(number), number).state is RequestState.OPEN:
            self.close(number)
            self.add_comment(number, self.identity, comment)

    def mark_merged(self, number: int, commit: str) -> ChangeRequest:
        """Record that `commit` on the target branch brought the request in.

        Raises GitopsError `request_not_found`, `request_closed` if it is closed, or merged as another commit.
        """
        state = RequestState.MERGED
        return self._change(number, state.value, lambda request: records.end_request(request, state, commit))

    def close(self, number: int) -> ChangeRequest:
        """Close a request without merging it. Raises GitopsError `request_not_found`, `request_closed` if it is merged."""
        state = RequestState.CLOSED
        return self._change(number, state.value, lambda request: records.end_request(request, state))

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels. Raises GitopsError `request_not_found`."""

        def relabelled(request: ChangeRequest) -> ChangeRequest:
            # A label in both lists is added.
            return replace(request, labels=tuple(sorted({*request.labels} - {*remove} | {*add})))

        self._change(number, "labels", relabelled)

    def _change(self, number: int, what: str, change: Callable[[ChangeRequest], ChangeRequest]) -> ChangeRequest:
        def amend(folder: DocumentFolder) -> Mapping[str, bytes]:
            request = records.read_request(folder, number)
            after = change(request)
            return {} if after == request else records.request_files(after)

        return change(records.read_request(self._amend_request(number, what, amend), number))

    # Reviews: approvals are signed commits here

    def reviews(self, number: int) -> tuple[Review, ...]:
        """None. Raises GitopsError `request_not_found`."""
        self._request_folder(number)
        return ()

    def review_decision(self, number: int) -> ReviewDecision:
        """Unknown. Raises GitopsError `request_not_found`."""
        self._request_folder(number)
        return ReviewDecision.UNKNOWN

    # Comments

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        return records.read_comments(self._request_folder(number), self.identity)

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's comment with this marker, or update it in place.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        self._comment(number, self.identity, marker, body)

    def add_comment(self, number: int, author: str, body: str) -> None:
        """Write a person's comment. Raises as `upsert_comment`, and IntegrityError `request_invalid` for its author."""
        self._comment(number, author, None, body)

    def _comment(self, number: int, author: str, marker: str | None, body: str) -> None:
        at = self._now()
        self._amend_request(
            number,
            "comment",
            lambda folder: records.comment_files(folder, body, author=author, at=at, marker=marker),
        )

    def react(self, number: int, comment: str, reaction: Reaction) -> None:
        """Answer a comment by a reaction. Raises GitopsError `request_not_found`, also if there is no such comment."""

        def change(folder: DocumentFolder) -> Mapping[str, bytes]:
            if folder.read(f"comments/{comment}.json") is None:
                raise GitopsError(Code.REQUEST_NOT_FOUND, f"comment {comment[:80]!r} does not exist")
            given = _read_reactions(folder, comment)
            if reaction in given:
                return {}
            return {f"reactions/{comment}.json": REACTIONS.write(ReactionDocument(comment, (*given, reaction)))}

        self._amend_request(number, "reaction", change)

    def reactions(self, number: int, comment: str) -> tuple[Reaction, ...]:
        """The bot's answers to a comment. Raises GitopsError `request_not_found`."""
        return _read_reactions(self._request_folder(number), comment)


def _read_reactions(folder: DocumentFolder, comment: str) -> tuple[Reaction, ...]:
    data = folder.read(f"reactions/{comment}.json")
    return () if data is None else REACTIONS.read(data).reactions
