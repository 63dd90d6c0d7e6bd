"""What a target recorded of a compute cluster over some days, as a scenario that strategies can be played against.

| of the scenario | from |
| --- | --- |
| replicas at its start | those of now, with the audited statements taken back, the last one first |
| activity | the history of statements |
| how long a size takes to hydrate | the shortest time from a create to a drop that was permitted since that replica is hydrated |
| when everything hydrates again | a burst, where every other replica was there for longer than its size takes |
| crashes | nothing: targets remember them for an hour |

What a trace does not say is assumed. Both are listed for people: a replay is as good as what it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import ceil
from types import MappingProxyType

from gitops.cluster.model.strategy import Limits, StrategyRule, StrategyType
from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, SizeTable
from gitops.compute.strategies.decision import ActionKind
from gitops.compute.strategies.rules import burst_name
from gitops.compute.strategies.simulation import HYDRATION_S, Activity, Scenario
from gitops.compute.strategies.statements import read_statement
from gitops.core.dataclass import dataclass

__all__ = ["Replay", "Trace", "replay_of"]


@dataclass(frozen=True, slots=True)
class Trace:
    """What a target says of one compute cluster from `since` until `until`.

    `cluster` has the replicas at the end; `audited` are its audit rows and `spans` the times of its statements, both in order.
    """

    cluster: ComputeCluster
    sizes: SizeTable
    since: datetime
    until: datetime
    audited: Sequence[AuditRow]
    spans: Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class Replay:
    """A scenario that was made from a trace, without strategies, and what of it is `recorded` and what is `assumed`."""

    scenario: Scenario
    recorded: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def says_something(self) -> bool:
        """Whether the target recorded anything that happened."""
        return bool(self.recorded)

    def under(self, rules: Sequence[StrategyRule], limits: Limits) -> Scenario:
        """The scenario with these strategies."""
        return replace(self.scenario, rules=tuple(rules), limits=limits)


@dataclass(frozen=True, slots=True)
class _Event:
    """A statement that was executed `at_s` seconds after the start, and what was said for it."""

    at_s: int
    kind: ActionKind
    replica: str
    size: str | None
    reasons: tuple[str, ...]


def replay_of(trace: Trace, interval_s: int) -> Replay:
    """The scenario of a trace, for ticks that come every `interval_s` seconds.

    The same trace always gives the same replay. Rows that were not executed, or whose statement cannot be read, are passed over.
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
        *([f"all replicas hydrated again: {_times(len(rehydrated))}"] if rehydrated else []),
    )
    return Replay(scenario, recorded, (*_assumed(trace, interval_s, unsized, passed_over),))


def _times(number: int) -> str:
    return "1 time" if number == 1 else f"{number} times"


def _assumed(trace: Trace, interval_s: int, unsized: Iterable[str], passed_over: int) -> Iterator[str]:
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


def _events(trace: Trace) -> tuple[list[_Event], int]:
    """The statements that were executed, in order, and how many rows cannot be read."""
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


def _at_start(trace: Trace, events: Iterable[_Event]) -> tuple[dict[str, str], list[str]]:
    """The sizes of the replicas that were there before all events, by name, and the names whose size nothing says.

    Those are the ones whose first event is a drop, and those of now that have none.
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


def _fallback(trace: Trace) -> str:
    """The size of a replica of which nothing says it: the smallest one that the cluster has now, else that the target has."""
    there = {each.size for each in trace.cluster.replicas.values()}
    return min(there or trace.sizes.credits or ("unknown",), key=trace.sizes.rank)


def _hydration(cluster: str, events: Iterable[_Event]) -> dict[str, int]:
    """By size, the shortest time until a replica was hydrated: until a drop that waited for it.

    A burst waits for what was there before it, which hydrates again; every other replica is older than what replaces it.
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
    """Whether a reason, as the strategies give them, is that this replica is hydrated."""
    return reason.endswith((f": {made.replica} is hydrated", f": {made.replica} of size {made.size} is hydrated"))


def _rehydrated(
    cluster: str, events: Iterable[_Event], start: Iterable[str], hydration: Mapping[str, int]
) -> tuple[int, ...]:
    """When a burst came although every other replica had been there long enough."""
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


def _spans(trace: Trace, interval_s: int, length_s: int) -> Iterator[Activity]:
    """The spans of statements, each until the next tick at least, joined where no tick falls between them."""
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
