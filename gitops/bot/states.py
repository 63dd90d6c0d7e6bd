"""Outcomes in the words of a status: its state, one short line, and what it means for whoever waits for the run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gitops.bot.context import Place
from gitops.bot.results import Verdict, verdict_of
from gitops.forge.port import CheckState
from gitops.model.address import Address
from gitops.model.approval import Approval
from gitops.model.change import Reason
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.model.plan import Plan
from gitops.render.comment_inputs import ApprovalState

Said = tuple[CheckState, str, Verdict]


def plan_state(outcome: PlanOutcome, *, verdict_missing: bool = False) -> Said:
    """What a plan comes to. A missing approval is a failure, never neutral: nothing may merge past it by being overlooked."""
    plan = outcome.plan
    errors = sum(d.severity == "error" for d in outcome.diagnostics)
    if errors:
        return CheckState.FAILURE, f"{errors} error(s)", verdict_of(outcome.diagnostics)
    if plan is None:
        return CheckState.ERROR, "no plan", Verdict.PROBLEMS
    text = f"{len(plan.changes)} change(s)"
    missing = [r.resource for r in plan.approvals_required if not r.satisfied]
    if missing:
        return CheckState.FAILURE, f"{text}; needs approval: {', '.join(missing)}", Verdict.WAITS
    if verdict_missing:
        return CheckState.FAILURE, f"{text}; needs the forge's own approval", Verdict.WAITS
    return CheckState.SUCCESS, text, Verdict.DONE


def apply_state(outcome: ApplyOutcome) -> Said:
    """What an apply comes to. One that left something for want of an approval waits; anything else that is left is a problem."""
    text = f"{outcome.applied_count} applied, {outcome.deferred_count} deferred or blocked"
    if not outcome.ok:
        first = next(d for d in outcome.diagnostics if d.severity == "error")
        return CheckState.FAILURE, f"{text}; {first.code}", verdict_of(outcome.diagnostics)
    if outcome.converged:
        return CheckState.SUCCESS, text, Verdict.DONE
    waits = any(c.reason is Reason.APPROVAL_REQUIRED for c in outcome.changes)
    return CheckState.FAILURE, text, Verdict.WAITS if waits else Verdict.PROBLEMS


def gate_states(place: Place, outcome: PlanOutcome, *, via_forge: bool = False) -> tuple[ApprovalState, ...]:
    """Where each gate stands: given, missing, or given in a way that does not count, with the step that refused it."""
    plan: Plan | None = outcome.plan
    states = []
    for need in plan.approvals_required if plan else ():
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
                via_forge=via_forge,
            )
        )
    return tuple(states)


def used_states(used: Mapping[Address, tuple[Approval, ...]]) -> tuple[ApprovalState, ...]:
    """The approvals that an apply used, by resource."""
    return tuple(
        ApprovalState(resource=resource, satisfied=True, by=tuple(a.approved_by for a in approvals))
        for resource, approvals in sorted(used.items())
    )
