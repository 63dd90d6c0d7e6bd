"""The verb `lint` on trees in memory: which files are looked at, against which schemas, and what cannot be looked at."""

from __future__ import annotations

import pytest

from gitops.cluster.config.source import MemoryTree, SourceLimits
from gitops.cluster.session.lint import lint_cluster
from gitops.core.errors import UsageError
from gitops.database.language.lint import LintLevel

FILES = {
    "cluster.yaml": b"version: 1\ngraphs:\n  a: {schema: a.pg, queries: q}\n  b: {schema: b.pg, queries: [q/one.gq]}\n"
    b"  c: {schema: a.pg, queries: {two: {file: q/two.gq}}}\n",
    "a.pg": b"node A { k: String @key }",
    "b.pg": b"node B { k: String @key }",
    "q/one.gq": b"query one() { match { $a: A } return { $a } }",
    "q/two.gq": b"query two() { match { $a: A } return { $a.nope } } query extra() { match { $a: X } return { $a } }",
    "q/notes.txt": b"no query",
    "more/left.gq": b"query left() { match { $b: B } return { $b } }",
    "more/.hidden/x.gq": b"query x(",
}


def lint(paths=(), schema=None, **changed):
    files = {path: data for path, data in (FILES | changed.pop("files", {})).items() if data is not None}
    return lint_cluster(MemoryTree(files, **changed), paths, schema)


def pairs(outcome):
    return [(each.path, each.schema, each.graphs) for each in outcome.queries]


def problems(outcome):
    return [(each.path, each.code, each.schemas) for each in outcome.problems]


def codes(outcome):
    return [each.code for each in outcome.diagnostics]


def test_everything_that_is_declared_is_looked_at_once():
    outcome = lint()
    assert [(each.path, each.graphs, each.errors) for each in outcome.schemas] == [
        ("a.pg", ("a", "c"), 0),
        ("b.pg", ("b",), 0),
    ]
    assert pairs(outcome) == [
        ("q/one.gq", "a.pg", ("a",)),
        ("q/one.gq", "b.pg", ("b",)),
        ("q/two.gq", "a.pg", ("a", "c")),
    ]
    # Also of a query that is in a file and not in the list.
    assert problems(outcome) == [
        ("q/one.gq", "T1", ("b.pg",)),
        ("q/two.gq", "T6", ("a.pg",)),
        ("q/two.gq", "T1", ("a.pg",)),
    ]
    assert not outcome.ok()
    assert not outcome.diagnostics


def test_named_files_are_checked_against_the_graphs_that_declare_them():
    assert pairs(lint(["q/two.gq"])) == [("q/two.gq", "a.pg", ("a", "c"))]
    assert pairs(lint(["./q/../q/one.gq"])) == [("q/one.gq", "a.pg", ("a",)), ("q/one.gq", "b.pg", ("b",))]
    schema = lint(["b.pg"], files={"cluster.yaml": None})
    assert ([each.path for each in schema.schemas], pairs(schema), schema.ok()) == (["b.pg"], [], True)


def test_a_query_file_that_no_graph_declares_is_an_error():
    for files in ({}, {"cluster.yaml": None}):
        outcome = lint(["more/left.gq"], files=files)
        assert codes(outcome) == ["lint_schema_unknown"]
        assert str(outcome.diagnostics[0].source) == "more/left.gq"
        assert not outcome.ok()


def test_a_folder_stands_for_the_files_below_it_without_hidden_folders():
    outcome = lint(["."])
    assert {path for path, _, _ in pairs(outcome)} == {"q/one.gq", "q/two.gq"}
    assert [each.path for each in outcome.diagnostics] == ["more/left.gq"]


def test_a_schema_of_ones_own_needs_no_cluster():
    outcome = lint(["more", "q/one.gq"], "b.pg", files={"cluster.yaml": b"\0"})
    assert pairs(outcome) == [("more/left.gq", "b.pg", ()), ("q/one.gq", "b.pg", ())]
    assert problems(outcome) == [("q/one.gq", "T1", ("b.pg",))]


