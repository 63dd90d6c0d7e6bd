"""A query ends when its time is up or its memory is used, with a code, and never takes the process with it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from gitops.core.errors import GitopsError
from gitops.graph.query import ReadCache, Strategy
from gitops.graph.query.options import Budget
from tests.support.query_graphs import ask, towns, values

PAIRS = [(a, b) for a in range(40) for b in range(40) if a != b]
HUGE = "query q() { match { $a: Town $b: Town $c: Town $d: Town $e: Town } return { count($a) } }"
LONG = "query q() { match { $a: Town $a road{1,3} $b $b road{1,3} $c } return { $a.key, $c.key } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 40, PAIRS)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("text", [HUGE, LONG, "query q() { match { $a: Town } return { $a.key } }"])
def test_time_is_looked_at_before_anything_is_read(graph: str, text: str, strategy: Strategy) -> None:
    with pytest.raises(GitopsError) as stopped:
        ask(graph, text, timeout_s=0.0, strategy=strategy)
    assert stopped.value.code == "query_timeout"


def test_the_deadline_is_met_between_steps() -> None:
    clock = itertools.count()
    budget = Budget(3.0, None, lambda: float(next(clock)))
    budget.check()
    budget.need(10**12, "anything")
    with pytest.raises(GitopsError) as stopped:
        budget.check()
    assert stopped.value.code == "query_timeout"
    assert "3 s" in stopped.value.detail


@pytest.mark.parametrize("strategy", Strategy)
def test_rows_that_multiply_are_stopped_before_they_are_made(graph: str, strategy: Strategy) -> None:
    for text in (HUGE, LONG):
        with pytest.raises(GitopsError) as stopped:
            ask(graph, text, memory_bytes=2**19, strategy=strategy)
        assert stopped.value.code == "query_memory_exceeded"
        assert "0.5 MiB" in stopped.value.detail


def test_a_product_is_tested_piece_by_piece(graph: str) -> None:
    text = "query q() { match { $a: Town $b: Town $c: Town $a.size > $c.size $b.size < $c.size } return { count($a) } }"
    free = ask(graph, text)
    assert values(ask(graph, text, memory_bytes=2**23)) == values(free)
    assert 0 < free.statistics["peak_bytes"] < 2**23


def test_what_one_run_held_is_not_held_against_the_next(graph: str) -> None:
    cache = ReadCache()
    few = 'query q() { match { $a: Town {key: "t1"} not { $a road $b $b.size > 99 } } return { $a.key } }'
    for _ in range(3):
        assert values(ask(graph, few, cache=cache, memory_bytes=2**21)) == ["t1"]


def test_an_adjacency_that_does_not_fit_is_not_built(tmp_path: Path, graph: str) -> None:
    with pytest.raises(GitopsError) as stopped:
        ask(graph, LONG, strategy=Strategy.CSR, memory_bytes=2**16, cache_dir=tmp_path)
    assert stopped.value.code == "query_memory_exceeded"
    assert "adjacency" in stopped.value.detail
    assert not list(tmp_path.rglob("*.csr"))
