"""The work of a tick: a node is one statement about a replica with its audit row, or a look.

Two things are looked at: whether the decision of a strategy still holds, when it is about to be carried out, and whether what
covers a drop is hydrated.

1. What a lost connection has done is looked up, never guessed, and never tried again in the same tick. The lock may be lost with
   it, so nothing more is done to that target.
2. A statement has one audit row: `executed` where it had its effect. A row that cannot be written fails the node. The changeset
   stays open then, and the next tick writes what is owed before it does anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from gitops.cluster.model.node_kind import DECISION, READINESS
from gitops.cluster.model.plan import ExecNode, NodeOutcome, NodeResult
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.port import ReplicaOutcome, ReplicaResult, StrategyTarget, TargetReader
from gitops.compute.strategies.decision import ActionKind
from gitops.compute.ticks.graph import TickAction, audit_row, decision_id
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, around

__all__ = ["OWES", "ReplicaWork", "has_happened"]

OWES = "owes"
"""The fact of a result whose audit row is not written, or cannot be yet."""

_REFUSALS = {
    ReplicaOutcome.EXISTS: Code.REPLICA_CONFLICT,
    ReplicaOutcome.ABSENT: Code.COMPUTE_CLUSTER_MISSING,
    ReplicaOutcome.INVALID_SIZE: Code.REPLICA_SIZE_INVALID,
    ReplicaOutcome.MANAGED: Code.COMPUTE_CLUSTER_MANAGED,
    ReplicaOutcome.SINGLE_REPLICA: Code.SINGLE_REPLICA_ONLY,
    ReplicaOutcome.FAILED: Code.REPLICA_FAILED,
}


class ReplicaWork:
    """Carries out the nodes of a tick. One target has one connection: the locks of the nodes let one of them use it at a time."""

    def __init__(
        self,
        key: str,
        actions: Iterable[TickAction],
        targets: Mapping[str, StrategyTarget],
        faults: Faults,
        *,
        since: datetime,
    ) -> None:
        """`key` is that of the changeset, `since` when its actions were decided."""
        self._key, self._targets, self._faults, self._since = key, targets, faults, since
        self._actions: Mapping[str, TickAction] = {each.address: each for each in actions}
        self._lost: set[str] = set()

    def __call__(self, node: ExecNode) -> NodeResult:
        """Carry out a node."""
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
        """How the node ended, by what the target said, and where that leaves it open, by what is there now."""
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
                # The next call connects again, and a row is written once however often it is asked for.
                self._lost.add(action.target)
                self._targets[action.target].audit(row)
        except GitopsError as error:
            detail = f"it was carried out, and its audit row is not written: {error.detail}"
            problems.add(Code.AUDIT_FAILED, action.address, detail)
            return False
        return True

    def _look_at_decision(self, node: ExecNode) -> NodeResult:
        """Whether the compute cluster is still the one that was decided about, and, before it is suspended, still idle."""
        action = next(each for each in self._actions.values() if f"{each.target}.{each.compute}" == node.group)
        if action.target in self._lost:
            return NodeResult(node.id, NodeOutcome.CANCELLED)
        target, problems, outdated = self._targets[action.target], Diagnostics(), None
        try:
            there = target.clusters().get(action.cluster)
            if there is None or there.cluster_id != action.cluster_id:
                outdated = f"{action.cluster} was dropped or made again since"
            elif action.suspends and node.id == decision_id(action.compute, StrategyType.IDLE_SUSPEND):
                ran = target.activity([action.cluster_id], since=self._since)
                outdated = f"statements ran on {action.cluster} since" if ran else None
        except GitopsError as error:
            # With the connection the lock may be lost.
            self._lost.add(action.target)
            problems.add(error.code, node.id, error.detail, fix=error.fix)
        if outdated is not None:
            problems.add(Code.DECISION_OUTDATED, node.id, outdated)
        outcome = NodeOutcome.FAILED if len(problems) else NodeOutcome.UNCHANGED
        return NodeResult(node.id, outcome, tuple(problems))

    def _look_at_cover(self, node: ExecNode) -> NodeResult:
        """Whether the drops leave a hydrated replica, where there is one now."""
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
    """Whether the effect of a statement is there now; None where the target does not say."""
    try:
        found = target.clusters()
    except GitopsError:
        return None
    cluster = next((each for each in found.values() if each.cluster_id == action.cluster_id), None)
    if cluster is None:
        return False  # It is gone, with all its replicas: nothing says that this was the statement.
    there = cluster.replicas.get(action.replica)
    return there is None if _drops(action) else there is not None and there.size == action.size


def _words(outcome: NodeOutcome, said: ReplicaResult) -> str:
    """What the audit row of a statement says of it."""
    if outcome is not NodeOutcome.DONE:
        return said.message or outcome.value
    return f"done; its effect was found after: {said.message}" if said.message else "done"


def _drops(action: TickAction) -> bool:
    return action.kind is ActionKind.DROP
