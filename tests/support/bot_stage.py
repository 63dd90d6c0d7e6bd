"""A loop on a forge that has what the large ones have: reviews, verdicts, a queue, permissions, as a test says.

Requests, comments, statuses, checks, labels, reactions, deployments and issues are those of the local forge. `broken` names
methods that the forge refuses for now, and accounts of which it says nothing; `calls` counts what it was asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gitops.bot.context import Bot, ClusterReport
from gitops.bot.dispatch import handle_event
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.model.changeset import Changeset
from gitops.cluster.model.ledger import LockInfo
from gitops.core.errors import RemoteError
from gitops.forge.events import CommentEvent, Event, PushEvent
from gitops.forge.port import Account, Comment, Features, MergeOrder, Permission, Review, ReviewDecision, ReviewState
from gitops.forge.refs.local import LocalForge
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.repository.results import LogLine, RunResult, combined_result
from gitops.repository.wiring.local import LocalRepository
from tests.support.loop import APPROVALS, CLUSTER, MAIN, Loop, email

BOT = Person("bot", email("bot"))
ALICE, BOB, CAROL = "11", "12", "13"
"""Their accounts, as a loop knows them whose rules list accounts."""
WRITERS = dict.fromkeys((ALICE, BOB, CAROL), Permission.WRITE)
QUERY = b"query titles() { match { $x: Note } return { $x.title } }\n"
"""Another text of the query, which asks the same."""
LATE = "2030-01-01T00:00:00Z"
"""When a comment or review was given that is newer than any commit of a test."""


@dataclass
class StageForge:
    """See the module; whatever is not said here is the local forge's."""

    local: LocalForge
    people: dict[str, Permission]
    given: list[Review]
    verdicts: dict[int, ReviewDecision]
    broken: set[str]
    calls: Counter[str]
    before: dict[str, Callable[[], object]]
    said: dict[tuple[int, str], tuple[str, str, bool]]
    order: MergeOrder

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.local, name)
        if not callable(found):
            return found

        def asked(*arguments: Any, **named: Any) -> Any:
            self._ask(name)
            return found(*arguments, **named)

        return asked

    def _ask(self, name: str) -> None:
        self.calls[name] += 1
        if name in self.before:
            self.before.pop(name)()
        if name in self.broken:
            raise RemoteError("forge_refused", f"{name}: not now", status=403)

    @property
    def features(self) -> Features:
        return replace(self.local.features, reviews=True, review_decisions=True, permissions=True, queue=True)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Those of the local forge, with the account and the time that a test gave them, and whether they were edited."""
        self._ask("comments")
        known = ((c, self.said.get((number, c.id))) for c in self.local.comments(number))
        return tuple(
            c if told is None else replace(c, account=told[0], at=told[1], edited=told[2]) for c, told in known
        )

    def permission(self, account: Account) -> Permission:
        self._ask("permission")
        if account.id in self.broken:
            raise RemoteError("forge_refused", f"permission of {account.id}: not now", status=403)
        return self.people.get(account.id, Permission.NONE)

    def reviews(self, number: int) -> tuple[Review, ...]:
        self._ask("reviews")
        return tuple(self.given)

    def merge_order(self, branch: str) -> MergeOrder:
        self._ask("merge_order")
        return self.order

    def review_decision(self, number: int) -> ReviewDecision:
        self._ask("review_decision")
        return self.verdicts.get(number, ReviewDecision.REQUIRED)


@dataclass
class Stage:
    """One loop with its forge. Accounts are numbers; `ALICE` to `DAVE` are those of the rules that a test builds with."""

    loop: Loop
    keys: bool = True
    people: dict[str, Permission] = field(default_factory=dict)
    given: list[Review] = field(default_factory=list)
    verdicts: dict[int, ReviewDecision] = field(default_factory=dict)
    order: MergeOrder = field(default_factory=MergeOrder)
    broken: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    before: dict[str, Callable[[], object]] = field(default_factory=dict)
    told: list[ClusterReport] = field(default_factory=list)
    comments: int = 0
    spoken: dict[tuple[int, str], tuple[str, str]] = field(default_factory=dict)

    @property
    def local(self) -> LocalRepository:
        return self.loop.local()

    def forge(self) -> StageForge:
        local = self.local.forge()
        return StageForge(
            local,
            self.people,
            self.given,
            self.verdicts,
            self.broken,
            self.calls,
            self.before,
            self.spoken,
            self.order,
        )

    def bot(self) -> Bot:
        local = self.local

        def approval_publisher(cluster: str) -> ApprovalPublisher:
            return ApprovalPublisher(local.git, local.remote, BOT, str(self.loop.key("bot")), APPROVALS)

        means = approval_publisher if self.keys else None
        forge: Any = self.forge()
        local.forge_kind = "github"
        return Bot(local, forge, email("bot"), BOT, means, on_report=self.told.append)

    def handle(self, event: Event) -> list[LogLine]:
        return list(handle_event(self.bot(), event))

    def propose(
        self, who: str, branch: str, files: dict[str, bytes | None], *parents: str, message: str = "Change\n"
    ) -> str:
        """A branch with a request, of which the bot has heard nothing yet; its head."""
        head = self.loop.commit(who, files, *parents, message=message)
        ref = f"refs/heads/{branch}"
        self.loop.store.update_refs([_update(self.loop, ref, head)])
        self.loop.book.open_or_update(ref, MAIN, head, message.strip(), email(who))
        return head

    def land(self, number: int, tree_of: str | None = None) -> str:
        """A squash of a request onto main, of which the bot has heard nothing yet; the new tip."""
        loop = self.loop
        request, tip = loop.request(number), loop.tip()
        merged = loop.store.merge(tip, request.head).tree
        assert merged is not None
        new = loop.store.write_commit(
            NewCommit(merged, (tip,), Person("carol", email("carol"), 1), "squash\n"), signing_key=None
        )
        loop.store.update_refs([_update(loop, MAIN, new)])
        loop.book.mark_merged(number, new)
        return new

    def changesets(self) -> list[Changeset]:
        """Those of the cluster, the newest first."""
        ledger = self.local.ledger(self.local.config().cluster(CLUSTER))
        return [record for key in ledger.changeset_keys() if (record := ledger.changeset(key)) is not None]

    def configure(self, text: str) -> str:
        """More in `gitops.yaml` on main, pushed by nobody whom the bot heard of; the new tip."""
        known = self.loop.file(self.loop.tip(), "gitops.yaml") or b""
        new = self.loop.commit("alice", {"gitops.yaml": known + text.encode()})
        self.loop.store.update_refs([_update(self.loop, MAIN, new)])
        return new

    def pushed(self, old: str, new: str, pusher: str | None = None) -> list[LogLine]:
        return self.handle(PushEvent(MAIN, old, new, pusher))

    def say(
        self,
        account: str,
        number: int,
        body: str,
        *,
        at: str = LATE,
        event: CommentEvent | None = None,
        edited: bool = False,
    ) -> list[LogLine]:
        """A comment of an account, and what the bot answers."""
        self.loop.book.add_comment(number, f"login-{account}", body)
        comment = self.loop.book.comments(number)[-1].id
        self.spoken[(number, comment)] = (account, at, edited)
        self.last = event or CommentEvent(number, comment, Account(account, f"login-{account}"), body, at)
        return self.handle(self.last)

    def review(self, account: str, state: ReviewState, commit: str) -> None:
        self.given.append(Review(f"r{len(self.given) + 1}", Account(account, f"login-{account}"), state, commit, LATE))

    def reactions(self, number: int) -> list[str]:
        """The bot's answers to the last comment."""
        return [r.value for r in self.loop.book.reactions(number, self.last.comment)]

    last: CommentEvent = field(default_factory=lambda: CommentEvent(0, "", Account("", ""), "", LATE))


def take_lock(loop: Loop, lock_id: str = "01JZ0000000000000000000001") -> None:
    """A run that holds the lock, and is not heard of any more."""
    local = loop.local()
    rule = local.config().cluster(CLUSTER)
    local.ledger(rule).acquire(LockInfo(lock_id, "apply", "2026-01-01T00:00:00Z", 1))


def verdict(notes: Iterable[LogLine]) -> RunResult:
    """What a run came to."""
    return combined_result(note.result for note in notes)


def said(notes: Iterable[LogLine]) -> str:
    """All lines."""
    return "\n".join(note.text for note in notes)


def _update(loop: Loop, ref: str, new: str) -> Any:
    return RefUpdate(ref, loop.store.resolve(ref) or ZERO, new)
