"""What a target would have recorded of a simulated timeline."""

from __future__ import annotations

from datetime import datetime, timedelta

from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec
from gitops.compute.strategies.decision import ActionKind
from gitops.compute.strategies.simulation import Activity, Scenario, SignalTrace, Timeline
from gitops.compute.strategies.statements import create_replica, drop_replica

__all__ = ["rows_of", "trace_of"]

_DAY_S = 24 * 3600


def rows_of(timeline: Timeline) -> list[AuditRow]:
    """What a target has recorded once these steps were carried out."""
    found, name = [], timeline.scenario.cluster
    for step in timeline.steps:
        for number, each in enumerate(step.actions):
            made = each.kind is ActionKind.CREATE
            sql = create_replica(name, each.replica, each.spec.size) if made else drop_replica(name, each.replica)
            context = {"reasons": [str(reason) for reason in each.reasons], "size": each.spec.size}
            at = timeline.scenario.start + timedelta(seconds=step.at_s)
            found.append(AuditRow(f"{step.at_s}-{number}", "u1", sql, context, True, created_at=at))
    return found


def trace_of(timeline: Timeline) -> SignalTrace:
    """What a target says at the end of a timeline."""
    scenario, last = timeline.scenario, timeline.steps[-1]
    spans = [(each.start + day, each.to + day) for each in scenario.activity for day in _days(scenario, each)]
    return SignalTrace(
        ComputeCluster("u1", scenario.cluster, {name: ReplicaSpec(size) for name, size in last.replicas.items()}),
        scenario.sizes,
        scenario.start,
        scenario.start + timedelta(seconds=scenario.length_s),
        rows_of(timeline),
        [(_at(scenario, begin), _at(scenario, min(end, scenario.length_s))) for begin, end in sorted(spans)],
    )


def _days(scenario: Scenario, activity: Activity) -> range:
    return range(0, scenario.length_s - activity.start, _DAY_S) if activity.daily else range(1)


def _at(scenario: Scenario, second: int) -> datetime:
    return scenario.start + timedelta(seconds=second)
