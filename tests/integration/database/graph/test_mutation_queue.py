"""Mutations that threads of one process run at the same time: one version for several, in order, each with its own outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops.core.errors import GitopsError
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.results import MutationResult
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.write import mutate
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, NOW, WrittenGraph, no_pause

SCHEMA = """
node P { k: String @key  n: I32?  mark: String? @unique }
edge E: P -> P @card(0..2)
"""


@dataclass
class Held:
    """Stands where a mutation publishes, until it is let go."""

    reached: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def reach(self, point: str) -> None:
        if point == "engine.mutate.before_publish" and not self.reached.is_set():
            self.reached.set()
            assert self.goes_on.wait(60)


Outcome = MutationResult | str


def together(
    graph: WrittenGraph, *mutations: tuple[str, dict[str, Any]], meanwhile: Callable[[], object] = int
) -> list[Outcome]:
    """The outcomes of mutations that come in this order while another one is being published."""
    held, outcomes = Held(), dict[int, Outcome]()
    queue = graph.memory.queue(graph.uri, "main")

    def run(number: int, text: str, options: dict[str, Any], faults: Any = None) -> None:
        mutator = Mutator(CLOCK, SequentialIds(1000 * (number + 1)), faults, no_pause, graph.memory)
        try:
            outcomes[number] = mutator.run(graph.uri, graph.query(text), None, MutationOptions(NOW, **options))
        except GitopsError as error:
            outcomes[number] = error.code.value

    def begin(number: int, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=run, args=(number, *arguments))
        thread.start()
        with queue._turn:
            assert queue._turn.wait_for(lambda: len(queue._waiting) > number, 60)
        return thread

    threads = [begin(0, 'insert P { k: "first" }', {}, held)]
    assert held.reached.wait(60)
    threads += [begin(number, *each) for number, each in enumerate(mutations, 1)]
    meanwhile()
    held.goes_on.set()
    for thread in threads:
        thread.join()
    return [outcomes[number] for number in range(1, len(threads))]


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    return WrittenGraph(tmp_path / "g.omni").create(SCHEMA)


def version_of(outcome: Outcome) -> int:
    assert isinstance(outcome, MutationResult)
    return outcome.manifest_version


def test_a_group_is_one_version_in_the_order_in_which_it_came(graph: WrittenGraph) -> None:
    outcomes = together(
        graph,
        ('insert P { k: "a", n: 1 }', {}),
        ('update P set { n: 2 } where k = "a"', {}),
        ('insert E { from: "a", to: "first" }', {}),
        ("update P set { n: 9 } where n = 1", {}),
        ("update P set { n: 3 } where n = 2", {}),
    )
    assert [version_of(each) for each in outcomes] == [3] * 5
    counts = [(each.affected_nodes, each.affected_edges, each.changed) for each in outcomes]  # type: ignore[union-attr]
    assert counts == [(1, 0, True), (1, 0, True), (0, 1, True), (0, 0, False), (1, 0, True)]
    assert {row["k"]: row["n"] for row in graph.shown("P")} == {"a": 3, "first": None}
    assert graph.version == 3
    assert verify_graph(graph.uri, deep=True).ok


def test_a_mutation_that_is_refused_is_refused_alone(graph: WrittenGraph) -> None:
    graph.mutate('insert P { k: "old", mark: "taken" }  insert P { k: "free", mark: "x" }')
    before = graph.version
    outcomes = together(
        graph,
        ('insert P { k: "a", mark: "y" }', {}),
        ('insert E { from: "a", to: "absent" }', {}),
        ('insert P { k: "b", mark: "z" }  insert P { k: "c", mark: "y" }', {}),
        # A value that an earlier one has taken is not made free for it by a later one.
        ('insert P { k: "d", mark: "x" }', {}),
        ('update P set { mark: "w" } where k = "free"', {}),
        ('insert P { k: "e", mark: "x" }', {}),
        ('insert E { from: "a", to: "old" }  insert E { from: "a", to: "old" }', {}),
        ('insert E { from: "a", to: "e" }', {}),
        ('update P set { n: 7 } where k = "b"', {}),
    )
    refused = [each for each in outcomes if isinstance(each, str)]
    assert [at for at, each in enumerate(outcomes) if isinstance(each, str)] == [1, 2, 3, 7]
    assert set(refused) == {"mutation_invalid"}
    assert {version_of(each) for each in outcomes if not isinstance(each, str)} == {before + 2}
    marks = {row["k"]: row["mark"] for row in graph.shown("P")}
    assert marks == {"old": "taken", "free": "w", "a": "y", "e": "x", "first": None}
    assert graph.counts() == {"P": 5, "E": 2}
    assert verify_graph(graph.uri, deep=True).ok


def test_what_cannot_be_in_one_version_is_in_several(graph: WrittenGraph) -> None:
    """Deletes, other actors, and what a mutation expects of the branch; the order stays."""
    graph.mutate('insert P { k: "a" }  insert P { k: "b" }')
    head = graph.version
    outcomes = together(
        graph,
        ('insert P { k: "x" }', {}),
        ('delete P where k = "x"', {}),
        ('delete P where k = "a"', {}),
        ('insert P { k: "x", n: 1 }', {}),
        ('insert P { k: "y" }', {"actor": "ann"}),
        ('update P set { n: 5 } where k = "b"', {"actor": "ann", "expected_head": head + 5}),
        ('update P set { n: 6 } where k = "b"', {"actor": "ann", "expected_head": head + 5}),
        ('update P set { n: 7 } where k = "b"', {"actor": "ann"}),
    )
    assert [each if isinstance(each, str) else each.manifest_version - head for each in outcomes] == [
        2, 3, 3, 4, 5, 6, "head_moved", 7,
    ]  # fmt: skip
    assert {row["k"]: row["n"] for row in graph.shown("P")} == {"b": 7, "first": None, "x": 1, "y": None}


def test_a_group_holds_what_one_version_may(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation is only refused for its own size."""
    monkeypatch.setattr(mutate, "MAX_ENTITIES", 3)

    def inserts(*keys: str) -> tuple[str, dict[str, Any]]:
        return "  ".join(f'insert P {{ k: "{key}" }}' for key in keys), {}

    outcomes = together(graph, inserts("a", "b"), inserts("c", "d"), inserts(*"efgh"), inserts("i"))
    assert [each if isinstance(each, str) else each.manifest_version for each in outcomes] == [
        3,
        4,
        "resource_limit",
        5,
    ]
    assert graph.counts()["P"] == 6


