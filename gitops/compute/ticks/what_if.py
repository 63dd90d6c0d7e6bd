"""Predicts what a plan's strategy changes would do: decisions on current signals, and a replay of recent days.

A target is queried after the plan is made, without a lock, and only if this process can reach it. Missing data is
mentioned in the result. It never makes a plan fail, and is never part of the plan's digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto

from gitops.cluster.model.compute import (
    ComputeRules,
    ComputeTarget,
    StrategyChanges,
    Usage,
    WhatIf,
    WhatIfAction,
    new_sizes,
)
from gitops.cluster.model.outcome import PlanOutcome, VerbOutcome
from gitops.cluster.plan.strategies import applied_rules, declared_rules
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import OpenTarget, Workspace
from gitops.cluster.targets.port import TargetReader
from gitops.cluster.targets.projection import place_of
from gitops.cluster.targets.signals import ComputeCluster, SizeTable
from gitops.compute.strategies.simulation import Replay, SignalTrace, Timeline, replay_of, simulate
from gitops.compute.ticks.targets import Decided, Selection, claims_on, decide_all
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError

_DAYS = 7
_MOST_REPLAYED = 20


class Reach(Enum):
    """Which targets a plan may query: the declared ones, only those that are also applied unchanged, or none.

    A change request's declarations must not choose the connections, and a fork's must not open any.
    """

    DECLARED = auto()
    APPLIED = auto()
    NONE = auto()


def with_what_if(workspace: Workspace, outcome: PlanOutcome, reach: Reach = Reach.DECLARED) -> PlanOutcome:
    """Return a plan's outcome with the predicted effects of its strategy changes, or why they are unknown.

    The outcome does not change if there are no strategy changes.
    """
    changes = outcome.strategies
    if changes is None or outcome.plan is None:
        return outcome
    found: list[WhatIf] = []
    for target, sides in by_target(changes).items():
        why_not = _out_of_reach(target, [each.target for each in changes.applied], reach)
        if why_not is not None:
            found += (
                _unknown(after, f"{why_not}; to see it, run gitops plan in a clone of the branch") for _, after in sides
            )
        else:
            found += _ask(workspace, target, sides, changes)
    return replace(outcome, what_if=tuple(sorted(found, key=lambda each: each.key)))


def _out_of_reach(target: ComputeTarget, applied: Sequence[ComputeTarget], reach: Reach) -> str | None:
    """Explain why a target is not queried; None if it can be queried."""
    if reach is Reach.NONE:
        return "a change request from a fork cannot access a target"
    if reach is Reach.DECLARED or target in applied:
        return None
    if target.name in [each.name for each in applied]:
        return (
            f"target {target.name} differs from its applied declaration, and a change request cannot choose its targets"
        )
    return f"no strategies are applied on target {target.name} yet, and a change request cannot choose its targets"


def _unknown(rules: ComputeRules, said: str, code: Code | None = None) -> WhatIf:
    return WhatIf(rules.key, rules.cluster, rules.target.name, said=said, code=code)


def _ask(
    workspace: Workspace,
    target: ComputeTarget,
    sides: Sequence[tuple[ComputeRules, ComputeRules]],
    changes: StrategyChanges,
) -> Iterator[WhatIf]:
    """Return, for each compute cluster of a target, its predicted decision or the reason why there is none."""
    problems = Diagnostics()
    decided: dict[str, Decided] = {}
    replayed: Mapping[str, WhatIf] = {}
    if workspace.open_target is None:
        yield from (_unknown(after, "no URL of its target is known here") for _, after in sides)
        return
    try:
        with workspace.open_target(target) as opened:
            chosen = [after for _, after in sides]
            claimed = claims_on(opened, chosen, changes.own)
            for each in decide_all(opened, chosen, claimed, workspace.clock.now(), problems):
                decided[each.rules.key] = each
            replayed = _replayed(
                opened, [(before, decided[after.key]) for before, after in sides if after.key in decided]
            )
    except GitopsError as error:
        problems.add(error.code, error.path or place_of(target.name), error.detail)
    places = {after.place for _, after in sides}
    own = {each.path: each for each in problems if each.path in places}
    # Messages from a target or its driver can contain a host, so show only the code in comments.
    common = next((each.code for each in problems if each.path not in places), Code.SIGNAL_UNAVAILABLE)
    for _, after in sides:
        if after.key in decided:
            each = decided[after.key]
            lacking = each.signals.sizes.lacks(new_sizes(after, changes.applied))
            known = replayed.get(after.key) or _unknown(after, "")
            actions = tuple(WhatIfAction(action.sql, action.reasons) for action in each.actions)
            yield replace(known, actions=actions, refused=each.decision.refused, unlisted=lacking)
        elif (why := own.get(after.place)) is not None:
            # Another cluster folder is identified by the location of its ledger.
            is_claimed = why.code is Code.COMPUTE_CLUSTER_CLAIMED
            yield _unknown(after, REGISTRY[why.code].summary if is_claimed else why.message, why.code)
        else:
            yield _unknown(after, REGISTRY[common].summary, common)


def _replayed(target: TargetReader, decided: Sequence[tuple[ComputeRules, Decided]]) -> dict[str, WhatIf]:
    """Return, by key, the totals of recent days for clusters with recorded history.

    Empty if the target denies access.
    """
    chosen = decided[:_MOST_REPLAYED]
    if not chosen:
        return {}
    until = chosen[0][1].signals.now
    since = until - timedelta(days=_DAYS)
    sizes = {each.cluster.cluster_id: each.signals.sizes for _, each in chosen}
    try:
        found = traces(target, [each.cluster for _, each in chosen], sizes, since, until)
    except GitopsError:
        return {}
    sums = {}
    for (before, each), replay in zip(chosen, found, strict=True):
        if replay.says_something:
            usages = (timeline.usage for timeline in played(replay, before, each.rules))
            first, second = (Usage(usage.replica_hours, usage.credits, usage.unserved_s) for usage in usages)
            known = _unknown(each.rules, "")
            sums[each.rules.key] = replace(known, before=first, after=second, days=_DAYS, assumed=replay.assumed)
    return sums


# -- Replays of targets' recorded history, with the applied and with the declared strategies ------------------------------


INTERVAL_S = 300
"""Seconds between two ticks of a replay."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How the applied and the declared strategies behave for one compute cluster, by key and target."""

    key: str
    target: str
    replay: Replay
    before: Timeline
    after: Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome(VerbOutcome):
    """The replays of a command, their start time, and whether the folder declares its ledger location."""

    since: datetime
    loaded: bool = True
    replayed: tuple[Replayed, ...] = ()


def replays(workspace: Workspace, open_target: OpenTarget, selection: Selection, *, last: timedelta) -> ReplayOutcome:
    """Replay the `last` days of compute clusters that have applied or declared strategies.

    Reads the ledger, the folder and the targets. Doesn't write anything, and holds no lock while it queries targets.
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
    """Return both sides of each compute cluster by target, in the order of keys.

    One name can refer to two targets, an earlier and a current one.
    """
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
    """Return the replay of each compute cluster. Uses two statements. Raises RemoteError."""
    owners = [each.cluster_id for each in clusters]
    audited, spans = target.audited(owners, since=since), target.activity(owners, since=since)
    return [
        replay_of(
            SignalTrace(
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
    """Run a replay with the applied and with the declared strategies."""
    first, second = (simulate(replay.under(each.rules, each.limits)) for each in (before, after))
    return first, second
