"""The driver of a load over an executor: plans it, submits its tasks, combines the answers and publishes."""

from __future__ import annotations

import contextlib
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import SourceRef
from gitops.core.documents.json_bytes import parse
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.database.executor.port import TaskExecutor, task_key
from gitops.database.graph import layout
from gitops.database.graph.bulk import (
    end_lease,
    find_published,
    mark_begun,
    plan_bulk,
    require_same_schema,
)
from gitops.database.graph.distributed.documents import (
    Piece,
    SharedLoad,
    answer_key,
    read_load,
    write_inputs,
    write_load,
)
from gitops.database.graph.distributed.keyfiles import read_rows
from gitops.database.graph.history.branches import ensure_branch
from gitops.database.graph.load import CommitId, LoadMode, LoadPublisher, LoadRequest, TableCheck
from gitops.database.graph.manifest import Manifest
from gitops.database.graph.results import CHECKING, READING, LoadResult, StepProgress, Watcher, unwatched
from gitops.database.graph.snapshot import ReadTarget, Snapshot, open_snapshot
from gitops.database.graph.staged import DEFAULT_TERM, WriteContext, hold_lease, retry_until_published, sleep_jittered
from gitops.database.graph.tables import StagedFragment, open_table, remove_files
from gitops.database.graph.write.intake import LoadError, LoadIntake, RecordProblems
from gitops.database.language.schema import Catalog, EdgeType

BUCKET_BYTES = 256 * 1024 * 1024
"""Bytes of input for each bucket of keys, so that a task's keys fit in memory."""

_MOST_BUCKETS = 4096
_SCAN_ROWS = 4_000_000
_STEPS = 3


