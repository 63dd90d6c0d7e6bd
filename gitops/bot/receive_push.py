"""A repository that is its own forge: what a push means there, said in the events that every forge has.

Nobody else keeps its change requests, so this does: a topic branch that touches a cluster folder opens one or moves it, a deleted
branch closes it, and a push to the target branch that brings it in marks it as merged. What follows from that is done by the
very handlers that serve any other forge.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gitops.bot.apply_clusters import Applier
from gitops.bot.changes import adds, landed, touches
from gitops.bot.context import Bot
from gitops.bot.dispatch import Dispatcher
from gitops.bot.origins import Pushed
from gitops.bot.plan_requests import Planner
from gitops.bot.project import Project
from gitops.bot.results import Note
from gitops.config.gitops_yaml import BotConfig
from gitops.forge.port import ChangeRequest, Forge, RequestState
from gitops.git.port import ZERO, Person, RefUpdate
from gitops.ledger.chain import BRANCHES, SIGNED
from gitops.render.characters import visible

_HEADS = "refs/heads/"
_MAX_TITLE = 200


class RequestBook(Forge, Protocol):
    """A forge whose change requests the bot opens itself: a bare repository has nobody else to do it."""

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]:
        """The open request of a branch, new or moved to `head`; True if it is new."""
        ...

    def mark_merged(self, number: int, commit: str) -> ChangeRequest:
        """Note that a commit of the target branch brought it in."""
        ...

    def close(self, number: int) -> ChangeRequest:
        """Note that its branch is gone."""
        ...


@dataclass(frozen=True, slots=True)
class PushEvent:
    """An accepted push: the refs that moved, and who pushed as far as the server knows."""

    updates: Sequence[RefUpdate]
    pusher: str | None = None


class PushHandler:
    """Carries out what a push asks for, and yields one line per thing done, for the person who pushed."""

    def __init__(self, project: Project, book: RequestBook, *, actor: str, person: Person | None = None) -> None:
        """`actor` is whom entries made by the bot name; `person` commits the plans that it keeps, None keeps none."""
        self._bot = Bot(project, book, actor, person)
        self._project = project
        self._book = book

    def handle(self, event: PushEvent) -> Iterator[str]:
        """Handle every ref of the push: merges first, so that plans are made against what is applied."""
        config = self._project.config()
        targets = {rule.ref for rule in config.clusters}
        for update in event.updates:
            if update.ref in targets and update.new != ZERO:
                yield from _lines(self._merged(config, update, event.pusher))
        for update in event.updates:
            if update.ref.startswith(SIGNED) and update.new != ZERO:
                yield from _lines(Dispatcher(self._bot).signed(config, update.ref))
            elif update.ref.startswith(_HEADS) and update.ref not in targets and not update.ref.startswith(BRANCHES):
                yield from _lines(self._proposed(config, update, event.pusher))

    def _proposed(self, config: BotConfig, update: RefUpdate, pusher: str | None) -> Iterator[Note]:
        """A topic branch moved: keep its request, then plan it."""
        target, source = self._project.default_ref, update.ref
        if update.new == ZERO:
            for request in self._open(target):
                if request.source == source:
                    self._book.close(request.number)
                    yield Note(f"request {request.number}: closed, its branch is gone")
            return
        rules = [r for r in config.clusters if r.ref == target]
        touched = any(touches(self._project, r, target, update.new) for r in rules)
        if not touched and not any(r.source == source for r in self._open(target)):
            return
        head = self._project.tools.store.commit(update.new)
        subject = visible(head.message.partition("\n")[0].strip()[:_MAX_TITLE])
        who = visible(pusher or head.author.email or "unknown")
        request, opened = self._book.open_or_update(source, target, update.new, subject or "untitled", who)
        yield Note(f"request {request.number}: {'opened' if opened else 'updated'} for {source.removeprefix(_HEADS)}")
        yield from Planner(self._bot, config).request(request, self._open(target))

    def _merged(self, config: BotConfig, update: RefUpdate, pusher: str | None) -> Iterator[Note]:
        """A target branch moved: mark what it brought in, apply it, then plan what is still open."""
        brought = [r for r in self._open(update.ref) if landed(self._project, r, update)]
        for request in brought:
            self._book.mark_merged(request.number, update.new)
            yield Note(f"request {request.number}: merged as {update.new[:12]}")
        applier = Applier(self._bot, config)
        rules = [r for r in config.clusters if r.ref == update.ref]
        for rule in rules:
            own = pusher if pusher and adds(self._project, rule, update, brought) else None
            yield from applier.converge(rule, Pushed(people=frozenset() if own is None else frozenset({own})))
        for rule in rules:
            yield from applier.replan(rule)

    def _open(self, target: str) -> tuple[ChangeRequest, ...]:
        return self._book.requests(state=RequestState.OPEN, target=target)


def _lines(notes: Iterator[Note]) -> Iterator[str]:
    return (note.text for note in notes)
