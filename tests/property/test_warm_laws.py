"""Law: what is remembered changes how long a load takes, and nothing else. Poison is never more than wrong advice.

What a ledger vouches for is a fact where it is about the very files of the folder, and has no effect where it is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.sound import (
    ComparedFolder,
    LedgerGraphs,
    PlainFolder,
    SoundRecord,
    VouchedGraphs,
    sound_record,
)
from gitops.cluster.config.source import MemoryTree, SourceLimits, StampedTree
from gitops.cluster.model.address import Address
from tests.support.effort import cases
from tests.support.warm import cold, difference, shown, warm

_PG = [
    b"node Person {\n  name: String @key\n  age: I32?\n}\n",
    b"node Person {\n  name: String @key\n}\n",
    b"node Person {\n  name: String @key\n  name: I32\n}\n",
    b"node {",
    b"\xff",
]
_GQ = {
    "sound": "query {0}($n: String) {{ match {{ $p: Person {{ name: $n }} }} return {{ $p.name }} }}\n",
    "aged": "query {0}() {{ match {{ $p: Person }} return {{ $p.age }} }}\n",
    "wrong": "query {0}() {{ match {{ $p: Nobody }} return {{ $p.age }} }}\n",
    "broken": "query {0} {{{{\n",
}
_COMPILER = "c" * 64
_PLAIN = ComparedFolder(PlainFolder("1" * 40, 1))
_NAMES = ["a", "b", "c"]
_PATHS = ["q/a.gq", "q/b.gq", "q/deep/c.gq", "r/a.gq", "x.gq"]
_NEW_PATHS = ["q/n.gq", "q/deep/n.gq", "r/n.gq", "q/.gq"]
_SCHEMAS = ["s.pg", "q/t.pg", "r/u.pg"]


def query_file(parts: list[tuple[str, str]]) -> bytes:
    return "".join(_GQ[kind].format(name) for kind, name in parts).encode()


_names = st.sampled_from(_NAMES)
_queries = st.lists(st.tuples(st.sampled_from(["sound", "sound", "aged", "wrong", "broken"]), _names), max_size=3)
_files = st.sampled_from([*_PATHS, "./q/a.gq", "q/../x.gq", "q", "gone.gq", "/abs.gq"])
_sources = st.sampled_from(["q", "q/", "r", "x.gq", "q/deep", "./q", ".", "gone", "../out"])
_declared = (
    st.dictionaries(_names, st.fixed_dictionaries({"file": _files}), max_size=3)
    | _sources
    | st.lists(_sources, max_size=3)
)
_graphs = st.dictionaries(
    st.sampled_from(["g", "h", "1bad"]),
    st.fixed_dictionaries({"schema": st.sampled_from([*_SCHEMAS, "gone.pg"]), "queries": _declared}),
    max_size=3,
)
_policies = st.dictionaries(
    st.sampled_from(["p", "1bad"]),
    st.fixed_dictionaries(
        {
            "file": st.sampled_from(["p.yaml", "gone.yaml", "r/a.gq"]),
            "applies_to": st.lists(st.sampled_from(["cluster", "g", "graph.h", "graph.z", "schema.g"]), max_size=2),
        }
    ),
    max_size=2,
)
_documents = st.fixed_dictionaries(
    {"version": st.sampled_from([1, 1, 1, 2]), "graphs": _graphs, "policies": _policies},
    optional={"storage": st.sampled_from(["s3://b/p", "./store", "ftp://x"]), "metadata": st.just({"name": "n"})},
)


class Edits(RuleBasedStateMachine):
    """A folder under edit, loaded after each edit with and without a cache that lives as long as the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.cache, self.both = MemoryCache(), MemoryCache()
        self.files: dict[str, bytes] = {"p.yaml": b"version: 1\nrules: []\n"}
        self.refused: dict[str, str] = {}
        self.compared_with: dict[str, object] = {}
        self.limits = SourceLimits()
        self.steps = 0
        self.applied: tuple[SoundRecord, Mapping[Address, str]] = SoundRecord(_COMPILER, _PLAIN.plain, {}), {}
        for path in _SCHEMAS:
            self.files[path] = _PG[0]
        for number, path in enumerate(_PATHS):
            self.files[path] = query_file([("sound", "abcde"[number])])
        self.document({"version": 1, "graphs": {"g": {"schema": "s.pg", "queries": ["q", "x.gq"]}}, "policies": {}})

    @rule(value=_documents)
    def document(self, value: dict[str, Any]) -> None:
        self.files["cluster.yaml"] = json.dumps(value, indent=1).encode()

    @rule(data=st.sampled_from([b"", b"version: 1\n", b"a: [", b"version: 1\nversion: 1\n"]))
    def odd_document(self, data: bytes) -> None:
        self.files["cluster.yaml"] = data

    @rule(
        schema=st.sampled_from([*_SCHEMAS, "s.pg"]),
        queries=_declared,
        names=st.sets(st.sampled_from(["g", "h"]), min_size=1),
    )
    def sound_document(self, schema: str, queries: Any, names: set[str]) -> None:
        graphs = {name: {"schema": schema, "queries": queries} for name in sorted(names)}
        self.document(
            {"version": 1, "graphs": graphs, "policies": {"p": {"file": "p.yaml", "applies_to": ["cluster"]}}}
        )

    @rule(path=st.sampled_from(_NEW_PATHS), name=st.sampled_from(["n", "a"]))
    def add_query(self, path: str, name: str) -> None:
        self.files[path] = query_file([("sound", name)])

    @rule(path=st.sampled_from(_PATHS), parts=_queries)
    def edit_query(self, path: str, parts: list[tuple[str, str]]) -> None:
        self.files[path] = query_file(parts)

    @rule(path=st.sampled_from(_SCHEMAS), data=st.sampled_from([_PG[0], _PG[0], *_PG]))
    def edit_schema(self, path: str, data: bytes) -> None:
        self.files[path] = data

    @rule(path=st.sampled_from([*_PATHS, *_NEW_PATHS, *_SCHEMAS, "p.yaml"]))
    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    @rule(path=st.sampled_from(["q", "r", "q/deep", "q/a.gq", "s.pg"]), code=st.sampled_from(["source_symlink", ""]))
    def refuse(self, path: str, code: str) -> None:
        self.refused = {path: code} if code else {}

    @rule(files=st.sampled_from([3, 6, 20_000]), size=st.sampled_from([200, 1 << 20]))
    def limit(self, files: int, size: int) -> None:
        self.limits = SourceLimits(files=files, total_bytes=size)

    @rule(name=st.integers(0, 300))
    def forget(self, name: int) -> None:
        names = sorted(self.cache.entries)
        if names:
            del self.cache.entries[names[name % len(names)]]

    def tree(self) -> MemoryTree:
        return MemoryTree(self.files, refused=self.refused, limits=self.limits)

    def vouched(self, tree: StampedTree, *, compared: bool = False) -> VouchedGraphs:
        found = difference(self.compared_with, {**self.files, **self.refused}) if compared else None
        return VouchedGraphs(tree, _COMPILER, LedgerGraphs(*self.applied), ComparedFolder(_PLAIN.plain, found))

    def loaded(self, *, compared: bool = False) -> Loaded:
        tree = self.tree()
        return load_desired(tree, self.vouched(tree, compared=compared))

    @rule()
    def apply(self) -> None:
        """What an apply of the folder as it is leaves in the ledger; a folder with problems is not applied."""
        found = self.loaded()
        if found.desired is not None:
            digests = found.digests()
            self.applied = sound_record(self.vouched(self.tree()), found.sound, digests, digests), digests
            self.compared_with = {**self.files, **self.refused}

    @rule(one=st.sampled_from(["g", "h"]), other=st.sampled_from(["g", "h"]))
    def mix_up(self, one: str, other: str) -> None:
        """The ledger says of one graph what is true of another."""
        record, digests = self.applied
        if other in record.graphs:
            self.applied = replace(record, graphs={**record.graphs, one: record.graphs[other]}), digests

    @rule(number=st.integers(0, 20))
    def lose_a_digest(self, number: int) -> None:
        record, digests = self.applied
        if digests:
            lost = sorted(digests)[number % len(digests)]
            self.applied = record, {address: value for address, value in digests.items() if address != lost}

    @invariant()
    def every_load_says_what_a_cold_one_says(self) -> None:
        tree = self.tree()
        expected = cold(tree)
        assert warm(tree, self.cache) == expected
        # Nothing has changed since: what was just kept must not matter either.
        assert warm(tree, self.cache) == expected
        for compared in (False, True):
            assert shown(self.loaded(compared=compared)) == expected
            again = tree.reopened()
            assert (
                shown(load_desired(again, self.vouched(again, compared=compared), Hints(again, self.both))) == expected
            )