def begin_load(
    uri: str,
    pieces: Sequence[Piece],
    context: WriteContext,
    mode: LoadMode,
    branch: str,
    *,
    slots: int,
    buckets: int = 0,
) -> str:
    """Plan a load of these pieces and return its id. `buckets` is a power of two, or 0 to derive it from the input.

    Raises the same errors as `plan_bulk`; UsageError `usage_error` for a table that the graph does not have.
    """
    plan = plan_bulk(uri, context, branch)
    for table in sorted({piece.table for piece in pieces if piece.table is not None}):
        plan.task(table)
    wanted = max(slots, sum(weight for _, weight in _weighted(pieces)) // BUCKET_BYTES, 1)
    load = SharedLoad(plan, mode, buckets or min(_MOST_BUCKETS, 1 << (wanted - 1).bit_length()), tuple(pieces))
    write_load(open_snapshot(uri, ReadTarget(branch)).store, load)
    return plan.bulk


def run_load(
    uri: str, bulk: str, executor: TaskExecutor, context: WriteContext, progress: Watcher = unwatched
) -> LoadResult:
    """Run or continue a load: submit the tasks that have no answer, then publish one version.

    Can be called again after a failure or crash. Raises LoadError for invalid records, after discarding the load;
    GitopsError `graph_version_gone` if the load has ended; the errors of `publish_bulk` and of the executor.
    """
    if not is_ulid(bulk):
        raise UsageError(
            Code.USAGE_ERROR, f"{bulk[:80]!r} is not the id of a load", fix="use the id that the load printed"
        )
    load = read_load(open_snapshot(uri).store, bulk)
    return _Driver(load, open_snapshot(uri, ReadTarget(load.plan.branch)), executor, context, progress).run()


def find_load(uri: str, pieces: Sequence[Piece], mode: LoadMode, branch: str) -> str | None:
    """Return the newest load in progress of the same files, mode and branch, or None if there is none."""
    snapshot = open_snapshot(uri)
    for name in reversed(snapshot.folder.children(layout.BULK)):
        with contextlib.suppress(GitopsError):
            load = read_load(snapshot.store, name)
            if _inputs(load.pieces) == _inputs(pieces) and (load.mode, load.plan.branch) == (mode, branch):
                return name
    return None


def _inputs(pieces: Sequence[Piece]) -> list[tuple[str, int, str | None]]:
    return list(dict.fromkeys((piece.file, piece.size, piece.table) for piece in pieces))


def discard_load(uri: str, bulk: str) -> None:
    """Discard an unpublished load: remove its files and its lease. Raises the same errors as `run_load`."""
    snapshot = open_snapshot(uri)
    load = read_load(snapshot.store, bulk)
    answers = [
        _read_answer(snapshot, load, name.removesuffix(".json")) for name in snapshot.store.names(load.key("answers"))
    ]
    _discard(load, open_snapshot(uri, ReadTarget(load.plan.branch)), [each for each in answers if "tables" in each])


def load_files(
    uri: str,
    pieces: Sequence[Piece],
    executor: TaskExecutor,
    context: WriteContext,
    mode: LoadMode = LoadMode.MERGE,
    branch: str = layout.MAIN,
    base: str | None = None,
    progress: Watcher = unwatched,
    *,
    buckets: int = 0,
) -> LoadResult:
    """Load pieces of files over an executor and publish one version.

    If a load fails for a reason other than its records, it can be continued, and a note on the error has the load's id.
    Raises the same errors as `begin_load` and `run_load`.
    """
    if base is not None:
        ensure_branch(uri, branch, context, ReadTarget(base))
    bulk = begin_load(uri, pieces, context, mode, branch, slots=executor.slots, buckets=buckets)
    return run_load(uri, bulk, executor, context, progress)


def _weighted(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
    """Yield each piece with its approximate bytes."""
    spans: dict[str, int] = {}
    for piece in pieces:
        spans[piece.file] = spans.get(piece.file, 0) + piece.end - piece.start
    for piece in pieces:
        yield piece, piece.size * (piece.end - piece.start) // max(1, spans[piece.file])


def _read_answer(snapshot: Snapshot, load: SharedLoad, task: str) -> dict[str, Any]:
    data = snapshot.store.read(answer_key(load, task))
    if data is None:
        raise RemoteError(Code.STORAGE_FAILED, f"the answer to task {task} has disappeared")
    return dict(parse(data, limit=1 << 28))


def _discard(load: SharedLoad, snapshot: Snapshot, answers: Sequence[Mapping[str, Any]]) -> None:
    for answer in answers:
        for key, table in answer["tables"].items():
            staged = [StagedFragment.from_json(text) for text in table["fragments"]]
            remove_files(snapshot.folder, snapshot.manifest.tables[key].path, staged)
    end_lease(load.plan, snapshot)
    snapshot.folder.remove(f"{layout.BULK}/{load.plan.bulk}")


class _PieceProblems(RecordProblems):
    """Problems with record numbers counted over all pieces; located by file, record and line."""

    def __init__(self, pieces: Sequence[Piece], answers: Sequence[Mapping[str, Any]]) -> None:
        super().__init__()
        self._files = list(dict.fromkeys(piece.file for piece in pieces))
        self._starts: list[tuple[int, int, int, Piece, Sequence[int]]] = []
        """Records before the piece, records and blank lines of its file before it, and the blank lines in it."""
        before, of_file = 0, dict.fromkeys(self._files, (0, 0))
        for piece, answer in zip(pieces, answers, strict=True):
            records, blanks = of_file[piece.file]
            self._starts.append((before, records, blanks, piece, answer["blanks"]))
            before += answer["records"]
            of_file[piece.file] = records + answer["records"], blanks + len(answer["blanks"])

    def place(self, record: int) -> tuple[str, str, SourceRef | None]:
        start, records, blanks, piece, within = next(each for each in reversed(self._starts) if each[0] < record)
        number = records + record - start
        if piece.table is not None:
            at = self._files.index(piece.file)
            return f"parts[{at}].rows[{number}]", f"{piece.file}, row {number}", None
        line = number + blanks + sum(1 for each in within if each < record - start)
        source = SourceRef(piece.file, line)
        if len(self._files) == 1:
            return f"records[{number}]", f"record {number}", source
        at = self._files.index(piece.file)
        return f"files[{at}].records[{number}]", f"{piece.file}, record {number}", source


class _Driver:
    """One run of a load."""

    def __init__(
        self, load: SharedLoad, snapshot: Snapshot, executor: TaskExecutor, context: WriteContext, progress: Watcher
    ) -> None:
        self.load = load
        self._snapshot = snapshot
        self._executor = executor
        self._context = context
        self._progress = progress
        self._renew: Callable[[], None] = lambda: None
        self._written: list[dict[str, Any]] = []
        self._problems = RecordProblems()

    def run(self) -> LoadResult:
        """Carry out the load; return its result also if another driver that runs at the same time publishes it."""
        try:
            return self._run()
        except GitopsError:
            plan = self.load.plan
            published = find_published(plan, open_snapshot(plan.uri, ReadTarget(plan.branch)), [])
            if published is None:
                raise
            return self._counted(published)

    def _run(self) -> LoadResult:
        plan, snapshot = self.load.plan, self._snapshot
        require_same_schema(plan, snapshot)
        published = find_published(plan, snapshot, [])
        if published is None:
            mark_begun(plan, snapshot, self._context)
        self._written = self._write()
        if published is None:
            with hold_lease(snapshot, self._context) as renew, LoadIntake(snapshot, None) as intake:
                self._renew = self._every_so_often(renew)
                published = self._publish(intake)
        else:
            published = self._counted(published)
        end_lease(plan, snapshot)
        self._context.faults.reach("engine.bulk.after_publish")
        snapshot.folder.remove(f"{layout.BULK}/{plan.bulk}")
        return published

    def _counted(self, published: LoadResult) -> LoadResult:
        """Return the result of a load that was published before, with the rows of its parts."""
        rows = {key: sum(part["rows"] for part in parts) for key, parts in self._parts().items()}
        return LoadResult(published.manifest_version, rows, published.published)

    def _every_so_often(self, renew: Callable[[], None]) -> Callable[[], None]:
        last = self._context.now()

        def renewed() -> None:
            nonlocal last
            if self._context.now() - last > DEFAULT_TERM / 3:
                last = self._context.now()
                renew()

        return renewed

    # -- stages of tasks ------------------------------------------------------------------------------------------------

    def _answers(
        self, kind: str, forms: Sequence[Mapping[str, Any]], on_answer: Callable[[int, Mapping[str, Any]], None]
    ) -> list[dict[str, Any]]:
        """Return the answers to tasks, in their order. Recorded answers are read, and only the other tasks are submitted."""
        full = [{"uri": self.load.plan.uri, "bulk": self.load.plan.bulk, **form} for form in forms]
        keys = [task_key(kind, form) for form in full]
        there = set(self._snapshot.store.names(self.load.key("answers")))
        found: dict[str, dict[str, Any]] = {}
        waiting = {}
        try:
            for at, (key, form) in enumerate(zip(keys, full, strict=True)):
                if f"{key}.json" in there:
                    found[key] = _read_answer(self._snapshot, self.load, key)
                    on_answer(at, found[key])
                else:
                    waiting[self._executor.submit(kind, form)] = at
            while waiting:
                key, answer = self._executor.wait()
                if key in waiting:
                    found[key] = answer
                    on_answer(waiting.pop(key), answer)
                    self._context.faults.reach("engine.bulk.after_task")
                self._renew()
        except BaseException:
            for key in waiting:
                self._executor.cancel(key)
            raise
        return [found[key] for key in keys]

    def _write(self) -> list[dict[str, Any]]:
        """Run the first stage. Raises LoadError after discarding the load."""
        pieces = self.load.pieces
        weights = [weight for _, weight in _weighted(pieces)]
        rows = done = 0

        def on_answer(at: int, answer: Mapping[str, Any]) -> None:
            nonlocal rows, done
            rows, done = rows + answer["records"], done + weights[at]
            self._progress(StepProgress(READING, rows, done, sum(weights), "bytes"))

        forms = [{"piece": at, "records": 0} for at in range(len(pieces))]
        answers = self._answers("bulk.write", forms, on_answer)
        if any("problems" in answer for answer in answers):
            self._refuse(answers)
        self._problems = _PieceProblems(pieces, answers)
        return answers

    def _refuse(self, answers: Sequence[dict[str, Any]]) -> None:
        """Raise LoadError with the problems of the first stage.

        A message can contain a record's number, so pieces with problems are read a second time, now that the records
        before them are counted.
        """
        last = next((at for at, each in enumerate(answers) if each.get("cut")), len(answers) - 1)
        kept, before, again = answers[: last + 1], 0, []
        for at, answer in enumerate(kept):
            if "problems" in answer:
                again.append({"piece": at, "records": before})
            before += answer["records"]
        problems = _PieceProblems(self.load.pieces[: last + 1], kept)
        for answer in self._answers("bulk.write", again, lambda *_: None):
            _add_all(problems, answer["problems"], answer["total"])
        _discard(self.load, self._snapshot, [each for each in answers if "tables" in each])
        problems.settle()

    # -- checks ---------------------------------------------------------------------------------------------------------

    def _parts(self) -> dict[str, list[dict[str, Any]]]:
        """Return the parts of each loaded table in order, with the records and rows before each."""
        parts: dict[str, list[dict[str, Any]]] = {}
        rows: dict[str, int] = {}
        record = 0
        for answer in self._written:
            for key, table in sorted(answer["tables"].items()):
                parts.setdefault(key, []).append({"record": record, "row": rows.get(key, 0), **table})
                rows[key] = rows.get(key, 0) + table["rows"]
            record += answer["records"]
        return parts

    def check(self, snapshot: Snapshot) -> dict[str, TableCheck]:
        """Check the load against a version. Raises LoadError with the problems of the first step that has any."""
        parts, manifest = self._parts(), snapshot.manifest
        keys_of = {
            key: [{name: part[name] for name in ("record", "row", "keys")} for part in listed]
            for key, listed in parts.items()
        }
        needed = _needed(snapshot.schema().catalog, manifest, parts, self.load.mode)
        forms = [
            {"version": manifest.n, "table": key, "fragments": numbers, "collections": sorted(names)}
            for key, names in sorted(needed.items())
            for numbers in _fragment_groups(snapshot, key)
        ]
        tasks = _Counter(self._progress, sum(part["rows"] for listed in parts.values() for part in listed))
        scans: dict[str, list[Any]] = {}
        for form, answer in zip(forms, self._answers("bulk.scan", forms, tasks.of(len(forms))), strict=True):
            scans.setdefault(str(form["table"]), []).append(answer["keys"])
        inputs: dict[str, Any] = {"parts": keys_of, "scans": scans, "rows": {}}
        with_ids = [key for key, listed in parts.items() if any(_has(part, "id") for part in listed)]
        first = self._check_stage("ids", with_ids, manifest, inputs, tasks)
        for key, answers in first.items():
            inputs["rows"][key] = [each["rows"] for each in answers if each["rows"] is not None]
        rest = self._check_stage("rest", _joint_tables(snapshot, parts, self.load.mode), manifest, inputs, tasks)
        self._settle([*first.values(), *rest.values()])
        outcomes = {key: TableCheck() for key in parts}
        for key, indexes in inputs["rows"].items():
            for index in indexes:
                replaced, superseded, rows = read_rows(snapshot.store, index)
                outcomes[key].replaced.add(replaced)
                outcomes[key].superseded.add(superseded)
                outcomes[key].superseded_rows.add(rows)
        return outcomes

    def _check_stage(
        self, stage: str, tables: Sequence[str], manifest: Manifest, inputs: Mapping[str, Any], tasks: _Counter
    ) -> dict[str, list[dict[str, Any]]]:
        name = write_inputs(self._snapshot.store, self.load, inputs)
        forms = [
            {"version": manifest.n, "stage": stage, "table": key, "bucket": bucket, "inputs": name}
            for key in tables
            for bucket in _used_buckets(key, inputs)
        ]
        found: dict[str, list[dict[str, Any]]] = {key: [] for key in tables}
        for form, answer in zip(forms, self._answers("bulk.check", forms, tasks.of(len(forms))), strict=True):
            found[str(form["table"])].append(answer)
        return found

    def _settle(self, answers: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Raise LoadError with the problems of the first step that has any, in the order of a load in one process."""
        flat = [answer for listed in answers for answer in listed]
        for step in range(_STEPS):
            found = [problem for answer in flat for problem in answer["problems"] if problem[0] == step]
            # A problem is: step, rank, record, code, message, fix, clash.
            found.sort(key=lambda problem: (problem[2], "" if problem[2] else problem[4], problem[1]))
            _add_all(self._problems, [problem[2:] for problem in found], sum(answer["totals"][step] for answer in flat))
            try:
                self._problems.settle()
            except LoadError as error:
                error.joint = True
                raise

    # -- publishing -----------------------------------------------------------------------------------------------------

    def _publish(self, intake: LoadIntake) -> LoadResult:
        for key, parts in self._parts().items():
            table = intake.open_table(key)
            for part in parts:
                table.rows += part["rows"]
                table.staged += [StagedFragment.from_json(text) for text in part["fragments"]]
        if not intake.tables:
            return LoadResult(self._snapshot.manifest.n, {})
        plan = self.load.plan
        request = LoadRequest(plan.uri, io.BytesIO(), self.load.mode, plan.branch, progress=self._progress)
        context = replace(self._context, ids=CommitId(plan.bulk))
        publisher = _Publisher(context, request, self._snapshot, intake)
        publisher.driver = self
        try:
            publisher.check(self._snapshot)
            return retry_until_published(publisher.attempt, sleep_jittered)
        except GitopsError as error:
            if error.code in (Code.GRAPH_DATA_INVALID, Code.KEY_CONFLICT) and not publisher.begun:
                _discard(self.load, self._snapshot, self._written)
            raise


class _Publisher(LoadPublisher):
    """Publishes what the workers wrote, after the checks of the driver."""

    driver: _Driver

    def joint_checks(self, snapshot: Snapshot) -> dict[str, TableCheck]:
        """Check the load by tasks. Raises GitopsError `graph_conflict` if another driver has published it."""
        plan = self.driver.load.plan
        if find_published(plan, snapshot, []) is not None:
            detail = f"another process has published the load {plan.bulk}"
            raise GitopsError(Code.GRAPH_CONFLICT, detail, path=plan.uri)
        return self.driver.check(snapshot)


@dataclass(slots=True)
class _Counter:
    """Reports how many tasks of the checks are done."""

    progress: Watcher
    rows: int
    done: int = 0
    total: int = 0

    def of(self, tasks: int) -> Callable[[int, Mapping[str, Any]], None]:
        """Add tasks; return what to call with each answer."""
        self.total += tasks

        def on_answer(at: int, answer: Mapping[str, Any]) -> None:
            del at, answer
            self.done += 1
            self.progress(StepProgress(CHECKING, self.rows, self.done, self.total, "tasks"))

        return on_answer


def _has(part: Mapping[str, Any], collection: str) -> bool:
    return part["keys"] is not None and collection in part["keys"]["at"]


def _needed(catalog: Catalog, manifest: Manifest, parts: Mapping[str, Any], mode: LoadMode) -> dict[str, set[str]]:
    """Return the collections of keys of committed tables that a load is compared with."""
    needed: dict[str, set[str]] = {}
    replaces = mode is LoadMode.OVERWRITE
    for key, listed in parts.items():
        kind, _, name = key.partition(":")
        declared = catalog.nodes[name] if kind == "node" else catalog.edges[name]
        if not replaces:
            mine = needed.setdefault(key, set())
            mine |= {"id"} if any(_has(part, "id") for part in listed) else set()
            mine |= {f"unique:{at}" for at in range(len(declared.unique))}
            mine |= {"src"} if isinstance(declared, EdgeType) and declared.cardinality != (0, None) else set()
        if isinstance(declared, EdgeType):
            for owner in (f"node:{declared.source}", f"node:{declared.target}"):
                if not (replaces and owner in parts):
                    needed.setdefault(owner, set()).add("id")
    if replaces:
        for edge in catalog.edges.values():
            lost = {
                column for column, owner in (("src", edge.source), ("dst", edge.target)) if f"node:{owner}" in parts
            }
            if f"edge:{edge.name}" not in parts and lost:
                needed.setdefault(f"edge:{edge.name}", set()).update(lost)
    return {key: names for key, names in needed.items() if names and manifest.tables[key].rows}


def _joint_tables(snapshot: Snapshot, parts: Mapping[str, Any], mode: LoadMode) -> list[str]:
    """Return the tables whose unique groups, edge ends or numbers of edges a load may break."""
    catalog = snapshot.schema().catalog
    found = [key for key in parts if key.startswith("edge:") or catalog.nodes[key.partition(":")[2]].unique]
    if mode is LoadMode.OVERWRITE:
        for edge in catalog.edges.values():
            key = f"edge:{edge.name}"
            ends = {f"node:{edge.source}", f"node:{edge.target}"}
            if key not in parts and ends & parts.keys() and snapshot.manifest.tables[key].rows:
                found.append(key)
    return found


def _fragment_groups(snapshot: Snapshot, key: str) -> list[list[int]]:
    """Return the fragments of a committed table in groups of about four million rows."""
    groups: list[list[int]] = []
    held = _SCAN_ROWS
    for fragment in open_table(snapshot.folder, snapshot.manifest.tables[key]).get_fragments():
        if held >= _SCAN_ROWS:
            groups.append([])
            held = 0
        groups[-1].append(fragment.fragment_id)
        held += fragment.physical_rows
    return groups


def _used_buckets(key: str, inputs: Mapping[str, Any]) -> list[int]:
    """Return the buckets in which a table has loaded or committed keys."""
    indexes = [part["keys"] for part in inputs["parts"].get(key, ())] + inputs["scans"].get(key, [])
    used: set[int] = set()
    for index in filter(None, indexes):
        for offsets in index["at"].values():
            used |= {bucket for bucket, (start, end) in enumerate(itertools.pairwise(offsets)) if end > start}
    return sorted(used)


def _add_all(problems: RecordProblems, listed: Sequence[Sequence[Any]], total: int) -> None:
    """Add the first problems of workers, and count the others."""
    before = problems.total
    for record, code, message, fix, clash in listed[:100]:
        problems.add(record, message, Code(code), None if clash is None else (clash[0], clash[1]), fix=fix)
    problems.total = before + total
