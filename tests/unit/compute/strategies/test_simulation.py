"""Simulated strategies: timelines told in data files, what a scenario must not say, and the plot."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cli.main import main
from gitops.cluster.model.strategy import Burst, IdleSuspend, ShrinkToFit, StrategyRule, StrategyType, TargetSize
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.strategies.decision import Limits
from gitops.compute.strategies.simulation import Activity, Crashing, Scenario, read_scenario, simulate
from gitops.core.diagnostics import Diagnostics
from gitops.database.language.yaml import parse_yaml, to_plain
from gitops.render.strategies import to_plot
from tests.support.compute_crowd import crowd, flapping
from tests.support.pages import ROOT
from tests.support.strategies import SIZES

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
