"""The manifest document: strict to read, the same bytes to write, and published once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.clock import encode_ulid
from gitops.core.errors import GitopsError, IntegrityError
from gitops.database.graph import layout
from gitops.database.graph.local_root import locate
from gitops.database.graph.manifest import (
    CommitRef,
    DroppedTable,
    GraphIdentity,
    Manifest,
    TableEntry,
    head_number,
    publish,
    read_identity,
    read_manifest,
)
from tests.support.histories import sealed
from tests.support.memory_store import MemoryStore

ID = encode_ulid(1, 2)
OTHER = encode_ulid(1, 7)


def manifest(n: int = 3, **changes: Any) -> Manifest:
    values = {
        "n": n,
        "parent": CommitRef("main", n - 1, encode_ulid(1, 0)) if n > 1 else None,
        "merge_parent": CommitRef(OTHER, 9, encode_ulid(1, 5)),
        "lineage": {OTHER: 9},
        "message": "why",
        "txn_id": ID,
        "operation": "migrate",
        "actor": "änn",
        "ts": "2026-01-01T00:00:00Z",
        "schema_source": "a" * 64,
        "schema_ir": "b" * 64,
        "tables": {
            "node:P": TableEntry(f"nodes/{ID}.lance", 4, 7, {"id": 0, "k": 1}),
            "edge:E": TableEntry(f"edges/{ID}.lance", 1, 0, {"id": 0}),
        },
        "dropped": (DroppedTable("node:Old", f"nodes/{encode_ulid(1, 1)}.lance", 2),),
    }
    return Manifest(**(values | changes))


def test_reading_gives_what_was_written() -> None:
    store = MemoryStore()
    for n, actor in ((1, None), (3, "änn")):
        assert publish(store, manifest(n, actor=actor))
        assert read_manifest(store, n) == manifest(n, actor=actor)
        assert read_manifest(store, n).to_bytes() == manifest(n, actor=actor).to_bytes()


def test_a_number_is_published_once_and_the_publisher_may_ask_again() -> None:
    store = MemoryStore()
    assert publish(store, manifest())
    assert not publish(store, manifest(txn_id=encode_ulid(5, 5)))
    assert publish(store, manifest())


@given(st.sets(st.integers(1, 10**20 - 1), min_size=1))
def test_the_head_is_the_largest_number(numbers: set[int]) -> None:
    store = MemoryStore()
    for n in numbers:
        store.write(layout.manifest_key(n), b"")
    store.write("manifests/00000000000000000000.json.bak", b"")
    store.write("manifests/0.json", b"")
    store.write("manifests/99999999999999999999.json", b"")
    assert head_number(store) == max(numbers)


def test_no_manifest_no_head() -> None:
    assert head_number(MemoryStore()) is None


def _set(*path: str, to: Any) -> Any:
    def change(form: dict[str, Any]) -> None:
        for part in path[:-1]:
            form = form[part]
        form[path[-1]] = to

    return change


BROKEN = {
    "newer format": _set("format", to=5),
    "format is a truth value": _set("format", to=True),
    "unknown member": _set("extra", to=1),
    "other number": _set("n", to=4),
    "other parent": _set("parent", "n", to=1),
    "parent is a number": _set("parent", to=2),
    "no parent": _set("parent", to=None),
    "other line": _set("line", to=OTHER),
    "bad line": _set("line", to="../main"),
    "bad merge parent": _set("merge_parent", "line", to="x"),
    "lineage of no line": _set("lineage", to={"x": 1}),
    "lineage of text": _set("lineage", OTHER, to="1"),
    "message is a number": _set("message", to=1),
    "bad id": _set("txn_id", to="x"),
    "bad operation": _set("operation", to="guess"),
    "bad time": _set("ts", to="yesterday"),
    "bad actor": _set("actor", to=1),
    "bad digest": _set("schema", "ir", to="b" * 63),
    "unknown schema member": _set("schema", "more", to="b" * 64),
    "tables is a list": _set("tables", to=[]),
    "table is a list": _set("tables", "node:P", to=[]),
    "bad key": _set("tables", "node:P/..", to={}),
    "path leads out": _set("tables", "node:P", "path", to="nodes/../../etc.lance"),
    "path of another kind": _set("tables", "node:P", "path", to=f"edges/{ID}.lance"),
    "version zero": _set("tables", "node:P", "version", to=0),
    "version is a float": _set("tables", "node:P", "version", to=1.0),
    "version is huge": _set("tables", "node:P", "version", to=2**63),
    "rows negative": _set("tables", "node:P", "rows", to=-1),
    "field is text": _set("tables", "node:P", "fields", "k", to="1"),
    "dropped is text": _set("dropped", to="x"),
    "dropped entry is text": _set("dropped", to=["x"]),
    "dropped path leads out": _set("dropped", to=[{"key": "node:A", "path": "/etc", "version": 1}]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_document_that_is_not_well_formed_is_refused(name: str) -> None:
    form = json.loads(manifest().to_bytes())
    BROKEN[name](form)
    # What is wrong is found without the help of the checksum.
    store = MemoryStore()
    store.write(layout.manifest_key(3), json.dumps(sealed(form)).encode())
    with pytest.raises(IntegrityError) as failure:
        read_manifest(store, 3)
    assert failure.value.code == "graph_unreadable"


WELL_FORMED = {
    "branch": "b",
    "txn_id": OTHER,
    "parent": {"line": "main", "n": 2, "commit": OTHER},
    "merge_parent": None,
    "lineage": {OTHER: 3},
    "operation": "merge",
    "message": None,
    "actor": "eve",
    "ts": "2027-01-01T00:00:00Z",
    "schema": {"source": "d" * 64, "ir": "e" * 64},
    "tables": {"node:P": {"path": f"nodes/{ID}.lance", "version": 3, "rows": 7, "fields": {"id": 0, "k": 1}}},
    "dropped": [],
    "fence": 9,
    "approvals": ["x"],
    "checksum": "f" * 64,
}


@pytest.mark.parametrize("member", WELL_FORMED)
def test_a_document_that_was_changed_is_refused_however_well_formed(member: str) -> None:
    form, store = json.loads(manifest().to_bytes()), MemoryStore()
    assert set(form) - set(WELL_FORMED) == {"format", "n", "line"}
    store.write(layout.manifest_key(3), json.dumps(form | {member: WELL_FORMED[member]}).encode())
    with pytest.raises(IntegrityError, match="checksum: the content has the digest") as failure:
        read_manifest(store, 3)
    assert failure.value.code == "graph_unreadable"


@pytest.mark.parametrize("member", json.loads(manifest().to_bytes()))
def test_every_member_is_required(member: str) -> None:
    form = json.loads(manifest().to_bytes())
    del form[member]
    store = MemoryStore()
    store.write(layout.manifest_key(3), json.dumps(form).encode())
    with pytest.raises(IntegrityError):
        read_manifest(store, 3)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(list(json.loads(manifest().to_bytes()))) | st.text(), inner)
    ),
    max_leaves=20,
)


@given(st.binary() | _JSON.map(lambda v: json.dumps(v).encode()) | st.just(b"[" * 200_000) | st.just(b'{"a":1,"a":1}'))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    store = MemoryStore()
    store.write(layout.manifest_key(1), data)
    store.write(layout.IDENTITY, data)
    for read in (lambda: read_manifest(store, 1), lambda: read_identity(store)):
        with pytest.raises(IntegrityError):
            read()


def test_the_identity_reads_back() -> None:
    store = MemoryStore()
    identity = GraphIdentity(ID, "2026-01-01T00:00:00Z")
    store.write(layout.IDENTITY, identity.to_bytes())
    assert read_identity(store) == identity


@pytest.mark.parametrize(
    ("uri", "path"),
    [("/a/b.omni", "/a/b.omni"), ("file:///a/b%20c", "/a/b c"), ("file://localhost/a", "/a"), ("/a/../b/", "/b")],
)
def test_locations(uri: str, path: str) -> None:
    assert str(locate(uri)) == path


@pytest.mark.parametrize(
    "uri", ["", "s3://bucket/g", "file://host/a", "file:a", "file:///a%00b", "/a\0b", "https://x/y"]
)
def test_other_locations_are_refused(uri: str) -> None:
    with pytest.raises(GitopsError) as failure:
        locate(uri)
    assert failure.value.code == "graph_unreadable"
