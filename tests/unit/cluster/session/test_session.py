"""Commands that change nothing: down, fmt, lint."""

from __future__ import annotations

import pytest

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree, SourceLimits
from gitops.cluster.session.down import down_between
from gitops.cluster.session.fmt import FormatOutcome, format_cluster
from gitops.cluster.session.lint import lint_cluster
from gitops.core.errors import UsageError
from gitops.database.language.lint import LintLevel
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration
from gitops.render.down import down_form, down_text
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

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


UGLY = {
    "cluster.yaml": b"version:   1\ngraphs:\n    a:\n        schema: a.pg\n        queries: q\n    b: {schema: b.pg}\n",
    "a.pg": b"node A{id_: String @key}",
    "b.pg": b"node B {\n    name: String @key\n}\n",
    "q/one.gq": b"query one() { match { $a: A } return { $a } }\nquery two() { match { $a: A } return { $a.id_ } }",
    "q/two.gq": b"query three() {\n    match {\n        $a: A\n    }\n    return { $a }\n}\n",
    "q/notes.txt": b"no query",
    "other/left.gq": b"query  left() { delete A where a=1 }",
    "other/.hidden/x.gq": b"query  x() { delete A where a=1 }",
}


def formatted(files: dict[str, bytes], paths: list[str] | None = None) -> FormatOutcome:
    return format_cluster(lambda: MemoryTree(files), paths)


def after(files: dict[str, bytes], outcome: FormatOutcome) -> dict[str, bytes]:
    return files | {file.path: file.after for file in outcome.files}


def test_what_the_folder_declares_is_laid_out():
    outcome = formatted(UGLY)
    assert [f.path for f in outcome.files] == ["a.pg", "b.pg", "cluster.yaml", "q/one.gq", "q/two.gq"]
    assert [f.path for f in outcome.changed] == ["a.pg", "cluster.yaml", "q/one.gq"]
    assert not outcome.diagnostics


def test_each_file_says_what_it_updates():
    files = {f.path: f for f in formatted(UGLY).files}
    assert files["a.pg"].updates == ("schema.a",)
    assert files["q/one.gq"].updates == ("query.a.one", "query.a.two")
    assert files["b.pg"].updates == files["q/two.gq"].updates == files["cluster.yaml"].updates == ()
    assert [f.digest_moves for f in files.values()] == [True, False, False, True, False]


def test_the_updates_are_those_of_a_load_of_the_result():
    outcome = formatted(UGLY)
    before, later = load_desired(MemoryTree(UGLY)), load_desired(MemoryTree(after(UGLY, outcome)))
    assert before.desired is not None
    assert later.desired is not None
    old, new = before.desired.digests(), later.desired.digests()
    assert set(outcome.updates) == {address for address in new if old[address] != new[address]}
    assert "graph.a" in outcome.updates
    assert "graph.b" not in outcome.updates


def test_the_layout_of_the_cluster_file_moves_no_digest():
    ugly = {"cluster.yaml": b"version:    1\n"}
    outcome = formatted(ugly)
    assert outcome.changed
    assert outcome.updates == ()
    before, later = load_desired(MemoryTree(ugly)), load_desired(MemoryTree(after(ugly, outcome)))
    assert before.desired is not None
    assert later.desired is not None
    assert before.desired.config_digest == later.desired.config_digest


def test_a_second_run_changes_nothing():
    assert formatted(after(UGLY, formatted(UGLY))).changed == ()


def test_named_files_and_folders():
    assert [f.path for f in formatted(UGLY, ["other", "./q/../a.pg", "a.pg"]).files] == ["a.pg", "other/left.gq"]
    assert formatted(UGLY, ["other/left.gq"]).updates == ()
    assert len(formatted(UGLY, ["."]).files) == 6


def test_a_file_of_another_sort_is_refused():
    with pytest.raises(UsageError):
        formatted(UGLY, ["q/notes.txt"])


