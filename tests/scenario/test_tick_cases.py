"""Every decision of the data file through a tick: signals as rows of the target, statements on the wire, replicas and rows.

All cases live on one target, each as a compute cluster of its own, and one tick decides about all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.model.strategy import StrategyType
from gitops.cluster.targets.signals import StrategyState
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.cluster import START
from tests.support.strategies import NOW, ago, state
from tests.support.target_world import TargetWorld
from tests.support.ticks import Ticks, codes, sql

CASES: dict[str, dict[str, Any]] = {
    f"c{number}": case
    for number, case in enumerate(
        to_plain(parse_yaml((Path(__file__).parents[1] / "data" / "strategies" / "decisions.yaml").read_bytes()))
    )
}


@dataclass
class Lived:
    """What the ticks left: replicas of each compute cluster, memories before and after, statements, and audit rows."""

    replicas: Mapping[str, Mapping[str, str]]
    before: Mapping[str, Mapping[StrategyType, StrategyState]]
    after: Mapping[str, Mapping[StrategyType, StrategyState]]
    sent: list[str]
    audited: list[tuple[str | None, str, list[str]]]
    again: list[str]


@pytest.fixture(scope="module", params=["twin", "server"])
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """A tick over the compute clusters of all cases, and another one right after it."""
    world: Any = TargetWorld()
    if request.param == "server":
        world = request.getfixturevalue("stand_in_server")
        world.reset()
    ticks = Ticks(tmp_path_factory.mktemp("ticks"), world)
    ticks.cluster.clock.jump(NOW - START)
    ticks.apply_strategies({name: case["rules"] for name, case in CASES.items()})
    owners = {name: _prepare(world, name, case) for name, case in CASES.items()}
    before = {name: _states(name, case) for name, case in CASES.items()}
    with ticks.connect() as target:
        target.create_tables()
        for name, states in before.items():
            target.replace_states(owners[name], states.values(), at=ago(1))
    outcome = ticks.tick()
    assert outcome.ok, codes(outcome)
    with ticks.connect() as target:
        memories = target.states()
    sent = ticks.sent.copy()
    return Lived(
        {name: world.replicas(name) for name in CASES},
        before,
        {name: {each.strategy: each for each in memories.get(owners[name], ())} for name in CASES},
        sent,
        [(row.cluster_id, row.action_sql, list(row.decision_ctx["reasons"])) for row in ticks.audited if row.executed],
        sql(ticks.tick()),
    )


def _prepare(world: Any, name: str, case: Mapping[str, Any]) -> str:
    owner: str = world.add_cluster(name)
    replicas = {_named(replica, name): size for replica, size in case.get("replicas", {}).items()}
    for replica, size in replicas.items():
        world.add_replica(name, replica, size.rstrip("*"))
    for replica, (total, out_of_memory) in case.get("crashes", {}).items():
        for number in range(total):
            reason = "oom-killed" if number < out_of_memory else "error"
            world.crash(name, _named(replica, name), reason, ago(60 + number))
    for replica in (each for each, size in replicas.items() if size.endswith("*")):
        world.hydrate(name, replica)
    if (age := case.get("activity")) is not None:
        world.activity(name, ago(age), ago(age))
    return owner


def _states(name: str, case: Mapping[str, Any]) -> dict[StrategyType, StrategyState]:
    given = case.get("state", {kind: {} for kind in case["rules"]})
    return {StrategyType(kind): replace(state(kind, form), cluster_name=name) for kind, form in given.items()}


def _named(replica: str, cluster: str) -> str:
    """The replica of a case on its compute cluster: `c_` begins the names that strategies make from that of the cluster."""
    return f"{cluster}{replica[1:]}" if replica.startswith("c_") else replica


def _statements(name: str, actions: Iterable[str]) -> list[str]:
    words = [action.split() for action in actions]
    return [
        drop_replica(name, _named(replica, name))
        if op == "drop"
        else create_replica(name, _named(replica, name), *size)
        for op, replica, *size in words
    ]


@pytest.mark.parametrize("name", CASES, ids=[f"{case.get('scenario', '')}-{case['name']}" for case in CASES.values()])
def test_a_decision_is_carried_out(lived: Lived, name: str) -> None:
    case = CASES[name]
    wanted = _statements(name, case["then"])
    assert [line for line in lived.sent if f'"{name}".' in line] == wanted
    audited = [(line, reasons) for _, line, reasons in lived.audited if f'"{name}".' in line]
    assert [line for line, _ in audited] == wanted
    assert all(reasons for _, reasons in audited)
    if wanted:
        said = " ".join(reason for _, reasons in audited for reason in reasons)
        assert [text for text in case.get("because", ()) if text not in said] == []
    left = {_named(replica, name): size.rstrip("*") for replica, size in case.get("replicas", {}).items()}
    for op, replica, *size in map(str.split, case["then"]):
        if op == "drop":
            del left[_named(replica, name)]
        else:
            left[_named(replica, name)] = size[0]
    assert lived.replicas[name] == left


@pytest.mark.parametrize("name", CASES, ids=[f"{case.get('scenario', '')}-{case['name']}" for case in CASES.values()])
def test_a_decision_is_remembered(lived: Lived, name: str) -> None:
    case, after = CASES[name], lived.after[name]
    assert set(after) == set(map(StrategyType, case["rules"]))
    for kind, replica in case.get("pending", {}).items():
        pending = after[StrategyType(kind)].pending
        assert (None if pending is None else pending.name) == replica
    decided = [each for each in after.values() if each.last_decision == NOW]
    assert bool(decided) is bool(case["then"])
    assert not decided or "applied" in {each.last_outcome for each in decided}
    if case.get("scenario") == 10:
        assert after == lived.before[name], "in a cooldown the memory stays as it is"


def test_decisions_that_were_carried_out_ask_for_nothing_more(lived: Lived) -> None:
    assert lived.again == []
    assert len(lived.sent) == sum(len(case["then"]) for case in CASES.values())
