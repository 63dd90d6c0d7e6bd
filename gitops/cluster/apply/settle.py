"""Computes the next state from the current state and a run's results. Only completed nodes change a digest, in any order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.hosts.port import RECORD
from gitops.cluster.model.address import Address, Kind, graph_address, host_address, of_kind, schema_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, Reason, Seen
from gitops.cluster.model.compute import intended_rows, read_strategy
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import AppliedResource, LedgerState, Status, StatusRecord
from gitops.cluster.model.plan import FENCE, REFUSED, ApprovalRequirement, NodeOutcome, NodeResult, Plan
from gitops.cluster.model.resource import DesiredState, edges_near
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.landing import PENDING, left_out
from gitops.cluster.plan.planner import diff
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics


@dataclass(frozen=True, slots=True)
class Settlement:
    """A run's results, settled.

    `state` has the revision of the state it started from; writing it increments it. `publishable` is False if catalog
    payloads are missing: then nothing may be written. `trust_applied` means that new keys and rules take effect.
    `rules_wait` means that they, or the cluster's location, do not take effect yet; then the run has not converged,
    although the state can match the declaration.
    """

    state: LedgerState
    changes: tuple[Change, ...]
    consumed: tuple[Approval, ...]
    converged: bool
    publishable: bool
    trust_applied: bool
    rules_wait: bool
    diagnostics: Diagnostics


def settle(
    plan: Plan, desired: DesiredState, state: LedgerState, results: Iterable[NodeResult], *, at: str, actor: str | None
) -> Settlement:
    """Add a run's results to its starting state for `actor`, settled at the RFC 3339 time `at`."""
    by_node = {r.node_id: r for r in results}
    diagnostics = Diagnostics()
    for node in plan.graph.nodes:
        if node.id in by_node:
            diagnostics.extend(by_node[node.id].diagnostics)
    failures = _failed_on_hosts(plan.changes, by_node)
    for change in plan.changes:
        moving, result = rules_of(change.address).operation(change.action), by_node.get(change.address)
        if moving is None or moving.failed is None or result is None or result.outcome.succeeded:
            continue
        failures[change.address] = _reason(result, moving.failed)
        if result.outcome not in (NodeOutcome.SKIPPED, NodeOutcome.BLOCKED):
            continue
        if moving.skipped is not None and result.blocked_by:
            diagnostics.add(moving.skipped, change.address, f"not tried because of {result.blocked_by}")
    changes = _demote(plan.changes, failures, by_node, desired, state)
    reported: set[tuple[str, str]] = set()
    for change in changes:
        left = left_out(change)
        # One host that cannot be reached is one problem, however many items it has.
        if left is not None and (left.code, left.path) not in reported:
            reported.add((left.code, left.path))
            diagnostics.add_error(left)
    publishable = not any(
        by_node[c.address].outcome.failed
        for c in plan.changes
        if rules_of(c.address).catalog_suffix and c.address.kind is not Kind.HOST and c.address in by_node
    )
    granted = {r.resource: r for r in plan.approvals_required if r.satisfied}
    next_state, consumed = _next_state(changes, desired, state, granted, by_node, at=at, actor=actor)
    approved = [c.address for c in changes if c.disposition is Disposition.APPLIED and c.address in granted]
    next_state = _with_hosts(next_state, approved, by_node, at)
    # A repeated change of an item that failed leaves the record as it was.
    stuck = any(c.before == c.after and c.address.host and c.disposition is not Disposition.APPLIED for c in changes)
    reached = not stuck and not diff(desired, next_state)
    if reached:
        next_state = replace(next_state, config_digest=desired.config_digest)
    trust = [c.disposition is Disposition.APPLIED for c in changes if c.address.kind is Kind.TRUST]
    waits = any(c.disposition is not Disposition.APPLIED for c in changes if c.address.kind in PENDING)
    return Settlement(
        state=next_state,
        changes=changes,
        consumed=consumed,
        converged=reached and not waits,
        publishable=publishable,
        trust_applied=any(trust),
        rules_wait=waits,
        diagnostics=diagnostics,
    )


