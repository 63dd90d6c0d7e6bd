"""Laws of a folder and what it declares: addresses, digests, loading, and differences."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.config.cluster_yaml import load_header, parse_cluster, read_cluster
from gitops.cluster.config.declaration import config_digest, config_form
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.sound import ComparedFolder, FolderDifference, require_plain
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import (
    Address,
    Kind,
    graph_address,
    policy_address,
    query_address,
    schema_address,
    trust_address,
)
from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import EntryType, TreeEntry
from tests.support.effort import cases

LINK, SUBMODULE = "link", "submodule"
_names = st.sampled_from(["a", "b", "A", "c", "a:b", "ok.gq"])
_plain_names = st.sampled_from(["a", "b", "c", "d"])
Folder = dict[str, Any]


def _folders(names: st.SearchStrategy[str], leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Folder]:
    below = st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3), max_leaves=8)
    return st.dictionaries(names, below, max_size=4)


_files = st.integers(0, 3)
_old = _folders(_plain_names, _files)
_any = _folders(_names, _files | st.sampled_from([LINK, SUBMODULE]))


class Trees:
    """A GitReader with trees alone; `looked_at` are those that were listed."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[TreeEntry, ...]] = {}
        self.looked_at: list[str] = []

    def add(self, folder: Folder) -> str:
        entries = []
        for name, value in folder.items():
            if isinstance(value, dict):
                entries.append(TreeEntry(name, EntryType.TREE, self.add(value)))
            elif isinstance(value, str):
                kind = EntryType.SYMLINK if value == LINK else EntryType.SUBMODULE
                entries.append(TreeEntry(name, kind, "0" * 40))
            else:
                entries.append(TreeEntry(name, EntryType.FILE, f"{value:040}"))
        found = tuple(entries)
        tree = hashlib.sha1(repr(found).encode()).hexdigest()  # noqa: S324 - an id, as git makes it
        self.known[tree] = found
        return tree

    def entries(self, tree: str) -> tuple[TreeEntry, ...]:
        self.looked_at.append(tree)
        if tree not in self.known:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"no tree {tree}")
        return self.known[tree]


def verdict(trees: Any, tree: str, known: Any = None) -> str:
    try:
        return require_plain(trees, tree, "cluster", known).plain.tree
    except GitopsError as error:
        return f"{error.code}: {error.detail}"


@settings(max_examples=cases(300))
@given(old=_old, new=_any, merged=st.booleans(), gone=st.booleans())
def test_a_known_folder_changes_no_verdict(old: Folder, new: Folder, merged: bool, gone: bool) -> None:
    trees: Any = Trees()
    before = require_plain(trees, trees.add(old), "cluster").plain
    after = trees.add({**old, **new} if merged else new)
    if gone:
        # The commit that was applied is not in this clone.
        trees.known.pop(before.tree) if before.tree != after else None
    assert verdict(trees, after, before) == verdict(trees, after)
    assert verdict(trees, after, before._replace(folders=20_000)) == verdict(trees, after)


def test_only_what_differs_is_looked_at() -> None:
    trees: Any = Trees()
    old: Folder = {f"g{n}": {"queries": {"q.gq": n % 4}, "schema.pg": n} for n in range(50)}
    before = require_plain(trees, trees.add(old), "cluster").plain
    assert before.folders == 1 + 50 + 4
    trees.looked_at.clear()
    changed: Folder = {**old, "g7": {"queries": {"q.gq": 9}, "schema.pg": 1}}
    after, found = require_plain(trees, trees.add(changed), "cluster", before)
    # The folder, the graph and its queries, as they were and as they are.
    assert len(trees.looked_at) == 6
    assert after.folders == before.folders + 3
    trees.looked_at.clear()
    assert found == FolderDifference(
        frozenset({"g7", "g7/queries", "g7/queries/q.gq", "g7/schema.pg"}),
        frozenset({"g7/queries/q.gq", "g7/schema.pg"}),
    )
    again = require_plain(trees, after.tree, "cluster", after)
    assert again == ComparedFolder(after, FolderDifference(frozenset(), frozenset()))
    assert trees.looked_at == []


