"""The parts of comments that are lists and verdicts, made of outcomes: values for templates, which only lay them out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops.core.diagnostics import Diagnostic, Severity
from gitops.model.address import Kind
from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.outcome import ApplyOutcome, PlanOutcome
from gitops.model.plan import NodeOutcome, NodeResult, Plan
from gitops.render.comment_inputs import ApprovalState

_IRREVERSIBLE, _MIGRATION, _DELETE, _UPDATE, _CREATE = range(5)

PLANNED: Mapping[Disposition, str] = {
    Disposition.APPLIED: "will be applied",
    Disposition.DERIVED: "follows from its parts",
    Disposition.DEFERRED: "deferred",
    Disposition.BLOCKED: "blocked",
}
"""What an apply would do with a planned change."""

DONE: Mapping[Disposition, str] = {**PLANNED, Disposition.APPLIED: "applied"}
"""What an apply did with a change."""

_BECAUSE: Mapping[Reason, str] = {
    Reason.APPROVAL_REQUIRED: "an approval is missing",
    Reason.RECOVERY_PENDING: "an interrupted operation is not recovered",
    Reason.DEPENDENCY_NOT_APPLIED: "a resource that it needs is not applied",
    Reason.UNSUPPORTED_KIND: "apply does not support this kind",
    Reason.GRAPH_CREATE_FAILED: "the graph could not be created",
    Reason.SCHEMA_APPLY_FAILED: "the schema change failed",
    Reason.GRAPH_DELETE_FAILED: "the graph could not be deleted",
}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """A line of the table of changes: its risk (0 is irreversible), the action, the resource, and what apply does with it."""

    risk: int
    action: str
    resource: str
    effect: str


@dataclass(frozen=True, slots=True)
class StoppedChange:
    """A change that was not applied: how it ended, and the failed resource that kept it from starting, if there is one."""

    resource: str
    how: str
    blocked_by: str


def change_rows(changes: Iterable[Change], gated: set[str], words: Mapping[Disposition, str]) -> tuple[ChangeRow, ...]:
    """Irreversible changes first, then migrations, deletes, updates and creates; each group in address order."""
    found = [ChangeRow(_risk(c, gated), action_words(c, gated), c.address, effect_words(c, words)) for c in changes]
    return tuple(sorted(found, key=lambda row: (row.risk, row.resource)))


def action_words(change: Change, gated: set[str]) -> str:
    """The action on a resource, in a word or two."""
    if _risk(change, gated) == _MIGRATION:
        return "migrate"
    return "update bindings" if change.binding_change else change.action.value


def effect_words(change: Change, words: Mapping[Disposition, str]) -> str:
    """What apply does with a change, and why if it is not applied."""
    known = words[change.disposition]
    return known if change.reason is None else f"{known}, {_BECAUSE[change.reason]}"


def _risk(change: Change, gated: set[str]) -> int:
    """The rank of a change in the table. It orders and explains; the planner decides what needs an approval."""
    if change.address in gated or change.reason is Reason.APPROVAL_REQUIRED:
        return _IRREVERSIBLE
    if change.action is Action.DELETE:
        return _IRREVERSIBLE if change.address.kind in (Kind.GRAPH, Kind.SCHEMA) else _DELETE
    if change.action is Action.CREATE:
        return _CREATE
    return _MIGRATION if change.address.kind is Kind.SCHEMA else _UPDATE


def gated_addresses(plan: Plan | None) -> set[str]:
    """Address texts of the changes that need an approval."""
    return {need.resource for need in plan.approvals_required} if plan else set()


def approval_states(plan: Plan | None, states: Sequence[ApprovalState]) -> tuple[ApprovalState, ...]:
    """One state per gate of the plan; a gate is open only if both the plan and the given state say so."""
    known = {s.resource: s for s in states}
    result: list[ApprovalState] = []
    for need in plan.approvals_required if plan else ():
        by = tuple(a.approved_by for a in need.approvals)
        state = known.get(need.resource, ApprovalState(resource=need.resource, satisfied=need.satisfied, by=by))
        satisfied = state.satisfied and need.satisfied
        result.append(replace(state, satisfied=satisfied, reason=need.reason, needed=need.needed))
    return tuple(result)


def plan_verdict(outcome: PlanOutcome, gates: Sequence[ApprovalState]) -> str:
    """The result of a plan, in one line."""
    plan = outcome.plan
    if not outcome.ok or plan is None:
        return f"failed, {count(_errors(outcome.diagnostics), 'error')}"
    if not plan.changes:
        return "no changes"
    parts = [count(len(plan.changes), "change")]
    missing = sum(not a.satisfied for a in gates)
    if gates:
        parts.append(f"{count(missing, 'approval')} missing" if missing else f"{count(len(gates), 'approval')} given")
    unsupported = sum(c.migration is not None and not c.migration.supported for c in plan.changes)
    if unsupported:
        parts.append(f"{count(unsupported, 'migration')} not supported")
    return ", ".join(parts)


def apply_verdict(outcome: ApplyOutcome) -> str:
    """The result of an apply, in one line."""
    counts = f"{outcome.applied_count} applied, {outcome.deferred_count} deferred or blocked"
    if not outcome.ok:
        return f"failed, {count(_errors(outcome.diagnostics), 'error')}, {counts}"
    return f"{counts}, {'converged' if outcome.converged else 'not converged'}"


def stopped_changes(results: Iterable[NodeResult]) -> tuple[StoppedChange, ...]:
    """The changes that were not applied, in the order of the run."""
    return tuple(
        StoppedChange(r.node_id, r.outcome.value, r.blocked_by or "")
        for r in results
        if r.outcome is not NodeOutcome.DONE
    )


def errors_and_warnings(diagnostics: Iterable[Diagnostic]) -> dict[str, tuple[Diagnostic, ...]]:
    """Errors and warnings as two values of a template."""
    items = tuple(diagnostics)
    return {
        "errors": tuple(d for d in items if d.severity is Severity.ERROR),
        "warnings": tuple(d for d in items if d.severity is not Severity.ERROR),
    }


def count(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _errors(diagnostics: Iterable[Diagnostic]) -> int:
    return sum(d.severity is Severity.ERROR for d in diagnostics)
