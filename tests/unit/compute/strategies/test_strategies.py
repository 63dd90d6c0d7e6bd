"""Rules of strategies: what they decide, trace, and say in SQL."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.main import main
from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyRule, StrategyType, TargetSize
from gitops.cluster.targets.port import AuditRow
from gitops.cluster.targets.signals import ComputeCluster, ReplicaSpec, SizeTable, StrategyState
from gitops.compute.strategies.decision import Limits, decide
from gitops.compute.strategies.simulation import (
    Activity,
    Crashing,
    Scenario,
    SignalTrace,
    read_scenario,
    replay_of,
    simulate,
)
from gitops.compute.strategies.statements import (
    ReplicaStatement,
    create_replica,
    drop_replica,
    identifier,
    literal,
    outcome_of,
    read_statement,
)
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError
from gitops.database.language.yaml import parse_yaml, to_plain
from gitops.render.strategies import to_plot
from tests.support.compute_crowd import crowd, flapping
from tests.support.pages import ROOT
from tests.support.strategies import NOW, SIZES, ago, cluster, lines, rules, signals, state
from tests.support.traces import trace_of

DATA = ROOT / "tests" / "data" / "strategies"
TIMELINES = sorted([*(DATA / "timelines").glob("*.yaml"), *(ROOT / "examples" / "strategies").glob("*-day.yaml")])
REFUSED: list[dict[str, Any]] = to_plain(parse_yaml((DATA / "refused.yaml").read_bytes()))
PLAIN = {"cluster": "c", "length": "1d", "sizes": {"25cc": 0.25, "50cc": 0.5}}
START = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize("file", TIMELINES, ids=lambda file: file.stem)
def test_timeline(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["strategies", "simulate", "--scenario", str(file)]) == 0
    assert capsys.readouterr().out == file.with_suffix(".txt").read_text()


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
def test_refused(case: dict[str, Any]) -> None:
    document = {**PLAIN, **{key: value for key, value in case.items() if key not in ("name", "says", "scenario")}}
    found = Diagnostics()
    assert read_scenario(json.dumps(document, indent=1).encode(), "day.yaml", found) is None
    assert {each.code for each in found} == {"scenario_invalid"}
    assert len(found) == len(case["says"])
    for each, text in zip(found, case["says"], strict=True):
        assert text in each.message
        assert each.source is not None
        assert each.source.line > 1


def test_a_scenario_that_is_not_yaml_is_refused_at_its_line() -> None:
    found = Diagnostics()
    assert read_scenario(b"cluster: c\nlength: [}\n", "day.yaml", found) is None
    [problem] = found
    assert (problem.code, problem.source and problem.source.line) == ("scenario_invalid", 2)


def test_what_is_hardly_meant_is_a_warning() -> None:
    document = {**PLAIN, "interval": "5m", "strategies": {"idle_suspend": {"idle_after_s": 599}}}
    found = Diagnostics()
    assert read_scenario(json.dumps(document, indent=1).encode(), "day.yaml", found) is not None
    assert [(each.code, each.message.partition(" ")[0]) for each in found] == [
        ("strategy_questionable", "strategies.idle_suspend:"),
        ("strategy_questionable", "strategies.idle_suspend.idle_after_s:"),
    ]


def test_names_in_a_plot_are_text() -> None:
    scenario = replace(world(()), cluster="<script>&")
    [title, *_] = minidom.parseString(to_plot(simulate(scenario))).getElementsByTagName("text")  # noqa: S318 - our own
    assert title.firstChild.data == "<script>&"


def world(rules: tuple[StrategyRule, ...], **changes: Any) -> Scenario:
    """Two hours of a quiet cluster with one replica."""
    plain = Scenario(
        "c", rules, SIZES, START, 7200, 60, Limits(50), {"r": "25cc"}, {"50cc": 300, "800cc": 60}, (), (), {}
    )
    return replace(plain, **changes)


sizes = st.sampled_from(list(SIZES.credits))
cooldowns = st.integers(0, 300)


@given(
    st.tuples(
        st.builds(TargetSize, sizes, st.none(), cooldowns) | st.builds(ShrinkToFit, sizes, cooldown_s=cooldowns),
        st.builds(Burst, sizes, cooldowns),
        st.builds(IdleSuspend, st.integers(60, 1800), cooldowns),
    ),
    st.dictionaries(sizes, st.integers(0, 900)),
    st.booleans(),
    st.dictionaries(sizes, st.builds(Crashing, st.integers(300, 3600)), max_size=2),
)
def test_a_world_that_stays_the_same_comes_to_rest(
    rules: tuple[StrategyRule, ...], hydration: dict[str, int], active: bool, crashes: dict[str, Crashing]
) -> None:
    activity = (Activity(0, 20_000),) if active else ()
    # A size that failed is tried again after an hour, which is no rest; the first hour decides.
    length = 3600 if crashes else 20_000
    made = simulate(
        world(rules, hydration_s=hydration, activity=activity, crashes=crashes, length_s=length, interval_s=120)
    )
    changed = [step.at_s for step in made.steps if step.actions]
    # Each strategy changes its mind a few times while replicas hydrate, then never again.
    assert len(changed) <= 8
    if not crashes:
        assert not changed or max(changed) < 10_000
    assert simulate(made.scenario) == made


def test_no_cluster_of_a_crowd_flaps_and_the_same_crowd_does_the_same_again() -> None:
    timelines = [simulate(each) for each in crowd(12, 4)]
    assert [problem for each in timelines for problem in flapping(each)] == []
    assert [each.steps for each in timelines] == [simulate(each).steps for each in crowd(12, 4)]
    by = {reason.by for each in timelines for step in each.steps for act in step.actions for reason in act.reasons[:1]}
    assert by == set(StrategyType)


def test_without_cooldowns_the_same_crowd_flaps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StrategyState, "cooling", lambda *_: False)
    assert any(flapping(simulate(each)) for each in crowd(12, 4))


CASES: list[dict[str, Any]] = to_plain(
    parse_yaml((ROOT / "tests" / "data" / "strategies" / "decisions.yaml").read_bytes())
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_decision(case: dict[str, Any]) -> None:
    replicas, declared = case.get("replicas", {}), case["rules"]
    given = case.get("state", {kind: {} for kind in declared})
    states = {StrategyType(kind): state(kind, form) for kind, form in given.items()}
    found = signals(replicas, activity=case.get("activity"), crashes=case.get("crashes"))
    made = decide(cluster(replicas), rules(declared), states, found, Limits())
    assert lines(made.actions) == case["then"]
    assert {each.text for each in made.desired.reasons} >= set(case.get("because", ()))
    assert all(action.reasons for action in made.actions)
    for kind, name in case.get("pending", {}).items():
        pending = made.states[StrategyType(kind)].pending
        assert (None if pending is None else pending.name) == name
    if not made.actions:
        # Where nothing is done, nothing was decided, and no cooldown begins.
        before = {kind: each.last_decision for kind, each in states.items()}
        assert {kind: each.last_decision for kind, each in made.states.items() if kind in before} == {
            kind: at for kind, at in before.items() if kind in made.states
        }


def test_a_limit_of_replicas_counts_those_that_will_be_dropped_later() -> None:
    replicas = {"a": "25cc*", "b": "50cc*"}
    wanted = rules({"target_size": {"target_size": "100cc"}})
    made = decide(cluster(replicas), wanted, {}, signals(replicas), Limits(max_replicas=3))
    assert lines(made.actions) == ["create r_100cc 100cc"]
    made = decide(cluster(replicas), wanted, {}, signals(replicas), Limits(max_replicas=2))
    assert made.actions == ()
    assert made.refused == ("target_size: c would have 3 replicas, more than its 2",)


def test_with_drop_first_nothing_goes_for_a_size_that_cannot_come_and_limits_count_what_stays() -> None:
    replicas = {"a": "25cc*"}
    unknown = rules({"target_size": {"target_size": "51cc", "drop_first": True}})
    assert lines(decide(cluster(replicas), unknown, {}, signals(replicas), Limits()).actions) == ["create r_51cc 51cc"]
    wanted = rules({"target_size": {"target_size": "100cc", "drop_first": True}})
    made = decide(cluster(replicas), wanted, {}, signals(replicas), Limits(max_replicas=1))
    assert (lines(made.actions), made.refused) == (["drop a", "create r_100cc 100cc"], ())


@pytest.mark.parametrize(("limit", "permitted"), [(1.25, True), (1.24, False)])
def test_a_limit_of_credits_is_that_of_all_replicas_together(limit: float, permitted: bool) -> None:
    replicas = {"a": "25cc*"}
    wanted = rules({"target_size": {"target_size": "100cc"}})
    if permitted:
        assert decide(cluster(replicas), wanted, {}, signals(replicas), Limits(5, limit)).actions
        return
    made = decide(cluster(replicas), wanted, {}, signals(replicas), Limits(5, limit))
    assert made.refused == ("target_size: c would cost 1.25 credits per hour, more than its 1.24",)


def test_a_limit_leaves_out_one_strategy_and_not_the_others() -> None:
    """The cluster gets its target without the burst replica, which starts no cooldown and is asked for again."""
    wanted = rules({"target_size": {"target_size": "50cc"}, "burst": {"burst_replica_size": "100cc", "cooldown_s": 60}})
    made = decide(cluster({}), wanted, {}, signals({}), Limits(5, 1.0))
    assert lines(made.actions) == ["create r_50cc 50cc"]
    assert made.refused == ("burst: c would cost 1.5 credits per hour, more than its 1",)
    assert made.states[StrategyType.BURST].last_decision is None
    assert made.states[StrategyType.TARGET_SIZE].last_decision is not None
    again = decide(cluster({"r_50cc": "50cc"}), wanted, made.states, signals({"r_50cc": "50cc"}), Limits(5, 1.0))
    assert (again.actions, again.refused) == ((), made.refused)


def test_credits_that_are_not_known_are_over_every_limit() -> None:
    wanted, unpriced = rules({"target_size": {"target_size": "x"}}), replace(signals({}), sizes=SizeTable({"x": None}))
    assert decide(cluster({}), wanted, {}, unpriced, Limits()).actions
    (refused,) = decide(cluster({}), wanted, {}, unpriced, Limits(5, 100.0)).refused
    assert "does not list the credits" in refused


def test_drops_are_never_held_back_by_a_limit() -> None:
    replicas = {f"r{n}": "25cc*" for n in range(9)}
    wanted = rules({"idle_suspend": {"idle_after_s": 1}})
    states = {StrategyType.IDLE_SUSPEND: state("idle_suspend", {})}
    assert len(decide(cluster(replicas), wanted, states, signals(replicas, activity=2), Limits(5, 0.1)).actions) == 9


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def test_statements_are_those_of_the_target():
    assert create_replica("serving", 'a"b', "it's") == """CREATE CLUSTER REPLICA "serving"."a""b" (SIZE 'it''s')"""
    assert drop_replica("s.1", "main") == 'DROP CLUSTER REPLICA IF EXISTS "s.1"."main"'


@given(NAMES)
def test_a_quoted_text_ends_where_it_ends(name):
    """Between the outer quotes each quote is doubled, so that none of them ends the text."""
    for quoted, mark in ((identifier(name), '"'), (literal(name), "'")):
        assert (quoted[0], quoted[-1]) == (mark, mark)
        assert quoted[1:-1].replace(mark * 2, "").count(mark) == 0
        assert quoted[1:-1].replace(mark * 2, mark) == name


@given(NAMES, NAMES, NAMES)
def test_a_statement_is_read_back_as_it_was_made(cluster, replica, size):
    assert read_statement(create_replica(cluster, replica, size)) == ReplicaStatement("create", cluster, replica, size)
    assert read_statement(drop_replica(cluster, replica)) == ReplicaStatement("drop", cluster, replica)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ('CREATE CLUSTER REPLICA "c"."r" (SIZE \'1\', DISK = true)', ReplicaStatement("create", "c", "r", "1")),
        ('DROP CLUSTER REPLICA "c"."r"', ReplicaStatement("drop", "c", "r")),
        ('DROP CLUSTER REPLICA "c"."r"; DROP TABLE t', None),
        ('DROP CLUSTER "c"', None),
        ("", None),
    ],
)
def test_statements_of_other_programs_are_read_and_other_texts_are_not(sql, expected):
    assert read_statement(sql) == expected


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_what_no_statement_can_carry_is_a_bug(name):
    with pytest.raises(BugError, match="cannot be part of a statement"):
        identifier(name)


@pytest.mark.parametrize(
    ("message", "state", "outcome"),
    [
        ("cannot create multiple replicas named 'main' on cluster 'serving'", "XX000", "exists"),
        ("unknown cluster replica 'main'", "XX000", "absent"),
        ("unknown cluster 'serving'", "XX000", "absent"),
        ("unknown cluster replica size nonsense", "XX000", "invalid_size"),
        ("cannot modify managed cluster serving", "XX000", "managed"),
        ("cannot create more than one replica of a cluster containing sources or sinks", "XX000", "single_replica"),
        ("permission denied for CLUSTER serving", "42501", "failed"),
        ("something else: cannot modify managed cluster serving", "XX000", "failed"),
        # A name that looks like a message changes nothing.
        ("unknown cluster 'unknown cluster replica size'", "XX000", "absent"),
        ("server closed the connection unexpectedly", None, "indeterminate"),
        ("cannot modify managed cluster serving", "57P01", "indeterminate"),
        ("canceling statement due to statement timeout", "57014", "indeterminate"),
        ("connection failure", "08006", "indeterminate"),
    ],
)
def test_what_happened_is_read_from_state_and_message(message, state, outcome):
    assert outcome_of(message, state) == outcome


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
