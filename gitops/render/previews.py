"""Renders previews as text and as Markdown: the effect of a change on live data, in counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from gitops.cluster.model.address import query_address
from gitops.core.dataclass import dataclass
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines
from gitops.render.words import count
from gitops.review.previews.record import (
    PREVIEW_RECORD,
    Counts,
    DataCheck,
    GraphPreview,
    MigrationRun,
    Parameters,
    PreviewRecord,
    PreviewVerdict,
    QueryRun,
    TableEffect,
    findings,
)
from gitops.review.previews.run import ShownResult

VERDICTS = {
    PreviewVerdict.GOOD: "no findings",
    PreviewVerdict.FINDINGS: "findings",
    PreviewVerdict.BLOCKED: "findings that fail it",
    PreviewVerdict.UNAVAILABLE: "could not run completely",
}
_PARAMETERS = {
    Parameters.NONE: "",
    Parameters.SAMPLES: "with samples",
    Parameters.DERIVED: "with live values",
    Parameters.MISSING: "",
}
_NOT_RUN = "not run: a test file has no samples of its parameters"
_REFUSED = "queries are not run, because the copy cannot be migrated"
_KIB = 1024


def preview_form(record: PreviewRecord, block: Collection[str], **more: Any) -> dict[str, Any]:
    """Return the JSON form of a preview, with its problems. What is in `block` is an error."""
    problems = [each.to_json() for _, each in findings(record.graphs, block)]
    return {
        "ok": record.verdict in (PreviewVerdict.GOOD, PreviewVerdict.FINDINGS),
        **PREVIEW_RECORD.form(record),
        **more,
        "problems": problems,
    }


def preview_text(
    record: PreviewRecord, shown: Sequence[ShownResult] = (), *, block: Collection[str] = (), verbose: bool = False
) -> str:
    """Return a preview as lines of text, with the rows that may be shown. What is in `block` is an error."""
    lines = [f"Preview: {VERDICTS[record.verdict]}" if record.graphs else "Preview: no data to try this on"]
    for graph in record.graphs:
        lines += _graph_lines(graph, record.counts)
        lines += [f"    {line}" for each in shown if each.graph == graph.graph for line in _shown_lines(each)]
    lines += diagnostic_lines((each for _, each in findings(record.graphs, block)), verbose=verbose)
    return "".join(visible(line) + "\n" for line in lines)


def _graph_lines(graph: GraphPreview, counts: Counts) -> Iterator[str]:
    migrated = "" if graph.migration is None else f": {migration_words(graph.migration)}"
    yield f"  graph {graph.graph} at version {graph.manifest}{migrated}"
    for step in () if graph.migration is None else graph.migration.steps:
        yield f"    {step.kind}" + ("" if step.rows is None else f": {_shown_count(step.rows, counts)} rows")
    yield from (f"    {each.subject}: {check_words(each, counts)}" for each in graph.checks)
    yield from (f"    query {each.query}: {query_words(each, counts)}" for each in graph.queries)
    yield from (f"    audit {each.id}: {'passes' if each.ok else 'fails'}" for each in graph.audits)
    if any(not check.runs for check in graph.checks):
        yield f"    {_REFUSED}"
    if graph.left_out:
        queries = "query is" if graph.left_out == 1 else "queries are"
        yield f"    {graph.left_out} more {queries} not run"


def _shown_lines(shown: ShownResult) -> Iterator[str]:
    for row in shown.rows:
        cells = ", ".join(f"{name}: {cell}" for name, cell in row.cells.items())
        yield f"  {shown.query}: {row.kind} {cells}"


def migration_words(migration: MigrationRun) -> str:
    """Return the effort of a migration: `migrated in 83 ms, 9 KiB written, 0 tables rewritten`."""
    if migration.bytes is None or migration.rewritten is None:
        return f"migrated in {migration.ms:,} ms"
    size = f"{migration.bytes} bytes" if migration.bytes < _KIB else f"{round(migration.bytes / _KIB):,} KiB"
    return f"migrated in {migration.ms:,} ms, {size} written, {count(migration.rewritten, 'table')} rewritten"


def check_words(check: DataCheck, counts: Counts = Counts.EXACT) -> str:
    """Return the rows that break a rule, in words."""
    rows, of, lost = (_shown_count(n, counts) for n in (check.rows, check.of, check.lost))
    return f"{check.rule}: {rows} of {of} rows break it" + (f", {lost} lose their value" if check.lost else "")


def query_words(run: QueryRun, counts: Counts = Counts.EXACT) -> str:
    """Return the result of a query in words."""
    if run.params is Parameters.MISSING:
        return _NOT_RUN
    if run.code is not None:
        return f"failed: {run.code}"
    if run.affected:
        half = len(run.affected) // 2
        sides = (
            f"{_counted(nodes, 'node', counts)} and {_counted(edges, 'edge', counts)}"
            for nodes, edges in (run.affected[:half], run.affected[half:])
        )
        affected = "affects " + " before, ".join(sides) + " after"
        return "; ".join([affected, *(_effect_words(each, counts) for each in run.effects)])
    rows = run.rows
    kinds = (("added", rows.added), ("removed", rows.removed), ("changed", rows.changed))
    words = [f"{_shown_count(rows.before, counts)} rows before, {_shown_count(rows.after, counts)} after"]
    words += [f"{_shown_count(n, counts)} {kind}" for kind, n in kinds if n]
    words += _notes(run)
    return ", ".join(words + ([_PARAMETERS[run.params]] if _PARAMETERS[run.params] else []))


def _effect_words(effect: TableEffect, counts: Counts) -> str:
    """Return the rows of a table that a mutation changes otherwise after the change, in words."""
    kinds = ("added", "removed", "changed")
    pairs = [
        f"{_shown_count(now, counts)} {kind}, before {_shown_count(was, counts)}"
        for kind, was, now in zip(kinds, effect.before, effect.after, strict=True)
        if was != now
    ]
    return f"{effect.table.partition(':')[2]}: {', '.join(pairs)}"


# -- the view that comments show -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreviewLine:
    """A name from a change request, and the text about it."""

    subject: str
    words: str


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query's row of a table: counts as text, and a note."""

    query: str
    rows: str = ""
    added: str = ""
    removed: str = ""
    changed: str = ""
    touched: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class PreviewView:
    """A preview for a comment. `shown` are rows that the rules allow to show.

    `served` are commands that ask a query server without and with the change, if one serves it.
    """

    verdict: str
    lines: tuple[PreviewLine, ...] = ()
    queries: tuple[QueryRow, ...] = ()
    shown: tuple[PreviewLine, ...] = ()
    served: tuple[str, ...] = ()


