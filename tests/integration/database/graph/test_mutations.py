"""What holds of every mutation, whatever its statements: limits, preconditions, races, branches, vectors."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.manifest import read_manifest
from gitops.database.graph.snapshot import open_snapshot
from gitops.database.graph.staged import ATTEMPTS, WriteContext, retry_until_published
from gitops.database.graph.write import committed, mutate
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, NOW, WrittenGraph, no_pause

SCHEMA = """
node P { k: String @key  n: I32?  doc: Blob?  note: String?  vec: Vector(2)? @embed("note") }
node Must { text: String  vec: Vector(2) @embed("text") }
node Counter { name: String @key  value: I64 }
edge E: P -> P { w: I32? }
"""


@pytest.fixture
def graph(tmp_path: Path) -> WrittenGraph:
    return WrittenGraph(tmp_path / "g.omni").create(SCHEMA)


def refused(run: Callable[[], object]) -> GitopsError:
    with pytest.raises(GitopsError) as failure:
        run()
    return failure.value


class Lengths:
    """A maker of vectors that counts characters, and how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        self.asked.append(tuple(texts))
        return [[float(len(text))] * dimension for text in texts]


class Broken(Lengths):
    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        return [[1.0] * (dimension + 1) for _ in texts]


def test_too_many_rows_are_refused_and_nothing_is_written(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load({"type": "P", "data": {"k": str(n), "n": n}} for n in range(5))
    monkeypatch.setattr(mutate, "MAX_ENTITIES", 3)
    inserts = " ".join(f'insert P {{ k: "new{n}" }}' for n in range(4))
    before = graph.lines()
    assert refused(lambda: graph.mutate(inserts)).code == "resource_limit"
    assert refused(lambda: graph.mutate('update P set { n: 9 } where k >= ""')).code == "resource_limit"
    assert (graph.lines(), graph.version) == (before, 2)
    assert graph.mutate("update P set { n: 9 } where n < 3").affected_nodes == 3
    assert graph.mutate('delete P where k >= ""').affected_nodes == 5


def test_too_many_bytes_are_refused(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "MAX_BYTES", 100)
    assert refused(lambda: graph.mutate(f'insert P {{ k: "a", note: "{"x" * 100}" }}')).code == "resource_limit"
    graph.mutate(f'insert P {{ k: "a", note: "{"x" * 60}" }}  insert P {{ k: "a", note: "{"y" * 60}" }}')
    assert graph.counts()["P"] == 1


def test_many_touched_rows_are_found_by_reading_columns(graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.load({"type": "P", "data": {"k": str(n), "n": n}} for n in range(6))
    graph.load({"edge": "E", "from": str(n), "to": str((n + 1) % 6)} for n in range(6))
    monkeypatch.setattr(committed, "MAX_PROBES", 1)
    result = graph.mutate("delete P where n < 3")
    assert (result.affected_nodes, result.affected_edges) == (3, 4)
    assert [(row["from"], row["to"]) for row in graph.rows("E")] == [("3", "4"), ("4", "5")]


def test_the_head_must_be_the_expected_one(graph: WrittenGraph) -> None:
    assert graph.mutate('insert P { k: "a" }', expected_head=1).manifest_version == 2
    error = refused(lambda: graph.mutate('insert P { k: "b" }', expected_head=1))
    assert (error.code, "is at version 2, not at 1" in error.detail) == ("head_moved", True)
    assert graph.mutate('insert P { k: "b" }', expected_head=2).changed


def test_a_mixed_query_and_bad_parameters_are_refused_before_the_graph_is_looked_at(graph: WrittenGraph) -> None:
    mixed = graph.query('insert P { k: "a" }  delete P where k = "b"')
    lacking = graph.query("delete P where k = $k", "$k: String")
    mutator, options = Mutator(CLOCK, SequentialIds(), pause=no_pause), MutationOptions(NOW)
    assert refused(lambda: mutator.run("/nowhere/g.omni", mixed, None, options)).code == "mutation_mixed"
    assert refused(lambda: mutator.run("/nowhere/g.omni", lacking, None, options)).code == "query_params_invalid"
    assert refused(lambda: mutator.run("/nowhere/g.omni", lacking, {"k": "a"}, options)).code == "graph_missing"


def test_a_query_that_was_checked_against_another_schema_is_refused(graph: WrittenGraph) -> None:
    checked = graph.query('insert P { k: "a", n: 1 }')
    LanceEngine(CLOCK, graph.ids).prepare_migration(graph.uri, b"node P { k: String @key }", actor=None).publish()
    error = refused(lambda: Mutator(CLOCK, graph.ids).run(graph.uri, checked, None, MutationOptions(NOW)))
    assert error.code == "mutation_invalid"
    assert "check the query again" in error.detail


def test_rows_from_before_a_migration_are_updated_and_keep_what_they_had(graph: WrittenGraph) -> None:
    graph.load([{"type": "P", "data": {"k": "a", "n": 1, "doc": "base64:AAE="}}])
    wider = SCHEMA.replace("n: I32?", 'aaa: String?  m: I32? @rename_from("n")')
    LanceEngine(CLOCK, graph.ids).prepare_migration(graph.uri, wider.encode(), actor=None).publish()
    graph.mutate('update P set { aaa: "new" } where m = 1  insert P { k: "b", m: 2 }')
    (first, second) = graph.rows("P")
    assert first["data"] == {"id": "a", "k": "a", "m": 1, "aaa": "new", "doc": "base64:AAE=", "vec": None}
    assert second["data"] == {"id": "b", "k": "b", "m": 2, "vec": None}


def test_the_blobs_of_many_updated_rows_stay_with_their_rows(graph: WrittenGraph) -> None:
    blobs = {"0": "base64:AAA=", "1": None, "4": "base64:", "8": "base64:AAg="}
    graph.load({"type": "P", "data": {"k": k, "n": 9 - int(k), "doc": blobs[k]}} for k in ("8", "0", "4"))
    graph.load([{"type": "P", "data": {"k": "1"}}])
    for statement in ('update P set { note: "x" } where k >= ""', "update P set { n: 7 } where n >= 5"):
        graph.mutate(statement)
        assert {row["data"]["k"]: row["data"].get("doc") for row in graph.rows("P")} == blobs


def test_who_and_how_is_in_the_manifest(graph: WrittenGraph) -> None:
    graph.mutate('insert P { k: "a" }', actor="ann")
    manifest = read_manifest(open_snapshot(graph.uri).store, 2)
    assert (manifest.operation, manifest.actor) == ("mutate", "ann")


def test_a_branch_is_written_and_main_is_not(graph: WrittenGraph) -> None:
    graph.mutate('insert P { k: "a" }')
    create_branch(graph.uri, "dev", WriteContext(CLOCK, graph.ids))
    graph.mutate('insert P { k: "b" }', branch="dev")
    graph.mutate('insert P { k: "c" }')
    graph.mutate('delete P where k = "a"', branch="dev")
    assert [row["data"]["k"] for row in graph.rows("P")] == ["a", "c"]
    assert [row["data"]["k"] for row in graph.rows("P", "dev")] == ["b"]
    assert refused(lambda: graph.mutate('insert P { k: "d" }', branch="none")).code == "graph_branch_missing"


def test_the_branch_of_a_migration_takes_no_writes(graph: WrittenGraph) -> None:
    error = refused(lambda: graph.mutate('insert P { k: "a" }', branch=" __schema_apply_lock__ "))
    assert error.code in ("mutation_invalid", "graph_branch_name")


def test_a_vector_is_made_from_its_text(graph: WrittenGraph) -> None:
    maker = Lengths()
    graph.mutate('insert P { k: "a", note: "four" }  insert Must { text: "three" }', embedder=maker)
    assert [row["data"]["vec"] for row in (*graph.rows("P"), *graph.rows("Must"))] == [[4.0, 4.0], [5.0, 5.0]]
    given = "$v: Vector(2)?"
    graph.mutate(
        'insert P { k: "a", note: "four", vec: $v }  insert P { k: "b" }', {"v": [1, 2]}, given, embedder=maker
    )
    graph.mutate('insert P { k: "c", note: "null stays", vec: $v }', {}, given, embedder=maker)
    assert [row["data"]["vec"] for row in graph.rows("P")] == [[1.0, 2.0], None, None]
    assert maker.asked == [("four",), ("three",)]


def test_without_a_maker_a_vector_is_missing(graph: WrittenGraph) -> None:
    graph.mutate('insert P { k: "a", note: "four" }')
    assert graph.rows("P")[0]["data"]["vec"] is None
    error = refused(lambda: graph.mutate('insert Must { text: "three" }'))
    assert (error.code, error.detail) == ("mutation_invalid", "Must.vec is required")


def test_a_vector_that_does_not_fit_is_refused(graph: WrittenGraph) -> None:
    error = refused(lambda: graph.mutate('insert Must { text: "three" }', embedder=Broken()))
    assert (error.code, "expects 2 dimensions" in error.detail) == ("embedding_failed", True)


def test_losers_of_a_race_begin_again_at_most_32_times() -> None:
    paused: list[int] = []
    outcomes = iter([ConflictError("graph_conflict", "x")] * 3 + [None])

    def attempt() -> str:
        failure = next(outcomes)
        if failure is not None:
            raise failure
        return "done"

    assert retry_until_published(attempt, paused.append) == "done"
    assert paused == [1, 2, 3]

    def never() -> None:
        raise ConflictError("graph_conflict", "always")

    paused.clear()
    assert refused(lambda: retry_until_published(never, paused.append)).code == "graph_conflict"
    assert paused == list(range(1, ATTEMPTS))


def increment(graph: WrittenGraph, ids: SequentialIds) -> None:
    """Read the counter, and write it one higher if nobody was faster."""
    while True:
        (row,) = graph.rows("Counter")
        head = graph.version
        if graph.rows("Counter") != [row]:
            continue
        query = graph.query('update Counter set { value: $v } where name = "c"', "$v: I64")
        options = MutationOptions(NOW, expected_head=head)
        try:
            Mutator(CLOCK, ids, pause=no_pause).run(graph.uri, query, {"v": row["data"]["value"] + 1}, options)
        except ConflictError:
            continue
        return


@pytest.mark.parametrize("turns", [True, False], ids=["in turns", "without turns"])
def test_threads_lose_no_update_and_make_no_key_twice(
    graph: WrittenGraph, monkeypatch: pytest.MonkeyPatch, turns: bool
) -> None:
    """The turns are for progress only: without them the version of the manifest and of each table keeps writers apart."""
    if not turns:
        monkeypatch.setattr(LocalRoot, "lease", lambda _root: contextlib.nullcontext())
    graph.mutate('insert Counter { name: "c", value: 0 }')
    failures: list[BaseException] = []

    def run(number: int) -> None:
        ids = SequentialIds(1_000_000 * (number + 1))
        try:
            for turn in range(3):
                for k in ("shared", f"{number}-{turn}"):
                    query = graph.query("insert P { k: $k }", "$k: String")
                    Mutator(CLOCK, ids, pause=no_pause).run(graph.uri, query, {"k": k}, MutationOptions(NOW))
        except BaseException as failure:  # noqa: BLE001 - a thread has no other way to tell
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [f for f in failures if not (isinstance(f, ConflictError) and not turns)] == []
    keys = [row["data"]["k"] for row in graph.rows("P")]
    assert len(keys) == len(set(keys)) == graph.counts()["P"]
    if turns:
        assert len(keys) == 1 + 3 * 3
        assert graph.version == 2 + 3 * 3 * 2


def test_a_counter_that_is_guarded_by_the_head_counts_every_time(graph: WrittenGraph) -> None:
    graph.mutate('insert Counter { name: "c", value: 0 }')
    threads = [
        threading.Thread(
            target=lambda n=n: [increment(graph, SequentialIds(10_000 * (n + 1) + 100 * t)) for t in range(3)]
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert graph.rows("Counter")[0]["data"]["value"] == 6
