"""The copy of a cluster in a bucket: its ledger beside its graphs, who copies, and what is kept after a failure."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gitops.cluster.ledger.layout import STATE
from gitops.cluster.ledger.port import BlobCondition
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.storage.local import LocalStore
from gitops.database.storage.s3 import S3Store
from gitops.repository.wiring.replica import ReplicaCopy
from gitops.repository.wiring.serving import ServedSource
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.cluster import SCHEMA, Cluster
from tests.support.prefork import PROGRAM
from tests.support.s3 import S3Place
from tests.support.served_command import environment

pytestmark = pytest.mark.e2e

KEY = "__cluster/recoveries/op.json"


@pytest.fixture
def cluster(s3: S3Place, tmp_path: Path) -> Cluster:
    folder = tmp_path / "folder"
    folder.mkdir()
    cluster = Cluster(folder)
    cluster.options["storage"] = s3.root
    cluster.save()
    run(cluster, s3, "import")
    run(cluster, s3, "apply")
    return cluster


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def copy(cluster: Cluster, s3: S3Place, tmp_path: Path, said: list[str]) -> Iterator[ReplicaCopy]:
    copy = opened(s3, tmp_path / "copy", said)
    assert copy.hold()
    copy.round()
    copy.require()
    yield copy
    copy.release()


def run(cluster: Cluster, s3: S3Place, *words: str) -> None:
    command = [*PROGRAM, *words, "--config", str(cluster.folder)]
    subprocess.run(command, env=environment(**s3.environ), check=True, capture_output=True)


def opened(s3: S3Place, folder: Path, said: list[str], most_bytes: int = 2**30) -> ReplicaCopy:
    copy = ReplicaCopy(ServedSource(s3.root), str(folder), most_bytes, said.append)
    copy.open()
    return copy


def migrate(s3: S3Place) -> int:
    engine = LanceEngine(SystemClock(), RandomIds())
    wider = SCHEMA.replace("born", "more: I32?\n  born").encode()
    return engine.prepare_migration(f"{s3.root}/graphs/knowledge.omni", wider, actor="ann").publish()


def test_the_copied_ledger_is_what_the_bucket_has_and_interrupted_operations_come_and_go(
    copy: ReplicaCopy, s3: S3Place
) -> None:
    bucket, here = S3Store(s3.root), LocalStore(copy.root)
    stores = copy.stores(Diagnostics())
    assert stores is not None
    view = stores.ledger.view()
    assert view.state is not None
    assert here.read(STATE) == bucket.read(STATE)
    texts = {a: each.digest for a, each in view.state.resources.items() if a.startswith(("query.", "policy."))}
    assert [stores.ledger.blob(a, each).condition for a, each in texts.items()] == [BlobCondition.OK] * 2
    bucket.write(KEY, b"{}")
    copy.round()
    assert here.read(KEY) == b"{}"
    bucket.delete(KEY)
    copy.round()
    assert here.names("__cluster/recoveries") == ()


def test_another_process_takes_over_and_copies_no_file_again(
    copy: ReplicaCopy, s3: S3Place, tmp_path: Path, said: list[str]
) -> None:
    before = {each.path for each in s3.server.log if each.kind == "GET" and ".lance/" in each.path}
    other = opened(s3, tmp_path / "copy", said)
    assert not other.hold()
    assert other.status() == copy.status()
    number = migrate(s3)
    copy.release()
    assert other.hold()
    s3.server.log.clear()
    other.round()
    assert other.status().graphs["knowledge"].version == number
    assert other.status() == copy.status()
    assert not before.intersection(each.path for each in s3.server.log)
    other.release()
    assert said == []


def test_after_a_failure_between_the_ledger_and_the_graphs_the_older_state_is_kept(
    cluster: Cluster, copy: ReplicaCopy, s3: S3Place, said: list[str]
) -> None:
    before, seen = LocalStore(copy.root).read(STATE), copy.status()
    cluster.write("people.gq", (cluster.folder / "people.gq").read_text("utf-8").replace("find_person", "other"))
    cluster.graphs = {"knowledge": {"other": "people.gq"}}
    cluster.save()
    run(cluster, s3, "apply")
    s3.server.fault = lambda asked: 503 if "/graphs/" in asked.path else None
    copy.round()
    assert LocalStore(copy.root).read(STATE) == before
    now = copy.status()
    assert (now.graphs["knowledge"].version, now.ledger_as_of) == (seen.graphs["knowledge"].version, seen.ledger_as_of)
    assert now.graphs["knowledge"].code == "storage_failed"
    assert "graph knowledge is not copied" in said[-1]
    s3.server.forget()
    copy.round()
    assert LocalStore(copy.root).read(STATE) == S3Store(s3.root).read(STATE) != before
    assert said[-1] == "graph knowledge is copied again"


def test_a_graph_that_does_not_fit_is_named_and_later_fits(cluster: Cluster, s3: S3Place, tmp_path: Path) -> None:
    small = opened(s3, tmp_path / "small", [], most_bytes=10)
    assert small.hold()
    small.round()
    with pytest.raises(GitopsError) as refused:
        small.require()
    assert refused.value.code == "replica_cache_full"
    small.release()
    large = opened(s3, tmp_path / "small", [])
    large.hold()
    large.check()
    large.round()
    large.require()
    assert open_snapshot(f"{large.root}/graphs/knowledge.omni").manifest.n == 1
    large.release()
