"""Stories of serving: the applied revision can be served, or everything that stands in the way is said at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.ledger.layout import STATE, intent_key
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.outcome import OfferedGraph
from gitops.core.canonical import digest
from gitops.core.errors import GitopsError
from tests.support.cluster import OTHER_QUERY, POLICY, QUERY, SCHEMA, WIDER, Cluster, codes, found

OPERATION = "01JZ0000000000000000000AAA"
QUERY_BLOB = f"__cluster/resources/query/knowledge/find_person/{digest(QUERY.encode())}.gq"
POLICY_BLOB = f"__cluster/resources/policy/base/{digest(POLICY.encode())}.yaml"


def edit(cluster: Cluster, **resources: AppliedResource | None) -> None:
    """Record something else; `__` stands for the dots of an address."""
    state = cluster.state
    changed = {**state.resources, **{name.replace("__", "."): r for name, r in resources.items()}}
    cluster.put_state(replace(state, resources={text: r for text, r in changed.items() if r is not None}))


def publish(cluster: Cluster, query: str) -> None:
    """Put another text of the query into the catalog and the ledger, as a release with other rules might have."""
    content = query.encode()
    cluster.plant(f"__cluster/resources/query/knowledge/find_person/{digest(content)}.gq", content)
    edit(cluster, query__knowledge__find_person=AppliedResource(digest(content)))


def test_a_converged_cluster_is_served_as_it_was_applied(cluster):
    cluster.policies["all"] = ["cluster"]
    cluster.save()
    cluster.converge()
    before = {key: cluster.stored(key) for key in cluster.files()}
    outcome = cluster.ready()
    assert outcome.ok
    assert codes(outcome) == []
    schema = digest(SCHEMA.encode())
    assert outcome.graphs == (OfferedGraph("knowledge", cluster.uri("knowledge"), schema, ("find_person",), "base"),)
    assert outcome.cluster_policy == "all"
    assert {key: cluster.stored(key) for key in cluster.files()} == before


def test_what_is_declared_and_not_applied_never_shows(cluster):
    cluster.converge()
    cluster.graphs["second"] = {}
    cluster.write("people.gq", "broken")
    cluster.save()
    assert [g.graph_id for g in cluster.ready().graphs] == ["knowledge"]
    assert cluster.ready().ok


def test_a_held_lock_is_no_obstacle(cluster):
    cluster.converge()
    cluster.hold_lock()
    outcome = cluster.ready()
    assert outcome.ok
    assert outcome.observations.held.held
    assert outcome.observations.acquired_lock_id is None


def test_without_a_ledger_there_is_nothing_to_serve(cluster):
    assert codes(cluster.ready()) == ["cluster_state_missing"]
    cluster.plant(STATE, b"{")
    assert codes(cluster.ready()) == ["invalid_state_json"]


def test_an_empty_revision_is_refused(cluster):
    cluster.put_state(LedgerState(revision=3))
    outcome = cluster.ready()
    assert codes(outcome) == ["cluster_empty"]
    assert outcome.observations.state_revision == 3


def test_07_an_operation_that_is_not_settled_is_refused_until_an_apply_settles_it(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.apply(faults=DieAfterMigration())
    (key,) = cluster.files("__cluster/recoveries")
    problem = found(cluster.ready(), "cluster_recovery_pending")
    assert (problem.severity, problem.path) == ("error", key)
    cluster.apply()
    assert codes(cluster.ready()) == []


def test_an_operation_whose_record_cannot_be_read_is_refused(cluster):
    cluster.converge()
    cluster.plant(intent_key(OPERATION), b"{}")
    problem = found(cluster.ready(), "invalid_recovery_sidecar")
    assert (problem.severity, problem.path) == ("error", intent_key(OPERATION))


class DieAfterMigration:
    def reach(self, point: str) -> None:
        if point == "cluster_apply.after_schema_apply":
            raise GitopsError("injected_failpoint", point)


@pytest.mark.parametrize(
    ("key", "content", "code"),
    [
        (QUERY_BLOB, None, "catalog_payload_missing"),
        (POLICY_BLOB, None, "catalog_payload_missing"),
        (QUERY_BLOB, b"tampered", "catalog_payload_digest_mismatch"),
        (POLICY_BLOB, b"tampered", "catalog_payload_digest_mismatch"),
    ],
)
def test_a_blob_that_is_not_what_was_applied_is_refused(cluster, key, content, code):
    cluster.converge()
    cluster.plant(key, content)
    problem = found(cluster.ready(), code)
    assert problem.severity == "error"
    assert problem.path == ("policy.base" if key == POLICY_BLOB else "query.knowledge.find_person")


def test_a_blob_that_is_no_text_is_refused(cluster):
    cluster.converge()
    content = b"\xff\xfe"
    cluster.plant(f"__cluster/resources/policy/base/{digest(content)}.yaml", content)
    edit(cluster, policy__base=AppliedResource(digest(content), ("graph.knowledge",)))
    assert found(cluster.ready(), "catalog_payload_invalid").path == "policy.base"


def test_a_query_that_does_not_hold_any_more_is_refused_with_its_place(cluster):
    cluster.converge()
    publish(cluster, QUERY.replace("return { $p.handle }", "return { $p.nickname }"))
    problem = found(cluster.ready(), "stored_query_check_failed")
    assert problem.path == "query.knowledge.find_person"
    assert problem.source is not None
    assert problem.source.line == 3
    publish(cluster, "query find_person(")
    assert codes(cluster.ready()) == ["stored_query_invalid"]
    publish(cluster, QUERY.replace("find_person", "other"))
    assert codes(cluster.ready()) == ["stored_query_invalid"]


def test_12_queries_are_checked_against_the_live_schema_and_drift_alone_is_a_warning(cluster):
    cluster.converge()
    cluster.migrate_graph("knowledge", WIDER)
    outcome = cluster.ready()
    assert (outcome.ok, codes(outcome)) == (True, ["schema_drift"])
    publish(cluster, OTHER_QUERY)
    cluster.migrate_graph("knowledge", SCHEMA.replace("  born: I32?\n", ""))
    problem = found(cluster.ready(), "stored_query_check_failed")
    assert problem.path == "query.knowledge.find_person"
    assert "born" in problem.message


def test_a_graph_that_does_not_open_is_refused(cluster):
    cluster.converge()
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    assert codes(cluster.ready()) == ["graph_missing"]
    edit(cluster, schema__knowledge=None)
    assert codes(cluster.ready()) == ["graph_unreadable", "graph_missing"]


def test_policies_are_bound_to_one_scope_each_and_to_what_is_served(cluster):
    cluster.policies["other"] = ["cluster"]
    cluster.save()
    cluster.converge()
    other = cluster.state.resources["policy.other"].digest
    edit(cluster, policy__other=AppliedResource(other, ("graph.knowledge",)))
    conflict = found(cluster.ready(), "policy_scope_conflict")
    assert (conflict.path, conflict.message) == ("graph.knowledge", "more than one policy is bound to it: base, other")
    kept = cluster.state.resources["policy.other"].digest
    edit(cluster, policy__other=AppliedResource(kept, ("graph.elsewhere",)))
    assert codes(cluster.ready()) == ["policy_binding_unknown"]
    edit(cluster, policy__other=AppliedResource(kept))
    assert codes(cluster.ready()) == ["policy_bindings_missing"]


def test_everything_is_said_at_once_and_nothing_is_served(cluster):
    cluster.converge()
    cluster.plant(QUERY_BLOB, None)
    cluster.plant(intent_key(OPERATION), b"{}")
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    edit(
        cluster,
        policy__base=AppliedResource(digest(POLICY.encode())),
        query__gone__q=AppliedResource(digest(QUERY.encode())),
    )
    outcome = cluster.ready()
    assert sorted(codes(outcome)) == [
        "catalog_payload_missing",
        "catalog_payload_missing",
        "dangling_graph_reference",
        "graph_missing",
        "invalid_recovery_sidecar",
        "policy_bindings_missing",
    ]
    assert outcome.graphs == ()


def test_a_broken_header_is_refused_before_the_ledger_is_looked_for(cluster):
    cluster.converge()
    cluster.options["storage"] = "ftp://somewhere"
    cluster.save()
    assert codes(cluster.ready()) == ["invalid_storage_root"]
