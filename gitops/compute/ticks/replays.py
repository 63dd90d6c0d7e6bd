"""Strategies against what targets recorded: the days that were, played with the applied and with the declared strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gitops.cluster.model.compute import ComputeRules, ComputeTarget
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.model.what_if import StrategyChanges
from gitops.cluster.plan.strategies import applied_rules, declared_rules
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import OpenTarget, Workspace
from gitops.cluster.targets.port import TargetReader
from gitops.cluster.targets.projection import place_of
from gitops.cluster.targets.signals import ComputeCluster, SizeTable
from gitops.compute.strategies.simulation import Timeline, simulate
from gitops.compute.strategies.trace import Replay, Trace, replay_of
from gitops.compute.ticks.targets import Selection
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError

__all__ = ["INTERVAL_S", "ReplayOutcome", "Replayed", "replays", "traces"]

INTERVAL_S = 300
"""How often a tick comes in a replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One compute cluster, by its key and its target: what the applied strategies do with it, and what the declared ones do."""

    key: str
    target: str
    replay: Replay
    before: Timeline
    after: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome(VerbOutcome):
    """The replays of a command, the time that they begin at, and whether the folder declares where its ledger is."""

    since: datetime
    loaded: bool = True
    replayed: tuple[Replayed, ...] = ()


def replays(workspace: Workspace, open_target: OpenTarget, selection: Selection, *, last: timedelta) -> ReplayOutcome:
    """Play the `last` days of compute clusters that have strategies, applied or declared.

    Reads the ledger, the folder and the targets; writes nothing, and holds no lock while targets answer.
    """
    since = workspace.clock.now() - last
    found: list[StrategyChanges] = []

    def read(current: Session) -> ReplayOutcome:
        if current.ready:
            try:
                sides = applied_rules(current), declared_rules(current)
                chosen = {each.key for side in sides for each in side if selection.has(each)}
                found.append(StrategyChanges(*sides, tuple(sorted(chosen))))
            except GitopsError as error:
                current.problems.add_error(error)
        loaded = current.loaded.desired is not None
        return ReplayOutcome(
            config_dir=workspace.config_dir, since=since, loaded=loaded, diagnostics=tuple(current.problems)
        )

    outcome = reading(workspace, "simulate", StateNeed.OPTIONAL, read)
    problems, replayed = Diagnostics(outcome.diagnostics), list[Replayed]()
    for changes in found:
        if not changes.keys:
            detail = "none of the chosen compute clusters has strategies, applied or declared"
            problems.add(Code.COMPUTE_CLUSTER_MISSING, "compute.strategies", detail)
        for target, sides in by_target(changes).items():
            try:
                with open_target(target) as opened:
                    replayed += _replay(opened, sides, since, workspace.clock.now(), problems)
            except GitopsError as error:
                problems.add(error.code, error.path or place_of(target.name), error.detail, fix=error.fix)
    return replace(outcome, replayed=tuple(replayed), diagnostics=tuple(problems))


def by_target(changes: StrategyChanges) -> Mapping[ComputeTarget, list[tuple[ComputeRules, ComputeRules]]]:
    """Both sides of each compute cluster by its target, in the order of keys. One name may be two targets: then and now."""
    found: dict[ComputeTarget, list[tuple[ComputeRules, ComputeRules]]] = {}
    for key in changes.keys:
        sides = changes.sides(key)
        found.setdefault(sides[1].target, []).append(sides)
    return found


def _replay(
    target: TargetReader,
    sides: Sequence[tuple[ComputeRules, ComputeRules]],
    since: datetime,
    until: datetime,
    problems: Diagnostics,
) -> list[Replayed]:
    there = target.clusters()
    for _, rules in sides:
        if rules.cluster not in there:
            detail = f"target {rules.target.name} has no compute cluster {rules.cluster}"
            problems.add(Code.COMPUTE_CLUSTER_MISSING, rules.place, detail)
    chosen = [each for each in sides if each[1].cluster in there]
    clusters = [there[rules.cluster] for _, rules in chosen]
    signals = target.observe(clusters, now=until, lookback=timedelta(0))
    sizes = {owner: each.sizes for owner, each in signals.items()}
    found = traces(target, clusters, sizes, since, until)
    return [
        Replayed(after.key, after.target.name, replay, *played(replay, before, after))
        for (before, after), replay in zip(chosen, found, strict=True)
    ]


def traces(
    target: TargetReader,
    clusters: Sequence[ComputeCluster],
    sizes: Mapping[str, SizeTable],
    since: datetime,
    until: datetime,
) -> list[Replay]:
    """The replay of each compute cluster, in two statements. Raises RemoteError."""
    owners = [each.cluster_id for each in clusters]
    audited, spans = target.audited(owners, since=since), target.activity(owners, since=since)
    return [
        replay_of(
            Trace(
                each,
                sizes[each.cluster_id],
                since,
                until,
                [row for row in audited if row.cluster_id == each.cluster_id],
                spans.get(each.cluster_id, ()),
            ),
            INTERVAL_S,
        )
        for each in clusters
    ]


def played(replay: Replay, before: ComputeRules, after: ComputeRules) -> tuple[Timeline, Timeline]:
    """A replay with the applied and with the declared strategies."""
    first, second = (simulate(replay.under(each.rules, each.limits)) for each in (before, after))
    return first, second
