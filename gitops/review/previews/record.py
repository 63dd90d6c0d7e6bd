"""The result of a preview: the effects of a plan's changes on each graph's data. It never contains row values."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from enum import StrEnum

from gitops.cluster.approvals.documents import SEEN_CALLERS
from gitops.cluster.model.address import graph_address, query_address, schema_address
from gitops.cluster.model.use import SeenCallers
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    DIGEST,
    LINE,
    LINE_OR_EMPTY,
    OBJECT_ID,
    TIME,
    Form,
    Members,
    enum,
    integer,
    list_of,
    nullable,
    one_of,
    optional,
    record,
)

FORM_VERSION = 2
"""The version of previews. A newer version gives other results for the same change, so it has other keys."""

ANSWER_BYTES = 4 * 1024 * 1024
"""The largest answer of a worker that is read, and the largest record."""


class FindingKind(StrEnum):
    """A kind of finding that can fail the status of a preview, as in `preview.block`."""

    ERRORS = "errors"
    AUDITS = "audits"
    VIOLATIONS = "violations"
    SLOWER = "slower"


class PreviewVerdict(StrEnum):
    """GOOD means no findings. FINDINGS do not fail the status, and BLOCKED does. UNAVAILABLE: a part could not run."""

    GOOD = "good"
    FINDINGS = "findings"
    BLOCKED = "blocked"
    UNAVAILABLE = "unavailable"


class Counts(StrEnum):
    """Whether a record has exact counts, or rounds them down to 0, 1, 10, 100 and so on."""

    EXACT = "exact"
    COARSE = "coarse"


class Parameters(StrEnum):
    """Where the parameters of a query's runs come from."""

    NONE = "none"
    SAMPLES = "samples"
    DERIVED = "derived"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class StepRows:
    """A migration step and the rows that it affects, or None for a step that is not about rows."""

    kind: str
    rows: int | None


@dataclass(frozen=True, slots=True)
class MigrationRun:
    """A migration of the copy: its time, the bytes that it wrote, and the tables that it wrote again.

    The last two are None for a migration on a branch, where they are not known.
    """

    ms: int
    bytes: int | None
    rewritten: int | None
    steps: tuple[StepRows, ...]


@dataclass(frozen=True, slots=True)
class DataCheck:
    """A rule of the desired schema, and the live rows that break it. `of` are all rows of the type.

    `runs` means that an apply with these rows carries out the step. `lost` values become null.
    """

    subject: str
    rule: str
    rows: int
    of: int
    runs: bool
    lost: int = 0


