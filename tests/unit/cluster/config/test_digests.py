"""The golden vectors of the digests, byte by byte, and what moves a configuration digest."""

from __future__ import annotations

import pytest

from gitops.cluster.config.cluster_yaml import parse_cluster
from gitops.cluster.config.declaration import config_form
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.resource import graph_composite
from gitops.core.canonical import compact, digest

SCHEMA = b"node Author {\n  handle: String @key\n  born: I32?\n}\n"
QUERY = b"query by_handle($h: String) {\n  match { $a: Author { handle: $h } }\n  return { $a.born }\n}\n"
POLICY = b"version: 1\nrules: []\n"
CONFIG = b"""version: 1
metadata:
  name: library
state:
  backend: cluster
  lock: true
graphs:
  catalogue:
    schema: catalogue.pg
    queries:
      by_handle:
        file: catalogue.gq
policies:
  readers:
    file: readers.policy.yaml
    applies_to: [catalogue]
"""
FILES = {"cluster.yaml": CONFIG, "catalogue.pg": SCHEMA, "catalogue.gq": QUERY, "readers.policy.yaml": POLICY}
GOLDEN = {
    "graph.catalogue": "91d4d06ed93caad5321673d174c6c0a05cf273312b7773d18e9ed687ce561f13",
    "policy.readers": "7f2c43106364d8112fcc3060e4ab8b20f5d1a17d9cbf3c2540529663004adff8",
    "query.catalogue.by_handle": "c4ac58e6b02d0a322cd45f9b94b8a7cf96a0f99c8a648c21251825d38ebf5236",
    "schema.catalogue": "8c2b2be35e33705bccc96cbcefb8a3caff2b6649d6dbf0080a0d6768ae62ca1f",
}
CONFIG_DIGEST = "aea114e7aeaaa39c418355d52a54db9dc25e2484ee1960d78359ac71fe179e21"


def config_digest_of(files: dict[str, bytes]) -> str:
    result = load_desired(MemoryTree(files))
    assert result.desired is not None, result.diagnostics.to_json()
    return result.desired.config_digest


def test_the_resources_of_the_library_have_their_digests() -> None:
    desired = load_desired(MemoryTree(FILES)).desired
    assert desired is not None
    assert desired.digests() == GOLDEN
    assert desired.config_digest == CONFIG_DIGEST


def test_a_graph_without_queries() -> None:
    files = {**FILES, "cluster.yaml": b"version: 1\ngraphs: {catalogue: {schema: catalogue.pg}}\n"}
    desired = load_desired(MemoryTree(files)).desired
    assert desired is not None
    expected = "947234dfca9da3f204fb4a911c76b443a389a929a70ead13ece2294d41948fb3"
    assert desired.digests()["graph.catalogue"] == expected
    assert graph_composite("catalogue", GOLDEN["schema.catalogue"], {}) == expected


def test_the_form_without_storage_is_another_digest() -> None:
    cluster, _ = parse_cluster(CONFIG)
    assert cluster is not None
    form = config_form(cluster)
    assert form.pop("storage", "absent") is None
    parts = [b"cluster-config", compact(form)]
    for address, value in sorted(GOLDEN.items()):
        parts += [address.encode(), value.encode()]
    assert digest(b"\0".join(parts) + b"\0") == "7598ea0a62b08e4781c2a61188e50cb99fc3357c6fb71aad2a334448dea7d5cc"


def test_the_digest_of_a_state_document() -> None:
    state = b'{\n  "version": 1,\n  "applied_revision": { "resources": {} }\n}\n'
    assert digest(state) == "27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_the_compact_form_is_in_declaration_order_with_every_key() -> None:
    cluster, _ = parse_cluster(
        b"graphs: {b: {queries: [q/, x.gq], schema: ./b.pg}, a: {queries: q, schema: 7}}\nversion: 1\n"
    )
    assert cluster is not None
    assert compact(config_form(cluster)) == (
        b'{"version":1,"metadata":{"name":null},"storage":null,"state":{"backend":null,"lock":null},'
        b'"graphs":{"a":{"schema":"7","queries":"q"},"b":{"schema":"./b.pg","queries":["q/","x.gq"]}},"policies":{}}'
    )


def test_json_escapes_are_the_short_ones() -> None:
    cluster, _ = parse_cluster(b'version: 1\nmetadata: {name: "\\x01\\t\\"\\\\\\u00e9\\x7f/"}\n')
    assert cluster is not None
    assert compact(config_form(cluster)["metadata"]) == b'{"name":"\\u0001\\t\\"\\\\\xc3\xa9\x7f/"}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"schema: catalogue.pg", b"schema: ./catalogue.pg"),
        (b"lock: true", b"lock: null"),
        (b"name: library", b"name: Library"),
        (b"[catalogue]", b"[graph.catalogue]"),
        (b"[catalogue]", b"[catalogue, catalogue]"),
        (b"version: 1\nmeta", b"version: 1\nstorage: data\nmeta"),
        (b"\n      by_handle:\n        file: catalogue.gq", b" catalogue.gq"),
    ],
)
def test_every_setting_and_every_spelling_moves_the_digest(old: bytes, new: bytes) -> None:
    changed = CONFIG.replace(old, new)
    assert changed != CONFIG
    assert config_digest_of({**FILES, "cluster.yaml": changed}) != CONFIG_DIGEST


@pytest.mark.parametrize("path", ["catalogue.pg", "catalogue.gq", "readers.policy.yaml"])
def test_every_byte_of_every_file_moves_the_digest(path: str) -> None:
    comment = b"# x\n" if path.endswith("yaml") else b"// x\n"
    for data in (FILES[path] + comment, FILES[path].replace(b"\n", b"\r\n")):
        assert config_digest_of({**FILES, path: data}) != CONFIG_DIGEST
