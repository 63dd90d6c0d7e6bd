"""Turns the actions that a tick decided into an execution graph and a changeset.

| node | waits for |
| --- | --- |
| decision of a strategy that wants an action | the decisions before it in its compute cluster (`strategy_order`) |
| create of a replica | the decisions that want it (`replica_decision`), and the drops that come before it (`replica_gap`) |
| readiness of a compute cluster, if a drop needs a cover | its creates (`replica_cover`) |
| drop of a replica | the decisions that want it (`replica_decision`), and the readiness (`replica_cover`) |

Decisions are made before the graph is built. A decision's node checks, just before the first statement, whether it is
still valid.

The nodes of one compute cluster are a failure group: after the first failure, the cluster is left alone. The nodes of
one target share its connection, and therefore the lock `compute:<target>`. Statements also hold the lock of their
compute cluster.

A replica is not a resource of the cluster, so neither the applied state nor the catalog changes. In the changeset, its
create is a staged member and its drop a finishing one. The outputs of each member identify its statement, so that a
later tick can determine the effects of an interrupted tick and write its missing audit rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any

from gitops.cluster.model import changeset
from gitops.cluster.model.address import Address, replica_address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.plan import (
    DECISION,
    READINESS,
    REPLICA,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    NodeOutcome,
    NodeResult,
)
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.plan.layers import layers
from gitops.cluster.targets.port import AuditRow, ReplicaOutcome, ReplicaResult, StrategyTarget, TargetReader
from gitops.cluster.targets.signals import ComputeCluster, Signals
from gitops.compute.strategies.decision import GAP, SUSPENDED, ActionKind, StrategyDecision
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, around

_ORDER, _DECISION, _COVER = "strategy_order", "replica_decision", "replica_cover"
_GAP = "replica_gap"


@dataclass(frozen=True, slots=True)
class TickAction:
    """One statement about a replica, with its reason.

    `compute` is the name of the compute cluster in `cluster.yaml`; `cluster` and `cluster_id` are its name and id on
    the target. `by` are the strategies that wanted the action, and `signals` is the digest of the signals behind the
    decision. `index` counts from 1 within the compute cluster, which has `of` actions. `suspends` means that no other
    replica needs to cover a drop, because the cluster is idle or declares `drop_first`.
    """

    target: str
    compute: str
    cluster: str
    cluster_id: str
    kind: ActionKind
    replica: str
    size: str
    reasons: tuple[str, ...]
    by: tuple[str, ...]
    signals: str
    index: int
    of: int
    suspends: bool = False

    @property
    def address(self) -> Address:
        """The replica's address."""
        return replica_address(self.target, self.compute, self.replica)

    @property
    def decisions(self) -> Mapping[StrategyType, str]:
        """The strategies that wanted the action, in the order in which they decided, each with its reasons as text."""
        return {
            kind: "; ".join(text for by, _, text in (each.partition(": ") for each in self.reasons) if by == kind)
            for kind in StrategyType
            if kind in self.by
        }

    @property
    def sql(self) -> str:
        """The SQL statement."""
        if self.kind is ActionKind.CREATE:
            return create_replica(self.cluster, self.replica, self.size)
        return drop_replica(self.cluster, self.replica)

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the action as JSON, without what its member's record already has. Keys are sorted, as in events."""
        names = ("target", "compute", "cluster", "cluster_id", "replica", "size", "signals", "index", "of", "suspends")
        values = {name: getattr(self, name) for name in names}
        form = {**values, "reasons": list(self.reasons), "by": list(self.by)}
        return MappingProxyType(dict(sorted(form.items())))


def actions_of(
    rules: ComputeRules, cluster: ComputeCluster, decision: StrategyDecision, signals: Signals
) -> list[TickAction]:
    """Return the actions of a decision in order."""
    seen, metadata = signals_digest(signals), decision.desired.metadata
    suspends = SUSPENDED in metadata or GAP in metadata
    return [
        TickAction(
            rules.target.name,
            rules.key,
            cluster.name,
            cluster.cluster_id,
            each.kind,
            each.replica,
            each.spec.size,
            tuple(map(str, each.reasons)),
            tuple(dict.fromkeys(reason.by for reason in each.reasons)),
            seen,
            index,
            len(decision.actions),
            suspends,
        )
        for index, each in enumerate(decision.actions, 1)
    ]


