"""Output for the `gitops graph` commands: each result as text and JSON, and row tables.

The renderers of the control plane are loaded on demand, so that printing rows does not wait for them.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gitops.database.graph import results
from gitops.render.characters import visible
from gitops.render.words import count

if TYPE_CHECKING:
    from gitops.cluster.session.queries import QueriesOutcome

_MIB = 2**20
_GAP = "  "
_NULL = "-"
_CUT = "…"
_LEAST = 6
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_EXPLAINED = frozenset(
    {"operator", "variable", "table", "hop", "conditions", "rows", "estimated_rows", "runs", "operators", "outer"}
)


def graph_form(result: results.GraphOutcome) -> dict[str, Any]:
    """Return a result as a JSON document."""
    form: dict[str, Any] = result.to_json()
    return {
        "ok": result.ok,
        **form,
        "problems": result.problems.to_json() if isinstance(result, results.LoadRefusal) else [],
    }


def graph_text(result: results.GraphOutcome, graph: str, *, width: int | None = None) -> str:
    """Return a result's text without terminal control characters. Raises TypeError for an unknown result.

    `graph` is the graph's id, or a label. `width` is the terminal width in characters; None means that tables are not
    cut.
    """
    return "\n".join(visible(line) for line in _lines(result, graph, width))


def _lines(result: results.GraphOutcome, graph: str, width: int | None) -> Iterable[str]:
    match result:
        case results.QueryRows():
            size = "1 row" if len(result.rows) == 1 else f"{len(result.rows)} rows"
            return [
                *table_lines(result.columns, result.rows, width=width),
                f"{size}, manifest version {result.manifest_version}",
            ]
        case results.RowList():
            from gitops.render.json_text import to_line

            return [to_line(row) for row in result.rows] or ["no rows"]
        case results.GraphDescription():
            tables = (f"  {k}: {count(t['rows'], 'row')}: {', '.join(t['columns'])}" for k, t in result.tables.items())
            return [f"graph {graph}: manifest version {result.manifest_version}", *tables]
        case results.LoadRefusal():
            from gitops.render.text import diagnostic_lines

            return ["graph load failed: nothing was loaded", *diagnostic_lines(result.problems)]
        case results.LoadResult():
            into = (
                f"{count(sum(result.rows.values()), 'record')} into {graph}, manifest version {result.manifest_version}"
            )
            tables = (f"  {table}: {result.rows[table]}" for table in sorted(result.rows))
            built = {} if result.optimized is None else result.optimized.tables
            return [
                f"graph load: {into}",
                *tables,
                *_listed({f"indexes of {key}": steps for key, steps in built.items()}),
            ]
        case results.ExportResult():
            return [f"graph export: {count(result.records, 'record')} of {graph} to {result.path}"]
        case results.MutationResult():
            counts = f"{count(result.affected_nodes, 'node')} and {count(result.affected_edges, 'edge')}"
            published = f"manifest version {result.manifest_version}" if result.changed else "nothing to publish"
            return [f"graph mutate: {counts} of {graph}, {published}"]
        case results.BaselineResult():
            wrote = f"{count(result.records, 'record')} of {graph} at commit {result.commit} to {result.path}"
            return [f"graph changes: {wrote}", f"cursor {result.cursor}"]
        case results.FeedPage():
            shown = (f"{commit} {change_line(change, as_json=False)}" for commit, change in result.changes)
            more = "" if result.complete else ", and there is more"
            return [*shown, f"{count(len(result.changes), 'change')}{more}", f"cursor {result.position.token}"]
        case results.BlobFacts():
            return [f"{count(result.size, 'byte')}, tag {result.tag}"]
        case (
            results.BranchList()
            | results.BranchCreated()
            | results.BranchDeleted()
            | results.BranchMergeResult()
            | results.VersionLog()
            | results.VersionDescription()
        ):
            return _history_lines(result, graph)
        case results.DiffSummary():
            rows = [{"table": key, **counts} for key, counts in sorted(result.tables.items())]
            table = table_lines(["table", "added", "removed", "changed"], rows)
            return table if result.same_schema else ["the schemas differ", *table]
        case _:
            return _maintenance_lines(result, graph)


def _history_lines(result: results.GraphOutcome, graph: str) -> Iterable[str]:
    """Return lines about branches, versions and merges."""
    form: dict[str, Any] = result.to_json()
    match result:
        case results.BranchList():
            columns = ["name", "manifest_version", "forked_from", "fork_version", "created_at", "actor"]
            return table_lines(columns, [branch.to_json() for branch in result.branches])
        case results.BranchCreated():
            return [f"graph branch: created {form['name']} at version {form['fork_version']} of {form['forked_from']}"]
        case results.BranchDeleted():
            return [f"graph branch: deleted {result.name}"]
        case results.BranchMergeResult(conflicts=conflicts) if conflicts:
            met = f"{result.source} and {result.into} conflict in {count(len(conflicts), 'place')}"
            table = table_lines(["kind", "type", "id", "property", "detail"], [each.to_json() for each in conflicts])
            return [f"graph branch: {met}; nothing was merged", *table]
        case results.BranchMergeResult(status=results.MergeStatus.UP_TO_DATE):
            return [f"graph branch: {result.into} already contains {result.source}", *_deletion(result)]
        case results.BranchMergeResult(status=status):
            counts = ", ".join(f"{result.rows[key]} of {key}" for key in sorted(result.rows)) or "no rows"
            if status is results.MergeStatus.FAST_FORWARD:
                counts = f"{result.into} now has exactly the rows of {result.source}"
            merged = f"merged {result.source} into {result.into}, version {result.manifest_version}"
            return [f"graph branch: {merged}: {counts}", *_deletion(result)]
        case results.VersionLog():
            rows = []
            for each in form["commits"]:
                merged = f" of {each['merge_parent']['commit']}" if each["merge_parent"] else ""
                named = {"version": each["manifest_version"], "time": each["ts"]}
                rows.append({**each, **named, "operation": each["operation"] + merged})
            return table_lines(["version", "commit", "time", "branch", "operation", "actor", "message"], rows)
        case _:
            tables = [{"table": key, **each} for key, each in form["tables"].items()]
            return [
                f"graph {graph}, branch {form['branch']}, version {form['manifest_version']}",
                f"commit {form['commit']} of {form['ts']}, {form['operation']} by {form['actor'] or 'an unnamed actor'}",
                f"schema {form['schema_digest']}",
                *table_lines(["table", "rows", "version", "path"], tables),
            ]


def _deletion(result: results.BranchMergeResult) -> list[str]:
    """Describe whether a merge's source was deleted, if that was requested."""
    if result.branch_deleted is None:
        return []
    if result.branch_deleted:
        return [f"graph branch: deleted {result.source}"]
    return [f"graph branch: {result.source} was not deleted: {result.branch_delete_error}"]


