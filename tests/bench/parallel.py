"""Parallel apply of small graphs against the lower bound of the same run, from the times of its node events.

The lower bound is the larger of the heaviest path and the total work over the workers, both with the durations that the
nodes had in that very run; it cannot be reached where the last nodes do not come out even. The same durations played
through the schedule without threads show what is left: the cost of starting and noting nodes. What more workers gain on
this machine is in the makespans.

Merges side by side are those of a real bot on a real ledger branch: each creates a graph, which waits for ten seconds, as for
a storage that is far away.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.clusters import write_cluster
from tests.bench.measure import Effort, Figure

if TYPE_CHECKING:
    from gitops.cluster.model.plan import ExecutionGraph, NodeResult
    from tests.support.loop import Loop

_GOAL_PERCENT = 5.0
_MERGES, _MERGES_GOAL = 10, 2.0
_WAIT_S = 10.0


def figures(effort: Effort) -> Iterator[Figure]:
    """Makespan and distance from the bounds for 1, 2 and 4 workers."""
    graphs, rounds = (4, 1) if effort.quick else (16, 7)
    # The first apply of a process pays for importing the driver.
    _run(effort.scratch / "parallel" / "first", 1, 1)
    runs: dict[int, list[_Run]] = {workers: [] for workers in (1, 2, 4)}
    # Rounds instead of blocks, so that a slow minute of the machine hits every worker count alike.
    for turn in range(rounds):
        for workers, done in runs.items():
            done.append(_run(effort.scratch / "parallel" / f"{workers}-{turn}", graphs, workers))
    for workers, done in runs.items():
        yield Figure(f"apply {graphs} new graphs, {workers} workers", "ms", tuple(r.span * 1000 for r in done))
        over = tuple((r.span / r.bound - 1) * 100 for r in done)
        yield Figure(f"over the lower bound, {workers} workers", "%", over, _GOAL_PERCENT)
        over = tuple((r.span / r.played - 1) * 100 for r in done)
        yield Figure(f"over the schedule of the same durations, {workers} workers", "%", over)
    for workers in (2, 4):
        gains = tuple(one.span / many.span for one, many in zip(runs[1], runs[workers], strict=True))
        yield Figure(f"speed-up, {workers} workers", "x", gains)
    yield from _merges(effort)
    nodes = 1_000 if effort.quick else 10_000
    yield Figure(
        f"CPU of a node without work, {nodes:,} nodes, 8 workers", "us", tuple(map(_overhead, [nodes] * rounds))
    )


def _overhead(count: int) -> float:
    """Microseconds of CPU that starting, noting and ending one node costs; a hundred nodes share each lock."""
    from gitops.cluster.apply.runner import RunLimits, run_graph
    from gitops.cluster.model.change import Action
    from gitops.cluster.model.plan import (
        ExecEdge,
        ExecNode,
        ExecutionGraph,
        LockClaim,
        LockMode,
        NodeOutcome,
        NodeResult,
    )
    from gitops.repository.wiring.system import SystemClock

    nodes = tuple(
        ExecNode(f"n{n:05}", "query", Action.CREATE, n, (LockClaim(f"graph:{n // 100}", LockMode.SHARED),))
        for n in range(count)
    )
    edges = tuple(ExecEdge(nodes[n - 10].id, nodes[n].id, "explicit_dependency") for n in range(10, count, 10))
    graph, before = ExecutionGraph(nodes, edges), time.process_time()
    run_graph(graph, lambda node: NodeResult(node.id, NodeOutcome.DONE), clock=SystemClock(), limits=RunLimits(8))
    return (time.process_time() - before) / count * 1e6


@dataclass(frozen=True, slots=True)
class _Run:
    """Seconds: what the run took from first start to last end, its lower bound, and its durations played again."""

    span: float
    bound: float
    played: float


def _run(folder: Path, graphs: int, workers: int) -> _Run:
    from gitops.cluster.apply.apply import apply
    from gitops.cluster.apply.refresh import import_cluster
    from gitops.cluster.plan.plan import plan
    from gitops.repository.wiring.stores import folder_workspace

    write_cluster(folder, graphs=graphs, queries=1)
    workspace = folder_workspace(str(folder), actor="bench", workers=workers)
    import_cluster(workspace)
    planned = plan(workspace).plan
    outcome = apply(workspace)
    if planned is None or not outcome.converged:
        raise RuntimeError(f"the cluster was not applied: {[str(d.message) for d in outcome.diagnostics]}")
    durations = {r.node_id: _seconds(r) for r in outcome.results}
    started = min(r.started_at for r in outcome.results if r.started_at is not None)
    finished = max(r.finished_at for r in outcome.results if r.finished_at is not None)
    bound = max(heaviest_path(planned.graph, durations), sum(durations.values()) / workers)
    return _Run((finished - started).total_seconds(), bound, played(planned.graph, durations, workers))


def played(graph: ExecutionGraph, durations: Mapping[str, float], workers: int) -> float:
    """Makespan of the graph under the schedule with these durations, if starting and ending a node cost nothing."""
    from gitops.cluster.model.plan import NodeOutcome, NodeResult
    from gitops.cluster.plan.schedule import Schedule

    schedule, now = Schedule(graph, workers=workers), 0.0
    running: list[tuple[float, str]] = []
    while not schedule.finished:
        while (node := schedule.next_ready()) is not None:
            schedule.start(node.id)
            heappush(running, (now + durations.get(node.id, 0.0), node.id))
        now, name = heappop(running)
        schedule.finish(name, NodeResult(name, NodeOutcome.DONE))
    return now


def heaviest_path(graph: ExecutionGraph, durations: Mapping[str, float]) -> float:
    """The longest sum of durations along the edges; nodes without a duration count nothing."""
    before: dict[str, list[str]] = {node.id: [] for node in graph.nodes}
    for edge in graph.edges:
        before[edge.after].append(edge.before)
    ends: dict[str, float] = {}
    waiting = [node.id for node in graph.nodes]
    while waiting:
        ready = [name for name in waiting if all(b in ends for b in before[name])]
        for name in ready:
            ends[name] = durations.get(name, 0.0) + max((ends[b] for b in before[name]), default=0.0)
        waiting = [name for name in waiting if name not in ends]
    return max(ends.values(), default=0.0)


def _seconds(result: NodeResult) -> float:
    if result.started_at is None or result.finished_at is None:
        return 0.0
    return (result.finished_at - result.started_at).total_seconds()


def _merges(effort: Effort) -> Iterator[Figure]:
    """Disjoint merges that wait together, prepared side by side and one after the other, and one alone."""
    from tests.support.loop import CONFIG, Loop

    many, wait_s = (2, 0.2) if effort.quick else (_MERGES, _WAIT_S)
    built = Loop.build(effort.folder("parallel-merges") / "loop", CONFIG + "apply: {side_by_side: disjoint}\n")
    waits = Loop.build(effort.folder("parallel-waits") / "loop", CONFIG)
    one = _landed(built.copied(effort.folder("parallel-one") / "loop"), 1, wait_s)
    beside = _landed(built, many, wait_s)
    after = _landed(waits, many, wait_s)
    for label, seconds in (("1 merge", one), (f"{many} merges beside", beside), (f"{many} merges in turn", after)):
        yield Figure(f"{label}, {wait_s:g} s each", "ms", (seconds * 1000,))
    yield Figure(f"{many} merges beside : 1 merge", "x", (beside / one,), None if effort.quick else _MERGES_GOAL)
    yield Figure(f"{many} merges in turn : 1 merge", "x", (after / one,))


def _landed(loop: Loop, many: int, wait_s: float) -> float:
    """Seconds until one event has landed merges that each create a graph."""
    from gitops.bot.context import Bot
    from gitops.bot.dispatch import handle_event
    from gitops.forge.events import PushEvent
    from gitops.repository.wiring.local import LocalRepository
    from tests.support.bot_stage import BOT, Stage
    from tests.support.faults import DoAt
    from tests.support.loop import MAIN, email

    stage, before = Stage(loop), loop.tip()
    for number in range(1, many + 1):
        known = loop.file(loop.tip(), "cluster/cluster.yaml") or b""
        files = {
            "cluster/cluster.yaml": known + f"  more{number}:\n    schema: more{number}.pg\n".encode(),
            f"cluster/more{number}.pg": b"node Thing {\n    name: String @key\n}\n",
        }
        stage.propose("alice", f"topic-{number}", dict(files), loop.tip())
        stage.land(number)
    slow = DoAt("cluster_apply.before_graph_create", lambda: time.sleep(wait_s))
    local = LocalRepository(str(loop.server), environ=loop.environment("bot"), faults=slow)
    started = time.monotonic()
    lines = list(handle_event(Bot(local, local.forge(), email("bot"), BOT), PushEvent(MAIN, before, loop.tip(), None)))
    seconds = time.monotonic() - started
    if not all(loop.graph(f"more{number}").exists() for number in range(1, many + 1)):
        raise RuntimeError(f"the merges did not land: {[line.text for line in lines]}")
    return seconds