def _failed_on_hosts(changes: Sequence[Change], results: Mapping[str, NodeResult]) -> dict[Address, Reason]:
    """Return the items whose change was attempted on a host and failed. The next apply compares them again."""
    ended = (NodeOutcome.FAILED, NodeOutcome.INDETERMINATE)
    return {
        c.address: Reason.HOST_CHANGE_FAILED
        for c in changes
        if c.address.kind is Kind.HOST and c.address in results and results[c.address].outcome in ended
    }


def _with_hosts(
    state: LedgerState, approved: Iterable[Address], results: Mapping[str, NodeResult], at: str
) -> LedgerState:
    """Return the state with what the run found out about the machines that it took over.

    An `approved` way to a host may lead to another machine, which is recorded when it is taken over.
    """
    found: dict[Address, Mapping[str, object]] = {
        host: {**state.observations[host], "machine": None}
        for host in approved
        if host in state.observations and host.kind is Kind.HOST and host.item is None
    }
    for name, result in results.items():
        record, host = result.facts.get(RECORD), host_address(name.removeprefix(f"{FENCE}."))
        if isinstance(record, Mapping) and host in state.resources:
            found[host] = {"kind": "host", **record, "observed_at": at}
    return replace(state, observations={**state.observations, **found}) if found else state


def _demote(
    changes: Sequence[Change],
    failures: Mapping[Address, Reason],
    results: Mapping[str, NodeResult],
    desired: DesiredState,
    state: LedgerState,
) -> tuple[Change, ...]:
    """Mark changes as blocked if they, or a graph operation that they depend on, were not applied."""
    graphs = {address.graph for address in failures if address.graph is not None}
    near = edges_near(desired.dependencies, graphs)
    bound = {edge.source for edge in near if edge.source.kind is Kind.POLICY and edge.target.graph in graphs}
    undone = {name for name, result in results.items() if not result.outcome.succeeded}
    torn = _torn([c for c in changes if c.address.kind is Kind.STRATEGY], undone, results, desired, state)
    final = []
    for change in changes:
        address = change.address
        left = address in undone or address.compute in torn
        if change.disposition is Disposition.APPLIED and (left or address in bound or address.graph in graphs):
            reason = failures.get(address) or _reason(results.get(address), Reason.DEPENDENCY_NOT_APPLIED)
            change = replace(change, disposition=Disposition.BLOCKED, reason=reason)  # noqa: PLW2901
        final.append(change)
    return tuple(final)


def _torn(
    changes: Sequence[Change],
    undone: Collection[str],
    results: Mapping[str, NodeResult],
    desired: DesiredState,
    state: LedgerState,
) -> frozenset[str | None]:
    """Return the compute clusters of which no strategy can be applied.

    The strategies of a compute cluster are applied atomically, because the text of each one repeats the declaration of
    the cluster and its target, so a partial update would contradict itself. If recorded strategies are left out, the
    others wait too, unless an unchanged strategy of the same target shows that the declaration of the target is
    unchanged.
    """
    refused: set[str] = set()
    for result in results.values():
        if isinstance(keys := result.facts.get(REFUSED), tuple):
            refused.update(keys)
    left = {c.address.compute for c in changes if c.address in undone or c.address.compute in refused}
    recorded = {address.compute for address in of_kind(state.resources, Kind.STRATEGY)}
    if not left & recorded:
        return frozenset(left)
    target = {
        address: read_strategy(address, desired.resources[address].content or b"").target.name
        for address in of_kind(desired.resources, Kind.STRATEGY)
    }
    same = {target[address] for address in target if state.digests().get(address) == desired.resources[address].digest}
    if all(target.get(c.address) in same for c in changes if c.address.compute in left & recorded):
        return frozenset(left)
    return frozenset(c.address.compute for c in changes)


def _reason(result: NodeResult | None, failed: Reason) -> Reason:
    """Return why the change of a node with this outcome is not applied: `failed` if the change itself was attempted."""
    if result is None or result.outcome is NodeOutcome.FAILED or result.outcome.succeeded:
        return failed
    if result.stopped:
        return Reason.RUN_STOPPED
    if result.outcome is NodeOutcome.INDETERMINATE:
        return Reason.RECOVERY_PENDING
    return Reason.NOT_TRIED if result.outcome is NodeOutcome.SKIPPED else Reason.DEPENDENCY_NOT_APPLIED


