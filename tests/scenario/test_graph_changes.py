"""Stories of apply on graphs: creates, migrations, approvals, deletes, lost graphs, and the real engine with its rows."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace

import pytest

from gitops.cluster.apply.drift import drift
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.session.validate import validate
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.graph import read
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.cluster import (
    ALL,
    COMMENTED,
    GRAPH,
    OTHER_QUERY,
    QUERY,
    QUERY_ADDRESS,
    RETYPED,
    SCHEMA,
    SCHEMA_ADDRESS,
    START,
    WIDER,
    Cluster,
    codes,
    found,
    gates,
    lance_engine,
    remove_graph,
    rulings,
    statuses,
)
from tests.support.faults import DoAt, FailAt
from tests.support.ids import SequentialIds
from tests.support.memory_store import BrokenStore

# Graphs and schemas.


@pytest.mark.parametrize("workers", [1, 4])
def test_one_apply_creates_graph_schema_query_and_policy(cluster, workers):
    cluster.workers = workers
    cluster.put_state(LedgerState())
    outcome = cluster.apply(actor="sam")
    assert rulings(outcome.changes) == dict.fromkeys(sorted(ALL), "create applied")
    assert outcome.converged
    assert cluster.live("knowledge") == SCHEMA
    assert cluster.sidecars == []
    assert statuses(outcome.state) == dict.fromkeys(sorted(ALL), "applied")


def test_junk_at_the_root_blocks_the_graph_and_what_needs_it(cluster):
    cluster.put_state(LedgerState())
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    outcome = cluster.apply()
    assert found(outcome, "graph_create_failed").path == GRAPH
    assert rulings(outcome.changes) == {
        GRAPH: "create blocked:graph_create_failed",
        "policy.base": "create blocked:dependency_not_applied",
        QUERY_ADDRESS: "create blocked:dependency_not_applied",
        SCHEMA_ADDRESS: "create blocked:dependency_not_applied",
    }
    assert (outcome.applied_count, outcome.deferred_count, outcome.converged) == (0, 4, False)
    assert len(cluster.sidecars) == 1
    assert cluster.state.resources == {}
    assert statuses(cluster.state)[GRAPH] == "blocked:graph_create_failed"


def test_schema_and_dependent_query_move_together(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", WIDER)
    cluster.write("people.gq", QUERY.replace("handle }\n}", "city }\n}"))
    outcome = cluster.apply()
    assert rulings(outcome.changes) == {
        GRAPH: "update derived",
        QUERY_ADDRESS: "update applied",
        SCHEMA_ADDRESS: "update applied",
    }
    assert outcome.converged
    assert cluster.live("knowledge") == WIDER
    assert cluster.sidecars == []


def test_an_unsupported_type_change_is_refused_every_time(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", RETYPED)
    resources = cluster.state.resources
    for _ in range(2):
        outcome = cluster.apply()
        assert found(outcome, "schema_apply_failed").path == SCHEMA_ADDRESS
        assert rulings(outcome.changes)[SCHEMA_ADDRESS] == "update blocked:schema_apply_failed"
        assert cluster.state.resources == resources
        assert cluster.live("knowledge") == SCHEMA
        assert cluster.sidecars == []
    assert not outcome.state_written


@pytest.mark.parametrize("keep_going", [False, True])
def test_after_a_failed_create_the_next_graph_waits_unless_the_run_keeps_going(cluster, keep_going):
    cluster.graphs = {"alpha": {}, "beta": {}}
    cluster.policies = {"wide": ["cluster"], "narrow": ["beta"]}
    cluster.save()
    cluster.put_state(LedgerState())
    cluster.twin.leave_partial_root(cluster.uri("alpha"))
    outcome = cluster.apply(keep_going=keep_going)
    waits = "create applied" if keep_going else "create blocked:dependency_not_applied"
    assert [d.path for d in outcome.diagnostics if d.code == "graph_create_skipped"] == ["graph.beta"][keep_going:]
    assert rulings(outcome.changes) == {
        "graph.alpha": "create blocked:graph_create_failed",
        "graph.beta": "create applied" if keep_going else "create blocked:not_tried",
        "policy.narrow": waits,
        "policy.wide": "create applied",
        "schema.alpha": "create blocked:dependency_not_applied",
        "schema.beta": waits,
    }
    assert outcome.state_written
    assert [s["graph_id"] for s in cluster.sidecars] == ["alpha"]


@pytest.mark.parametrize("error", [GitopsError, RemoteError])
def test_a_run_that_keeps_going_ends_where_the_storage_of_all_graphs_fails(cluster, error):
    cluster.graphs = {"alpha": {}, "beta": {}}
    cluster.policies = {}
    cluster.save()
    cluster.converge()
    cluster.write("alpha.pg", WIDER)
    cluster.write("beta.pg", WIDER)

    def fails():
        raise error(Code.STORAGE_FAILED, "no answer")

    outcome = cluster.apply(keep_going=True, faults=DoAt("cluster_apply.before_schema_apply", fails, 1))
    skipped = [d.path for d in outcome.diagnostics if d.code == "schema_apply_skipped"]
    assert skipped == (["schema.beta"] if error is RemoteError else [])
    assert (rulings(outcome.changes)["schema.beta"] == "update applied") is not bool(skipped)


@pytest.mark.parametrize("workers", [1, 4])
def test_two_graphs_with_spanning_policies_converge_in_one_apply(cluster, workers):
    cluster.workers = workers
    cluster.graphs = {"alpha": {"find_person": "people.gq"}, "beta": {"find_person": "people.gq"}}
    cluster.policies = {"both": ["alpha", "beta"], "wide": ["cluster"]}
    cluster.save()
    cluster.put_state(LedgerState())
    outcome = cluster.apply()
    assert outcome.converged
    assert outcome.applied_count == 8


def test_a_mixed_run_does_what_it_may_and_says_the_rest(cluster):
    cluster.graphs = {"keep": {"find_person": "people.gq"}, "gone": {}}
    cluster.policies = {"base": ["keep", "gone"]}
    cluster.save()
    cluster.converge()
    cluster.write("people.gq", OTHER_QUERY)
    remove_graph(cluster, "gone")
    outcome = cluster.apply()
    assert rulings(outcome.changes) == {
        "graph.gone": "delete blocked:approval_required",
        "graph.keep": "update derived",
        "policy.base": "update blocked:dependency_not_applied",
        "query.keep.find_person": "update applied",
        "schema.gone": "delete blocked:approval_required",
    }
    assert outcome.ok
    assert not outcome.converged
    assert codes(outcome) == ["apply_dependency_blocked"] * 3
    assert cluster.state.config_digest != cluster.desired().config_digest


def test_a_comment_in_a_schema_is_applied_and_does_not_drift(cluster):
    cluster.converge()
    cluster.write("knowledge.pg", COMMENTED)
    assert cluster.apply().converged
    assert cluster.live("knowledge") == COMMENTED
    assert statuses(cluster.refresh().state)[SCHEMA_ADDRESS] == "applied"
    assert cluster.plan().plan.changes == ()


def test_a_schema_that_changes_during_the_run_is_not_used(cluster):
    cluster.put_state(LedgerState())
    point = DoAt("cluster_apply.before_graph_create", lambda: cluster.write("knowledge.pg", WIDER))
    outcome = cluster.apply(faults=point)
    assert found(outcome, "resource_content_changed").path == SCHEMA_ADDRESS
    assert cluster.sidecars == []
    assert cluster.files("graphs") == []
    assert cluster.state.resources == {}
    assert cluster.apply().converged
    assert cluster.live("knowledge") == WIDER


def test_a_blob_that_cannot_be_written_keeps_the_state_as_it_was(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.memory = store = BrokenStore()
    cluster.seed()
    before = cluster.state_bytes
    store.broken = {("create", "__cluster/resources")}
    outcome = cluster.apply()
    assert "resource_payload_write_error" in codes(outcome)
    assert (outcome.applied_count, outcome.deferred_count, outcome.state_written) == (0, 0, False)
    assert cluster.state_bytes == before
    store.broken.clear()
    assert cluster.apply().converged


def test_fail_fast_leaves_out_what_is_left_and_records_the_truth(cluster):
    cluster.graphs = {"alpha": {}}
    cluster.policies = {"wide": ["cluster"]}
    cluster.save()
    cluster.put_state(LedgerState())
    cluster.twin.leave_partial_root(cluster.uri("alpha"))
    outcome = cluster.apply(fail_fast=True)
    assert rulings(outcome.changes)["policy.wide"] == "create blocked:not_tried"
    assert outcome.state_written
    assert set(cluster.state.statuses) == {"graph.alpha", "schema.alpha", "policy.wide"}


def test_a_policy_that_goes_away_with_a_graph_that_cannot_be_made_does_not_hide_the_rest(cluster):
    cluster.converge()
    state = cluster.state
    # The graph is lost, and its root cannot be used: what the ledger knows of a policy bound to it outlives it.
    kept = {t: r for t, r in state.resources.items() if t not in (GRAPH, SCHEMA_ADDRESS)}
    cluster.put_state(replace(state, resources=kept))
    cluster.twin.delete_tree(cluster.uri("knowledge"))
    cluster.twin.leave_partial_root(cluster.uri("knowledge"))
    cluster.policies = {"wide": ["cluster"]}
    cluster.save()
    outcome = cluster.apply()
    assert rulings(outcome.changes)["policy.base"] == "delete blocked:dependency_not_applied"
    assert rulings(outcome.changes)["policy.wide"] == "create applied"
    assert outcome.state_written
    assert set(cluster.state.resources) == {"policy.base", "policy.wide", QUERY_ADDRESS}


# Approvals and deletes.


def test_a_removal_without_approval_is_blocked_and_repeating_it_writes_nothing(cluster):
    cluster.converge()
    resources = cluster.state.resources
    remove_graph(cluster)
    first = cluster.apply()
    assert first.ok
    waiting = dict.fromkeys([GRAPH, QUERY_ADDRESS, SCHEMA_ADDRESS], "blocked:approval_required")
    waiting["policy.base"] = "blocked:dependency_not_applied"
    assert rulings(first.changes) == {address: f"delete {why}" for address, why in waiting.items()}
    assert cluster.state.resources == resources
    assert cluster.live("knowledge") == SCHEMA
    assert statuses(cluster.state) == waiting
    # It is served, and its policy guards it.
    assert [graph.policy for graph in cluster.ready().graphs] == ["base"]
    before = cluster.state_bytes
    assert not cluster.apply().state_written
    assert cluster.state_bytes == before


def test_approve_binds_the_three_digests(cluster):
    cluster.converge()
    graph = cluster.state.resources[GRAPH].digest
    remove_graph(cluster)
    state = cluster.state_bytes
    outcome = cluster.approve(GRAPH)
    assert outcome.ok
    key = f"__cluster/approvals/{outcome.approval.approval_id}.json"
    document = json.loads(cluster.stored(key))
    assert document["bound_config_digest"] == cluster.desired().config_digest
    assert (document["bound_before_digest"], document["bound_after_digest"]) == (graph, None)
    assert (document["approved_by"], document["consumed_at"]) == ("sam", None)
    assert cluster.state_bytes == state
    assert gates(cluster.plan()) == {GRAPH: True}


@pytest.mark.parametrize("address", [QUERY_ADDRESS, SCHEMA_ADDRESS, "policy.base", "graph.other", "nonsense"])
def test_only_gates_can_be_approved(cluster, address):
    cluster.converge()
    remove_graph(cluster)
    assert codes(cluster.approve(address)) == ["approval_not_required"]
    assert cluster.files("__cluster/approvals") == []


def test_approve_needs_a_ledger(cluster):
    assert codes(cluster.approve(GRAPH)) == ["state_missing"]


def test_an_edit_after_the_approval_makes_it_stale(cluster):
    cluster.graphs["other"] = {}
    cluster.save()
    cluster.converge()
    remove_graph(cluster)
    assert cluster.approve(GRAPH).ok
    cluster.write("other.pg", COMMENTED)
    outcome = cluster.apply()
    assert found(outcome, "approval_stale").path == GRAPH
    assert rulings(outcome.changes)[GRAPH] == "delete blocked:approval_required"
    assert cluster.live("knowledge") == SCHEMA
    assert found(cluster.plan(), "approval_stale").path == GRAPH


def approved_delete(cluster: Cluster) -> str:
    remove_graph(cluster)
    approval = cluster.approve(GRAPH).approval
    assert approval is not None
    return approval.approval_id


def test_an_approved_removal_leaves_a_tombstone_and_spends_the_approval(cluster):
    cluster.converge()
    approval_id = approved_delete(cluster)
    outcome = cluster.apply(actor="alex")
    assert outcome.converged
    assert cluster.twin.dump() == {}
    assert (cluster.state.resources, cluster.state.statuses) == ({}, {})
    assert cluster.state.observations[GRAPH] == {
        "kind": "tombstone",
        "deleted_at": "2026-06-11T08:00:00Z",
        "approval_id": approval_id,
        "actor": "alex",
    }
    assert cluster.state.approval_records == {
        approval_id: {"consumed_at": "2026-06-11T08:00:00Z", "consumed_by_operation": "apply"}
    }
    document = json.loads(cluster.stored(f"__cluster/approvals/{approval_id}.json"))
    assert document["consumed_at"] == "2026-06-11T08:00:00Z"
    again = cluster.apply()
    assert (again.changes, again.state_written) == ((), False)


def test_a_spent_approval_does_not_cover_the_next_removal(cluster):
    cluster.converge()
    approval_id = approved_delete(cluster)
    # A copy whose consumption was lost on its way to the file is spent all the same: the state says so.
    unspent = cluster.stored(f"__cluster/approvals/{approval_id}.json")
    assert cluster.apply().converged
    cluster.plant(f"__cluster/approvals/{approval_id}.json", unspent)
    cluster.graphs["knowledge"] = {"find_person": "people.gq"}
    cluster.save()
    cluster.converge()
    remove_graph(cluster)
    blocked = cluster.apply()
    assert rulings(blocked.changes)[GRAPH] == "delete blocked:approval_required"
    assert cluster.live("knowledge") == SCHEMA
    assert cluster.approve(GRAPH).ok
    assert cluster.apply().converged


def test_a_delete_that_fails_keeps_graph_ledger_and_approval(cluster):
    cluster.converge()
    approved_delete(cluster)
    outcome = cluster.apply(faults=FailAt("cluster_apply.before_graph_delete"))
    assert found(outcome, "graph_delete_failed").path == GRAPH
    assert {t: r for t, r in rulings(outcome.changes).items() if t != "policy.base"} == {
        GRAPH: "delete blocked:graph_delete_failed",
        QUERY_ADDRESS: "delete blocked:dependency_not_applied",
        SCHEMA_ADDRESS: "delete blocked:dependency_not_applied",
    }
    assert cluster.state.approval_records == {}
    assert cluster.apply().converged


def test_unusable_approvals_are_reported_and_count_for_nothing(cluster):
    cluster.converge()
    remove_graph(cluster)
    cluster.plant("__cluster/approvals/01JZ0000000000000000000AAA.json", b"{")
    cluster.plant("__cluster/approvals/01JZ0000000000000000000AAB.json", b'{"schema_version": 2}')
    outcome = cluster.apply()
    assert outcome.ok
    assert codes(outcome)[:2] == ["invalid_approval_artifact", "unsupported_approval_version"]
    assert rulings(outcome.changes)[GRAPH] == "delete blocked:approval_required"


@pytest.fixture
def on_lance(tmp_path) -> Cluster:
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.converge()
    records = [{"type": "Person", "data": {"handle": h, "born": b}} for h, b in (("ada", 1815), ("grace", 1906))]
    data = io.BytesIO("\n".join(map(json.dumps, records)).encode())
    load_records(LoadRequest(cluster.uri("knowledge"), data), WriteContext(FixedClock(START), SequentialIds(900_000)))
    return cluster


def people(cluster: Cluster) -> dict[str, int]:
    return {row["handle"]: row["born"] for row in read.read_rows(cluster.uri("knowledge"), "Person", 10)}


def test_created_graph_has_the_declared_schema(on_lance):
    assert on_lance.live("knowledge") == SCHEMA
    assert statuses(on_lance.refresh().state)["graph.knowledge"] == "applied"


def test_a_new_property_keeps_the_rows(on_lance):
    on_lance.write("knowledge.pg", WIDER)
    assert on_lance.apply().converged
    assert on_lance.live("knowledge") == WIDER
    assert people(on_lance) == {"ada": 1815, "grace": 1906}


def test_a_comment_is_stored_byte_for_byte_and_does_not_drift(on_lance):
    on_lance.write("knowledge.pg", COMMENTED)
    assert on_lance.apply().converged
    assert on_lance.live("knowledge") == COMMENTED
    outcome = on_lance.refresh()
    assert statuses(outcome.state)["schema.knowledge"] == "applied"
    assert on_lance.plan().plan.changes == ()
    assert people(on_lance) == {"ada": 1815, "grace": 1906}


def test_a_drop_from_outside_is_seen_and_brought_back(on_lance):
    on_lance.migrate_graph("knowledge", "node Person {\n  handle: String @key\n}\n")
    assert codes(on_lance.refresh()) == []
    assert statuses(on_lance.state)["schema.knowledge"] == "drifted:schema_mismatch"
    steps = on_lance.plan().plan.change("schema.knowledge").migration.steps
    assert [(s["kind"], s["property_name"]) for s in steps] == [("add_property", "born")]
    assert on_lance.apply().converged
    assert on_lance.live("knowledge") == SCHEMA
    assert sorted(people(on_lance)) == ["ada", "grace"]


def test_a_data_file_that_is_gone_is_noticed(on_lance):
    """No manifest and no schema is touched, so the graph still opens."""
    assert codes(drift(on_lance.workspace())) == codes(on_lance.ready()) == []
    (file,) = (on_lance.folder / "graphs/knowledge.omni").glob("nodes/*/data/*.lance")
    file.unlink()
    for outcome, code in (
        (drift(on_lance.workspace()), "graph_observation_error"),
        (on_lance.ready(), "graph_unreadable"),
        (on_lance.refresh(), "graph_observation_error"),
    ):
        assert not outcome.ok
        assert f"{file.name} of node type Person is missing" in found(outcome, code).message
    shown = on_lance.status()
    assert statuses(shown.state)["graph.knowledge"] == "error:graph_observation_error"
    assert f"{file.name} of node type Person is missing" in shown.state.observations["graph.knowledge"]["error"]


def test_an_approved_delete_leaves_nothing_behind(on_lance):
    on_lance.graphs, on_lance.policies = {}, {}
    on_lance.save()
    assert not on_lance.apply().converged
    assert people(on_lance) == {"ada": 1815, "grace": 1906}
    assert on_lance.approve("graph.knowledge").ok
    assert on_lance.apply().converged
    assert [p.name for p in (on_lance.folder / "graphs").iterdir()] == ["deleted"]
    on_lance.graphs["knowledge"] = {}
    on_lance.save()
    assert on_lance.apply().converged
    assert people(on_lance) == {}


@pytest.mark.parametrize("verb", ["apply", "refresh"])
def test_the_data_of_a_delete_that_was_cut_short_is_removed_by_the_next_run(on_lance, verb):
    on_lance.graphs, on_lance.policies = {}, {}
    on_lance.save()
    assert on_lance.approve("graph.knowledge").ok
    root, copy = on_lance.folder / "graphs/knowledge.omni", on_lance.folder / "copy"
    shutil.copytree(root, copy)
    assert not on_lance.apply(faults=FailAt("cluster_apply.after_graph_delete")).ok
    # As if it had died between the rename that hides the root and the removal of the files.
    copy.rename(root.with_name(".knowledge.omni.0123456789abcdef.deleted"))
    outcome = getattr(on_lance, verb)()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert [p.name for p in (on_lance.folder / "graphs").iterdir()] == ["deleted"]
    assert on_lance.sidecars == []


def test_parallel_apply_gives_what_serial_apply_gives(tmp_path):
    found = {}
    for workers in (1, 4):
        (tmp_path / str(workers)).mkdir()
        cluster = Cluster(tmp_path / str(workers), engine=lance_engine())
        cluster.workers = workers
        cluster.graphs = {name: {"find_person": "people.gq"} for name in ("alpha", "beta", "gamma")}
        cluster.policies = {"wide": ["cluster"], "base": ["alpha", "gamma"]}
        cluster.save()
        cluster.converge()
        found[workers] = cluster.state.resources, statuses(cluster.state), cluster.files("__cluster/resources")
    assert found[1] == found[4]


def test_a_plan_tells_of_a_trial_branch_that_blocks_a_migration(on_lance):
    """Not only the apply does: merging such a change would leave it undone."""
    context = WriteContext(FixedClock(START), SequentialIds(950_000))
    create_branch(on_lance.uri("knowledge"), "trial", context)
    record = io.BytesIO(b'{"type": "Person", "data": {"handle": "alan"}}')
    load_records(LoadRequest(on_lance.uri("knowledge"), record, branch="trial"), context)
    on_lance.write("knowledge.pg", WIDER)
    planned = on_lance.plan()
    assert [(each.path, each.code) for each in planned.obstacles] == [("schema.knowledge", "graph_has_branches")]
    outcome = on_lance.apply()
    assert not outcome.converged
    assert people(on_lance) == {"ada": 1815, "grace": 1906}
    merge_branch(on_lance.uri("knowledge"), "trial", "main", context)
    assert on_lance.plan().obstacles == ()
    assert on_lance.apply().converged
    assert people(on_lance) == {"ada": 1815, "alan": None, "grace": 1906}


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
    assert found(planned, "graph_exists").fix == "record the restored graph: gitops refresh"
    assert cluster.refresh().ok
    assert cluster.plan().plan.changes == ()


@pytest.mark.parametrize("graph", ["my_graph", "policies", "healthz", "openapi", "graphs", "g" * 65])
def test_a_graph_that_no_server_can_serve_is_warned_of_and_not_created(graph, tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs = {graph: {}, "k" * 64: {}}
    cluster.policies = {}
    cluster.save()
    said = validate(cluster.workspace())
    assert (said.ok, codes(said)) == (True, ["graph_id_unservable"])
    assert cluster.import_().ok
    for outcome in (cluster.plan(), cluster.apply()):
        problem = found(outcome, "graph_id_unservable")
        assert (outcome.ok, problem.path, problem.severity) == (False, f"graph.{graph}", "error")
        assert problem.source is not None
        assert (problem.source.file, problem.source.line) == ("cluster.yaml", 7)
    assert cluster.state.resources == {}


def test_a_graph_that_is_applied_already_stays_with_a_warning(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.graphs = {"my_graph": {}}
    cluster.policies = {}
    cluster.save()
    cluster.make_graph("my_graph")
    assert cluster.import_().ok
    for outcome in (cluster.plan(), cluster.apply()):
        assert (outcome.ok, found(outcome, "graph_id_unservable").severity) == (True, "warning")
    assert outcome.converged
