"""Simulates strategies in a scenario on a virtual clock: what they do, and what it costs.

A tick runs at the start and then at every interval. Its decisions take effect immediately, and a new replica is
hydrated after the time for its size. Nothing is random: the same scenario always gives the same timeline.

A scenario is a YAML document:

    cluster: serving
    length: 1d
    interval: 5m
    sizes: {25cc: 0.25, 50cc: 0.5}          # credits per hour, smallest first
    replicas: {main: 25cc}                  # at the start, hydrated
    hydration: {25cc: 10m, 50cc: 5m}        # hydration time of a new replica; 5m for all other sizes
    rehydrate: [14h]                        # when all replicas begin to hydrate again, as for a new index
    activity: [{from: 8h, to: 18h, daily: true}]
    crashes: {25cc: {every: 2m, out_of_memory: true}}
    strategies: {target_size: {target_size: 50cc}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from types import MappingProxyType
from typing import Any

from gitops.cluster.config import compute
from gitops.cluster.config.rule_forms import (
    Place,
    Refused,
    derived,
    keyed,
    listed,
    mapping,
    optional,
    place_problem,
    truth,
    whole,
)
from gitops.cluster.model.strategy import Limits, StrategyRule, StrategyType
from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, Crashes, ReplicaSpec, Signals, SizeTable, StrategyState
from gitops.compute.strategies.decision import ActionKind, ReplicaAction, burst_name, decide
from gitops.compute.strategies.statements import read_statement
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

HYDRATION_S = 300
"""Hydration time of a replica if the scenario does not set it."""

_DAY_S = 24 * 3600
_CRASHES_COUNT_FOR_S = 3600


@dataclass(frozen=True, slots=True)
class Activity:
    """Statements run from second `start` until second `to` of the scenario, or of each of its days."""

    start: int
    to: int
    daily: bool = False


@dataclass(frozen=True, slots=True)
class Crashing:
    """How a size crashes: its replicas never hydrate, and each crashes every `every` seconds."""

    every: int
    out_of_memory: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """A compute cluster, its strategies, and the events that happen. Times are in seconds from the start.

    `hydration_s` is the hydration time by size; at each of `rehydrate_at_s` all replicas hydrate again, as for a new
    index. Replicas that exist at the start are hydrated.
    """

    cluster: str
    rules: tuple[StrategyRule, ...]
    sizes: SizeTable
    start: datetime
    length_s: int
    interval_s: int
    limits: Limits
    replicas: Mapping[str, str]
    hydration_s: Mapping[str, int]
    activity: tuple[Activity, ...]
    rehydrate_at_s: tuple[int, ...]
    crashes: Mapping[str, Crashing]


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """One interval: the actions of the tick that starts it, and the replicas until the next tick.

    `problem` explains why a strategy did not get its result. `active` is true if statements ran at the tick.
    """

    at_s: int
    actions: tuple[ReplicaAction, ...]
    problem: str | None
    replicas: Mapping[str, str]
    hydrated: frozenset[str]
    active: bool
    credits_per_hour: float


@dataclass(frozen=True, slots=True)
class SimulatedUsage:
    """Totals of a timeline. `unserved_s` counts intervals in which statements ran but no replica was hydrated."""

    replica_hours: float
    credits: float
    unserved_s: int
    suspended_s: int
    actions: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps of a scenario, one per tick."""

    scenario: Scenario
    steps: tuple[SimulatedStep, ...]

    @property
    def usage(self) -> SimulatedUsage:
        """Return the totals of the timeline."""
        scenario = self.scenario
        ends = [*(step.at_s for step in self.steps[1:]), scenario.length_s]
        spans = [(step, end - step.at_s) for step, end in zip(self.steps, ends, strict=True)]
        return SimulatedUsage(
            replica_hours=sum(len(step.replicas) * seconds for step, seconds in spans) / 3600,
            credits=sum(step.credits_per_hour * seconds for step, seconds in spans) / 3600,
            unserved_s=sum(seconds for step, seconds in spans if step.active and not step.hydrated),
            suspended_s=sum(seconds for step, seconds in spans if not step.replicas),
            actions=sum(len(step.actions) for step in self.steps),
        )


