"""Stories of the control plane: plan, and apply of the catalog.

Every story runs over a ledger folder on disk and over the ledger in memory; graphs are those of the in-memory engine.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.ledger.layout import LOCK, STATE
from gitops.cluster.model.address import Address, policy_address, query_address
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.resource import graph_composite
from gitops.core.canonical import digest
from tests.support.cluster import (
    ALL,
    GRAPH,
    OTHER_QUERY,
    POLICY,
    QUERY,
    QUERY_ADDRESS,
    RETYPED,
    SCHEMA,
    SCHEMA_ADDRESS,
    WIDER,
    Cluster,
    DoAt,
    FailAt,
    codes,
    found,
    gates,
    remove_graph,
    rulings,
)


def blob(cluster: Cluster, kind: str, text: str) -> bytes | None:
    place, suffix = ("query/knowledge/find_person", "gq") if kind == "query" else ("policy/base", "yaml")
    return cluster.stored(f"__cluster/resources/{place}/{digest(text.encode())}.{suffix}")


# Plan.


def test_plan_without_a_ledger_is_all_creates_and_leaves_nothing_behind(cluster):
    outcome = cluster.plan()
    assert outcome.ok
    assert rulings(outcome.plan.changes) == dict.fromkeys(sorted(ALL), "create applied")
    assert outcome.observations.acquired_lock_id is not None
    assert not cluster.locked
    assert cluster.files() == []


def test_plan_lists_create_delete_and_update_by_address(cluster):
    cluster.put_state(
        LedgerState(
            resources={
                Address(SCHEMA_ADDRESS): AppliedResource("0" * 64),
                Address(GRAPH): AppliedResource("1" * 64),
                Address("policy.old"): AppliedResource("2" * 64, ("cluster",)),
            }
        )
    )
    outcome = cluster.plan()
    assert [(c.address, c.action.value) for c in outcome.plan.changes] == [
        (GRAPH, "update"),
        ("policy.base", "create"),
        ("policy.old", "delete"),
        (QUERY_ADDRESS, "create"),
        (SCHEMA_ADDRESS, "update"),
    ]


def test_plan_reads_a_ledger_without_optional_sections(cluster):
    cluster.plant(STATE, b'{\n  "version": 1,\n  "applied_revision": { "resources": {} }\n}\n')
    seen = cluster.plan().observations
    assert (seen.state_found, seen.state_revision, seen.resource_count) == (True, 0, 0)
    assert seen.state_cas == "sha256:27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_plan_reports_revision_and_the_token_of_the_exact_bytes(cluster):
    cluster.put_state(LedgerState(revision=7))
    seen = cluster.plan().observations
    assert seen.state_revision == 7
    assert seen.state_cas == "sha256:" + digest(cluster.state_bytes)
    assert not seen.held.held
    assert seen.acquired_lock_id is not None


@pytest.mark.parametrize("verb", ["plan", "apply", "refresh", "import_", "approve"])
def test_a_held_lock_stops_the_verb_and_names_the_way_out(cluster, verb):
    cluster.converge()
    before = cluster.state_bytes
    lock = cluster.hold_lock()
    outcome = cluster.approve(GRAPH) if verb == "approve" else getattr(cluster, verb)()
    assert codes(outcome) == ["state_lock_held"]
    assert found(outcome, "state_lock_held").message == (
        "the ledger is locked by apply since 2026-06-11T07:59:00Z, for 60 s (process 4711); "
        "if that process has ended: gitops force-unlock 01JZ0000000000000000000CCC"
    )
    if verb != "approve":
        assert outcome.observations.held.info.operation == "apply"
        assert outcome.observations.lock_age_seconds == 60
        assert outcome.observations.acquired_lock_id is None
        assert not getattr(outcome, "changes", ())
        assert getattr(outcome, "plan", None) is None
    assert cluster.stored(LOCK) == lock
    assert cluster.state_bytes == before


def test_a_lock_switched_off_is_a_warning_and_no_lock_file_ever(cluster):
    cluster.options["state"] = {"lock": False}
    cluster.save()
    cluster.put_state(LedgerState(revision=1))
    seen = []
    outcome = cluster.apply(faults=DoAt("cluster_apply.before_state_write", lambda: seen.append(cluster.locked)))
    assert outcome.ok
    assert outcome.converged
    assert codes(outcome) == ["state_lock_disabled"]
    assert seen == [False]
    assert outcome.observations.acquired_lock_id is None


def test_plan_previews_a_schema_update_on_the_live_graph(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    change = cluster.plan().plan.change(SCHEMA_ADDRESS)
    assert change.migration.supported
    assert [s["kind"] for s in change.migration.steps] == ["add_property"]


def test_plan_shows_a_migration_that_cannot_be_done(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RETYPED)
    outcome = cluster.plan()
    assert outcome.ok
    migration = outcome.plan.change(SCHEMA_ADDRESS).migration
    assert not migration.supported
    assert "unsupported_change" in [s["kind"] for s in migration.steps]


def test_plan_of_a_schema_update_without_a_live_graph_warns_and_stays_ok(cluster):
    cluster.seed()
    cluster.write("knowledge.pg", WIDER)
    outcome = cluster.plan()
    assert outcome.ok
    assert found(outcome, "schema_preview_unavailable").path == SCHEMA_ADDRESS
    assert outcome.plan.change(SCHEMA_ADDRESS).migration is None


def test_plan_opens_no_graph_unless_a_schema_is_updated(cluster):
    cluster.converge()
    cluster.write("people.gq", OTHER_QUERY)
    cluster.twin.calls.clear()
    assert cluster.plan().ok
    assert set(cluster.twin.calls) == {"exists"}


def test_plan_of_a_removed_graph_has_one_gate_for_the_subtree(cluster):
    cluster.converge()
    remove_graph(cluster)
    outcome = cluster.plan()
    assert gates(outcome) == {GRAPH: False}
    assert rulings(outcome.plan.changes)[GRAPH] == "delete blocked:approval_required"


def test_plan_of_edited_bindings_is_an_update_of_equal_digests(cluster):
    cluster.converge()
    cluster.policies["base"] = ["knowledge", "cluster"]
    cluster.save()
    (change,) = cluster.plan().plan.changes
    assert (change.address, change.action.value, change.binding_change) == ("policy.base", "update", True)
    assert change.before == change.after


def test_plan_warns_of_a_sidecar_and_leaves_it_alone(cluster):
    cluster.converge()
    key = "__cluster/recoveries/01JZ0000000000000000000DDD.json"
    cluster.plant(key, b"{}\n")
    outcome = cluster.plan()
    assert outcome.ok
    assert found(outcome, "cluster_recovery_pending").path == key
    assert cluster.stored(key) == b"{}\n"


# Apply of the catalog.


def test_apply_without_a_ledger_asks_for_an_import(cluster):
    outcome = cluster.apply()
    assert codes(outcome) == ["state_missing"]
    assert "import" in found(outcome, "state_missing").message
    assert cluster.files() == []


def test_apply_on_a_seeded_ledger_publishes_query_and_policy(cluster):
    cluster.seed()
    outcome = cluster.apply()
    assert outcome.ok
    assert (outcome.applied_count, outcome.deferred_count, outcome.converged) == (2, 0, True)
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()
    state = cluster.state
    assert state.revision == 2
    assert state.config_digest == cluster.desired().config_digest
    assert state.resources[GRAPH].digest == graph_composite(
        "knowledge", digest(SCHEMA.encode()), {"find_person": digest(QUERY.encode())}
    )
    assert state.resources["policy.base"].applies_to == ("graph.knowledge",)
    assert state.resources[QUERY_ADDRESS].applies_to is None


def test_apply_of_a_converged_cluster_writes_nothing(cluster):
    cluster.converge()
    before = cluster.state_bytes
    outcome = cluster.apply()
    assert outcome.ok
    assert (outcome.changes, outcome.state_written, outcome.converged) == ((), False, True)
    assert cluster.state_bytes == before


def test_apply_of_an_edited_query_keeps_the_old_blob_and_derives_the_graph(cluster):
    cluster.converge()
    cluster.write("people.gq", OTHER_QUERY)
    outcome = cluster.apply()
    assert rulings(outcome.changes) == {GRAPH: "update derived", QUERY_ADDRESS: "update applied"}
    assert (outcome.applied_count, outcome.deferred_count) == (1, 0)
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "query", OTHER_QUERY) == OTHER_QUERY.encode()
    assert cluster.state.digests() == cluster.desired().digests()


def test_removed_query_and_policy_leave_the_ledger_but_not_the_catalog(cluster):
    cluster.converge()
    cluster.graphs["knowledge"] = {}
    cluster.policies = {}
    cluster.save()
    outcome = cluster.apply()
    assert outcome.converged
    assert set(cluster.state.resources) == {GRAPH, SCHEMA_ADDRESS}
    assert set(cluster.state.statuses) == {GRAPH, SCHEMA_ADDRESS}
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()


@pytest.mark.parametrize("verb", ["plan", "apply", "refresh", "import_"])
def test_an_invalid_folder_leaves_no_trace(cluster, verb):
    cluster.write("people.gq", "query find_person(")
    outcome = getattr(cluster, verb)()
    assert not outcome.ok
    assert cluster.files() == []


def test_bindings_that_an_older_ledger_lacks_are_filled_in_once(cluster):
    cluster.converge()
    state = cluster.state
    bare = AppliedResource(state.resources["policy.base"].digest)
    cluster.put_state(replace(state, resources={**state.resources, "policy.base": bare}))
    assert rulings(cluster.plan().plan.changes) == {"policy.base": "update applied"}
    assert cluster.apply().applied_count == 1
    assert cluster.state.resources["policy.base"].applies_to == ("graph.knowledge",)
    assert not cluster.apply().state_written


def test_a_failed_state_write_reports_what_is_on_disk(cluster):
    cluster.seed()
    before = cluster.state_bytes
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_state_write"))
    assert "injected_failpoint" in codes(outcome)
    assert (outcome.state_written, outcome.converged) == (False, False)
    assert outcome.state.statuses == {}
    assert outcome.observations.state_revision == 1
    assert cluster.state_bytes == before
    assert cluster.apply().converged


def test_a_corrupt_blob_is_replaced_and_a_correct_one_reused(cluster):
    cluster.seed()
    for address, text in ((query_address("knowledge", "find_person"), QUERY), (policy_address("base"), POLICY)):
        kind, suffix = ("query/knowledge", "gq") if address.kind == "query" else ("policy", "yaml")
        key = f"__cluster/resources/{kind}/{address.name}/{digest(text.encode())}.{suffix}"
        cluster.plant(key, b"corrupt" if address.kind == "query" else text.encode())
    assert cluster.apply().converged
    assert blob(cluster, "query", QUERY) == QUERY.encode()
    assert blob(cluster, "policy", POLICY) == POLICY.encode()


def test_only_the_name_of_the_cluster_changed(cluster):
    cluster.converge()
    cluster.options["metadata"] = {"name": "archive"}
    cluster.save()
    outcome = cluster.apply()
    assert (outcome.changes, outcome.converged, outcome.state_written) == ((), True, True)
    assert cluster.state.config_digest == cluster.desired().config_digest
    assert not cluster.apply().state_written
