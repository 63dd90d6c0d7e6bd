"""Running a graph on threads: events, failures, barriers, interruption."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, NodeOutcome, NodeResult, RunEvent
from gitops.cluster.plan.schedule import SkipReason
from gitops.core.errors import BugError, GitopsError, RemoteError, UsageError
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


def test_fail_fast():
    results = run(graph("a b"), lambda n: NodeResult(n.id, NodeOutcome.INDETERMINATE), fail_fast=True)
    assert outcomes(results) == {"a": NodeOutcome.INDETERMINATE, "b": NodeOutcome.SKIPPED}


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
