"""Ticks on every target: the scenarios of strategies by their numbers, what ticks record, what stops them, and declared gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.apply import apply
from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.ledger import AppliedResource
from gitops.cluster.model.plan import NodeOutcome, RunEvent
from gitops.cluster.model.strategy import Limits
from gitops.cluster.session.changesets import Steering
from gitops.cluster.targets.port import TARGET_LOCK, StrategyTarget
from gitops.cluster.targets.signals import ComputeCluster
from gitops.compute.strategies.decision import StrategyDecision, decide
from gitops.compute.ticks.tick import TickOutcome, tick
from gitops.core.diagnostics import Severity
from gitops.database.language.yaml import parse_yaml, to_plain
from tests.support.faults import Death, DoAt, EndAt
from tests.support.target_world import Fault, fresh_world, furnish
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


AUDITS = ("INSERT", "mz_cluster_strategy_actions")


def test_a_tick_without_actions_records_nothing_but_memories(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"main": "50cc*"})
    before = ticks.cluster.files()
    assert (ticks.tick().decided, ticks.audited, ticks.cluster.files()) == (("prod/serving",), [], before)
    rows = list(ticks.world.state_rows or ())
    assert ticks.tick().ok
    assert ticks.world.state_rows == rows, "the same memory is not written again"


def test_a_tick_is_a_changeset_and_leaves_what_is_applied_as_it_is(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    before = ticks.cluster.state.resources
    ticks.until_quiet()
    drop, create = ticks.changesets()
    assert {drop.state, create.state} == {ChangesetState.FINALIZED}
    assert [(m.action, m.address, m.runtime.outputs["reasons"]) for m in (*create.members, *drop.members)] == [
        ("create", "replica.prod.serving.main", ["target_size: no replica has size 50cc"]),
        ("delete", "replica.prod.serving.a", ["target_size: main of size 50cc is hydrated"]),
    ]
    run = ticks.ledger.run_of(drop.key)
    assert run is not None
    assert [node.id for node in run.nodes] == [
        "decision.serving.target_size",
        "readiness.prod.serving",
        "replica.prod.serving.a",
    ]
    assert ticks.cluster.state.resources == before


def test_a_tick_waits_for_a_changeset_that_is_carried_out(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    with pytest.raises(Death):
        ticks.cluster.apply(faults=EndAt("changeset.commit.before_write"), atomic=True)
    outcome = ticks.tick()
    assert (codes(outcome), outcome.ok) == (["tick_skipped"], True)
    assert ticks.world.replicas("serving") == {"a": "25cc"}


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda world: world.set_managed("serving"), "compute_cluster_managed"),
        (lambda world: world.set_single("serving"), "single_replica_only"),
        (lambda world: world.drop_cluster("serving"), "compute_cluster_missing"),
        (lambda world: world.forget_size("50cc"), "replica_size_invalid"),
    ],
)
def test_what_fails_in_one_compute_cluster_leaves_the_others_alone(
    make: Make, spoil: Callable[[Any], None], code: str
) -> None:
    ticks = make({"serving": MAIN, "other": GROWING}, serving={"a": "25cc*"}, other={"x": "25cc", "r": "50cc*"})
    spoil(ticks.world)
    outcome = ticks.tick()
    assert codes(outcome) == [code]
    assert not outcome.ok
    assert ticks.world.replicas("other") == {"r": "50cc"}
    if code != "compute_cluster_missing":
        assert ticks.world.replicas("serving") == {"a": "25cc"}
    rows = [row for row in ticks.audited if not row.executed]
    assert all(row.error_message for row in rows)


def test_a_replica_that_somebody_else_made_is_taken_as_it_is_or_refused(make: Make) -> None:
    ticks = make({"serving": MAIN, "other": MAIN}, serving={"a": "25cc*"}, other={"a": "25cc*"})

    def others_come_first() -> None:
        for name, size in (("serving", "25cc"), ("other", "50cc")):
            if "main" not in ticks.world.replicas(name):
                ticks.world.add_replica(name, "main", size)

    outcome = ticks.tick(DoAt("tick.before_statement", others_come_first))
    assert codes(outcome) == ["replica_conflict"]
    assert sorted(each.outcome for each in statements(outcome)) == [NodeOutcome.FAILED, NodeOutcome.UNCHANGED]
    assert ticks.executed() == []


def test_what_a_target_says_of_a_failed_statement_is_audited(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    outcome = ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.fail_next(Fault.ERROR)))
    assert codes(outcome) == ["replica_failed"]
    (row,) = ticks.audited
    assert (row.executed, row.error_message) == (False, "something unexpected happened")
    assert row.decision_ctx["error"] == row.error_message


def test_a_limit_stops_one_compute_cluster(make: Make) -> None:
    ticks = make({"serving": MAIN, "other": MAIN}, Limits(1), serving={"a": "25cc*"}, other={})
    outcome = ticks.tick()
    assert codes(outcome) == ["replica_limit_exceeded"]
    assert ticks.world.replicas("other") == {"main": "50cc"}


def test_without_signals_nothing_is_ever_dropped(make: Make) -> None:
    ticks = make({"serving": GROWING}, serving={"a": "25cc*", "r": "50cc*"})
    ticks.world.hide("mz_internal.mz_hydration_statuses", "hydrated")
    assert codes(ticks.tick()) == ["signal_unavailable"]
    assert ticks.world.replicas("serving") == {"a": "25cc", "r": "50cc"}
    assert not ticks.audited


def test_a_failure_keeps_the_old_memory_and_says_so(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.world.set_single("serving")
    ticks.tick()
    (row,) = ticks.world.state_rows or ()
    assert row[2]["last_outcome"] == "failed: single_replica_only"
    assert "last_decision_ts" not in row[2]
    assert "pending_target_replica" not in row[2]
    (record,) = ticks.changesets()
    assert record.state is ChangesetState.FAILED
    assert "single_replica_only" in (record.error or "")


def test_a_drop_waits_while_what_was_to_cover_it_lost_its_hydration(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = make({"serving": GROWING}, serving={"a": "25cc*", "r": "50cc*"})
    kind = type(ticks.connect())
    hydrated = kind.hydrated

    def late(target: StrategyTarget, cluster_id: str) -> frozenset[str]:
        ticks.world.crash("serving", "r", "oom-killed", ticks.cluster.clock.now())
        return hydrated(target, cluster_id)

    monkeypatch.setattr(kind, "hydrated", late)
    outcome = ticks.tick()
    assert codes(outcome) == ["replica_uncovered"]
    assert {each.node_id: each.outcome for each in outcome.results} == {
        "decision.serving.target_size": NodeOutcome.UNCHANGED,
        "readiness.prod.serving": NodeOutcome.FAILED,
        "replica.prod.serving.a": NodeOutcome.SKIPPED,
    }
    assert not ticks.audited


def test_a_target_that_does_not_answer_leaves_the_others_alone(tmp_path: Path, world: Any) -> None:
    ticks = Ticks(tmp_path, furnish(world, serving={"a": "25cc*"}))
    ticks.worlds["second"] = fresh_world(other={"a": "25cc*"})
    ticks.apply_strategies({"serving": MAIN, "other": MAIN}, on={"other": "second"})
    ticks.world.stop()
    outcome = ticks.tick()
    assert outcome.unreachable
    assert ticks.worlds["second"].replicas("other") == {"a": "25cc", "main": "50cc"}
    assert ticks.worlds["second"].audit_rows
    ticks.world.start()
    assert ticks.tick(target="prod").ok
    assert ticks.world.replicas("serving") == {"a": "25cc", "main": "50cc"}


def test_an_audit_row_that_cannot_be_written_fails_the_tick_and_is_written_by_the_next_one(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    outcome = ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.deny(*AUDITS)))
    assert codes(outcome) == ["audit_failed"]
    assert ticks.changesets()[0].state is ChangesetState.PREPARING
    assert not ticks.tick().ok, "nothing is done while a row is owed"
    ticks.world.grant(*AUDITS)
    assert codes(ticks.tick()) == ["cluster_recovery_rolled_forward"]
    assert len(ticks.executed()) == 1
    assert ticks.changesets()[0].state is ChangesetState.FINALIZED


def test_an_apply_closes_a_tick_that_died_and_its_audit_row_is_written_all_the_same(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.tick(DoAt("tick.before_statement", lambda: ticks.world.deny(*AUDITS)))
    ticks.world.grant(*AUDITS)
    ticks.cluster.apply()
    assert ticks.changesets()[0].state is ChangesetState.FAILED
    assert not ticks.audited
    applied = {address: AppliedResource(each.digest) for address, each in ticks.applied.items()}
    ticks.cluster.put_state(replace(ticks.cluster.state, resources={**ticks.cluster.state.resources, **applied}))
    assert ticks.tick().ok
    assert len(ticks.executed()) == 1


def test_two_clusters_with_strategies_on_one_target_do_not_meet(tmp_path: Path, world: Any) -> None:
    furnish(world, serving={"a": "25cc*"}, other={"a": "25cc*"})
    benches = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        bench = Ticks(tmp_path / name, world)
        bench.cluster.options["metadata"] = {"name": name}
        bench.cluster.save()
        benches.append(bench)
    benches[0].apply_strategies({"serving": MAIN})
    benches[1].apply_strategies({"other": MAIN})
    assert benches[0].tick().ok
    assert world.replicas("other") == {"a": "25cc"}
    assert benches[1].tick().ok
    assert {key: sorted(world.replicas(key)) for key in ("serving", "other")} == {
        "serving": ["a", "main"],
        "other": ["a", "main"],
    }


def test_problems_of_a_preview_are_those_of_a_tick(make: Make) -> None:
    ticks = make({"serving": MAIN, "gone": MAIN}, serving={"a": "25cc*"})
    outcome = ticks.preview()
    assert codes(outcome) == ["compute_cluster_missing"]
    assert [each.severity for each in outcome.diagnostics] == [Severity.ERROR]
    assert len(outcome.actions) == 1


def test_a_tick_brings_the_rows_of_its_targets_in_line_first(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"main": "50cc*"})
    ticks.until_quiet()
    rows = list(ticks.world.strategy_rows or ())
    assert [row.strategy_type for row in rows] == ["target_size"]
    revision = ticks.cluster.state.revision
    ticks.world.delete_strategies()
    ticks.until_quiet()
    assert [row.config for row in ticks.world.strategy_rows] == [row.config for row in rows]
    assert ticks.cluster.state.revision == revision


def test_a_tick_that_a_person_gave_up_ends_as_failed_and_names_what_was_done(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    with pytest.raises(Death):
        ticks.tick(EndAt("tick.after_statement"))
    (record,) = ticks.changesets()
    bench = ticks.cluster
    Steering(ticks.ledger, bench.clock, bench.ids, "ada").fail(record.key, "not now")
    assert ticks.tick().ok
    (record,) = ticks.changesets()
    assert (record.state, record.error) == (ChangesetState.FAILED, "not now")
    assert [each.address for each in record.orphaned] == ["replica.prod.serving.main"]
    assert len(ticks.executed()) == 1


def test_a_strategy_that_breaks_keeps_its_compute_cluster_alone_from_acting(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = make({"serving": MAIN, "other": MAIN}, serving={"a": "25cc*"}, other={})

    def broken(cluster: ComputeCluster, *given: Any) -> StrategyDecision:
        if cluster.name == "serving":
            raise ZeroDivisionError
        return decide(cluster, *given)

    monkeypatch.setattr("gitops.compute.ticks.targets.decide", broken)
    outcome = ticks.tick()
    assert codes(outcome) == ["internal_error"]
    assert (ticks.world.replicas("serving"), ticks.world.replicas("other")) == ({"a": "25cc"}, {"main": "50cc"})


def test_nothing_is_decided_on_a_text_that_was_tampered_with(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    (text,) = (key for key in ticks.cluster.files() if "/strategy/" in key)
    ticks.cluster.plant(text, (ticks.cluster.stored(text) or b"").replace(b"50cc", b"800cc"))
    for outcome in (ticks.preview(), ticks.tick()):
        assert codes(outcome) == ["strategy_record_invalid"]
        assert not outcome.actions
    assert ticks.world.tables() == set()


@pytest.fixture
def ticks(make: Callable[..., Ticks]) -> Ticks:
    """Two compute clusters that are idle for longer than their strategies permit."""
    made = make({"serving": SLEEPING, "other": SLEEPING}, serving={"a": "25cc*", "b": "50cc*"}, other={"a": "25cc*"})
    assert made.tick().ok
    made.pass_time(minutes=6)
    return made


def tick_while(ticks: Ticks, happens: Callable[[], None]) -> TickOutcome:
    """A tick during which something happens when everything is decided, and nothing is carried out yet."""

    def watch(event: RunEvent) -> None:
        if event.type == "apply_started":
            happens()

    return tick(replace(ticks.cluster.workspace("ada"), on_event=watch), ticks.how())


def test_a_compute_cluster_that_is_used_again_is_not_suspended(ticks: Ticks) -> None:
    now = ticks.cluster.clock.now()
    outcome = tick_while(ticks, lambda: ticks.world.activity("serving", now))
    assert (codes(outcome), outcome.ok) == (["decision_outdated"], True)
    assert ticks.world.replicas("serving") == {"a": "25cc", "b": "50cc"}
    assert ticks.world.replicas("other") == {}
    outcomes = {each.node_id: each.outcome for each in outcome.results}
    assert outcomes["decision.serving.idle_suspend"] is NodeOutcome.FAILED
    assert outcomes["decision.other.idle_suspend"] is NodeOutcome.UNCHANGED
    (record,) = ticks.changesets()
    assert record.state is ChangesetState.FINALIZED
    assert not ticks.tick().actions, "a statement has just begun"


def test_nothing_is_done_to_a_compute_cluster_that_took_the_name_of_another_one(ticks: Ticks) -> None:
    def others_make_it_again() -> None:
        ticks.world.drop_cluster("serving")
        ticks.world.add_cluster("serving")
        ticks.world.add_replica("serving", "a", "25cc")

    outcome = tick_while(ticks, others_make_it_again)
    assert codes(outcome) == ["decision_outdated"]
    assert ticks.world.replicas("serving") == {"a": "25cc"}
    assert [row.action_sql for row in ticks.audited] == ['DROP CLUSTER REPLICA IF EXISTS "other"."a"']


def test_a_target_that_goes_away_before_the_first_statement_is_left_alone(ticks: Ticks) -> None:
    outcome = tick_while(ticks, lambda: ticks.world.fail_next(Fault.CUT_BEFORE))
    assert codes(outcome) == ["target_unreachable"]
    assert (ticks.audited, ticks.world.replicas("other"), ticks.changesets()[0].state) == (
        [],
        {"a": "25cc"},
        ChangesetState.FAILED,
    )
    assert len(ticks.tick().actions) == 3


DROP = 'DROP CLUSTER REPLICA IF EXISTS "serving"."main"'
CREATE = """CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc')"""


