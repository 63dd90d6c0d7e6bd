"""Telling people: keep the plan, set the status, write the check, then the one comment.

The status is the word that counts, so a status that cannot be set is a problem of the run. Whatever fails after it changes
nothing and is said in a line: a forge that refuses comments for a while must not turn a good apply into a bad one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gitops.bot.context import Bot, Place, Told
from gitops.bot.kept_plans import keep, plan_ref, record_of
from gitops.bot.overlaps import templates
from gitops.bot.results import Note, Verdict, verdict_of
from gitops.bot.states import apply_state, gate_states, plan_state, used_states
from gitops.config.gitops_yaml import BotConfig
from gitops.core.clock import timestamp
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.forge.port import Annotation, CheckReport, CheckState, CheckStatus, Deployment, DeploymentState
from gitops.model.entry import Debt
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.render.characters import visible
from gitops.render.comment import apply_comment, marker, plan_comment, refusal_comment
from gitops.render.comment_inputs import (
    ApplyComment,
    FullPlan,
    OtherRequest,
    PlanComment,
    RefusalComment,
    RefusedCommand,
)

__all__ = ["ApplyExtras", "Extras", "Reporter", "context_of"]

_MAX_STATUS = 140


def context_of(verb: str, cluster: str) -> str:
    """The context of the status that a verb sets for a cluster."""
    return f"gitops/{verb}/{cluster}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What a plan comment says beyond its plan.

    `via_forge` says that a review or a command counts as an approval. `verdict_missing` says that the forge's own verdict, which
    the rules ask for, is not yes.
    """

    others: tuple[OtherRequest, ...] = ()
    explained: tuple[str, ...] = ()
    refusals: tuple[RefusedCommand, ...] = ()
    debts: tuple[Debt, ...] = ()
    via_forge: bool = False
    verdict_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyExtras:
    """What an apply comment says beyond its outcome: emergencies that it used, and how it came to the run."""

    debts: tuple[Debt, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Word:
    """What a status says."""

    verb: str
    state: CheckState
    text: str


class Reporter:
    """Reports of one bot, under the rules of the target branch."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` says what is written besides status and comment."""
        self._bot = bot
        self._forge = bot.forge
        self._config = config
        self._several = len(config.clusters) > 1

    @cached_property
    def _templates(self) -> Mapping[str, str]:
        return templates(self._bot.project, self._config)

    @property
    def _takes_commands(self) -> bool:
        features = self._forge.features
        return features.permissions and features.reactions

    def plan(self, place: Place, outcome: PlanOutcome, extras: Extras | None = None) -> Iterator[Note]:
        """Report a plan."""
        more = extras or Extras()
        state, text, verdict = plan_state(outcome, verdict_missing=more.verdict_missing)
        line = f"plan of {place.rule.name}: {text}"
        comment = PlanComment(
            subject=place.subject,
            outcome=outcome,
            approvals=gate_states(place, outcome, via_forge=more.via_forge),
            others=more.others,
            explained=more.explained,
            refusals=more.refusals,
            debts=more.debts,
            forge_commands=self._takes_commands,
            several=self._several,
            templates=self._templates,
        )
        self._bot.listen(Told(comment, line, outcome.plan))
        why_not, ref = None, ""
        if place.request and self._bot.person is not None:
            why_not = keep(self._bot, record_of(place, outcome), outcome, comment)
            ref = "" if why_not else plan_ref(place.rule.name, place.request)
        body = plan_comment(replace(comment, full_plan=FullPlan(self._bot.run, ref)))
        yield from self._say(place, _Word("plan", state, text), body, outcome.diagnostics)
        yield Note(line, verdict)
        if why_not:
            yield Note(why_not)

    def untouched(self, place: Place) -> Iterator[Note]:
        """Say of a request that it does not concern a cluster: a status that is asked for must not stay away."""
        yield from self._status(place, _Word("plan", CheckState.SUCCESS, "does not touch the cluster"))

    def apply(
        self, places: Sequence[Place], outcome: ApplyOutcome, extras: ApplyExtras | None = None
    ) -> Iterator[Note]:
        """Report an apply of one commit to every request that it brought in; `places` has at least one, perhaps of none."""
        state, text, verdict = apply_state(outcome)
        line = f"apply of {places[0].rule.name}: {text}"
        yield from self._status(places[0], _Word("apply", state, text))
        for place in places:
            comment = self._applied(place, outcome, extras or ApplyExtras())
            self._bot.listen(Told(comment, line))
            yield from self._comment(place, apply_comment(comment))
        yield Note(line, verdict)

    def _applied(self, place: Place, outcome: ApplyOutcome, more: ApplyExtras) -> ApplyComment:
        return ApplyComment(
            subject=place.subject,
            outcome=outcome,
            approvals=used_states(outcome.approvals_used),
            debts=more.debts,
            notes=more.notes,
            run=self._bot.run,
            forge_commands=self._takes_commands,
            several=self._several,
            templates=self._templates,
        )

    def refusal(
        self,
        place: Place,
        command: str,
        diagnostics: tuple[Diagnostic, ...],
        refusals: tuple[RefusedCommand, ...] = (),
    ) -> Iterator[Note]:
        """Report a command that could not be carried out at all."""
        first = diagnostics[0] if diagnostics else None
        line = f"{command} of {place.rule.name} refused: {first.message if first else 'refused'}"
        comment = RefusalComment(
            subject=place.subject,
            command=command,
            diagnostics=diagnostics,
            refusals=refusals,
            run=self._bot.run,
            forge_commands=self._takes_commands,
            several=self._several,
            templates=self._templates,
        )
        self._bot.listen(Told(comment, line))
        word = _Word(command, CheckState.FAILURE, first.code if first else "refused")
        yield from self._say(place, word, refusal_comment(comment), diagnostics)
        yield Note(line, verdict_of(diagnostics) or Verdict.PROBLEMS)

    def deployment(self, place: Place, state: DeploymentState, text: str = "") -> Iterator[Note]:
        """Tell the forge's own overview where the deployment of a commit stands."""
        if self._forge.features.deployments and self._config.forge.deployments:
            environment = f"{place.rule.environment}/{place.rule.name}"
            record = Deployment(place.head, environment, state, visible(text)[:_MAX_STATUS])
            yield from _quietly("the deployment is not recorded", lambda: self._forge.record_deployment(record))

    def labels(self, number: int, has: tuple[str, ...], wanted: Mapping[str, bool]) -> Iterator[Note]:
        """Put labels on a request and take others off; nothing is written where they are as wanted."""
        add = [name for name, on in wanted.items() if on and name not in has]
        remove = [name for name, on in wanted.items() if not on and name in has]
        if (add or remove) and number and self._forge.features.labels and self._config.forge.labels:
            write = lambda: self._forge.set_labels(number, add=add, remove=remove)  # noqa: E731 - as its siblings
            yield from _quietly("the labels are not set", write)

    def _say(self, place: Place, word: _Word, body: str, problems: tuple[Diagnostic, ...]) -> Iterator[Note]:
        """Status, check, comment."""
        yield from self._status(place, word)
        if word.verb == "plan" and self._forge.features.checks and self._config.forge.checks:
            report = CheckReport(
                commit=place.head,
                name=f"gitops {place.rule.name}",
                state=word.state,
                title=visible(word.text)[:_MAX_STATUS],
                summary=body,
                annotations=tuple(_annotations(place, problems)),
            )
            yield from _quietly("the check is not written", lambda: self._forge.report_check(report))
        yield from self._comment(place, body)

    def _comment(self, place: Place, body: str) -> Iterator[Note]:
        if place.request:
            write = lambda: self._forge.upsert_comment(place.request, marker(place.rule.name), body)  # noqa: E731
            yield from _quietly("the comment is not written", write)

    def _status(self, place: Place, word: _Word) -> Iterator[Note]:
        context = context_of(word.verb, place.rule.name)
        at = timestamp(self._bot.project.tools.clock.now())
        status = CheckStatus(place.head, context, word.state, visible(word.text)[:_MAX_STATUS], at)
        try:
            self._forge.set_status(status)
        except GitopsError as error:
            yield Note(f"the status {context} is not set: {error.code}: {error.detail}", Verdict.PROBLEMS)


def _quietly(what: str, write: Callable[[], object]) -> Iterator[Note]:
    """Do what only tells people; a failure is a line, since the next event says it anew."""
    try:
        write()
    except GitopsError as error:
        yield Note(f"{what}: {error.code}: {error.detail}")


def _annotations(place: Place, problems: tuple[Diagnostic, ...]) -> Iterator[Annotation]:
    """Problems on their lines; what is about a whole file is on its first."""
    folder = "" if place.rule.path == "." else f"{place.rule.path}/"
    for problem in problems:
        if problem.source is not None:
            yield Annotation(
                path=folder + problem.source.file,
                line=max(1, problem.source.line),
                message=f"{problem.path}: {problem.message}",
                severity=problem.severity,
                title=problem.code,
            )
