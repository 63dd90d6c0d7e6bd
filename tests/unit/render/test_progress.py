"""What people read of a run while it goes on."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from gitops.cli.progress import PATIENCE, LineLog
from gitops.cluster.apply.runner import run_graph
from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, LockClaim, NodeOutcome, NodeResult, RunEvent
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.render.progress import RunProgress, event_form
from tests.support.clock import FixedClock

START = datetime(2026, 1, 2, tzinfo=UTC)
HOSTILE = "query.g.\x1b[2J\u202eevil"


def graph(*names: str, edges: str = "", lock: str = "") -> ExecutionGraph:
    claims = (LockClaim(lock),) if lock else ()
    nodes = tuple(ExecNode(n, "query", Action.CREATE, i, claims) for i, n in enumerate(names))
    return ExecutionGraph(nodes, tuple(ExecEdge(*e.split(">"), "explicit_dependency") for e in edges.split()))


def done(node: ExecNode) -> NodeResult:
    return NodeResult(node.id, NodeOutcome.DONE)


def failing(node: ExecNode) -> NodeResult:
    if node.id.endswith("bad"):
        raise GitopsError(Code.STORAGE_FAILED, "the disk is full\n\x1b[31m")
    return done(node)


def lines(what: ExecutionGraph, execute=done, *, step: float = 1.0, patience: timedelta = timedelta()) -> list[str]:
    """What a log has of a run in which every reading of the clock takes `step` seconds."""
    written: list[str] = []
    clock = FixedClock(START, timedelta(seconds=step))
    run_graph(what, execute, clock=clock, on_event=LineLog(written.append, patience))
    return written


def test_a_line_for_each_change_that_ended_with_times_and_numbers():
    assert lines(graph("query.g.a", "query.g.b")) == [
        "apply 0:04 1/2 create query.g.a, 1.0 s",
        "apply 0:06 2/2 create query.g.b, 1.0 s",
        "apply 0:07 2 done of 2",
    ]


def test_a_failure_says_why_and_what_was_left_out_is_counted():
    found = lines(graph("query.g.bad", "query.g.b", edges="query.g.bad>query.g.b"), failing)
    assert found[0].startswith("apply 0:03 1/2 create query.g.bad, 1.0 s, FAILED: storage_failed: the disk is full")
    assert found[1:] == ["apply 0:04 0 done, 1 failed, 1 skipped of 2"]


def test_nothing_of_a_name_or_a_message_acts_on_a_terminal():
    for line in lines(graph(HOSTILE, "query.g.bad"), failing):
        assert line.isprintable()
    assert any("query.g.\\x1b[2J\\u202eevil" in line for line in lines(graph(HOSTILE)))


def test_a_short_run_has_no_lines_and_a_longer_one_has_them_all():
    assert lines(graph("query.g.a", "query.g.b"), step=0.1, patience=PATIENCE) == []
    slow = lines(graph("query.g.a", "query.g.b"), step=0.5, patience=PATIENCE)
    assert [line.split()[2] for line in slow] == ["1/2", "2/2", "2"]


def test_a_barrier_is_not_a_change():
    plain = graph("query.g.a", "barrier.catalog")
    barrier = ExecNode("barrier.catalog", "barrier", Action.UPDATE, 1)
    found = lines(ExecutionGraph((plain.nodes[0], barrier), ()))
    assert [line.split()[2] for line in found] == ["1/1", "1"]


def events(*given: tuple[str, str | None, dict]) -> list[RunEvent]:
    node = {"action": Action.UPDATE, "kind": "schema"}
    at = (START + timedelta(seconds=n) for n in range(100))
    return [
        RunEvent(seq, when, kind, name, facts if name is None else node | facts)
        for seq, (when, (kind, name, facts)) in enumerate(zip(at, given, strict=False), start=1)
    ]


BEGIN = ("apply_started", None, {"nodes": 9, "changes": 9, "limit": 4, "fail_fast": False})


def test_the_view_shows_what_runs_and_what_waits_for_whom():
    first, *rest = events(
        BEGIN,
        ("node_started", "schema.a", {"worker": 1, "locks": ()}),
        ("node_lock_wait", "schema.b", {"locks": ("graph:g",), "holders": ("schema.a",)}),
        *(("node_lock_wait", f"schema.w{n}", {"locks": ("graph:g",), "holders": ("schema.a",)}) for n in range(4)),
        ("node_started", "schema.c", {"worker": 2, "locks": ()}),
        ("node_finished", "schema.c", {"worker": 2, "duration_ms": 1000}),
    )
    progress = RunProgress(first)
    for event in rest:
        progress.take(event)
    assert list(progress.view().lines(START + timedelta(minutes=1, seconds=5))) == [
        "apply 1:05 1 of 9 done, 1 running, 5 waiting",
        "  1:04 update schema.a",
        "  waits update schema.b for graph:g, held by schema.a",
        "  waits update schema.w0 for graph:g, held by schema.a",
        "  waits update schema.w1 for graph:g, held by schema.a",
        "  waits 2 more",
    ]


def test_a_run_that_was_asked_to_stop_says_what_it_waits_for_and_what_to_do():
    first, started, asked, lost = events(
        BEGIN,
        ("node_started", "schema.a", {"worker": 1, "locks": ()}),
        ("apply_stopping", None, {"running": ("schema.a",), "grace_ms": 10_000}),
        ("node_indeterminate", "schema.a", {"worker": 1, "duration_ms": 2000, "diagnostics": ()}),
    )
    heard: list[str] = []
    log = LineLog(heard.append, PATIENCE)
    log(first)
    log(started)
    assert heard == []
    log(asked)
    stopping = "apply 0:02 interrupted: starts nothing more, waits for 1 running; interrupt again to stop waiting"
    assert heard == [stopping]
    log(lost)
    assert heard[1:] == ["apply 0:03 1/9 update schema.a, 2.0 s, INDETERMINATE"]


def test_an_interrupted_run_says_so():
    first, last = events(BEGIN, ("apply_finished", None, {"counts": {}, "interrupted": True}))
    assert RunProgress(first).take(last) == "apply 0:01 0 done of 9, then broken off"


def test_an_event_is_plain_json():
    heard: list[RunEvent] = []
    what = graph("query.g.bad", lock="blob:1")
    run_graph(what, failing, clock=FixedClock(START, timedelta(milliseconds=250)), on_event=heard.append)
    forms = [json.loads(json.dumps(event_form(event))) for event in heard]
    assert [form["seq"] for form in forms] == list(range(1, len(forms) + 1))
    started, failed = (next(f for f in forms if f["type"] == kind) for kind in ("node_started", "node_failed"))
    assert started == {
        "v": 1,
        "seq": 3,
        "at": "2026-01-02T00:00:00.500Z",
        "type": "node_started",
        "data": {
            "node": "query.g.bad",
            "action": "create",
            "kind": "query",
            "class": "stage",
            "layer": 1,
            "position": 0,
            "worker": 1,
            "locks": [{"key": "blob:1", "mode": "exclusive"}],
            "waited_ms": 250,
        },
    }
    assert (failed["data"]["outcome"], failed["data"]["code"]) == ("failed", "storage_failed")
    assert failed["data"]["diagnostics"][0]["code"] == "storage_failed"
    assert forms[-1]["data"]["counts"]["failed"] == 1
