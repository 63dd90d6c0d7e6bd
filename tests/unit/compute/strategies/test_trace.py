"""Traces of compute clusters as scenarios: what is taken from them, and what is assumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec
from gitops.compute.strategies.simulation import SignalTrace, read_scenario, replay_of, simulate
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.core.diagnostics import Diagnostics
from tests.support.pages import ROOT
from tests.support.strategies import NOW, SIZES, ago
from tests.support.traces import trace_of

WORKING_DAY = ROOT / "examples" / "strategies" / "working-day.yaml"


def trace(*rows: AuditRow, replicas: dict[str, str] | None = None) -> SignalTrace:
    """An hour of the compute cluster `c`."""
    there = {name: ReplicaSpec(size) for name, size in (replicas or {}).items()}
    return SignalTrace(ComputeCluster("u1", "c", there), SIZES, ago(3600), NOW, rows, [])


def row(sql: str, age_s: int, *, executed: bool = True, **context: object) -> AuditRow:
    return AuditRow(f"a{age_s}", "u1", sql, context, executed, created_at=ago(age_s))


def test_a_working_day_is_played_again_from_what_was_recorded_of_it():
    scenario = read_scenario(WORKING_DAY.read_bytes(), "day.yaml", Diagnostics())
    assert scenario is not None
    timeline = simulate(scenario)
    found = replay_of(trace_of(timeline), scenario.interval_s)
    assert found.recorded == (
        "statements about replicas that were carried out: 13",
        "times in which statements ran: 2",
        "a replica of size 50cc hydrates in 1200 s",
        "all replicas hydrated again: 1 time",
    )
    again = simulate(found.under(scenario.rules, scenario.limits))
    assert [(step.at_s, step.actions, step.hydrated) for step in again.steps] == [
        (step.at_s, step.actions, step.hydrated) for step in timeline.steps
    ]
    assert again.usage == timeline.usage


def test_what_nothing_says_is_assumed_and_said():
    found = replay_of(
        trace(
            row(drop_replica("c", "old"), 3000),
            row(drop_replica("c", "known"), 2900, size="200cc"),
            row(create_replica("c", "failed", "25cc"), 2800, executed=False),
            row("something else", 2700),
            replicas={"main": "huge"},
        ),
        300,
    )
    assert dict(found.scenario.replicas) == {"known": "200cc", "main": "huge", "old": "huge"}
    assert found.recorded == ("statements about replicas that were carried out: 2",)
    assert found.assumed == (
        "a tick comes every 300 s, and the strategies begin without a memory",
        "a replica of any other size hydrates in 300 s; what is there at the start is hydrated",
        "no replica crashes",
        "the history of statements is complete, and a statement runs until the next tick at least",
        "replicas were created and dropped by audited statements alone",
        "the size of old, which was dropped, is huge",
        "a replica of size huge, which the target does not list, costs nothing",
        "audit rows whose statement cannot be read changed nothing: 1",
    )


def test_without_anything_recorded_a_trace_says_nothing():
    assert not replay_of(trace(replicas={"main": "25cc"}), 300).says_something


def test_a_drop_that_waited_for_nothing_says_nothing_of_hydration():
    ready = "target_size: main of size 25cc is hydrated"
    rows = [
        row(create_replica("c", "main", "25cc"), 3500),
        row(create_replica("c", "main_2", "50cc"), 1000),
        # The declaration went back to the size that is there: nothing hydrates.
        row(drop_replica("c", "main_2"), 900, reasons=[ready]),
    ]
    assert replay_of(trace(*rows, replicas={"main": "25cc"}), 300).recorded == (
        "statements about replicas that were carried out: 3",
    )


def test_a_statement_between_two_ticks_is_seen_by_the_next_one():
    spans = [(ago(3500), ago(3499)), (ago(3490), ago(3480)), (ago(1000), ago(100))]
    made = replay_of(replace(trace(), spans=spans), 300).scenario
    assert [(each.start, each.to) for each in made.activity] == [(100, 300), (2600, 3500)]
    late = replace(trace(), spans=[(NOW - timedelta(seconds=10), NOW)], until=NOW)
    assert [(each.start, each.to) for each in replay_of(late, 300).scenario.activity] == [(3590, 3600)]
