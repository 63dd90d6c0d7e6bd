"""Random execution graphs, and runs of their schedule on a virtual clock."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from hypothesis import strategies as st

from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode, NodeOutcome, NodeResult
from gitops.cluster.plan.layers import neighbours
from gitops.cluster.plan.schedule import Schedule, Skip

EXCLUSIVE, SHARED = LockMode.EXCLUSIVE, LockMode.SHARED
WORKERS = st.integers(1, 8)


@dataclass(frozen=True)
class Case:
    """A graph, and what each node will do: how long it takes and how it ends; those that hang are given up then."""

    graph: ExecutionGraph
    durations: dict[str, int]
    endings: dict[str, NodeOutcome]
    hang: frozenset[str] = frozenset()


@dataclass
class Trace:
    """What happened, in order: (event, node, time), what was running and held at each step, and the results."""

    events: list[tuple[str, str, int]] = field(default_factory=list)
    results: tuple[NodeResult, ...] = ()
    skips: list[Skip] = field(default_factory=list)
    idle_violations: list[str] = field(default_factory=list)
    held_at_end: tuple[str, ...] = ()

    def times(self, event: str) -> dict[str, int]:
        return {name: index for index, (kind, name, _) in enumerate(self.events) if kind == event}

    def started(self) -> list[str]:
        return [name for kind, name, _ in self.events if kind == "start"]

    def outcomes(self) -> dict[str, NodeOutcome]:
        return {r.node_id: r.outcome for r in self.results}


@st.composite
def graphs(draw: st.DrawFn, *, largest: int = 40) -> ExecutionGraph:
    size = draw(st.integers(0, largest))
    ids = [f"n{i:02}" for i in range(size)]
    positions = draw(st.permutations(range(size)))
    claims = st.builds(LockClaim, st.sampled_from("abcd"), st.sampled_from([EXCLUSIVE, SHARED, SHARED]))
    locks = st.lists(claims, max_size=3, unique_by=lambda c: c.key).map(lambda c: tuple(sorted(c)))
    groups = st.sampled_from(["", "", "moving"])
    nodes = [
        ExecNode(n, "query", Action.UPDATE, p, draw(locks), draw(groups)) for n, p in zip(ids, positions, strict=True)
    ]
    ends = st.integers(0, max(size - 1, 0))
    pairs = draw(st.sets(st.tuples(ends, ends), max_size=2 * size)) if size else set()
    edges = {ExecEdge(ids[min(p)], ids[max(p)], "explicit_dependency") for p in pairs if p[0] != p[1]}
    return ExecutionGraph(tuple(sorted(nodes, key=lambda n: n.position)), tuple(sorted(edges)))


@st.composite
def cases(draw: st.DrawFn, *, failures: bool = True) -> Case:
    graph = draw(graphs())
    ids = [n.id for n in graph.nodes]
    good = [NodeOutcome.DONE] * 6 + [NodeOutcome.UNCHANGED] * 2
    bad = st.sampled_from([*good, NodeOutcome.FAILED, NodeOutcome.CANCELLED, NodeOutcome.INDETERMINATE])
    endings = bad if failures else st.just(NodeOutcome.DONE)
    return Case(graph, {n: draw(st.integers(0, 5)) for n in ids}, {n: draw(endings) for n in ids})


def simulate(case: Case, workers: int, *, fail_fast: bool = False, stop_at: int | None = None) -> Trace:
    """Run on a virtual clock: nodes end by time, then by start. `stop_at` cancels once that many events have happened."""
    schedule = Schedule(case.graph, workers=workers, fail_fast=fail_fast)
    trace, clock, running = Trace(), 0, []

    def note(progress) -> None:
        for skip in progress.skipped:
            trace.events.append(("skip", skip.result.node_id, clock))
            trace.skips.append(skip)

    while not schedule.finished:
        while True:
            if stop_at is not None and len(trace.events) >= stop_at:
                note(schedule.stop())
            node = schedule.next_ready()
            if node is None:
                break
            schedule.start(node.id)
            trace.events.append(("start", node.id, clock))
            heapq.heappush(running, (clock + case.durations[node.id], len(trace.events), node.id))
        _check_no_idle_worker(case, schedule, workers, trace)
        if not running:
            break
        clock, _, name = heapq.heappop(running)
        trace.events.append(("end", name, clock))
        if name in case.hang:
            note(schedule.give_up(name, NodeResult(name, NodeOutcome.INDETERMINATE)))
        else:
            note(schedule.finish(name, NodeResult(name, case.endings[name])))
    trace.results = schedule.results()
    trace.held_at_end = schedule.held
    return trace


def _check_no_idle_worker(case: Case, schedule: Schedule, workers: int, trace: Trace) -> None:
    """P8, judged from the locks themselves: a ready node waits only for what runs, or for an earlier waiting node."""
    if len(schedule.running) >= workers:
        return
    nodes = {n.id: n for n in case.graph.nodes}
    claims = [c for name in schedule.running for c in nodes[name].locks]
    for name in schedule.ready:
        if not any(conflict(mine, other) for mine in nodes[name].locks for other in claims):
            trace.idle_violations.append(name)
        claims += nodes[name].locks


def conflict(one: LockClaim, other: LockClaim) -> bool:
    return one.key == other.key and EXCLUSIVE in (one.mode, other.mode)


def descendants(graph: ExecutionGraph, roots) -> set[str]:
    after, _ = neighbours(graph)
    found, pending = set(), list(roots)
    while pending:
        for name in after[pending.pop()]:
            if name not in found:
                found.add(name)
                pending.append(name)
    return found
