"""Law: no content of a cluster folder makes the loader raise; it answers with a desired state or with an error."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree

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
