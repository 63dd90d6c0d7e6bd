"""Orders for workers about copies of one graph, and the workers' answers. Both are plain JSON.

The worker that carries out an order sees nothing but the order, the graphs' storage and the scratch folder. Its answer is
read strictly and is data that a change request can influence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import (
    BOOLEAN,
    LINE,
    OBJECT,
    TEXT,
    TIME,
    ULID,
    Form,
    integer,
    list_of,
    nullable,
    one_of,
    record,
)
from gitops.review.previews.record import GRAPH_PREVIEW, QUERY_RUN, GraphPreview, QueryRun

QUERY_SECONDS = 5
QUERY_BYTES = 512 * 1024 * 1024
COMPARED_ROWS = 10_000
MIGRATION_SECONDS = 60
WRITTEN_BYTES = 1024 * 1024 * 1024
COPY_BYTES = 256 * 1024 * 1024
MOST_SETS = 8
MOST_QUERIES = 20
MOST_SHOWN = 100
"""Maximum number of rows of one query that `preview.rows` can show."""


class Task(StrEnum):
    """A worker's task: make and migrate the copies of a graph, or run a query or an audit on them."""

    GRAPH = "preview_graph"
    QUERY = "preview_query"
    AUDIT = "preview_audit"


class Job(NamedTuple):
    """A task with its order as JSON."""

    task: Task
    form: Mapping[str, Any]


Ask = Callable[[Sequence[Sequence[Job]], float], "Sequence[Sequence[Any]]"]
"""Has isolated workers carry out batches of jobs within so many seconds, each batch by one worker, in order.

Returns, for each job, the JSON value that its worker answered, or a GitopsError: `preview_limit` if the worker was
stopped at its deadline or its answer was too large, `preview_unavailable` if it ended or answered something else than
JSON.
"""


@dataclass(frozen=True, slots=True)
class GraphOrder:
    """Copy version `version` of the graph at `uri` to `before` and, with a `schema`, to `after`, and migrate that copy.

    The version must be the commit `commit`. A copy that exists already is used.
    """

    graph: str
    uri: str
    version: int
    commit: str
    before: str
    after: str
    schema: str | None


@dataclass(frozen=True, slots=True)
class AllowedRows:
    """Rows of a query that may be shown: these columns of at most `limit` rows."""

    columns: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """Run the recorded text of a query on one copy and its declared text on the other, and compare the results.

    A missing text is not run. `steps` are the steps of the migration, `now` is the value of `now()`. Without `samples`,
    the parameters of a read are derived from live values, and a mutation is not run.
    """

    query: str
    before: str
    after: str
    recorded: str | None
    declared: str | None
    steps: tuple[Mapping[str, Any], ...]
    samples: tuple[Mapping[str, Any], ...]
    now: str
    rows: AllowedRows | None = None


@dataclass(frozen=True, slots=True)
class AuditOrder:
    """Run an audit's declared query on a copy, and judge its result. `job` comes from `gitops.review.tests.bind`."""

    root: str
    job: Mapping[str, Any]
    now: str


@dataclass(frozen=True, slots=True)
class AuditAnswer:
    """Whether the result of an audit was as expected. `code` says why it could not be judged."""

    ok: bool
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row that `preview.rows` allows to show, with the texts of its cells. It is never stored."""

    kind: str
    cells: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QueryTrialAnswer:
    """The result of a query order. `shown` has rows only if the order allows it."""

    run: QueryRun
    shown: tuple[ShownRow, ...] = ()


def _cells(value: Any) -> dict[str, str]:
    cells = dict(OBJECT.read(value))
    return {LINE.read(name): TEXT.read(cell) for name, cell in cells.items()}


GRAPH_ORDER: Form[GraphOrder] = record(
    GraphOrder,
    {
        "graph": LINE,
        "uri": LINE,
        "version": integer(1),
        "commit": ULID,
        "before": LINE,
        "after": LINE,
        "schema": nullable(TEXT),
    },
)
QUERY_ORDER: Form[QueryOrder] = record(
    QueryOrder,
    {
        "query": LINE,
        "before": LINE,
        "after": LINE,
        "recorded": nullable(TEXT),
        "declared": nullable(TEXT),
        "steps": list_of(OBJECT),
        "samples": list_of(OBJECT),
        "now": TIME,
        "rows": nullable(record(AllowedRows, {"columns": list_of(LINE), "limit": integer(0, MOST_SHOWN)})),
    },
)
AUDIT_ORDER: Form[AuditOrder] = record(AuditOrder, {"root": LINE, "job": OBJECT, "now": TIME})
AUDIT_ANSWER: Form[AuditAnswer] = record(AuditAnswer, {"ok": BOOLEAN, "code": nullable(LINE)})
GRAPH_ANSWER: Form[GraphPreview] = GRAPH_PREVIEW
QUERY_ANSWER: Form[QueryTrialAnswer] = record(
    QueryTrialAnswer,
    {
        "run": QUERY_RUN,
        "shown": list_of(
            record(ShownRow, {"kind": one_of("added", "removed", "changed"), "cells": Form(_cells, dict)})
        ),
    },
)
