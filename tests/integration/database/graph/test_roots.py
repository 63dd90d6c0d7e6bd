"""Roots of graphs, in folders and in buckets.

Graph roots on an object store, request by request: makers and removers in every order, and their deaths.

The store is a dictionary whose every request waits for its turn, so that a schedule decides what happens between two of them.
"""

from __future__ import annotations

import ast
import functools
import inspect
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gitops.database.graph as front_door
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.database.graph import read, read_log
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.files import version_file
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.layout import ARTIFACTS
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.manifest import GraphIdentity
from gitops.database.graph.object_root import ObjectRoot
from gitops.database.graph.port import Existence
from gitops.database.graph.root import GraphRoot
from gitops.database.graph.snapshot import find_root, open_snapshot
from gitops.database.graph.staged import WriteContext
from gitops.database.storage.s3 import S3Store
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.histories import History
from tests.support.ids import SequentialIds
from tests.support.mutations import WrittenGraph
from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, run, start
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
        done = run(command, cwd=ROOT)
        assert "Traceback" not in done.stderr
        return done.returncode, json.loads(done.stdout)

    assert gitops("load", "g", str(tmp_path / "rows"))[1]["manifest_version"] == 2
    assert gitops("show", "g", "--type", "P") == (
        0,
        {"ok": True, "rows": [{"id": "a", "k": "a"}], "problems": []},
    )
    assert gitops("show", "g")[1]["tables"]["node:P"]["rows"] == 1
    engine.delete_tree(uri)
    code, form = gitops("show", "g")
    assert (code, form["problems"][0]["code"]) == (1, "graph_missing")


def test_dead_stagings_are_removed_and_live_ones_are_not(engine: LanceEngine, tmp_path: Path) -> None:
    dead = tmp_path / ".g.0123456789abcdef.staging"
    (dead / "graph").mkdir(parents=True)
    live = engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None)
    assert not dead.exists()
    engine.delete_tree(str(tmp_path / "g"))
    engine.prepare_create(str(tmp_path / "g"), SCHEMA, actor=None).abort()
    assert live.publish() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["g"]


URI = "s3://bucket/graphs/k.omni"
CONTENT = ("manifests/1", "nodes/t.lance/data")


class Death(BaseException):
    """The end of an actor: nothing that it does afterwards reaches the store."""


class Prefix:
    """A prefix of a bucket in a dictionary; `turn` is called before every request."""

    location = URI
    parallel = 1

    def __init__(self, objects: dict[str, bytes], turn: Callable[[], object]) -> None:
        self._objects = objects
        self._turn = turn

    def display(self, key: str) -> str:
        return f"{self.location}/{key}"

    def read(self, key: str) -> bytes | None:
        self._turn()
        return self._objects.get(self.display(key))

    def create(self, key: str, data: bytes) -> bool:
        self._turn()
        return self._objects.setdefault(self.display(key), data) is data

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        self._turn()
        if self._objects.get(self.display(key)) != expected:
            return False
        self._objects[self.display(key)] = data
        return True

    def write(self, key: str, data: bytes) -> None:
        self._turn()
        self._objects[self.display(key)] = data

    def delete(self, key: str) -> None:
        self._turn()
        self._objects.pop(self.display(key), None)

    def names(self, prefix: str) -> tuple[str, ...]:
        raise NotImplementedError

    def keys(self, prefix: str = "") -> Iterator[str]:
        self._turn()
        start = self.display("")
        below = self.display(f"{prefix}/" if prefix else "")
        return iter([key.removeprefix(start) for key in self._objects if key.startswith(below)])

    def delete_keys(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.delete(key)


def root_over(objects: dict[str, bytes], turn: Callable[[], object] = lambda: None) -> ObjectRoot:
    prefix = Prefix(objects, turn)
    return ObjectRoot(prefix, lambda: {"aws_endpoint": "http://127.0.0.1:1"}, lambda: prefix)


class Actor(threading.Thread):
    """Runs a deed, one request per step."""

    def __init__(self, objects: dict[str, bytes], deed: Callable[[ObjectRoot], object]) -> None:
        super().__init__(daemon=True)
        self._deed, self._root = deed, root_over(objects, self._wait)
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self.over, self._dead = False, False
        self.error: BaseException | None = None
        self.start()
        self._stopped.acquire()

    def run(self) -> None:
        try:
            self._wait()
            self._deed(self._root)
        except BaseException as error:  # noqa: BLE001 - handed to the schedule
            self.error = error
        self.over = True
        self._stopped.release()

    def step(self, *, die: bool = False) -> None:
        """Let the next request happen, or none any more."""
        self._dead = die
        self._go.release()
        self._stopped.acquire()

    def _wait(self) -> None:
        if self._dead:
            raise Death
        self._stopped.release()
        self._go.acquire()
        if self._dead:
            raise Death


def identity(number: int) -> GraphIdentity:
    return GraphIdentity(SequentialIds(number).ulid(), "2026-01-01T00:00:00Z")


def make(root: GraphRoot, number: int) -> None:
    """What the engine does to create a graph."""
    staging = root.stage(identity(number))
    try:
        for key in CONTENT:
            staging.folder.store.write(key, b"x")
        staging.take_root()
    except BaseException:
        staging.discard()
        raise


def graph_in(objects: dict[str, bytes]) -> str | None:
    """The id of the graph that opens, after a look at whether it is whole."""
    try:
        found, _ = root_over(objects).open()
    except GitopsError:
        return None
    missing = [key for key in CONTENT if f"{URI}/{found.graph_id}/{key}" not in objects]
    assert not missing, "a graph opens with part of its data"
    return found.graph_id


# Who goes on, for how many requests, and whether this is the end of it.
BURSTS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.sampled_from([False, False, True])), max_size=12)


