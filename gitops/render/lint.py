"""Shows the outcome of `lint` as text for people and as one JSON document.

The text looks like a compiler's output: `path:line:column: severity[rule]: message`, then the line with the place
underlined, then the remedy. Text from files is escaped for terminals and CI logs, and long lines are cut around the
place.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict

from gitops.cluster.session.lint import LintOutcome, Region
from gitops.core.diagnostics import SourceRef
from gitops.database.language.lint import LintLevel
from gitops.database.language.text import SourceText
from gitops.render.characters import visible
from gitops.render.json import Form, present
from gitops.render.text import diagnostic_lines
from gitops.render.words import count

SHOWN = 1_000
"""Maximum number of problems in the text; further ones are only counted."""

# Number of characters of a line to show before, inside and after the marked region.
_BEFORE, _INSIDE, _AFTER = 60, 80, 40
_BYTES_PER_CHARACTER = 4
_TAB = "    "


def lint_text(outcome: LintOutcome, folder: str = "") -> str:
    """Return all problems with their lines, the unreadable files and the counts. Each line ends with a line feed.

    `folder` is the cluster folder as the reader reaches it.
    """

    def display(path: str) -> str:
        return SourceRef(path).shown(folder)

    schemas: defaultdict[str, set[str]] = defaultdict(set)
    for report in outcome.queries:
        schemas[report.path].add(report.schema)
    lines: list[str] = []
    for problem in outcome.problems[:SHOWN]:
        region = problem.region
        place = SourceRef(problem.path, region.line, region.column).shown(folder)
        lines.append(f"{place}: {problem.level}[{problem.code}]: {problem.message}")
        lines += source_lines(outcome.sources[problem.path], region)
        lines += [] if problem.fix is None else [f"  help: {problem.fix}"]
        if len(problem.schemas) < len(schemas[problem.path]):
            lines.append(f"  note: against {', '.join(map(display, problem.schemas))}")
    if len(outcome.problems) > SHOWN:
        lines.append(f"and {len(outcome.problems) - SHOWN} more; --format json has them all")
    lines.extend(diagnostic_lines(outcome.diagnostics, folder=folder))
    lines.extend(
        f"not checked: {display(path)}, since {display(schema)} does not compile" for schema, path in outcome.unchecked
    )
    errors, warnings = outcome.count(LintLevel.ERROR), outcome.count(LintLevel.WARNING)
    files = {each.path for each in outcome.queries} | {path for _, path in outcome.unchecked}
    queries = len({(each.path, result.span.start) for each in outcome.queries for result in each.report.results})
    lines.append(
        f"lint: {count(errors, 'error')}, {count(warnings, 'warning')} in {count(len(outcome.schemas), 'schema')}, "
        f"{count(len(files), 'query file')}, {count(queries, 'query', 'queries')}"
    )
    return "".join(visible(line) + "\n" for line in lines)


def lint_form(outcome: LintOutcome, *, config_dir: str, strict: bool = False) -> Form:
    """Return the document: counts, `reports` in the language's format, and all problems with their places.

    Problems with folders come last. Paths are relative to the cluster folder.
    """
    problems = []
    for problem in outcome.problems:
        region = problem.region
        span = {
            "start_line": region.line,
            "start_column": region.column,
            "end_line": region.end_line,
            "end_column": region.end_column,
            "start_byte": region.start,
            "end_byte": region.end,
        }
        fixes = [{"start_byte": region.start, "end_byte": region.end, "text": problem.replacement}]
        problems.append(
            present(
                severity=problem.level.value,
                code=problem.code,
                message=problem.message,
                path=problem.path,
                source={"file": problem.path, "line": region.line, "column": region.column},
                span=span,
                query=problem.query,
                schemas=list(problem.schemas) or None,
                fix=problem.fix,
                replacements=fixes if problem.replacement is not None else None,
            )
        )
    return {
        "ok": outcome.ok(strict=strict),
        "config_dir": config_dir,
        "errors": outcome.count(LintLevel.ERROR),
        "warnings": outcome.count(LintLevel.WARNING),
        "infos": outcome.count(LintLevel.INFO),
        "schemas": [
            {
                "path": each.path,
                "graphs": list(each.graphs),
                "status": "error" if each.errors else "ok",
                "errors": each.errors,
            }
            for each in outcome.schemas
        ],
        "reports": [
            each.report.to_json(schema_source={"kind": "file", "path": each.schema}, query_path=each.path)
            | {"graphs": list(each.graphs)}
            for each in outcome.queries
        ],
        "not_checked": [{"query_path": path, "schema": schema} for schema, path in outcome.unchecked],
        "problems": [*problems, *(each.to_json() for each in outcome.diagnostics)],
    }


def source_lines(text: SourceText, region: Region) -> list[str]:
    """Return a region's line with its number, and below it a line that underlines the region."""
    line, data = text.line_span(region.line), text.data
    end = min(region.end, line.end)
    first = max(line.start, region.start - _BEFORE * _BYTES_PER_CHARACTER)
    last = min(line.end, end + _AFTER * _BYTES_PER_CHARACTER, region.start + (_INSIDE + _AFTER) * _BYTES_PER_CHARACTER)
    while line.start < first < region.start and _continues(data, first):
        first += 1
    while region.start < last < line.end and _continues(data, last):
        last -= 1
    end = min(end, last)
    # Bytes that are not UTF-8 are escaped.
    parts = (data[first : region.start], data[region.start : end], data[end:last])
    before, inside, after = (part.decode("utf-8", "backslashreplace") for part in parts)
    after = after.removesuffix("\r")
    begins = "…" if first > line.start or len(before) > _BEFORE else ""
    ends = "…" if last < line.end or len(inside) > _INSIDE or len(after) > _AFTER else ""
    before, inside = begins + _shown(before[-_BEFORE:]), _shown(inside[:_INSIDE])
    after = "" if ends and len(inside) >= _INSIDE else _shown(after[:_AFTER])
    gutter = " " * len(str(region.line))
    marks = " " * _width(before) + "^" * max(1, _width(inside))
    return [f"  {region.line} | {before}{inside}{after}{ends}".rstrip(), f"  {gutter} | {marks}"]


def _continues(data: bytes, offset: int) -> bool:
    """Return whether the offset is inside a multi-byte character."""
    return offset < len(data) and data[offset] & 0xC0 == 0x80  # noqa: PLR2004 - the bits of such a byte


def _shown(text: str) -> str:
    return visible(text.replace("\t", _TAB))


def _width(text: str) -> int:
    """Return the width of a text in terminal columns: wide letters take two, combining marks none."""
    wide = sum(unicodedata.east_asian_width(each) in "WF" for each in text)
    return len(text) + wide - sum(unicodedata.category(each) in ("Mn", "Me") for each in text)
