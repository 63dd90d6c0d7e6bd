"""Runs an execution graph on worker threads.

Only the caller's thread coordinates: it asks the schedule, reads the clock, passes barriers and emits events. Workers
get a node and put one result on a queue; they share nothing else. The system time is read once, at the start. All times
of a run are that time plus the elapsed time, so changing the system clock causes no timeouts and no negative durations.

1. While a worker is free and no stop is requested, start the node that the schedule returns.
2. Wait for one result, record it, and repeat until every node has its result.
3. After a stop request (`Cancellation`), nothing more starts, except for the nodes from a begun pivot to the commit.
   Work that supports cancellation stops. Interruptible work is abandoned after a grace period, and other work is waited
   for. After a second request, all running work is abandoned.
4. An interruptible node is abandoned at its time limit. A thread cannot be killed: the effect of abandoned work is
   unknown, it keeps its locks, and a late result is ignored. Recovery determines what happened.
5. An exception from the work is a failure of that node. Anything worse (an interrupt, an exit, a crash injected by a
   test), and any exception in the coordinator itself, ends the scheduling: running nodes finish, then it is raised to
   the caller. There are no results then; recovery determines what happened.

Events per node: `node_ready`, possibly `node_lock_wait`, `node_started`, then exactly one of `node_finished`,
`node_failed`, `node_cancelled`, `node_indeterminate` and `node_skipped`. A skipped node may have been ready but never
started. `apply_finished` is the last event.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from pathlib import PurePath
from queue import Empty, SimpleQueue
from traceback import walk_tb
from types import MappingProxyType
from typing import Any, NamedTuple

from gitops.cluster.model.plan import (
    BARRIER_KIND,
    TARGET,
    ExecNode,
    ExecutionGraph,
    NodeOutcome,
    NodeResult,
    Observer,
    RunEvent,
)
from gitops.cluster.plan.layers import layers
from gitops.cluster.plan.schedule import ENDINGS, Progress, Schedule
from gitops.core.cancel import Cancellation, CancelledError
from gitops.core.clock import Clock
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import BugError, GitopsError

GRACE = timedelta(seconds=10)
"""How long a run that was asked to stop waits for interruptible work."""

_ENDED = {
    NodeOutcome.DONE: "node_finished",
    NodeOutcome.UNCHANGED: "node_finished",
    NodeOutcome.DRY_RUN: "node_finished",
    NodeOutcome.FAILED: "node_failed",
    NodeOutcome.CANCELLED: "node_cancelled",
    NodeOutcome.INDETERMINATE: "node_indeterminate",
}
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of a run: the number of concurrent nodes, and the conditions that end it early.

    With one worker, the run is serial. With `fail_fast`, nothing more starts after a failure. With `keep_going`,
    everything that does not depend on the failure starts, if the storage and the ledger have not failed. `stop` is
    called before each start, only in the coordinating thread, and returns whether to start nothing more.
    """

    workers: int = 1
    fail_fast: bool = False
    cancel: Cancellation = field(default_factory=Cancellation)
    stop: Callable[[], bool] | None = None
    time_limit: timedelta | None = None
    grace: timedelta = GRACE
    keep_going: bool = False


def run_graph(
    graph: ExecutionGraph,
    execute: Callable[[ExecNode], NodeResult],
    *,
    clock: Clock,
    limits: RunLimits | None = None,
    at_barrier: Callable[[ExecNode], NodeResult] | None = None,
    on_event: Observer | None = None,
    recoveries: Mapping[str, str] = _NOTHING,
    facts: Mapping[str, Any] = _NOTHING,
) -> tuple[NodeResult, ...]:
    """Run every node that is permitted by its dependencies, its locks and the failure policy.

    `execute` is called in a worker thread, once per started node, never for a barrier; it raises CancelledError when it
    obeys the cancellation. `at_barrier` handles barriers in the coordinating thread, after everything before them has
    ended; without it, barriers end immediately. `on_event` receives the events, only in the coordinating thread.
    `recoveries` maps nodes to the operation that their intent announced, for events of nodes with an unknown effect.
    `facts` are added to the first event.

    Returns one result per node, in plan order. Before anything starts, raises the errors of `Schedule` for an invalid
    graph or worker count. After running nodes have finished, raises the exception that ended the scheduling, as
    described above.
    """
    limits = RunLimits() if limits is None else limits
    schedule = Schedule(graph, workers=limits.workers, fail_fast=limits.fail_fast, keep_going=limits.keep_going)
    coordinator = _Coordinator(graph, schedule, execute, at_barrier, clock, limits, on_event, recoveries)
    with limits.cancel.watched(coordinator.wake):
        try:
            coordinator.begin(limit=limits.workers, fail_fast=limits.fail_fast, **facts)
            coordinator.run()
        except BaseException:
            try:
                coordinator.break_off()
            finally:
                coordinator.finish(interrupted=True)
            raise
    coordinator.finish(interrupted=False)
    return schedule.results()


