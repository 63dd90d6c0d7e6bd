"""The rows of strategies on a target follow the ledger; what an apply asks the target first, and targets that folders share."""

from __future__ import annotations

import copy
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gitops.cluster.apply.dry_run import dry_run
from gitops.cluster.model.address import Address
from gitops.cluster.model.compute import ComputeTarget, owned_rows
from gitops.cluster.plan.classes import atomic_graph
from gitops.cluster.plan.plan import plan
from gitops.cluster.targets.port import TARGET_LOCK, StrategyRow
from gitops.compute.ticks.tick import Ticking, TickOutcome, Wipe, preview, tick, wake, wipe
from gitops.compute.ticks.what_if import with_what_if
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import UsageError
from gitops.render.change_rows import text_diff
from gitops.render.graph import to_json, to_mermaid, to_text
from gitops.repository.wiring.stores import declared_target
from tests.support.cluster import START, codes, rulings
from tests.support.faults import DoAt, FailAt
from tests.support.memory_target import MemoryTarget
from tests.support.projected import Projected
from tests.support.target_world import Fault, TargetWorld, fresh_world

BURST = Address("strategy.serving.burst")
POINTS = [f"strategies.{moment}_{step}" for step in ("write_rows", "delete_rows") for moment in ("before", "after")]


@pytest.fixture
def cluster(tmp_path):
    return Projected(tmp_path)


def test_the_rows_are_those_of_the_ledger(cluster):
    cluster.converge()
    assert cluster.rows() == {
        ("u1", "target_size"): {"target_size": "50cc", "cooldown_s": 0},
        ("u1", "burst"): {"burst_replica_size": "800cc", "cooldown_s": 60},
    }
    cluster.serving["burst"]["cooldown_s"] = 30
    del cluster.serving["target_size"]
    cluster.save()
    assert cluster.rows()["u1", "burst"]["cooldown_s"] == 60
    found = cluster.apply()
    assert rulings(found.changes) == {
        BURST: "update applied",
        Address("strategy.serving.target_size"): "delete applied",
    }
    assert cluster.rows() == {("u1", "burst"): {"burst_replica_size": "800cc", "cooldown_s": 30}}
    assert len(cluster.world.strategy_rows) == 1
    (row,) = owned_rows(cluster.state.observations)
    assert (row.address, row.cluster_id, row.digest) == (BURST, "u1", cluster.state.resources[BURST].digest)


def test_an_apply_without_a_difference_writes_nothing(cluster):
    cluster.converge()
    revision, rows = cluster.state.revision, list(cluster.world.strategy_rows)
    assert cluster.apply().diagnostics == ()
    assert (cluster.state.revision, cluster.world.strategy_rows) == (revision, rows)


def test_drift_is_healed(cluster):
    cluster.converge()
    before = cluster.rows()
    later = START + timedelta(hours=1)
    cluster.world.strategy_rows.append(StrategyRow("u1", "burst", {"burst_replica_size": "3200cc"}, later))
    assert cluster.rows() != before
    assert cluster.apply().diagnostics == ()
    assert cluster.rows() == before


def test_a_compute_cluster_that_was_made_again_gets_its_rows(cluster):
    cluster.converge()
    cluster.world.drop_cluster("serving")
    assert codes(cluster.apply()) == ["compute_cluster_missing"]
    assert cluster.rows() == {}
    assert codes(cluster.status()) == ["projection_pending"]
    cluster.world.add_cluster("serving")
    assert codes(cluster.apply()) == []
    assert {pair[0] for pair in cluster.rows()} == {"u2"}
    assert codes(cluster.status()) == []


def test_what_was_never_declared_stays_unless_the_target_is_pruned(cluster):
    cluster.world.strategy_rows = [StrategyRow("u9", "burst", {}), StrategyRow("u1", "idle_suspend", {})]
    assert cluster.import_().ok
    found = cluster.apply()
    assert codes(found) == ["unmanaged_strategy"] * 2
    assert found.ok
    assert {("u9", "burst"), ("u1", "idle_suspend")} < cluster.rows().keys()
    cluster.section["targets"]["prod"]["prune"] = True
    cluster.save()
    assert codes(cluster.apply()) == []
    assert cluster.rows().keys() == {("u1", "burst"), ("u1", "target_size")}


