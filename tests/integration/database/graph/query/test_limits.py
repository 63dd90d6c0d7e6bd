"""A query ends when its time is up or its memory is used, with a code, and never takes the process with it."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow.compute as pc
import pytest
from lance.dataset import LanceDataset

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.query import ReadCache, Strategy
from gitops.database.graph.query.options import Budget
from gitops.database.graph.search import TextColumn
from gitops.database.graph.snapshot import Snapshot, open_snapshot
from gitops.database.graph.tables import open_table
from tests.support.query_graphs import ask, towns, values

PAIRS = [(a, b) for a in range(40) for b in range(40) if a != b]
HUGE = "query q() { match { $a: Town $b: Town $c: Town $d: Town $e: Town } return { count($a) } }"
LONG = "query q() { match { $a: Town $a road{1,3} $b $b road{1,3} $c } return { $a.key, $c.key } }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return towns(str(tmp_path_factory.mktemp("graphs") / "g.omni"), 40, PAIRS)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """A town has one road, so that no query multiplies rows."""
    return open_snapshot(
        towns(str(tmp_path_factory.mktemp("ring") / "g.omni"), 6, [(n, (n + 1) % 6) for n in range(6)])
    )


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


def test_a_returned_constant_is_asked_for_before_it_is_made_for_every_row(graph: str) -> None:
    for text in (f'"{"x" * 2**15}" as c', f"[{many(2**12, '1', ', ')}] as c"):
        with pytest.raises(GitopsError) as stopped:
            ask(graph, reading(items=text), memory_bytes=2**19)
        assert (stopped.value.code, "a returned constant" in stopped.value.detail) == ("query_memory_exceeded", True)


def test_a_search_for_many_words_looks_at_the_time(graph: str) -> None:
    snapshot = open_snapshot(graph)
    column = TextColumn(open_table(snapshot.folder, snapshot.manifest.tables["node:Town"]), "name")
    assert len(column.resembling(many(64, "word#"), 99)) == 40
    looked = itertools.count()

    def check() -> None:
        if next(looked) == 3:
            raise GitopsError(Code.QUERY_TIMEOUT, "")

    with pytest.raises(GitopsError):
        replace(column, check=check).resembling(many(64, "word#"), 2)


def work(snapshot: Snapshot, text: str) -> int:
    """How much a query takes, the same on every machine: calls of this thread, and the bytes that Lance is sent as filters."""
    counted = [0]
    scanner = LanceDataset.scanner

    def counting(self: LanceDataset, **given: Any) -> Any:
        if isinstance(given.get("filter"), pc.Expression):
            counted[0] += len(bytes(given["filter"].to_substrait(self.schema)))
        return scanner(self, **given)

    def event(_frame: FrameType, what: str, _argument: object) -> None:
        counted[0] += what in ("call", "c_call")

    LanceDataset.scanner = counting
    # A collection calls what others have registered for it.
    gc.disable()
    sys.setprofile(event)
    try:
        ask(snapshot, text)
    finally:
        sys.setprofile(None)
        gc.enable()
        LanceDataset.scanner = scanner
    return counted[0]


def many(count: int, item: str, separator: str = " ") -> str:
    """An item so many times; `#` is its number."""
    return separator.join(item.replace("#", str(number)) for number in range(count))


def reading(match: str = "", items: str = "$t.key", tail: str = "") -> str:
    return f"query q() {{ match {{ $t: Town {match} }} return {{ {items} }} {tail} }}"


DIMENSIONS: dict[str, Callable[[int], str]] = {
    "conditions": lambda n: reading(many(n, "$t.size > #")),
    "conditions that pass": lambda n: reading(many(n, '$t.name starts_with "name"')),
    "pairs": lambda n: f"query q() {{ match {{ $t: Town {{ {many(n, 'size: 1', ', ')} }} }} return {{ $t.key }} }}",
    "conditions of a far node": lambda n: reading("$t road $u " + many(n, "$u.size > 0")),
    "conditions of two nodes": lambda n: reading("$t road $u " + many(n, "$u.size != $t.size")),
    "conditions of an ordered scan": lambda n: reading(many(n, '$t.name != "#"'), tail="order { $t.name asc } limit 3"),
    "text searches": lambda n: reading(many(n, 'search($t.name, "name")')),
    "words of a search": lambda n: reading(f'fuzzy($t.name, "{many(n, "word#")}")'),
    "bindings": lambda n: reading(many(n, "$t: Town")),
    "components": lambda n: reading(many(n, '$t#: Town { key: "t1" }')),
    "hops": lambda n: reading(many(n, "$t road $t")),
    "hops in a row": lambda n: reading("$t road $n0 " + " ".join(f"$n{at} road $n{at + 1}" for at in range(n))),
    "negations": lambda n: reading(many(n, "not { $t.size > 100 }")),
    "negated hops": lambda n: reading(many(n, "not { $t road $u# $u#.size > 100 }")),
    "nested negations": lambda n: reading("not { $t.size > 0 " * n + "}" * n),
    "return items": lambda n: reading(items=many(n, "$t.size as c#")),
    "constants": lambda n: reading(items=many(n, "# as c#")),
    "aggregates": lambda n: reading(items=many(n, "sum($t.size) as c#")),
    "groups": lambda n: reading(items="count($t) as n " + many(n, "$t.size as c#")),
    "order items": lambda n: reading(tail=f"order {{ {many(n, '$t.size asc', ', ')} }} limit 3"),
    "items of a list": lambda n: reading(items=f"[{many(n, '#', ', ')}] as l"),
    "steps of a hop": lambda n: reading(f"$t road{{1,{2 ** min(n, 31)}}} $u"),
    "first step of a hop": lambda n: reading(f"$t road{{{2 ** min(n, 31)},{2**32 - 1}}} $u"),
}


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_work_grows_at_most_linearly_with_each_dimension_of_a_query(ring: Snapshot, dimension: str) -> None:
    def least(count: int) -> int:
        # What a first query makes once, the second one finds.
        return min(work(ring, DIMENSIONS[dimension](count)) for _ in range(2))

    for most in (16, 48):
        first, second, third = least(most // 4), least(most // 2), least(most)
        assert third - second <= 2.5 * (second - first) + 1_000