class _Work(NamedTuple):
    """A running node: its worker and the worker's number in events, its start time, and its time limit."""

    node: ExecNode
    worker: Worker | None
    slot: int
    began: datetime
    limit: datetime | None


class _Coordinator:
    """Loop and bookkeeping of one run."""

    def __init__(
        self,
        graph: ExecutionGraph,
        schedule: Schedule,
        execute: Callable[[ExecNode], NodeResult],
        at_barrier: Callable[[ExecNode], NodeResult] | None,
        clock: Clock,
        limits: RunLimits,
        on_event: Observer | None,
        recoveries: Mapping[str, str],
    ) -> None:
        self._schedule = schedule
        self._execute = execute
        self._at_barrier = at_barrier or (lambda barrier: NodeResult(barrier.id, NodeOutcome.DONE))
        self._clock, self._limits = clock, limits
        self._on_event, self._recoveries = on_event, recoveries
        self._before = schedule.before
        self._nodes = {node.id: node for node in graph.nodes}
        rounds = () if on_event is None else layers(graph)
        self._layers = {name: number for number, layer in enumerate(rounds, start=1) for name in layer}
        # None wakes the coordinator. A put is safe in a signal handler: https://docs.python.org/3/library/queue.html
        self._answers: SimpleQueue[WorkResult | None] = SimpleQueue()
        self._running: dict[str, _Work] = {}
        self._idle: list[Worker] = []
        # A heap with the numbers of idle workers that were active before.
        self._slots: list[int] = []
        self._ready: dict[str, datetime] = {}
        self._began, self._origin = clock.now(), clock.monotonic()
        self._asked: datetime | None = None
        self._outcomes: Counter[NodeOutcome] = Counter()
        self._first_failure: str | None = None
        self._seq = 0

    def wake(self) -> None:
        """Check for a stop request now. Can be called from a signal handler and from any thread."""
        self._answers.put(None)

    def begin(self, **facts: Any) -> None:
        """Emit the first event."""
        changes = sum(node.kind != BARRIER_KIND for node in self._nodes.values())
        self.emit("apply_started", None, self._began, nodes=len(self._nodes), changes=changes, **facts)

    def finish(self, *, interrupted: bool) -> None:
        """End the workers and emit the last event."""
        for worker in self._idle:
            worker.dismiss()
        counts = {outcome: self._outcomes[outcome] for outcome in NodeOutcome}
        now = self._now()
        took = _milliseconds(now - self._began)
        if interrupted or self._asked is not None:
            status = "interrupted" if interrupted else "cancelled"
        else:
            ended = "dry_run" if self._outcomes[NodeOutcome.DRY_RUN] else "done"
            status = ended if all(outcome.succeeded for outcome in self._outcomes) else "failed"
        facts: dict[str, Any] = {
            "status": status,
            "first_failure": self._first_failure,
            "counts": counts,
            "duration_ms": took,
        }
        self.emit("apply_finished", None, now, **facts, interrupted=interrupted)

    def run(self) -> None:
        """Run the nodes by rules 1 to 4."""
        schedule = self._schedule
        self._report(Progress(ready=schedule.ready))
        while not schedule.finished:
            self._heed_requests()
            node = schedule.next_ready()
            # Finding out which node waits for which is slow, so do it only for an observer.
            for wait in () if self._on_event is None else schedule.fresh_waits():
                self.emit("node_lock_wait", wait.node_id, locks=wait.keys, holders=wait.holders)
            if node is not None:
                self._start(node)
            elif self._running:
                self._wait()
            elif not schedule.finished:
                raise BugError("nothing runs and nothing may start, yet nodes are left")

    def break_off(self) -> None:
        """Apply rule 5: let running nodes finish, and emit the results of all nodes."""
        self._report(self._schedule.stop())
        for work in self._running.values():
            if work.worker is not None:
                work.worker.dismiss()
                while work.worker.thread.is_alive() and not self._limits.cancel.abandoned:
                    work.worker.thread.join(timeout=1)
        with suppress(Empty):
            while True:
                answer = self._answers.get_nowait()
                if answer is not None and answer.result.node_id in self._running:
                    self._end(answer.result, self._schedule.finish)
        # If the interrupt came while a node was passed to a worker, the node has no answer and its effect is unknown.
        for name in tuple(self._running):
            self._end(NodeResult(name, NodeOutcome.INDETERMINATE), self._schedule.give_up)

    def emit(self, event: str, node: str | None = None, at: datetime | None = None, **facts: Any) -> datetime:
        """Pass an event to the observer. An observer that raises gets no more events. Returns the time of the event."""
        self._seq += 1
        at = self._now() if at is None else at
        if self._on_event is not None:
            if node is not None:
                known = self._nodes[node]
                place = {"class": known.effect, "layer": self._layers[node], "position": known.position}
                facts = {"action": known.action, "kind": known.kind, **place, **facts}
            observer, self._on_event = self._on_event, None
            observer(RunEvent(self._seq, at, event, node, facts))
            self._on_event = observer
        return at

    def _now(self) -> datetime:
        return self._began + timedelta(seconds=self._clock.monotonic() - self._origin)

    def _heed_requests(self) -> None:
        limits = self._limits
        if limits.cancel.requested and self._asked is None:
            running = tuple(self._running)
            self._asked = self.emit("apply_stopping", running=running, grace_ms=_milliseconds(limits.grace))
        if limits.stop is not None and limits.stop():
            self._report(self._schedule.stop())
        elif self._asked is not None:
            self._report(self._schedule.stop(to_commit=True))

    def _start(self, node: ExecNode) -> None:
        worker = (
            None
            if node.kind == BARRIER_KIND
            else self._idle.pop()
            if self._idle
            else Worker(self._execute, self._answers.put)
        )
        slot = 0 if worker is None else heappop(self._slots) if self._slots else len(self._running) + 1
        self._schedule.start(node.id)
        now, limit = self._now(), self._limits.time_limit
        self._running[node.id] = _Work(node, worker, slot, now, now + limit if limit and node.interruptible else None)
        waited = _milliseconds(now - self._ready[node.id])
        self.emit("node_started", node.id, now, worker=slot, locks=node.locks, waited_ms=waited)
        if worker is None:
            self._take(answer_of(node, self._at_barrier))
        else:
            worker.give(node)

    def _wait(self) -> None:
        """Wait for one result or a wake-up, or abandon a node that has run too long."""
        # They are in start order, so the first one is always abandoned first.
        end = next(filter(None, map(self._end_of, self._running.values())), None)
        wait = None if end is None else max(0.0, (end - self._now()).total_seconds())
        try:
            answer = self._answers.get(timeout=wait)
        except Empty:
            self._give_up_overdue()
        else:
            if answer is not None:
                self._take(answer)

    def _take(self, answer: WorkResult) -> None:
        work = self._running.get(answer.result.node_id)
        if work is not None:
            self._end(answer.result, self._schedule.finish)
            self._idle += [] if work.worker is None else [work.worker]
        if answer.crash is not None:
            raise answer.crash

    def _end_of(self, work: _Work) -> datetime | None:
        """Return the time at which a running node is abandoned, or None for never."""
        if self._limits.cancel.abandoned:
            return work.began
        if self._asked is None or not work.node.interruptible:
            return work.limit
        until = self._asked + self._limits.grace
        return until if work.limit is None else min(until, work.limit)

    def _give_up_overdue(self) -> None:
        """Abandon overdue nodes by rules 3 and 4."""
        now = self._now()
        for work in tuple(self._running.values()):
            end = self._end_of(work)
            if end is None or end > now:
                continue
            problems = Diagnostics()
            unknown = "the run did not wait for the change to end, so it is not known whether it took effect"
            if self._asked is None:
                limit = f"it took longer than {self._limits.time_limit}"
                problems.add(Code.NODE_TIMEOUT, work.node.id, f"{limit}; {unknown}")
            else:
                problems.add(Code.NODE_INDETERMINATE, work.node.id, unknown)
            result = NodeResult(work.node.id, NodeOutcome.INDETERMINATE, tuple(problems))
            self._end(result, self._schedule.give_up)
            if work.worker is not None:
                work.worker.dismiss()

    def _end(self, result: NodeResult, note: Callable[[str, NodeResult], Progress]) -> None:
        """Record the result of a started node, and its consequences."""
        name, now, work = result.node_id, self._now(), self._running.pop(result.node_id)
        if work.worker is not None:
            heappush(self._slots, work.slot)
        started = result.started_at or work.began
        result = result.timed(started, result.finished_at or now)
        progress = note(name, result)
        outcome, problems = result.outcome, result.diagnostics
        self._outcomes[outcome] += 1
        facts: dict[str, Any] = {"worker": work.slot, "outcome": outcome, "duration_ms": _milliseconds(now - started)}
        if outcome.succeeded:
            # The text can contain anything, even a secret.
            facts["outputs"] = {key: value for key, value in result.facts.items() if type(value) in (bool, int)}
        else:
            if outcome is not NodeOutcome.CANCELLED:
                self._first_failure = self._first_failure or name
            if outcome is NodeOutcome.INDETERMINATE:
                facts["recovery"] = self._recoveries.get(name)
            first = problems[0] if problems else None
            facts |= {"code": first and first.code, "message": first and first.message, "diagnostics": problems}
        self.emit(_ENDED[outcome], name, now, **facts)
        if work.node.kind == BARRIER_KIND and outcome.succeeded:
            self.emit("barrier_reached", name, now)
        self._report(progress, now)

    def _report(self, progress: Progress, at: datetime | None = None) -> None:
        for name in progress.ready:
            self._ready[name] = self.emit("node_ready", name, at, dependencies=self._before[name])
        for skip in progress.skipped:
            result = skip.result
            self._outcomes[result.outcome] += 1
            why = {"reason": skip.reason, "cause": skip.cause, "blocked_by": result.blocked_by}
            self.emit("node_skipped", result.node_id, at, outcome=result.outcome, **why)