@settings(max_examples=cases(400))
@given(
    removers=st.sets(st.integers(0, 2), max_size=2), bursts=BURSTS, begun=st.sampled_from(["empty", "graph", "claim"])
)
def test_in_every_order_a_graph_is_whole_or_absent(
    removers: set[int], bursts: list[tuple[int, int, bool]], begun: str
) -> None:
    objects: dict[str, bytes] = {}
    seen: set[str] = set()
    if begun == "graph":
        make(root_over(objects), 9)
        seen.add(identity(9).graph_id)
    elif begun == "claim":
        root_over(objects).stage(identity(9)).folder.store.write("left", b"x")
    actors = [
        Actor(objects, ObjectRoot.remove if n in removers else functools.partial(make, number=n + 1)) for n in range(3)
    ]
    for n, length, deadly in [*bursts, *((n, 200, False) for n in range(3))]:
        for left in reversed(range(length)):
            if not actors[n].over:
                actors[n].step(die=deadly and not left)
                seen |= {graph for graph in [graph_in(objects)] if graph}
    made = {identity(n + 1).graph_id for n in range(3) if n not in removers and actors[n].error is None}
    dead = any(isinstance(actor.error, Death) for actor in actors)
    assert all(actor.over for actor in actors)
    assert all(isinstance(actor.error, GitopsError | Death | None) for actor in actors)
    assert made <= seen
    assert dead or seen <= made | {identity(9).graph_id}
    if not removers:
        assert len(seen) <= 1
        assert (graph_in(objects) is not None) == bool(seen)
    _check_end(objects)


def _check_end(objects: dict[str, bytes]) -> None:
    """A root that is absent is free; what is there can be removed, and then nothing is left of it."""
    root = root_over(objects)
    if root.existence() is Existence.PRESENT:
        with pytest.raises(GitopsError) as failure:
            make(root, 5)
        assert failure.value.code == "graph_exists"
        root.remove()
        assert objects == {}
    make(root, 6)
    assert graph_in(objects) == identity(6).graph_id
    folders = {key.removeprefix(URI).split("/")[1] for key in objects}
    assert folders == {"graph.json", identity(6).graph_id}


def test_a_later_claim_fences_an_earlier_one() -> None:
    objects: dict[str, bytes] = {}
    first = root_over(objects).stage(identity(1))
    second = root_over(objects).stage(identity(2))
    with pytest.raises(ConflictError):
        first.take_root()
    first.discard()
    second.folder.store.write(CONTENT[0], b"x")
    second.folder.store.write(CONTENT[1], b"x")
    second.take_root()
    assert graph_in(objects) == identity(2).graph_id


@pytest.mark.parametrize("arrived", [False, True])
def test_a_lost_answer_to_the_publication_costs_no_data(arrived: bool) -> None:
    objects: dict[str, bytes] = {}
    staging = root_over(objects).stage(identity(1))
    for key in CONTENT:
        staging.folder.store.write(key, b"x")
    claim = objects[f"{URI}/graph.json"]
    if arrived:
        objects[f"{URI}/graph.json"] = identity(1).to_bytes()
    staging.discard()
    assert graph_in(objects) == (identity(1).graph_id if arrived else None)
    assert arrived or objects.keys() == {f"{URI}/graph.json"}
    assert objects[f"{URI}/graph.json"] != claim


