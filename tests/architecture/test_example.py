"""The example cluster is valid without a warning, applies, and takes its own data."""

from __future__ import annotations

import shutil

import pytest

from gitops.cli.main import main
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import load_desired
from gitops.cluster.model.address import Kind
from gitops.database.language.query import parse_queries
from gitops.database.language.query.ast import Bind, Read
from gitops.review.tests.select import QueryTestFolders, collect_tests
from tests.support.pages import ROOT

_EXAMPLE = ROOT / "examples/company-brain"


def test_the_example_has_nothing_to_complain_about():
    loaded = load_desired(FolderTree(str(_EXAMPLE), confined=True))
    assert list(loaded.diagnostics) == []
    assert loaded.desired is not None
    assert [r.address.name for r in loaded.desired.of_kind(Kind.GRAPH)] == ["knowledge", "legacy"]


def test_every_read_begins_with_a_node_as_other_programs_that_read_these_files_need_it():
    queries = [query for file in sorted(_EXAMPLE.rglob("*.gq")) for query in parse_queries(file.read_bytes())]
    reads = {query.name.text: query.body.clauses[0] for query in queries if isinstance(query.body, Read)}
    assert len(reads) == 19
    assert [name for name, first in reads.items() if not isinstance(first, Bind)] == []


def test_every_query_of_the_example_has_a_test():
    tree = FolderTree(str(_EXAMPLE), confined=True)
    loaded = load_desired(tree)
    assert loaded.desired is not None
    found = collect_tests(QueryTestFolders(tree), loaded.desired, loaded.judgement.policies)
    assert list(found.problems) == []
    queries = {f"query.{name}.{query}" for name, graph in loaded.desired.graphs.items() for query in graph.queries}
    assert {test.resource for test in found.tests} == queries


@pytest.mark.slow
def test_the_tests_of_the_example_pass(capsys):
    assert main(["test", "--config", str(_EXAMPLE)]) == 0, capsys.readouterr().out


@pytest.mark.e2e
def test_the_example_applies_and_takes_its_data(tmp_path, capsys):
    folder = tmp_path / "brain"
    shutil.copytree(_EXAMPLE, folder)
    for verb in (["import"], ["apply"], ["graph", "load", "knowledge", str(folder / "seed.jsonl")]):
        code = main([*verb, "--config", str(folder)])
        assert code == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["graph", "show", "knowledge", "--type", "Person", "--limit", "3", "--config", str(folder)]) == 0
    assert "ada" in capsys.readouterr().out