def _maintenance_lines(result: results.GraphOutcome, graph: str) -> Iterable[str]:
    match result:
        case results.OptimizeResult():
            done = f"{count(len(result.tables), 'table')} of {graph}, manifest version {result.manifest_version}"
            return [f"graph optimize: {done}", *_listed(result.tables)]
        case results.GcResult():
            verb = "would free about" if result.dry_run else "freed"
            tables = sum(map(len, result.table_versions.values()))
            size = f"{result.bytes / _MIB:.1f} MiB in {count(result.manifests, 'version')}, {count(tables, 'table version')}"
            return [
                f"graph gc: {verb} {size} and {count(len(result.paths), 'file or folder', 'files and folders')} of {graph}"
            ]
        case results.PurgeResult():
            dropped = len(result.types) + sum(map(len, result.properties.values()))
            verb = "would permanently remove" if result.dry_run else "permanently removed"
            first = f"graph purge: {verb} {count(dropped, 'dropped type or property', 'dropped types and properties')} of {graph}"
            return [first, *(f"  {key}" for key in result.types), *_listed(result.properties)]
        case results.VerifyReport():
            problems = sum(finding.is_problem for finding in result.findings)
            checked = f"{count(result.manifests, 'version')}, {count(result.table_versions, 'table version')}"
            return [
                f"graph verify: {count(problems, 'problem')} in {checked} of {graph}",
                *(
                    f"  {'problem' if each.is_problem else 'note'} {each.code.value}: {each.path}: {each.detail}"
                    for each in result.findings
                ),
            ]
        case results.PreviewReport():
            from gitops.database.language.schema.steps import plain_words

            verdict = "can be migrated" if result.supported else "cannot be migrated"
            at = f"{graph} at version {result.manifest_version} {verdict}, {count(len(result.steps), 'step')}"
            lines = [f"  {plain_words(effect.step.to_json())}{_effect(effect)}" for effect in result.steps]
            left = (f"  then {key}: {count(result.tables[key], 'row')}" for key in sorted(result.tables))
            return [f"graph preview: {at}", *lines, *left]
        case _:
            raise TypeError(f"no text for {type(result).__name__}")


def _effect(effect: results.StepEffect) -> str:
    """Return a step's rows in parentheses, and the ids of the first rows that keep it from being applied."""
    found = effect.count
    if found is None:
        return ""
    if found.breaking:
        more = found.breaking - len(found.keys)
        return f" ({found.text}: {', '.join(map(repr, found.keys))}{f' and {more} more' if more else ''})"
    lost = f", {found.lost} lose their value" if found.lost else ""
    return f" ({count(found.rows, 'row')}{lost})"


def _listed(names: Mapping[str, Sequence[str]]) -> Iterable[str]:
    return (f"  {key}: {', '.join(names[key])}" for key in sorted(names))


