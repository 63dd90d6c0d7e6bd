"""Rows that a migration dropped come back in a request of their own: planned, approved, applied once, recorded."""

from __future__ import annotations

import pytest

from gitops.graph import show
from gitops.graph.history.verify import verify_graph
from tests.scenario.test_way_back import TWO, load, load_rows
from tests.support.cluster import SCHEMA, Cluster, FailAt, codes, found, lance_engine, rulings

TOWNS = f"{TWO}edge Lives: Person -> City\n"


@pytest.fixture(params=["twin", "lance"])
def cluster(request, tmp_path):
    """Type City had four rows in version 2, and is dropped."""
    real = request.param == "lance"
    cluster = Cluster(tmp_path, memory=not real, engine=lance_engine() if real else None)
    cluster.write("knowledge.pg", TWO)
    cluster.converge()
    load(cluster, "City", "name", 4)
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    return cluster


def declare(cluster, version=2, types=("City",), schema=TWO):
    cluster.options["restores"] = {"knowledge": {"version": version, "types": list(types)}}
    cluster.write("knowledge.pg", schema)
    cluster.save()


def rows(cluster):
    return cluster.engine.read(cluster.uri("knowledge")).rows


def test_rows_come_back_behind_an_approval_and_once(cluster):
    declare(cluster)
    first = cluster.apply()
    assert rulings(first.changes)["restore.knowledge"] == "create blocked:approval_required"
    assert "schema.knowledge" not in cluster.plan().plan.changes
    approved = cluster.approve("restore.knowledge")
    assert approved.ok, approved.diagnostics
    cluster.converge()
    assert rows(cluster) == 4
    version = cluster.engine.read(cluster.uri("knowledge")).manifest_version
    assert cluster.plan().plan.changes == ()
    cluster.converge()
    # What was restored is recorded; taking the declaration out changes nothing in the graph.
    del cluster.options["restores"]
    cluster.save()
    assert rulings(cluster.plan().plan.changes) == {"restore.knowledge": "delete applied"}
    cluster.converge()
    seen = cluster.engine.read(cluster.uri("knowledge"))
    assert (seen.rows, seen.manifest_version) == (4, version)


def test_schema_and_rows_come_back_in_one_run(cluster):
    declare(cluster)
    plan = cluster.plan().plan
    assert [(e.before, e.after, e.reason) for e in plan.graph.edges] == []
    (gate,) = plan.approvals_required
    assert (gate.resource, gate.tier) == ("restore.knowledge", "irreversible")
    assert plan.change("restore.knowledge").details == (
        "City: the rows of version 2 come back, in place of those that are there now",
    )
    cluster.approve("restore.knowledge")
    (edge,) = (e for e in cluster.plan().plan.graph.edges if e.after == "restore.knowledge")
    assert (edge.before, edge.reason) == ("schema.knowledge", "schema_restore")
    cluster.converge()
    assert rows(cluster) == 4


def test_what_cannot_be_restored_is_an_obstacle_of_the_plan(cluster):
    declare(cluster, version=99)
    outcome = cluster.plan()
    assert not outcome.lands
    assert "graph_version_unknown" in codes(outcome)
    declare(cluster, types=["Town"])
    assert found(cluster.plan(), "graph_restore_refused").path == "restore.knowledge"


def test_an_approval_is_for_one_version_and_one_graph(cluster):
    declare(cluster)
    cluster.approve("restore.knowledge")
    declare(cluster, version=1)
    assert "approval_stale" in codes(cluster.plan())


@pytest.mark.parametrize("atomic", [False, True])
def test_a_run_that_ends_after_the_restore_is_run_again(cluster, atomic):
    declare(cluster)
    cluster.approve("restore.knowledge")
    first = cluster.apply(faults=FailAt("cluster_apply.before_state_write"), atomic=atomic)
    assert not first.state_written
    assert rows(cluster) == 4
    assert cluster.apply(atomic=atomic).converged
    assert rows(cluster) == 4
    assert cluster.plan().plan.changes == ()


@pytest.mark.parametrize("atomic", [False, True])
def test_an_edge_whose_end_is_gone_refuses_the_whole_restore(tmp_path, atomic):
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.write("knowledge.pg", TOWNS)
    cluster.converge()
    cities = [{"type": "City", "data": {"name": f"n{n}"}} for n in range(2)]
    people = [{"type": "Person", "data": {"handle": "ada"}}]
    load_rows(cluster, [*cities, *people, {"edge": "Lives", "from": "ada", "to": "n1"}])
    cluster.write("knowledge.pg", SCHEMA)
    cluster.converge()
    for types, refused in ((["Lives"], True), (["Lives", "City"], False)):
        declare(cluster, version=2, types=types, schema=TOWNS)
        cluster.approve("restore.knowledge")
        outcome = cluster.apply(atomic=atomic)
        assert ("graph_restore_refused" in codes(outcome)) == refused
        # Nothing was done, and that is known: no later run has to find out.
        assert "cluster_recovery_pending" not in codes(outcome)
        assert outcome.converged != refused
    assert rows(cluster) == 4
    assert [row["name"] for row in show.read_rows(cluster.uri("knowledge"), "City", 10)] == ["n0", "n1"]
    report = verify_graph(cluster.uri("knowledge"), deep=True)
    assert [each for each in report.findings if each.code != "unreferenced"] == []