def _at(folder: Folder, place: str) -> Any:
    found: Any = folder
    for name in () if place == "." else place.split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _places(folder: Folder) -> set[str]:
    below = {f"{name}/{place}" for name, value in folder.items() if isinstance(value, dict) for place in _places(value)}
    return {".", *folder, *(place.removesuffix("/.") for place in below)}


@settings(max_examples=cases(300))
@given(old=_old, new=_old, merged=st.booleans())
def test_each_place_that_differs_is_covered(old: Folder, new: Folder, merged: bool) -> None:
    trees: Any = Trees()
    new = {**old, **new} if merged else new
    before = require_plain(trees, trees.add(old), "cluster").plain
    found = require_plain(trees, trees.add(new), "cluster", before).difference
    assert found is not None
    for place in _places(old) | _places(new):
        assert found.covers(place) or _at(old, place) == _at(new, place)
    assert found.covers(".") == (trees.add(old) != trees.add(new))


TEXTS = st.text(max_size=12) | st.from_regex(r"(graph|schema|query|policy|trust)\.[A-Za-z_.é-]{0,6}", fullmatch=True)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)


@given(st.lists(TEXTS))
def test_order_equality_and_hash_are_those_of_the_text(texts: list[str]) -> None:
    addresses = [Address(text) for text in texts]
    assert sorted(addresses) == sorted(texts)
    assert dict.fromkeys(addresses) == dict.fromkeys(texts)


@given(st.dictionaries(TEXTS, st.integers()))
def test_a_document_keyed_by_addresses_has_the_bytes_of_one_keyed_by_texts(values: dict[str, int]) -> None:
    keyed = {Address(text): value for text, value in values.items()}
    assert canonical(keyed) == canonical(values)
    assert json.dumps([*keyed]) == json.dumps([*values])


@given(TEXTS)
def test_every_text_is_an_address_of_some_kind(text: str) -> None:
    address = Address(text)
    assert f"{address}" == text
    assert (address.graph is None) == (address.kind in (Kind.POLICY, Kind.TRUST, Kind.UNKNOWN))
    assert (address.graph_address is None) == (address.graph is None) == (address.schema_address is None)
    if address.kind is Kind.UNKNOWN:
        assert address.name == text
    else:
        parts = (address.kind.value, *((address.graph,) if address.kind is Kind.QUERY else ()), address.name)
        assert ".".join(map(str, parts)) == text


@given(NAMES, NAMES)
def test_what_belongs_to_a_graph_names_the_graph_and_its_schema(graph: str, name: str) -> None:
    for address, kind in (
        (graph_address(graph), Kind.GRAPH),
        (schema_address(graph), Kind.SCHEMA),
        (query_address(graph, name), Kind.QUERY),
    ):
        assert (address.kind, address.graph) == (kind, graph)
        assert (address.graph_address, address.schema_address) == (graph_address(graph), schema_address(graph))
    assert query_address(graph, name).name == name


@given(NAMES)
def test_policies_and_rules_belong_to_no_graph(name: str) -> None:
    for address, kind in ((policy_address(name), Kind.POLICY), (trust_address(name), Kind.TRUST)):
        assert (address.kind, address.name, address.graph) == (kind, name, None)


_names_of_config_digest = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,6}", fullmatch=True)
_texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=8)