def report_interrupt(cancel: Cancellation, results: Sequence[NodeResult], problems: Diagnostics) -> None:
    """If a stop was requested, report the changes that it prevented. If there are no results, the run had not started."""
    changes = [result for result in results if not result.node_id.startswith((f"{BARRIER_KIND}.", f"{TARGET}."))]
    left = sum(not result.outcome.succeeded for result in changes)
    if cancel.requested and (left or not changes):
        how = f": {left} of {len(changes)} changes are not applied" if changes else " before it changed anything"
        problems.add(Code.APPLY_INTERRUPTED, "", f"the run was interrupted{how}")


def _milliseconds(span: timedelta) -> int:
    return int(span.total_seconds() * 1000)


# -- The threads of a run. Each executed node gets one answer, whatever its work raises --------------------------------


class WorkResult(NamedTuple):
    """The result of a node's work. `crash` is an exception that ends the whole run."""

    result: NodeResult
    crash: BaseException | None = None


class Worker:
    """A thread that runs the nodes in its queue one after another."""

    def __init__(self, execute: Callable[[ExecNode], NodeResult], answer: Callable[[WorkResult], None]) -> None:
        """`answer` is called in the thread, once for each node."""
        self._execute, self._answer = execute, answer
        self._inbox: SimpleQueue[ExecNode | None] = SimpleQueue()
        # Work that a run does not wait for must not keep the process alive.
        self.thread = threading.Thread(target=self._work, name="apply", daemon=True)
        self.thread.start()

    def give(self, node: ExecNode) -> None:
        """Queue a node to run after the earlier ones."""
        self._inbox.put(node)

    def dismiss(self) -> None:
        """End the thread once the queued nodes have run."""
        self._inbox.put(None)

    def _work(self) -> None:
        while (node := self._inbox.get()) is not None:
            self._answer(answer_of(node, self._execute))


