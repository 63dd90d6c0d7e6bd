"""Decisions about the replicas of one compute cluster, told in a data file, and the limits of what is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.signals import SizeTable
from gitops.compute.strategies.decision import Limits, decide
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.pages import ROOT
from tests.support.strategies import cluster, lines, rules, signals, state

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