@pytest.mark.parametrize(
    "objects",
    [
        {"_schema.pg": b""},
        {"manifests/x": b""},
        {f"{identity(1).graph_id}/manifests/x": b""},
        {"graph.json": b""},
        {"graph.json": b"[" * 200_000},
        {"graph.json": b'{"format":2,"claimed_by":null}'},
        {"graph.json": b'{"format":1,"claimed_by":"x"}'},
        {"graph.json": json.dumps({"format": 1, "graph_id": identity(1).graph_id}).encode()},
    ],
)
def test_what_is_neither_graph_nor_claim_is_present_and_does_not_open(objects: dict[str, bytes]) -> None:
    objects = {f"{URI}/{key}": data for key, data in objects.items()}
    root = root_over(objects)
    assert root.existence() is Existence.PRESENT
    with pytest.raises(GitopsError) as failure:
        root.open()
    assert failure.value.code == "graph_unreadable"
    with pytest.raises(GitopsError) as failure:
        root.stage(identity(2))
    assert failure.value.code == "graph_exists"
    root.remove()
    assert root.existence() is Existence.ABSENT
    assert objects == {}


def test_a_foreign_object_beside_a_claim_keeps_the_root_taken() -> None:
    objects: dict[str, bytes] = {}
    root_over(objects).stage(identity(1))
    objects[f"{URI}/_schema.pg"] = b""
    with pytest.raises(GitopsError, match=r"_schema\.pg") as failure:
        root_over(objects).stage(identity(2))
    assert failure.value.code == "graph_exists"


@pytest.mark.parametrize("claimed", [False, True])
def test_of_a_graph_that_appears_while_another_begins_one_is_kept(claimed: bool) -> None:
    """Between the look at the root and the claim another maker finishes."""
    objects: dict[str, bytes] = {}
    if claimed:
        root_over(objects).stage(identity(1)).discard()
    requests: list[int] = []

    def turn() -> None:
        requests.append(1)
        if len(requests) == 3:
            make(root_over(objects), 2)

    with pytest.raises(ConflictError):
        root_over(objects, turn).stage(identity(3))
    assert graph_in(objects) == identity(2).graph_id


def test_a_claim_that_appears_during_a_look_is_no_graph() -> None:
    objects: dict[str, bytes] = {}
    requests: list[int] = []

    def turn() -> None:
        requests.append(1)
        if len(requests) % 3 == 2:
            objects.clear()
            root_over(objects).stage(identity(1))
        elif len(requests) % 3 == 0:
            assert objects

    assert root_over(objects, turn).existence() is Existence.ABSENT
    objects.clear()
    with pytest.raises(GitopsError) as failure:
        root_over(objects, turn).open()
    assert failure.value.code == "graph_missing"

    objects.clear()
    root_over(objects, turn).stage(identity(2))
    assert identity(2).graph_id.encode() in objects[f"{URI}/graph.json"]


def test_a_claim_is_taken_over_with_all_that_its_makers_left() -> None:
    objects: dict[str, bytes] = {}
    for number in (1, 2, 3):
        root_over(objects).stage(identity(number)).folder.store.write("left", b"x")
        objects[f"{URI}/{identity(number + 10).graph_id}/late"] = b"x"
    make(root_over(objects), 4)
    assert {key.removeprefix(URI).split("/")[1] for key in objects} == {"graph.json", identity(4).graph_id}


def test_neighbours_are_not_touched() -> None:
    objects = {f"{URI}2/graph.json": b"x", "s3://bucket/graphs/k": b"x"}
    root = root_over(objects)
    assert root.existence() is Existence.ABSENT
    make(root, 1)
    root.remove()
    assert len(objects) == 2


def test_a_store_that_does_not_answer_is_unknown() -> None:
    def turn() -> None:
        raise RemoteError("storage_failed", "no answer")

    root = root_over({}, turn)
    assert root.existence() is Existence.UNKNOWN
    for call in (root.open, root.remove, lambda: root.stage(identity(1)), lambda: root.holds(identity(1))):
        with pytest.raises(RemoteError):
            call()


@pytest.mark.parametrize(
    "uri",
    [
        "s3:",
        "s3:/b/k",
        "s3://",
        "s3://b",
        "s3://b/",
        "s3:///k",
        "s3://b//k",
        "s3://b/../k",
        "s3://b/a/./k",
        "s3://b/a%2fb",
        "s3://b/a?b",
        "s3://b/a#b",
        "s3://b/a b",
        "s3://b/é",
        "s3://user:secret@b/k",
        "s3://b/k\n",
        "s3://b/k\0",
    ],
)
def test_other_addresses_are_refused(uri: str) -> None:
    with pytest.raises(GitopsError) as failure:
        find_root(uri)
    assert failure.value.code == "graph_unreadable"


