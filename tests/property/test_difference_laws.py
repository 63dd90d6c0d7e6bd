"""Law: what two folders declare differently is found without loading what they have in common, and is all of it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.cluster_yaml import read_cluster
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, Kind

_SCHEMAS = ("s.pg", "q/t.pg")
_QUERIES = ("q/a.gq", "q/b.gq", "q/deep/c.gq", "x.gq")
_names = st.sampled_from(["a", "b"])
_content = st.sampled_from(
    [b"", b"node Person {\n  name: String @key\n}\n", b"node {", b"\xff", b"version: 1\nrules: []\n"]
) | st.lists(_names, max_size=2).map(
    lambda names: "".join(f"query {n}() {{ match {{ $p: Person }} return {{ $p.name }} }}\n" for n in names).encode()
)
_folders = st.dictionaries(st.sampled_from([*_SCHEMAS, *_QUERIES, "p.yaml"]), _content)
_sources = st.sampled_from(["q", "q/", "./q", ".", "x.gq", "q/deep", "gone", "../out", "/abs"])
_listed = (
    st.dictionaries(_names, st.fixed_dictionaries({"file": st.sampled_from([*_QUERIES, "q/../x.gq", "q"])}), max_size=2)
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
    old, document = draw(_folders), draw(_documents)
    new = {**old, **draw(_folders)}
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
