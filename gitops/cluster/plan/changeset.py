"""Builds a changeset's record and events from a plan and its run.

An applied change is a member, or a removal if it deletes; changes that the plan skips are listed as excluded. Graph
updates that only follow from their parts are neither, because the commit computes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from gitops.cluster.changesets.lifecycle import Journal
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Disposition, Effect, Reason
from gitops.cluster.model.changeset import (
    ApprovalConsumed,
    ApprovalRequired,
    Changeset,
    ChangesetBase,
    ChangesetKind,
    ChangesetResult,
    ChangesetSource,
    Committed,
    Drained,
    Excluded,
    Failed,
    Finalized,
    Happening,
    Member,
    PlanFacts,
    Prepared,
    Removal,
    RemovalState,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
    Staged,
)
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.plan import ApprovalRequirement, ExecutionGraph, NodeOutcome, NodeResult, Plan
from gitops.cluster.plan.classes import effects_of
from gitops.cluster.plan.layers import layers
from gitops.core.clock import parse_timestamp
from gitops.core.dataclass import dataclass

NOT_TRIED = frozenset({NodeOutcome.SKIPPED, NodeOutcome.BLOCKED, NodeOutcome.CANCELLED})
"""Outcomes of nodes that did not run."""


@dataclass(frozen=True, slots=True)
class ChangesetIdentity:
    """A changeset's identity: its key, the key's inputs, and the attempt that it repeats."""

    key: str
    cluster: str
    kind: ChangesetKind
    attempt: int
    part: str
    retry_of: str | None = None


def first_record(
    identity: ChangesetIdentity,
    plan: Plan,
    graph: ExecutionGraph,
    *,
    source: ChangesetSource,
    base: ChangesetBase,
    covers: tuple[str, ...],
    at: str,
    atomic: bool,
) -> Changeset:
    """Return the first record of a changeset that applies `plan` with `graph` and is created at the RFC 3339 time `at`."""
    return Changeset(
        key=identity.key,
        cluster=identity.cluster,
        kind=identity.kind,
        attempt=identity.attempt,
        part=identity.part,
        created_at=at,
        updated_at=at,
        source=source,
        base=base,
        desired_digest=plan.config_digest,
        plan=PlanFacts(plan.digest, len(graph.nodes), len(graph.edges), len(layers(graph))),
        members=_members(plan, graph, atomic=atomic),
        removals=_removals(plan),
        excluded=tuple(
            Excluded(change.address, change.disposition.value, None if change.reason is None else change.reason.value)
            for change in plan.changes
            if change.disposition in (Disposition.BLOCKED, Disposition.DEFERRED)
        ),
        covers=covers,
        retry_of=identity.retry_of,
        atomic=atomic,
    )


def _carried_out(plan: Plan) -> Iterable[Change]:
    return (change for change in plan.changes if change.disposition is Disposition.APPLIED)


def _members(plan: Plan, graph: ExecutionGraph, *, atomic: bool) -> tuple[Member, ...]:
    """Return every change except deletes, with the effect of its node.

    That effect may be later than the effect of the change alone. A best-effort run has no barrier after which a
    migration could finish.
    """
    nodes, effects = {node.id: node for node in graph.nodes}, effects_of(plan.changes)
    found = []
    for change in _carried_out(plan):
        if change.action is Action.DELETE:
            continue
        node = nodes.get(change.address)
        effect = effects[change.address].effect if node is None else node.effect
        found.append(
            Member(
                change.address,
                change.action,
                effect,
                change.before,
                change.after,
                change.binding_change,
                lifted=node is not None and node.lifted,
                expanded=node.expanded if node is not None and atomic else None,
            )
        )
    return tuple(found)


def _removals(plan: Plan) -> tuple[Removal, ...]:
    granted = {need.resource: need.spent for need in plan.approvals_required if need.satisfied}
    return tuple(
        Removal(
            change.address,
            change.before or "",
            approval=next((each.approval_id for each in granted.get(change.address, ())), None),
        )
        for change in _carried_out(plan)
        if change.action is Action.DELETE
    )


def approvals_required(plan: Plan) -> tuple[ApprovalRequired, ...]:
    """Return the events for changes that a plan skips until they are approved."""
    digests = {need.resource: need.change_digest for need in plan.approvals_required}
    waiting = (c.address for c in plan.changes if c.reason is Reason.APPROVAL_REQUIRED and c.address in digests)
    return tuple(ApprovalRequired(address, digests[address]) for address in waiting)


def approvals_consumed(needs: Iterable[ApprovalRequirement], consumed: Collection[str]) -> tuple[ApprovalConsumed, ...]:
    """Return the events for the approvals, by id, that a commit consumes."""
    return tuple(
        ApprovalConsumed(need.resource, approval.approval_id, approval.approved_by, need.change_digest)
        for need in needs
        for approval in need.spent
        if approval.approval_id in consumed
    )


def member_events(
    record: Changeset,
    results: Mapping[str, NodeResult],
    effects: Collection[Effect],
    *,
    at: str,
    canonical: bool = False,
) -> tuple[Happening, ...]:
    """Return the events for the results of members in these classes, in the order of the record.

    A member whose node has no result yet gets no event. Completed members are ready or, with `canonical`, in force. The
    part of a staged member that remains after the commit has the class FINISH.
    """
    found: list[Happening] = []
    for member in record.members:
        result = results.get(member.address)
        of_class = member.effect in effects or (member.finishes and Effect.FINISH in effects)
        if not of_class or result is None:
            continue
        runtime = _runtime(member, result, at, canonical=canonical)
        if runtime.state is member.runtime.state:
            continue
        published = bool(rules_of(member.address).catalog_suffix) and runtime.state is RuntimeState.READY
        if published and member.after is not None:
            found.append(Staged(member.address, member.after))
        found.append(RuntimeUpdated(member.address, runtime))
    return tuple(found)


def _runtime(member: Member, result: NodeResult, at: str, *, canonical: bool) -> Runtime:
    before, error = member.runtime, None
    if result.outcome.succeeded:
        state = RuntimeState.CANONICAL if canonical else RuntimeState.READY
    elif result.outcome.failed:
        state = RuntimeState.FAILED
        error = failure_text(result)
    else:
        state = RuntimeState.SKIPPED
    attempts = before.attempts + (state is not RuntimeState.SKIPPED)
    started = before.started_at or at
    return Runtime(state, attempts, started, at, _outputs(before, result), error)


def _outputs(before: Runtime, result: NodeResult) -> Mapping[str, object]:
    version = result.facts.get("manifest_version")
    if version is None:
        return before.outputs
    # Events are written with sorted keys, and records are built from events.
    return MappingProxyType(dict(sorted({**before.outputs, "manifest_version": version}.items())))


def failure_text(result: NodeResult) -> str:
    """Describe a failed node in one line: `<address>: <code>: <message>`."""
    first = next(iter(result.diagnostics), None)
    return (
        f"{result.node_id}: {result.outcome}" if first is None else f"{result.node_id}: {first.code}: {first.message}"
    )


def prepared(record: Changeset) -> Prepared:
    """Return the `changeset_prepared` event, with the members that are ready."""
    return Prepared(tuple(member.address for member in record.members if member.runtime.state is RuntimeState.READY))


def rolling_back(record: Changeset, error: str, node: str | None, on_failure: str = "rollback") -> RollingBack:
    """Return the `changeset_rolling_back` event. `node` is the failed node, which is included if it is a member."""
    failed = next((member.address for member in record.members if member.address == node), None)
    return RollingBack(error, failed, on_failure)


def finalized(record: Changeset, *, state_revision: int, converged: bool, at: str) -> Finalized:
    """Return the `changeset_finalized` event for the time `at`, with the result computed from the record."""
    states = [member.runtime.state for member in record.members]
    left = [m.address for m in record.members if m.runtime.state in (RuntimeState.FAILED, RuntimeState.SKIPPED)]
    counts = {
        "applied": states.count(RuntimeState.CANONICAL),
        "failed": states.count(RuntimeState.FAILED),
        "skipped": states.count(RuntimeState.SKIPPED),
        "deleted": sum(removal.state is RemovalState.DELETED for removal in record.removals),
    }
    left += [removal.address for removal in record.removals if removal.state is not RemovalState.DELETED]
    began, ended = parse_timestamp(record.created_at), parse_timestamp(at)
    result = ChangesetResult(
        state_revision,
        converged,
        no_change=not record.addresses,
        counts=MappingProxyType(counts),
        duration_ms=0 if began is None or ended is None else max(0, int((ended - began).total_seconds() * 1000)),
        failed=tuple(sorted(left)),
    )
    return Finalized(result)


def add_landing(
    journal: Journal,
    results: Mapping[str, NodeResult],
    committed: Committed,
    *,
    evidence: str,
    at: str,
    consumed: Iterable[ApprovalConsumed] = (),
    removed: Iterable[Address] = (),
) -> None:
    """Record that a best-effort run passes all its boundaries at once, without waiting for readers (`evidence`)."""
    untried = {name: result for name, result in results.items() if result.outcome in NOT_TRIED}
    journal.add(*member_events(journal.record, results, {Effect.STAGE}, at=at))
    journal.add(prepared(journal.record))
    journal.add(*member_events(journal.record, results, {Effect.PIVOT, Effect.COMMIT}, at=at))
    # Exclude work that would finish after the commit but was not even attempted.
    journal.add(*member_events(journal.record, untried, {Effect.FINISH}, at=at))
    journal.add(committed, *consumed)
    journal.add(*member_events(journal.record, results, {Effect.FINISH}, at=at, canonical=True))
    journal.add(Drained(0, evidence), *map(Removed, removed))
    revision, converged = committed.state_revision, committed.converged
    journal.add(finalized(journal.record, state_revision=revision, converged=converged, at=at))


def add_failure(journal: Journal, results: Mapping[str, NodeResult], error: str, node: str | None, *, at: str) -> None:
    """Record that nothing was applied. `node` is the same as for `rolling_back`."""
    journal.add(*member_events(journal.record, results, {Effect.STAGE, Effect.PIVOT}, at=at))
    journal.add(rolling_back(journal.record, error, node), Failed(error))
