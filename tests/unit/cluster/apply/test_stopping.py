"""Asking a run to stop, and giving up what it does not wait for."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.apply.runner import RunLimits, report_interrupt, run_graph
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, NodeOutcome, NodeResult, RunEvent
from gitops.cluster.plan.schedule import SkipReason
from gitops.core.cancel import Cancellation, CancelledError
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import RemoteError
from tests.support.clock import FixedClock

START = datetime(2026, 1, 2, tzinfo=UTC)
# Limits are reached because the clock is moved, never because a thread of a busy machine comes late.
LIMIT = timedelta(minutes=10)
PATIENCE = 30
TERMINAL = {f"node_{how}" for how in ("finished", "failed", "cancelled", "indeterminate", "skipped")}


def migration(name: str, position: int) -> ExecNode:
    return ExecNode(name, "schema", Action.UPDATE, position)


def text(name: str, position: int, *locks: str) -> ExecNode:
    return ExecNode(name, "query", Action.CREATE, position, tuple(LockClaim(key) for key in locks))


def chain(*nodes: ExecNode, edges: str = "") -> ExecutionGraph:
    found = (ExecEdge(*edge.split(">"), "explicit_dependency") for edge in edges.split())
    return ExecutionGraph(nodes, tuple(sorted(found)))


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


class Run:
    """A run on threads, with its events. `asking` asks for a stop as soon as all of the named nodes have started.

    `slow` names an event, and its node if it has one: there `LIMIT` passes.
    """

    def __init__(self, *asking: str, times: int = 1, slow: tuple[str, ...] = ()) -> None:
        self.cancel, self.events = Cancellation(), []
        self.clock, self._slow = FixedClock(START), slow
        self._asking, self._times = set(asking), times
        self.asked, self.gave_up = threading.Event(), threading.Event()
        # What never ends by itself, until the test is over.
        self.over = threading.Event()

    def hang(self, node: ExecNode) -> NodeResult:
        assert self.over.wait(PATIENCE)
        return done(node)

    def __call__(self, graph, execute, at_barrier=None, recoveries=None, **settings) -> dict[str, NodeOutcome]:
        limits, named = (
            RunLimits(cancel=self.cancel, **settings),
            {"at_barrier": at_barrier, "recoveries": recoveries or {}},
        )
        try:
            self.results = run_graph(graph, execute, clock=self.clock, on_event=self.hear, limits=limits, **named)
        finally:
            self.over.set()
        return {result.node_id: result.outcome for result in self.results}

    def hear(self, event: RunEvent) -> None:
        self.events.append(event)
        if self._slow == ((event.type,) if event.node is None else (event.type, event.node)):
            self.clock.advance(LIMIT)
        if event.type == "node_indeterminate":
            self.gave_up.set()
        if event.type == "node_started":
            self._asking.discard(event.node)
            if not self._asking and not self.cancel.requested:
                for _ in range(self._times):
                    self.cancel.request()
                self.asked.set()

    def ended(self) -> list[str]:
        return [event.node for event in self.events if event.type in TERMINAL]


def test_a_running_pivot_is_finished_and_the_rest_is_cancelled():
    run = Run("schema.g")

    def execute(node: ExecNode) -> NodeResult:
        assert run.asked.wait(PATIENCE)
        return done(node)

    graph = chain(migration("schema.g", 0), text("query.g.a", 1), text("query.h.b", 2), edges="schema.g>query.g.a")
    outcomes = run(graph, execute, grace=timedelta())
    assert outcomes == {
        "schema.g": NodeOutcome.DONE,
        "query.g.a": NodeOutcome.SKIPPED,
        "query.h.b": NodeOutcome.SKIPPED,
    }
    skips = [e.facts for e in run.events if e.type == "node_skipped"]
    assert [(s["reason"], s["cause"], s["blocked_by"]) for s in skips] == [(SkipReason.CANCELLED, None, None)] * 2
    (stopping,) = (e for e in run.events if e.type == "apply_stopping")
    assert stopping.facts == {"running": ("schema.g",), "grace_ms": 0}
    assert (run.events[-1].type, run.events[-1].facts["status"]) == ("apply_finished", "cancelled")
    assert not run.events[-1].facts["interrupted"]


def test_an_interrupted_run_with_a_pivot_is_committed_before_it_ends():
    run, passed = Run("schema.g"), []

    def execute(node: ExecNode) -> NodeResult:
        assert run.asked.wait(PATIENCE)
        return done(node)

    def at_barrier(node: ExecNode) -> NodeResult:
        passed.append(node.id)
        return done(node)

    commit = ExecNode("barrier.committed", "barrier", Action.UPDATE, 1)
    graph = chain(
        replace(migration("schema.g", 0), effect=Effect.PIVOT),
        commit,
        ExecNode("graph.old", "graph", Action.DELETE, 2),
        edges="schema.g>barrier.committed barrier.committed>graph.old",
    )
    outcomes = run(graph, execute, at_barrier=at_barrier)
    assert outcomes == {
        "schema.g": NodeOutcome.DONE,
        "barrier.committed": NodeOutcome.DONE,
        "graph.old": NodeOutcome.SKIPPED,
    }
    assert passed == ["barrier.committed"]
    assert run.events[-1].facts["status"] == "cancelled"


def test_a_second_request_waits_for_nothing_and_the_intent_is_named():
    run = Run("schema.g", "query.g.a", times=2)
    graph = chain(migration("schema.g", 0), text("query.g.a", 1), text("query.h.b", 2))
    outcomes = run(graph, run.hang, workers=2, recoveries={"schema.g": "01OPERATION"})
    assert outcomes == {
        "schema.g": NodeOutcome.INDETERMINATE,
        "query.g.a": NodeOutcome.INDETERMINATE,
        "query.h.b": NodeOutcome.SKIPPED,
    }
    lost = {e.node: e.facts for e in run.events if e.type == "node_indeterminate"}
    assert {name: (facts["code"], facts["recovery"]) for name, facts in lost.items()} == {
        "schema.g": ("node_indeterminate", "01OPERATION"),
        "query.g.a": ("node_indeterminate", None),
    }
    assert sorted(run.ended()) == ["query.g.a", "query.h.b", "schema.g"]
    assert run.events[-1].type == "apply_finished"


def test_what_may_be_interrupted_is_given_up_after_the_grace_period():
    run = Run("graph.g", slow=("apply_stopping",))
    graph = chain(ExecNode("graph.g", "graph", Action.CREATE, 0), text("query.h.a", 1))
    outcomes = run(graph, run.hang, grace=LIMIT)
    assert outcomes == {"graph.g": NodeOutcome.INDETERMINATE, "query.h.a": NodeOutcome.SKIPPED}
    assert [d.code for d in run.results[0].diagnostics] == ["node_indeterminate"]


def test_work_that_heeds_the_request_has_had_no_effect():
    run = Run("graph.g")

    def execute(node: ExecNode) -> NodeResult:
        assert run.asked.wait(PATIENCE)
        run.cancel.check()
        return done(node)

    outcomes = run(chain(ExecNode("graph.g", "graph", Action.CREATE, 0), text("query.g.a", 1)), execute)
    assert outcomes == {"graph.g": NodeOutcome.CANCELLED, "query.g.a": NodeOutcome.SKIPPED}
    assert [e.type for e in run.events if e.node == "graph.g"][-1] == "node_cancelled"


def test_a_request_before_the_start_starts_nothing():
    run = Run("nothing")
    run.cancel.request()
    assert set(run(chain(text("a", 0), text("b", 1)), done).values()) == {NodeOutcome.SKIPPED}


def test_check_is_quiet_until_a_request():
    cancel = Cancellation()
    cancel.check()
    cancel.request()
    with pytest.raises(CancelledError):
        cancel.check()


def test_a_node_over_its_time_limit_is_given_up_and_the_others_go_on():
    run = Run("nothing", slow=("node_started", "query.g.a"))
    graph = chain(text("query.g.a", 0, "g"), text("query.g.b", 1, "g"), text("query.h.c", 2), edges="")

    def execute(node: ExecNode) -> NodeResult:
        return run.hang(node) if node.id == "query.g.a" else done(node)

    outcomes = run(graph, execute, time_limit=LIMIT)
    assert outcomes == {
        "query.g.a": NodeOutcome.INDETERMINATE,
        # The lock of what may still be at work is not free.
        "query.g.b": NodeOutcome.SKIPPED,
        "query.h.c": NodeOutcome.DONE,
    }
    (problem,) = run.results[0].diagnostics
    assert (problem.code, problem.path) == ("node_timeout", "query.g.a")
    assert problem.message.startswith("it took longer than 0:10:00")
    assert run.events[-1].facts["status"] == "failed"
    assert run.events[-1].facts["first_failure"] == "query.g.a"


@pytest.mark.parametrize("by", [timedelta(days=1), timedelta(days=-1)])
def test_setting_the_clock_gives_nothing_up_and_turns_no_duration_round(by: timedelta):
    clock, heard = FixedClock(START, timedelta(milliseconds=5)), []

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            clock.jump(by)
        return done(node)

    graph = chain(text("a", 0), text("b", 1), edges="a>b")
    results = run_graph(graph, execute, clock=clock, on_event=heard.append, limits=RunLimits(time_limit=LIMIT))
    assert [result.outcome for result in results] == [NodeOutcome.DONE, NodeOutcome.DONE]
    assert [event.at for event in heard] == sorted(event.at for event in heard)
    assert heard[-1].facts["duration_ms"] < 1000


def test_a_pivot_has_no_time_limit():
    run = Run("nothing", slow=("node_started", "query.h.a"))

    def execute(node: ExecNode) -> NodeResult:
        if node.kind == "schema":
            assert run.gave_up.wait(PATIENCE)
            return done(node)
        return run.hang(node)

    graph = chain(migration("schema.g", 0), text("query.h.a", 1))
    assert run(graph, execute, workers=2, time_limit=LIMIT) == {
        "schema.g": NodeOutcome.DONE,
        "query.h.a": NodeOutcome.INDETERMINATE,
    }


def test_an_answer_that_comes_too_late_is_not_looked_at():
    run = Run("nothing", slow=("node_started", "a"))

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            assert run.gave_up.wait(PATIENCE)
        return done(node)

    outcomes = run(chain(text("a", 0), text("b", 1), text("c", 2)), execute, time_limit=LIMIT)
    assert outcomes == {"a": NodeOutcome.INDETERMINATE, "b": NodeOutcome.DONE, "c": NodeOutcome.DONE}
    assert run.ended() == ["a", "b", "c"]


def barriers() -> ExecutionGraph:
    barrier = ExecNode("barrier.prepared", "barrier", Action.UPDATE, 1)
    return chain(text("a", 0), barrier, text("b", 2), edges="a>barrier.prepared barrier.prepared>b")


def test_a_barrier_is_carried_out_by_the_thread_that_coordinates():
    run, seen = Run("nothing"), []

    def at_barrier(node: ExecNode) -> NodeResult:
        seen.append((node.id, threading.current_thread()))
        return done(node)

    run(barriers(), done, at_barrier=at_barrier)
    assert seen == [("barrier.prepared", threading.current_thread())]
    assert [e.node for e in run.events if e.type == "barrier_reached"] == ["barrier.prepared"]


def test_a_barrier_that_cannot_be_passed_ends_what_is_behind_it():
    run = Run("nothing")

    def at_barrier(node: ExecNode) -> NodeResult:
        raise RemoteError("storage_failed", "the bucket does not answer")

    outcomes = run(barriers(), done, at_barrier=at_barrier)
    assert outcomes == {"a": NodeOutcome.DONE, "barrier.prepared": NodeOutcome.FAILED, "b": NodeOutcome.BLOCKED}
    (skip,) = (e.facts for e in run.events if e.type == "node_skipped")
    assert (skip["reason"], skip["cause"]) == (SkipReason.BARRIER_NOT_REACHED, "barrier.prepared")
    assert "barrier_reached" not in {e.type for e in run.events}


def test_a_request_while_a_barrier_is_passed_does_not_lose_its_result():
    run = Run("nothing")

    def at_barrier(node: ExecNode) -> NodeResult:
        run.cancel.request()
        run.cancel.request()
        return done(node)

    outcomes = run(barriers(), done, at_barrier=at_barrier)
    assert outcomes == {"a": NodeOutcome.DONE, "barrier.prepared": NodeOutcome.DONE, "b": NodeOutcome.SKIPPED}


def test_the_first_failure_is_the_first_in_time():
    run = Run("nothing")
    second = threading.Event()

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            assert second.wait(PATIENCE)
        return NodeResult(node.id, NodeOutcome.FAILED)

    def hear(event: RunEvent) -> None:
        run.events.append(event)
        if event.type == "node_failed":
            second.set()

    results = run_graph(
        chain(text("a", 0), text("b", 1)), execute, clock=FixedClock(START), limits=RunLimits(2), on_event=hear
    )
    assert [r.node_id for r in results] == ["a", "b"]
    assert run.events[-1].facts["first_failure"] == "b"


@pytest.mark.parametrize(
    ("outcomes", "message"),
    [
        ((), "the run was interrupted before it changed anything"),
        ((NodeOutcome.DONE, NodeOutcome.SKIPPED), "the run was interrupted: 1 of 2 changes are not applied"),
        ((NodeOutcome.DONE, NodeOutcome.UNCHANGED), None),
    ],
)
def test_what_an_interrupt_left_is_said(outcomes, message):
    results = [NodeResult(f"query.g.q{n}", outcome) for n, outcome in enumerate(outcomes)]
    results += [NodeResult("barrier.catalog", NodeOutcome.SKIPPED)] if outcomes else []
    cancel, problems = Cancellation(), Diagnostics()
    report_interrupt(cancel, results, problems)
    assert len(problems) == 0
    cancel.request()
    report_interrupt(cancel, results, problems)
    assert [(d.code, d.message) for d in problems] == ([("apply_interrupted", message)] if message else [])