def simulate(scenario: Scenario) -> Timeline:
    """Return the timeline of a scenario."""
    return Timeline(scenario, tuple(_steps(scenario)))


def _steps(scenario: Scenario) -> Iterator[SimulatedStep]:
    long_ago = -max((*scenario.hydration_s.values(), _CRASHES_COUNT_FOR_S)) - 1
    since = dict.fromkeys(scenario.replicas, long_ago)
    sizes = dict(scenario.replicas)
    states: Mapping[StrategyType, StrategyState] = {}
    for at_s in range(0, scenario.length_s, scenario.interval_s):
        signals = _signals(scenario, at_s, sizes, since)
        cluster = ComputeCluster(scenario.cluster, scenario.cluster, {name: ReplicaSpec(sizes[name]) for name in sizes})
        made = decide(cluster, scenario.rules, states, signals, scenario.limits)
        states = made.states
        for action in made.actions:
            if action.kind is ActionKind.CREATE:
                sizes[action.replica], since[action.replica] = action.spec.size, at_s
            else:
                del sizes[action.replica], since[action.replica]
        yield SimulatedStep(
            at_s,
            made.actions,
            "; ".join(f"{Code.REPLICA_LIMIT_EXCEEDED}: {each}" for each in made.refused) or None,
            MappingProxyType(dict(sorted(sizes.items()))),
            signals.hydrated & sizes.keys(),
            signals.last_activity == signals.now,
            sum(scenario.sizes.credits.get(size) or 0.0 for size in sizes.values()),
        )


def _signals(scenario: Scenario, at_s: int, sizes: Mapping[str, str], since: Mapping[str, int]) -> Signals:
    """Return the target's signals at a given second of the scenario."""
    begun = max((at for at in scenario.rehydrate_at_s if at <= at_s), default=None)
    hydrated, crashes = set(), {}
    for name, size in sizes.items():
        crashing = scenario.crashes.get(size)
        if crashing is not None:
            count = min(at_s - since[name], _CRASHES_COUNT_FOR_S) // crashing.every
            crashes[name] = Crashes(count, count if crashing.out_of_memory else 0)
        elif at_s - max(since[name], since[name] if begun is None else begun) >= scenario.hydration_s.get(size, 0):
            hydrated.add(name)
    last = max((end for each in scenario.activity if (end := _last(each, at_s)) is not None), default=None)
    now = scenario.start + timedelta(seconds=at_s)
    activity = None if last is None else scenario.start + timedelta(seconds=last)
    return Signals(now, scenario.sizes, activity, frozenset(hydrated), crashes)


def _last(activity: Activity, at_s: int) -> int | None:
    """Return the last second, up to `at_s`, with activity; None if the activity has not begun."""
    days = at_s // _DAY_S if activity.daily else 0
    for day in (days, days - 1) if activity.daily and days else (days,):
        start, end = day * _DAY_S + activity.start, day * _DAY_S + activity.to
        if start <= at_s:
            return min(at_s, end)
    return None


_MOST_TICKS = 200_000


@dataclass(frozen=True, slots=True)
class _Document:
    """The scenario as written; times are in seconds."""

    cluster: str
    length: int
    sizes: Mapping[str, float]
    strategies: compute.DeclaredStrategies
    interval: int = 300
    start: datetime = datetime(2000, 1, 3, tzinfo=UTC)
    replicas: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    hydration: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    rehydrate: tuple[int, ...] = ()
    activity: tuple[Activity, ...] = ()
    crashes: Mapping[str, Crashing] = field(default_factory=lambda: MappingProxyType({}))
    max_replicas: int = Limits().max_replicas
    max_credits_per_hour: float | None = None
    experimental: bool = False


def _moment(value: object) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else None
    if found is None or found.tzinfo is None:
        raise ValueError("is not a time with its zone, such as 2026-06-01T00:00:00Z")
    return found


def _activity(value: object) -> Activity:
    # `from` is a Python keyword.
    renamed = (
        {("start" if key == "from" else key): each for key, each in value.items()} if isinstance(value, dict) else value
    )
    try:
        return _ACTIVITY(renamed)
    except Refused as refused:
        raise Refused(
            *((tuple("from" if step == "start" else step for step in place), said) for place, said in refused.problems)
        ) from None


