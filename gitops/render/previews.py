"""Previews as text and as Markdown: what a change does to live data, in counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gitops.render.characters import visible
from gitops.render.markdown import code
from gitops.render.text import diagnostic_lines
from gitops.render.words import count
from gitops.review.previews.record import (
    PREVIEW_RECORD,
    DataCheck,
    GraphPreview,
    Migration,
    Parameters,
    PreviewRecord,
    QueryRun,
    Verdict,
    findings,
)
from gitops.review.previews.run import Shown

VERDICTS = {
    Verdict.GOOD: "no findings",
    Verdict.FINDINGS: "findings",
    Verdict.BLOCKED: "findings that fail it",
    Verdict.UNAVAILABLE: "could not run completely",
}
_PARAMETERS = {
    Parameters.NONE: "",
    Parameters.SAMPLES: "with samples",
    Parameters.DERIVED: "with live values",
    Parameters.MISSING: "",
}
_NOT_RUN = "not run: a test file has no samples of its parameters"
_KIB = 1024


def preview_form(record: PreviewRecord, **more: Any) -> dict[str, Any]:
    """Return the JSON form of a preview, with its problems."""
    problems = [each.to_json() for _, each in findings(record.graphs)]
    return {
        "ok": record.verdict in (Verdict.GOOD, Verdict.FINDINGS),
        **PREVIEW_RECORD.form(record),
        **more,
        "problems": problems,
    }


def preview_text(record: PreviewRecord, shown: Sequence[Shown] = (), *, verbose: bool = False) -> str:
    """Return a preview as lines of text, with the rows that may be shown."""
    lines = [f"Preview: {VERDICTS[record.verdict]}" if record.graphs else "Preview: no data to try this on"]
    for graph in record.graphs:
        lines += _graph_lines(graph)
        lines += [f"    {line}" for each in shown if each.graph == graph.graph for line in _shown_lines(each)]
    lines += diagnostic_lines((each for _, each in findings(record.graphs)), verbose=verbose)
    return "".join(visible(line) + "\n" for line in lines)


def _graph_lines(graph: GraphPreview) -> Iterator[str]:
    migrated = "" if graph.migration is None else f": {migration_words(graph.migration)}"
    yield f"  graph {graph.graph} at version {graph.manifest}{migrated}"
    for step in () if graph.migration is None else graph.migration.steps:
        yield f"    {step.kind}" + ("" if step.rows is None else f": {count(step.rows, 'row')}")
    yield from (f"    {check_words(each)}" for each in graph.checks)
    yield from (f"    query {each.query}: {query_words(each)}" for each in graph.queries)
    yield from (f"    audit {each.id}: {'passes' if each.ok else 'fails'}" for each in graph.audits)
    if graph.left_out:
        queries = "query is" if graph.left_out == 1 else "queries are"
        yield f"    {graph.left_out} more {queries} not run"


def _shown_lines(shown: Shown) -> Iterator[str]:
    for row in shown.rows:
        cells = ", ".join(f"{name}: {cell}" for name, cell in row.cells.items())
        yield f"  {shown.query}: {row.kind} {cells}"


def migration_words(migration: Migration) -> str:
    """Return the effort of a migration: `migrated in 83 ms, 9 KiB written, 0 tables rewritten`."""
    size = f"{migration.bytes} bytes" if migration.bytes < _KIB else f"{round(migration.bytes / _KIB):,} KiB"
    return f"migrated in {migration.ms:,} ms, {size} written, {count(migration.rewritten, 'table')} rewritten"


def check_words(check: DataCheck) -> str:
    """Return a data check in words."""
    lost = f", {check.lost:,} lose their value" if check.lost else ""
    return f"{check.subject} ({check.rule}): {check.rows:,} of {count(check.of, 'row')} break it{lost}"


def query_words(run: QueryRun) -> str:
    """Return the result of a query in words."""
    if run.params is Parameters.MISSING:
        return _NOT_RUN
    if run.code is not None:
        return f"failed: {run.code}"
    if run.affected:
        half = len(run.affected) // 2
        sides = (f"{nodes:,} nodes and {edges:,} edges" for nodes, edges in (run.affected[:half], run.affected[half:]))
        return "affects " + " before, ".join(sides) + " after"
    rows = run.rows
    words = [f"{count(rows.before, 'row')} before, {rows.after:,} after"]
    words += [
        f"{n:,} {kind}"
        for kind, n in (("added", rows.added), ("removed", rows.removed), ("changed", rows.changed))
        if n
    ]
    words += [f"loses {', '.join(run.columns.lost)}"] if run.columns.lost else []
    words += [f"gains {', '.join(run.columns.gained)}"] if run.columns.gained else []
    words += [f"retypes {', '.join(run.columns.retyped)}"] if run.columns.retyped else []
    words += ["cut by its limit"] if run.limited else []
    words += ["slower"] if run.slower else []
    words += [_PARAMETERS[run.params]] if _PARAMETERS[run.params] else []
    return ", ".join(words)


# -- Markdown ----------------------------------------------------------------------------------------------------------


def preview_markdown(record: PreviewRecord, shown: Iterable[Shown] = ()) -> str:
    """Return a preview as the body of a section of a comment. Names come from a change request, so they are escaped."""
    lines: list[str] = []
    for graph in record.graphs:
        if graph.code is not None:
            lines.append(f"- {code(graph.graph)} is not previewed: {code(graph.code)}")
            continue
        effort = "" if graph.migration is None else f": {migration_words(graph.migration)}"
        lines.append(f"- {code(graph.graph)} at version {graph.manifest}{effort}")
        lines += [f"  - {code(each.subject)} ({each.rule}): {_broken(each)}" for each in graph.checks]
        lines += [f"  - audit {code(each.id)} {'passes' if each.ok else '**fails**'}" for each in graph.audits]
        if graph.left_out:
            lines.append(f"  - {graph.left_out} more {'query is' if graph.left_out == 1 else 'queries are'} not run")
    queries = [each for graph in record.graphs for each in graph.queries]
    if queries:
        lines += ["", "| query | rows | added | removed | changed | touched | |", "|---|---|---|---|---|---|---|"]
        lines += map(_query_row, queries)
    for each in shown:
        lines += ["", f"Rows of {code(each.query)} that differ, as `preview.rows` allows:", ""]
        lines += [
            f"- {row.kind}: " + ", ".join(f"{code(n)} {code(c)}" for n, c in row.cells.items()) for row in each.rows
        ]
    return "\n".join(lines)


def _broken(check: DataCheck) -> str:
    lost = f", {check.lost:,} lose their value" if check.lost else ""
    return (
        f"**{check.rows:,}** of {count(check.of, 'row')} break it{lost}"
        if check.rows
        else f"0 of {count(check.of, 'row')} break it{lost}"
    )


def _query_row(run: QueryRun) -> str:
    name = code(run.query)
    if run.params is Parameters.MISSING:
        return f"| {name} | | | | | | {_NOT_RUN} |"
    if run.code is not None:
        return f"| {name} | | | | | | **failed**: {code(run.code)} |"
    rows, (was, now) = run.rows, run.touched
    notes = [
        f"{verb} {code(each)}"
        for verb, names in (
            ("loses", run.columns.lost),
            ("gains", run.columns.gained),
            ("retypes", run.columns.retyped),
        )
        for each in names
    ]
    notes += ["cut by its limit"] if run.limited else []
    notes += ["**slower**"] if run.slower else []
    if run.affected:
        return f"| {name} | | | | | | {query_words(run)} |"
    touched = "as before" if was == now else f"{was:,} → {now:,}"
    cells = [f"{rows.after:,}", f"{rows.added:,}", f"{rows.removed:,}", f"{rows.changed:,}", touched, ", ".join(notes)]
    return f"| {name} | {' | '.join(cells)} |"
