"""Telling people: status first, then the one comment. A comment that fails changes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from gitops.config.bot import ClusterRule
from gitops.core.clock import Clock, timestamp
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.model.approval import Approval
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.model.plan import Plan
from gitops.ports.forge import CheckState, CheckStatus, Forge
from gitops.render.comment import (
    ApplyComment,
    ApprovalState,
    PlanComment,
    RefusalComment,
    Subject,
    apply_comment,
    marker,
    plan_comment,
    refusal_comment,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report goes: the cluster, the request (0 for none), the commit that it speaks of and its base."""

    rule: ClusterRule
    request: int
    head: str
    base: str

    @property
    def subject(self) -> Subject:
        """The same for the comment renderer."""
        return Subject(
            cluster=self.rule.name,
            environment=self.rule.environment,
            request=self.request,
            head=self.head,
            base=self.base,
        )


class Reporter:
    """Writes statuses and comments of the bot."""

    def __init__(self, forge: Forge, clock: Clock) -> None:
        """Report to `forge`."""
        self._forge = forge
        self._clock = clock

    def plan(self, place: Place, outcome: PlanOutcome) -> str:
        """Report a plan and return its one-line summary."""
        plan = outcome.plan
        missing = [] if plan is None else [r.resource for r in plan.approvals_required if not r.satisfied]
        errors = sum(d.severity == "error" for d in outcome.diagnostics)
        if errors:
            state, text = CheckState.FAILURE, f"{errors} error(s)"
        elif plan is None:
            state, text = CheckState.ERROR, "no plan"
        elif missing:
            state, text = CheckState.FAILURE, f"{len(plan.changes)} change(s); needs approval: {', '.join(missing)}"
        else:
            state, text = CheckState.SUCCESS, f"{len(plan.changes)} change(s)"
        self._status(place, "plan", state, text)
        body = plan_comment(
            PlanComment(subject=place.subject, outcome=outcome, approvals=_plan_approvals(place, outcome))
        )
        self._comment(place, body)
        return f"plan of {place.rule.name}: {text}"

    def apply(self, place: Place, outcome: ApplyOutcome, used: Mapping[str, tuple[Approval, ...]]) -> str:
        """Report an apply and return its one-line summary. `used` are the approvals by resource."""
        text = f"{outcome.applied_count} applied, {outcome.deferred_count} deferred or blocked"
        good = outcome.ok and outcome.converged
        if not outcome.ok:
            first = next((d for d in outcome.diagnostics if d.severity == "error"), None)
            text = f"{text}; {first.code}" if first is not None else text
        self._status(place, "apply", CheckState.SUCCESS if good else CheckState.FAILURE, text)
        states = tuple(
            ApprovalState(resource=resource, satisfied=True, by=tuple(a.approved_by for a in approvals))
            for resource, approvals in sorted(used.items())
        )
        if place.request:
            self._comment(place, apply_comment(ApplyComment(subject=place.subject, outcome=outcome, approvals=states)))
        return f"apply of {place.rule.name}: {text}"

    def refusal(self, place: Place, command: str, diagnostics: tuple[Diagnostic, ...]) -> str:
        """Report a command that could not be carried out at all, and return its one-line summary."""
        text = diagnostics[0].message if diagnostics else "refused"
        self._status(place, command, CheckState.FAILURE, diagnostics[0].code if diagnostics else "refused")
        if place.request:
            comment = RefusalComment(subject=place.subject, command=command, diagnostics=diagnostics)
            self._comment(place, refusal_comment(comment))
        return f"{command} of {place.rule.name} refused: {text}"

    def _status(self, place: Place, verb: str, state: CheckState, text: str) -> None:
        context = f"gitops/{verb}/{place.rule.name}"
        self._forge.set_status(CheckStatus(place.head, context, state, text[:140], timestamp(self._clock.now())))

    def _comment(self, place: Place, body: str) -> None:
        try:
            self._forge.upsert_comment(place.request, marker(place.rule.name), body)
        except GitopsError:
            # The outcome stands and the status shows it; the next event writes the comment anew.
            return


def _plan_approvals(place: Place, outcome: PlanOutcome) -> tuple[ApprovalState, ...]:
    """Where each gate stands: given, missing, or given in a way that does not count, with the step that refused it."""
    plan: Plan | None = outcome.plan
    if plan is None:
        return ()
    states = []
    for need in plan.approvals_required:
        refused = next(
            (d for d in outcome.diagnostics if d.path == need.resource and d.code.startswith("approval_")), None
        )
        command = ["gitops", "approve", need.resource, "--request", str(place.request), "--cluster", place.rule.name]
        states.append(
            ApprovalState(
                resource=need.resource,
                satisfied=need.satisfied,
                by=tuple(a.approved_by for a in need.approvals),
                code=None if refused is None or need.satisfied else refused.code,
                detail="" if refused is None or need.satisfied else refused.message,
                command="" if need.satisfied else shlex.join(command),
                reason=need.reason,
                needed=need.needed,
            )
        )
    return tuple(states)
