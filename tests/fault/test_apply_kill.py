"""Kill applies at any moment: the next run, after the lock is taken away from the dead one, converges and loses nothing."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gitops.cluster.ledger.layout import LOCK
from gitops.database.graph import read
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.wiring.system import SystemClock
from tests.support.clock import FixedClock
from tests.support.cluster import QUERY, SCHEMA, START, WIDER, Cluster, codes, lance_engine
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.prefork import PYTHON

DEADLINE = 60
APPLY_TO_THE_POINT = """
import sys
from gitops.repository.wiring.stores import folder_workspace
from gitops.cluster.apply.apply import apply
from tests.support.cluster import DieAt
apply(folder_workspace(sys.argv[1], actor="dead", faults=DieAt(sys.argv[2])))
"""
ROW = {"handle": "ada", "born": 1815}


@pytest.fixture
def cluster(tmp_path) -> Cluster:
    """A converged cluster with a row in `knowledge` and a graph `old` that may go."""
    cluster = Cluster(tmp_path, engine=lance_engine())
    # The command that dies takes the time of the machine, and an approval does not last for ever.
    cluster.clock = SystemClock()
    cluster.graphs["old"] = {}
    cluster.save()
    cluster.converge()
    load(cluster, "knowledge", ROW)
    return cluster


def load(cluster: Cluster, graph: str, row: dict[str, object]) -> None:
    data = io.BytesIO(json.dumps({"type": "Person", "data": row}).encode())
    load_records(LoadRequest(cluster.uri(graph), data), WriteContext(FixedClock(START), SequentialIds(900_000)))


def people(cluster: Cluster, graph: str = "knowledge") -> list[dict[str, object]]:
    return [{name: row[name] for name in ROW} for row in read.read_rows(cluster.uri(graph), "Person", 10)]


def ask_for_everything(cluster: Cluster, turn: int, old: str = "old") -> str:
    """Edit the folder so that an apply creates, migrates, deletes and publishes; returns the new graph's id."""
    new = f"new{turn}"
    del cluster.graphs[old]
    cluster.graphs[new] = {"find_person": "people.gq"}
    cluster.policies["base"] = ["knowledge", new]
    cluster.write("knowledge.pg", WIDER if turn % 2 else SCHEMA)
    cluster.write("people.gq", QUERY + f"// {turn}\n")
    cluster.save()
    assert cluster.approve(f"graph.{old}").ok
    return new


def recover(cluster: Cluster) -> None:
    """What an operator does: take the lock away from the dead process, and apply again."""
    holder = cluster.status().observations.held
    if holder.held:
        assert holder.info is not None
        assert codes(cluster.apply()) == ["state_lock_held"]
        assert cluster.unlock(holder.info.lock_id).ok
    outcome = cluster.apply()
    assert outcome.ok, [d.message for d in outcome.diagnostics]
    assert outcome.converged
    assert cluster.state.digests() == cluster.desired().digests()
    assert cluster.sidecars == []
    assert not cluster.locked
    assert cluster.status().diagnostics == ()
    assert cluster.refresh().diagnostics == ()
    assert cluster.plan().plan.changes == ()
    for graph in cluster.graphs:
        assert cluster.live(graph) == (cluster.folder / f"{graph}.pg").read_text()
    roots = list((cluster.folder / "graphs").iterdir())
    kept = [r.name for r in roots if r.name[0] != "." and r.name != "deleted"]
    assert sorted(kept) == sorted(f"{g}.omni" for g in cluster.graphs)
    # An empty staging folder may be left for the next create to remove, but never data.
    assert not [f for r in roots if r.name[0] == "." for f in r.rglob("*") if f.is_file()]


POINTS = [
    "cluster_apply.before_graph_create",
    "engine.create.staged",
    "engine.create.before_publish",
    "engine.create.after_publish",
    "cluster_apply.after_graph_create",
    "cluster_apply.before_schema_apply",
    "engine.migrate.staged",
    "engine.migrate.before_publish",
    "engine.migrate.after_publish",
    "cluster_apply.after_schema_apply",
    "cluster_apply.before_graph_delete",
    "cluster_apply.after_graph_delete",
    "cluster_apply.after_payload_phase",
    "cluster_apply.before_state_write",
    "ledger.commit.before_state",
    "ledger.commit.after_state",
    "ledger.commit.after_retire",
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_death_at_a_point_is_settled_by_the_next_apply(cluster, point):
    new = ask_for_everything(cluster, 1)
    process = subprocess.run(
        [*PYTHON, "-c", APPLY_TO_THE_POINT, str(cluster.folder), point], cwd=ROOT, check=False, timeout=DEADLINE
    )
    assert process.returncode == -signal.SIGKILL
    assert cluster.locked
    recover(cluster)
    assert people(cluster) == [ROW]
    assert people(cluster, new) == []


@pytest.mark.slow
def test_ten_applies_killed_at_random_moments(cluster):
    chance = random.Random(7)  # noqa: S311 - when to kill, not a secret
    graph, killed, whole, turn = "old", 0, float(DEADLINE), 0
    while killed < 10:
        graph = ask_for_everything(cluster, turn, graph)
        process = start_apply(cluster)
        begin = time.perf_counter()
        try:
            # The first run is left alone and says how long one lasts; the others die somewhere within that time, more
            # often late, since loading the driver of the engine comes first and takes long.
            process.wait(timeout=whole * chance.random() ** 0.25 if turn else whole)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        if process.wait(timeout=DEADLINE) == 0:
            whole = min(whole, time.perf_counter() - begin)
        else:
            assert process.returncode == -signal.SIGKILL
            killed += 1
        recover(cluster)
        assert people(cluster) == [ROW]
        assert people(cluster, graph) == []
        load(cluster, graph, {"handle": str(turn), "born": turn})
        turn += 1


def start_apply(cluster: Cluster) -> subprocess.Popen[bytes]:
    """The command at work: returns when it holds the lock, or has ended."""
    arguments = [sys.executable, "-m", "gitops", "apply", "--config", str(cluster.folder)]
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for(process, cluster.folder / LOCK)
    return process


def wait_for(process: subprocess.Popen[bytes], path: Path) -> None:
    """Until the file is there, or the process has ended."""
    while process.poll() is None and not path.exists():
        try:
            process.wait(timeout=0.005)
        except subprocess.TimeoutExpired:
            continue