def answer_of(node: ExecNode, execute: Callable[[ExecNode], NodeResult]) -> WorkResult:
    """Run a node and return its result, even if it raises an exception."""
    try:
        try:
            return WorkResult(_checked(node, execute(node)))
        except CancelledError:
            return WorkResult(NodeResult(node.id, NodeOutcome.CANCELLED))
        except Exception as error:  # noqa: BLE001 - whatever the work raises is the failure of this node alone
            return WorkResult(_failure(node, error))
    except BaseException as raised:  # noqa: BLE001 - raised again in the coordinating thread
        return WorkResult(NodeResult(node.id, NodeOutcome.INDETERMINATE), raised)


def _checked(node: ExecNode, result: object) -> NodeResult:
    """Return `result` if it is allowed for the node. Otherwise raise BugError, because the provider is at fault."""
    if not isinstance(result, NodeResult) or result.node_id != node.id or result.outcome not in ENDINGS:
        raise BugError(f"the provider of {node.id} gave a result that the node cannot have")
    return result


def _failure(node: ExecNode, error: Exception) -> NodeResult:
    """Convert an exception to the failure of its node.

    The text of a foreign exception may contain secrets, so only its type and place are reported.
    """
    problems = Diagnostics()
    if isinstance(error, GitopsError) and error.code in REGISTRY:
        problems.add(error.code, error.path or node.id, error.detail, severity=Severity.ERROR, fix=error.fix)
    else:
        frame, line = list(walk_tb(error.__traceback__))[-1]
        place = f"{PurePath(frame.f_code.co_filename).name}:{line}"
        problems.add(Code.INTERNAL_ERROR, node.id, f"{type(error).__name__} was raised at {place}")
    return NodeResult(node.id, NodeOutcome.FAILED, tuple(problems))