TestEdits = Edits.TestCase
TestEdits.settings = settings(max_examples=cases(60), stateful_step_count=20, deadline=None)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 20)
    | st.sampled_from(["", "g", "s.pg", "../x", "\0", "query.g.a", "a" * 64]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["g", "graphs", "file"]), inner, max_size=3)
    ),
    max_leaves=5,
)


def spots(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value inside a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(spot for key, item in inside for spot in spots(item, (*path, key)))]


def planted(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with another value at one place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = planted(value[path[0]], path[1:], new)
    return copy


_FOLDER = {
    "cluster.yaml": json.dumps(
        {
            "version": 1,
            "metadata": {"name": "n"},
            "graphs": {"g": {"schema": "s.pg", "queries": ["q", "x.gq"]}, "h": {"schema": "s.pg", "queries": {}}},
            "policies": {"p": {"file": "p.yaml", "applies_to": ["cluster", "g"]}},
        }
    ).encode(),
    "s.pg": _PG[0],
    "q/a.gq": query_file([("sound", "a")]),
    "q/b.gq": query_file([("aged", "b")]),
    "x.gq": query_file([("sound", "c")]),
    "p.yaml": b"version: 1\nrules: []\n",
}


@settings(max_examples=cases(400))
@given(entry=st.integers(0, 10), spot=st.integers(0, 200), new=_JSON, edit=st.sampled_from([None, "s.pg", "q/a.gq"]))
def test_no_poison_makes_a_load_fail(entry: int, spot: int, new: Any, edit: str | None) -> None:
    cache = MemoryCache()
    assert warm(MemoryTree(_FOLDER), cache) == cold(MemoryTree(_FOLDER))
    names = sorted(cache.entries)
    name = names[entry % len(names)]
    value = json.loads(cache.entries[name])
    found = spots(value)
    cache.entries[name] = json.dumps(planted(value, found[spot % len(found)], new)).encode()
    files = dict(_FOLDER) if edit is None else {**_FOLDER, edit: _FOLDER[edit] + b"\n"}
    # It may say something else, or that the folder moved: then it is loaded again from its files.
    warm(MemoryTree(files), cache)


@given(data=st.binary(max_size=60) | st.sampled_from([b"[" * 100_000, b"null", b"{}", b"[[],{},{},{},[],[]]"]))
def test_no_bytes_in_the_cache_change_anything(data: bytes) -> None:
    cache = MemoryCache()
    expected = warm(MemoryTree(_FOLDER), cache)
    cache.entries = dict.fromkeys(cache.entries, data)
    assert warm(MemoryTree(_FOLDER), cache) == expected


def test_the_storage_root_is_never_taken_from_the_cache() -> None:
    cache = MemoryCache()
    warm(MemoryTree(_FOLDER), cache)
    (name,) = [name for name in cache.entries if name.startswith("index")]
    value = json.loads(cache.entries[name])
    value[0][1][1] = "s3://of-somebody-else/x"
    cache.entries[name] = json.dumps(value).encode()
    found = warm(MemoryTree(_FOLDER), cache)
    assert found is not None
    assert found["header"].storage is None
    assert found == cold(MemoryTree(_FOLDER))