_ACTIVITY = mapping(Activity, {"start": compute.TIME, "to": compute.TIME, "daily": truth})
_DOCUMENT = mapping(
    _Document,
    {
        "cluster": compute.SIZE,
        "length": compute.TIME,
        "sizes": keyed(compute.SIZE, compute.AMOUNT),
        "strategies": mapping(compute.DeclaredStrategies, compute.STRATEGIES),
        "interval": compute.TIME,
        "start": derived(_moment),
        "replicas": keyed(compute.SIZE, compute.SIZE),
        "hydration": keyed(compute.SIZE, compute.TIME),
        "rehydrate": listed(compute.TIME),
        "activity": listed(_activity),
        "crashes": keyed(compute.SIZE, mapping(Crashing, {"every": compute.TIME, "out_of_memory": truth})),
        "max_replicas": whole(1, 1000),
        "max_credits_per_hour": optional(compute.AMOUNT),
        "experimental": truth,
    },
)


def read_scenario(data: bytes, path: str, found: Diagnostics) -> Scenario | None:
    """Parse a scenario.

    Returns None if it has problems. These are added to `found`, with their lines in `path`.
    """
    try:
        root = parse_yaml(data)
    except YamlError as error:
        for problem in error.problems:
            found.add(
                Code.SCENARIO_INVALID, path, problem.message, source=SourceRef(path, problem.line, problem.column)
            )
        return None
    try:
        document = _DOCUMENT(to_plain(root))
        _check(document)
    except Refused as refused:
        for place, message in refused.problems:
            line, column, said = place_problem(root, place, message)
            found.add(Code.SCENARIO_INVALID, path, said, source=SourceRef(path, line, column))
        return None
    for place, message in compute.strategy_warnings(document.strategies, document.interval):
        line, column, said = place_problem(root, ("strategies", *place), message)
        found.add(Code.STRATEGY_QUESTIONABLE, path, said, source=SourceRef(path, line, column))
    return Scenario(
        document.cluster,
        document.strategies.rules,
        SizeTable(document.sizes),
        document.start,
        document.length,
        document.interval,
        Limits(document.max_replicas, document.max_credits_per_hour),
        document.replicas,
        {size: document.hydration.get(size, HYDRATION_S) for size in document.sizes},
        document.activity,
        tuple(sorted(document.rehydrate)),
        document.crashes,
    )


def _check(document: _Document) -> None:
    """Raise Refused for values that contradict each other."""
    problems: list[tuple[Place, str]] = []
    if document.interval < 1 or not 0 < document.length <= document.interval * _MOST_TICKS:
        problems.append((("length",), f"expected from one to {_MOST_TICKS} intervals of {document.interval} s"))
    for number, each in enumerate(document.activity):
        if not each.start < each.to <= (_DAY_S if each.daily else document.length):
            end = "24h" if each.daily else "the end of the scenario"
            problems.append((("activity", number), f"expected a time from, and a later one to, until {end}"))
    for size, crash in document.crashes.items():
        if crash.every < 1:
            problems.append((("crashes", size, "every"), "expected a time longer than 0"))
    named: list[tuple[Place, str]] = [(("replicas", name), size) for name, size in document.replicas.items()]
    named += [((key, size), size) for key in ("hydration", "crashes") for size in getattr(document, key)]
    named += [(("strategies", *place), size) for place, size in _sizes(document.strategies)]
    problems += [
        (place, f"the size '{size}' is not among sizes") for place, size in named if size not in document.sizes
    ]
    try:
        compute.check_strategies(document.strategies, document.cluster, experimental=document.experimental)
    except Refused as refused:
        problems += [(("strategies", *place), message) for place, message in refused.problems]
    if problems:
        raise Refused(*problems)


def _sizes(declared: compute.DeclaredStrategies) -> list[tuple[Place, str]]:
    found: list[tuple[str, str, Any]] = [
        ("target_size", "target_size", declared.target_size),
        ("shrink_to_fit", "max_replica_size", declared.shrink_to_fit),
        ("burst", "burst_replica_size", declared.burst),
    ]
    return [((strategy, key), getattr(rule, key)) for strategy, key, rule in found if rule is not None]


