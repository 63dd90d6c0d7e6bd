"""Ticks on the twin of a target: stories of strategies from their declaration in the ledger to replicas and audit rows."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.steer import Steering
from gitops.core.diagnostics import Severity
from gitops.model.changeset import ChangesetState
from gitops.model.ledger import AppliedResource
from gitops.model.plan import NodeOutcome
from gitops.model.strategy import Limits
from gitops.strategies.decision import Decision, decide
from gitops.strategies.port import TARGET_LOCK
from gitops.strategies.signals import ComputeCluster
from tests.support.cluster import DoAt
from tests.support.memory_target import MemoryTarget
from tests.support.target_world import Fault, HeldReplica, TargetWorld, fresh_world
from tests.support.ticks import Died, DieOnce, Ticks, codes, sql, statements

Make = Callable[..., Ticks]

MAIN = {"target_size": {"target_size": "50cc", "replica_name": "main"}}
GROWING = {"target_size": {"target_size": "50cc"}}
BURST = {"burst": {"burst_replica_size": "800cc", "cooldown_s": 60}}
SLEEPING = {"idle_suspend": {"idle_after_s": 300}}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A bench with compute clusters, and their strategies applied."""

    def ticks(declared: Mapping[str, Any], limits: Limits | None = None, /, **clusters: Mapping[str, str]) -> Ticks:
        made = Ticks(tmp_path, fresh_world(**clusters))
        made.apply_strategies(declared, limits=limits)
        return made

    return ticks


def test_11_a_new_size_is_created_beside_the_old_one(make: Make) -> None:
    ticks = make({"serving": GROWING}, serving={"old": "25cc*"})
    assert ticks.tick().ok
    assert ticks.world.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}
    assert ticks.executed() == ["""CREATE CLUSTER REPLICA "serving"."r_50cc" (SIZE '50cc')"""]


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
    with MemoryTarget(ticks.world) as other:
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
    reads = _statements_before(ticks, "CREATE CLUSTER REPLICA")
    ticks.world.fail_next(fault, after=reads)
    outcome = ticks.tick()
    happened = fault is Fault.CUT_AFTER
    assert [each.outcome for each in statements(outcome)] == [NodeOutcome.DONE if happened else NodeOutcome.FAILED]
    assert [row.executed for row in ticks.audited] == [happened]
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
    with pytest.raises(Died):
        ticks.cluster.apply(faults=DieOnce("changeset.commit.before_write"), atomic=True)
    outcome = ticks.tick()
    assert (codes(outcome), outcome.ok) == (["tick_skipped"], True)
    assert ticks.world.replicas("serving") == {"a": "25cc"}


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda world: setattr(world.clusters["serving"], "managed", True), "compute_cluster_managed"),
        (lambda world: setattr(world.clusters["serving"], "single", True), "single_replica_only"),
        (lambda world: world.drop_cluster("serving"), "compute_cluster_missing"),
        (lambda world: setattr(world, "sizes", replace(world.sizes, credits={"25cc": 1.0})), "replica_size_invalid"),
    ],
)
def test_what_fails_in_one_compute_cluster_leaves_the_others_alone(
    make: Make, spoil: Callable[[TargetWorld], None], code: str
) -> None:
    ticks = make({"serving": MAIN, "other": GROWING}, serving={"a": "25cc*"}, other={"x": "25cc", "r": "50cc*"})
    spoil(ticks.world)
    outcome = ticks.tick()
    assert codes(outcome) == [code]
    assert not outcome.ok
    assert ticks.world.replicas("other") == {"r": "50cc"}
    if "serving" in ticks.world.clusters:
        assert ticks.world.replicas("serving") == {"a": "25cc"}
    rows = [row for row in ticks.audited if not row.executed]
    assert all(row.error_message for row in rows)


def test_a_replica_that_somebody_else_made_is_taken_as_it_is_or_refused(make: Make) -> None:
    ticks = make({"serving": MAIN, "other": MAIN}, serving={"a": "25cc*"}, other={"a": "25cc*"})

    def others_come_first() -> None:
        ticks.world.clusters["serving"].replicas.setdefault("main", HeldReplica("25cc", 0))
        ticks.world.clusters["other"].replicas.setdefault("main", HeldReplica("50cc", 0))

    outcome = ticks.tick(DoAt("tick.before_statement", others_come_first))
    assert codes(outcome) == ["replica_conflict"]
    assert sorted(each.outcome for each in statements(outcome)) == [NodeOutcome.FAILED, NodeOutcome.UNCHANGED]
    assert ticks.executed() == []


