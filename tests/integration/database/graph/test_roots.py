"""Graph roots on disk: what is refused, what tampering does, and what the light path loads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph import read, read_log
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.layout import ARTIFACTS
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.port import Existence
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.storage.s3 import S3Store
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, start
from tests.support.s3 import S3Place

SCHEMA = b"node P { k: String @key }\n"


@pytest.fixture
def engine() -> LanceEngine:
    return LanceEngine(FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), SequentialIds())


def _read_code(engine: LanceEngine, uri: object) -> str:
    with pytest.raises(GitopsError) as failure:
        engine.read(str(uri))
    return failure.value.code


@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_root_with_a_schema_artifact_is_taken(engine: LanceEngine, tmp_path: Path, name: str) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / name).write_bytes(b"")
    with pytest.raises(GitopsError) as failure:
        engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None)
    assert failure.value.code == "graph_exists"
    assert name in failure.value.detail
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


def test_an_empty_folder_may_become_a_graph(engine: LanceEngine, tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    assert engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None).publish() == 1


def test_a_root_that_is_a_file_or_a_link_is_neither_read_nor_followed(engine: LanceEngine, tmp_path: Path) -> None:
    real, link, file = tmp_path / "real", tmp_path / "link", tmp_path / "file"
    engine.prepare_create(str(real), SCHEMA, actor=None).publish()
    link.symlink_to(real)
    file.write_bytes(b"")
    for uri in (link, file):
        assert engine.exists(str(uri)) is Existence.PRESENT
        assert _read_code(engine, uri) == "graph_unreadable"
        with pytest.raises(GitopsError) as failure:
            engine.prepare_create(str(uri), SCHEMA, actor=None)
        assert failure.value.code == "graph_exists"
        engine.delete_tree(str(uri))
        assert engine.exists(str(uri)) is Existence.ABSENT
    assert engine.read(str(real)).schema_source == SCHEMA


def test_only_a_definite_not_found_is_absent(engine: LanceEngine, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for uri in (f"{tmp_path}/file/g", "gs://bucket/g", f"{tmp_path}/{'x' * 300}"):
        assert engine.exists(uri) is Existence.UNKNOWN
        assert _read_code(engine, uri) == "graph_unreadable"


def test_a_service_that_does_not_answer_is_no_missing_graph(engine: LanceEngine, s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    for fault in (403, 404, 400):
        s3.server.fault = lambda asked, fault=fault: fault if asked.method in ("GET", "HEAD") else None
        assert engine.exists(uri) is Existence.UNKNOWN
        assert _read_code(engine, uri) == "storage_failed"
    there = f"s3://no-such-{s3.bucket}/g"
    assert engine.exists(there) is Existence.UNKNOWN
    assert _read_code(engine, there) == "storage_failed"
    for address in ("s3://bucket", "s3:///g"):
        assert engine.exists(address) is Existence.UNKNOWN
        assert _read_code(engine, address) == "graph_unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may look everywhere")
def test_a_root_that_may_not_be_seen_is_unknown(engine: LanceEngine, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert engine.exists(str(closed / "g")) is Existence.UNKNOWN


@pytest.mark.parametrize("suffix", [".pg", ".json"])
@pytest.mark.parametrize("tampered", [b"", b"node P { k: String @key  x: I32? }\n", None])
def test_a_tampered_schema_does_not_open(
    engine: LanceEngine, tmp_path: Path, suffix: str, tampered: bytes | None
) -> None:
    uri = str(tmp_path / "g")
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    (file,) = (tmp_path / "g" / "schema").glob(f"*{suffix}")
    file.unlink()
    if tampered is not None:
        file.write_bytes(tampered)
    assert _read_code(engine, uri) == "graph_unreadable"
    if suffix == ".json":
        for call in (engine.preview, lambda u, text: engine.prepare_migration(u, text, actor=None)):
            with pytest.raises(GitopsError) as failure:
                call(uri, SCHEMA)
            assert failure.value.code == "graph_unreadable"


def test_a_torn_head_manifest_does_not_open(engine: LanceEngine, tmp_path: Path) -> None:
    uri = str(tmp_path / "g")
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    (file,) = (tmp_path / "g" / "manifests").iterdir()
    file.write_bytes(file.read_bytes()[:-40])
    assert _read_code(engine, uri) == "graph_unreadable"


_LIGHT = """
import sys
from datetime import UTC, datetime
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from gitops.database.graph.engine import LanceEngine
engine = LanceEngine(FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), SequentialIds())
uri = sys.argv[1]
assert engine.exists(uri) == "present"
source = engine.read(uri).schema_source
assert engine.preview(uri, source + b"node Q {}\\n").supported
engine.prepare_migration(uri, b"// a comment\\n" + source, actor=None).publish()
print(sorted({"lance", "pyarrow", "numpy", "obstore"} & set(sys.modules)))
"""


def test_looking_and_text_edits_load_no_driver(engine: LanceEngine, tmp_path: Path) -> None:
    uri = str(tmp_path / "g")
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    out = subprocess.run([sys.executable, "-c", _LIGHT, uri], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout == "[]\n"


def test_looking_into_a_bucket_loads_its_client_alone(engine: LanceEngine, s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    out = subprocess.run([sys.executable, "-c", _LIGHT, uri], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout == "['obstore']\n"


def test_a_graph_taken_out_of_a_bucket_is_a_graph_on_disk(engine: LanceEngine, s3: S3Place, tmp_path: Path) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    records = io.BytesIO(b'{"type": "P", "data": {"k": "a"}}')
    load_records(
        LoadRequest(uri, records), WriteContext(FixedClock(datetime(2026, 1, 1, tzinfo=UTC)), SequentialIds(100))
    )
    store = S3Store(uri)
    for key in store.keys(open_snapshot(uri).identity.graph_id):
        target = tmp_path / key.partition("/")[2]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(store.read(key) or b"")
    assert read.describe_graph(str(tmp_path)) == read.describe_graph(uri)
    assert read.read_rows(str(tmp_path), "P", 9) == read.read_rows(uri, "P", 9) == [{"id": "a", "k": "a"}]
    assert read_log(str(tmp_path)) == read_log(uri)
    migrated = engine.prepare_migration(str(tmp_path), b"// here\n" + SCHEMA, actor=None)
    assert migrated.publish() == 3


def test_the_command_takes_a_root_in_a_bucket(engine: LanceEngine, s3: S3Place, tmp_path: Path) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    engine.prepare_create(uri, SCHEMA, actor=None).publish()
    (tmp_path / "rows").write_bytes(b'{"type": "P", "data": {"k": "a"}}')

    start()

    def gitops(*words: str) -> tuple[int, Any]:
        command = [*PROGRAM, "graph", *words, "--root", uri, "--json"]
        run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        assert "Traceback" not in run.stderr
        return run.returncode, json.loads(run.stdout)

    assert gitops("load", "g", str(tmp_path / "rows"))[1]["manifest_version"] == 2
    assert gitops("show", "g", "--type", "P") == (0, [{"id": "a", "k": "a"}])
    assert gitops("show", "g")[1]["tables"]["node:P"]["rows"] == 1
    engine.delete_tree(uri)
    code, form = gitops("show", "g")
    assert (code, form["diagnostics"][0]["code"]) == (1, "graph_missing")


def test_dead_stagings_are_removed_and_live_ones_are_not(engine: LanceEngine, tmp_path: Path) -> None:
    dead = tmp_path / ".g.0123456789abcdef.staging"
    (dead / "graph").mkdir(parents=True)
    live = engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None)
    assert not dead.exists()
    engine.delete_tree(str(tmp_path / "g"))
    engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None).abort()
    assert live.publish() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["g"]
