"""Ticks on every target: what they record, what stops them, and who else is at work meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.model.changeset import ChangesetState
from gitops.cluster.model.ledger import AppliedResource
from gitops.cluster.model.plan import NodeOutcome
from gitops.cluster.model.strategy import Limits
from gitops.cluster.session.changesets import Steering
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.signals import ComputeCluster
from gitops.compute.strategies.decision import StrategyDecision, decide
from gitops.core.diagnostics import Severity
from tests.support.cluster import DoAt
from tests.support.target_world import Fault, fresh_world, furnish
from tests.support.ticks import Died, DieOnce, Ticks, codes, statements

Make = Callable[..., Ticks]

MAIN = {"target_size": {"target_size": "50cc", "replica_name": "main"}}
GROWING = {"target_size": {"target_size": "50cc"}}
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
    with pytest.raises(Died):
        ticks.cluster.apply(faults=DieOnce("changeset.commit.before_write"), atomic=True)
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
