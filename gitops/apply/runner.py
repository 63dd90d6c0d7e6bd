"""Run an execution graph on worker threads.

One thread, the caller's, coordinates: it alone asks the schedule, reads the clock and emits events. Workers get a node and
put one answer on a queue; they share nothing else.

1. While a worker is free and no stop is requested, start what the schedule names. Barriers end at once, without a worker.
2. Wait for one answer, record it, and begin again, until every node has its result.
3. An exception from the work is a failure of that node. Anything worse (an interrupt, an exit, a crash put in by a test),
   and anything that is raised in the coordinator itself, ends the scheduling: running nodes finish, then it is raised to
   the caller. There are no results then; recovery finds out what has happened.

Events: per node `node_ready`, maybe `node_lock_wait`, `node_started`, then exactly one of `node_finished`, `node_failed` and
`node_skipped`; a skipped node may have been ready but never started. Nothing follows `apply_finished`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import PurePath
from queue import Empty, SimpleQueue
from traceback import walk_tb
from typing import Any

from gitops.core.clock import Clock
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import BugError, GitopsError
from gitops.model.plan import ExecNode, ExecutionGraph, NodeOutcome, NodeResult
from gitops.model.run_event import Observer, RunEvent
from gitops.plan.graph import BARRIER_KIND
from gitops.plan.layers import neighbours
from gitops.plan.schedule import ENDINGS, Progress, Schedule


def run_graph(
    graph: ExecutionGraph,
    execute: Callable[[ExecNode], NodeResult],
    *,
    clock: Clock,
    workers: int = 1,
    fail_fast: bool = False,
    on_event: Observer | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[NodeResult, ...]:
    """Carry out every node that its dependencies, locks and the failure policy allow.

    `execute` is called in a worker thread, once per started node, never for a barrier. One worker gives the serial run.
    `fail_fast` starts nothing more after a failure. `on_event` gets the events, and `stop` says before each start whether to
    start nothing more; both are called in the coordinating thread only.

    Returns one result per node, in plan order. Raises what `Schedule` raises for a bad graph or worker count, before
    anything starts, and what ended the scheduling as described above, after running nodes finished.
    """
    schedule = Schedule(graph, workers=workers, fail_fast=fail_fast)
    coordinator = _Coordinator(graph, schedule, execute, clock, on_event, stop)
    with ThreadPoolExecutor(max(1, min(workers, len(graph.nodes))), "apply") as pool:
        try:
            coordinator.begin(limit=workers, fail_fast=fail_fast)
            coordinator.run(pool)
        except BaseException:
            coordinator.break_off(pool)
            coordinator.finish(interrupted=True)
            raise
    coordinator.finish(interrupted=False)
    return schedule.results()


class _Coordinator:
    """The loop and its bookkeeping for one run."""

    def __init__(
        self,
        graph: ExecutionGraph,
        schedule: Schedule,
        execute: Callable[[ExecNode], NodeResult],
        clock: Clock,
        on_event: Observer | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._schedule = schedule
        self._execute = execute
        self._clock = clock
        self._on_event = on_event
        self._stop = stop
        self._before = neighbours(graph)[1]
        self._nodes = {node.id: node for node in graph.nodes}
        self._answers: SimpleQueue[tuple[NodeResult, BaseException | None]] = SimpleQueue()
        self._slots: dict[str, int] = {}
        self._began: datetime | None = None
        self._ready: dict[str, datetime] = {}
        self._started: dict[str, datetime] = {}
        self._outcomes: Counter[NodeOutcome] = Counter()
        self._seq = 0

    def begin(self, **facts: Any) -> None:
        """Emit the first event."""
        changes = sum(node.kind != BARRIER_KIND for node in self._nodes.values())
        self._began = self.emit("apply_started", nodes=len(self._nodes), changes=changes, **facts)

    def finish(self, *, interrupted: bool) -> None:
        """Emit the last event."""
        counts = {outcome: self._outcomes[outcome] for outcome in NodeOutcome}
        now = self._clock.now()
        took = _milliseconds(self._began or now, now)
        self.emit("apply_finished", at=now, counts=counts, interrupted=interrupted, duration_ms=took)

    def run(self, pool: ThreadPoolExecutor) -> None:
        """Rules 1 and 2."""
        schedule = self._schedule
        self._report(Progress(ready=schedule.ready))
        while not schedule.finished:
            while True:
                if self._stop is not None and self._stop():
                    self._report(schedule.stop())
                node = schedule.next_ready()
                # Finding out which node waits for which is slow: only for an observer.
                for wait in () if self._on_event is None else schedule.fresh_waits():
                    self.emit("node_lock_wait", wait.node_id, locks=wait.keys, holders=wait.holders)
                if node is None:
                    break
                self._start(node, pool)
            if not schedule.finished:
                if not self._slots:
                    raise BugError("nothing runs and nothing may start, yet nodes are left")
                result, crash = self._answers.get()
                self._end(result, self._slots.pop(result.node_id))
                if crash is not None:
                    raise crash

    def break_off(self, pool: ThreadPoolExecutor) -> None:
        """Rule 3: let running nodes finish, and emit how they and the others ended."""
        self._report(self._schedule.stop())
        pool.shutdown(wait=True)
        with suppress(Empty):
            while True:
                result, _ = self._answers.get_nowait()
                self._end(result, self._slots.pop(result.node_id))
        # A node whose hand-over to a worker was itself interrupted has no answer, so its effect is not known.
        for name in self._schedule.running:
            self._end(NodeResult(name, NodeOutcome.UNKNOWN), self._slots.pop(name, 0))

    def emit(self, event: str, node: str | None = None, at: datetime | None = None, **facts: Any) -> datetime:
        """Hand an event to the observer; an observer that raises gets no more events. Returns the time of the event."""
        self._seq += 1
        at = self._clock.now() if at is None else at
        if node is not None:
            known = self._nodes[node]
            facts = {"action": known.action, "kind": known.kind, "position": known.position, **facts}
        if self._on_event is not None:
            observer, self._on_event = self._on_event, None
            observer(RunEvent(self._seq, at, event, node, facts))
            self._on_event = observer
        return at

    def _start(self, node: ExecNode, pool: ThreadPoolExecutor) -> None:
        barrier = node.kind == BARRIER_KIND
        slot = 0 if barrier else min(set(range(1, len(self._slots) + 2)) - set(self._slots.values()))
        self._schedule.start(node.id)
        now = self._started[node.id] = self._clock.now()
        waited = _milliseconds(self._ready[node.id], now)
        self.emit("node_started", node.id, now, worker=slot, locks=node.locks, waited_ms=waited)
        if barrier:
            self._end(NodeResult(node.id, NodeOutcome.DONE), slot)
            return
        self._slots[node.id] = slot
        pool.submit(self._work, node)

    def _work(self, node: ExecNode) -> None:
        """In a worker thread: one node, one answer, whatever happens."""
        crash: BaseException | None = None
        try:
            try:
                result = _checked(node, self._execute(node))
            except Exception as error:  # noqa: BLE001 - whatever the work raises is the failure of this node alone
                result = _failure(node, error)
        except BaseException as raised:  # noqa: BLE001 - raised again in the coordinating thread
            result, crash = NodeResult(node.id, NodeOutcome.UNKNOWN), raised
        self._answers.put((result, crash))

    def _end(self, result: NodeResult, worker: int) -> None:
        name, now = result.node_id, self._clock.now()
        started = result.started_at or self._started.get(name, now)
        result = replace(result, started_at=started, finished_at=result.finished_at or now)
        progress = self._schedule.finish(name, result)
        self._outcomes[result.outcome] += 1
        facts: dict[str, Any] = {"worker": worker, "duration_ms": _milliseconds(started, now)}
        if result.outcome is NodeOutcome.DONE:
            self.emit("node_finished", name, now, **facts)
        else:
            facts |= {"outcome": result.outcome, "diagnostics": result.diagnostics}
            self.emit("node_failed", name, now, **facts)
        self._report(progress)

    def _report(self, progress: Progress) -> None:
        for name in progress.ready:
            self._ready[name] = self.emit("node_ready", name, dependencies=self._before[name])
        for skip in progress.skipped:
            self._outcomes[skip.result.outcome] += 1
            self.emit("node_skipped", skip.result.node_id, reason=skip.reason, blocked_by=skip.result.blocked_by)


def _milliseconds(since: datetime, now: datetime) -> int:
    return int((now - since).total_seconds() * 1000)


def _checked(node: ExecNode, result: object) -> NodeResult:
    """`result`, if the node may have it. Raises BugError otherwise: its provider is at fault."""
    if not isinstance(result, NodeResult) or result.node_id != node.id or result.outcome not in ENDINGS:
        raise BugError(f"the provider of {node.id} gave a result that the node cannot have")
    return result


def _failure(node: ExecNode, error: Exception) -> NodeResult:
    """A raised exception as the failure of its node.

    The text of a foreign exception may hold anything, secrets included, so only its type and place are reported.
    """
    problems = Diagnostics()
    if isinstance(error, GitopsError) and error.code in REGISTRY:
        problems.add(error.code, error.path or node.id, error.detail, severity=Severity.ERROR, fix=error.fix)
    else:
        frame, line = list(walk_tb(error.__traceback__))[-1]
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
        problems.add(Code.INTERNAL_ERROR, node.id, f"{type(error).__name__} was raised at {place}")
    return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
