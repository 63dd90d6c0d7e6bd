"""Mutations as cases: a query on a graph, and what it affects, leaves, or is refused for."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gitops.core.errors import GitopsError
from gitops.database.language.text import LanguageError
from tests.support.mutations import WrittenGraph
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "mutations"
GRAPHS = yaml.safe_load((DATA / "graphs.yaml").read_text(encoding="utf-8"))
FILES = {"specification": "rail", "statements": "rail", "rules": "types"}


def cases() -> list[Any]:
    return [
        pytest.param(graph, case, id=f"{name}-{case['name']}")
        for name, graph in FILES.items()
        for case in yaml.safe_load((DATA / f"{name}.yaml").read_text(encoding="utf-8"))
    ]


class Original(NamedTuple):
    """A graph that is copied for each case, with its records and its version."""

    graph: WrittenGraph
    lines: list[str]
    version: int


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Original]:
    """Each graph, loaded and read once."""
    folder, found = tmp_path_factory.mktemp("graphs"), {}
    for name, form in GRAPHS.items():
        graph = WrittenGraph(folder / f"{name}.omni").create(form["schema"])
        graph.load(form["records"])
        found[name] = Original(graph, graph.lines(), graph.version)
    return found


@pytest.mark.parametrize(("name", "case"), cases())
def test_a_mutation_does_what_its_case_says(
    originals: dict[str, Original], tmp_path: Path, name: str, case: Any
) -> None:
    original, before, version = originals[name]
    query, params, signature = case["query"], case.get("params"), case.get("signature", "")
    if "checker" in case:
        with pytest.raises(LanguageError, match=case["checker"]):
            original.query(query, signature)
        return
    shutil.copytree(original.uri, tmp_path / "g.omni")
    graph = WrittenGraph(tmp_path / "g.omni", start=10_000)
    if "refused" in case:
        with pytest.raises(GitopsError) as refusal:
            graph.mutate(query, params, signature)
        assert refusal.value.code == case["refused"]
        assert case["says"] in refusal.value.detail
        assert (graph.lines(), graph.version) == (before, version)
        return
    result = graph.mutate(query, params, signature)
    nodes, edges = case.get("nodes", 0), case.get("edges", 0)
    assert (result.affected_nodes, result.affected_edges) == (nodes, edges)
    assert result.changed == bool(nodes or edges)
    assert result.manifest_version == graph.version == version + result.changed
    if not result.changed:
        assert graph.lines() == before
    for type_name, expected in case.get("rows", {}).items():
        rows = graph.shown(type_name)
        for row in expected:
            assert [each for each in rows if row.items() <= each.items()], f"{row} is not among {rows}"
    counts = graph.counts()
    assert case.get("count", {}).items() <= counts.items()
    if result.changed:
        assert {name: len(graph.shown(name)) for name in counts} == counts
