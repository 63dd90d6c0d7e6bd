"""The record of a run, its document, and its bars."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.changesets.runs import RunLog, longest
from gitops.cluster.ledger.records import MAX_BYTES, read_run, write_run
from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import (
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    LockClaim,
    NodeOutcome,
    NodeResult,
    RunNode,
    RunRecord,
)
from gitops.core.errors import IntegrityError
from gitops.render.changesets import MOST_BARS, run_lines, to_gantt
from tests.support.clock import FixedClock

START = datetime(2026, 1, 2, tzinfo=UTC)
PATIENCE = 30


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
        "  run: 5 of 6 node(s), 2 worker(s), 1.20 s",
        "    query.g.a        |   ..........#############              | 0.40 s done, waited 0.30 s for a worker",
        "    query.h.bad      |          ..........###                 | 0.10 s failed, waited 0.30 s for a worker",
        "    query.g.b        |      ........................##########| 0.30 s done, waited 0.70 s for query.g.a",
        f"    barrier.prepared |                          .......###    | 0.10 s done, after query.g.a, {waited}",
        "    query.h.c        |                                        | blocked, after query.h.bad",
    ]
    assert run_lines(RunRecord(1, ()), 0) == ["  run: 0 of 0 node(s), 1 worker(s), 0.00 s"]


def test_a_wait_that_would_print_as_nothing_is_left_out():
    nodes = tuple(RunNode(f"query.g.w{wait}", 0, wait, 20, 1, None, (), NodeOutcome.DONE) for wait in (4, 5))
    _, short, long = run_lines(RunRecord(1, nodes), 2)
    assert short.endswith("0.02 s done")
    assert long.endswith("0.01 s done, waited 0.01 s for a worker")