def test_a_strategy_moves_with_its_row_from_target_to_target(cluster):
    cluster.converge()
    cluster.section["targets"]["other"] = {"kind": "materialize", "url": {"env": "OTHER_URL"}}
    cluster.serving["target"] = "other"
    cluster.save()
    cluster.world.reachable = False
    assert codes(cluster.apply()) == ["projection_pending"]
    assert len(cluster.rows("OTHER_URL")) == len(cluster.rows()) == 2
    cluster.world.reachable = True
    assert codes(cluster.apply()) == []
    assert (len(cluster.rows("OTHER_URL")), cluster.rows()) == (2, {})


def test_a_compute_cluster_with_another_name_here_keeps_its_rows(cluster):
    cluster.converge()
    rows = list(cluster.world.strategy_rows)
    cluster.section["strategies"] = {"main": {**cluster.serving, "cluster": "serving"}}
    cluster.save()
    assert codes(cluster.apply()) == []
    assert [(row.cluster_id, row.strategy_type, row.config) for row in cluster.world.strategy_rows] == [
        (row.cluster_id, row.strategy_type, row.config) for row in rows
    ]
    assert {row.address.compute for row in owned_rows(cluster.state.observations)} == {"main"}


@pytest.mark.parametrize("atomic", [False, True], ids=["best-effort", "atomic"])
def test_a_target_that_is_down_delays_no_apply_and_loses_nothing(cluster, atomic):
    assert cluster.import_().ok
    cluster.world.reachable = False
    found = cluster.apply(atomic=atomic)
    assert (codes(found), found.ok, found.converged) == (["projection_pending"], True, True)
    (said,) = found.diagnostics
    assert said.severity is Severity.WARNING
    assert "not on target prod yet: strategy.serving.burst, strategy.serving.target_size" in said.message
    assert codes(cluster.status()) == ["projection_pending"]
    cluster.graphs["other"] = {}
    cluster.save()
    assert cluster.apply(atomic=atomic).converged
    del cluster.section["strategies"]["serving"]
    cluster.save()
    assert cluster.apply(atomic=atomic).converged
    cluster.world.reachable = True
    assert codes(cluster.apply(atomic=atomic)) == []
    assert cluster.rows() == {}
    assert owned_rows(cluster.state.observations) == ()


def test_the_row_of_a_removed_strategy_is_deleted_when_the_target_is_back(cluster):
    cluster.converge()
    cluster.world.reachable = False
    del cluster.section["strategies"]["serving"]
    cluster.save()
    assert codes(cluster.apply()) == ["projection_pending"]
    assert not [address for address in cluster.state.resources if address.compute]
    cluster.world.reachable = True
    assert (codes(cluster.apply()), cluster.rows()) == ([], {})


def test_without_its_url_an_apply_says_only_what_waits(cluster):
    assert cluster.import_().ok
    cluster.variables = set()
    (said,) = cluster.apply().diagnostics
    assert (said.code, "MZ_URL" in said.message, said.fix) == (
        "projection_pending",
        True,
        "set the variable, in a CI job from a secret, then run the command again",
    )
    cluster.variables = {"MZ_URL"}
    assert codes(cluster.apply()) == []
    cluster.variables = set()
    cluster.graphs["other"] = {}
    cluster.save()
    assert codes(cluster.apply()) == []