def _named(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Up to three named values; no two names differ in case alone, which `cluster.yaml` may not have."""
    pairs = st.lists(st.tuples(_names_of_config_digest, values), max_size=3, unique_by=lambda pair: pair[0].casefold())
    return pairs.map(dict)


_queries = _named(st.fixed_dictionaries({"file": _texts})) | _texts | st.lists(_texts, max_size=3)
_clusters = st.fixed_dictionaries(
    {"version": st.integers(0, 3)},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"name": st.none() | _texts}),
        "storage": st.none() | _texts,
        "state": st.fixed_dictionaries({}, optional={"backend": st.none() | _texts, "lock": st.none() | st.booleans()}),
        "graphs": _named(st.fixed_dictionaries({"schema": _texts}, optional={"queries": _queries})),
        "policies": _named(st.fixed_dictionaries({"file": _texts, "applies_to": st.lists(_texts, max_size=3)})),
    },
)


def shuffled(value: Any, chance: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    return value


def block(value: Any, chance: random.Random, indent: int = 0) -> str:
    """Block style with comments, blank lines and odd indents; leaves and empty collections as JSON."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.1:
        return " " + json.dumps(value, ensure_ascii=False) + chance.choice(["", "  # note"]) + "\n"
    step = chance.randint(1, 4)
    pad = " " * (indent + step if indent else 0)
    inner = len(pad) or 1
    lines = "\n"
    for item in value:
        lines += chance.choice(["", "\n", f"{pad}# comment: {{\n"])
        if isinstance(value, dict):
            key = json.dumps(item, ensure_ascii=False)
            lines += f"{pad}{key}:" + block(value[item], chance, inner)
        else:
            lines += f"{pad}-" + block(item, chance, inner)
    return lines


def digest_of(text: str) -> str:
    cluster, found = parse_cluster(text.encode())
    assert cluster is not None, (text, found.to_json())
    return config_digest(config_form(cluster), {Address("policy.p"): "0" * 64})


@given(_clusters, st.randoms(use_true_random=False))
def test_formatting_comments_and_key_order_keep_the_digest(cluster: dict[str, Any], chance: random.Random) -> None:
    plain = digest_of(json.dumps(cluster, ensure_ascii=False))
    assert digest_of(block(shuffled(cluster, chance), chance)) == plain


@given(_clusters, _clusters)
def test_another_configuration_has_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    def meaning(cluster: dict[str, Any]) -> str:
        metadata, state = cluster.get("metadata", {}), cluster.get("state", {})
        graphs = {n: {"queries": {}, **g} for n, g in cluster.get("graphs", {}).items()}
        form = [
            cluster["version"],
            metadata.get("name"),
            cluster.get("storage"),
            state.get("backend"),
            state.get("lock"),
        ]
        return json.dumps([*form, graphs, cluster.get("policies", {})], sort_keys=True)

    same = digest_of(json.dumps(one, ensure_ascii=False)) == digest_of(json.dumps(other, ensure_ascii=False))
    assert same == (meaning(one) == meaning(other))


VALID = (
    b"version: 1\nmetadata: {name: x}\nstorage: s3://b/p\nstate: {backend: cluster, lock: true}\n"
    b"graphs:\n  g:\n    schema: s.pg\n    queries: [q, ./q/a.gq]\n  h: {schema: s.pg, queries: {a: {file: q/a.gq}}}\n"
    b"policies:\n  p:\n    file: p.yaml\n    applies_to: [cluster, g, graph.h]\n"
)
PG = b"node Person {\n  name: String @key\n}\n"
GQ = b"query a($n: String) {\n  match { $p: Person { name: $n } }\n  return { $p.name }\n}\n"
_pieces = st.sampled_from(
    [
        b"",
        b"\n",
        b" ",
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
        b"#",
        b"'",
        b'"',
        b"&a ",
        b"*a ",
        b"!x ",
        b"\t",
        b"\xff",
        b"\x00",
        b"~",
        b"null",
    ]
) | st.sampled_from([b"..", b"/", b"graphs", b"queries", b"apply", b"\\", b"<<: ", b"- ", b"9" * 30, "\u202e".encode()])


@st.composite
def mutations(draw: st.DrawFn, source: bytes) -> bytes:
    """`source` with a few spans replaced by pieces of syntax."""
    data = source
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 12)))
        data = data[:start] + draw(_pieces) + data[end:]
    return data


@given(mutations(VALID) | st.binary(max_size=100), mutations(PG) | st.just(PG), mutations(GQ) | st.just(GQ))
def test_any_content_is_answered(cluster: bytes, schema: bytes, query: bytes) -> None:
    tree = MemoryTree({"cluster.yaml": cluster, "s.pg": schema, "q/a.gq": query, "p.yaml": b"version: 1\nrules: []\n"})
    result = load_desired(tree)
    assert (result.desired is None) == result.diagnostics.has_errors
    assert all(d.message.isprintable() and d.path.isprintable() for d in result.diagnostics)
    header, found = load_header(tree)
    assert header == result.header
    assert (header is None) == found.has_errors
    assert list(result.diagnostics)[: len(found)] == list(found)


@given(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=4))
def test_any_names_and_paths_are_answered(files: dict[str, str]) -> None:
    graphs = {name: {"schema": path, "queries": [path, name]} for name, path in files.items()}
    policies = {name: {"file": path, "applies_to": [path, f"graph.{name}"]} for name, path in files.items()}
    document = {"version": 1, "graphs": graphs, "policies": policies}
    result = load_desired(MemoryTree({"cluster.yaml": json.dumps(document).encode()}))
    assert (result.desired is None) == result.diagnostics.has_errors


