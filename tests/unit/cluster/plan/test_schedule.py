"""The schedule: what may start now, what never will, and who is to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode, NodeOutcome, NodeResult
from gitops.cluster.plan.schedule import LockWait, Progress, Schedule, SkipReason
from gitops.core.errors import BugError, UsageError

SHARED = LockMode.SHARED


def node(name: str, position: int, *locks: str, group: str = "") -> ExecNode:
    """Locks are written `key` or `key shared`."""
    claims = (LockClaim(k.split()[0], SHARED if k.endswith(" shared") else LockMode.EXCLUSIVE) for k in locks)
    return ExecNode(name, "query", Action.UPDATE, position, tuple(sorted(claims)), group)


def graph(*nodes: ExecNode, edges: str = "") -> ExecutionGraph:
    found = (ExecEdge(*edge.split(">"), "explicit_dependency") for edge in edges.split())
    return ExecutionGraph(nodes, tuple(sorted(found)))


def free(names: str, edges: str = "") -> ExecutionGraph:
    return graph(*(node(n, i) for i, n in enumerate(names)), edges=edges)


def fill(schedule: Schedule) -> list[str]:
    """Start whatever may start."""
    started = []
    while (chosen := schedule.next_ready()) is not None:
        schedule.start(chosen.id)
        started.append(chosen.id)
    return started


def end(schedule: Schedule, name: str, outcome: NodeOutcome = NodeOutcome.DONE) -> Progress:
    return schedule.finish(name, NodeResult(name, outcome))


def skips(progress: Progress) -> list[tuple[str, NodeOutcome, SkipReason, str | None]]:
    return [(s.result.node_id, s.result.outcome, s.reason, s.result.blocked_by) for s in progress.skipped]


def serial(schedule: Schedule) -> list[str]:
    started = []
    while not schedule.finished:
        (name,) = fill(schedule)
        started.append(name)
        end(schedule, name)
    return started


def test_one_worker_takes_the_lowest_position_that_may_start():
    assert serial(Schedule(free("abcd", "a>b"))) == ["a", "b", "c", "d"]
    assert serial(Schedule(free("abcd", "c>a d>b"))) == ["c", "a", "d", "b"]


def test_workers_bound_what_runs():
    schedule = Schedule(free("abcde"), workers=4)
    assert fill(schedule) == ["a", "b", "c", "d"]
    assert schedule.running == ("a", "b", "c", "d")
    assert schedule.ready == ("e",)
    end(schedule, "c")
    assert fill(schedule) == ["e"]


def test_node_waits_for_all_its_dependencies():
    schedule = Schedule(free("abc", "a>c b>c"), workers=3)
    assert fill(schedule) == ["a", "b"]
    assert end(schedule, "b") == Progress()
    assert fill(schedule) == []
    assert end(schedule, "a") == Progress(ready=("c",))
    assert fill(schedule) == ["c"]


def test_edge_with_two_reasons_counts_once():
    edges = (ExecEdge("a", "b", "graph_query"), ExecEdge("a", "b", "schema_query"))
    schedule = Schedule(ExecutionGraph((node("a", 0), node("b", 1)), edges))
    fill(schedule)
    assert end(schedule, "a").ready == ("b",)


def test_exclusive_lock_keeps_equal_content_apart():
    schedule = Schedule(graph(node("a", 0, "blob:1"), node("b", 1, "blob:1"), node("c", 2, "blob:2")), workers=4)
    assert fill(schedule) == ["a", "c"]
    assert schedule.waiting == (LockWait("b", ("blob:1",), ("a",)),)
    assert schedule.held == ("blob:1", "blob:2")
    end(schedule, "a")
    assert fill(schedule) == ["b"]
    assert schedule.waiting == ()


def test_shared_locks_overlap_and_exclude_the_exclusive():
    nodes = (node("a", 0, "g shared"), node("b", 1, "g shared"), node("c", 2, "g"), node("d", 3, "g shared"))
    schedule = Schedule(graph(*nodes), workers=4)
    assert fill(schedule) == ["a", "b"]
    # d could share with a and b, but c came first.
    assert schedule.waiting == (LockWait("c", ("g",), ("a", "b")), LockWait("d", ("g",), ("c",)))
    end(schedule, "a")
    assert fill(schedule) == []
    end(schedule, "b")
    assert fill(schedule) == ["c"]
    end(schedule, "c")
    assert fill(schedule) == ["d"]


def test_locks_are_taken_all_at_once():
    nodes = (node("a", 0, "x"), node("b", 1, "x", "y"), node("c", 2, "y"), node("d", 3, "z"))
    schedule = Schedule(graph(*nodes), workers=4)
    # b holds nothing while it waits for x, yet its turn on y comes before that of c.
    assert fill(schedule) == ["a", "d"]
    assert schedule.held == ("x", "z")
    assert schedule.waiting == (LockWait("b", ("x",), ("a",)), LockWait("c", ("y",), ("b",)))
    end(schedule, "a")
    assert fill(schedule) == ["b"]
    end(schedule, "b")
    assert fill(schedule) == ["c"]


def test_node_that_asks_for_both_modes_gets_the_exclusive_one():
    schedule = Schedule(graph(node("a", 0, "g", "g shared"), node("b", 1, "g shared")), workers=2)
    assert fill(schedule) == ["a"]
    end(schedule, "a")
    assert schedule.held == ()
    assert fill(schedule) == ["b"]


def test_no_lock_waits_are_told_while_no_worker_is_free():
    schedule = Schedule(graph(node("a", 0, "x"), node("b", 1, "x")))
    assert schedule.waiting == ()
    assert fill(schedule) == ["a"]
    assert schedule.next_ready() is None
    assert schedule.waiting == ()


def test_diamond_with_a_failed_arm():
    schedule = Schedule(free("abcd", "a>b a>c b>d c>d"), workers=2)
    fill(schedule)
    end(schedule, "a")
    fill(schedule)
    progress = end(schedule, "c", NodeOutcome.FAILED)
    assert skips(progress) == [("d", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "c")]
    assert end(schedule, "b") == Progress()
    assert [(r.node_id, r.outcome) for r in schedule.results()] == [
        ("a", NodeOutcome.DONE),
        ("b", NodeOutcome.DONE),
        ("c", NodeOutcome.FAILED),
        ("d", NodeOutcome.BLOCKED),
    ]


@pytest.mark.parametrize("outcome", [NodeOutcome.FAILED, NodeOutcome.INDETERMINATE])
def test_failure_blocks_all_that_follows_and_nothing_else(outcome):
    schedule = Schedule(free("abcde", "a>b b>c d>e"))
    fill(schedule)
    assert skips(end(schedule, "a", outcome)) == [
        ("b", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "a"),
        ("c", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_SKIPPED, "a"),
    ]
    assert serial(schedule) == ["d", "e"]


def test_fail_fast_starts_nothing_more_and_lets_the_running_finish():
    schedule = Schedule(free("abcd", "a>d"), workers=2, fail_fast=True)
    assert fill(schedule) == ["a", "b"]
    assert skips(end(schedule, "a", NodeOutcome.FAILED)) == [
        ("c", NodeOutcome.SKIPPED, SkipReason.FAIL_FAST, "a"),
        ("d", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "a"),
    ]
    assert fill(schedule) == []
    end(schedule, "b")
    assert schedule.finished
    assert [r.outcome for r in schedule.results()][1] is NodeOutcome.DONE


def test_failure_group_stops_with_its_first_failure():
    moving = "graph-moving"
    nodes = (
        node("graph.a", 0, group=moving),
        node("graph.b", 1, group=moving),
        node("graph.c", 2, group=moving),
        node("query.c.q", 3),
        node("query.k.q", 4),
        node("barrier", 5),
        node("graph.old", 6, group=moving),
    )
    edges = " ".join(f"{n.id}>barrier" for n in nodes[:5]) + " graph.c>query.c.q barrier>graph.old"
    schedule = Schedule(graph(*nodes, edges=edges), workers=2)
    assert fill(schedule) == ["graph.a", "graph.b"]
    assert skips(end(schedule, "graph.a", NodeOutcome.FAILED)) == [
        ("graph.c", NodeOutcome.SKIPPED, SkipReason.GROUP_FAILED, "graph.a"),
        ("query.c.q", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_SKIPPED, "graph.a"),
        ("barrier", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_FAILED, "graph.a"),
        ("graph.old", NodeOutcome.SKIPPED, SkipReason.GROUP_FAILED, "graph.a"),
    ]
    # The member that was running finishes as it does, and what is not of the group goes on.
    assert fill(schedule) == ["query.k.q"]
    end(schedule, "graph.b")
    end(schedule, "query.k.q")
    assert schedule.finished


def test_failure_outside_of_a_group_does_not_stop_it():
    schedule = Schedule(graph(node("q", 0), node("graph.a", 1, group="graph-moving")))
    fill(schedule)
    assert end(schedule, "q", NodeOutcome.FAILED) == Progress()
    assert fill(schedule) == ["graph.a"]


def test_the_cause_of_a_skip_is_what_stands_right_before_it():
    nodes = (node("a", 0), node("b", 1), node("barrier.done", 2), node("c", 3), node("d", 4), node("e", 5))
    nodes = tuple(replace(n, kind="barrier") if n.id == "barrier.done" else n for n in nodes)
    schedule = Schedule(graph(*nodes, edges="a>b a>barrier.done b>barrier.done barrier.done>c c>d a>e b>e"))
    fill(schedule)
    assert [(s.result.node_id, s.reason, s.cause) for s in end(schedule, "a", NodeOutcome.FAILED).skipped] == [
        ("b", SkipReason.DEPENDENCY_FAILED, "a"),
        ("barrier.done", SkipReason.DEPENDENCY_FAILED, "a"),
        ("c", SkipReason.BARRIER_NOT_REACHED, "barrier.done"),
        ("d", SkipReason.DEPENDENCY_SKIPPED, "c"),
        ("e", SkipReason.DEPENDENCY_FAILED, "a"),
    ]


def test_what_was_already_as_it_should_be_lets_the_next_start():
    schedule = Schedule(free("ab", "a>b"))
    fill(schedule)
    assert end(schedule, "a", NodeOutcome.UNCHANGED).ready == ("b",)


def test_what_is_given_up_keeps_its_locks_and_ends_what_needs_them():
    nodes = (node("a", 0, "g shared"), node("b", 1, "g"), node("c", 2, "g shared"), node("d", 3, "h"), node("e", 4))
    schedule = Schedule(graph(*nodes, edges="b>e"), workers=2)
    # b waits for the lock that a holds; nothing else may start before it but d.
    assert fill(schedule) == ["a", "d"]
    given_up = schedule.give_up("a", NodeResult("a", NodeOutcome.INDETERMINATE))
    assert skips(given_up) == [
        ("b", NodeOutcome.SKIPPED, SkipReason.LOCK_KEPT, "a"),
        ("e", NodeOutcome.BLOCKED, SkipReason.DEPENDENCY_SKIPPED, "a"),
    ]
    assert fill(schedule) == ["c"]
    end(schedule, "c")
    end(schedule, "d")
    assert schedule.finished
    assert schedule.held == ("g",)


def test_only_what_runs_is_given_up_and_its_effect_is_not_known():
    schedule = Schedule(free("ab", "a>b"))
    with pytest.raises(BugError):
        schedule.give_up("a", NodeResult("a", NodeOutcome.INDETERMINATE))
    fill(schedule)
    with pytest.raises(BugError):
        schedule.give_up("a", NodeResult("a", NodeOutcome.DONE))


def test_stop_skips_what_has_not_started():
    schedule = Schedule(free("abc", "a>b"), workers=1)
    fill(schedule)
    assert skips(schedule.stop()) == [
        ("b", NodeOutcome.SKIPPED, SkipReason.CANCELLED, None),
        ("c", NodeOutcome.SKIPPED, SkipReason.CANCELLED, None),
    ]
    assert schedule.stop() == Progress()
    assert not schedule.finished
    assert end(schedule, "a") == Progress()
    assert schedule.finished
    assert schedule.held == ()


def atomic() -> ExecutionGraph:
    """A staged text, a pivot with a text behind it, the commit, and what comes after that."""
    nodes = (
        node("staged", 0),
        replace(node("pivot", 1), effect=Effect.PIVOT),
        replace(node("lifted", 2), lifted=True),
        replace(node("barrier.committed", 3), kind="barrier"),
        replace(node("finish", 4), effect=Effect.FINISH),
    )
    edges = "pivot>lifted lifted>barrier.committed staged>barrier.committed barrier.committed>finish"
    return graph(*nodes, edges=edges)


def test_stop_goes_on_to_the_commit_once_a_pivot_has_begun():
    schedule = Schedule(atomic(), workers=2)
    fill(schedule)
    assert skips(schedule.stop(to_commit=True)) == [("finish", NodeOutcome.SKIPPED, SkipReason.CANCELLED, None)]
    for name in ("pivot", "staged"):
        end(schedule, name)
    assert schedule.stop(to_commit=True) == Progress()
    assert serial(schedule) == ["lifted", "barrier.committed"]


def test_stop_does_not_go_on_to_the_commit_before_a_pivot_or_after_it_failed():
    schedule = Schedule(atomic())
    fill(schedule)
    assert [name for name, *_ in skips(schedule.stop(to_commit=True))] == [
        "pivot",
        "lifted",
        "barrier.committed",
        "finish",
    ]
    failed = Schedule(atomic(), workers=2)
    fill(failed)
    end(failed, "pivot", NodeOutcome.FAILED)
    end(failed, "staged")
    assert failed.stop(to_commit=True) == Progress()
    assert failed.finished


def test_stop_for_good_leaves_nothing():
    schedule = Schedule(atomic(), workers=2)
    fill(schedule)
    assert [name for name, *_ in skips(schedule.stop())] == ["lifted", "barrier.committed", "finish"]


def test_results_keep_what_the_node_reported():
    schedule = Schedule(free("a"))
    fill(schedule)
    result = NodeResult("a", NodeOutcome.DONE, facts={"version": 3})
    schedule.finish("a", result)
    assert schedule.results() == (result,)


def test_empty_graph_is_finished():
    schedule = Schedule(ExecutionGraph())
    assert schedule.finished
    assert schedule.next_ready() is None
    assert schedule.results() == ()


def test_invalid_graphs_are_never_scheduled():
    for bad in (free("ab", "a>b b>a"), free("a", "a>a"), free("a", "a>z"), graph(node("a", 0), node("a", 1))):
        with pytest.raises(BugError):
            Schedule(bad)


def test_at_least_one_worker():
    with pytest.raises(UsageError):
        Schedule(free("a"), workers=0)


def test_misuse_is_a_bug():
    schedule = Schedule(graph(node("a", 0, "x"), node("b", 1, "x"), node("c", 2), node("d", 3), edges="a>d"), workers=2)
    with pytest.raises(BugError):
        schedule.finish("a", NodeResult("a", NodeOutcome.DONE))
    with pytest.raises(BugError):
        schedule.start("d")
    with pytest.raises(BugError):
        schedule.start("nobody")
    schedule.start("a")
    with pytest.raises(BugError):
        schedule.start("a")
    with pytest.raises(BugError):
        schedule.start("b")
    schedule.start("c")
    with pytest.raises(BugError):
        schedule.results()
    for wrong in (
        NodeResult("c", NodeOutcome.DONE),
        NodeResult("a", NodeOutcome.SKIPPED),
        NodeResult("a", NodeOutcome.BLOCKED),
    ):
        with pytest.raises(BugError):
            schedule.finish("a", wrong)
    end(schedule, "a")
    with pytest.raises(BugError):
        end(schedule, "a")
    schedule.start("b")
    with pytest.raises(BugError):
        schedule.start("d")