def table_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, width: int | None = None) -> list[str]:
    """Return rows of JSON values under their column names. Numbers are right-aligned, and null is a dash.

    `width` is the terminal width in characters. The widest columns are cut until a line fits, but never to less than 6
    characters; None means no limit. A string that looks like a different value is quoted as JSON, and control
    characters are escaped.
    """
    names = list(dict.fromkeys(columns))
    found = [[row.get(name) for name in names] for row in rows]
    cells = [[cell_text(value) for value in row] for row in found]
    heads = [visible(name) for name in names]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)] if names else []
    if width is not None:
        widths = [min(each, max(width, _LEAST)) for each in widths]
        # The widest columns are cut one character at a time.
        for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - width):
            widest = max(widths)
            if widest <= _LEAST:
                break
            widths[widths.index(widest)] -= 1
    # Columns that contain only numbers and nulls.
    kinds = [{type(row[at]) for row in found} - {type(None)} for at in range(len(names))]
    right = [bool(kind) and kind <= {int, float} for kind in kinds]
    rule = _GAP.join("-" * each for each in widths)
    return [_line(heads, widths, right), rule, *(_line(row, widths, right) for row in cells)]


def cell_text(value: Any) -> str:
    """Return a JSON value as shown in tables."""
    if value is None:
        return _NULL
    plain = isinstance(value, str) and value not in ("", _NULL) and value == value.strip() and value[0] not in '"[{'
    return visible(value if plain else json.dumps(value, ensure_ascii=False))


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = []
    for cell, width, to_right in zip(cells, widths, right, strict=True):
        shown = _shortened(cell, width)
        padding = " " * (width - _width(shown))
        parts.append(padding + shown if to_right else shown + padding)
    return _GAP.join(parts).rstrip()


def _shortened(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    kept, used = [], 0
    for character in text:
        used += _width(character)
        if used > width - 1:
            break
        kept.append(character)
    return "".join(kept) + _CUT


def _width(text: str) -> int:
    """Return the width in terminal columns: wide East Asian characters take two, combining characters none.

    Source: UAX #11.
    """
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def change_line(change: results.RowChange, *, as_json: bool) -> str:
    """Return one row of `gitops graph diff`: a JSON object, or a sign, the table, the id and the values."""
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
    """Return a query's operators in the order in which they ran. Nested blocks are below their operator."""
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


# -- rows of a query in the formats of other programs ------------------------------------------------------------------

_QUOTED = re.compile(r'[",\r\n]')


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return the column names, then the rows, without line ends: https://www.rfc-editor.org/rfc/rfc4180.

    Strings are unchanged, null is empty, and any other value is JSON. An empty string is quoted, so that it differs
    from null.
    """
    names = list(dict.fromkeys(columns))
    yield ",".join(map(_csv_cell, names))
    for row in rows:
        yield ",".join(_csv_cell(row.get(name)) for name in names)


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if not text or _QUOTED.search(text) else text


def key_value_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Return `name: value` for each value in a row, as in tables. An empty line separates rows."""
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from (f"{visible(name)}: {cell_text(value)}" for name, value in row.items())


# -- stored queries: parameters, results, and the types that each reads and writes -------------------------------------


def queries_text(outcome: QueriesOutcome, folder: str = "", *, verbose: bool = False) -> str:
    """Return each graph's queries, then the problems. Each line ends with a line feed."""
    from gitops.render.text import diagnostic_lines

    lines = []
    for graph, queries in outcome.graphs.items():
        lines.append(f"graph {graph}: {len(queries)} stored {'query' if len(queries) == 1 else 'queries'}")
        for query in queries:
            parameters = ", ".join(f"${name}: {kind}" for name, kind in query.params.items())
            lines.append(f"  {query.name}({parameters}): {query.kind}")
            lines += [f"    {query.description}"] if query.description else []
            if query.columns:
                columns = ", ".join(f"{each.column}: {each.type or 'Node'}" for each in query.columns)
                lines.append(f"    returns {columns}")
            for verb, accesses in (("reads", query.reads), ("writes", query.writes)):
                if accesses:
                    lines.append(f"    {verb} {', '.join(f'{each.kind} {each.type_name}' for each in accesses)}")
    lines += diagnostic_lines(outcome.diagnostics, folder=folder, verbose=verbose)
    return "".join(visible(line) + "\n" for line in lines)


def queries_form(outcome: QueriesOutcome) -> dict[str, Any]:
    """Return `{ok, config_dir, applied, queries: [{graph, name, kind, parameters, result, reads, writes, ...}], problems}`."""
    found = []
    for graph, queries in outcome.graphs.items():
        for query in queries:
            texts = {"description": query.description, "instruction": query.instruction}
            described = {name: text for name, text in texts.items() if text is not None}
            parameters = [{"name": name, "type": str(kind)} for name, kind in query.params.items()]
            head = {"graph": graph, "name": query.name, "kind": query.kind.value}
            found.append({**head, **described, "parameters": parameters, **query.operation()})
    return {
        "ok": outcome.ok,
        "config_dir": outcome.config_dir,
        "applied": outcome.applied,
        "queries": found,
        "problems": [each.to_json() for each in outcome.diagnostics],
    }