def test_what_does_not_parse_is_reported_at_its_place_and_left_out():
    broken = UGLY | {"a.pg": b"node A {\n  a: Strin\n  b I32\n}\nnode X 1", "q/one.gq": b"query one() { match { } }"}
    outcome = formatted(broken)
    assert [(d.code, str(d.source)) for d in outcome.diagnostics] == [
        ("schema_parse_error", "a.pg:2:6"),
        ("schema_parse_error", "a.pg:5:8"),
        ("query_parse_error", "q/one.gq:1:23"),
    ]
    assert [f.path for f in outcome.files] == ["b.pg", "cluster.yaml", "q/two.gq"]


def test_what_is_missing_or_refused_is_reported():
    outcome = formatted(UGLY, ["no.pg"])
    assert [d.code for d in outcome.diagnostics] == ["source_missing"]
    linked = format_cluster(lambda: MemoryTree(UGLY, refused={"link.pg": "source_symlink"}), ["link.pg"])
    assert [d.code for d in linked.diagnostics] == ["source_symlink"]


def test_a_broken_cluster_file_is_reported_and_nothing_is_guessed():
    outcome = formatted(UGLY | {"cluster.yaml": b"version: 1\nversion: 1\n"})
    assert outcome.files == ()
    assert [d.code for d in outcome.diagnostics] == ["duplicate_yaml_key"]
    named = formatted(UGLY | {"cluster.yaml": b"version: [\n"}, ["cluster.yaml"])
    assert [d.code for d in named.diagnostics] == ["invalid_cluster_yaml"]


CASES = read_yaml(ROOT / "tests" / "data" / "down" / "cases.yaml")


def outcome_of(case):
    tree = MemoryTree({"from.pg": case["from"].encode(), "to.pg": case["to"].encode()})
    return down_between(tree, "from.pg", "to.pg")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_is_said(case):
    outcome = outcome_of(case)
    assert [each.code for each in outcome.diagnostics] == case["codes"]
    assert outcome.ok == (not case["codes"])
    assert down_text(outcome).partition("ERROR")[0] == case["says"]


@pytest.mark.parametrize("case", [case for case in CASES if "source" in case], ids=lambda case: case["name"])
def test_the_text_goes_back(case):
    way = outcome_of(case).migrations
    assert way is not None
    assert way.source.decode() == case["source"]
    assert plan_migration(compile_schema(case["to"].encode()), compile_schema(way.source)) == way.back


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_document_has_both_ways_with_the_class_of_each_step(case):
    outcome = outcome_of(case)
    form = down_form(outcome)
    assert [each["code"] for each in form["problems"]] == case["codes"]
    if outcome.migrations is None:
        assert set(form) == {"ok", "config_dir", "subject", "problems"}
        return
    for name, migration in (("forward", outcome.migrations.forward), ("back", outcome.migrations.back)):
        assert form[name]["supported"] == migration.supported
        steps = [{k: v for k, v in step.items() if k != "reversibility"} for step in form[name]["steps"]]
        assert steps == [{**step.to_json(), **_lists(step.to_json())} for step in migration.steps]
        assert [step["reversibility"] for step in form[name]["steps"]] == [s.reversibility for s in migration.steps]
    assert form["reversibility"] == outcome.migrations.forward.reversibility
    assert form["source"].encode() == outcome.migrations.source


def _lists(form):
    return {name: list(value) for name, value in form.items() if isinstance(value, tuple)}


def test_a_file_that_is_not_there_is_a_problem_of_it_alone():
    outcome = down_between(MemoryTree({"a.pg": b"node A {}"}), "a.pg", "b.pg")
    assert [(each.code, each.path) for each in outcome.diagnostics] == [("schema_file_missing", "b.pg")]


def test_what_keeps_a_change_from_going_back_is_told_once():
    tree = MemoryTree({"a.pg": b"node A { n: I32? }", "b.pg": b"node A { n: Vector(2)? }"})
    assert [each.code for each in down_between(tree, "a.pg", "b.pg").diagnostics] == ["graph_migration_unsupported"]