def test_a_variable_that_is_not_set_is_named():
    target = ComputeTarget("prod", "MZ_URL")
    with pytest.raises(UsageError) as caught:
        declared_target({"MZ_URL": ""}, target)
    assert (caught.value.code, caught.value.path) == ("target_url_missing", "compute.targets.prod")
    # Only entering it connects.
    assert declared_target({"MZ_URL": "postgres://ada:secret@mz.example:6875/materialize"}, target) is not None


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_dies_around_a_statement_is_made_good_by_the_next(cluster, point):
    if "delete" in point:
        cluster.converge()
        del cluster.serving["target_size"]
        cluster.save()
    else:
        assert cluster.import_().ok
    assert codes(cluster.apply(faults=FailAt(point))) == ["projection_pending"]
    assert codes(cluster.apply()) == []
    declared = {("u1", key) for key in ("burst", "target_size") if key in cluster.serving}
    assert cluster.rows().keys() == declared
    assert len(cluster.world.strategy_rows) == len(declared)
    assert codes(cluster.status()) == []


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.ERROR])
def test_whatever_statement_fails_the_next_apply_converges(tmp_path_factory, fault):
    """Each statement of a change that writes and deletes rows fails in turn."""
    number = 0
    while True:
        number += 1
        cluster = Projected(tmp_path_factory.mktemp("cut"))
        cluster.converge()
        cluster.serving["burst"]["cooldown_s"] = 30
        del cluster.serving["target_size"]
        cluster.save()
        asked = cluster.world.statements
        cluster.world.faults = {asked + number: fault}
        failed = codes(cluster.apply())
        if cluster.world.statements < asked + number:
            break
        cluster.world.faults = {}
        assert failed == ["projection_pending"], number
        assert codes(cluster.apply()) == []
        assert cluster.rows() == {("u1", "burst"): {"burst_replica_size": "800cc", "cooldown_s": 30}}
        assert len(cluster.world.strategy_rows) == 1
    assert number > 5


def test_a_plan_shows_what_changes_in_a_rule(cluster):
    cluster.converge()
    cluster.serving["burst"]["cooldown_s"] = 30
    cluster.save()
    (text,) = plan(cluster.workspace(), texts=True).texts
    diff = text_diff(text)
    assert diff.resources == (BURST,)
    assert [line for line in diff.lines if line[0] in "+-"] == ['-    "cooldown_s": 60', '+    "cooldown_s": 30']
    # A limit of the compute cluster is part of each of its strategies.
    cluster.serving["max_replicas"] = 3
    cluster.save()
    found = plan(cluster.workspace(), texts=True)
    assert rulings(found.plan.changes) == {
        BURST: "update applied",
        Address("strategy.serving.target_size"): "update applied",
    }
    frame = 'subgraph g1["compute cluster serving"]\n    direction LR\n    n1["update strategy burst"]'
    assert frame in to_mermaid(found.plan.graph)


CLAIMED = ["compute_cluster_claimed"]
SMALL = {"target": "prod", "target_size": {"target_size": "25cc"}}
LAZY = {**SMALL, "idle_suspend": {"idle_after_s": 900}}


@pytest.fixture
def world() -> TargetWorld:
    return fresh_world(serving={"main": "100cc*"}, reports={"main": "100cc*"})


@pytest.fixture
def first(tmp_path: Path, world: TargetWorld) -> Projected:
    """A folder that has applied strategies of `serving`."""
    return folder(tmp_path, "first", world)


def folder(place: Path, name: str, world: TargetWorld, *, apply: bool = True, **strategies: Any) -> Projected:
    (place / name).mkdir()
    made = Projected(place / name, name=name, world=world)
    if strategies:
        made.section["strategies"] = strategies
        made.save()
    assert made.import_().ok
    if apply:
        made.apply()
    return made


def ticked(cluster: Projected, **how: Any) -> TickOutcome:
    return tick(cluster.workspace(), Ticking(cluster.open, **how))


def test_the_second_folder_with_a_compute_cluster_gets_its_code_and_does_nothing_to_it(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, serving=LAZY, reports=SMALL)
    applied = second.apply()
    assert (codes(applied), applied.ok) == (CLAIMED, True)
    [said] = applied.diagnostics
    assert (said.severity, said.path) == (Severity.WARNING, "compute.strategies.serving")
    assert "serving on target prod belongs to the cluster folder first (" in said.message
    assert codes(second.status()) == ["projection_pending"]
    before = copy.deepcopy((world.strategy_rows, world.clusters["serving"].replicas))
    outcome = ticked(second)
    assert (codes(outcome), outcome.ok, outcome.decided) == (CLAIMED, False, ("prod/reports",))
    assert set(world.replicas("reports")) == {"main", "r_25cc"}, "the others go on"
    looked = preview(second.workspace(), Ticking(second.open))
    assert (codes(looked), looked.decided) == (CLAIMED, ("prod/reports",))
    assert (world.strategy_rows, world.clusters["serving"].replicas) == before
    assert not [row for row in world.state_rows or () if row[0] == "u1"]
    assert (codes(ticked(first)), codes(first.apply()), codes(first.status())) == ([], [], [])
    assert set(world.replicas("serving")) == {"main", "r_50cc"}