def signals_digest(signals: Signals) -> str:
    """Return a digest of signals. Equal signals have equal digests."""
    last = signals.last_activity
    return canonical_digest(
        {
            "now": signals.now.isoformat(),
            "last_activity": None if last is None else last.isoformat(),
            "hydrated": sorted(signals.hydrated),
            "crashes": {name: [each.total, each.out_of_memory] for name, each in signals.crashes.items()},
            "sizes": {name: None if cost is None else f"{cost:g}" for name, cost in signals.sizes.credits.items()},
        }
    )


def decision_id(compute: str, strategy: StrategyType) -> str:
    """Return the node id of a strategy's decision about a compute cluster, named as in `cluster.yaml`."""
    return f"{DECISION}.{compute}.{strategy.value}"


def tick_graph(actions: Iterable[TickAction]) -> ExecutionGraph:
    """Return the execution graph of actions, by the table in this module."""
    nodes: list[ExecNode] = []
    edges: list[ExecEdge] = []
    ordered = sorted(actions, key=lambda each: (each.target, each.compute, each.index))
    for (target, compute), group in groupby(ordered, key=lambda each: (each.target, each.compute)):
        found = list(group)
        place, deciding = f"{target}.{compute}", LockClaim(f"compute:{target}")
        locks = (deciding, LockClaim(f"replicas:{target}/{found[0].cluster}"))
        kinds = [kind for kind in StrategyType if any(kind in each.decisions for each in found)]
        decided = [decision_id(compute, kind) for kind in kinds]
        for name in decided:
            nodes.append(ExecNode(name, DECISION, Action.UPDATE, len(nodes), (deciding,), place))
        edges += [ExecEdge(before, after, _ORDER, compute) for before, after in pairwise(decided)]
        covered = [each.address for each in found if each.kind is ActionKind.DROP and not each.suspends]
        ready = f"{READINESS}.{place}"
        gone: list[str] = []
        for each in found:
            if covered and each.address == covered[0]:
                nodes.append(ExecNode(ready, READINESS, Action.UPDATE, len(nodes), locks, place))
            made = each.kind is ActionKind.CREATE
            action, effect = (Action.CREATE, Effect.STAGE) if made else (Action.DELETE, Effect.FINISH)
            nodes.append(ExecNode(each.address, REPLICA, action, len(nodes), locks, place, effect))
            for kind, words in each.decisions.items():
                edges.append(ExecEdge(decision_id(compute, kind), each.address, _DECISION, words))
            if made:
                edges += [ExecEdge(name, each.address, _GAP, each.replica) for name in gone]
            else:
                gone.append(each.address)
            if made and covered:
                edges.append(ExecEdge(each.address, ready, _COVER, each.replica))
        edges += [ExecEdge(ready, name, _COVER) for name in covered]
    return ExecutionGraph(tuple(nodes), tuple(sorted(edges)))


def tick_record(
    key: str,
    cluster: str,
    attempt: int,
    actions: Sequence[TickAction],
    *,
    base: changeset.ChangesetBase,
    actor: str | None,
    at: str,
) -> changeset.Changeset:
    """Return the first record of a tick's changeset, created at the RFC 3339 time `at`."""
    graph = tick_graph(actions)
    return changeset.Changeset(
        key=key,
        cluster=cluster,
        kind=changeset.ChangesetKind.TICK,
        attempt=attempt,
        part="1/1",
        created_at=at,
        updated_at=at,
        source=changeset.ChangesetSource(actor=actor),
        base=base,
        desired_digest=base.config_digest or base.applied_digest,
        plan=changeset.PlanFacts(plan_digest(actions), len(graph.nodes), len(graph.edges), len(layers(graph))),
        members=tuple(map(_member, sorted(actions, key=lambda each: each.address))),
        atomic=False,
    )


def plan_digest(actions: Iterable[TickAction]) -> str:
    """Return a digest of the actions and the signals that led to them."""
    return canonical_digest([{"op": each.kind.value, **each.form} for each in actions])


def _member(action: TickAction) -> changeset.Member:
    made, content = action.kind is ActionKind.CREATE, canonical_digest({"size": action.size})
    return changeset.Member(
        action.address,
        Action.CREATE if made else Action.DELETE,
        Effect.STAGE if made else Effect.FINISH,
        None if made else content,
        content if made else None,
        runtime=changeset.Runtime(outputs=action.form),
    )


def action_of(member: changeset.Member) -> TickAction | None:
    """Return a member's action. None if its outputs do not come from a tick."""
    form = {**member.runtime.outputs, "kind": ActionKind.CREATE if member.action is Action.CREATE else ActionKind.DROP}
    try:
        found = TickAction(**{**form, "reasons": tuple(form["reasons"]), "by": tuple(form["by"])})
    except (KeyError, TypeError):
        return None
    texts = (found.target, found.compute, found.cluster, found.cluster_id, found.replica, found.size)
    known = all(isinstance(each, str) for each in texts) and found.address == member.address
    return found if known else None


