"""The scenarios of strategies by their numbers, from a declaration in the ledger to replicas and audit rows, on every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.targets.port import TARGET_LOCK
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.cluster import DoAt
from tests.support.target_world import Fault
from tests.support.ticks import Ticks, codes, sql, statements

Make = Callable[..., Ticks]

MAIN = {"target_size": {"target_size": "50cc", "replica_name": "main"}}
GROWING = {"target_size": {"target_size": "50cc"}}
BURST = {"burst": {"burst_replica_size": "800cc", "cooldown_s": 60}}
SLEEPING = {"idle_suspend": {"idle_after_s": 300}}
_REFUSED: list[dict[str, Any]] = to_plain(
    parse_yaml((Path(__file__).parents[1] / "data" / "strategies" / "refused.yaml").read_bytes())
)
REFUSED = [case for case in _REFUSED if "scenario" in case]


@pytest.mark.parametrize("case", REFUSED, ids=[f"{case['scenario']}-{case['name']}" for case in REFUSED])
def test_1_to_3_13_19_24_and_30_a_declaration_that_is_refused_reaches_no_target(
    make: Make, case: Mapping[str, Any]
) -> None:
    ticks = make({"serving": MAIN}, serving={"main": "50cc*", "other": "25cc"})
    strategies = {"target": "prod", "experimental": case.get("experimental", False), **case["strategies"]}
    ticks.cluster.options["compute"] = {
        "targets": {"prod": {"kind": "materialize", "url": {"env": "PROD_URL"}}},
        "strategies": {"serving": strategies},
    }
    ticks.cluster.save()
    outcome = apply(replace(ticks.cluster.workspace("ada"), open_target=ticks.open))
    assert not outcome.ok
    said = [each.message for each in outcome.diagnostics if each.code == "invalid_cluster_yaml"]
    assert [text for text in case["says"] if not any(text.removeprefix("strategies.") in each for each in said)] == []
    assert not ticks.tick().ok
    assert (ticks.world.log, ticks.world.tables()) == ([], set())
    assert ticks.world.replicas("serving") == {"main": "50cc", "other": "25cc"}


def test_24_and_30_a_largest_size_that_the_target_does_not_know_is_an_error(make: Make) -> None:
    unknown = {"shrink_to_fit": {"max_replica_size": "3xl"}}
    ticks = make({"trying": unknown, "serving": MAIN}, trying={}, serving={})
    outcome = ticks.tick()
    assert (codes(outcome), outcome.ok) == (["replica_size_invalid"], False)
    assert (ticks.world.replicas("trying"), ticks.world.replicas("serving")) == ({}, {"main": "50cc"})


def test_11_a_new_size_is_created_beside_the_old_one(make: Make) -> None:
    ticks = make({"serving": GROWING}, serving={"old": "25cc*"})
    assert ticks.tick().ok
    assert ticks.world.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}
    assert ticks.sent == ticks.executed() == ["""CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc')"""]


def test_12_only_the_hydrated_target_stays(make: Make) -> None:
    ticks = make({"serving": GROWING}, serving={"a": "25cc*", "b": "100cc", "c": "50cc*"})
    ticks.until_quiet()
    assert ticks.world.replicas("serving") == {"c": "50cc"}


def test_18_and_27_a_replica_helps_until_another_one_is_hydrated_and_a_ladder_shrinks(make: Make) -> None:
    ladder = {"shrink_to_fit": {"max_replica_size": "100cc"}}
    ticks = make({"serving": BURST, "trying": ladder}, serving={"main": "25cc"}, trying={})
    assert [line.split(" (")[0] for line in sql(ticks.tick())] == [
        'CREATE CLUSTER REPLICA "serving"."serving_burst"',
        'CREATE CLUSTER REPLICA "trying"."trying_25cc"',
        'CREATE CLUSTER REPLICA "trying"."trying_50cc"',
        'CREATE CLUSTER REPLICA "trying"."trying_100cc"',
    ]
    ticks.until_quiet()
    assert ticks.world.replicas("serving") == {"main": "25cc"}
    assert ticks.world.replicas("trying") == {"trying_25cc": "25cc"}
    assert len(ticks.executed()) == 4 + 1 + 2


def test_20_to_23_a_cluster_sleeps_when_it_was_idle_and_never_at_the_first_look(make: Make) -> None:
    ticks = make({"serving": SLEEPING}, serving={"a": "25cc*", "b": "50cc*"})
    now = ticks.cluster.clock.now()
    assert not ticks.tick().actions, "it was just seen for the first time"
    ticks.pass_time(minutes=4)
    ticks.world.activity("serving", now, ticks.cluster.clock.now())
    ticks.pass_time(minutes=4)
    assert not ticks.tick().actions, "it was used four minutes ago"
    ticks.pass_time(minutes=4)
    outcome = ticks.tick()
    assert outcome.ok
    assert {each.reasons for each in outcome.actions} == {("idle_suspend: idle for 480 s, more than 300 s",)}
    assert ticks.world.replicas("serving") == {}
    assert [row.executed for row in ticks.audited] == [True, True]
    assert not ticks.tick().actions


def test_28_a_target_size_and_an_idle_limit_leave_first_one_replica_and_then_none(make: Make) -> None:
    ticks = make({"serving": {**MAIN, **SLEEPING}}, serving={"a": "25cc*", "main": "50cc*"})
    assert ticks.tick().ok
    assert ticks.world.replicas("serving") == {"main": "50cc"}
    ticks.pass_time(minutes=6)
    ticks.tick()
    assert ticks.world.replicas("serving") == {}
    ticks.pass_time(minutes=6)
    assert not ticks.tick().actions, "nothing wakes it"