def test_a_group_that_loses_a_race_is_carried_out_on_what_is_there_then(graph: WrittenGraph) -> None:
    """Another process writes without a turn, so the held mutation fails, and begins again with all it finds."""
    graph.mutate('insert P { k: "a", mark: "m" }')

    def steal() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalRoot, "lease", lambda _: nullcontext())
            WrittenGraph(graph.uri, 900_000).mutate('insert P { k: "other", mark: "n" }')

    outcomes = together(
        graph, ('insert P { k: "b", mark: "n" }', {}), ('insert P { k: "c", mark: "o" }', {}), meanwhile=steal
    )
    assert outcomes[0] == "mutation_invalid"
    assert sorted(row["k"] for row in graph.shown("P")) == ["a", "c", "first", "other"]
    assert open_snapshot(graph.uri).manifest.n == version_of(outcomes[1])
    assert verify_graph(graph.uri, deep=True).ok


def test_the_receipt_of_a_guarded_mutation_contains_no_other(graph: WrittenGraph) -> None:
    graph.mutate('insert P { k: "p", n: 10 }')
    seen = open_snapshot(graph.uri).manifest.txn_id
    mutator = Mutator(CLOCK, graph.ids, pause=no_pause, memory=graph.memory)
    guarded = MutationOptions(NOW, expected_commit=seen)
    own = mutator.enqueue(graph.uri, graph.query('insert P { k: "log" }'), None, guarded)
    other = mutator.enqueue(graph.uri, graph.query('update P set { n: 99 } where k = "p"'), None, MutationOptions(NOW))
    receipt, later = own().published, other().published
    assert receipt is not None
    assert later is not None
    assert later.parent is not None
    assert later.parent.commit == receipt.txn_id


def test_an_error_of_a_library_is_that_of_its_mutation(tmp_path: Path) -> None:
    graph = WrittenGraph(tmp_path / "g.omni").create('node P { k: String @key  t: String?  v: Vector(2)? @embed("t") }')

    class Broken:
        def embed(self, texts: object, **_: object) -> Any:
            raise OSError("connection reset")

    mutator = Mutator(CLOCK, graph.ids, pause=no_pause, memory=graph.memory)
    texts = {"a": "", "b": ', t: "text"', "c": ""}
    runs = [
        mutator.enqueue(
            graph.uri,
            graph.query(f'insert P {{ k: "{key}"{more} }}'),
            None,
            MutationOptions(NOW, embedder=Broken()),  # type: ignore[arg-type]
        )
        for key, more in texts.items()
    ]
    assert runs[0]().affected_nodes == 1
    with pytest.raises(OSError, match="connection reset"):
        runs[1]()
    assert runs[2]().affected_nodes == 1
    assert {row["k"] for row in graph.shown("P")} == {"a", "c"}
