"""Answers `/gitops explain ADDRESS` with all facts about one change in a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gitops.cluster.approvals.verify import STEPS
from gitops.cluster.model.address import Address
from gitops.cluster.model.outcome import PlanOutcome
from gitops.core.dataclass import dataclass
from gitops.render.change_rows import PLANNED, action_of, effect_of
from gitops.render.comment_inputs import ApprovalState
from gitops.render.migrations import SHOWN, MigrationView
from gitops.render.plan_views import PlanView


@dataclass(frozen=True, slots=True)
class Reasoned:
    """A resource with a reason."""

    resource: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """All facts about one change in a plan, for `/gitops explain ADDRESS`.

    `changed` is False if the plan does not change the resource; then only `after` is set. `waits_for` and `awaited_by`
    are its edges in the execution graph, and `needed_by` are the resource's dependents. Each list is cut after 20, with
    the number of `more`.
    """

    resource: Address
    changed: bool
    action: str = ""
    effect: str = ""
    before: str = ""
    after: str
    waits_for: tuple[Reasoned, ...] = ()
    awaited_by: tuple[Reasoned, ...] = ()
    more_edges: int = 0
    needed_by: tuple[Address, ...] = ()
    more_needed: int = 0
    migration: MigrationView | None = None
    approval: ApprovalState | None = None
    checks: tuple[dict[str, Any], ...] = ()


def explanations(
    outcome: PlanOutcome, view: PlanView | None, addresses: Iterable[str], states: Sequence[ApprovalState]
) -> tuple[Explanation, ...]:
    """Return one explanation per address, in order, without duplicates."""
    found = []
    for address in map(Address, dict.fromkeys(addresses)):
        change = None if view is None else view.plan.change(address)
        if view is None or change is None:
            declared = outcome.resource_digests.get(address, "")[:12]
            found.append(Explanation(resource=address, changed=False, after=declared))
            continue
        plan = view.plan
        before: list[Reasoned] = []
        after: list[Reasoned] = []
        for edge in plan.graph.edges:
            reason = f"{edge.reason}: {edge.detail}" if edge.detail else edge.reason
            if edge.after == address:
                before.append(Reasoned(edge.before, reason))
            if edge.before == address:
                after.append(Reasoned(edge.after, reason))
        needed = next((impact.affected for impact in plan.impact if impact.resource == address), ())
        approval = next((state for state in states if state.resource == address), None)
        found.append(
            Explanation(
                resource=address,
                changed=True,
                action=action_of(change),
                effect=effect_of(change, PLANNED),
                before=(change.before or "")[:12],
                after=(change.after or "")[:12],
                waits_for=tuple(before[:SHOWN]),
                awaited_by=tuple(after[:SHOWN]),
                more_edges=max(0, len(before) - SHOWN) + max(0, len(after) - SHOWN),
                needed_by=needed[:SHOWN],
                more_needed=max(0, len(needed) - SHOWN),
                migration=view.migrations.get(address),
                approval=approval,
                checks=() if approval is None else verification_steps(approval),
            )
        )
    return tuple(found)


def verification_steps(approval: ApprovalState) -> tuple[dict[str, Any], ...]:
    """Return an approval's numbered verification steps, each `passed`, `refused` or `not reached`.

    The result is empty if there is no approval, or if no step refused it.
    """
    at = len(STEPS) + 1 if approval.satisfied else approval.step
    if at is None:
        return ()
    states = ["passed"] * (at - 1) + ["refused"] + ["not reached"] * len(STEPS)
    return tuple(
        {"number": number, "words": step.asks, "state": state}
        for number, (step, state) in enumerate(zip(STEPS, states, strict=False), start=1)
    )