@pytest.mark.parametrize(
    ("tail", "above"),
    [
        ("team/brain/graphs/k.omni", "team/brain/"),
        ("graphs/k.omni//", ""),
        ("k", ""),
        ("a=1/c@d+e_f/k", "a=1/c@d+e_f/"),
    ],
)
def test_the_service_is_tested_beside_the_root_and_the_root_is_where_it_was_asked_for(
    s3: S3Place, tail: str, above: str
) -> None:
    root = find_root(f"s3://{s3.bucket}/{tail}")
    make(root, 1)
    place = f"/{s3.bucket}/{tail.rstrip('/')}/"
    puts = [asked.path for asked in s3.server.log if asked.method == "PUT"]
    assert {path.startswith(f"/{s3.bucket}/{above}__cluster/.probe-") for path in puts[:8]} == {True}
    assert {path.startswith(place) for path in puts[8:]} == {True}
    assert root.location == f"s3:/{place}".rstrip("/")
    assert root.existence() is Existence.PRESENT
    root.remove()
    assert s3.server.keys(s3.bucket) == ()


def test_the_driver_is_told_where_the_service_is() -> None:
    place = root_over({}).folder(identity(1)).dataset("nodes/t.lance")
    assert place.uri == f"{URI}/{identity(1).graph_id}/nodes/t.lance"
    assert place.options == {"aws_endpoint": "http://127.0.0.1:1"}


LIGHT = ("LanceEngine", "ReadTarget", "WriteContext", "list_branches", "open_snapshot", "read_log")


def declared() -> set[str]:
    """The names that type checkers see."""
    tree = ast.parse(inspect.getsource(front_door))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_every_name_is_declared_once_for_types_and_once_for_loading():
    assert sorted(declared()) == sorted(front_door._MODULE_OF)


@pytest.mark.parametrize("name", front_door._MODULE_OF)
def test_a_name_loads(name):
    found = getattr(front_door, name)
    assert isinstance(found, int) if name.isupper() else found.__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_that"):
        front_door.nothing_like_that  # noqa: B018


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_name_loads_no_driver(name):
    probe = (
        f"import sys; from gitops.database.graph import {name}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    assert {"lance", "pyarrow", "numpy"}.isdisjoint(run.stdout.split())


@pytest.mark.parametrize("hint", [0, 1, 2, 3])
def test_what_a_writer_left_does_not_stop_others_though_gc_removed_some_of_it(tmp_path: Path, hint: int) -> None:
    """Whatever version the driver's hint names: the manifest's, one that is gone, the newest, or one to come."""
    history = WrittenGraph(tmp_path / "g.omni").create("node P { k: String @key  n: I32? }")
    history.load([{"type": "P", "data": {"k": "a", "n": 1}}])
    entry = open_snapshot(history.uri).manifest.tables["node:P"]
    place = Path(history.uri, entry.path)
    for n in range(2):
        lance.write_dataset(
            pa.table({"id": [f"x{n}"], "k": [f"x{n}"], "n": pa.array([n], pa.int32())}), place, mode="append"
        )
    Path(place, version_file(entry.version + 1)).unlink()
    Path(place, "_versions/latest_version_hint.json").write_text(
        f'{{"version":{entry.version + hint}}}', encoding="utf-8"
    )
    for n in range(3):
        history.mutate('update P set { n: $n } where k = "a"', {"n": n}, "$n: I32")
        assert [row["data"]["n"] for row in history.rows("P")] == [n]
    assert verify_graph(history.uri, deep=True).ok


@pytest.mark.parametrize("content", [b"", b"\0" * 13, b'{"version":1}', b'{"version":99}', b"\xff"])
def test_a_damaged_hint_of_the_driver_does_no_harm(tmp_path: Path, content: bytes) -> None:
    history = History(str(tmp_path / "g.omni"))
    history.people("main", ann=1)
    history.people("main", bob=2)
    hints = list(Path(history.uri).rglob("latest_version_hint.json"))
    assert hints
    for hint in hints:
        hint.write_bytes(content)
    assert history.ages() == {"ann": 1, "bob": 2}
    history.people("main", cid=3)
    assert history.ages() == {"ann": 1, "bob": 2, "cid": 3}
    assert history.ages(version=2) == {"ann": 1}
    assert verify_graph(history.uri, deep=True).ok
