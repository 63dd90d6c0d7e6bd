"""A load over an executor is a load: the same rows, the same problems in the same order, all or nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError, UsageError
from gitops.database.executor.port import InProcess, Tools, run_task
from gitops.database.graph.distributed import sources
from gitops.database.graph.distributed.documents import Piece
from gitops.database.graph.distributed.driver import begin_load, discard_load, load_files, run_load
from gitops.database.graph.distributed.sources import cut_groups, cut_lines, find_files, open_lines
from gitops.database.graph.history.gc import Retention, collect_garbage
from gitops.database.graph.history.optimize import OptimizeOptions, optimize_tables
from gitops.database.graph.history.verify import verify_graph
from gitops.database.graph.load import LoadError, LoadMode, LoadRequest, load_records
from gitops.database.graph.results import READING, StepProgress
from gitops.database.graph.staged import read_leases
from gitops.database.graph.tables import open_table
from gitops.repository.wiring.executors import open_executor, worker_command
from tests.support.effort import cases
from tests.support.histories import History, lives, person, town

LATE = Retention(1, timedelta(0), timedelta(0))


def executor_of(history: History) -> InProcess:
    return InProcess(lambda document: run_task(document, Tools(history.clock, history.ids)))


def lines_of(records: Sequence[Mapping[str, Any] | str]) -> bytes:
    return b"".join((each if isinstance(each, str) else json.dumps(each)).encode() + b"\n" for each in records)


def node(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def edge(kind: str, src: str, dst: str, **data: Any) -> dict[str, Any]:
    return {"edge": kind, "from": src, "to": dst, "data": data}


def cut(file: Path, span: int) -> list[Piece]:
    """Pieces of any size, also within a line."""
    size = file.stat().st_size
    return [Piece(str(file), None, at, min(at + span, size), size) for at in range(0, size, span)]


def spread(history: History, file: Path, span: int, buckets: int, mode: LoadMode = LoadMode.MERGE) -> dict[str, int]:
    work = history.work()
    done = load_files(history.uri, cut(file, span), executor_of(history), work, mode, buckets=buckets)
    return dict(done.rows)


def whole(history: History, request: LoadRequest) -> dict[str, int]:
    return dict(load_records(request, history.work()).rows)


NAMES = st.sampled_from(["ann", "bob", "cid", "dan", "eve"])
TOWNS = st.sampled_from(["oslo", "rome"])
RECORDS = st.one_of(
    st.builds(
        lambda name, age, mail: node("Person", name=name, age=age, mail=mail),
        NAMES,
        st.one_of(st.none(), st.integers(0, 9), st.just(200)),
        st.one_of(st.none(), st.sampled_from(["a@x", "b@x", "c@x"])),
    ),
    st.builds(lambda name: node("Town", name=name), TOWNS),
    st.builds(lambda src, dst, own: edge("Lives", src, dst, id=own), NAMES, TOWNS, st.sampled_from(["l1", "l2", "l3"])),
    st.builds(lambda src, dst: edge("Knows", src, dst), NAMES, NAMES),
    st.sampled_from(["", "{", '{"type":"Person"}', '{"type":"Ship","data":{}}']),
)


def outcome(history: History, load: Any) -> tuple[Any, Any]:
    """What a load leaves behind, and what it says."""
    try:
        said: Any = load()
    except LoadError as error:
        said = [(each.code, each.path, each.message, each.source and each.source.line) for each in error.problems]
        said = (error.total, error.clash, error.joint, said)
    image = history.image()
    # Generated ids differ.
    image["edge:Knows"] = sorted([{**row, "id": ""} for row in image["edge:Knows"]], key=str)
    return image, said


@settings(max_examples=cases(40))
@given(
    before=st.lists(RECORDS.filter(lambda each: isinstance(each, dict)), max_size=6),
    records=st.lists(RECORDS, max_size=12),
    mode=st.sampled_from(list(LoadMode)),
    span=st.integers(20, 400),
)
def test_one_bucket_or_many_is_a_load(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[dict[str, Any]],
    records: list[dict[str, Any] | str],
    mode: LoadMode,
    span: int,
) -> None:
    folder = tmp_path_factory.mktemp("load")
    file = folder / "rows.jsonl"
    file.write_bytes(lines_of(records))
    found = []
    for buckets in (0, 1, 64):
        history = History(str(folder / f"g{buckets}.omni"))
        with contextlib.suppress(LoadError):
            load_records(LoadRequest(history.uri, BytesIO(lines_of(before))), history.work())
        if buckets:
            found.append(outcome(history, partial(spread, history, file, span, buckets, mode)))
        else:
            request = LoadRequest(history.uri, BytesIO(lines_of(records)), mode)
            found.append(outcome(history, partial(whole, history, request)))
        assert verify_graph(history.uri, deep=True).ok
        assert read_leases(history.at().store) == ()
    serial, one, many = found
    event(str(type(serial[1])) + str(serial[1][2] if isinstance(serial[1], tuple) else mode))
    assert one == serial
    assert many == serial


TOWNSFOLK = lines_of(
    [node("Town", name="oslo"), *(node("Person", name=f"p{n}", age=n % 100) for n in range(40))]
    + [edge("Knows", f"p{n}", f"p{(n * 7) % 40}") for n in range(40)]
)


class Crash(BaseException):
    """The end of a driver, as far as this process can play it."""


class Counted(InProcess):
    """Counts the tasks that it runs, and ends its driver after some answers."""

    def __init__(self, history: History, answers: int = 10**6) -> None:
        super().__init__(lambda document: run_task(document, Tools(history.clock, history.ids)))
        self.left, self.done = answers, 0

    def wait(self) -> tuple[str, Any]:
        if not self.left:
            raise Crash
        self.left -= 1
        self.done += 1
        return super().wait()


@pytest.fixture
def townsfolk(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(TOWNSFOLK)
    return file


def people_of(history: History) -> tuple[int, int]:
    return len(history.rows("node:Person")), len(history.rows("edge:Knows"))


def test_a_driver_that_ends_is_continued_without_its_finished_tasks(history: History, townsfolk: Path) -> None:
    history.people("main", old=1)
    whole = Counted(History(str(townsfolk.parent / "other.omni")))
    load_files(str(townsfolk.parent / "other.omni"), cut(townsfolk, 900), whole, history.work(), buckets=4)
    pieces = cut(townsfolk, 900)
    bulk = begin_load(history.uri, pieces, history.work(), LoadMode.MERGE, "main", slots=1, buckets=4)
    done = 0
    for answers in (1, 3, len(pieces), 2, 10**6):
        executor = Counted(history, answers)
        if answers == 10**6:
            assert dict(run_load(history.uri, bulk, executor, history.work()).rows)["node:Person"] == 40
        else:
            with pytest.raises(Crash):
                run_load(history.uri, bulk, executor, history.work())
            assert people_of(history) == (1, 0)
            assert verify_graph(history.uri, deep=True).ok
            collect_garbage(history.uri, history.work(), LATE)
        done += executor.done
    # The other graph had no rows, so this load has the additional tasks that read its keys.
    assert whole.done <= done <= whole.done + 1
    assert people_of(history) == (41, 40)
    assert verify_graph(history.uri, deep=True).ok
    assert read_leases(history.at().store) == ()
    assert history.at().folder.children("bulk") == ()
    with pytest.raises(GitopsError) as failure:
        run_load(history.uri, bulk, Counted(history), history.work())
    assert failure.value.code == "graph_version_gone"


def test_two_drivers_of_one_load_publish_it_once(history: History, townsfolk: Path) -> None:
    bulk = begin_load(history.uri, cut(townsfolk, 900), history.work(), LoadMode.MERGE, "main", slots=1)

    class Overtaken(Counted):
        def wait(self) -> tuple[str, Any]:
            found = super().wait()
            if self.done == 8:
                other = History(history.uri, b"", start=800_000)
                run_load(history.uri, bulk, Counted(other), other.work())
            return found

    done = run_load(history.uri, bulk, Overtaken(history), history.work())
    assert (done.manifest_version, done.rows["edge:Knows"]) == (2, 40)
    assert history.at().manifest.n == 2
    assert people_of(history) == (40, 40)
    assert verify_graph(history.uri, deep=True).ok


class Twice(InProcess):
    """Runs each task twice, loses the first answer, and keeps the documents for later."""

    def __init__(self, history: History) -> None:
        self.texts: list[str] = []

        def run(document: str) -> str:
            self.texts.append(document)
            tools = Tools(history.clock, history.ids)
            first = run_task(document, tools)
            assert run_task(document, tools) == first
            return first

        super().__init__(run)


def test_a_task_may_run_twice_or_after_the_end(history: History, townsfolk: Path) -> None:
    executor = Twice(history)
    load_files(history.uri, cut(townsfolk, 900), executor, history.work(), buckets=2)
    image = history.image()
    assert people_of(history) == (40, 40)
    for document in executor.texts:
        run_task(document, Tools(history.clock, history.ids))
    assert history.image() == image
    assert verify_graph(history.uri, deep=True).ok
    later = History(history.uri, b"", start=900_000)
    later.people("main", new=1)
    collect_garbage(history.uri, later.work(), LATE)
    assert people_of(later) == (41, 40)
    assert later.at().folder.children("bulk") == ()
    assert verify_graph(history.uri, deep=True).ok


def test_rows_of_parquet_are_read_by_groups(local: History, tmp_path: Path) -> None:
    names = [f"p{n}" for n in range(100)]
    pq.write_table(pa.table({"name": names, "age": [n % 50 for n in range(100)]}), tmp_path / "p.parquet", 10)
    pq.write_table(pa.table({"from": names, "to": names[::-1]}), tmp_path / "k.parquet", 30)
    pieces = [*cut_groups(str(tmp_path / "p.parquet"), "node:Person", 1), *groups(tmp_path / "k.parquet", "edge:Knows")]
    done = load_files(local.uri, pieces, executor_of(local), local.work(), buckets=8)
    assert dict(done.rows) == {"node:Person": 100, "edge:Knows": 100}
    assert [row["age"] for row in local.rows("node:Person")[:3]] == [0, 1, 10]
    assert verify_graph(local.uri, deep=True).ok


def groups(file: Path, table: str) -> list[Piece]:
    """A piece for each row group."""
    count, size = pq.ParquetFile(file).num_row_groups, file.stat().st_size
    return [Piece(str(file), table, at, at + 1, size) for at in range(count)]


def test_problems_of_parquet_have_file_and_row(local: History, tmp_path: Path) -> None:
    ages = [n if n != 25 else 500 for n in range(30)]
    pq.write_table(pa.table({"name": [f"p{n}" for n in range(30)], "age": ages}), tmp_path / "p.parquet", 10)
    with pytest.raises(LoadError) as failure:
        load_files(local.uri, groups(tmp_path / "p.parquet", "node:Person"), executor_of(local), local.work())
    (problem,) = failure.value.problems
    assert problem.path == "parts[0].rows[26]"
    assert problem.message.startswith(f"{tmp_path / 'p.parquet'}, row 26: ")


def test_records_of_several_files_have_their_file_and_line(local: History, tmp_path: Path) -> None:
    for name, lines in {"a": [node("Town", name="oslo"), ""], "b": ["", node("Town", name="rome"), "{"]}.items():
        (tmp_path / f"{name}.jsonl").write_bytes(lines_of(lines))
    files = find_files(str(tmp_path / "*.jsonl"))
    with pytest.raises(LoadError) as failure:
        load_files(local.uri, cut_lines(files, 1), executor_of(local), local.work())
    (problem,) = failure.value.problems
    assert (problem.path, problem.source and (problem.source.file, problem.source.line)) == (
        "files[1].records[2]",
        (files[1], 3),
    )


def test_what_is_discarded_leaves_nothing(local: History, townsfolk: Path) -> None:
    bulk = begin_load(local.uri, cut(townsfolk, 900), local.work(), LoadMode.MERGE, "main", slots=2)
    with pytest.raises(Crash):
        run_load(local.uri, bulk, Counted(local, 6), local.work())
    assert list(Path(local.uri).glob("*/*.lance/data/*.lance"))
    discard_load(local.uri, bulk)
    assert not list(Path(local.uri).glob("*/*.lance/data/*.lance"))
    assert not (Path(local.uri) / "bulk" / bulk).exists()
    assert read_leases(local.at().store) == ()


def test_a_load_is_checked_against_what_others_published_meanwhile(local: History, tmp_path: Path) -> None:
    local.put("main", {"node:Person": [person("ann")], "node:Town": [town("oslo"), town("rome")]})
    file = tmp_path / "rows.jsonl"
    file.write_bytes(lines_of([edge("Lives", "ann", "rome")]))

    class Interrupted(Counted):
        def wait(self) -> tuple[str, Any]:
            found = super().wait()
            if self.done == 1:
                local.put("main", {"edge:Lives": [lives("l", "ann", "oslo")]})
            return found

    with pytest.raises(LoadError) as failure:
        load_files(local.uri, cut(file, 1000), Interrupted(local), local.work(), buckets=2)
    assert "@card" in next(iter(failure.value.problems)).message
    assert len(local.rows("edge:Lives")) == 1


def test_a_file_that_changes_in_size_is_refused(local: History, townsfolk: Path) -> None:
    pieces = cut(townsfolk, 900)
    townsfolk.write_bytes(TOWNSFOLK + b"\n")
    with pytest.raises(UsageError, match="when the load began"):
        load_files(local.uri, pieces, executor_of(local), local.work())


def test_pieces_are_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_BLOCK", 3)
    for text in (b"", b"\n", b"a", b"a\nbcdefgh\n\ni", b"abcdefgh\ni\n"):
        file = tmp_path / "x"
        file.write_bytes(text)
        for span in range(1, 12):
            found = []
            for piece in cut(file, span):
                with open_lines(piece) as lines:
                    found.append(lines.read())
            assert b"".join(found) == text
            assert all(each.endswith(b"\n") or each == b"" for each in found[:-1] if each != found[-1])


def test_input_in_a_bucket_is_read_in_pieces(history: History, tmp_path: Path) -> None:
    if not history.uri.startswith("s3:"):
        pytest.skip("only for a bucket")
    from gitops.database.storage.s3 import S3Store

    store = S3Store(history.uri.rpartition("/")[0])
    store.write("input/a.jsonl", TOWNSFOLK)
    pq.write_table(pa.table({"name": ["rome"]}), tmp_path / "t.parquet")
    store.write("input/t.parquet", (tmp_path / "t.parquet").read_bytes())
    (file,) = find_files(f"{store.location}/input/*.jsonl")
    pieces = [*cut_lines([file], 1), *cut_groups(f"{store.location}/input/t.parquet", "node:Town", 1)]
    done = load_files(history.uri, pieces, executor_of(history), history.work())
    assert dict(done.rows) == {"node:Person": 40, "node:Town": 2, "edge:Knows": 40}


def test_processes_of_this_machine(local: History, townsfolk: Path) -> None:
    executor = open_executor("local", 2, None)
    try:
        done = load_files(local.uri, cut(townsfolk, 1500), executor, local.work())
    finally:
        executor.close()
    assert dict(done.rows) == {"node:Person": 40, "node:Town": 1, "edge:Knows": 40}
    assert verify_graph(local.uri, deep=True).ok


def test_workers_compact_and_index(history: History) -> None:
    for n in range(4):
        history.people("main", **{f"p{n}{m}": m for m in range(8)})
    before, image = history.at().manifest.n, history.image()
    options = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)
    executor = Counted(history)
    done = optimize_tables(history.uri, history.work(), options, executor=executor)
    assert executor.done > 2
    assert done.manifest_version == before + 1
    steps = done.tables["node:Person"]
    assert steps[0] == "compacted"
    assert set(steps[1:]) == {"built id_idx (BTREE)", "built mail_idx (BTREE)", "built name_idx (BTREE)"}
    assert history.image() == image
    entry = history.at().manifest.tables["node:Person"]
    dataset = open_table(history.at().folder, entry)
    assert len(dataset.get_fragments()) == 1
    assert {each.num_rows_indexed for each in dataset.describe_indices()} == {32}
    assert verify_graph(history.uri, deep=True).ok
    again = Counted(history)
    assert optimize_tables(history.uri, history.work(), options, executor=again).tables == {}
    assert again.done == 0


def test_a_compaction_that_ends_early_changes_nothing(local: History) -> None:
    for n in range(4):
        local.people("main", **{f"p{n}": n})
    before, image = local.at().manifest, local.image()
    options = OptimizeOptions(fragments=1, deleted_share=0.0, scalar_rows=1, text_rows=1)
    with pytest.raises(Crash):
        optimize_tables(local.uri, local.work(), options, executor=Counted(local, 2))
    assert (local.at().manifest, local.image()) == (before, image)
    assert optimize_tables(local.uri, local.work(), options, executor=Counted(local)).tables
    assert local.image() == image
    assert verify_graph(local.uri, deep=True).ok


SERVE = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    " from gitops.repository.wiring.executors import serve_tasks; serve_tasks(sys.argv[2], 60)"
)


def test_plain_processes_serve_a_folder_or_bucket(history: History, townsfolk: Path, tmp_path: Path) -> None:
    place = f"{history.uri.rpartition('/')[0]}/tasks" if history.uri.startswith("s3:") else str(tmp_path / "tasks")
    executor = open_executor("files", 2, place)
    command = (sys.executable, "-I", "-c", SERVE, worker_command()[-1], place)
    workers = [subprocess.Popen(command) for _ in range(2)]
    try:
        load_files(history.uri, cut(townsfolk, 1500), executor, history.work())
    finally:
        executor.close()
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert people_of(history) == (40, 40)
    assert verify_graph(history.uri, deep=True).ok


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the package ray is not installed")
def test_a_cluster_of_processes_whose_worker_is_killed(local: History, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    records = [node("Person", name=f"p{n}") for n in range(4_000)]
    file.write_bytes(lines_of(records + [edge("Knows", f"p{n}", f"p{n * 7 % 4_000}") for n in range(4_000)]))
    executor = open_executor("ray", 2, None)
    killed: list[int] = []

    def kill(progress: StepProgress) -> None:
        import ray

        # The processes of the cluster that run tasks; one of them is killed while others run.
        mine = [
            int(pid)
            for pid in subprocess.run(
                ["pgrep", "-f", "ray::run_here"], capture_output=True, text=True, check=False
            ).stdout.split()
        ]
        if progress.step == READING and mine and not killed and ray.is_initialized():
            killed.append(mine[0])
            os.kill(mine[0], signal.SIGKILL)

    try:
        done = load_files(local.uri, cut(file, 60_000), executor, local.work(), progress=kill)
    finally:
        executor.close()
    assert dict(done.rows) == {"node:Person": 4_000, "edge:Knows": 4_000}
    assert killed
    assert verify_graph(local.uri, deep=True).ok