# -- A target's history of a compute cluster over some days, as a scenario for replaying strategies --------------------
#
# | scenario | source |
# | --- | --- |
# | initial replicas | the current ones, with all audited statements undone, the last one first |
# | activity | the history of statements |
# | hydration time of a size | the shortest time from a create to a drop that was permitted because the replica had
#   hydrated |
# | rehydration of all replicas | a burst at a time when every other replica had existed longer than its size takes |
# | crashes | none, because targets remember them for only an hour |
#
# Values that a trace does not contain are assumed. Recorded and assumed parts are listed for people, because a replay
# is only as good as its data.


@dataclass(frozen=True, slots=True)
class SignalTrace:
    """A target's signals for one compute cluster, from `since` until `until`.

    `cluster` has the replicas at the end. `audited` are its audit rows and `spans` the times of its statements, both in
    order.
    """

    cluster: ComputeCluster
    sizes: SizeTable
    since: datetime
    until: datetime
    audited: Sequence[AuditRow]
    spans: Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario that was derived from a trace, without strategies. Lists what was `recorded` and what was `assumed`."""

    scenario: Scenario
    recorded: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def says_something(self) -> bool:
        """Return True if the target recorded any event."""
        return bool(self.recorded)

    def under(self, rules: Sequence[StrategyRule], limits: Limits) -> Scenario:
        """Return the scenario with the given strategies."""
        return replace(self.scenario, rules=tuple(rules), limits=limits)


@dataclass(frozen=True, slots=True)
class _Event:
    """A statement that was executed `at_s` seconds after the start, with its reason."""

    at_s: int
    kind: ActionKind
    replica: str
    size: str | None
    reasons: tuple[str, ...]


def replay_of(trace: SignalTrace, interval_s: int) -> Replay:
    """Return the scenario of a trace, with a tick every `interval_s` seconds.

    The same trace always gives the same replay. Rows that were not executed, or whose statement cannot be parsed, are
    skipped.
    """
    events, passed_over = _events(trace)
    start, unsized = _at_start(trace, events)
    hydration = _hydration(trace.cluster.name, events)
    rehydrated = _rehydrated(trace.cluster.name, events, start, hydration)
    length_s = max(1, ceil((trace.until - trace.since).total_seconds()))
    spans = tuple(_spans(trace, interval_s, length_s))
    scenario = Scenario(
        trace.cluster.name,
        (),
        trace.sizes,
        trace.since,
        length_s,
        interval_s,
        Limits(),
        MappingProxyType(start),
        MappingProxyType({**dict.fromkeys((*trace.sizes.credits, *start.values()), HYDRATION_S), **hydration}),
        spans,
        rehydrated,
        MappingProxyType({}),
    )
    recorded = (
        *([f"statements about replicas that were carried out: {len(events)}"] if events else []),
        *([f"times in which statements ran: {len(spans)}"] if spans else []),
        *(f"a replica of size {size} hydrates in {seconds} s" for size, seconds in sorted(hydration.items())),
        *(
            [f"all replicas hydrated again: {len(rehydrated)} time{'s' if len(rehydrated) > 1 else ''}"]
            if rehydrated
            else []
        ),
    )
    return Replay(scenario, recorded, (*_assumed(trace, interval_s, unsized, passed_over),))


def _assumed(trace: SignalTrace, interval_s: int, unsized: Iterable[str], passed_over: int) -> Iterator[str]:
    yield f"a tick comes every {interval_s} s, and the strategies begin without a memory"
    yield f"a replica of any other size hydrates in {HYDRATION_S} s; what is there at the start is hydrated"
    yield "no replica crashes"
    yield "the history of statements is complete, and a statement runs until the next tick at least"
    yield "replicas were created and dropped by audited statements alone"
    for name in unsized:
        yield f"the size of {name}, which was dropped, is {_fallback(trace)}"
    there = {each.size for each in trace.cluster.replicas.values()}
    for size in sorted(there - trace.sizes.credits.keys()):
        yield f"a replica of size {size}, which the target does not list, costs nothing"
    if passed_over:
        yield f"audit rows whose statement cannot be read changed nothing: {passed_over}"


def _events(trace: SignalTrace) -> tuple[list[_Event], int]:
    """Return the executed statements in order, and the number of rows that cannot be parsed."""
    found, passed_over = [], 0
    for row in trace.audited:
        if not row.executed or row.created_at is None or not trace.since <= row.created_at <= trace.until:
            continue
        said = read_statement(row.action_sql)
        if said is None or said.cluster != trace.cluster.name:
            passed_over += 1
            continue
        reasons, size = row.decision_ctx.get("reasons"), row.decision_ctx.get("size")
        found.append(
            _Event(
                int((row.created_at - trace.since).total_seconds()),
                said.kind,
                said.replica,
                said.size or (size if isinstance(size, str) else None),
                tuple(map(str, reasons)) if isinstance(reasons, list) else (),
            )
        )
    return found, passed_over


def _at_start(trace: SignalTrace, events: Iterable[_Event]) -> tuple[dict[str, str], list[str]]:
    """Return the sizes, by name, of the replicas that existed before all events, and the names of those with unknown size.

    These are the replicas whose first event is a drop, and the current ones without events.
    """
    found, unsized, seen = dict[str, str](), [], set[str]()
    for event in events:
        if event.replica not in seen and event.kind is ActionKind.DROP:
            if event.size is None:
                unsized.append(event.replica)
            found[event.replica] = event.size or _fallback(trace)
        seen.add(event.replica)
    found |= {name: each.size for name, each in trace.cluster.replicas.items() if name not in seen}
    return dict(sorted(found.items())), sorted(unsized)


def _fallback(trace: SignalTrace) -> str:
    """Return the assumed size of a replica with unknown size: the smallest size now in the cluster, otherwise on the target."""
    there = {each.size for each in trace.cluster.replicas.values()}
    return min(there or trace.sizes.credits or ("unknown",), key=trace.sizes.rank)


def _hydration(cluster: str, events: Iterable[_Event]) -> dict[str, int]:
    """Return, by size, the shortest time until a replica was hydrated, as shown by a drop that waited for it.

    A burst waits for older replicas to rehydrate; every other replica is older than its replacement.
    """
    found, created = dict[str, int](), dict[str, _Event]()
    for event in events:
        if event.kind is ActionKind.CREATE:
            created[event.replica] = event
            continue
        dropped = created.pop(event.replica, None)
        for each in created.values():
            if each.size is None or not any(_says_hydrated(reason, each) for reason in event.reasons):
                continue
            began_s = max(each.at_s, each.at_s if dropped is None else dropped.at_s)
            if began_s == each.at_s or event.replica == burst_name(cluster):
                found[each.size] = min(event.at_s - began_s, found.get(each.size, event.at_s - began_s))
    return found


def _says_hydrated(reason: str, made: _Event) -> bool:
    """Return whether a reason written by a strategy means that this replica is hydrated."""
    return reason.endswith((f": {made.replica} is hydrated", f": {made.replica} of size {made.size} is hydrated"))


def _rehydrated(
    cluster: str, events: Iterable[_Event], start: Iterable[str], hydration: Mapping[str, int]
) -> tuple[int, ...]:
    """Return the times of bursts at which all other replicas had existed long enough to be hydrated."""
    burst, found = burst_name(cluster), list[int]()
    ready = dict.fromkeys(start, 0)
    for event in events:
        if event.kind is ActionKind.DROP:
            ready.pop(event.replica, None)
            continue
        others = [at_s for name, at_s in ready.items() if name != burst]
        by_burst = any(reason.startswith(f"{StrategyType.BURST}:") for reason in event.reasons)
        if event.replica == burst and by_burst and others and max(others) <= event.at_s:
            found.append(event.at_s)
        ready[event.replica] = event.at_s + hydration.get(event.size or "", HYDRATION_S)
    return tuple(found)


def _spans(trace: SignalTrace, interval_s: int, length_s: int) -> Iterator[Activity]:
    """Yield the spans of statements.

    Each lasts at least until the next tick, and spans without a tick in between are joined.
    """
    first = last = None
    for began, ended in trace.spans:
        begin = max(0, int((began - trace.since).total_seconds()))
        end = max(int((ended - trace.since).total_seconds()), ceil(begin / interval_s) * interval_s)
        begin, end = min(begin, length_s), min(end, length_s)
        if first is not None and last is not None and begin > last:
            yield Activity(first, last)
            first = last = None
        first, last = begin if first is None else first, end if last is None else max(last, end)
    if first is not None and last is not None:
        yield Activity(first, last)