@pytest.fixture
def single(tmp_path: Path) -> Ticks:
    made = Ticks(tmp_path, fresh_world(serving={"main": "25cc*"}))
    made.world.clusters["serving"].single = True
    made.apply_strategies({"serving": {"target_size": {"target_size": "50cc", "drop_first": True}}})
    return made


def test_without_it_the_replica_stays(single: Ticks) -> None:
    single.apply_strategies({"serving": {"target_size": {"target_size": "50cc"}}})
    assert codes(single.tick()) == ["single_replica_only"]
    assert single.world.replicas("serving") == {"main": "25cc"}


def test_the_old_replica_goes_before_the_new_one_comes(single: Ticks) -> None:
    outcome = single.tick()
    assert (codes(outcome), sql(outcome)) == ([], [DROP, CREATE])
    assert single.world.replicas("serving") == {"r_50cc": "50cc"}
    assert single.executed() == [DROP, CREATE]
    single.pass_time(minutes=5)
    assert single.until_quiet() == []


def test_a_tick_that_dies_in_the_gap_is_gone_on_with_by_the_next(single: Ticks) -> None:
    with pytest.raises(Death):
        single.tick(EndAt("tick.after_audit"))
    assert single.world.replicas("serving") == {}
    outcome = single.tick()
    assert (outcome.ok, sql(outcome)) == (True, [CREATE])
    assert single.executed() == [DROP, CREATE]


def test_a_drop_that_fails_is_followed_by_no_create(single: Ticks) -> None:
    outcome = single.tick(DoAt("tick.before_statement", lambda: single.world.fail_next(Fault.ERROR)))
    assert codes(outcome) == ["replica_failed"]
    assert single.world.replicas("serving") == {"main": "25cc"}
    assert (single.tick().ok, single.world.replicas("serving")) == (True, {"r_50cc": "50cc"})