@pytest.mark.parametrize("more", [2, 4])
def test_29_of_several_rows_the_newest_counts_and_it_is_that_of_the_ledger(make: Make, more: int) -> None:
    ticks = make({"serving": {**MAIN, **BURST}}, serving={"a": "25cc"})
    with ticks.connect() as target:
        target.create_tables()
        owner = target.clusters()["serving"].cluster_id
    begin = ticks.cluster.clock.now() - timedelta(days=1)
    for number in range(more):
        at = begin + timedelta(hours=number)
        ticks.world.insert_strategy(owner, "target_size", {"target_size": "100cc", "replica_name": f"old{number}"}, at)
        ticks.world.insert_strategy(owner, "burst", {"burst_replica_size": "200cc"}, at)
    with ticks.connect() as target:
        assert target.strategies()[owner, "target_size"].config["replica_name"] == f"old{more - 1}"
    ticks.tick()
    assert ticks.sent == [
        """CREATE CLUSTER REPLICA "serving"."main" (SIZE '50cc')""",
        """CREATE CLUSTER REPLICA "serving"."serving_burst" (SIZE '800cc')""",
    ]
    rows = {row.strategy_type: dict(row.config) for row in ticks.world.strategy_rows}
    assert (rows["target_size"]["target_size"], rows["burst"]["burst_replica_size"]) == ("50cc", "800cc")
    assert len(ticks.world.strategy_rows) == 2


def test_30_a_preview_prints_what_a_tick_does_and_changes_nothing(make: Make) -> None:
    ticks = make({"serving": MAIN, "other": MAIN}, serving={"a": "25cc*"}, other={"a": "25cc*"})
    before = ticks.cluster.state_bytes
    outcome = ticks.preview(clusters="^serv")
    assert sql(outcome) == ["""CREATE CLUSTER REPLICA "serving"."main" (SIZE '50cc')"""]
    assert (ticks.world.tables(), ticks.cluster.state_bytes, ticks.changesets()) == (set(), before, [])
    assert ticks.tick(clusters="^serv").ok
    assert ticks.world.replicas("other") == {"a": "25cc"}


def test_31_and_32_a_cooldown_holds_and_memories_are_apart(make: Make) -> None:
    burst = {"burst": {"burst_replica_size": "800cc", "cooldown_s": 3600}}
    ticks = make({"serving": {**MAIN, **burst}}, serving={"main": "50cc"})
    assert len(ticks.tick().actions) == 1
    ticks.world.hydrate("serving", "main")
    ticks.pass_time(minutes=5)
    assert not ticks.tick().actions, "the burst replica stays for its cooldown"
    payloads = {row[2]["strategy_type"]: row[2] for row in ticks.world.state_rows or ()}
    assert payloads["burst"]["last_outcome"] == "applied"
    assert "last_decision_ts" not in payloads["target_size"]
    ticks.pass_time(hours=1)
    assert sql(ticks.tick()) == ['DROP CLUSTER REPLICA IF EXISTS "serving"."serving_burst"']


def test_33_a_reused_name_never_leaves_a_cluster_without_a_hydrated_replica(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"main": "25cc*"})
    assert [line.split()[0] for line in ticks.until_quiet()] == ["CREATE", "DROP"]
    assert ticks.world.replicas("serving") == {"main_2": "50cc"}


def test_34_of_two_ticks_at_once_one_acts_and_the_other_says_so(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    with ticks.connect() as other:
        assert other.try_lock(TARGET_LOCK)
        refused, scheduled = ticks.tick(), ticks.tick(scheduled=True)
    assert (codes(refused), refused.ok) == (["already_running"], False)
    assert (codes(scheduled), scheduled.ok) == (["already_running"], True)
    ticks.cluster.hold_lock()
    assert codes(ticks.tick()) == ["state_lock_held"]
    waiting = ticks.tick(scheduled=True)
    assert (codes(waiting), waiting.ok) == (["already_running"], True)
    assert ticks.world.replicas("serving") == {"a": "25cc"}


@pytest.mark.parametrize("fault", [Fault.CUT_AFTER, Fault.CUT_BEFORE])
def test_35_a_lost_connection_is_looked_up_and_audited_once(make: Make, fault: Fault) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    outcome = ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.fail_next(fault)))
    happened = fault is Fault.CUT_AFTER
    assert [each.outcome for each in statements(outcome)] == [NodeOutcome.DONE if happened else NodeOutcome.FAILED]
    assert [row.executed for row in ticks.audited] == [happened]
    assert ("its effect was found after" in ticks.audited[0].decision_ctx.get("execution_result", "")) is happened
    assert ticks.tick().ok
    assert len(ticks.executed()) == 1
    assert ticks.world.replicas("serving") == {"a": "25cc", "main": "50cc"}


def test_36_what_the_folder_declares_plays_no_part(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.cluster.options["compute"] = {"nonsense": True}
    ticks.cluster.graphs["missing"] = {"q": "no-such-file.gq"}
    (ticks.cluster.folder / "people.gq").unlink()
    del ticks.cluster.options["compute"]
    ticks.cluster.save()
    assert len(ticks.tick().actions) == 1


def test_37_names_may_hold_anything(make: Make) -> None:
    name = "o\"dd.näme 'x'"
    ticks = make({"serving": {"target_size": {"target_size": "50cc", "replica_name": name}}}, serving={"a": "25cc*"})
    ticks.until_quiet()
    assert ticks.world.replicas("serving") == {name: "50cc"}
    assert ticks.changesets()[-1].members[0].address == "replica.prod.serving.o%22dd%2En%C3%A4me%20%27x%27"