def audit_row(key: str, action: TickAction, *, executed: bool, said: str) -> AuditRow:
    """Return the audit row of a statement in changeset `key`. A statement always gets the same id.

    `said` is the result of an executed statement, or the error of a failed one.
    """
    subject = {
        "changeset": key,
        "cluster_id": action.cluster_id,
        "op": action.kind.value,
        "replica": action.replica,
        "size": action.size,
    }
    context = {
        "changeset": key,
        "action_index": action.index,
        "total_actions": action.of,
        "reasons": list(action.reasons),
        "strategy": list(action.by),
        "signals": action.signals,
        # A statement that drops a replica does not contain its size.
        "size": action.size,
        "execution_result" if executed else "error": said,
    }
    return AuditRow(
        canonical_digest(subject), action.cluster_id, action.sql, context, executed, None if executed else said
    )


# -- The work of a tick. A node is a statement about a replica with its audit row, or a check --------------------------
#
# There are two checks: whether a strategy's decision is still valid just before it is applied, and whether the replicas
# that cover a drop are hydrated.
#
# 1. After a lost connection, the effect of a statement is looked up, never guessed, and the statement is not retried in
#    the same tick. The lock may be lost as well, so the tick does nothing more on that target.
# 2. A statement has one audit row, with `executed` set if it took effect. If the row cannot be written, the node fails.
#    The changeset then remains open, and the next tick writes missing rows before it does anything else.


OWES = "owes"
"""Fact of a result whose audit row has not been written yet."""

_REFUSALS = {
    ReplicaOutcome.EXISTS: Code.REPLICA_CONFLICT,
    ReplicaOutcome.ABSENT: Code.COMPUTE_CLUSTER_MISSING,
    ReplicaOutcome.INVALID_SIZE: Code.REPLICA_SIZE_INVALID,
    ReplicaOutcome.MANAGED: Code.COMPUTE_CLUSTER_MANAGED,
    ReplicaOutcome.SINGLE_REPLICA: Code.SINGLE_REPLICA_ONLY,
    ReplicaOutcome.FAILED: Code.REPLICA_FAILED,
}


