"""Opens and locks a tick's targets, reads their signals once, and decides for each compute cluster separately.

A problem that prevents a decision about one target or compute cluster is reported, and the others continue. Without
signals from a target, nothing is decided for it, because nothing must be dropped without signals.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta

from gitops.cluster.model.compute import ComputeRules
from gitops.cluster.model.strategy import IdleSuspend, ShrinkToFit, StrategyType
from gitops.cluster.session.workspace import OpenTarget
from gitops.cluster.targets.port import TARGET_LOCK, StrategyTarget, TargetReader
from gitops.cluster.targets.projection import claimed_message, claims, place_of
from gitops.cluster.targets.signals import ComputeCluster, Signals, StrategyState
from gitops.compute.strategies.decision import StrategyDecision, decide
from gitops.compute.ticks.graph import TickAction, actions_of
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError, UsageError


@dataclass(frozen=True, slots=True)
class Selection:
    """Selects compute clusters whose name on the target or in `cluster.yaml` contains a pattern."""

    clusters: re.Pattern[str] | None = None
    target: str | None = None

    def has(self, rules: ComputeRules) -> bool:
        """Return True if a compute cluster is selected."""
        named = self.clusters is None or any(map(self.clusters.search, (rules.cluster, rules.key)))
        return named and self.target in (None, rules.target.name)


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision about one compute cluster, with everything that it was based on."""

    rules: ComputeRules
    cluster: ComputeCluster
    signals: Signals
    states: Mapping[StrategyType, StrategyState]
    decision: StrategyDecision

    @property
    def actions(self) -> list[TickAction]:
        """The replica actions, in order."""
        return actions_of(self.rules, self.cluster, self.decision, self.signals)


def by_target(rules: Sequence[ComputeRules]) -> Mapping[str, list[ComputeRules]]:
    """Group compute clusters by target, in the order of target names."""
    names = sorted({each.target.name for each in rules})
    return {name: [each for each in rules if each.target.name == name] for name in names}


def lock_targets(
    rules: Mapping[str, Sequence[ComputeRules]],
    open_target: OpenTarget,
    closing: ExitStack,
    problems: Diagnostics,
    *,
    scheduled: bool,
) -> dict[str, StrategyTarget]:
    """Connect to targets and take their locks. Reports and skips a busy or unresponsive target.

    A busy target is in use by a run of this or a different cluster folder. A target without locks is protected only by
    the ledger lock. For a `scheduled` run, a busy target is only a warning, because the run is repeated; otherwise it
    is an error. Raises UsageError if a target cannot be opened with this command line and environment.
    """
    opened = {}
    for name, clusters in rules.items():
        try:
            target = closing.enter_context(open_target(clusters[0].target))
            free = target.try_lock(TARGET_LOCK)
        except UsageError:
            raise
        except GitopsError as error:
            problems.add_error(error)
            continue
        if free is False:
            severity = Severity.WARNING if scheduled else Severity.ERROR
            detail = "another run, for this cluster folder or one that shares the target, is using it"
            problems.add(Code.ALREADY_RUNNING, place_of(name), detail, severity=severity)
        else:
            opened[name] = target
    return opened


def claims_on(target: TargetReader, clusters: Sequence[ComputeRules], own: Collection[str]) -> Mapping[str, str]:
    """Return the `claims` that follow from the target's current rows. Raises RemoteError."""
    return claims(clusters, own, target.clusters(), target.strategies().values()) if clusters else {}


def decide_all(
    target: TargetReader,
    clusters: Sequence[ComputeRules],
    claimed: Mapping[str, str],
    now: datetime,
    problems: Diagnostics,
) -> Iterator[Decided]:
    """Decide as many of a target's compute clusters as possible, leaving out those in `claimed`."""
    try:
        target.probe()
        found = target.clusters()
        there = [(each, found[each.cluster]) for each in clusters if _is_usable(each, found, claimed, problems)]
        signals = target.observe([cluster for _, cluster in there], now=now, lookback=_lookback(clusters))
        states = target.states()
    except GitopsError as error:
        problems.add_error(error)
        return
    for rules, cluster in there:
        known = {state.strategy: state for state in states.get(cluster.cluster_id, ())}
        seen = signals.get(cluster.cluster_id)
        if seen is None:
            detail = f"the target reports nothing about {cluster.name}"
            problems.add(Code.SIGNAL_UNAVAILABLE, rules.place, detail)
            continue
        try:
            decision = decide(cluster, rules.rules, known, seen, rules.limits)
        except Exception as error:  # noqa: BLE001 - of this compute cluster alone
            detail = f"{type(error).__name__} was raised while its strategies decided"
            problems.add(Code.INTERNAL_ERROR, rules.place, detail)
        else:
            for detail in decision.refused:
                problems.add(Code.REPLICA_LIMIT_EXCEEDED, rules.place, detail)
            for rule in rules.rules:
                # If a replica has any other unknown size, the target refuses to create it.
                if isinstance(rule, ShrinkToFit) and rule.max_replica_size not in seen.sizes.credits:
                    detail = f"target {rules.target.name} does not list the size {rule.max_replica_size}, so nothing is tried"
                    problems.add(Code.REPLICA_SIZE_INVALID, f"{rules.place}.shrink_to_fit.max_replica_size", detail)
            yield Decided(rules, cluster, seen, known, decision)


def _is_usable(
    rules: ComputeRules, found: Mapping[str, ComputeCluster], claimed: Mapping[str, str], problems: Diagnostics
) -> bool:
    if (owner := claimed.get(rules.key)) is not None:
        problems.add(Code.COMPUTE_CLUSTER_CLAIMED, rules.place, claimed_message(rules, owner))
        return False
    cluster = found.get(rules.cluster)
    if cluster is None:
        detail = f"target {rules.target.name} has no compute cluster {rules.cluster}"
        problems.add(Code.COMPUTE_CLUSTER_MISSING, rules.place, detail)
        return False
    if cluster.managed:
        detail = f"{rules.cluster} is managed: target {rules.target.name} creates its replicas itself"
        problems.add(Code.COMPUTE_CLUSTER_MANAGED, rules.place, detail)
        return False
    return True


def _lookback(clusters: Sequence[ComputeRules]) -> timedelta:
    """Return twice the longest idle time, so that a decision can report its duration. Nothing else needs activity."""
    idle = (rule.idle_after_s for each in clusters for rule in each.rules if isinstance(rule, IdleSuspend))
    return timedelta(seconds=2 * max(idle, default=0))
