"""What an event means to the bot, whoever brings it: a job with an event file, a hook, or a server.

An event says where to look, and no more. Whatever it says of heads, authors and states is asked for anew.

    request opened or moved, review      plan the request (a review is attested first, where the rules let it count)
    an earlier job looked at a commit    plan the open requests that have it as their head
    comment                              carry out the command in it
    push to a target branch              apply its newest commit, then plan the other open requests again
    push of a new approval               apply what waited for it, then plan the open requests of its cluster again
    a merge queue asks                   verify the group
    time, or by hand                     sweep, look for drift; by hand also a plan or an apply, as the inputs say
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gitops.bot.apply_clusters import Applier
from gitops.bot.attestations import Attester
from gitops.bot.changes import adds
from gitops.bot.comment_commands import Commander
from gitops.bot.context import Bot
from gitops.bot.drift import Drifter
from gitops.bot.merge_queue import Verifier
from gitops.bot.origins import Pushed
from gitops.bot.plan_requests import Planner
from gitops.bot.results import Note, Verdict
from gitops.bot.sweep import Sweeper
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.errors import GitopsError
from gitops.forge.events import (
    CommentEvent,
    Event,
    HeadEvent,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TimerEvent,
)
from gitops.forge.port import ChangeRequest, RequestState
from gitops.git.port import ZERO, RefUpdate
from gitops.ledger.chain import SIGNED

__all__ = ["Dispatcher"]


class Dispatcher:
    """Handles events of one repository, one at a time; every handler may be run again and then changes nothing more."""

    def __init__(self, bot: Bot) -> None:
        """Read the rules anew with every event: `gitops.yaml` of the target branch may be another by then."""
        self._bot = bot
        self._project = bot.project

    def handle(self, event: Event) -> Iterator[Note]:
        """Do what an event asks for, and yield one line per thing done. Raises GitopsError where the rules cannot be read."""
        match event:
            case RequestEvent() | ReviewEvent() | HeadEvent():
                yield from self.plan(event)
            case CommentEvent():
                yield from self.command(event)
            case PushEvent():
                yield from self.apply(event)
            case QueueEvent():
                yield from self.verify(event)
            case TimerEvent() | ManualEvent():
                yield from self.sweep()
                yield from self.drift()
            case IgnoredEvent():
                yield Note(f"nothing to do: {event.why}")

    def plan(self, event: Event) -> Iterator[Note]:
        """Plan the requests that an event speaks of; by hand the one of the input `request`, or all that are open."""
        planner = Planner(self._bot, self._config())
        match event:
            case RequestEvent(action=RequestAction.CLOSED | RequestAction.MERGED):
                yield Note(f"request {event.number} is {event.action}: nothing to plan")
            case RequestEvent():
                yield from planner.chosen(lambda r: r.number == event.number)
            case ReviewEvent():
                yield from self._reviewed(event.number)
                yield from planner.chosen(lambda r: r.number == event.number)
            case HeadEvent():
                yield from self._reviewed_head(event.head)
                yield from planner.chosen(lambda r: r.head == event.head)
            case ManualEvent():
                wanted = dict(event.inputs).get("request", "")
                yield from planner.chosen(lambda r: wanted in ("", str(r.number)))
            case _:
                yield _not_for("plan", event)

    def command(self, event: Event) -> Iterator[Note]:
        """Carry out the command of a comment."""
        if isinstance(event, CommentEvent):
            yield from Commander(self._bot, self._config()).run(event)
        else:
            yield _not_for("command", event)

    def apply(self, event: Event, only: str | None = None) -> Iterator[Note]:
        """Bring the clusters of a branch to its newest commit; without a push, all clusters, or the one called `only`."""
        config = self._config()
        applier = Applier(self._bot, config)
        if isinstance(event, PushEvent):
            if event.ref.startswith(SIGNED) and event.new != ZERO:
                yield from self.signed(config, event.ref)
                return
            rules = [r for r in config.clusters if r.ref == event.ref and event.new != ZERO]
            for rule in rules:
                yield from applier.converge(rule, self._behind(rule, event))
            for rule in rules:
                yield from applier.replan(rule)
            if not rules:
                yield Note(f"no cluster follows {event.ref}")
            return
        if not isinstance(event, ManualEvent | TimerEvent):
            yield _not_for("apply", event)
            return
        for rule in config.clusters:
            if only in (None, rule.name):
                yield from applier.converge(rule)
                yield from applier.replan(rule)

    def signed(self, config: BotConfig, ref: str) -> Iterator[Note]:
        """Something was approved, taken back or countersigned: what waits for it may go on, and plans say otherwise."""
        applier = Applier(self._bot, config)
        for rule in config.clusters:
            if ref.startswith(tuple(f"{folder}{rule.name}/" for folder in SIGNED)):
                yield from applier.retry(rule)
                yield from applier.replan(rule)

    def verify(self, event: Event) -> Iterator[Note]:
        """Say whether a group of a merge queue does what was reviewed."""
        if isinstance(event, QueueEvent):
            yield from Verifier(self._bot, self._config()).group(event)
        else:
            yield _not_for("verify", event)

    def sweep(self, only: str | None = None) -> Iterator[Note]:
        """Apply what is merged and was never applied."""
        yield from Sweeper(self._bot, self._config()).sweep(only)

    def drift(self, only: str | None = None) -> Iterator[Note]:
        """Tell what is otherwise than recorded."""
        yield from Drifter(self._bot, self._config()).look(only)

    def _config(self) -> BotConfig:
        return self._project.config()

    def _reviewed(self, number: int) -> Iterator[Note]:
        """Attest the reviews of a request, where that may count."""
        yield from self._attested(self._config(), self._bot.forge.request(number))

    def _reviewed_head(self, head: str) -> Iterator[Note]:
        """The same for requests at a head: the job that a review itself starts may have no key, but a later one has."""
        config = self._config()
        attester = Attester(self._bot, config)
        if any(attester.counts(rule) for rule in config.clusters):
            for request in self._bot.forge.requests(state=RequestState.OPEN):
                if request.head == head:
                    yield from self._attested(config, request)

    def _attested(self, config: BotConfig, request: ChangeRequest) -> Iterator[Note]:
        attester = Attester(self._bot, config)
        for rule in (r for r in config.clusters if r.ref == request.target):
            try:
                yield from attester.reviews(rule, request)
            except GitopsError as error:
                yield Note(f"reviews of request {request.number}: {error.code}: {error.detail}")

    def _behind(self, rule: ClusterRule, event: PushEvent) -> Pushed:
        """What a push brought, and who pushed it, if that brought more to a cluster than a request did."""
        if event.pusher is None:
            return Pushed()
        requests: tuple[ChangeRequest, ...] = self._bot.forge.merged_by([event.new])
        commits = frozenset({event.new})
        with suppress(GitopsError):
            self._project.bring(event.new)
            self._project.fetch_heads(requests)
            if event.old != ZERO:
                between = self._project.tools.store.commits_between(event.old, event.new, first_parent=True)
                commits = frozenset(commit.id for commit in between)
            if not adds(self._project, rule, RefUpdate(event.ref, event.old, event.new), requests):
                return Pushed(commits)
        trust = self._project.standing(rule).trust
        number = event.pusher.partition(":")[2] or event.pusher
        known = () if trust is None else trust.accounts
        same = {name for account, name in known if account.partition(":")[2] == number}
        return Pushed(commits, frozenset({event.pusher, *same}))


def _not_for(verb: str, event: Event) -> Note:
    if isinstance(event, IgnoredEvent):
        return Note(f"nothing to do: {event.why}")
    return Note(f"{type(event).__name__} is nothing for gitops bot {verb}", Verdict.DONE)
