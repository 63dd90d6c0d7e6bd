"""Stories of a graph whose data is gone: plan and apply say it, and it comes back or is given up with an approval."""

from __future__ import annotations

from tests.support.cluster import (
    GRAPH,
    QUERY,
    SCHEMA_ADDRESS,
    WIDER,
    codes,
    found,
)


def test_a_plan_and_an_apply_warn_of_a_graph_that_is_gone(cluster):
    """Nothing of what is declared changed, so that nothing else would say it."""
    cluster.converge()
    assert codes(cluster.plan()) == []
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    for outcome in (cluster.plan(), cluster.apply()):
        assert [(d.code, d.path, d.severity) for d in outcome.diagnostics] == [("graph_vanished", GRAPH, "warning")]
    cluster.write("people.gq", f"// edited\n{QUERY}")
    assert codes(cluster.apply()) == ["graph_vanished"]
    cluster.make_graph("knowledge")
    assert codes(cluster.apply()) == []


def test_a_migration_of_a_graph_that_is_gone_says_how_it_comes_back(cluster):
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    assert [(each.path, each.code) for each in planned.obstacles] == [(SCHEMA_ADDRESS, "graph_vanished")]
    outcome = cluster.apply()
    assert not outcome.ok
    assert "restore its folder from a backup" in (found(outcome, "schema_apply_failed").fix or "")


def test_a_graph_that_is_back_is_not_created_again(cluster):
    """Its creation would give up the data that is there: it is refused before anybody approves it."""
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert "graph_vanished" in codes(cluster.refresh())
    assert "graph_exists" not in codes(cluster.plan())
    cluster.make_graph("knowledge")
    planned = cluster.plan()
    assert found(planned, "graph_exists").fix == "record the graph that is back: gitops refresh"
    assert cluster.refresh().ok
    assert cluster.plan().plan.changes == ()
