"""The verb `fmt` on trees in memory: which files, which digests move, and what a load says afterwards."""

from __future__ import annotations

import pytest

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.fmt import FormatOutcome, format_cluster
from gitops.core.errors import UsageError

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
