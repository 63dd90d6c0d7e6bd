"""The parts of comments that are lists, verdicts and explanations, made of outcomes: templates only lay them out.

An explanation is everything about one change of a plan, as `/gitops explain ADDRESS` asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.model.address import Address, Kind
from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.outcome import ApplyOutcome, PlanOutcome, VerbOutcome
from gitops.model.plan import Plan
from gitops.render.comment_inputs import ApprovalState
from gitops.render.impact import SHOWN, migration_views

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

# The steps of the verification of an approval, in order, with the codes of their refusals.
_STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("its commit has the form of an approval", frozenset({Code.APPROVAL_MALFORMED})),
    ("its signature is good", frozenset({Code.APPROVAL_UNSIGNED, Code.APPROVAL_SIGNATURE_INVALID})),
    ("its key is trusted now, for one person", frozenset({Code.APPROVAL_SIGNER_UNKNOWN})),
    (
        "this person may approve, and is not an author of the change",
        frozenset({Code.APPROVAL_SIGNER_NOT_ALLOWED, Code.APPROVAL_SELF, Code.APPROVAL_AUTHORS_UNKNOWN}),
    ),
    ("it is for this cluster, branch and folder", frozenset({Code.APPROVAL_WRONG_TARGET})),
    (
        "it is not consumed, revoked or expired",
        frozenset({Code.APPROVAL_SPENT, Code.APPROVAL_REVOKED, Code.APPROVAL_EXPIRED}),
    ),
    ("it covers exactly this change", frozenset({Code.APPROVAL_STALE})),
)


def change_rows(
    changes: Iterable[Change], gated: set[str], words: Mapping[Disposition, str]
) -> tuple[dict[str, Any], ...]:
    """The lines of the table of changes: the risk (0 is irreversible), the action, the resource, and what apply does with it.

    Irreversible changes first, then migrations, deletes, updates and creates; each group in address order.
    """
    return tuple(
        {
            "risk": _risk(change, gated),
            "action": _action(change, gated),
            "resource": change.address,
            "effect": _effect(change, words),
            "details": change.details if change.seen is None else (*change.details, change.seen.words),
        }
        for change in sorted(changes, key=lambda each: (_risk(each, gated), each.address))
    )


def _action(change: Change, gated: set[str]) -> str:
    """The action on a resource, in a word or two."""
    if _risk(change, gated) == _MIGRATION:
        return "migrate"
    return "update bindings" if change.binding_change else change.action.value


def _effect(change: Change, words: Mapping[Disposition, str]) -> str:
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
        may = () if satisfied else need.may
        result.append(replace(state, satisfied=satisfied, reason=need.reason, needed=need.needed, may=may))
    return tuple(result)


def rule_rows(plan: Plan) -> tuple[dict[str, Any], ...]:
    """What changes of keys and rules mean, one line each; `before` is empty for what is added, `after` for what is removed."""
    return tuple(
        {
            "resource": each.address,
            "rule": each.rule,
            "before": each.before or "",
            "after": each.after or "",
            "widens": each.widens,
        }
        for each in plan.rule_changes
    )


def plan_verdict(outcome: PlanOutcome, gates: Sequence[ApprovalState]) -> str:
    """The result of a plan, in one line."""
    plan = outcome.plan
    if not outcome.ok or plan is None:
        return f"failed, {_errors(outcome)}"
    if not plan.changes:
        return "no changes"
    parts = [count(len(plan.changes), "change")]
    missing = sum(not a.satisfied for a in gates)
    if gates:
        parts.append(f"{count(missing, 'approval')} missing" if missing else f"{count(len(gates), 'approval')} given")
    if outcome.blockers:
        parts.append(f"would not land: {count(len(outcome.blockers), 'obstacle')}")
    return ", ".join(parts)


def apply_verdict(outcome: ApplyOutcome) -> str:
    """The result of an apply, in one line."""
    counts = f"{outcome.applied_count} applied, {outcome.deferred_count} deferred or blocked"
    if not outcome.ok:
        return f"failed, {_errors(outcome)}, {counts}"
    return f"{counts}, {'converged' if outcome.converged else 'not converged'}"


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


def _errors(outcome: VerbOutcome) -> str:
    return count(sum(d.severity is Severity.ERROR for d in outcome.diagnostics), "error")


def explanations(
    outcome: PlanOutcome, addresses: Iterable[str], states: Sequence[ApprovalState]
) -> tuple[dict[str, Any], ...]:
    """One explanation per address text, in their order, each once.

    It is not `changed` if the plan does not change the resource: then only `after` is set. `waits_for` and `awaited_by` are its
    edges of the execution graph, `needed_by` what depends on the resource, each cut after 20 with the number of `more`.
    """
    plan, found = outcome.plan, []
    for address in map(Address, dict.fromkeys(addresses)):
        change = None if plan is None else plan.change(address)
        before: list[dict[str, str]] = []
        after: list[dict[str, str]] = []
        needed: tuple[Address, ...] = ()
        if plan is not None and change is not None:
            for edge in plan.graph.edges:
                reason = f"{edge.reason}: {edge.detail}" if edge.detail else edge.reason
                if edge.after == address:
                    before.append({"resource": edge.before, "reason": reason})
                if edge.before == address:
                    after.append({"resource": edge.after, "reason": reason})
            needed = next((impact.affected for impact in plan.impact if impact.resource == address), ())
        approval = None if change is None else next((state for state in states if state.resource == address), None)
        declared = outcome.resource_digests.get(address, "")
        found.append(
            {
                "resource": address,
                "changed": change is not None,
                "action": "" if change is None else _action(change, gated_addresses(plan)),
                "effect": "" if change is None else _effect(change, PLANNED),
                "before": change.before or "" if change else "",
                "after": change.after or "" if change else declared,
                "waits_for": tuple(before[:SHOWN]),
                "awaited_by": tuple(after[:SHOWN]),
                "more_edges": max(0, len(before) - SHOWN) + max(0, len(after) - SHOWN),
                "needed_by": needed[:SHOWN],
                "more_needed": max(0, len(needed) - SHOWN),
                "migration": None if plan is None else migration_views(plan).get(address),
                "approval": approval,
                "checks": () if approval is None else verification_steps(approval),
            }
        )
    return tuple(found)


def verification_steps(approval: ApprovalState) -> tuple[dict[str, Any], ...]:
    """The numbered steps of the verification of an approval, each `passed`, `refused` or `not reached`.

    Empty without an approval, or if its code belongs to no step.
    """
    refused = next((n for n, (_, codes) in enumerate(_STEPS) if approval.code in codes), None)
    failed = len(_STEPS) if approval.satisfied else refused
    if failed is None:
        return ()
    states = ["passed"] * failed + ["refused"] + ["not reached"] * (len(_STEPS) - failed)
    return tuple(
        {"number": n, "words": words, "state": state}
        for n, ((words, _), state) in enumerate(zip(_STEPS, states, strict=False), start=1)
    )