@dataclass(frozen=True, slots=True)
class ResultChanges:
    """The rows of all runs of a query, before and after, paired by identity."""

    before: int = 0
    after: int = 0
    added: int = 0
    removed: int = 0
    changed: int = 0

    def __add__(self, other: ResultChanges) -> ResultChanges:
        return ResultChanges(
            self.before + other.before,
            self.after + other.after,
            self.added + other.added,
            self.removed + other.removed,
            self.changed + other.changed,
        )


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """The result columns that a query loses or gains, or that get another type."""

    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()
    retyped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableEffect:
    """The rows of a table that a mutation adds, removes and changes, on the copies before and after the change."""

    table: str
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class QueryRun:
    """A stored query on both copies. `sets` is the number of parameter sets, and `touched` and `ms` are before and after.

    `affected` are the nodes and edges that a mutation affects, before and after, and `effects` the tables that then have
    other changes. `code` is the code of the first run that failed, None if all succeeded. `limited` means that the query's
    own limit cut a result.
    """

    query: str
    params: Parameters
    sets: int = 0
    rows: ResultChanges = ResultChanges()
    columns: ColumnChanges = ColumnChanges()
    touched: tuple[int, ...] = (0, 0)
    ms: tuple[int, ...] = (0, 0)
    limited: bool = False
    slower: bool = False
    affected: tuple[int, ...] = ()
    code: str | None = None
    effects: tuple[TableEffect, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the results differ."""
        rows = self.rows
        half = len(self.affected) // 2
        moved = self.affected[:half] != self.affected[half:] or bool(self.effects)
        return bool(rows.added or rows.removed or rows.changed or moved) or self.columns != ColumnChanges()


@dataclass(frozen=True, slots=True)
class AuditRun:
    """An audit on the graph after the change."""

    id: str
    ok: bool
    severity: str = "error"


@dataclass(frozen=True, slots=True)
class GraphPreview:
    """The preview of one graph at the version `manifest`. `migration` is None without a schema change, or if refused.

    `broken` is the number of rows that break a rule of the schema after the migration. `code` says why the graph could
    not be previewed. `left_out` queries were not run, because there are more than a preview runs.
    """

    graph: str
    manifest: int
    migration: MigrationRun | None = None
    checks: tuple[DataCheck, ...] = ()
    queries: tuple[QueryRun, ...] = ()
    audits: tuple[AuditRun, ...] = ()
    broken: int = 0
    left_out: int = 0
    code: str | None = None


@dataclass(frozen=True, slots=True)
class PreviewRecord:
    """A preview of a change request's head, or of local files (`request` and `head` are None then).

    `key` covers everything that the result depends on, and `at` is the time of the run. `closed_at` is when the bot saw
    that the request was closed or merged, None while it is open. `callers` are the recorded clients that its changes break,
    if the run could read the records.
    """

    key: str
    cluster: str
    request: int | None
    head: str | None
    plan_digest: str | None
    at: str
    verdict: PreviewVerdict
    counts: Counts
    graphs: tuple[GraphPreview, ...]
    closed_at: str | None = None
    callers: tuple[SeenCallers, ...] = ()


_NOT_JUDGED = (Code.PREVIEW_LIMIT, Code.PREVIEW_UNAVAILABLE)
"""The codes of runs of which nothing is known, so that they are neither good nor bad."""


# -- findings ----------------------------------------------------------------------------------------------------------


def findings(
    graphs: Collection[GraphPreview], block: Collection[str] = ()
) -> Iterator[tuple[FindingKind | None, Diagnostic]]:
    """Yield the findings of a preview, each with its kind for `preview.block`, or None if a part could not run.

    What is in `block` is an error, and everything else a warning.
    """
    for graph in graphs:
        for kind, code, path, detail in _found(graph):
            fails = kind is not None and kind.value in block
            found = Diagnostics()
            found.add(code, path, detail, severity=Severity.ERROR if fails else Severity.WARNING)
            yield from ((kind, each) for each in found)


def _found(graph: GraphPreview) -> Iterator[tuple[FindingKind | None, Code, str, str]]:
    place, schema, after = graph_address(graph.graph), schema_address(graph.graph), "after the change"
    if graph.code is not None:
        yield None, Code.PREVIEW_UNAVAILABLE, place, f"the graph is not previewed: {graph.code}"
        return
    for check in graph.checks:
        if check.rows and not check.runs:
            detail = f"{check.subject} ({check.rule}): {check.rows:,} of {check.of:,} rows break it"
            yield FindingKind.VIOLATIONS, Code.PREVIEW_VIOLATION, schema, detail
    if graph.broken:
        yield FindingKind.ERRORS, Code.PREVIEW_VIOLATION, schema, f"{graph.broken:,} rows break a rule {after}"
    for run in graph.queries:
        address = query_address(graph.graph, run.query)
        if run.code in _NOT_JUDGED:
            detail = "a limit ended it" if run.code == Code.PREVIEW_LIMIT else "its worker failed"
            yield None, Code(run.code), address, detail
        elif run.code is not None:
            yield FindingKind.ERRORS, Code.PREVIEW_QUERY_FAILED, address, f"it fails {after}: {run.code}"
        if run.slower:
            (was, now), (before, later) = run.touched, run.ms
            detail = f"it touches {now:,} rows instead of {was:,}, and needs {later} ms instead of {before} ms"
            yield FindingKind.SLOWER, Code.PREVIEW_SLOWER, address, detail
    for audit in graph.audits:
        if not audit.ok:
            kind = FindingKind.AUDITS if audit.severity == Severity.ERROR.value else None
            yield kind, Code.PREVIEW_AUDIT_FAILED, place, f"audit {audit.id} fails {after}"


def verdict(graphs: Collection[GraphPreview], block: Collection[str]) -> PreviewVerdict:
    """Return the verdict, given the kinds of findings that fail the status."""
    found = list(findings(graphs, block))
    if any(each.severity is Severity.ERROR for _, each in found):
        return PreviewVerdict.BLOCKED
    codes = [graph.code for graph in graphs if graph.code is not None]
    codes += [run.code for graph in graphs for run in graph.queries if run.code in _NOT_JUDGED]
    if codes:
        return PreviewVerdict.UNAVAILABLE
    differs = any(run.differs for graph in graphs for run in graph.queries)
    return PreviewVerdict.FINDINGS if found or differs else PreviewVerdict.GOOD


# -- coarse counts -----------------------------------------------------------------------------------------------------


def coarse(rows: int) -> int:
    """Return the largest of 0, 1, 10, 100, … that is not above a count, so that a count gives away its size only."""
    return 0 if rows <= 0 else 10 ** (len(str(rows)) - 1)


def in_coarse_counts(graph: GraphPreview) -> GraphPreview:
    """Return the preview with coarse counts of rows everywhere."""

    def rows(found: ResultChanges) -> ResultChanges:
        return ResultChanges(*map(coarse, (found.before, found.after, found.added, found.removed, found.changed)))

    steps = () if graph.migration is None else graph.migration.steps
    coarse_steps = tuple(replace(each, rows=None if each.rows is None else coarse(each.rows)) for each in steps)
    return replace(
        graph,
        migration=None if graph.migration is None else replace(graph.migration, steps=coarse_steps),
        checks=tuple(
            replace(each, rows=coarse(each.rows), of=coarse(each.of), lost=coarse(each.lost)) for each in graph.checks
        ),
        queries=tuple(
            replace(
                each,
                rows=rows(each.rows),
                touched=tuple(map(coarse, each.touched)),
                affected=tuple(map(coarse, each.affected)),
                effects=tuple(
                    TableEffect(one.table, tuple(map(coarse, one.before)), tuple(map(coarse, one.after)))
                    for one in each.effects
                ),
            )
            for each in graph.queries
        ),
        broken=coarse(graph.broken),
    )


# -- forms -------------------------------------------------------------------------------------------------------------

_PAIR = list_of(integer())
_ROWS: Form[ResultChanges] = record(
    ResultChanges,
    {name: integer() for name in ("before", "after", "added", "removed", "changed")},
)
_COLUMNS: Form[ColumnChanges] = record(
    ColumnChanges, {"lost": list_of(LINE), "gained": list_of(LINE), "retyped": list_of(LINE)}
)
_CODE = one_of(*(code.value for code in Code))
_QUERY: Form[QueryRun] = record(
    QueryRun,
    {
        "query": LINE,
        "params": enum(Parameters),
        "sets": integer(),
        "rows": _ROWS,
        "columns": _COLUMNS,
        "touched": _PAIR,
        "ms": _PAIR,
        "limited": BOOLEAN,
        "slower": BOOLEAN,
        "affected": _PAIR,
        "code": nullable(_CODE),
        "effects": optional(
            list_of(record(TableEffect, {"table": LINE, "before": _PAIR, "after": _PAIR})), (), written=False
        ),
    },
)
_MIGRATION: Form[MigrationRun] = record(
    MigrationRun,
    {
        "ms": integer(),
        "bytes": nullable(integer()),
        "rewritten": nullable(integer()),
        "steps": list_of(record(StepRows, {"kind": LINE, "rows": nullable(integer())})),
    },
)
_CHECK: Form[DataCheck] = record(
    DataCheck,
    {"subject": LINE, "rule": LINE, "rows": integer(), "of": integer(), "runs": BOOLEAN, "lost": integer()},
)
GRAPH_PREVIEW: Form[GraphPreview] = record(
    GraphPreview,
    {
        "graph": LINE,
        "manifest": integer(),
        "migration": nullable(_MIGRATION),
        "checks": list_of(_CHECK),
        "queries": list_of(_QUERY),
        "audits": list_of(record(AuditRun, {"id": LINE, "ok": BOOLEAN, "severity": one_of("error", "warning")})),
        "broken": integer(),
        "left_out": integer(),
        "code": nullable(_CODE),
    },
)
QUERY_RUN = _QUERY
_RECORD: Members = {
    "key": DIGEST,
    "cluster": LINE_OR_EMPTY,
    "request": nullable(integer(1)),
    "head": nullable(OBJECT_ID),
    "plan_digest": nullable(DIGEST),
    "at": TIME,
    "verdict": enum(PreviewVerdict),
    "counts": enum(Counts),
    "graphs": list_of(GRAPH_PREVIEW),
    "closed_at": optional(TIME, written=False),
    "callers": optional(list_of(SEEN_CALLERS), (), written=False),
}
PREVIEW_RECORD = Document(
    versions={1: record(PreviewRecord, _RECORD)}, code=Code.PREVIEW_RECORD_REFUSED, limit=ANSWER_BYTES
)
