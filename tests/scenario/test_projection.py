"""The rows of strategies on a target follow the ledger: after each apply, whatever dies or does not answer on the way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gitops.cluster.model.address import Address
from gitops.cluster.model.compute import ComputeTarget, owned_rows
from gitops.cluster.plan.plan import plan
from gitops.cluster.targets.port import StrategyRow
from gitops.core.diagnostics import Severity
from gitops.core.errors import UsageError
from gitops.render.change_rows import text_diff
from gitops.render.graph import to_mermaid
from gitops.repository.wiring.stores import declared_target
from tests.support.cluster import START, FailAt, codes, rulings
from tests.support.projected import Projected
from tests.support.target_world import Fault

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
        "set the variable, in a CI job from a secret, and repeat the command",
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
    assert 'subgraph g1["compute cluster serving"]\n    n1["update strategy burst"]' in to_mermaid(found.plan.graph)
