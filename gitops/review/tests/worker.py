"""Runs inside an isolated worker: creates the graph of a fixture, runs queries on it and judges their results.

A read uses the graph's only version. A mutation gets a branch, so the fixture stays as it is. Nothing here depends on the
clock or on chance: `now()` is the time in the test file, and ids count up.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gitops.core.clock import encode_ulids, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database import graph as database
from gitops.database.language.query import check_query, parse_queries
from gitops.review.tests.compare import MAX_SHOWN, cell_is, compare_rows, count_is, shown_cell

QUERY_S = 5.0
QUERY_BYTES = 256 * 1024 * 1024
MAX_RESULT = 10_000
_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
# A run that ends with one of these has no result that could be judged.
_UNJUDGED = frozenset(
    {
        Code.QUERY_TIMEOUT,
        Code.QUERY_MEMORY_EXCEEDED,
        Code.RESOURCE_LIMIT,
        Code.QUERY_FAILED,
        Code.STORAGE_FAILED,
        Code.GRAPH_UNREADABLE,
        Code.ENGINE_UNAVAILABLE,
    }
)

Form = dict[str, Any]


class _Still:
    """A clock that stands still."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment

    def monotonic(self) -> float:
        return 0.0


class _Counting:
    """Ids that count up."""

    def __init__(self) -> None:
        self._next = 0

    def ulid(self) -> str:
        return self.ulids(1)[0]

    def ulids(self, count: int) -> list[str]:
        first, self._next = self._next, self._next + count
        return encode_ulids(0, first, count)


def open_worker(folder: Path) -> Callable[[Form], Form]:
    """Return the function that answers the jobs of a worker."""
    world = _World(folder)
    # Load the driver now, before the worker's memory is limited.
    database.LanceEngine(_Still(_ORIGIN), _Counting())
    return world.answer