def test_what_a_target_says_of_a_failed_statement_is_audited(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.world.fail_next(Fault.ERROR, after=_statements_before(ticks, "CREATE CLUSTER REPLICA"))
    assert codes(ticks.tick()) == ["replica_failed"]
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
    ticks.world.missing = {"mz_internal.mz_hydration_statuses"}
    assert codes(ticks.tick()) == ["signal_unavailable"]
    assert ticks.world.replicas("serving") == {"a": "25cc", "r": "50cc"}
    assert not ticks.audited


def test_a_failure_keeps_the_old_memory_and_says_so(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.world.clusters["serving"].single = True
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
    hydrated = MemoryTarget.hydrated

    def late(target: MemoryTarget, cluster_id: str) -> frozenset[str]:
        ticks.world.lose_status("serving", "r")
        return hydrated(target, cluster_id)

    monkeypatch.setattr(MemoryTarget, "hydrated", late)
    outcome = ticks.tick()
    assert codes(outcome) == ["replica_uncovered"]
    assert {each.node_id: each.outcome for each in outcome.results} == {
        "decision.serving.target_size": NodeOutcome.UNCHANGED,
        "readiness.prod.serving": NodeOutcome.FAILED,
        "replica.prod.serving.a": NodeOutcome.SKIPPED,
    }
    assert not ticks.audited


def test_a_target_that_does_not_answer_leaves_the_others_alone(tmp_path: Path) -> None:
    ticks = Ticks(tmp_path, fresh_world(serving={"a": "25cc*"}))
    ticks.worlds["second"] = fresh_world(other={"a": "25cc*"})
    ticks.apply_strategies({"serving": MAIN, "other": MAIN}, on={"other": "second"})
    ticks.world.stop()
    outcome = ticks.tick()
    assert outcome.unreachable
    assert ticks.worlds["second"].replicas("other") == {"a": "25cc", "main": "50cc"}
    assert ticks.worlds["second"].audit_rows
    ticks.world.reachable = True
    assert ticks.tick(target="prod").ok
    assert ticks.world.replicas("serving") == {"a": "25cc", "main": "50cc"}


def test_an_audit_row_that_cannot_be_written_fails_the_tick_and_is_written_by_the_next_one(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.world.denied = {("INSERT", "mz_cluster_strategy_actions")}
    outcome = ticks.tick()
    assert codes(outcome) == ["audit_failed"]
    assert ticks.changesets()[0].state is ChangesetState.PREPARING
    assert not ticks.tick().ok, "nothing is done while a row is owed"
    ticks.world.denied = set()
    assert codes(ticks.tick()) == ["cluster_recovery_rolled_forward"]
    assert len(ticks.executed()) == 1
    assert ticks.changesets()[0].state is ChangesetState.FINALIZED


def test_an_apply_closes_a_tick_that_died_and_its_audit_row_is_written_all_the_same(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    ticks.world.denied = {("INSERT", "mz_cluster_strategy_actions")}
    ticks.tick()
    ticks.world.denied = set()
    ticks.cluster.apply()
    assert ticks.changesets()[0].state is ChangesetState.FAILED
    assert not ticks.audited
    applied = {address: AppliedResource(each.digest) for address, each in ticks.applied.items()}
    ticks.cluster.put_state(replace(ticks.cluster.state, resources={**ticks.cluster.state.resources, **applied}))
    assert ticks.tick().ok
    assert len(ticks.executed()) == 1


def test_two_clusters_with_strategies_on_one_target_do_not_meet(tmp_path: Path) -> None:
    world = fresh_world(serving={"a": "25cc*"}, other={"a": "25cc*"})
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


def _statements_before(ticks: Ticks, text: str, skip: int = 0) -> int:
    """How many statements a tick gives before one that begins so, by a tick on a copy of the bench."""
    world, ledger = copy.deepcopy(ticks.world), ticks.cluster
    twin = Ticks(ledger.folder, world)
    twin.apply_strategies(ticks.declared)
    twin.tick()
    found = [index for index, line in enumerate(world.log[ticks.world.statements :]) if line.startswith(text)]
    return found[skip]


def test_a_tick_brings_the_rows_of_its_targets_in_line_first(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"main": "50cc*"})
    ticks.until_quiet()
    rows = list(ticks.world.strategy_rows or ())
    assert [(row.cluster_id, row.strategy_type) for row in rows] == [("u1", "target_size")]
    revision = ticks.cluster.state.revision
    ticks.world.strategy_rows = []
    ticks.until_quiet()
    assert [row.config for row in ticks.world.strategy_rows] == [row.config for row in rows]
    assert ticks.cluster.state.revision == revision


def test_a_tick_that_a_person_gave_up_ends_as_failed_and_names_what_was_done(make: Make) -> None:
    ticks = make({"serving": MAIN}, serving={"a": "25cc*"})
    with pytest.raises(Died):
        ticks.tick(DieOnce("tick.after_statement"))
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

    def broken(cluster: ComputeCluster, *given: Any) -> Decision:
        if cluster.name == "serving":
            raise ZeroDivisionError
        return decide(cluster, *given)

    monkeypatch.setattr("gitops.apply.tick_targets.decide", broken)
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
