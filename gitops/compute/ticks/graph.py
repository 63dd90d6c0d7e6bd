"""What a tick carries out: the actions that strategies decided, as an execution graph and as a changeset.

| node | what it waits for |
| --- | --- |
| decision of a strategy, where it wants an action | the decisions before it in its compute cluster (`strategy_order`) |
| create of a replica | the decisions that want it (`replica_decision`), and the drops that come before it (`replica_gap`) |
| readiness of a compute cluster, where something is dropped that needs a cover | its creates (`replica_cover`) |
| drop of a replica | the decisions that want it (`replica_decision`), and the readiness (`replica_cover`) |

A decision was made before there is a graph. Its node looks whether it still holds when the first statement is about to follow.

The nodes of one compute cluster are a failure group: after the first failure, nothing more is done to it. Those of one target
share its connection, and so the lock `compute:<target>`; statements also hold that of their compute cluster.

A replica is not a resource of the cluster: neither the applied state nor the catalog changes. Its create is a member of the
changeset that is staged, its drop one that finishes. Each keeps in its outputs everything that identifies the statement, so that
a later tick can find out what an interrupted one has done, and write the audit rows that it owes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.address import Address, replica_address
from gitops.cluster.model.change import Action
from gitops.cluster.model.changeset import (
    Changeset,
    ChangesetBase,
    ChangesetKind,
    ChangesetSource,
    Member,
    PlanFacts,
    Runtime,
)
from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.node_kind import DECISION, READINESS, REPLICA
from gitops.cluster.model.plan import Effect, ExecEdge, ExecNode, ExecutionGraph, LockClaim
from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.plan.layers import layers
from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, Signals
from gitops.compute.strategies.decision import ActionKind, Decision
from gitops.compute.strategies.rules import GAP, SUSPENDED
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.core.canonical import canonical_digest
from gitops.core.dataclass import dataclass

__all__ = [
    "TickAction",
    "action_of",
    "actions_of",
    "audit_row",
    "decision_id",
    "signals_digest",
    "tick_graph",
    "tick_record",
]

_ORDER, _DECISION, _COVER = "strategy_order", "replica_decision", "replica_cover"
_GAP = "replica_gap"


@dataclass(frozen=True, slots=True)
class TickAction:
    """One statement about a replica, and why it is given.

    `compute` is the name of the compute cluster in `cluster.yaml`, `cluster` and `cluster_id` are those of the target. `by` are
    the strategies that wanted it, `signals` is the digest of what was decided on. `index` counts from 1 within the compute
    cluster, which has `of` actions. `suspends` says that it needs no cover: the cluster is idle, or a gap is declared.
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
        """The address of the replica."""
        return replica_address(self.target, self.compute, self.replica)

    @property
    def decisions(self) -> Mapping[StrategyType, str]:
        """The strategies that wanted it, in the order in which they decided, each with its reasons in words."""
        return {
            kind: "; ".join(text for by, _, text in (each.partition(": ") for each in self.reasons) if by == kind)
            for kind in StrategyType
            if kind in self.by
        }

    @property
    def sql(self) -> str:
        """The statement."""
        if self.kind is ActionKind.CREATE:
            return create_replica(self.cluster, self.replica, self.size)
        return drop_replica(self.cluster, self.replica)

    @property
    def form(self) -> Mapping[str, Any]:
        """As JSON, without what the record of its member says. The keys are sorted, as those of events are."""
        names = ("target", "compute", "cluster", "cluster_id", "replica", "size", "signals", "index", "of", "suspends")
        values = {name: getattr(self, name) for name in names}
        form = {**values, "reasons": list(self.reasons), "by": list(self.by)}
        return MappingProxyType(dict(sorted(form.items())))


def actions_of(rules: ComputeRules, cluster: ComputeCluster, decision: Decision, signals: Signals) -> list[TickAction]:
    """The actions of a decision in their order."""
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
    """Digest of signals, to be compared: the same signals always have the same one."""
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
    """The id of the node for the decision of a strategy about a compute cluster, by its name in `cluster.yaml`."""
    return f"{DECISION}.{compute}.{strategy.value}"


def tick_graph(actions: Iterable[TickAction]) -> ExecutionGraph:
    """The execution graph of actions, by the table of this module."""
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
    base: ChangesetBase,
    actor: str | None,
    at: str,
) -> Changeset:
    """The first record of the changeset of a tick, created at the RFC 3339 time `at`."""
    graph = tick_graph(actions)
    return Changeset(
        key=key,
        cluster=cluster,
        kind=ChangesetKind.TICK,
        attempt=attempt,
        part="1/1",
        created_at=at,
        updated_at=at,
        source=ChangesetSource(actor=actor),
        base=base,
        desired_digest=base.config_digest or base.applied_digest,
        plan=PlanFacts(plan_digest(actions), len(graph.nodes), len(graph.edges), len(layers(graph))),
        members=tuple(map(_member, sorted(actions, key=lambda each: each.address))),
        atomic=False,
    )


def plan_digest(actions: Iterable[TickAction]) -> str:
    """Digest of the actions, and of the signals that they were decided on."""
    return canonical_digest([{"op": each.kind.value, **each.form} for each in actions])


def _member(action: TickAction) -> Member:
    made, content = action.kind is ActionKind.CREATE, canonical_digest({"size": action.size})
    return Member(
        action.address,
        Action.CREATE if made else Action.DELETE,
        Effect.STAGE if made else Effect.FINISH,
        None if made else content,
        content if made else None,
        runtime=Runtime(outputs=action.form),
    )


def action_of(member: Member) -> TickAction | None:
    """The action of a member; None where its outputs are not those that a tick records."""
    form = {**member.runtime.outputs, "kind": ActionKind.CREATE if member.action is Action.CREATE else ActionKind.DROP}
    try:
        found = TickAction(**{**form, "reasons": tuple(form["reasons"]), "by": tuple(form["by"])})
    except (KeyError, TypeError):
        return None
    texts = (found.target, found.compute, found.cluster, found.cluster_id, found.replica, found.size)
    known = all(isinstance(each, str) for each in texts) and found.address == member.address
    return found if known else None


def audit_row(key: str, action: TickAction, *, executed: bool, said: str) -> AuditRow:
    """The audit row of a statement of the changeset `key`: the same statement always has the same id.

    `said` is the result of one that was executed, and the error of one that was not.
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
        # A statement that drops a replica does not say it.
        "size": action.size,
        "execution_result" if executed else "error": said,
    }
    return AuditRow(
        canonical_digest(subject), action.cluster_id, action.sql, context, executed, None if executed else said
    )
