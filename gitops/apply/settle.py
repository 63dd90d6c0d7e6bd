"""From the state and the results of a run to the next state. Only what is done changes a digest; the order of results is free."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.model.address import Address, Kind
from gitops.model.approval import Approval
from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.kinds import rules_of
from gitops.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.model.plan import ApprovalRequirement, NodeOutcome, NodeResult, Plan
from gitops.model.resource import DesiredState
from gitops.plan.draft import StateDraft
from gitops.plan.planner import diff

_BLOCKED_MESSAGES = {
    Reason.APPROVAL_REQUIRED: "waits for an approval",
    Reason.DEPENDENCY_NOT_APPLIED: "something that it needs was not applied",
    Reason.GRAPH_CREATE_FAILED: "the graph could not be created",
    Reason.SCHEMA_APPLY_FAILED: "the schema could not be applied",
    Reason.GRAPH_DELETE_FAILED: "the graph could not be deleted",
    Reason.RECOVERY_PENDING: "an interrupted operation is not settled",
    Reason.UNSUPPORTED_KIND: "apply does not carry out this change",
}
_SKIPPED_CODES = {
    Reason.GRAPH_CREATE_FAILED: Code.GRAPH_CREATE_SKIPPED,
    Reason.SCHEMA_APPLY_FAILED: Code.SCHEMA_APPLY_SKIPPED,
    Reason.GRAPH_DELETE_FAILED: Code.GRAPH_DELETE_SKIPPED,
}


@dataclass(frozen=True, slots=True)
class Settlement:
    """The outcome of a run.

    `state` carries the revision of the state it started from; writing it raises it. `publishable` is False when catalog
    payloads are missing: then nothing may be written. `trust_applied` says that new keys and rules take effect,
    `trust_waits` that they do not yet: then the run has not converged, though the state may be what is declared.
    """

    state: LedgerState
    changes: tuple[Change, ...]
    consumed: tuple[Approval, ...]
    converged: bool
    publishable: bool
    trust_applied: bool
    trust_waits: bool
    diagnostics: Diagnostics


def settle(
    plan: Plan, desired: DesiredState, state: LedgerState, results: Iterable[NodeResult], *, at: str, actor: str | None
) -> Settlement:
    """Fold the results of a run by `actor`, settled at the RFC 3339 time `at`, into the state that it started from."""
    by_node = {r.node_id: r for r in results}
    diagnostics = Diagnostics()
    for node in plan.graph.nodes:
        if node.id in by_node:
            diagnostics.extend(by_node[node.id].diagnostics)
    failures = _moving_failures(plan.changes, by_node)
    for change, reason in failures.items():
        if by_node[change].outcome in (NodeOutcome.SKIPPED, NodeOutcome.BLOCKED):
            blocker = by_node[change].blocked_by or "an earlier failure"
            diagnostics.add(_SKIPPED_CODES[reason], change, f"not tried because of {blocker}")
    changes = _demote(plan.changes, failures, by_node, desired)
    _warn_of_unapplied(changes, diagnostics)
    publishable = not any(
        by_node[c.address].outcome in (NodeOutcome.FAILED, NodeOutcome.UNKNOWN)
        for c in plan.changes
        if rules_of(c.address).catalog_suffix and c.address in by_node
    )
    granted = {r.resource: r for r in plan.approvals_required if r.satisfied}
    next_state, consumed = _next_state(changes, desired, state, granted, at=at, actor=actor)
    reached = not diff(desired, next_state)
    if reached:
        next_state = replace(next_state, config_digest=desired.config_digest)
    trust = [c.disposition is Disposition.APPLIED for c in changes if c.address.kind is Kind.TRUST]
    return Settlement(
        state=next_state,
        changes=changes,
        consumed=consumed,
        converged=reached and all(trust),
        publishable=publishable,
        trust_applied=any(trust),
        trust_waits=not all(trust),
        diagnostics=diagnostics,
    )


def _moving_failures(changes: Sequence[Change], results: Mapping[str, NodeResult]) -> dict[Address, Reason]:
    """Every graph-moving change that was started or skipped and is not done, with the reason to record."""
    reasons = {
        (Kind.GRAPH, Action.CREATE): Reason.GRAPH_CREATE_FAILED,
        (Kind.SCHEMA, Action.UPDATE): Reason.SCHEMA_APPLY_FAILED,
        (Kind.GRAPH, Action.DELETE): Reason.GRAPH_DELETE_FAILED,
    }
    failed = {}
    for change in changes:
        reason = reasons.get((change.address.kind, change.action))
        result = results.get(change.address)
        if reason is not None and result is not None and result.outcome is not NodeOutcome.DONE:
            failed[change.address] = reason
    return failed


def _demote(
    changes: Sequence[Change],
    failures: Mapping[Address, Reason],
    results: Mapping[str, NodeResult],
    desired: DesiredState,
) -> tuple[Change, ...]:
    """Changes that were to be applied and are not done, or depend on a graph operation that is not, become blocked."""
    graphs = {address.graph for address in failures}
    bound = {
        edge.source for edge in desired.dependencies if edge.source.kind is Kind.POLICY and edge.target.graph in graphs
    }
    final = []
    for change in changes:
        address, result = change.address, results.get(change.address)
        undone = result is not None and result.outcome is not NodeOutcome.DONE
        if change.disposition is Disposition.APPLIED and (undone or address in bound or address.graph in graphs):
            reason = failures.get(address, Reason.DEPENDENCY_NOT_APPLIED)
            change = replace(change, disposition=Disposition.BLOCKED, reason=reason)  # noqa: PLW2901
        final.append(change)
    return tuple(final)


def _warn_of_unapplied(changes: Sequence[Change], diagnostics: Diagnostics) -> None:
    for change in changes:
        address = change.address
        if change.disposition is Disposition.DEFERRED:
            diagnostics.add(Code.APPLY_UNSUPPORTED_CHANGE, address, f"{change.action} of {address} is not carried out")
        elif change.disposition is Disposition.BLOCKED and change.address.kind is Kind.TRUST:
            diagnostics.add(Code.TRUST_CHANGE_PENDING, address, "the keys and rules of the last entry stay in force")
        elif change.disposition is Disposition.BLOCKED and change.reason is not None:
            why = f"{change.reason}: {_BLOCKED_MESSAGES[change.reason]}"
            diagnostics.add(Code.APPLY_DEPENDENCY_BLOCKED, address, why)


def _has_status(change: Change) -> bool:
    """Whether a blocked change is shown in the statuses.

    Recovery keeps its own status; trust is not a resource of the state document, whose other readers know no branch ledgers.
    """
    blocked = change.disposition is Disposition.BLOCKED and change.reason is not Reason.RECOVERY_PENDING
    return blocked and change.address.kind is not Kind.TRUST


def _no_longer_blocked(changes: Sequence[Change], state: LedgerState) -> dict[Address, StatusRecord | None]:
    """The statuses of resources that were blocked and have no change any more, because the declaration was taken back."""
    changed = {change.address for change in changes}
    return {
        address: StatusRecord(Status.APPLIED) if address in state.resources else None
        for address, record in state.statuses.items()
        if record.status is Status.BLOCKED
        and address not in changed
        and Reason.RECOVERY_PENDING.value not in record.conditions
    }


def _next_state(
    changes: Sequence[Change],
    desired: DesiredState,
    state: LedgerState,
    granted: Mapping[Address, ApprovalRequirement],
    *,
    at: str,
    actor: str | None,
) -> tuple[LedgerState, tuple[Approval, ...]]:
    draft = StateDraft(state)
    removed: list[tuple[str, str | None]] = []
    consumed: list[Approval] = []
    for change in changes:
        address = change.address
        if change.disposition is Disposition.APPLIED:
            if address in granted:
                consumed += granted[address].approvals
            if change.address.kind is Kind.TRUST:
                continue
            if change.action is not Action.DELETE:
                draft.put(address, AppliedResource(change.after or "", desired.resources[address].applies_to))
                draft.mark(address, StatusRecord(Status.APPLIED))
                continue
            draft.drop(address)
            draft.mark(address, None)
            if change.address.kind is Kind.GRAPH:
                approvals = granted[address].approvals if address in granted else ()
                removed.append((change.address.name, approvals[0].approval_id if approvals else None))
        elif _has_status(change) and change.reason is not None:
            message = _BLOCKED_MESSAGES[change.reason]
            draft.mark(address, StatusRecord(Status.BLOCKED, (change.reason.value,), message))
    for address, status in _no_longer_blocked(changes, state).items():
        draft.mark(address, status)
    used = {"consumed_at": at, "consumed_by_operation": "apply"}
    draft.use_approvals((a.approval_id for a in consumed), used)
    for graph, approval_id in removed:
        draft.remove_graph(graph, at=at, approval_id=approval_id, actor=actor)
    for resource in desired.of_kind(Kind.GRAPH):
        draft.renew(resource.address.name)
    return draft.state(), tuple(consumed)
