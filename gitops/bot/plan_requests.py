"""Plans of change requests: what each open request would do if it were merged now.

One request is planned for every cluster of its target that it touches, or for which it was planned before: a request that has
left a cluster alone again must not keep its old plan on show. Its head is fetched and merged in memory; nothing is checked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gitops.bot.authors import Pushers, opened
from gitops.bot.changes import touches
from gitops.bot.context import Bot, Place
from gitops.bot.kept_plans import kept, record_of
from gitops.bot.overlaps import overlaps
from gitops.bot.project import Standing
from gitops.bot.report import Extras, Reporter
from gitops.bot.results import Note, Verdict, problem_of
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, RequestState, ReviewVerdict
from gitops.git.port import ZERO
from gitops.model.outcome import PlanOutcome
from gitops.plan.plan import plan
from gitops.render.comment_inputs import RefusedCommand

__all__ = ["FAILED", "MISSING", "Asked", "Planner"]

MISSING, FAILED = "gitops/needs-approval", "gitops/failed"
"""Labels of a request: a person has to act on the cluster's side, or on the author's."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan was asked for by: `refusals` are commands to tell of, `explained` addresses to say more about.

    `only` is one cluster by its name. `again` leaves out what would only say the same as before.
    """

    only: str | None = None
    again: bool = False
    refusals: tuple[RefusedCommand, ...] = ()
    explained: tuple[str, ...] = ()


@dataclass(slots=True)
class _Outlook:
    """What the plans of one request come to together."""

    missing: bool = False
    failed: bool = False
    notes: list[Note] = field(default_factory=list)


class Planner:
    """Plans requests of one repository under the rules of its target branch."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._report = Reporter(bot, config)
        self._pushers = Pushers(bot)

    def chosen(self, choose: Callable[[ChangeRequest], bool], asked: Asked | None = None) -> Iterator[Note]:
        """Plan the open requests that are chosen: one list answers which are open, and which others there are."""
        requests = self._bot.forge.requests(state=RequestState.OPEN)
        found = [r for r in requests if choose(r)]
        for request in found:
            yield from self.request(request, requests, asked)
        if not found:
            yield Note("no open change request is meant")

    def request(
        self, request: ChangeRequest, among: Sequence[ChangeRequest], asked: Asked | None = None
    ) -> Iterator[Note]:
        """Plan one request for the clusters that it concerns; `among` are all that are open."""
        wanted = asked or Asked()
        rules = [r for r in self._config.clusters if r.ref == request.target and wanted.only in (None, r.name)]
        if not rules:
            yield Note(f"request {request.number}: no cluster follows {request.target.removeprefix('refs/heads/')}")
            return
        self._project.fetch_heads([request])
        if self._project.tools.store.resolve(request.head) is None:
            yield Note(f"request {request.number}: its head is not there any more", Verdict.LOST)
            return
        outlook = _Outlook()
        for rule in rules:
            place = Place(rule, request.number, request.head, self._project.tip(request.target) or ZERO)
            if self._concerns(rule, request):
                yield from self._plan(place, request, among, wanted, outlook)
            else:
                yield from self._report.untouched(place)
                yield Note(f"request {request.number}: does not touch {rule.name}")
        # What another cluster of the branch asked for is not taken back here.
        whole = all(r in rules for r in self._config.clusters if r.ref == request.target)
        wishes = {MISSING: outlook.missing, FAILED: outlook.failed}
        yield from self._report.labels(
            request.number, request.labels, {name: on for name, on in wishes.items() if on or whole}
        )

    def concerned(self, rule: ClusterRule, requests: Sequence[ChangeRequest]) -> tuple[ChangeRequest, ...]:
        """Those of some requests that concern a cluster, as far as their heads are to be had."""
        wanted = [r for r in requests if r.target == rule.ref]
        self._project.fetch_heads(wanted)
        there = (r for r in wanted if self._project.tools.store.resolve(r.head) is not None)
        return tuple(r for r in there if self._concerns(rule, r))

    def _concerns(self, rule: ClusterRule, request: ChangeRequest) -> bool:
        try:
            touched = touches(self._project, rule, request.target, request.head)
        except GitopsError:
            # What cannot be compared is planned, so that its problem is told.
            return True
        return touched or kept(self._project, rule.name, request.number) is not None

    def _plan(
        self,
        place: Place,
        request: ChangeRequest,
        among: Sequence[ChangeRequest],
        asked: Asked,
        outlook: _Outlook,
    ) -> Iterator[Note]:
        """Plan for one cluster and report, unless the request has moved on meanwhile."""
        begin = f"request {request.number}: "
        try:
            standing = self._project.standing(place.rule)
            outcome = self._outcome(place.rule, request, standing)
        except GitopsError as error:
            outlook.failed = True
            yield from _prefixed(begin, self._report.refusal(place, "plan", problem_of(error), asked.refusals))
            return
        if self._project.moved(request):
            yield Note(f"{begin}moved on meanwhile; this plan is dropped", Verdict.LOST)
            return
        gates = () if outcome.plan is None else outcome.plan.approvals_required
        outlook.missing = outlook.missing or any(not r.satisfied for r in gates)
        outlook.failed = outlook.failed or not outcome.ok
        before = kept(self._project, place.rule.name, request.number) if asked.again else None
        if before is not None and before.told == record_of(place, outcome).told:
            yield Note(f"{begin}plan of {place.rule.name}: as before")
            return
        extras = Extras(
            others=overlaps(self._project, place.rule, request, among),
            explained=asked.explained,
            refusals=asked.refusals,
            debts=standing.debts,
            via_forge=standing.trust is not None and "irreversible" in standing.trust.via_forge,
            verdict_missing=self._verdict_missing(request, standing),
        )
        yield from _prefixed(begin, self._report.plan(place, outcome, extras))

    def _outcome(self, rule: ClusterRule, request: ChangeRequest, standing: Standing) -> PlanOutcome:
        made = self._made(rule, request, standing)
        if opened(made):
            known = self._pushers.of_request(rule, request, standing)
            return made if known.pushers == request.pushers else self._made(rule, known, standing)
        return made

    def _made(self, rule: ClusterRule, request: ChangeRequest, standing: Standing) -> PlanOutcome:
        revision = self._project.at_request(request, standing)
        return plan(self._project.workspace(rule, revision, actor=self._bot.actor))

    def _verdict_missing(self, request: ChangeRequest, standing: Standing) -> bool:
        """Whether the rules in force ask for the forge's own verdict, and it is another than yes."""
        if standing.trust is None or not standing.trust.forge_verdict:
            return False
        try:
            return self._bot.forge.verdict(request.number) is not ReviewVerdict.APPROVED
        except GitopsError:
            return True


def _prefixed(begin: str, notes: Iterator[Note]) -> Iterator[Note]:
    """Notes that say which request they are about."""
    for note in notes:
        yield Note(begin + note.text, note.verdict)
