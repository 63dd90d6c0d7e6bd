"""Stories of plans that are green only if an apply of them lands, each held to the apply that follows it."""

from __future__ import annotations

import pytest

from gitops.cluster.model.ledger import IntentKind, LedgerState
from gitops.cluster.model.outcome import PlanOutcome
from tests.scenario.test_recovery import OTHER, plant_intent
from tests.support.cluster import GRAPH, RETYPED, SCHEMA_ADDRESS, WIDER, Cluster, FailAt, codes


def obstacles(outcome: PlanOutcome) -> list[tuple[str, str]]:
    return [(each.path, each.code) for each in outcome.obstacles]


def assert_does_not_land(cluster: Cluster, *expected: tuple[str, str]) -> None:
    """The plan names these obstacles and no other, stays a plan, and an apply of it does not land."""
    planned = cluster.plan()
    assert planned.ok
    assert obstacles(planned) == list(expected)
    assert not planned.lands
    outcome = cluster.apply()
    assert not (outcome.ok and outcome.converged)


def assert_lands(cluster: Cluster) -> None:
    assert cluster.plan().lands
    outcome = cluster.apply()
    assert (outcome.ok, outcome.converged) == (True, True)


def test_a_first_plan_needs_a_ledger(cluster):
    assert_does_not_land(cluster, ("__cluster/state.json", "state_missing"))
    assert cluster.import_().ok
    assert_lands(cluster)
    assert cluster.plan().lands


def test_a_property_cannot_get_another_type(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RETYPED)
    assert codes(cluster.plan()) == ["graph_migration_unsupported"]
    assert_does_not_land(cluster, (SCHEMA_ADDRESS, "graph_migration_unsupported"))


def test_a_root_is_in_the_way_of_a_new_graph(cluster):
    cluster.put_state(LedgerState(revision=1))
    cluster.make_graph("knowledge", OTHER)
    assert_does_not_land(cluster, (GRAPH, "graph_exists"))


def test_a_graph_that_does_not_open_is_not_migrated(cluster):
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.write("knowledge.pg", WIDER)
    assert_does_not_land(cluster, (SCHEMA_ADDRESS, "graph_unreadable"))


def test_a_delete_waits_for_its_approval(cluster):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    waiting = ["graph.knowledge", "query.knowledge.find_person", "schema.knowledge"]
    named = [path for path, code in obstacles(cluster.plan()) if code == "apply_dependency_blocked"]
    assert set(waiting) <= set(named)
    assert cluster.approve(GRAPH).ok
    assert_lands(cluster)


def test_an_approved_delete_of_a_graph_that_does_not_open_waits(cluster):
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    planned = cluster.plan()
    assert GRAPH in {path for path, _ in obstacles(planned)}
    assert not cluster.apply().converged


def test_a_delete_that_a_backup_of_the_ledger_forgot_lands(cluster):
    """The graph is gone, so that the second use of its approval finds nothing to delete."""
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    backup = {key: cluster.stored(key) for key in cluster.files()}
    assert_lands(cluster)
    for key, document in backup.items():
        cluster.plant(key, document)
    assert "graph_vanished" in codes(cluster.refresh())
    assert_lands(cluster)


def test_a_graph_that_came_back_with_a_backup_of_the_ledger_is_not_deleted_again(cluster):
    """The plan says what the engine will answer: the approval is unused in the ledger, and used by the marker of the graph."""
    cluster.converge()
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    backup = {key: cluster.stored(key) for key in cluster.files()}
    bring_back = cluster.twin.back_up(cluster.uri("knowledge"))
    assert_lands(cluster)
    bring_back()
    for key, document in backup.items():
        cluster.plant(key, document)
    assert [each.message for each in cluster.plan().obstacles if each.code == "graph_restored"] == [
        f"{cluster.uri('knowledge')} was deleted before"
    ]
    assert not cluster.apply().converged
    assert cluster.live("knowledge") is not None


def test_an_interrupted_migration_that_recovery_completes_lands(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=FailAt("cluster_apply.after_schema_apply"))
    assert "cluster_recovery_pending" in codes(cluster.plan())
    assert_lands(cluster)


def test_an_interrupted_migration_that_nobody_can_settle_does_not(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", OTHER)
    plant_intent(cluster, IntentKind.SCHEMA_APPLY, WIDER)
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    assert (SCHEMA_ADDRESS, "apply_dependency_blocked") in obstacles(planned)
    assert not cluster.apply().converged


@pytest.mark.parametrize("by_hand", [OTHER, RETYPED])
def test_a_schema_changed_by_hand_is_not_migrated_further(cluster, by_hand):
    """The recorded schema is not the live one: what would be planned from it is not what would be done."""
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.make_graph("knowledge", by_hand)
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    outcome = cluster.apply()
    assert planned.lands is (outcome.ok and outcome.converged)


def test_text_and_json_say_it(cluster):
    from gitops.render.json import envelope
    from gitops.render.text import to_text

    cluster.converge()
    assert envelope(cluster.plan())["lands"] is True
    cluster.write("knowledge.pg", RETYPED)
    planned = cluster.plan()
    form = envelope(planned)
    assert form["ok"] is True
    assert form["lands"] is False
    assert [each["code"] for each in form["obstacles"]] == ["graph_migration_unsupported"]
    assert f"    {SCHEMA_ADDRESS}: changing property type of `Person.born`" in to_text(planned)


def test_only_a_plan_reports_that_a_migration_cannot_be_previewed(cluster):
    cluster.converge()
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.write("knowledge.pg", WIDER)
    assert "schema_preview_unavailable" in codes(cluster.plan())
    assert codes(cluster.apply()).count("schema_preview_unavailable") == 0


def test_an_approval_is_stale_also_for_a_graph_that_is_created(cluster):
    """It was given to delete a graph, which was taken out of the ledger in another way and is declared again."""
    cluster.converge()
    graphs, policies = cluster.graphs, cluster.policies
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve(GRAPH).ok
    cluster.put_state(LedgerState(revision=7))
    cluster.graphs, cluster.policies = graphs, policies
    cluster.save()
    assert [(d.code, d.path) for d in cluster.plan().diagnostics if d.code == "approval_stale"] == [
        ("approval_stale", GRAPH)
    ]
