"""The control plane over the real graph engine: rows survive what must not touch them."""

from __future__ import annotations

import io
import json
import shutil

import pytest

from gitops.cluster.apply.drift import drift
from gitops.database.graph import read
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.merge import merge_branch
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from tests.support.clock import FixedClock
from tests.support.cluster import COMMENTED, SCHEMA, START, WIDER, Cluster, FailAt, codes, found, lance_engine, statuses
from tests.support.ids import SequentialIds


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    cluster = Cluster(tmp_path, engine=lance_engine())
    cluster.converge()
    records = [{"type": "Person", "data": {"handle": h, "born": b}} for h, b in (("ada", 1815), ("grace", 1906))]
    data = io.BytesIO("\n".join(map(json.dumps, records)).encode())
    load_records(LoadRequest(cluster.uri("knowledge"), data), WriteContext(FixedClock(START), SequentialIds(900_000)))
    return cluster


def people(cluster: Cluster) -> dict[str, int]:
    return {row["handle"]: row["born"] for row in read.read_rows(cluster.uri("knowledge"), "Person", 10)}


def test_created_graph_has_the_declared_schema(cluster):
    assert cluster.live("knowledge") == SCHEMA
    assert statuses(cluster.refresh().state)["graph.knowledge"] == "applied"


def test_a_new_property_keeps_the_rows(cluster):
    cluster.write("knowledge.pg", WIDER)
    assert cluster.apply().converged
    assert cluster.live("knowledge") == WIDER
    assert people(cluster) == {"ada": 1815, "grace": 1906}


def test_a_comment_is_stored_byte_for_byte_and_does_not_drift(cluster):
    cluster.write("knowledge.pg", COMMENTED)
    assert cluster.apply().converged
    assert cluster.live("knowledge") == COMMENTED
    outcome = cluster.refresh()
    assert statuses(outcome.state)["schema.knowledge"] == "applied"
    assert cluster.plan().plan.changes == ()
    assert people(cluster) == {"ada": 1815, "grace": 1906}


def test_a_drop_from_outside_is_seen_and_brought_back(cluster):
    cluster.migrate_graph("knowledge", "node Person {\n  handle: String @key\n}\n")
    assert codes(cluster.refresh()) == []
    assert statuses(cluster.state)["schema.knowledge"] == "drifted:schema_mismatch"
    steps = cluster.plan().plan.change("schema.knowledge").migration.steps
    assert [(s["kind"], s["property_name"]) for s in steps] == [("add_property", "born")]
    assert cluster.apply().converged
    assert cluster.live("knowledge") == SCHEMA
    assert sorted(people(cluster)) == ["ada", "grace"]


def test_a_data_file_that_is_gone_is_noticed(cluster):
    """No manifest and no schema is touched, so the graph still opens."""
    assert codes(drift(cluster.workspace())) == codes(cluster.ready()) == []
    (file,) = (cluster.folder / "graphs/knowledge.omni").glob("nodes/*/data/*.lance")
    file.unlink()
    for outcome, code in (
        (drift(cluster.workspace()), "graph_observation_error"),
        (cluster.ready(), "graph_unreadable"),
        (cluster.refresh(), "graph_observation_error"),
    ):
        assert not outcome.ok
        assert f"{file.name} of node type Person is missing" in found(outcome, code).message
    shown = cluster.status()
    assert statuses(shown.state)["graph.knowledge"] == "error:graph_observation_error"
    assert f"{file.name} of node type Person is missing" in shown.state.observations["graph.knowledge"]["error"]


def test_an_approved_delete_leaves_nothing_behind(cluster):
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert not cluster.apply().converged
    assert people(cluster) == {"ada": 1815, "grace": 1906}
    assert cluster.approve("graph.knowledge").ok
    assert cluster.apply().converged
    assert [p.name for p in (cluster.folder / "graphs").iterdir()] == ["deleted"]
    cluster.graphs["knowledge"] = {}
    cluster.save()
    assert cluster.apply().converged
    assert people(cluster) == {}


@pytest.mark.parametrize("verb", ["apply", "refresh"])
def test_the_data_of_a_delete_that_was_cut_short_is_removed_by_the_next_run(cluster, verb):
    cluster.graphs, cluster.policies = {}, {}
    cluster.save()
    assert cluster.approve("graph.knowledge").ok
    root, copy = cluster.folder / "graphs/knowledge.omni", cluster.folder / "copy"
    shutil.copytree(root, copy)
    assert not cluster.apply(faults=FailAt("cluster_apply.after_graph_delete")).ok
    # As if it had died between the rename that hides the root and the removal of the files.
    copy.rename(root.with_name(".knowledge.omni.0123456789abcdef.deleted"))
    outcome = getattr(cluster, verb)()
    assert codes(outcome) == ["cluster_recovery_rolled_forward"]
    assert [p.name for p in (cluster.folder / "graphs").iterdir()] == ["deleted"]
    assert cluster.sidecars == []


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


def test_a_plan_tells_of_a_trial_branch_that_blocks_a_migration(cluster):
    """Not only the apply does: merging such a change would leave it undone."""
    context = WriteContext(FixedClock(START), SequentialIds(950_000))
    create_branch(cluster.uri("knowledge"), "trial", context)
    record = io.BytesIO(b'{"type": "Person", "data": {"handle": "alan"}}')
    load_records(LoadRequest(cluster.uri("knowledge"), record, branch="trial"), context)
    cluster.write("knowledge.pg", WIDER)
    planned = cluster.plan()
    assert [(each.path, each.code) for each in planned.obstacles] == [("schema.knowledge", "graph_has_branches")]
    outcome = cluster.apply()
    assert not outcome.converged
    assert people(cluster) == {"ada": 1815, "grace": 1906}
    merge_branch(cluster.uri("knowledge"), "trial", "main", context)
    assert cluster.plan().obstacles == ()
    assert cluster.apply().converged
    assert people(cluster) == {"ada": 1815, "alan": None, "grace": 1906}
