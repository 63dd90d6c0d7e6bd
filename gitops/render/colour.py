"""Colours for reports on a terminal. They repeat what words and signs of a line say, and mean nothing by themselves."""

from __future__ import annotations

import re

_RED, _GREEN, _YELLOW, _CYAN = "31", "32", "33", "36"
# What begins a line of a report, and its colour. No such line begins with the text of a change request.
_STYLES = (
    (re.compile(r"ERROR \S+|cluster [\w-]+ failed| +Delete \S+| {4,6}- ?.*| +waits: ", re.ASCII), _RED),
    (re.compile(r"WARN  \S+| +Update \S+| {6}~ .*|NOTE  ", re.ASCII), _YELLOW),
    (re.compile(r" +Create \S+| {4,6}\+ ?.*", re.ASCII), _GREEN),
    (re.compile(r" +fix: | +in sync: ", re.ASCII), _CYAN),
)


def coloured(report: str) -> str:
    """A report whose lines contain no character that controls a terminal, with colours."""
    return "".join(map(_line, report.splitlines(keepends=True)))


def _line(line: str) -> str:
    for pattern, colour in _STYLES:
        if (found := pattern.match(line)) is not None:
            return f"\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
    return line