def test_a_memory_of_another_folder_is_neither_wiped_nor_woken(tmp_path, first, world):
    first.serving["idle_suspend"] = {"idle_after_s": 600}
    first.save()
    assert codes(first.apply()) == []
    assert ticked(first).ok
    second = folder(tmp_path, "second", world, serving=LAZY, reports=LAZY)
    states = list(world.state_rows or ())
    how = Ticking(second.open)
    assert codes(wake(second.workspace(), how, "serving")) == CLAIMED
    assert codes(wipe(second.workspace(), how, Wipe.CHOSEN)) == CLAIMED
    assert codes(wipe(second.workspace(), how, Wipe.ORPHANS)) == []
    assert world.state_rows == states
    assert codes(wake(second.workspace(), how, "reports")) == []


def test_rows_of_another_folder_are_neither_reported_nor_pruned(tmp_path, first, world):
    # Nor is what another program wrote beside them: who owns the compute cluster reports it.
    world.strategy_rows = [*(world.strategy_rows or ()), StrategyRow("u1", "idle_suspend", {"idle_after_s": 60})]
    rows = list(world.strategy_rows)
    second = folder(tmp_path, "second", world, reports=SMALL)
    second.section["targets"]["prod"]["prune"] = True
    second.save()
    assert codes(second.apply()) == []
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows
    assert codes(first.apply()) == ["unmanaged_strategy"]
    # Also not where the other folder declares the same compute cluster.
    second.section["strategies"]["serving"] = SMALL
    second.save()
    assert codes(second.apply()) == CLAIMED
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows
    del second.section["strategies"]["serving"]
    second.save()
    assert codes(second.apply()) == []
    assert [row for row in world.strategy_rows if row.cluster_id == "u1"] == rows


def test_a_compute_cluster_is_free_once_its_folder_lets_go_of_it(tmp_path, first, world):
    second = folder(tmp_path, "second", world, serving=LAZY)
    del first.section["strategies"]["serving"]
    first.save()
    assert codes(first.apply()) == []
    assert not world.strategy_rows
    assert codes(ticked(second)) == []
    assert first.owners() == {"second"}
    assert codes(second.status()) == []


def test_a_folder_with_another_name_keeps_its_compute_clusters(first, world):
    first.options["metadata"] = {"name": "renamed"}
    first.save()
    assert codes(first.apply()) == []
    assert first.owners() == {"renamed"}
    assert codes(ticked(first)) == []


def test_two_ticks_of_different_folders_at_once_do_not_act_on_one_target(tmp_path, first, world):
    second = folder(tmp_path, "second", world, reports=SMALL)
    met: list[TickOutcome] = []
    meet = DoAt("tick.before_statement", lambda: met.append(ticked(second, scheduled=True)))
    assert tick(first.workspace(faults=meet), Ticking(first.open)).ok
    assert [(codes(each), each.ok, each.actions) for each in met] == [(["already_running"], True, ())]
    assert set(world.replicas("reports")) == {"main"}
    assert ticked(second).ok
    assert set(world.replicas("reports")) == {"main", "r_25cc"}


def test_an_apply_beside_a_tick_of_another_folder_leaves_its_rows_to_the_next_run(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, reports=SMALL)
    with MemoryTarget(world) as other:
        assert other.try_lock(TARGET_LOCK)
        waiting = second.apply()
        assert codes(first.apply()) == [], "nothing of it waits"
    assert (codes(waiting), waiting.ok) == (["projection_pending"], True)
    assert "another run is using the target" in waiting.diagnostics[0].message
    assert codes(second.apply()) == []
    assert first.owners() == {"first", "second"}


