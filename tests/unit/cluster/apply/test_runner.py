"""Runs of a graph: in order, stopped, and recorded."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.apply.runner import RunLimits, report_interrupt, run_graph
from gitops.cluster.changesets.runs import RunLog, longest
from gitops.cluster.ledger.records import MAX_BYTES, read_run, write_run
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import (
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    NodeOutcome,
    NodeResult,
    RunEvent,
    RunNode,
    RunRecord,
)
from gitops.cluster.plan.schedule import SkipReason
from gitops.core.cancel import Cancellation, CancelledError
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError, GitopsError, IntegrityError, RemoteError, UsageError
from gitops.render.changesets import MOST_BARS, run_lines, to_gantt
from tests.support.clock import FixedClock

START = datetime(2026, 1, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# Only ever reached by a test that fails.
PATIENCE = 30
A = {"action": Action.UPDATE, "kind": "query", "class": Effect.STAGE, "layer": 1, "position": 0}
B = A | {"position": 1}
TERMINAL = {f"node_{how}" for how in ("finished", "failed", "cancelled", "indeterminate", "skipped")}


def graph(names: str, edges: str = "", locks: dict[str, str] | None = None) -> ExecutionGraph:
    def claims(name: str) -> tuple[LockClaim, ...]:
        return (LockClaim(locks[name]),) if locks and name in locks else ()

    nodes = tuple(ExecNode(n, "query", Action.UPDATE, i, claims(n)) for i, n in enumerate(names.split()))
    found = (ExecEdge(*e.split(">"), "explicit_dependency") for e in edges.split())
    return ExecutionGraph(nodes, tuple(sorted(found)))


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


def run(what, execute=done, events=None, **settings):
    heard = [] if events is None else events
    clock = FixedClock(START, SECOND)
    return run_graph(what, execute, clock=clock, on_event=heard.append, limits=RunLimits(**settings))


def outcomes(results) -> dict[str, NodeOutcome]:
    return {r.node_id: r.outcome for r in results}


def terminal(events) -> list[str]:
    return [e.node for e in events if e.type in TERMINAL]


def test_events_of_a_serial_run():
    events = []
    results = run(graph("a b", "a>b"), events=events)
    counts = dict.fromkeys(NodeOutcome, 0) | {NodeOutcome.DONE: 2}
    last = {"status": "done", "first_failure": None, "counts": counts, "interrupted": False, "duration_ms": 6000}
    ended = {"worker": 1, "outcome": NodeOutcome.DONE, "duration_ms": 1000, "outputs": {}}
    after = B | {"layer": 2}

    def at(number: int, seconds: int) -> tuple[int, datetime]:
        return number, START + seconds * SECOND

    assert events == [
        RunEvent(*at(1, 0), "apply_started", None, {"nodes": 2, "changes": 2, "limit": 1, "fail_fast": False}),
        RunEvent(*at(2, 1), "node_ready", "a", A | {"dependencies": ()}),
        RunEvent(*at(3, 2), "node_started", "a", A | {"worker": 1, "locks": (), "waited_ms": 1000}),
        RunEvent(*at(4, 3), "node_finished", "a", A | ended),
        RunEvent(*at(5, 3), "node_ready", "b", after | {"dependencies": ("a",)}),
        RunEvent(*at(6, 4), "node_started", "b", after | {"worker": 1, "locks": (), "waited_ms": 1000}),
        RunEvent(*at(7, 5), "node_finished", "b", after | ended),
        RunEvent(*at(8, 6), "apply_finished", None, last),
    ]
    assert results == (
        NodeResult("a", NodeOutcome.DONE, started_at=START + 2 * SECOND, finished_at=START + 3 * SECOND),
        NodeResult("b", NodeOutcome.DONE, started_at=START + 4 * SECOND, finished_at=START + 5 * SECOND),
    )


def test_times_that_the_provider_measured_are_kept():
    own = NodeResult("a", NodeOutcome.DONE, started_at=START - SECOND, finished_at=START)
    assert run(graph("a"), lambda _: own) == (own,)


def test_empty_graph():
    events = []
    assert run(ExecutionGraph(), events=events) == ()
    assert [e.type for e in events] == ["apply_started", "apply_finished"]


def test_four_of_five_overlap_and_never_five():
    together = threading.Barrier(4)
    guard = threading.Lock()
    running, most = 0, 0

    def execute(node: ExecNode) -> NodeResult:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        if node.id != "e":
            together.wait(PATIENCE)
        with guard:
            running -= 1
        return done(node)

    results = run(graph("a b c d e"), execute, workers=4)
    assert set(outcomes(results).values()) == {NodeOutcome.DONE}
    assert most == 4


def test_workers_are_numbered_and_reused():
    events = []
    first = threading.Event()

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "b":
            assert first.wait(PATIENCE)
        if node.id == "d":
            first.set()
        return done(node)

    run(graph("a b c d", "a>c c>d"), execute, events, workers=2)
    assert [(e.node, e.facts["worker"]) for e in events if e.type == "node_started"] == [
        ("a", 1),
        ("b", 2),
        ("c", 1),
        ("d", 1),
    ]
    assert [r.node_id for r in run(graph("a b c d", "a>c c>d"), workers=2)] == ["a", "b", "c", "d"]


def test_lock_wait_is_told_once():
    events = []
    go = threading.Event()

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            assert go.wait(PATIENCE)
        if node.id == "d":
            go.set()
        return done(node)

    run(graph("a b c d", "c>d", {"a": "blob:1", "b": "blob:1"}), execute, events, workers=3)
    waits = [e for e in events if e.type == "node_lock_wait"]
    assert [(w.node, w.facts) for w in waits] == [("b", B | {"locks": ("blob:1",), "holders": ("a",)})]
    assert [e.node for e in events if e.type == "node_started"] == ["a", "c", "d", "b"]


def test_barrier_is_passed_without_work_or_worker():
    plain = graph("a b c", "a>b b>c")
    barrier = ExecNode("b", "barrier", Action.UPDATE, 1)
    what = ExecutionGraph((plain.nodes[0], barrier, plain.nodes[2]), plain.edges)
    events, seen = [], []

    def execute(node: ExecNode) -> NodeResult:
        seen.append(node.id)
        return done(node)

    assert set(outcomes(run(what, execute, events)).values()) == {NodeOutcome.DONE}
    assert seen == ["a", "c"]
    assert [e.facts["worker"] for e in events if e.type == "node_started"] == [1, 0, 1]


def test_failure_blocks_dependants_and_the_rest_goes_on():
    events = []

    def execute(node: ExecNode) -> NodeResult:
        return NodeResult(node.id, NodeOutcome.FAILED if node.id == "a" else NodeOutcome.DONE)

    results = run(graph("a b c", "a>b"), execute, events)
    assert outcomes(results) == {"a": NodeOutcome.FAILED, "b": NodeOutcome.BLOCKED, "c": NodeOutcome.DONE}
    assert results[1].blocked_by == "a"
    (skipped,) = (e for e in events if e.type == "node_skipped")
    why = {"outcome": NodeOutcome.BLOCKED, "reason": SkipReason.DEPENDENCY_FAILED, "cause": "a", "blocked_by": "a"}
    assert (skipped.node, skipped.facts) == ("b", B | {"layer": 2} | why)
    assert events[-1].facts["counts"] == dict.fromkeys(NodeOutcome, 0) | {
        NodeOutcome.FAILED: 1,
        NodeOutcome.BLOCKED: 1,
        NodeOutcome.DONE: 1,
    }


def test_raised_exception_fails_the_node_and_keeps_its_text_to_itself():
    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            raise KeyError("token=hunter2")
        return done(node)

    events = []
    results = run(graph("a b", locks={"a": "x", "b": "x"}), execute, events)
    assert outcomes(results) == {"a": NodeOutcome.FAILED, "b": NodeOutcome.DONE}
    (problem,) = results[0].diagnostics
    assert (problem.code, problem.path) == ("internal_error", "a")
    assert problem.message.startswith("KeyError was raised at test_runner.py:")
    assert "hunter2" not in repr(events)


def test_raised_error_of_this_package_keeps_its_code():
    def execute(node: ExecNode) -> NodeResult:
        raise RemoteError("storage_failed", "the bucket does not answer")

    (result,) = run(graph("a"), execute)
    assert [(d.code, d.path, d.message) for d in result.diagnostics] == [
        ("storage_failed", "a", "the bucket does not answer")
    ]


@pytest.mark.parametrize(
    "execute",
    [
        lambda n: None,
        lambda n: NodeResult("other", NodeOutcome.DONE),
        lambda n: NodeResult(n.id, NodeOutcome.SKIPPED),
        lambda n: (_ for _ in ()).throw(GitopsError("no_such_code", "x")),
    ],
)
def test_answer_that_no_node_may_have_is_a_failure(execute):
    (result,) = run(graph("a"), execute)
    assert result.outcome is NodeOutcome.FAILED
    assert [d.code for d in result.diagnostics] == ["internal_error"]


def test_deep_recursion_in_the_work_is_a_failure():
    def execute(node: ExecNode) -> NodeResult:
        return execute(node)

    (result,) = run(graph("a"), execute)
    assert result.diagnostics[0].message.startswith("RecursionError")


def test_stop_lets_running_nodes_finish():
    stopping = threading.Event()

    def execute(node: ExecNode) -> NodeResult:
        stopping.set()
        return done(node)

    events = []
    results = run(graph("a b c", "a>b"), execute, events, stop=stopping.is_set)
    assert outcomes(results) == {"a": NodeOutcome.DONE, "b": NodeOutcome.SKIPPED, "c": NodeOutcome.SKIPPED}
    assert {e.facts["reason"] for e in events if e.type == "node_skipped"} == {SkipReason.CANCELLED}
    assert not events[-1].facts["interrupted"]


def test_stop_before_the_start():
    results = run(graph("a b"), stop=lambda: True)
    assert set(outcomes(results).values()) == {NodeOutcome.SKIPPED}


@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit])
def test_crash_in_the_work_lets_running_nodes_finish_and_goes_on_to_the_caller(crash):
    crashed = threading.Event()
    events, finished = [], []

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "a":
            crashed.set()
            raise crash
        assert crashed.wait(PATIENCE)
        finished.append(node.id)
        return done(node)

    with pytest.raises(crash):
        run(graph("a b c d", "a>d"), execute, events, workers=2)
    assert "b" in finished
    assert "d" not in finished
    assert sorted(terminal(events)) == ["a", "b", "c", "d"]
    assert {e.node: e.facts["outcome"] for e in events if e.type == "node_indeterminate"} == {
        "a": NodeOutcome.INDETERMINATE
    }
    assert events[-1].type == "apply_finished"
    assert events[-1].facts["interrupted"]


def test_interrupt_of_the_coordinator_lets_running_nodes_finish():
    release = threading.Event()
    finished = []

    def execute(node: ExecNode) -> NodeResult:
        assert release.wait(PATIENCE)
        finished.append(node.id)
        return done(node)

    def stop() -> bool:
        # Asked again after the first node was handed to a worker.
        if events and events[-1].type == "node_started":
            release.set()
            raise KeyboardInterrupt
        return False

    events = []
    with pytest.raises(KeyboardInterrupt):
        run(graph("a b c"), execute, events, workers=3, stop=stop)
    assert finished == ["a"]
    assert terminal(events) == ["b", "c", "a"]
    assert [e.seq for e in events] == list(range(1, len(events) + 1))


def test_observer_that_raises_is_told_nothing_more():
    heard, finished = [], []

    def on_event(event) -> None:
        heard.append(event.type)
        if event.type == "node_finished":
            raise OSError("pipe closed")

    def execute(node: ExecNode) -> NodeResult:
        finished.append(node.id)
        return done(node)

    settings = {"clock": FixedClock(START), "on_event": on_event}
    with pytest.raises(OSError, match="pipe closed"):
        run_graph(graph("a b"), execute, **settings)
    assert heard == ["apply_started", "node_ready", "node_ready", "node_started", "node_finished"]
    assert finished == ["a"]


def test_node_that_was_never_handed_to_a_worker_does_not_keep_the_run_from_ending():
    seen = []

    def on_event(event) -> None:
        if event.type == "node_started":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_graph(graph("a b"), seen.append, clock=FixedClock(START), on_event=on_event)
    assert seen == []


def test_nothing_starts_of_a_bad_graph():
    events, seen = [], []
    with pytest.raises(BugError):
        run(graph("a b c", "a>b b>a b>c"), seen.append, events)
    with pytest.raises(UsageError):
        run(graph("a"), seen.append, events, workers=0)
    assert (events, seen) == ([], [])


# Limits are reached because the clock is moved, never because a thread of a busy machine comes late.
LIMIT = timedelta(minutes=10)


def migration(name: str, position: int) -> ExecNode:
    return ExecNode(name, "schema", Action.UPDATE, position)


def text(name: str, position: int, *locks: str) -> ExecNode:
    return ExecNode(name, "query", Action.CREATE, position, tuple(LockClaim(key) for key in locks))


def chain(*nodes: ExecNode, edges: str = "") -> ExecutionGraph:
    found = (ExecEdge(*edge.split(">"), "explicit_dependency") for edge in edges.split())
    return ExecutionGraph(nodes, tuple(sorted(found)))


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


def recorded() -> RunRecord:
    """Two nodes on one lock, one that fails, one behind it, and a barrier."""
    lock = (LockClaim("graph:g"),)
    nodes = (
        ExecNode("query.g.a", "query", Action.CREATE, 0, lock),
        ExecNode("query.g.b", "query", Action.CREATE, 1, lock),
        ExecNode("query.h.bad", "query", Action.CREATE, 2),
        ExecNode("barrier.prepared", "barrier", Action.UPDATE, 3),
        ExecNode("query.h.c", "query", Action.CREATE, 4),
    )
    edges = (ExecEdge("query.g.a", "barrier.prepared", "x"), ExecEdge("query.h.bad", "query.h.c", "x"))
    log, failed = RunLog(), threading.Event()

    def execute(node: ExecNode) -> NodeResult:
        if node.id == "query.g.a":
            assert failed.wait(PATIENCE)
        return NodeResult(node.id, NodeOutcome.FAILED if node.id == "query.h.bad" else NodeOutcome.DONE)

    def hear(event) -> None:
        log(event)
        if event.type == "node_failed":
            failed.set()

    clock = FixedClock(START, timedelta(milliseconds=100))
    run_graph(ExecutionGraph(nodes, edges), execute, clock=clock, limits=RunLimits(2), on_event=hear)
    return log.record()


def test_a_run_says_when_each_node_began_and_ended_and_what_it_waited_for():
    run = recorded()
    assert run.workers == 2
    assert [(n.id, n.worker, n.after, n.waited_for, n.outcome.value) for n in run.nodes] == [
        ("query.h.bad", 2, None, (), "failed"),
        ("query.h.c", None, "query.h.bad", (), "blocked"),
        ("query.g.a", 1, None, (), "done"),
        ("barrier.prepared", 0, "query.g.a", (), "done"),
        ("query.g.b", 1, None, ("query.g.a",), "done"),
    ]
    bad, skipped, *_ = run.nodes
    assert (bad.ready, bad.started, bad.finished, bad.duration) == (300, 600, 700, 100)
    assert (skipped.ready, skipped.started, skipped.finished, skipped.duration) == (None, None, 700, 0)


def test_the_document_says_everything():
    run = recorded()
    data = write_run(run)
    assert data.startswith(b'{\n  "version": 1,\n  "workers": 2,\n  "nodes": [')
    assert read_run(data) == run


def test_a_document_that_would_be_too_long_has_the_nodes_that_took_longest():
    nodes = tuple(RunNode(f"query.g.q{n}", 0, 0, n, 1, None, (), NodeOutcome.DONE) for n in range(5000))
    data = write_run(RunRecord(1, nodes))
    assert len(data) <= MAX_BYTES
    assert read_run(data).nodes == nodes[-200:]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"version": 2, "workers": 1, "nodes": []}', b'{"version": 1, "nodes": []}']
)
def test_anything_else_is_refused(data):
    with pytest.raises(IntegrityError) as refused:
        read_run(data)
    assert refused.value.code == "run_record_invalid"


def test_bars():
    assert to_gantt(recorded()) == (
        "gantt\n"
        "  dateFormat x\n"
        "  axisFormat %M:%S\n"
        "  section barriers\n"
        "  barrier.prepared : milestone, 1000, 1100\n"
        "  section worker 1\n"
        "  query.g.a : done, 400, 800\n"
        "  query.g.b waits for query.g.a : active, 200, 900\n"
        "  query.g.b : done, 900, 1200\n"
        "  section worker 2\n"
        "  query.h.bad : crit, 600, 700\n"
    )


def test_of_many_nodes_the_longest_are_drawn_and_nothing_of_a_name_acts():
    nodes = tuple(RunNode(f"query.g.q{n}; click:x%%", 0, 0, n, 1, None, (), NodeOutcome.DONE) for n in range(100))
    lines = to_gantt(RunRecord(1, nodes)).splitlines()
    assert lines[3] == "  title the 60 longest of 100 nodes"
    bars = [line for line in lines if " : " in line]
    assert len(bars) == MOST_BARS
    assert bars[0] == "  query.g.q40  click x   : done, 0, 40"
    assert longest(RunRecord(1, nodes), 1).nodes == nodes[-1:]


def test_lines_for_a_terminal():
    waited = "waited 0.20 s for a worker"
    assert run_lines(recorded(), 6) == [
        "  run: 5 of 6 nodes, 2 workers, 1.20 s",
        "    query.g.a        |   ..........#############              | 0.40 s done, waited 0.30 s for a worker",
        "    query.h.bad      |          ..........###                 | 0.10 s failed, waited 0.30 s for a worker",
        "    query.g.b        |      ........................##########| 0.30 s done, waited 0.70 s for query.g.a",
        f"    barrier.prepared |                          .......###    | 0.10 s done, after query.g.a, {waited}",
        "    query.h.c        |                                        | blocked, after query.h.bad",
        "    critical path: query.g.a > query.g.b",
    ]
    assert run_lines(RunRecord(1, ()), 0) == ["  run: 0 of 0 nodes, 1 worker, 0.00 s"]


def test_a_wait_that_would_print_as_nothing_is_left_out():
    nodes = tuple(RunNode(f"query.g.w{wait}", 0, wait, 20, 1, None, (), NodeOutcome.DONE) for wait in (4, 5))
    _, short, long = run_lines(RunRecord(1, nodes), 2)
    assert short.endswith("0.02 s done")
    assert long.endswith("0.01 s done, waited 0.01 s for a worker")
