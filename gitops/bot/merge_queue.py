"""Merge queues: whether a group of requests, merged on top of whatever is in front of it, does what was reviewed.

1. The group's head is planned as if it were the tip of its target: against the ledger, with the approvals that count there.
2. Every open request that the group brings in is found by git: its head is in it, or merging it gives what the group holds.
3. The plan that people saw of a request is the one kept behind its ref for that very head. Where none is kept (a host that
   takes no such refs), the request is planned again on the target as it is. The first can be moved by whoever may push: that
   hides a difference from this check and nothing else, because gates are always decided by what is computed here.
4. The group passes if its plan has no error, every gate is open, and its digest is the one that was seen. A group behind
   another one that changes the same cluster therefore fails, and passes once the one in front is applied and the new plan has
   been seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gitops.bot.authors import Pushers, opened
from gitops.bot.changes import differ, gives
from gitops.bot.context import Bot, Place
from gitops.bot.kept_plans import kept
from gitops.bot.project import Revision, Standing
from gitops.bot.report import Extras, Reporter
from gitops.bot.results import Note, problem_of
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.forge.events import QueueEvent
from gitops.forge.port import ChangeRequest, RequestState, ReviewVerdict
from gitops.model.outcome import PlanOutcome
from gitops.plan.plan import plan

__all__ = ["Verifier"]


class Verifier:
    """Verifies groups of a merge queue under the rules of the target branch."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._report = Reporter(bot, config)
        self._pushers = Pushers(bot)

    def group(self, event: QueueEvent) -> Iterator[Note]:
        """Verify one group for every cluster of its target."""
        rules = [r for r in self._config.clusters if r.ref == event.target]
        self._project.bring(event.head, event.base)
        requests = self._members(event)
        for rule in rules:
            place = Place(rule, 0, event.head, event.base)
            store = self._project.tools.store
            if differ(self._project, rule, store.commit(event.head).tree, store.commit(event.base).tree):
                yield from self._verify(place, requests)
            else:
                yield from self._report.untouched(place)
                yield Note(f"queue: the group does not touch {rule.name}")
        if not rules:
            yield Note(f"no cluster follows {event.target.removeprefix('refs/heads/')}")

    def _members(self, event: QueueEvent) -> tuple[ChangeRequest, ...]:
        """The open requests that the group brings in on top of its base."""
        store = self._project.tools.store
        requests = self._bot.forge.requests(state=RequestState.OPEN, target=event.target)
        self._project.fetch_heads(requests)
        return tuple(
            r
            for r in requests
            if store.resolve(r.head) is not None
            and not store.is_ancestor(r.head, event.base)
            and (store.is_ancestor(r.head, event.head) or gives(self._project, event.base, r, event.head))
        )

    def _verify(self, place: Place, requests: tuple[ChangeRequest, ...]) -> Iterator[Note]:
        try:
            standing = self._project.standing(place.rule)
            outcome = self._plan(place, requests, standing)
            if opened(outcome):
                known = tuple(self._pushers.of_request(place.rule, r, standing) for r in requests)
                outcome = self._plan(place, known, standing)
            unlike = tuple(self._unlike(place, outcome, requests, standing))
            outcome = replace(outcome, diagnostics=(*outcome.diagnostics, *unlike))
        except GitopsError as error:
            yield from self._report.refusal(place, "plan", problem_of(error))
            return
        asks = standing.trust is not None and standing.trust.forge_verdict
        missing = asks and not self._approved(requests)
        yield from self._report.plan(place, outcome, Extras(verdict_missing=missing))
        for each in outcome.diagnostics:
            yield Note(f"  {each.severity.value} {each.code} {each.path}: {each.message}")

    def _plan(self, place: Place, requests: tuple[ChangeRequest, ...], standing: Standing) -> PlanOutcome:
        """The plan of the group's head, with everybody behind its requests as an author."""
        tree = self._project.tools.store.commit(place.head).tree
        people = frozenset(name for request in requests for name in standing.people(request))
        revision = Revision(
            place.head, tree, standing.applied or place.base, place.head, standing.authors | people, count_signers=True
        )
        return plan(self._project.workspace(place.rule, revision, actor=self._bot.actor))

    def _unlike(
        self, place: Place, outcome: PlanOutcome, requests: tuple[ChangeRequest, ...], standing: Standing
    ) -> Iterator[Diagnostic]:
        """Where the plan of the group is not the one that was reviewed."""
        digest = None if outcome.plan is None else outcome.plan.digest
        if not self._bot.forge.features.queue:
            # A run without a token, or a forge without queues: nobody can say what is in the group.
            return
        touching = [r for r in requests if self._touching(place.rule, r)]
        if not touching:
            detail = "no open request of the forge is known to have brought in what the group changes"
            yield from problem_of(GitopsError(Code.QUEUE_PLAN_DIFFERS, detail, path=place.rule.name))
        for request in touching:
            seen = self._reviewed(place.rule, request, standing)
            if seen is None or seen != digest:
                detail = (
                    f"request {request.number} was reviewed with plan {(seen or 'none')[:12]}, "
                    f"the group would do {(digest or 'none')[:12]}"
                )
                yield from problem_of(GitopsError(Code.QUEUE_PLAN_DIFFERS, detail, path=place.rule.name))

    def _touching(self, rule: ClusterRule, request: ChangeRequest) -> bool:
        store = self._project.tools.store
        tip = self._project.tip(request.target)
        base = None if tip is None else store.merge_base(tip, request.head)
        head = store.commit(request.head).tree
        return base is None or differ(self._project, rule, head, store.commit(base).tree)

    def _reviewed(self, rule: ClusterRule, request: ChangeRequest, standing: Standing) -> str | None:
        """The digest of the plan that people saw of a request; None if it had none."""
        record = kept(self._project, rule.name, request.number)
        if record is not None and record.head == request.head:
            return record.plan_digest
        revision = self._project.at_request(request, standing)
        outcome = plan(self._project.workspace(rule, revision, actor=self._bot.actor))
        return None if outcome.plan is None else outcome.plan.digest

    def _approved(self, requests: tuple[ChangeRequest, ...]) -> bool:
        verdicts = {self._bot.forge.verdict(r.number) for r in requests}
        return verdicts == {ReviewVerdict.APPROVED}
