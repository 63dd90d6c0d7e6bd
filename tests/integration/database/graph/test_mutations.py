"""Mutations of stored queries, and deletions."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph import tables
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.history.branches import create_branch
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.layout import IDENTITY
from gitops.database.graph.load import LoadMode, LoadRequest, load_records
from gitops.database.graph.local_root import LocalRoot
from gitops.database.graph.manifest import read_manifest
from gitops.database.graph.port import DeleteOrder, Existence
from gitops.database.graph.root import GraphRoot
from gitops.database.graph.snapshot import find_root, open_snapshot
from gitops.database.graph.staged import ATTEMPTS, WriteContext, retry_until_published
from gitops.database.graph.write import committed, mutate
from gitops.database.graph.write.mutate import MutationOptions, Mutator
from gitops.database.language.text import LanguageError
from gitops.database.storage.s3 import S3Store
from tests.support.fault_points import FAULT_POINTS
from tests.support.histories import SCHEMA as DELETE_SCHEMA
from tests.support.histories import History, person
from tests.support.ids import SequentialIds
from tests.support.mutations import CLOCK, NOW, WrittenGraph, no_pause
from tests.support.pages import ROOT
from tests.support.s3 import S3Place

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


def test_what_others_changed_since_a_strict_mutation_was_begun_is_not_overwritten(graph: WrittenGraph) -> None:
    graph.load(
        [
            *({"type": "P", "data": {"k": each, "n": 0}} for each in "ab"),
            {"type": "Counter", "data": {"name": "c", "value": 0}},
        ]
    )
    begun = open_snapshot(graph.uri).manifest
    assert graph.mutate('update P set { n: 1 } where k = "a"', begun=begun).affected_nodes == 1
    for late in (
        'update P set { n: 2 } where k = "a"',
        'delete P where k = "b"',
        # No row of theirs, but what it chose them by is another graph now.
        'update Counter set { value: 2 } where name = "c"',
        'insert P { k: "a", n: 2 }',
        'insert P { k: "new" }  update P set { n: 2 } where k = "b"',
    ):
        assert refused(lambda late=late: graph.mutate(late, begun=begun)).code == "head_moved", late
    for harmless in (
        'insert P { k: "new" }',
        'insert E { from: "a", to: "b" }',
        'insert Counter { name: "c", value: 3 }',
    ):
        assert graph.mutate(harmless, begun=begun).changed
    assert [row["data"].get("n") for row in graph.rows("P")] == [1, 0, None]


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
        with pytest.raises(LanguageError) as refused:
            original.query(query, signature)
        assert refused.value.problems[0].rule == case["checker"]
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


class Stop(BaseException):
    """The death of the process at a fault point."""


class At:
    """Calls `act` at the first visit of a point."""

    def __init__(self, point: str, act: Callable[[], object]) -> None:
        self._point, self._act = point, act

    def reach(self, point: str) -> None:
        if point == self._point:
            self._point = ""
            self._act()


def die() -> None:
    raise Stop


@pytest.fixture(params=["disk", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "s3":
        return f"{request.getfixturevalue('s3').root}/graphs/g.omni"
    return str(tmp_path / "graphs" / "g.omni")


@pytest.fixture
def history(uri: str) -> History:
    return History(uri)


def engine(history: History, faults: Faults | None = None) -> LanceEngine:
    return LanceEngine(history.clock, history.ids, faults or NoFaults())


def order(history: History, rows: int = 100, fence: int = 5, approvals: tuple[str, ...] = ("A",)) -> DeleteOrder:
    return DeleteOrder(engine(history).read(history.uri).incarnation, rows, fence, approvals)


def code(failure: pytest.ExceptionInfo[GitopsError]) -> str:
    return failure.value.code


def left(uri: str) -> list[str]:
    """The files of graphs at a root that is free, and beside it; the claim without an owner in a bucket is none."""
    if uri.startswith("s3:"):
        return [key for key in S3Store(uri).keys("") if key != IDENTITY]
    beside = Path(uri).parent
    return [str(path) for path in beside.rglob("*") if path.is_file() and "deleted" not in path.parent.parts]


def test_rows_are_those_of_all_branches(history: History) -> None:
    history.people("main", ann=1, bob=2)
    assert engine(history).read(history.uri).rows == 2
    create_branch(history.uri, "trial", history.work())
    assert engine(history).read(history.uri).rows == 2
    history.people("trial", cyd=3)
    assert engine(history).read(history.uri).rows == 3
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, order(history, rows=2))
    assert code(failure) == "graph_grown"
    assert history.ages("trial") == {"ann": 1, "bob": 2, "cyd": 3}


def test_rows_that_are_loaded_just_before_the_point_of_no_return_save_the_graph(history: History) -> None:
    race = At("engine.delete.before_publish", lambda: history.people("main", ann=1))
    with pytest.raises(GitopsError) as failure:
        engine(history, race).delete(history.uri, order(history, rows=0))
    assert code(failure) == "graph_grown"
    assert history.ages() == {"ann": 1}


def test_a_writer_that_began_before_the_delete_loses(history: History) -> None:
    staged = history.stage("main", {"node:Town": []})
    create_branch(history.uri, "trial", history.work())
    on_branch = history.stage("trial", {"node:Town": []})
    with pytest.raises(Stop):
        engine(history, At("engine.delete.after_publish", die)).delete(history.uri, order(history))
    for each in (staged, on_branch):
        with pytest.raises(ConflictError):
            each.publish()
    with pytest.raises(GitopsError) as failure:
        engine(history).read(history.uri)
    assert code(failure) == "graph_deleted"
    with pytest.raises(GitopsError) as failure:
        engine(history).prepare_create(history.uri, b"node P { k: String @key }", actor=None)
    assert code(failure) == "graph_exists"


@pytest.mark.parametrize("point", [name for name in FAULT_POINTS if name.startswith("engine.delete.")])
def test_after_a_crash_the_next_run_finishes_the_delete(history: History, point: str) -> None:
    asked, whole = order(history), point == "engine.delete.before_publish"
    with pytest.raises(Stop):
        engine(history, At(point, die)).delete(history.uri, asked)
    if whole:
        assert engine(history).read(history.uri).incarnation == asked.incarnation
    # Past the point of no return no further permission is asked for.
    engine(history).delete(history.uri, asked if whole else DeleteOrder(asked.incarnation, 0, 9, ("B",)))
    assert engine(history).exists(history.uri) is Existence.ABSENT
    assert engine(history).deleted_by(history.uri, asked.incarnation) == {"A"}
    assert left(history.uri) == []
    again = History(history.uri, start=5_000)
    assert again.ages() == {}


@pytest.mark.parametrize("step", ["before_files", "before_remove"])
def test_files_of_a_removal_that_died_go_with_one_that_does_not_know_its_order(history: History, step: str) -> None:
    history.people("main", ann=1)
    with pytest.raises(Stop):
        engine(history, At(f"engine.delete.{step}", die)).delete(history.uri, order(history))
    assert left(history.uri)
    engine(history).finish_delete(history.uri)
    assert left(history.uri) == []
    assert engine(history).exists(history.uri) is Existence.ABSENT


def test_create_in_a_bucket_is_over_and_its_files_are_gone_once_its_root_is_cleared(s3: S3Place) -> None:
    uri = f"{s3.root}/graphs/g.omni"
    slow = History(uri, b"")
    staged = engine(slow).prepare_create(uri, DELETE_SCHEMA, actor=None)
    assert left(uri)
    engine(slow).finish_delete(uri)
    assert left(uri) == []
    with pytest.raises(ConflictError) as failure:
        staged.publish()
    assert code(failure) == "graph_conflict"
    assert History(uri).ages() == {}
    engine(slow).finish_delete(uri)
    assert History(uri, b"").ages() == {}


class _SlowRemoval:
    """A crash-free run that is suspended before its files are removed, while others finish its work and create a new graph."""

    def __init__(self, history: History) -> None:
        self.history = history

    def reach(self, point: str) -> None:
        if point == "engine.delete.before_remove":
            root: GraphRoot = find_root(self.history.uri)
            root.remove()
            History(self.history.uri, start=7_000).people("main", new=1)


def test_a_run_that_is_suspended_after_the_point_of_no_return_does_not_remove_a_newer_graph(history: History) -> None:
    asked = order(history)
    if history.uri.startswith("s3:"):
        with pytest.raises(ConflictError):
            engine(history, _SlowRemoval(history)).delete(history.uri, asked)
    else:
        engine(history, _SlowRemoval(history)).delete(history.uri, asked)
    assert History(history.uri, b"").ages() == {"new": 1}


def test_a_restored_backup_is_not_deleted_again_by_the_same_approvals(tmp_path: Path) -> None:
    history = History(str(tmp_path / "graphs" / "g.omni"))
    history.people("main", ann=1)
    shutil.copytree(history.uri, tmp_path / "backup")
    asked = order(history, approvals=("A", "B"))
    engine(history).delete(history.uri, asked)
    shutil.copytree(tmp_path / "backup", history.uri)
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, DeleteOrder(asked.incarnation, 100, 9, ("B", "C")))
    assert code(failure) == "graph_restored"
    assert history.ages() == {"ann": 1}
    engine(history).delete(history.uri, DeleteOrder(asked.incarnation, 100, 9, ("C",)))
    assert engine(history).deleted_by(history.uri, asked.incarnation) == {"A", "B", "C"}


def test_a_fence_survives_loads_and_the_collector(history: History) -> None:
    engine(history).fence(history.uri, 7)
    history.people("main", ann=1)
    collect_garbage(history.uri, history.work())
    with pytest.raises(ConflictError) as failure:
        engine(history).delete(history.uri, order(history, fence=6))
    assert code(failure) == "graph_fenced"
    assert history.at().manifest.fence == 7


def _load(history: History, mode: LoadMode, **ages: int | None) -> None:
    lines = [json.dumps({"type": "Person", "data": {"name": name, "age": age}}) for name, age in ages.items()]
    load_records(LoadRequest(history.uri, io.BytesIO("\n".join(lines).encode()), mode), history.work())


def _mutate(history: History, text: str) -> None:
    WrittenGraph(history.uri, 90_000).mutate(text)


def _maintain(history: History) -> None:
    options = OptimizeOptions(fragments=1, scalar_rows=1)
    assert optimize_tables(history.uri, history.work(), options).tables["node:Person"][0] == "compacted"


MIGRATED = b"""node Human @rename_from("Person") { name: String @key  years: I32? @rename_from("age") @range(years, 0..150)
    more: [String]?  mail: String? @unique
}
node Town { name: String @key }
edge Lives: Human -> Town @card(0..1)
edge Knows: Human -> Human
"""

# What happens to two rows, which were loaded by two loads, after they were seen; and how many of them are replaced then.
SINCE: dict[str, tuple[Callable[[History], object], int]] = {
    "nothing": (lambda _: None, 0),
    "rows are added": (lambda h: _load(h, LoadMode.APPEND, cyd=3, dan=4), 0),
    "a row is deleted": (lambda h: h.put("main", {}, {"node:Person": ["ann"]}), 0),
    "all rows are overwritten": (lambda h: _load(h, LoadMode.OVERWRITE, x=1, y=2, z=3), 2),
    "all rows are overwritten by one": (lambda h: _load(h, LoadMode.OVERWRITE, x=1), 1),
    "a row is changed": (lambda h: _load(h, LoadMode.MERGE, ann=9), 1),
    "a row is updated and keeps its row id": (
        lambda h: _mutate(h, 'update Person set { age: 9 } where name = "ann"'),
        1,
    ),
    "a row is updated twice": (
        lambda h: [_mutate(h, 'update Person set { age: 9 } where name = "ann"') for _ in range(2)],
        1,
    ),
    "a row is replaced by itself": (lambda h: _mutate(h, 'insert Person { name: "bob", age: 2 }'), 1),
    "a row is deleted and another added": (
        lambda h: (h.put("main", {}, {"node:Person": ["ann"]}), _load(h, LoadMode.APPEND, cyd=3)),
        1,
    ),
    "tables are compacted and indexed": (_maintain, 0),
    "versions are collected": (lambda h: collect_garbage(h.uri, h.work(), Retention(1, timedelta(0))), 0),
    "columns are renamed, added and dropped": (
        lambda h: engine(h).prepare_migration(h.uri, MIGRATED, actor=None).publish(),
        0,
    ),
    "a run fences it": (lambda h: engine(h).fence(h.uri, 7), 0),
}


@pytest.mark.parametrize("since", SINCE)
def test_a_delete_takes_only_rows_that_were_there_when_its_approvals_were_checked(history: History, since: str) -> None:
    _load(history, LoadMode.APPEND, ann=1)
    _load(history, LoadMode.APPEND, bob=2)
    seen, (happens, number) = history.at().manifest.n, SINCE[since]
    happens(history)
    assert engine(history).replaced_rows(history.uri, seen) == number
    asked = replace(order(history, fence=9), version=seen)
    if not number:
        engine(history).delete(history.uri, asked)
        assert engine(history).exists(history.uri) is Existence.ABSENT
        return
    for act in (engine(history).check_delete, engine(history).delete):
        with pytest.raises(GitopsError) as failure:
            act(history.uri, asked)
        assert code(failure) == "graph_rows_replaced"
    assert engine(history).exists(history.uri) is Existence.PRESENT


def test_a_delete_is_refused_where_the_version_that_was_seen_is_no_longer_kept(history: History) -> None:
    """The rows may be the same, but this cannot be known."""
    _load(history, LoadMode.APPEND, ann=1)
    asked = replace(order(history), version=history.at().manifest.n)
    _load(history, LoadMode.APPEND, bob=2)
    collect_garbage(history.uri, history.work(), Retention(1, timedelta(0)))
    with pytest.raises(GitopsError) as failure:
        engine(history).replaced_rows(history.uri, 2)
    assert code(failure) == "graph_version_gone"
    with pytest.raises(GitopsError) as failure:
        engine(history).delete(history.uri, asked)
    assert (code(failure), "no longer kept" in failure.value.detail) == ("graph_rows_replaced", True)
    assert history.ages() == {"ann": 1, "bob": 2}


def test_rows_that_are_replaced_just_before_the_point_of_no_return_save_the_graph(history: History) -> None:
    _load(history, LoadMode.APPEND, ann=1)
    other = {"node:Person": [person("cyd")]}
    race = At("engine.delete.before_publish", lambda: history.put("main", other, {"node:Person": ["ann"]}))
    with pytest.raises(GitopsError) as failure:
        engine(history, race).delete(history.uri, replace(order(history), version=history.at().manifest.n))
    assert code(failure) == "graph_rows_replaced"
    assert history.ages() == {"cyd": None}


def test_only_what_differs_is_looked_at(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a table with many parts one row changes: the ids of that part are read, and no column."""
    for number in range(3):
        _load(history, LoadMode.APPEND, **{f"p{number}-{each}": each for each in range(40)})
    seen, read = history.at().manifest.n, list[int]()
    _load(history, LoadMode.MERGE, **{"p1-7": 99})
    found = tables._row_ids

    def counted(dataset: Any, fragments: Any) -> Any:
        read.append(sum(each.count_rows() for each in fragments))
        return found(dataset, fragments)

    monkeypatch.setattr(tables, "_row_ids", counted)
    assert engine(history).replaced_rows(history.uri, seen) == 1
    assert read == [40, 40]