class _World:
    """The graph of the newest setup, which is the only one that is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digest = ""
        self._current: _Graph | None = None
        self._problem: Form | None = None

    def answer(self, job: Form) -> Form:
        """Make the graph of a setup, or judge a test."""
        if "setup" in job:
            return self._set_up(job["setup"], str(job["digest"]))
        if self._current is None:
            return {"verdict": "error", **(self._problem or {"code": Code.INTERNAL_ERROR, "message": "no setup"})}
        return self._current.judge(job)

    def _set_up(self, setup: Form, digest: str) -> Form:
        if digest == self._digest:
            return {}
        shutil.rmtree(self._folder / self._digest, ignore_errors=True)
        self._digest, self._current, self._problem = digest, None, None
        try:
            self._current = _Graph(self._folder / digest, setup)
        except GitopsError as error:
            self._problem = _fixture_problem(error)
        return {}


def _fixture_problem(error: GitopsError) -> Form:
    """Return the reason why a fixture cannot be loaded, with the number of the record, if it is about one."""
    records = []
    if isinstance(error, database.LoadError):
        records = [each.source.line for each in error.problems if each.source is not None and each.source.line]
    return {"code": Code.TEST_FIXTURE_INVALID, "message": error.detail, "record": records[0] if records else None}


class _Graph:
    """A graph with the records of one fixture."""

    def __init__(self, root: Path, setup: Form) -> None:
        self._uri = str(root)
        self._ids = _Counting()
        context = database.WriteContext(_Still(_ORIGIN), self._ids)
        self._embedder = database.HashEmbedder()
        engine = database.LanceEngine(context.clock, self._ids)
        engine.prepare_create(self._uri, setup["schema"].encode(), actor=None).publish()
        if setup["records"]:
            records = io.BytesIO("\n".join(setup["records"]).encode())
            request = database.LoadRequest(self._uri, records, database.LoadMode.APPEND, embedder=self._embedder)
            database.load_records(request, context)
        self._snapshot = database.open_snapshot(self._uri)
        self._catalog = self._snapshot.schema().catalog
        self._cache = database.ReadCache()
        self._branches = 0

    def judge(self, job: Form) -> Form:
        """Run a query and compare its result."""
        try:
            return self._mutation(job) if job["mutates"] else self._read(job)
        except GitopsError as error:
            return _ended(job["expect"], error.code, error.detail)

    def _read(self, job: Form) -> Form:
        options = database.QueryOptions(
            now=_moment(job["now"]), timeout_s=QUERY_S, memory_bytes=QUERY_BYTES, embedder=self._embedder
        )
        return judge_read(self._snapshot, job, options, self._cache)

    def _mutation(self, job: Form) -> Form:
        self._branches += 1
        branch, moment = f"t{self._branches}", _moment(job["now"])
        context = database.WriteContext(_Still(moment), self._ids)
        database.create_branch(self._uri, branch, context)
        target = database.ReadTarget(branch)
        before = database.open_snapshot(self._uri, target).manifest.n
        (parsed,) = parse_queries(job["query"].encode())
        query = check_query(parsed, self._catalog)
        options = database.MutationOptions(now=moment, branch=branch, embedder=self._embedder)
        try:
            done = database.Mutator(context.clock, self._ids).run(self._uri, query, job["params"], options)
            found = judge_affected(job["expect"], {"nodes": done.affected_nodes, "edges": done.affected_edges})
        except GitopsError as error:
            found = _ended(job["expect"], error.code, error.detail)
            if database.open_snapshot(self._uri, target).manifest.n != before:
                message = "the mutation failed, but changed the graph"
                return {"verdict": "failed", "code": Code.TEST_FAILED, "message": message}
        if found["verdict"] == "passed" and job["state"]:
            return self._state(job, database.open_snapshot(self._uri, target))
        return found

    def _state(self, job: Form, snapshot: Any) -> Form:
        """Compare what the branch contains."""
        for state in job["state"]:
            key = f"{'edge' if state['edge'] else 'node'}:{state['type']}"
            rows = [_row_of(json.loads(line)) for line in database.export_records(snapshot, [key])]
            problem = judge_state(state, rows)
            if problem is not None:
                return problem
        return {"verdict": "passed"}


def judge_read(snapshot: Any, job: Form, options: Any, cache: Any = None) -> Form:
    """Run the read of a test or an audit on a `Snapshot`, and judge its result. `options` are its `QueryOptions`.

    Raises GitopsError if the query cannot be run; a test may expect that.
    """
    (parsed,) = parse_queries(job["query"].encode())
    query = check_query(parsed, snapshot.schema().catalog)
    result = database.run_query(snapshot, query, job["params"], options, cache)
    if result.table.num_rows > MAX_RESULT:
        message = f"the result has {result.table.num_rows} rows; at most {MAX_RESULT} are compared"
        return {"verdict": "error", "code": Code.RESOURCE_LIMIT, "message": message}
    return judge_rows(job["expect"], result.rows(), actual=job.get("actual", False))


def judge_rows(expect: Form, rows: list[Form], *, actual: bool = False) -> Form:
    """Compare the rows of a read with an expectation. With `actual`, a failure contains all rows."""
    form, value = expect["form"], expect["value"]
    if form == "error":
        return _failed(f"expected the error {value}, got {len(rows)} {_rows(len(rows))}", rows if actual else None)
    if form == "count":
        if count_is(value, len(rows)):
            return {"verdict": "passed"}
        return _failed(f"expected {_bounds(value)}, got {len(rows)}", rows if actual else None)
    difference = compare_rows(form, value, rows, expect["tolerance"])
    if difference is None:
        return {"verdict": "passed"}
    counts = difference.pop("counts")
    named = zip(counts, ("missing", "unexpected", "changed"), strict=True)
    message = ", ".join(f"{number} {_rows(number)} {what}" for number, what in named if number)
    return {**_failed(message, rows if actual else None), "diff": difference}


def judge_affected(expect: Form, affected: Mapping[str, int]) -> Form:
    """Compare the effect of a mutation with an expectation."""
    if expect["form"] == "error":
        return _failed(f"expected the error {expect['value']}, but the mutation succeeded", dict(affected))
    wrong = [
        f"{name}: {number} -> {affected[name]}" for name, number in expect["value"].items() if affected[name] != number
    ]
    return _failed(f"affected {', '.join(wrong)}", dict(affected)) if wrong else {"verdict": "passed"}


def judge_state(state: Form, rows: list[Form]) -> Form | None:
    """Compare a type's rows with the expected state. Returns None if they are as expected."""
    if state["count"] is not None and len(rows) != state["count"]:
        return _failed(f"{state['type']}: expected {state['count']} {_rows(state['count'])}, got {len(rows)}")
    missing = compare_rows("contains", state["has"], rows)
    if missing is not None:
        missing.pop("counts")
        return {**_failed(f"{state['type']}: a row is missing or different"), "diff": missing}
    for want in state["lacks"]:
        found = [row for row in rows if all(cell_is(cell, row.get(name)) for name, cell in want.items())]
        if found:
            shown = {name: shown_cell(cell) for name, cell in want.items()}
            diff = {"missing": [], "unexpected": found[:MAX_SHOWN], "changed": []}
            return {**_failed(f"{state['type']}: the row {json.dumps(shown)} exists"), "diff": diff}
    return None


def _row_of(record: Form) -> Form:
    return {**{end: record[end] for end in ("from", "to") if end in record}, **record.get("data", {})}


def _ended(expect: Form, code: Code, detail: str) -> Form:
    """Judge a run that ended with an error."""
    if expect["form"] == "error" and expect["value"] == code:
        return {"verdict": "passed"}
    if code in _UNJUDGED:
        return {"verdict": "error", "code": code, "message": detail}
    return _failed(f"ended with {code}: {detail}", code.value)


def _failed(message: str, actual: Any = None) -> Form:
    found: Form = {"verdict": "failed", "code": Code.TEST_FAILED, "message": message}
    return found if actual is None else {**found, "actual": actual}


def _rows(number: int) -> str:
    return "row" if number == 1 else "rows"


def _bounds(value: Mapping[str, int]) -> str:
    low, high = value.get("min"), value.get("max")
    if low == high:
        return f"{low} {_rows(low or 0)}"
    return " and ".join(
        f"at {'least' if name == 'min' else 'most'} {value[name]} {_rows(value[name])}" for name in value
    )


def _moment(text: str) -> datetime:
    found = parse_timestamp(text)
    return _ORIGIN if found is None else found
