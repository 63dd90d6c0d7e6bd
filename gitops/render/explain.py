"""Everything about one change of a plan, as `/gitops explain ADDRESS` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.model.address import Address
from gitops.model.outcome import PlanOutcome
from gitops.model.plan import ExecEdge, Plan
from gitops.render.comment_inputs import ApprovalState
from gitops.render.comment_rows import PLANNED, action_words, effect_words, gated_addresses
from gitops.render.impact import SHOWN, MigrationView, migration_views

_STEPS: tuple[tuple[str, frozenset[str]], ...] = (
    ("its commit has the form of an approval", frozenset({Code.APPROVAL_MALFORMED})),
    ("its signature is good", frozenset({Code.APPROVAL_UNSIGNED, Code.APPROVAL_SIGNATURE_INVALID})),
    ("its key is trusted now, for one person", frozenset({Code.APPROVAL_SIGNER_UNKNOWN})),
    (
        "this person may approve, and is not an author of the change",
        frozenset({Code.APPROVAL_SIGNER_NOT_ALLOWED, Code.APPROVAL_SELF}),
    ),
    ("it is for this cluster, branch and folder", frozenset({Code.APPROVAL_WRONG_TARGET})),
    (
        "it is not consumed, revoked or expired",
        frozenset({Code.APPROVAL_SPENT, Code.APPROVAL_REVOKED, Code.APPROVAL_EXPIRED}),
    ),
    ("it covers exactly this change", frozenset({Code.APPROVAL_STALE})),
)


@dataclass(frozen=True, slots=True)
class RelatedChange:
    """A change that is applied before or after, and why."""

    resource: str
    reason: str


@dataclass(frozen=True, slots=True)
class VerificationStep:
    """A numbered step of the verification of an approval: `passed`, `refused` or `not reached`."""

    number: int
    words: str
    state: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """One change in full; `changed` is false for a resource that the plan does not change: then only `after` is set.

    `waits_for` and `awaited_by` are its edges of the execution graph, `needed_by` what depends on the resource, each cut
    after 20 with the number of `more`.
    """

    resource: str
    changed: bool
    action: str = ""
    effect: str = ""
    before: str = ""
    after: str = ""
    waits_for: tuple[RelatedChange, ...] = ()
    awaited_by: tuple[RelatedChange, ...] = ()
    more_edges: int = 0
    needed_by: tuple[str, ...] = ()
    more_needed: int = 0
    migration: MigrationView | None = None
    approval: ApprovalState | None = None
    checks: tuple[VerificationStep, ...] = ()


def explanations(
    outcome: PlanOutcome, addresses: Sequence[str], states: Sequence[ApprovalState]
) -> tuple[Explanation, ...]:
    """One explanation per address text, in their order, each once."""
    return tuple(_explain(outcome, Address(address), states) for address in dict.fromkeys(addresses))


def _explain(outcome: PlanOutcome, address: Address, states: Sequence[ApprovalState]) -> Explanation:
    plan = outcome.plan
    change = None if plan is None else plan.change(address)
    if plan is None or change is None:
        return Explanation(address, changed=False, after=outcome.resource_digests.get(address, ""))
    before = [RelatedChange(e.before, _reason(e)) for e in plan.graph.edges if e.after == address]
    after = [RelatedChange(e.after, _reason(e)) for e in plan.graph.edges if e.before == address]
    needed = _needed_by(plan, address)
    approval = next((state for state in states if state.resource == address), None)
    return Explanation(
        address,
        changed=True,
        action=action_words(change, gated_addresses(plan)),
        effect=effect_words(change, PLANNED),
        before=change.before or "",
        after=change.after or "",
        waits_for=tuple(before[:SHOWN]),
        awaited_by=tuple(after[:SHOWN]),
        more_edges=max(0, len(before) - SHOWN) + max(0, len(after) - SHOWN),
        needed_by=needed[:SHOWN],
        more_needed=max(0, len(needed) - SHOWN),
        migration=migration_views(plan).get(address),
        approval=approval,
        checks=() if approval is None else verification_steps(approval),
    )


def verification_steps(approval: ApprovalState) -> tuple[VerificationStep, ...]:
    """The steps of the verification that an approval passed; empty without an approval, or if its code belongs to no step."""
    if approval.satisfied:
        return tuple(VerificationStep(n, words, "passed") for n, (words, _) in enumerate(_STEPS, start=1))
    failed = next((n for n, (_, codes) in enumerate(_STEPS, start=1) if approval.code in codes), None)
    if failed is None:
        return ()
    states = ["passed"] * (failed - 1) + ["refused"] + ["not reached"] * (len(_STEPS) - failed)
    return tuple(VerificationStep(n, words, states[n - 1]) for n, (words, _) in enumerate(_STEPS, start=1))


def _needed_by(plan: Plan, address: str) -> tuple[str, ...]:
    return next((impact.affected for impact in plan.impact if impact.resource == address), ())


def _reason(edge: ExecEdge) -> str:
    return f"{edge.reason}: {edge.detail}" if edge.detail else edge.reason
