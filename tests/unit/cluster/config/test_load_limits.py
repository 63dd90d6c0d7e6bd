"""A load is bounded by what the folder holds, however often `cluster.yaml` names it."""

from __future__ import annotations

import pytest

from gitops.cluster.config import compiler, reader
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree, SourceLimits

PG = b"node Person {\n  name: String @key\n}\n"
MANY = 3000


def gq(*names: str) -> bytes:
    return "".join(
        f"query {name}($n: String) {{ match {{ $p: Person {{ name: $n }} }} return {{ $p.name }} }}\n" for name in names
    ).encode()


def load(yaml: str, **files: bytes) -> Loaded:
    return load_desired(MemoryTree({"cluster.yaml": yaml.encode(), "s": PG, **files}))


def listing(*sources: str) -> str:
    return f"version: 1\ngraphs: {{g: {{schema: s, queries: [{', '.join(sources)}]}}}}\n"


def graphs(count: int, schema: str = "s") -> str:
    entries = "".join(f"  g{i:05}: {{schema: {schema}, queries: q}}\n" for i in range(count))
    return f"version: 1\ngraphs:\n{entries}"


@pytest.mark.parametrize("spellings", [["q"], ["q", "./q", "x/../q"]])
def test_a_file_listed_very_often_is_reported_once_for_each_declaration(spellings: list[str]) -> None:
    result = load(listing(*spellings * MANY), q=gq("a", "b"))
    assert [(d.code, d.path) for d in result.diagnostics] == [
        ("duplicate_query_name", "graphs.g.queries.a"),
        ("duplicate_query_name", "graphs.g.queries.b"),
    ]


def test_a_folder_listed_very_often_is_read_twice_at_most() -> None:
    listed: list[str] = []

    class Counting(MemoryTree):
        def names(self, path: str) -> tuple[str, ...]:
            listed.append(path)
            return super().names(path)

    yaml = listing(*["d", "./d/"] * MANY)
    result = load_desired(Counting({"cluster.yaml": yaml.encode(), "s": PG, "d/a.gq": gq("a"), "d/b.gq": gq("b")}))
    assert result.diagnostics.codes() == ("duplicate_query_name",) * 2
    assert len(listed) == 2


def test_only_the_first_wrong_names_get_a_suggestion() -> None:
    names = [f"name{i}" for i in range(150)]
    entries = "".join(f"      {name}x: {{file: q}}\n" for name in names)
    result = load(f"version: 1\ngraphs:\n  g:\n    schema: s\n    queries:\n{entries}", q=gq(*names))
    assert result.diagnostics.codes() == ("query_key_mismatch",) * 150
    hinted = ["did you mean" in d.message for d in result.diagnostics]
    assert hinted == [True] * 100 + [False] * 50


def test_bindings_and_queries_share_the_suggestions() -> None:
    names = [f"graph{i}" for i in range(150)]
    entries = "".join(f"  {name}: {{schema: s}}\n" for name in names)
    wrong = ", ".join(f"{name}x" for name in names)
    result = load(
        f"version: 1\ngraphs:\n{entries}policies: {{p: {{file: p, applies_to: [{wrong}]}}}}\n", p=b"version: 1"
    )
    assert [d.path for d in result.diagnostics] == [f"policies.p.applies_to[{i}]" for i in range(150)]
    assert sum("did you mean" in d.message for d in result.diagnostics) == 100


def test_queries_are_counted_over_all_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_QUERIES", 10)
    result = load(graphs(6), q=gq("a", "b", "c"))
    assert [(d.code, d.path) for d in result.diagnostics] == [("source_too_large", "graphs.g00003.queries")]
    assert result.desired is None
    assert load(graphs(3), q=gq("a", "b", "c")).desired is not None


def test_bytes_of_query_files_are_counted_for_each_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    file = gq("a") + b"// " + b"x" * 1000
    monkeypatch.setattr(reader, "MAX_QUERY_BYTES", 3 * len(file))
    assert load(graphs(3), q=file).desired is not None
    result = load(graphs(5), q=file)
    assert [(d.code, d.path) for d in result.diagnostics] == [("source_too_large", "graphs.g00003.queries")]


def test_a_shared_query_file_is_parsed_twice_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    parse = compiler.parse_queries

    def counting(data: bytes) -> object:
        parsed.append(len(data))
        return parse(data)

    monkeypatch.setattr(compiler, "parse_queries", counting)
    assert load(graphs(20), q=gq("a")).desired is not None
    assert len(parsed) == 2


def test_a_broken_schema_is_explained_in_full_only_once() -> None:
    broken = PG + b"edge A: Person -> Nobody\nedge B: Person -> Nothing\n"
    found = load(graphs(3, "broken"), broken=broken, q=b"").diagnostics
    assert [(d.code, d.path) for d in found] == [
        ("schema_catalog_error", "graphs.g00000.schema"),
        ("schema_catalog_error", "graphs.g00000.schema"),
        ("schema_catalog_error", "graphs.g00001.schema"),
        ("schema_catalog_error", "graphs.g00002.schema"),
    ]


@pytest.mark.parametrize(
    ("document", "code"),
    [
        (b"version: 1\ngraphs: " + b"[" * 900_000, "yaml_limit_exceeded"),
        (b"version: 1\n" + b"".join(b" " * i + b"a:\n" for i in range(1200)), "yaml_limit_exceeded"),
        (b"version: 1\ngraphs: [" + b"a," * 100_001 + b"]", "yaml_limit_exceeded"),
        (b"version: 1\n" + b"a" * 1_000_000 + b": 1\n", "invalid_cluster_yaml"),
        (b"version: 1\nmetadata: {name: '" + b"x" * 5_000_000 + b"'}\n", "source_too_large"),
        (b"version: 1\nmetadata: {name: '" + b"x" * 2_000_000 + b"'}\n", "yaml_limit_exceeded"),
    ],
)
def test_an_enormous_document_is_one_finding(document: bytes, code: str) -> None:
    found = load_desired(MemoryTree({"cluster.yaml": document})).diagnostics
    assert [(d.code, d.path) for d in found] == [(code, "cluster.yaml")]
    assert all(len(d.message) < 500 for d in found)


@pytest.mark.parametrize("depth", [100, 1_000, 500_000])
def test_deeply_nested_schemas_and_queries_are_findings(depth: int) -> None:
    query = b"query a($n: String) { match { " + b"not { " * depth
    result = load(graphs(1, "deep"), deep=b"node A { " + b"{" * depth, q=query)
    assert result.diagnostics.codes() == ("schema_parse_error", "query_parse_error")


def test_more_files_than_allowed_are_refused_one_by_one() -> None:
    files = {f"d/{i}.gq": gq(f"q{i}") for i in range(6)}
    tree = MemoryTree({"cluster.yaml": listing("d").encode(), "s": PG, **files}, limits=SourceLimits(files=6))
    found = load_desired(tree).diagnostics
    assert [(d.code, d.path) for d in found] == [("source_too_large", "graphs.g.queries")] * 2


def test_a_folder_of_too_many_names_is_refused_as_a_whole() -> None:
    files = {f"d/{i}.gq": gq(f"q{i}") for i in range(7)}
    tree = MemoryTree({"cluster.yaml": listing("d").encode(), "s": PG, **files}, limits=SourceLimits(files=6))
    assert load_desired(tree).diagnostics.codes() == ("source_too_large",)