def test_folders_that_claim_a_compute_cluster_at_the_same_time_both_leave_it_alone(tmp_path, world):
    # A target without locks, and strategies of different types: no row replaces another one.
    world.without_locks()
    first = folder(tmp_path, "first", world, apply=False, serving=SMALL)
    second = folder(
        tmp_path, "second", world, apply=False, serving={"target": "prod", "burst": {"burst_replica_size": "800cc"}}
    )
    first.apply(faults=DoAt("strategies.before_write_rows", second.apply))
    assert first.owners() == {"first", "second"}
    for each in (first, second):
        assert codes(ticked(each)) == CLAIMED
    assert world.replicas("serving") == {"main": "100cc"}
    del second.section["strategies"]["serving"]
    second.save()
    assert codes(second.apply()) == []
    assert codes(ticked(first)) == []
    assert first.owners() == {"first"}


def test_a_plan_says_that_a_compute_cluster_belongs_to_another_folder_and_not_to_which(tmp_path, first, world):
    second = folder(tmp_path, "second", world, apply=False, serving=SMALL)
    [found] = with_what_if(second.workspace(), second.plan()).what_if
    assert (found.code, found.actions) == ("compute_cluster_claimed", ())
    assert "first" not in found.said


SIZE = Address("strategy.serving.target_size")
OTHER = "graph.other"


@pytest.fixture
def sized(tmp_path):
    """Strategies that are applied, on a target that knows their sizes."""
    made = Projected(tmp_path)
    made.converge()
    return made


def misspell(cluster: Projected) -> None:
    """Declare a size that the target does not have, beside a graph that has nothing to do with it."""
    cluster.serving["target_size"]["target_size"] = "51cc"
    cluster.graphs["other"] = {}
    cluster.save()


def test_the_graph_has_a_look_at_each_target_before_its_strategies(tmp_path):
    cluster = Projected(tmp_path)
    cluster.section["targets"]["spare"] = {"kind": "materialize", "url": {"env": "OTHER_URL"}}
    cluster.section["strategies"]["reports"] = {"target": "spare", "target_size": {"target_size": "25cc"}}
    cluster.save()
    assert cluster.import_().ok
    graph = plan(cluster.workspace()).plan.graph
    text = to_text(graph)
    assert [line for line in text.splitlines() if "strategy_target" in line] == [
        "  target.prod -> strategy.serving.burst [strategy_target: prod]",
        "  target.prod -> strategy.serving.target_size [strategy_target: prod]",
        "  target.spare -> strategy.reports.target_size [strategy_target: spare]",
    ]
    assert "  check target.prod\n  check target.spare\n\nLayer 2:\n" in text
    looks = [each for each in to_json(graph)["nodes"] if each["kind"] == "target"]
    assert [(each["change"], each["locks"]) for each in looks] == [
        (None, [{"key": "compute:prod", "mode": "exclusive"}]),
        (None, [{"key": "compute:spare", "mode": "exclusive"}]),
    ]
    staged = {edge.before for edge in atomic_graph(graph).edges if edge.after == "barrier.prepared"}
    assert {"target.prod", "target.spare", SIZE, BURST} <= staged


@pytest.mark.parametrize("atomic", [False, True])
def test_a_size_that_the_target_lacks_keeps_only_its_compute_cluster_out(sized, atomic):
    for number in range(9):
        sized.section["strategies"][f"c{number}"] = {"target": "prod", "target_size": {"target_size": "50cc"}}
    sized.section["strategies"]["c0"]["target_size"]["target_size"] = "51cc"
    sized.save()
    found = rulings(sized.apply(atomic=atomic).changes)
    landed = {address for address, ruling in found.items() if ruling == "create applied"}
    assert landed == (set() if atomic else {f"strategy.c{number}.target_size" for number in range(1, 9)})
    assert found["strategy.c0.target_size"].startswith("create blocked:")