def with_seen(
    state: LedgerState, desired: DesiredState, facts: Mapping[Address, Mapping[str, object]], *, at: str
) -> LedgerState:
    """Return `state` with the graphs in `facts` (observations by change address) recorded as seen at time `at`.

    The applied revision does not change. Without observations, the state does not change either. Any decision about a
    graph recorded as lost needs an approval, so its record is also kept.
    """
    draft = StateDraft(state)
    for address, seen in facts.items():
        if graph_address(address.name) not in state.vanished:
            _observe(draft, desired, address, seen, at)
    after = draft.state()
    return state if after == state else replace(after, revision=state.next_revision)


def _observe(draft: StateDraft, desired: DesiredState, address: Address, facts: Mapping[str, object], at: str) -> None:
    """Record the observation of a graph after it was created or migrated."""
    seen, live, uri = facts.get("seen"), facts.get("schema_digest"), facts.get("graph_uri")
    if isinstance(seen, Seen) and isinstance(live, str) and isinstance(uri, str):
        declared = desired.resources.get(schema_address(address.name))
        wanted = None if declared is None else declared.digest
        draft.observe_graph(address.name, seen, live, wanted, uri=uri, at=at)


def _mark_applied(draft: StateDraft, state: LedgerState, address: Address) -> None:
    """Mark a resource as applied; with its schema, also a graph whose schema was the recorded drift."""
    draft.mark(address, StatusRecord(Status.APPLIED))
    if address.kind is Kind.SCHEMA and graph_address(address.name) in state.drifted - state.vanished:
        draft.mark(graph_address(address.name), StatusRecord(Status.APPLIED))


def _next_state(
    changes: Sequence[Change],
    desired: DesiredState,
    state: LedgerState,
    granted: Mapping[Address, ApprovalRequirement],
    results: Mapping[str, NodeResult],
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
                consumed += granted[address].spent
            if address.kind in PENDING:
                continue
            if change.action is not Action.DELETE:
                draft.put(address, AppliedResource(change.after or "", desired.resources[address].applies_to))
                _mark_applied(draft, state, address)
                if address.kind is Kind.STRATEGY:
                    content = desired.resources[address].content or b""
                    draft.observe(address, intended_rows(address, content, state.observations.get(address)))
                if address in results:
                    _observe(draft, desired, address, results[address].facts, at)
                continue
            draft.drop(address)
            draft.mark(address, None)
            if address.kind is Kind.GRAPH:
                approvals = granted[address].approvals if address in granted else ()
                removed.append((address.name, approvals[0].approval_id if approvals else None))
        elif (
            # Recovery has its own status. These are not in the state document, which other programs also read.
            change.disposition is Disposition.BLOCKED
            and change.reason not in (None, Reason.RECOVERY_PENDING)
            and address.kind not in PENDING
        ):
            draft.mark(address, StatusRecord(Status.BLOCKED, (change.reason.value,), change.reason.words))
    changed = {change.address for change in changes}
    for address, record in state.statuses.items():
        waits = Reason.RECOVERY_PENDING.value in record.conditions
        if record.status is Status.BLOCKED and address not in changed and not waits:
            # The change was blocked and no longer exists, because the declaration was reverted.
            draft.mark(address, StatusRecord(Status.APPLIED) if address in state.resources else None)
    used = {"consumed_at": at, "consumed_by_operation": "apply"}
    draft.use_approvals((a.approval_id for a in consumed), used)
    for graph, approval_id in removed:
        draft.remove_graph(graph, at=at, approval_id=approval_id, actor=actor)
    # A graph without changes already has the desired digest.
    for graph in sorted({c.address.graph for c in changes if c.address.graph is not None}):
        if graph_address(graph) in desired.resources:
            draft.renew(graph)
    return draft.state(), tuple(consumed)