def served_commands(record: PreviewRecord, server: str, both: Collection[str]) -> tuple[str, ...]:
    """Return a command that asks the query server at an address for the applied revision, and one for the request.

    They run a query without parameters that is in `both`, the addresses of queries that exist before and after. Without
    one, they list the queries. Empty if the preview has no graph.
    """
    graphs = [graph for graph in record.graphs if graph.code is None]
    if not graphs:
        return ()
    runs = (
        (graph.graph, f"/{run.query}")
        for graph in graphs
        for run in graph.queries
        if run.params is Parameters.NONE and run.code is None and query_address(graph.graph, run.query) in both
    )
    name, query = next(runs, (graphs[0].graph, ""))
    path = f"/graphs/{name}/queries{query}"
    at = (server.rstrip("/"), f"{server.rstrip('/')}/-/requests/{record.request}")
    return tuple(f'curl --oauth2-bearer "$TOKEN" {each}{path}' for each in at)


def preview_view(record: PreviewRecord, shown: Iterable[ShownResult] = (), served: tuple[str, ...] = ()) -> PreviewView:
    """Return a preview for a comment. `served` is as in the view."""
    lines: list[PreviewLine] = []
    for graph in record.graphs:
        at = f"version {graph.manifest}"
        if graph.code is not None:
            lines.append(PreviewLine(graph.graph, f"not previewed: {graph.code}"))
            continue
        effort = "" if graph.migration is None else f", {migration_words(graph.migration)}"
        lines.append(PreviewLine(graph.graph, at + effort))
        lines += [PreviewLine(each.subject, check_words(each, record.counts)) for each in graph.checks]
        lines += [PreviewLine(each.id, f"audit {'passes' if each.ok else 'fails'}") for each in graph.audits]
        if any(not check.runs for check in graph.checks):
            lines.append(PreviewLine(graph.graph, _REFUSED))
        if graph.broken:
            lines.append(
                PreviewLine(graph.graph, f"{_shown_count(graph.broken, record.counts)} rows break a rule afterwards")
            )
        if graph.left_out:
            lines.append(PreviewLine(graph.graph, f"{count(graph.left_out, 'more query', 'more queries')} not run"))
    return PreviewView(
        _sentence(status_words(record)),
        tuple(lines),
        tuple(_query_row(each, record.counts) for graph in record.graphs for each in graph.queries),
        tuple(
            PreviewLine(each.query, f"{row.kind} " + ", ".join(f"{name}: {cell}" for name, cell in row.cells.items()))
            for each in shown
            for row in each.rows
        ),
        served,
    )


def status_words(record: PreviewRecord) -> str:
    """Return a preview in one line, without counts of rows."""
    queries = sum(len(graph.queries) for graph in record.graphs)
    graphs = ", ".join(f"{graph.graph} at version {graph.manifest}" for graph in record.graphs)
    found = sum(1 for _ in findings(record.graphs))
    words = count(found, "finding") if found else VERDICTS[record.verdict]
    return f"{words}; {graphs}, {count(queries, 'query', 'queries')}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _shown_count(rows: int, counts: Counts) -> str:
    """Return a count, or the range that a coarse count stands for."""
    if counts is Counts.EXACT or rows == 0:
        return f"{rows:,}"
    return f"{rows:,} to {rows * 10 - 1:,}"


def _counted(rows: int, noun: str, counts: Counts) -> str:
    return count(rows, noun) if counts is Counts.EXACT or rows == 0 else f"{_shown_count(rows, counts)} {noun}s"


def _query_row(run: QueryRun, counts: Counts) -> QueryRow:
    if run.params is Parameters.MISSING:
        return QueryRow(run.query, note=_NOT_RUN)
    if run.code is not None:
        return QueryRow(run.query, note=f"failed: {run.code}")
    if run.affected:
        return QueryRow(run.query, note=query_words(run, counts))
    rows, (was, now) = run.rows, run.touched
    return QueryRow(
        run.query,
        rows=_shown_count(rows.after, counts),
        added=_shown_count(rows.added, counts),
        removed=_shown_count(rows.removed, counts),
        changed=_shown_count(rows.changed, counts),
        touched="as before" if was == now else f"{_shown_count(now, counts)}, before {_shown_count(was, counts)}",
        note=", ".join(_notes(run)),
    )


def _notes(run: QueryRun) -> list[str]:
    columns = run.columns
    named = (("loses", columns.lost), ("gains", columns.gained), ("retypes", columns.retyped))
    notes = [f"{verb} {', '.join(names)}" for verb, names in named if names]
    notes += ["cut by its limit"] if run.limited else []
    return notes + (["slower"] if run.slower else [])