@pytest.mark.parametrize(
    ("paths", "schema"),
    [(["q/notes.txt"], None), (["cluster.yaml"], None), (["a.pg"], "b.pg"), ([], "a.pg"), (["q"], "q/one.gq")],
)
def test_other_files_are_refused(paths, schema):
    with pytest.raises(UsageError):
        lint(paths, schema)


def test_under_a_broken_schema_only_grammar_is_checked():
    outcome = lint(files={"b.pg": b"node B { k: Strin }", "a.pg": b"node A {", "q/two.gq": b"query two( {"})
    assert problems(outcome) == [("a.pg", "S-01", ()), ("b.pg", "S-01", ()), ("q/two.gq", "Q000", ("a.pg",))]
    assert outcome.unchecked == (("a.pg", "q/one.gq"), ("b.pg", "q/one.gq"))
    assert [each.errors for each in outcome.schemas] == [1, 1]


def test_what_cannot_be_read_is_said_once_at_the_entry_that_names_it():
    outcome = lint(files={"a.pg": None, "q/one.gq": None})
    assert [(each.code, each.source.line) for each in outcome.diagnostics] == [
        ("schema_file_missing", 3),
        ("query_file_missing", 4),
    ]
    assert pairs(outcome) == []
    assert codes(lint(["absent.gq", "absent.pg"])) == ["lint_schema_unknown", "schema_file_missing"]


def test_a_broken_cluster_file_is_said_with_its_own_problems():
    for paths in ([], ["q/one.gq"]):
        assert "invalid_cluster_yaml" in codes(lint(paths, files={"cluster.yaml": b"version: [1"}))
    assert "config_dir_not_found" not in codes(lint(["a.pg"], files={"cluster.yaml": b"version: [1"}))


def test_unsafe_paths_are_refused_at_their_place():
    text = b'version: 1\ngraphs:\n  a: {schema: "a\\\\b.pg", queries: ["x:y.gq"]}\n  b: {schema: b.pg, queries: ["..//.git/x"]}\n'
    outcome = lint(files={"cluster.yaml": text})
    assert codes(outcome) == ["source_name_unsafe", "source_path_escapes"]
    assert [each.source.line for each in outcome.diagnostics] == [3, 4]


def test_a_file_that_is_too_large_is_not_looked_at():
    outcome = lint(limits=SourceLimits(file_bytes=400), files={"q/two.gq": b" " * 401})
    assert codes(outcome) == ["source_too_large"]
    assert {path for path, _, _ in pairs(outcome)} == {"q/one.gq"}


def test_warnings_fail_only_what_is_strict():
    outcome = lint(
        files={"q/one.gq": b'query one() { delete A where k = "a" }', "b.pg": FILES["a.pg"], "q/two.gq": b""}
    )
    assert {each.level for each in outcome.problems} == {LintLevel.WARNING}
    assert outcome.ok()
    assert not outcome.ok(strict=True)


def test_a_file_that_is_listed_in_two_ways_is_looked_at_once():
    text = b"version: 1\ngraphs:\n  a: {schema: a.pg, queries: [q, q/one.gq, ./q]}\n"
    assert [path for path, _, _ in pairs(lint(files={"cluster.yaml": text}))] == ["q/one.gq", "q/two.gq"]


def test_a_folder_is_no_file_where_queries_are_listed_by_name():
    text = b"version: 1\ngraphs:\n  a: {schema: a.pg, queries: {one: {file: q}}}\n"
    outcome = lint(files={"cluster.yaml": text})
    assert codes(outcome) == ["query_file_missing"]
    assert pairs(outcome) == []


def test_only_texts_with_problems_are_kept():
    assert set(lint().sources) == {"q/one.gq", "q/two.gq"}
