"""What a push means to the bot, after the repository took it.

A topic branch that touches a cluster folder is a change request: it gets a plan. The target branch moving is a merge: it gets
applied, up to its newest commit. A new approval makes the open requests of its cluster be planned again. The ledger and
everything else are the bot's own business and mean nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gitops.bot.project import Project, Standing
from gitops.bot.report import Place, Reporter
from gitops.chain.entries import APPROVALS
from gitops.chain.trust import trust_at
from gitops.config.bot import BotConfig, ClusterRule
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import GitopsError
from gitops.model.change import Reason
from gitops.ports.forge import ChangeRequest, Forge, RequestState
from gitops.ports.git import ZERO, RefUpdate
from gitops.render.characters import visible
from gitops.workflows.apply import apply
from gitops.workflows.plan import plan
from gitops.workflows.refresh import import_cluster

_HEADS = "refs/heads/"
_OWN = "refs/heads/gitops/"


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

    def __init__(self, project: Project, book: RequestBook, *, actor: str) -> None:
        """`actor` is whom entries made by the bot name."""
        self._project = project
        self._book = book
        self._actor = actor
        self._report = Reporter(book, project.tools.clock)

    def handle(self, event: PushEvent) -> Iterator[str]:
        """Handle every ref of the push: merges first, so that plans are made against what is applied."""
        config = self._project.config()
        targets = {rule.ref for rule in config.clusters}
        for update in event.updates:
            if update.ref in targets and update.new != ZERO:
                yield from self._merged(config, update, event.pusher)
        for update in event.updates:
            if update.ref.startswith(APPROVALS) and update.new != ZERO:
                yield from self._approved(config, update.ref)
            elif update.ref.startswith(_HEADS) and update.ref not in targets and not update.ref.startswith(_OWN):
                yield from self._proposed(config, update, event.pusher)

    # -- change requests -------------------------------------------------------------------------------------------

    def _proposed(self, config: BotConfig, update: RefUpdate, pusher: str | None) -> Iterator[str]:
        target = self._project.default_ref
        source = update.ref
        if update.new == ZERO:
            for request in self._open(target):
                if request.source == source:
                    self._book.close(request.number)
                    yield f"request {request.number}: closed, its branch is gone"
            return
        rules = [r for r in config.clusters if r.ref == target and self._touches(r, target, update.new)]
        known = any(r.source == source for r in self._open(target))
        if not rules and not known:
            return
        head = self._project.tools.store.commit(update.new)
        subject = visible(head.message.partition("\n")[0].strip()[:200])
        who = visible(pusher or head.author.email or "unknown")
        request, opened = self._book.open_or_update(source, target, update.new, subject or "untitled", who)
        yield f"request {request.number}: {'opened' if opened else 'updated'} for {source.removeprefix(_HEADS)}"
        for rule in rules or [r for r in config.clusters if r.ref == target]:
            yield self._plan(rule, request)

    def _touches(self, rule: ClusterRule, target: str, head: str) -> bool:
        """Whether a branch changed the cluster folder, or what says whom to trust, since it left the target."""
        store, tip = self._project.tools.store, self._project.tip(target)
        base = None if tip is None else store.merge_base(tip, head)
        ours = store.commit(head).tree
        theirs = None if base is None else store.commit(base).tree
        return theirs is None or self._differ(rule, ours, theirs)

    def _differ(self, rule: ClusterRule, ours: str, theirs: str) -> bool:
        """Whether two root trees have another cluster folder, or say otherwise whom to trust."""
        store = self._project.tools.store
        if store.subtree(ours, rule.path) != store.subtree(theirs, rule.path):
            return True
        try:
            return trust_at(store, ours) != trust_at(store, theirs)
        except GitopsError:
            return True

    def _plan(self, rule: ClusterRule, request: ChangeRequest) -> str:
        base = self._project.tip(request.target) or ZERO
        place = Place(rule, request.number, request.head, base)
        try:
            revision = self._project.at_request(request, self._project.standing(rule))
            outcome = plan(self._project.workspace(rule, revision, actor=self._actor))
        except GitopsError as error:
            return self._report.refusal(place, "plan", _problem(error))
        if self._book.request(request.number).head != request.head:
            return f"request {request.number}: moved on meanwhile; this plan is dropped"
        return f"request {request.number}: " + self._report.plan(place, outcome)

    def _approved(self, config: BotConfig, ref: str) -> Iterator[str]:
        cluster = ref.removeprefix(APPROVALS).partition("/")[0]
        for rule in config.clusters:
            if rule.name == cluster:
                yield from self._retry(rule)
                for request in self._open(rule.ref):
                    yield self._plan(rule, request)

    def _retry(self, rule: ClusterRule) -> Iterator[str]:
        """Apply the target branch again if something that is merged waits for an approval."""
        state = self._project.tools.ledger(rule).view().state
        waiting = Reason.APPROVAL_REQUIRED.value
        tip = self._project.tip(rule.ref)
        if state is None or tip is None:
            return
        if any(waiting in s.conditions for s in state.statuses.values()) or self._project.pending_trust(rule, tip):
            yield from self._apply(rule, tip)

    def _open(self, target: str) -> list[ChangeRequest]:
        return [r for r in self._book.requests() if r.state is RequestState.OPEN and r.target == target]

    # -- merges ----------------------------------------------------------------------------------------------------

    def _merged(self, config: BotConfig, update: RefUpdate, pusher: str | None) -> Iterator[str]:
        landed = [r for r in self._open(update.ref) if self._landed(r, update)]
        for request in landed:
            self._book.mark_merged(request.number, update.new)
            yield f"request {request.number}: merged as {update.new[:12]}"
        for rule in config.clusters:
            if rule.ref == update.ref:
                own = pusher if pusher and self._adds(rule, update, landed) else None
                yield from self._converge(rule, update.new, frozenset() if own is None else frozenset({own}))
        for request in self._open(update.ref):
            # What is applied has changed, so what the others would do may have, too.
            for rule in config.clusters:
                if rule.ref == request.target and self._touches(rule, request.target, request.head):
                    yield self._plan(rule, request)

    def _adds(self, rule: ClusterRule, update: RefUpdate, landed: Sequence[ChangeRequest]) -> bool:
        """Whether a push brings more to a cluster than one request: then it is the work of who pushed it, too."""
        if update.old == ZERO or any(self._gives(update.old, r, update.new) for r in landed):
            return False
        store = self._project.tools.store
        return self._differ(rule, store.commit(update.new).tree, store.commit(update.old).tree)

    def _converge(self, rule: ClusterRule, commit: str, authors: frozenset[str]) -> Iterator[str]:
        """Apply, and again while the branch moved meanwhile.

        Whoever pushed meanwhile found the lock held and left; their commit was on the branch before that, so it is seen here.
        """
        applied = None
        while (newest := self._project.tip(rule.ref) or commit) != applied:
            applied = newest
            yield from self._apply(rule, newest, authors)

    def _landed(self, request: ChangeRequest, update: RefUpdate) -> bool:
        """Whether a request is in: its head is, or merging it would change nothing any more (squash, rebase)."""
        store = self._project.tools.store
        if store.resolve(request.head) is None:
            return False
        if store.is_ancestor(request.head, update.new):
            return True
        if update.old != ZERO and self._gives(update.old, request, update.new):
            return True
        return self._gives(update.new, request, update.new)

    def _gives(self, base: str, request: ChangeRequest, commit: str) -> bool:
        """Whether merging a request into `base` gives exactly what `commit` holds."""
        store = self._project.tools.store
        try:
            return store.merge(base, request.head).tree == store.commit(commit).tree
        except GitopsError:
            # Anybody can push a branch that cannot be merged at all; that must not stop the work of others.
            return False

    def _apply(self, rule: ClusterRule, commit: str, authors: frozenset[str] = frozenset()) -> Iterator[str]:
        project, told = self._project, tuple[ChangeRequest, ...]()
        try:
            standing = project.standing(rule)
            new, waiting = self._brought(rule, commit, standing)
            told = (*waiting, *new)
            if standing.applied is not None:
                authors |= project.contributors(rule, new, standing.applied, commit)
            workspace = project.workspace(rule, project.at_commit(commit, standing, authors), actor=self._actor)
            if standing.applied is None:
                started = import_cluster(workspace)
                if not started.ok:
                    yield self._report.refusal(self._place(rule, told, commit), "import", started.diagnostics)
                    return
                yield f"import of {rule.name}: ledger started"
            outcome = apply(workspace)
        except GitopsError as error:
            yield self._report.refusal(self._place(rule, told, commit), "apply", _problem(error))
            return
        for number in [r.number for r in told] or [0]:
            yield self._report.apply(Place(rule, number, commit, commit), outcome, outcome.approvals_used)
        for diagnostic in outcome.diagnostics:
            yield f"  {diagnostic.severity.value} {diagnostic.code} {diagnostic.path}: {diagnostic.message}"

    def _brought(
        self, rule: ClusterRule, commit: str, standing: Standing
    ) -> tuple[tuple[ChangeRequest, ...], tuple[ChangeRequest, ...]]:
        """The requests merged since what is applied, and those merged with it that still wait for something."""
        merged = [r for r in self._book.requests() if r.merged_as is not None and r.target == rule.ref]
        recent = {commit}
        if standing.applied is not None and merged:
            recent = {c.id for c in self._project.tools.store.commits_between(standing.applied, commit)}
        waiting = () if standing.settled else tuple(r for r in merged if r.merged_as == standing.applied)
        return tuple(r for r in merged if r.merged_as in recent), waiting

    def _place(self, rule: ClusterRule, told: Sequence[ChangeRequest], commit: str) -> Place:
        return Place(rule, told[-1].number if told else 0, commit, commit)


def _problem(error: GitopsError) -> tuple[Diagnostic, ...]:
    problems = Diagnostics()
    problems.add_error(error)
    return tuple(problems)
