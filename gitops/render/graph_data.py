"""What the commands of `gitops graph` print: the text and the JSON document of each result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gitops.graph.results import (
    BranchCreated,
    BranchDeleted,
    BranchList,
    DiffSummary,
    ExportResult,
    GcResult,
    GraphDescription,
    GraphOutcome,
    LoadRefusal,
    LoadResult,
    MergeResult,
    MergeStatus,
    MutationResult,
    OptimizeResult,
    PreviewReport,
    PurgeResult,
    QueryRows,
    RowChange,
    RowList,
    VerifyReport,
    VersionDescription,
    VersionLog,
)
from gitops.render.characters import visible
from gitops.render.json import to_line
from gitops.render.table import to_table
from gitops.render.text import diagnostic_lines

__all__ = ["change_line", "graph_form", "graph_text", "operator_lines"]

_MIB = 2**20
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_EXPLAINED = frozenset(
    {"operator", "variable", "table", "hop", "conditions", "rows", "estimated_rows", "runs", "operators", "outer"}
)


def graph_form(result: GraphOutcome) -> dict[str, Any] | list[Any]:
    """The JSON document of a result. Descriptions and rows of `show` stand alone, all others in the envelope."""
    if isinstance(result, GraphDescription):
        return result.to_json()
    if isinstance(result, RowList):
        return result.rows
    form: dict[str, Any] = result.to_json()
    return {
        "ok": result.ok,
        **form,
        "diagnostics": result.problems.to_json() if isinstance(result, LoadRefusal) else [],
    }


def graph_text(result: GraphOutcome, graph: str, *, width: int | None = None) -> str:
    """The text of a result; no line holds a character that acts on a terminal. Raises TypeError for an unknown result.

    `graph` is the id of the graph, or a label; `width` that of the terminal in characters, None if tables are not cut.
    """
    return "\n".join(visible(line) for line in _lines(result, graph, width))


def _lines(result: GraphOutcome, graph: str, width: int | None) -> Iterable[str]:
    if isinstance(result, QueryRows):
        size = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
        table = _table(result.columns, result.rows, width)
        return [*table, f"{size}, manifest version {result.manifest_version}"]
    if type(result) not in _LINES:
        raise TypeError(f"no text for {type(result).__name__}")
    return _LINES[type(result)](result, graph)


def _refusal(refusal: LoadRefusal, _graph: str) -> list[str]:
    return ["graph load failed", *diagnostic_lines(refusal.problems)]


def _load(load: LoadResult, graph: str) -> list[str]:
    total = sum(load.rows.values())
    first = f"graph load: {total} record(s) into {graph}, manifest version {load.manifest_version}"
    return [first, *(f"  {table}: {load.rows[table]}" for table in sorted(load.rows))]


def _export(export: ExportResult, graph: str) -> list[str]:
    return [f"graph export: {export.records} record(s) of {graph} to {export.path}"]


def _description(description: GraphDescription, graph: str) -> list[str]:
    return [
        f"graph {graph}: manifest version {description.manifest_version}",
        *(f"  {key}: {each['rows']} row(s): {', '.join(each['columns'])}" for key, each in description.tables.items()),
    ]


def _row_list(found: RowList, _graph: str) -> list[str]:
    return [to_line(row) for row in found.rows] or ["no rows"]


def _mutation(mutation: MutationResult, graph: str) -> list[str]:
    counts = f"{mutation.affected_nodes} node(s) and {mutation.affected_edges} edge(s)"
    published = f"manifest version {mutation.manifest_version}" if mutation.changed else "nothing to publish"
    return [f"graph mutate: {counts} of {graph}, {published}"]


def _diff(diff: DiffSummary, _graph: str) -> list[str]:
    rows = [{"table": key, **counts} for key, counts in sorted(diff.tables.items())]
    table = _table(["table", "added", "removed", "changed"], rows)
    return table if diff.same_schema else ["the schemas differ", *table]


def _branches(found: BranchList, _graph: str) -> list[str]:
    columns = ["name", "manifest_version", "forked_from", "fork_version", "created_at", "actor"]
    return _table(columns, [branch.to_json() for branch in found.branches])


def _branch_created(created: BranchCreated, _graph: str) -> list[str]:
    form = created.to_json()
    return [f"graph branch: created {form['name']} at version {form['fork_version']} of {form['forked_from']}"]


def _branch_deleted(deleted: BranchDeleted, _graph: str) -> list[str]:
    return [f"graph branch: deleted {deleted.name}"]


def _optimize(done: OptimizeResult, graph: str) -> list[str]:
    first = f"graph optimize: {len(done.tables)} table(s) of {graph}, manifest version {done.manifest_version}"
    return [first, *(f"  {key}: {', '.join(done.tables[key])}" for key in sorted(done.tables))]


def _gc(freed: GcResult, graph: str) -> list[str]:
    verb = "would free about" if freed.dry_run else "freed"
    tables = sum(map(len, freed.table_versions.values()))
    size = f"{freed.bytes / _MIB:.1f} MiB in {freed.manifests} version(s), {tables} table version(s)"
    return [f"graph gc: {verb} {size} and {len(freed.paths)} file(s) or folder(s) of {graph}"]


def _purge(purge: PurgeResult, graph: str) -> list[str]:
    count = len(purge.types) + sum(map(len, purge.properties.values()))
    verb = "would permanently remove" if purge.dry_run else "permanently removed"
    properties = (f"  {key}: {', '.join(purge.properties[key])}" for key in sorted(purge.properties))
    first = f"graph purge: {verb} {count} dropped type(s) and properties of {graph}"
    return [first, *(f"  {key}" for key in purge.types), *properties]


def _verify(report: VerifyReport, graph: str) -> list[str]:
    problems = sum(finding.is_problem for finding in report.findings)
    checked = f"{report.manifests} version(s), {report.table_versions} table version(s)"
    return [
        f"graph verify: {problems} problem(s) in {checked} of {graph}",
        *(
            f"  {'problem' if each.is_problem else 'note'} {each.code.value}: {each.path}: {each.detail}"
            for each in report.findings
        ),
    ]


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], width: int | None = None) -> list[str]:
    return to_table(columns, rows, width=width).split("\n")


def _log(log: VersionLog, _graph: str) -> list[str]:
    rows = []
    for form in log.to_json()["commits"]:
        merged = f" of {form['merge_parent']['commit']}" if form["merge_parent"] else ""
        rows.append(
            {**form, "version": form["manifest_version"], "time": form["ts"], "operation": form["operation"] + merged}
        )
    return _table(["version", "commit", "time", "branch", "operation", "actor", "message"], rows)


def _version(version: VersionDescription, graph: str) -> list[str]:
    form = version.to_json()
    return [
        f"graph {graph}, branch {form['branch']}, version {form['manifest_version']}",
        f"commit {form['commit']} of {form['ts']}, {form['operation']} by {form['actor'] or 'an unnamed actor'}",
        f"schema {form['schema_digest']}",
        *_table(["table", "rows", "version", "path"], [{"table": key, **each} for key, each in form["tables"].items()]),
    ]


def _merge(merge: MergeResult, _graph: str) -> list[str]:
    if merge.conflicts:
        count = len(merge.conflicts)
        return [
            f"graph branch: {merge.source} and {merge.into} conflict in {count} place(s); nothing was merged",
            *_table(["kind", "type", "id", "property", "detail"], [each.to_json() for each in merge.conflicts]),
        ]
    if merge.status is MergeStatus.UP_TO_DATE:
        return [f"graph branch: {merge.into} already contains {merge.source}"]
    rows = ", ".join(f"{merge.rows[key]} of {key}" for key in sorted(merge.rows)) or "no rows"
    return [f"graph branch: merged {merge.source} into {merge.into}, version {merge.manifest_version}: {rows}"]


def _preview(report: PreviewReport, graph: str) -> list[str]:
    verdict = "can be migrated" if report.supported else "cannot be migrated"
    lines = [f"graph preview: {graph} at version {report.manifest_version} {verdict}, {len(report.steps)} step(s)"]
    for effect in report.steps:
        rows = "" if effect.rows is None else f" ({effect.rows} row(s))"
        lines.append(f"  {to_line(effect.step.to_json())}{rows}")
    return [*lines, *(f"  then {key}: {report.tables[key]} row(s)" for key in sorted(report.tables))]


_LINES: Mapping[type[GraphOutcome], Callable[[Any, str], list[str]]] = {
    BranchCreated: _branch_created,
    BranchDeleted: _branch_deleted,
    BranchList: _branches,
    DiffSummary: _diff,
    ExportResult: _export,
    GcResult: _gc,
    GraphDescription: _description,
    LoadRefusal: _refusal,
    LoadResult: _load,
    MergeResult: _merge,
    MutationResult: _mutation,
    OptimizeResult: _optimize,
    PreviewReport: _preview,
    PurgeResult: _purge,
    RowList: _row_list,
    VerifyReport: _verify,
    VersionDescription: _version,
    VersionLog: _log,
}


def change_line(change: RowChange, *, as_json: bool) -> str:
    """One row of `gitops graph diff`: a JSON object, or a sign, the table, the id and the values."""
    form = change.to_json()
    if as_json:
        return _one_line(form)
    before, after = form["before"] or {}, form["after"] or {}
    if form["kind"] == "changed":
        values = ", ".join(
            f"{name}: {_one_line(before.get(name))} -> {_one_line(after.get(name))}" for name in form["fields"]
        )
    else:
        values = _one_line(after or before)
    return visible(f"{_SIGNS[form['kind']]} {form['table']} {form['id']} {values}")


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))


def operator_lines(operators: Sequence[Mapping[str, Any]], indent: str = "") -> list[str]:
    """The operators of a query in the order in which they ran, those of a nested block below it."""
    lines = []
    for form in operators:
        parts = [form["operator"], *(str(form[name]) for name in ("variable", "table", "hop") if name in form)]
        if form.get("conditions"):
            parts.append(f"[{' and '.join(form['conditions'])}]")
        parts.append(f"rows {form['rows']} (estimated {form['estimated_rows']})")
        parts += [f"{name} {form[name]}" for name in form if name not in _EXPLAINED]
        lines.append(visible(indent + " ".join(parts)))
        lines += operator_lines(form.get("operators", []), indent + "  ")
    return lines
