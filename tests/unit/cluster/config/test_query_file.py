"""The file of one stored query is the one that a load of its graph takes the query from."""

from __future__ import annotations

import pytest

from gitops.cluster.config.cluster_yaml import read_cluster
from gitops.cluster.config.compiler import find_query_file
from gitops.cluster.config.loader import ResourceLoader
from gitops.cluster.config.reader import SourceReader
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import query_address
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics

SCHEMA = b"node Person {\n  handle: String @key\n}\n"
NAMES = ("one", "two", "three", "four", "named_only", "broken", "gone", "absent")


def declares(*names: str) -> bytes:
    """A file with queries of these names; the last is also in a comment."""
    body = "{\n  match { $p: Person }\n  return { $p.handle }\n}\n"
    return f"// named_only\n{''.join(f'query {name}() {body}' for name in names)}// {names[-1]}\n".encode()


FILES = {
    "brain.pg": SCHEMA,
    "q/a.gq": declares("one", "two"),
    "q/b.gq": b"query broken( {",
    "q/c.gq": declares("two", "three"),
    "q/d.gq": b"\xff query three() {}",
    "q/readme.txt": declares("absent"),
    "other.gq": declares("three", "four"),
    "ill.gq": declares("four").replace(b"Person", b"Nobody"),
}


@pytest.mark.parametrize(
    "queries",
    [
        "q/",
        "./q",
        "[q, other.gq]",
        "[other.gq, q/c.gq, q]",
        "[ill.gq, other.gq]",
        "[missing.gq, ../q, /etc, secret.gq, q]",
        "{one: {file: q/a.gq}, three: {file: q/a.gq}, broken: {file: q/b.gq}, gone: {file: missing.gq}}",
        "{one: {file: q/d.gq}}",
    ],
)
def test_it_is_the_file_of_a_load(queries):
    files = {
        **FILES,
        "cluster.yaml": f"version: 1\ngraphs: {{brain: {{schema: brain.pg, queries: {queries}}}}}".encode(),
    }
    tree = MemoryTree(files, refused={"secret.gq": Code.SOURCE_SYMLINK})
    cluster, found = read_cluster(tree)
    assert cluster is not None, found
    loader = ResourceLoader(SourceReader(tree, found))
    loader.graph(cluster.graphs[0])
    expected = {name: loader.resources.get(query_address("brain", name)) for name in NAMES}
    for name, resource in expected.items():
        reported = Diagnostics()
        reader = SourceReader(tree, reported)
        known = find_query_file(reader, cluster.graphs[0], name)
        assert (known and (known[0], known[1].data)) == (resource and (resource.path, resource.content))
        assert not reported
        assert "brain.pg" not in reader.files


def test_a_file_without_the_name_is_not_parsed():
    class Unparsable(bytes):
        def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
            if encoding != "utf-8":
                raise AssertionError("it was given to the parser")
            return bytes(self).decode(encoding, errors)

    files = {
        "brain.pg": SCHEMA,
        "q/a.gq": Unparsable(declares("one")),
        "q/b.gq": declares("two"),
        "cluster.yaml": b"version: 1\ngraphs: {brain: {schema: brain.pg, queries: q}}",
    }
    tree = MemoryTree(files)
    cluster, found = read_cluster(tree)
    assert cluster is not None, found
    known = find_query_file(SourceReader(tree, found), cluster.graphs[0], "two")
    assert known is not None
    assert known[0] == "q/b.gq"