_SCHEMAS = ("s.pg", "q/t.pg")
_QUERIES = ("q/a.gq", "q/b.gq", "q/deep/c.gq", "x.gq")
_names_of_difference_laws = st.sampled_from(["a", "b"])
_content = st.sampled_from(
    [b"", b"node Person {\n  name: String @key\n}\n", b"node {", b"\xff", b"version: 1\nrules: []\n"]
) | st.lists(_names_of_difference_laws, max_size=2).map(
    lambda names: "".join(f"query {n}() {{ match {{ $p: Person }} return {{ $p.name }} }}\n" for n in names).encode()
)
_folders_of_difference_laws = st.dictionaries(st.sampled_from([*_SCHEMAS, *_QUERIES, "p.yaml"]), _content)
_sources = st.sampled_from(["q", "q/", "./q", ".", "x.gq", "q/deep", "gone", "../out", "/abs"])
_listed = (
    st.dictionaries(
        _names_of_difference_laws,
        st.fixed_dictionaries({"file": st.sampled_from([*_QUERIES, "q/../x.gq", "q"])}),
        max_size=2,
    )
    | _sources
    | st.lists(_sources, max_size=2)
)
_documents = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "graphs": st.dictionaries(
            st.sampled_from(["g", "h", "1bad"]),
            st.fixed_dictionaries({"schema": st.sampled_from([*_SCHEMAS, "gone.pg"]), "queries": _listed}),
            max_size=3,
        ),
        "policies": st.dictionaries(
            st.sampled_from(["p", "r"]),
            st.fixed_dictionaries(
                {
                    "file": st.sampled_from(["p.yaml", "x.gq"]),
                    "applies_to": st.lists(st.sampled_from(["cluster", "g", "graph.h"]), max_size=2),
                }
            ),
            max_size=2,
        ),
    }
)


@st.composite
def _pairs(draw: st.DrawFn) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """A folder, and the same after edits of its files, of its declarations, or both."""
    old, document = draw(_folders_of_difference_laws), draw(_documents)
    new = {**old, **draw(_folders_of_difference_laws)}
    for path in draw(st.sets(st.sampled_from(sorted(new) or [""]), max_size=2)):
        new.pop(path, None)
    # Indented otherwise, everything is at another place and says the same.
    later = draw(st.sampled_from([document, document, draw(_documents)]))
    old["cluster.yaml"] = json.dumps(document).encode()
    new["cluster.yaml"] = json.dumps(later, indent=draw(st.sampled_from([None, 2]))).encode()
    return old, new


def _declared(files: dict[str, bytes]) -> dict[str, Any]:
    loaded = load_desired(MemoryTree(files)).resources
    return {text: (r.digest, r.applies_to or ()) for text, r in loaded.items()}


def _own_text(files: dict[str, bytes], text: str) -> bytes | None:
    """What a folder declares of a query, without the rest of its file; the queries of these files have a line each."""
    resource = load_desired(MemoryTree(files)).resources.get(Address(text))
    if resource is None or resource.content is None or resource.address.kind is not Kind.QUERY:
        return None
    lines = resource.content.splitlines()
    return next((line for line in lines if line.startswith(f"query {resource.address.name}()".encode())), None)


@given(_pairs())
def test_a_comparison_finds_what_two_whole_loads_find(pair: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    old, new = pair
    paths = [path for path in old.keys() | new.keys() if old.get(path) != new.get(path)]
    before, after = _declared(old), _declared(new)
    expected = {text for text in before.keys() | after.keys() if before.get(text) != after.get(text)}
    # Of a file of queries, those count whose own text differs.
    expected = {text for text in expected if (own := _own_text(old, text)) is None or own != _own_text(new, text)}
    if None in (read_cluster(MemoryTree(files))[0] for files in (old, new)):
        expected = set()
    differences = Differences()
    assert differences.addresses(MemoryTree(old), MemoryTree(new), paths) == expected
    # The other way round, with what was parsed before.
    assert differences.addresses(MemoryTree(new), MemoryTree(old), paths) == expected