def test_a_size_that_the_target_lacks_keeps_the_strategies_as_they_are(sized):
    before, rows = dict(sized.state.resources), sized.rows()
    misspell(sized)
    found = sized.apply()
    (said,) = [each for each in found.diagnostics if each.severity is Severity.ERROR]
    assert (said.code, said.path) == (Code.REPLICA_SIZE_INVALID, "compute.strategies.serving")
    assert said.message == "target prod has no size 51cc; it has 25cc, 50cc, 100cc, 200cc, 800cc"
    assert not found.ok
    assert rulings(found.changes)[SIZE] == "update blocked:dependency_not_applied"
    assert OTHER in sized.state.resources
    assert {name: sized.state.resources[name] for name in before} == before
    assert sized.rows() == rows
    sized.serving["target_size"]["target_size"] = "100cc"
    sized.save()
    assert codes(sized.apply()) == []
    assert sized.rows()["u1", "target_size"]["target_size"] == "100cc"


def test_an_atomic_run_lands_nothing_of_it_and_a_dry_run_says_so(sized):
    before = sized.state.resources
    misspell(sized)
    foreseen = dry_run(sized.workspace())
    assert (codes(foreseen)[0], foreseen.ok) == ("replica_size_invalid", False)
    found = sized.apply(atomic=True)
    assert codes(found) == ["replica_size_invalid", "changeset_rolled_back"]
    assert sized.state.resources == before
    (record,) = [each for each in map(sized.ledger().changeset, sized.ledger().changeset_keys()[:1]) if each]
    assert (record.error or "").startswith("target.prod: replica_size_invalid: ")


def test_a_dry_run_looks_and_writes_nothing(sized):
    sized.serving["target_size"]["target_size"] = "100cc"
    sized.save()
    asked, files = sized.world.statements, sized.files()
    outcome = dry_run(sized.workspace())
    assert outcome.ok
    assert {each.outcome for each in outcome.results} == {"dry_run"}
    assert sized.world.statements > asked
    assert sized.files() == files


@pytest.mark.parametrize("atomic", [False, True], ids=["best-effort", "atomic"])
def test_the_look_is_part_of_the_recorded_run(sized, atomic):
    sized.serving["target_size"]["target_size"] = "100cc"
    sized.save()
    assert codes(sized.apply(atomic=atomic)) == []
    ledger = sized.ledger()
    run = ledger.run_of(ledger.changeset_keys()[0])
    assert run is not None
    assert [node.id for node in run.nodes][:2] == ["target.prod", SIZE]


def test_only_what_is_new_is_asked_for(sized):
    sized.world.sizes = type(sized.world.sizes)({"25cc": 0.25})
    sized.serving["max_replicas"] = 3
    sized.save()
    assert codes(sized.apply()) == []
    assert sized.rows()["u1", "target_size"] == {"target_size": "50cc", "cooldown_s": 0}


@pytest.mark.parametrize("spoil", ["url", "answer", "grant", "sizes"])
def test_what_a_target_does_not_say_stops_no_apply(sized, spoil):
    misspell(sized)
    match spoil:
        case "url":
            sized.variables.clear()
        case "answer":
            sized.world.reachable = False
        case "grant":
            sized.world.denied.add(("SELECT", "mz_catalog.mz_clusters"))
        case "sizes":
            sized.world.sizes = type(sized.world.sizes)({})
    found = sized.apply()
    assert (found.ok, found.converged) == (True, True)
    assert sized.state.resources[SIZE] != sized.state.resources[BURST]


def test_a_managed_compute_cluster_is_named_with_its_first_strategies(tmp_path):
    cluster = Projected(tmp_path)
    cluster.world.clusters["serving"].managed = True
    assert cluster.import_().ok
    found = cluster.apply()
    assert [(each.code, each.severity) for each in found.diagnostics] == [
        (Code.COMPUTE_CLUSTER_MANAGED, Severity.WARNING)
    ]
    assert found.converged
    cluster.serving["burst"]["cooldown_s"] = 30
    cluster.save()
    assert codes(cluster.apply()) == []
