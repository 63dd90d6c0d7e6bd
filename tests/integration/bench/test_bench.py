"""The benchmark runs and writes the document that it documents. Nothing here looks at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.change import Action
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph
from tests.bench import graphs, growth
from tests.bench.__main__ import GROUPS
from tests.bench.contender import digest_of
from tests.bench.graphs import Found, require_equal
from tests.bench.measure import BeyondBoundError, Effort, Figure, LeftOutError, Program, Usage
from tests.bench.parallel import heaviest_path, played
from tests.bench.social import APPROXIMATE, EXACT, Social

ROOT = Path(__file__).parents[3]
UNITS = {"ms", "ms CPU", "us", "MiB", "KiB", "%", "x", "ratio", "exponent", "1/s", "n"}
FIGURE = {"group", "name", "unit", "median", "min", "max", "samples", "goal", "within_goal", "load_1min"}
MACHINE = {"cores", "memory_gib", "load_1min", "system", "python", "git", "ssh", "gitops", "packages"}


def bench(*arguments: str) -> str:
    argv = [sys.executable, "-m", "tests.bench", *arguments]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_document(document: dict[str, Any], table: str) -> None:
    assert set(document) == {"schema_version", "mode", "machine", "figures", "left_out"}
    assert document["schema_version"] == 1
    assert document["mode"] == "quick"
    assert set(document["machine"]) == MACHINE
    names = [(f["group"], f["name"]) for f in document["figures"]]
    assert len(set(names)) == len(names)
    for figure in document["figures"]:
        assert set(figure) == FIGURE
        assert figure["min"] <= figure["median"] <= figure["max"]
        assert figure["samples"] >= 1
        assert figure["unit"] in UNITS
        assert (figure["goal"] is None) == (figure["within_goal"] is None)
        assert figure["name"] in table


def test_a_quick_run_of_one_group_has_the_documented_shape(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    table = bench("--quick", "--only", "languages", "--only", "parallel", "--json", str(path))
    document = json.loads(path.read_text())
    check_document(document, table)
    assert {f["group"] for f in document["figures"]} == {"languages", "parallel"}
    assert document["left_out"] == []


@pytest.mark.slow
def test_a_quick_run_covers_every_group(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    table = bench("--quick", "--json", str(path))
    document = json.loads(path.read_text())
    check_document(document, table)
    measured = {f["group"] for f in document["figures"]}
    assert measured | {left["group"] for left in document["left_out"]} == set(GROUPS)
    assert {"processes", "languages", "engine", "parallel"} <= measured
    goals = {f["name"] for f in document["figures"] if f["goal"] is not None}
    assert {"gitops --version", "gitops --help", "load 1 row", "publish a migration: the manifest alone"} <= goals


def test_the_file_of_records_has_the_rows_of_the_columns(tmp_path: Path) -> None:
    social = Social(40, 90, dimension=3)
    lines = [json.loads(line) for line in social.records(tmp_path).read_text().splitlines()]
    people, knows = (pq.read_table(path).to_pylist() for path in social.parquet(tmp_path))
    written = [line["data"] for line in lines[:40]]
    for person in written:
        person["vec"] = np.array(person["vec"], np.float32).tolist()
    assert written == people
    edges = [{"src": line["from"], "dst": line["to"], **line["data"]} for line in lines[40:]]
    assert edges == knows
    assert len(edges) == 90


def test_the_same_graph_is_made_again(tmp_path: Path) -> None:
    texts = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        texts.add(Social(60, 100, dimension=2).records(tmp_path / name).read_text())
    assert len(texts) == 1


def said(**rows: list[tuple[str, ...]]) -> Found:
    answers = {name: {"rows": len(each), "digest": digest_of(each)} for name, each in rows.items()}
    return Found({}, Usage(1, 1, 1), {"answers": answers}, Usage(1, 1, 1))


def test_answers_are_equal_in_any_order_and_where_a_rival_has_none() -> None:
    ours = said(point=[("a",), ("b",)], text=[("c",)])
    require_equal({"gitops": ours, "ladybug": said(point=[("b",), ("a",)])})


@pytest.mark.parametrize("other", [[("a",)], [("a",), ("c",)], [("a",), ("b",), ("b",)]])
def test_different_answers_end_the_comparison(other: list[tuple[str, ...]]) -> None:
    with pytest.raises(RuntimeError, match="point: the answers differ"):
        require_equal({"gitops": said(point=[("a",), ("b",)]), "DuckDB": said(point=other)})


def test_an_absent_rival_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answer = {"rows": 1, "digest": "d", "head": ["a"], "first_ms": 2.0, "ms": [1.0], "cpu_ms": [1.0]}
    answers = dict.fromkeys(("point", EXACT, APPROXIMATE), answer)
    ask = {"answers": answers, "reopen_ms": 1.0, "publish_ms": [1.0]}
    found = Found({"steps": {"load": 1.0}, "bytes": 1}, Usage(1, 1, 1), ask, Usage(1, 1, 1))
    monkeypatch.setattr(graphs, "find_spec", lambda _: None)
    monkeypatch.setattr(graphs, "installed", lambda: False)
    monkeypatch.setattr(graphs, "_prepared", lambda effort, _: effort.folder("graphs"))
    monkeypatch.setattr(graphs, "_measured", lambda *_: found)
    seen: list[Figure] = []
    with pytest.raises(LeftOutError, match=r"ladybug is not installed: pip .*; DuckDB .*; PostgreSQL .*: apt"):
        seen.extend(graphs.figures(Effort(True, tmp_path)))
    assert {"point, gitops", "publish step of a change"} <= {figure.name for figure in seen}


@given(st.floats(-1, 3), st.floats(0.01, 100))
def test_the_exponent_is_that_of_a_power(power: float, factor: float) -> None:
    sizes = (10, 100, 1_000)
    assert growth.exponent(sizes, [factor * size**power for size in sizes]) == pytest.approx(power, abs=1e-6)


@pytest.mark.parametrize(
    ("power", "steady", "ends"), [(0.1, True, False), (0.5, True, True), (1.0, False, False), (1.5, False, True)]
)
def test_what_grows_faster_than_it_may_fails(
    power: float, steady: bool, ends: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = {size: [size**power] for size in (10, 100, 1_000)}
    grown = tuple(growth._grown("point, gitops", samples, "edges", ours=True, steady=steady))
    for part, figures in {"_questions": grown, "_tables": (), "_histories": ()}.items():
        monkeypatch.setattr(growth, part, lambda _, figures=figures: figures)
    with pytest.raises(BeyondBoundError, match="growth with edges at the end is") if ends else nullcontext():
        assert tuple(growth.figures(Effort(False, tmp_path))) == grown


def chain(*edges: tuple[str, str], nodes: str) -> ExecutionGraph:
    made = tuple(ExecNode(name, "query", Action.CREATE, position) for position, name in enumerate(nodes))
    return ExecutionGraph(made, tuple(ExecEdge(before, after, "reference") for before, after in edges))


def test_the_heaviest_path_follows_edges() -> None:
    graph = chain(("a", "b"), ("a", "c"), ("c", "d"), nodes="abcde")
    assert heaviest_path(graph, {"a": 1.0, "b": 7.0, "c": 2.0, "d": 3.0, "e": 5.0}) == 8.0
    assert heaviest_path(ExecutionGraph(), {}) == 0.0


@pytest.mark.parametrize(("workers", "expected"), [(1, 18.0), (2, 10.0), (4, 8.0)])
def test_durations_are_played_through_the_real_schedule(workers: int, expected: float) -> None:
    graph = chain(("a", "b"), ("a", "c"), ("c", "d"), nodes="abcde")
    assert played(graph, {"a": 1.0, "b": 7.0, "c": 2.0, "d": 3.0, "e": 5.0}, workers) == expected


def test_a_program_that_ends_badly_has_no_time(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "raise SystemExit('out of luck')")
    with pytest.raises(RuntimeError, match="out of luck"):
        Program(argv, tmp_path, {}).run()


def test_a_figure_meets_its_goal_by_its_median() -> None:
    figure = Figure("a", "ms", (1.0, 9.0, 2.0), goal=2.0)
    assert figure.to_json("g")["within_goal"] is True
    assert Figure("a", "ms", (1.0, 9.0, 2.1), goal=2.0).to_json("g")["within_goal"] is False
