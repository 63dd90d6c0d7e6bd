"""The sweep: find what no run did, whatever became of its event, and do it: merges to apply, then requests to plan.

`[skip ci]` in a merge, a run that was cancelled, a webhook that never came: each leaves a branch ahead of its ledger, or a head
without the status of its plan, which is seen by looking. A lock is never broken here, because nobody can tell a dead holder from
a slow one; it is shown with the exact command for the person who can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.bot.apply_clusters import Applier
from gitops.bot.changes import differ
from gitops.bot.command_syntax import Action, Command
from gitops.bot.context import Bot
from gitops.bot.kept_plans import kept
from gitops.bot.plan_requests import Asked, Planner
from gitops.bot.project import Standing
from gitops.bot.report import context_of
from gitops.bot.results import Note, Verdict, problem_of, verdict_of
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.clock import parse_timestamp
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, RequestState
from gitops.model.change import Disposition
from gitops.model.lock import LockObservation
from gitops.model.outcome import PlanOutcome
from gitops.plan.plan import plan

__all__ = ["Sweeper"]

_WAITS = "something that is merged is not applied"
_FOUND = "found by the sweep: no run applied this merge"
_MOST_LOOKED_AT = 20


class Sweeper:
    """Looks after all clusters of one repository."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._applier = Applier(bot, config, notes=(_FOUND,))
        self._planner = Planner(bot, config)

    def sweep(self, only: str | None = None) -> Iterator[Note]:
        """Apply what is merged and not applied, cluster by cluster, then plan what was proposed and not planned.

        A cluster in trouble does not hold up the others.
        """
        rules = [rule for rule in self._config.clusters if only in (None, rule.name)]
        for rule in rules:
            try:
                yield from self._cluster(rule)
            except GitopsError as error:
                yield Note(f"{rule.name}: {error.code}: {error.detail}", verdict_of(problem_of(error)))
        try:
            yield from self._requests(rules, only)
        except GitopsError as error:
            yield Note(f"open requests: {error.code}: {error.detail}", verdict_of(problem_of(error)))

    def _requests(self, rules: Sequence[ClusterRule], only: str | None) -> Iterator[Note]:
        """Plan the open requests whose heads have no status of a plan.

        A forge is asked about few heads in a run: first about those for which no plan is kept, then about the oldest.
        """
        requests = self._bot.forge.requests(state=RequestState.OPEN)
        due: dict[int, list[ClusterRule]] = {}
        for rule in rules:
            for request in self._planner.concerned(rule, requests):
                due.setdefault(request.number, []).append(rule)
        concerned = [request for request in requests if request.number in due]
        concerned.sort(key=lambda r: (all(self._is_kept(rule, r) for rule in due[r.number]), r.number))
        for request in concerned[:_MOST_LOOKED_AT]:
            has = {status.context for status in self._bot.forge.statuses(request.head)}
            if any(context_of("plan", rule.name) not in has for rule in due[request.number]):
                yield Note(f"request {request.number}: no run planned its head")
                yield from self._planner.request(request, requests, Asked(only=only))
        left = len(concerned) - _MOST_LOOKED_AT
        if left > 0:
            yield Note(f"{left} more open change request(s) were not looked at")

    def _is_kept(self, rule: ClusterRule, request: ChangeRequest) -> bool:
        record = kept(self._project, rule.name, request.number)
        return record is not None and record.head == request.head

    def _cluster(self, rule: ClusterRule) -> Iterator[Note]:
        held = self._project.tools.ledger(rule).observe_lock()
        if held.held:
            yield self._lock(rule, held)
            return
        tip, standing = self._project.tip(rule.ref), self._project.standing(rule)
        why = None if tip is None else self._due(rule, tip, standing)
        if why is None or tip is None:
            yield Note(f"{rule.name}: nothing to do")
            return
        if why == _WAITS:
            outcome = self._plan(rule, tip, standing)
            if not _moves(outcome):
                # Trying again would only tell the forge again what it was told when this was merged.
                yield Note(f"{rule.name}: {why}, and waits for a person", Verdict.WAITS)
                for each in outcome.diagnostics:
                    yield Note(f"  {each.severity.value} {each.code} {each.path}: {each.message}")
                return
        yield Note(f"{rule.name}: {why}")
        yield from self._applier.converge(rule)
        yield from self._applier.replan(rule)

    def _due(self, rule: ClusterRule, tip: str, standing: Standing) -> str | None:
        """Why a cluster needs an apply, or None."""
        store = self._project.tools.store
        if standing.applied is None:
            return "there is no ledger yet"
        self._project.bring(standing.applied)
        if differ(self._project, rule, store.commit(tip).tree, store.commit(standing.applied).tree):
            return f"branch {rule.branch} is ahead of the ledger at {tip[:12]}"
        ledger = self._project.tools.ledger(rule)
        if ledger.intents().intents:
            return "an operation was interrupted"
        return None if standing.settled else _WAITS

    def _plan(self, rule: ClusterRule, tip: str, standing: Standing) -> PlanOutcome:
        revision = self._project.at_commit(tip, standing)
        return plan(self._project.workspace(rule, revision, actor=self._bot.actor))

    def _lock(self, rule: ClusterRule, held: LockObservation) -> Note:
        """Who holds the lock, since when, and how a person removes it."""
        info = held.info
        if info is None:
            return Note(f"{rule.name}: locked, and the lock cannot be read: {held.detail}", Verdict.PROBLEMS)
        since = parse_timestamp(info.created_at)
        now = self._project.tools.clock.now()
        age = "an unknown time" if since is None else f"{max(0, int((now - since).total_seconds()))} s"
        alone = len(self._config.clusters) == 1
        command = Command(Action.UNLOCK, lock_id=info.lock_id, cluster=None if alone else rule.name)
        return Note(f"{rule.name}: {info.operation} has held the lock for {age}; if its run is over: {command}")


def _moves(outcome: PlanOutcome) -> bool:
    """Whether an apply would change anything now; one that cannot be planned is tried, so that its problem is told."""
    return outcome.plan is None or any(c.disposition is Disposition.APPLIED for c in outcome.plan.changes)