class ReplicaWork:
    """Executes the nodes of a tick. Each target has one connection, and the nodes' locks make them use it one at a time."""

    def __init__(
        self,
        key: str,
        actions: Iterable[TickAction],
        targets: Mapping[str, StrategyTarget],
        faults: Faults,
        *,
        since: datetime,
    ) -> None:
        """`key` is the changeset's key, and `since` is the time when its actions were decided."""
        self._key, self._targets, self._faults, self._since = key, targets, faults, since
        self._actions: Mapping[str, TickAction] = {each.address: each for each in actions}
        self._lost: set[str] = set()

    def __call__(self, node: ExecNode) -> NodeResult:
        """Execute a node."""
        if node.kind == DECISION:
            return self._look_at_decision(node)
        if node.kind == READINESS:
            return self._look_at_cover(node)
        action, problems = self._actions[node.id], Diagnostics()
        if action.target in self._lost:
            detail = f"nothing more is done to target {action.target} in this tick: its connection was lost"
            problems.add(Code.TARGET_UNREACHABLE, node.id, detail)
            return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
        with around(self._faults, "tick", "statement"):
            said = self._carry_out(action)
        outcome = self._settle(action, said, problems)
        if outcome is NodeOutcome.INDETERMINATE:
            return NodeResult(node.id, outcome, tuple(problems), facts={OWES: True})
        executed = outcome is NodeOutcome.DONE
        with around(self._faults, "tick", "audit"):
            owes = not self._audit(action, executed, _words(outcome, said), problems)
        if owes:
            return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems), facts={OWES: True})
        return NodeResult(node.id, outcome, tuple(problems))

    def _carry_out(self, action: TickAction) -> ReplicaResult:
        target = self._targets[action.target]
        if action.kind is ActionKind.CREATE:
            return target.create_replica(action.cluster, action.replica, action.size)
        return target.drop_replica(action.cluster, action.replica)

    def _settle(self, action: TickAction, said: ReplicaResult, problems: Diagnostics) -> NodeOutcome:
        """Return a node's outcome from the target's response or, if that is unclear, from the current replicas."""
        target, outcome = self._targets[action.target], said.outcome
        if outcome is ReplicaOutcome.DONE:
            return NodeOutcome.DONE
        if outcome is ReplicaOutcome.INDETERMINATE:
            self._lost.add(action.target)
            happened = has_happened(target, action)
            if happened:
                return NodeOutcome.DONE
            what = "whether it took effect is not known" if happened is None else "it had no effect"
            problems.add(Code.TARGET_UNREACHABLE, action.address, f"the connection was lost ({said.message}): {what}")
            return NodeOutcome.INDETERMINATE if happened is None else NodeOutcome.FAILED
        in_place = outcome in (ReplicaOutcome.EXISTS, ReplicaOutcome.ABSENT) and has_happened(target, action)
        if in_place:
            return NodeOutcome.UNCHANGED
        problems.add(
            _REFUSALS[outcome],
            action.address,
            f"the target refuses to {action.kind} replica {action.replica}: {said.message}",
        )
        return NodeOutcome.FAILED

    def _audit(self, action: TickAction, executed: bool, said: str, problems: Diagnostics) -> bool:
        row = audit_row(self._key, action, executed=executed, said=said)
        try:
            try:
                self._targets[action.target].audit(row)
            except GitopsError:
                # The next call reconnects, and writing the same row again has no effect.
                self._lost.add(action.target)
                self._targets[action.target].audit(row)
        except GitopsError as error:
            detail = f"it was carried out, and its audit row is not written: {error.detail}"
            problems.add(Code.AUDIT_FAILED, action.address, detail)
            return False
        return True

    def _look_at_decision(self, node: ExecNode) -> NodeResult:
        """Check that the compute cluster was not replaced since the decision, and is still idle if it is to be suspended."""
        action = next(each for each in self._actions.values() if f"{each.target}.{each.compute}" == node.group)
        if action.target in self._lost:
            return NodeResult(node.id, NodeOutcome.CANCELLED)
        target, problems, outdated = self._targets[action.target], Diagnostics(), None
        try:
            there = target.clusters().get(action.cluster)
            if there is None or there.cluster_id != action.cluster_id:
                outdated = f"{action.cluster} was dropped or recreated since then"
            elif action.suspends and node.id == decision_id(action.compute, StrategyType.IDLE_SUSPEND):
                ran = target.activity([action.cluster_id], since=self._since)
                outdated = f"statements ran on {action.cluster} since then" if ran else None
        except GitopsError as error:
            # When the connection is lost, the lock may be lost as well.
            self._lost.add(action.target)
            problems.add(error.code, node.id, error.detail, fix=error.fix)
        if outdated is not None:
            problems.add(Code.DECISION_OUTDATED, node.id, outdated)
        outcome = NodeOutcome.FAILED if len(problems) else NodeOutcome.UNCHANGED
        return NodeResult(node.id, outcome, tuple(problems))

    def _look_at_cover(self, node: ExecNode) -> NodeResult:
        """Check that a hydrated replica remains after the drops, if there is one now."""
        drops = [a for a in self._actions.values() if f"{a.target}.{a.compute}" == node.group and _drops(a)]
        first, going = drops[0], {each.replica for each in drops}
        if first.target in self._lost:
            return NodeResult(node.id, NodeOutcome.CANCELLED)
        hydrated = self._targets[first.target].hydrated(first.cluster_id)
        if hydrated - going or not hydrated & going:
            return NodeResult(node.id, NodeOutcome.DONE)
        problems = Diagnostics()
        detail = f"no other replica of {first.cluster} is hydrated now, so {', '.join(sorted(going))} stays"
        problems.add(Code.REPLICA_UNCOVERED, node.id, detail)
        return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))


def has_happened(target: TargetReader, action: TickAction) -> bool | None:
    """Return True if a statement has taken effect; None if the target does not report it."""
    try:
        found = target.clusters()
    except GitopsError:
        return None
    cluster = next((each for each in found.values() if each.cluster_id == action.cluster_id), None)
    if cluster is None:
        return False  # The cluster was dropped with all its replicas, but not necessarily by this statement.
    there = cluster.replicas.get(action.replica)
    return there is None if _drops(action) else there is not None and there.size == action.size


def _words(outcome: NodeOutcome, said: ReplicaResult) -> str:
    """Return the text of a statement's audit row."""
    if outcome is not NodeOutcome.DONE:
        return said.message or outcome.value
    return f"done; its effect was found after: {said.message}" if said.message else "done"


def _drops(action: TickAction) -> bool:
    return action.kind is ActionKind.DROP
