"""Run an execution graph on worker threads.

One thread, the caller's, coordinates: it alone asks the schedule, reads the clock and emits events. Workers get a node and
put one answer on a queue; they share nothing else.

1. While a worker is free and no stop is requested, start what the schedule names. Barriers end at once, without a worker.
2. Wait for one answer, record it, and begin again, until every node has its result.
3. An exception from the work is a failure of that node. Anything worse (an interrupt, an exit, a crash put in by a test),
   and anything that is raised in the coordinator itself, ends the scheduling: running nodes finish, then it is raised to
   the caller. There are no results then; recovery finds out what has happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from queue import Empty, SimpleQueue
from traceback import walk_tb

from gitops.apply.events import (
    ApplyFinished,
    ApplyStarted,
    Event,
    NodeFailed,
    NodeFinished,
    NodeLockWait,
    NodeReady,
    NodeSkipped,
    NodeStarted,
)
from gitops.core.clock import Clock
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import BugError, GitopsError
from gitops.model.plan import ExecNode, ExecutionGraph, NodeOutcome, NodeResult
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
    on_event: Callable[[Event], None] | None = None,
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
        return coordinator.run(pool, workers=workers, fail_fast=fail_fast)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of a worker: a result, and the exception to raise in the coordinating thread if there is one."""

    node_id: str
    result: NodeResult
    crash: BaseException | None = None


class _Coordinator:
    """The loop and its bookkeeping for one run."""

    def __init__(
        self,
        graph: ExecutionGraph,
        schedule: Schedule,
        execute: Callable[[ExecNode], NodeResult],
        clock: Clock,
        on_event: Callable[[Event], None] | None,
        stop: Callable[[], bool] | None,
    ) -> None:
        self._graph = graph
        self._schedule = schedule
        self._execute = execute
        self._clock = clock
        self._on_event = on_event
        self._stop = stop
        self._before = neighbours(graph)[1]
        self._answers: SimpleQueue[_Answer] = SimpleQueue()
        self._slots: dict[str, int] = {}
        self._started: dict[str, datetime] = {}
        self._outcomes: Counter[NodeOutcome] = Counter()
        self._seq = 0

    def run(self, pool: ThreadPoolExecutor, *, workers: int, fail_fast: bool) -> tuple[NodeResult, ...]:
        """The loop of this module's first lines."""
        try:
            self._emit(ApplyStarted(*self._stamp(), len(self._graph.nodes), workers, fail_fast))
            self._report(Progress(ready=self._schedule.ready))
            while not self._schedule.finished:
                self._start_all(pool)
                if not self._schedule.finished:
                    self._await_answer()
        except BaseException:
            self._break_off(pool)
            raise
        self._emit(ApplyFinished(*self._stamp(), self._counts(), interrupted=False))
        return self._schedule.results()

    def _start_all(self, pool: ThreadPoolExecutor) -> None:
        while True:
            if self._stop is not None and self._stop():
                self._report(self._schedule.stop())
            node = self._schedule.next_ready()
            # Finding out which node waits for which is slow: only for an observer.
            for wait in () if self._on_event is None else self._schedule.fresh_waits():
                self._emit(NodeLockWait(*self._stamp(), wait.node_id, wait.keys, wait.holders))
            if node is None:
                return
            self._start(node, pool)

    def _start(self, node: ExecNode, pool: ThreadPoolExecutor) -> None:
        barrier = node.kind == BARRIER_KIND
        slot = 0 if barrier else min(set(range(1, len(self._slots) + 2)) - set(self._slots.values()))
        self._schedule.start(node.id)
        event = NodeStarted(*self._stamp(), node.id, slot, node.locks)
        self._started[node.id] = event.at
        self._emit(event)
        if barrier:
            self._end(NodeResult(node.id, NodeOutcome.DONE), slot)
            return
        self._slots[node.id] = slot
        pool.submit(self._work, node)

    def _work(self, node: ExecNode) -> None:
        """In a worker thread: one node, one answer, whatever happens."""
        try:
            try:
                result = _checked(node, self._execute(node))
            except Exception as error:  # noqa: BLE001 - whatever the work raises is the failure of this node alone
                result = _failure(node, error)
            answer = _Answer(node.id, result)
        except BaseException as crash:  # noqa: BLE001 - raised again in the coordinating thread
            answer = _Answer(node.id, NodeResult(node.id, NodeOutcome.UNKNOWN), crash)
        self._answers.put(answer)

    def _await_answer(self) -> None:
        if not self._slots:
            raise BugError("nothing runs and nothing may start, yet nodes are left")
        answer = self._answers.get()
        self._end(answer.result, self._slots.pop(answer.node_id))
        if answer.crash is not None:
            raise answer.crash

    def _end(self, result: NodeResult, worker: int) -> None:
        stamp = self._stamp()
        name, now = result.node_id, stamp[1]
        started = result.started_at or self._started.get(name, now)
        result = replace(result, started_at=started, finished_at=result.finished_at or now)
        progress = self._schedule.finish(name, result)
        self._outcomes[result.outcome] += 1
        if result.outcome is NodeOutcome.DONE:
            self._emit(NodeFinished(*stamp, name, worker))
        else:
            self._emit(NodeFailed(*stamp, name, worker, result.outcome, result.diagnostics))
        self._report(progress)

    def _report(self, progress: Progress) -> None:
        for name in progress.ready:
            self._emit(NodeReady(*self._stamp(), name, self._before[name]))
        for skip in progress.skipped:
            self._outcomes[skip.result.outcome] += 1
            self._emit(NodeSkipped(*self._stamp(), skip.result.node_id, skip.reason, skip.result.blocked_by))

    def _break_off(self, pool: ThreadPoolExecutor) -> None:
        """Rule 3: let running nodes finish, and emit how they and the others ended."""
        self._report(self._schedule.stop())
        pool.shutdown(wait=True)
        while True:
            try:
                answer = self._answers.get_nowait()
            except Empty:
                break
            self._end(answer.result, self._slots.pop(answer.node_id))
        # A node whose hand-over to a worker was itself interrupted has no answer, so its effect is not known.
        for name in self._schedule.running:
            self._end(NodeResult(name, NodeOutcome.UNKNOWN), self._slots.pop(name, 0))
        self._emit(ApplyFinished(*self._stamp(), self._counts(), interrupted=True))

    def _counts(self) -> dict[NodeOutcome, int]:
        return {outcome: self._outcomes[outcome] for outcome in NodeOutcome}

    def _stamp(self) -> tuple[int, datetime]:
        """The next event's number, and the time."""
        self._seq += 1
        return self._seq, self._clock.now()

    def _emit(self, event: Event) -> None:
        """Hand an event to the observer; an observer that raises gets no more events."""
        if self._on_event is not None:
            observer, self._on_event = self._on_event, None
            observer(event)
            self._on_event = observer


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
        problems.add(error.code, error.path or node.id, error.detail, severity=Severity.ERROR)
    else:
        frame, line = list(walk_tb(error.__traceback__))[-1]
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
        problems.add(Code.INTERNAL_ERROR, node.id, f"{type(error).__name__} was raised at {place}")
    return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
