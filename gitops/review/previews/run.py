"""Runs a preview: workers try each graph and then each of its queries, and their answers are collected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import Form
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import GitopsError
from gitops.review.previews import order as orders
from gitops.review.previews.choose import ChosenGraph, ChosenQuery, LiveVersion
from gitops.review.previews.order import Ask, AuditOrder, GraphOrder, Job, QueryOrder, ShownRow, Task
from gitops.review.previews.record import AuditRun, GraphPreview, Parameters, QueryRun
from gitops.review.tests.bind import BoundAudit

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShownResult:
    """Rows of a query that the rules permit to show, only in a comment and on the job page."""

    graph: str
    query: str
    rows: tuple[ShownRow, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """The findings of a preview for each graph, and the rows that may be shown."""

    graphs: tuple[GraphPreview, ...]
    shown: tuple[ShownResult, ...]


def scratch_roots(place: str, graph: str) -> tuple[str, str]:
    """Return the roots of the copies of a graph before and after, below the folder of a preview."""
    return f"{place}/{graph}.before.omni", f"{place}/{graph}.after.omni"


def try_graphs(graphs: tuple[ChosenGraph, ...], place: str, ask: Ask, clock: Clock, budget_s: float) -> Tried:
    """Try all graphs within `budget_s` seconds. `place` is the scratch folder of this preview.

    A part that a limit ended has the code `preview_limit`, and a part whose worker failed `preview_unavailable`.
    """
    now = timestamp(clock.now())
    readable = [graph for graph in graphs if graph.live is not None]
    # One worker tries a graph and then its queries, because most of the time of a worker is its start.
    batches = [
        [
            _graph_job(graph, place),
            *(_query_job(graph, query, place, now) for query in graph.queries),
            *(_audit_job(graph, audit, place, now) for audit in graph.audits),
        ]
        for graph in readable
    ]
    answers = ask(batches, budget_s) if batches else ()
    found = {graph.graph: _collected(graph, each) for graph, each in zip(readable, answers, strict=True)}
    tried = [found.get(graph.graph) or (_unread(graph), ()) for graph in graphs]
    return Tried(tuple(preview for preview, _ in tried), tuple(each for _, shown in tried for each in shown))


def copy_graphs(graphs: Sequence[ChosenGraph], place: str, ask: Ask, budget_s: float) -> tuple[GraphPreview, ...]:
    """Make and migrate the copies of graphs like `try_graphs`, without running a query.

    A graph whose copy could not be made or migrated has a code, or no migration although its schema changes.
    """
    readable = [graph for graph in graphs if graph.live is not None]
    answers = ask([[_graph_job(graph, place)] for graph in readable], budget_s) if readable else ()
    found: dict[str, GraphPreview] = {}
    for graph, (answer,) in zip(readable, answers, strict=True):
        read = _read(answer, orders.GRAPH_ANSWER)
        found[graph.graph] = _of_graph(graph, read)
    return tuple(found.get(graph.graph) or _unread(graph) for graph in graphs)


def _collected(graph: ChosenGraph, answers: Sequence[Any]) -> tuple[GraphPreview, tuple[ShownResult, ...]]:
    """Return the preview of a graph and the rows that may be shown, from the answers to its jobs."""
    first = _read(answers[0], orders.GRAPH_ANSWER)
    preview = _of_graph(graph, first)
    # Without a migrated copy, there is nothing to compare.
    if preview.code is not None or (graph.schema is not None and preview.migration is None):
        return preview, ()
    runs: list[QueryRun] = []
    shown: list[ShownResult] = []
    for query, answer in zip(graph.queries, answers[1 : 1 + len(graph.queries)], strict=True):
        found = _read(answer, orders.QUERY_ANSWER)
        if isinstance(found, GitopsError):
            runs.append(QueryRun(query.name, Parameters.NONE, code=found.code.value))
            continue
        runs.append(replace(found.run, query=query.name))
        if found.shown and query.rows is not None:
            shown.append(ShownResult(graph.graph, query.name, found.shown[: query.rows.limit]))
    audits = []
    for audit, answer in zip(graph.audits, answers[1 + len(graph.queries) :], strict=True):
        judged = _read(answer, orders.AUDIT_ANSWER)
        ok = not isinstance(judged, GitopsError) and judged.ok
        audits.append(AuditRun(audit.id, ok, audit.severity.value))
    return replace(preview, queries=tuple(runs), audits=tuple(audits)), tuple(shown)


def _read(answer: Any, form: Form[T]) -> T | GitopsError:
    """Read the answer to a job strictly."""
    try:
        return answer if isinstance(answer, GitopsError) else form.read(answer)
    except MalformedError as problem:
        return GitopsError(Code.PREVIEW_UNAVAILABLE, f"the worker's answer is malformed: {problem.path}")


def _unread(graph: ChosenGraph) -> GraphPreview:
    version = 0 if graph.live is None else graph.live.version
    return GraphPreview(
        graph.graph, version, left_out=graph.left_out, code=graph.code or Code.PREVIEW_UNAVAILABLE.value
    )


def _graph_job(graph: ChosenGraph, place: str) -> Job:
    live, (before, after) = graph.live or LiveVersion(0, ""), scratch_roots(place, graph.graph)
    order = GraphOrder(graph.graph, graph.uri, live.version, live.commit, before, after, graph.schema)
    return Job(Task.GRAPH, orders.GRAPH_ORDER.write(order))


def _of_graph(graph: ChosenGraph, answer: GraphPreview | GitopsError) -> GraphPreview:
    if isinstance(answer, GitopsError):
        return replace(_unread(graph), code=answer.code.value)
    # The worker ran what the change request contains, so only what it was asked about counts.
    version = 0 if graph.live is None else graph.live.version
    return replace(answer, graph=graph.graph, manifest=version, queries=(), audits=(), left_out=graph.left_out)


def _audit_job(graph: ChosenGraph, audit: BoundAudit, place: str, now: str) -> Job:
    before, after = scratch_roots(place, graph.graph)
    order = AuditOrder(before if graph.schema is None else after, audit.job, now)
    return Job(Task.AUDIT, orders.AUDIT_ORDER.write(order))


def _query_job(graph: ChosenGraph, query: ChosenQuery, place: str, now: str) -> Job:
    before, after = scratch_roots(place, graph.graph)
    order = QueryOrder(
        query=query.name,
        before=before,
        after=before if graph.schema is None else after,
        recorded=query.recorded,
        declared=query.declared,
        steps=graph.steps,
        samples=query.samples,
        now=now,
        rows=query.rows,
    )
    return Job(Task.QUERY, orders.QUERY_ORDER.write(order))
