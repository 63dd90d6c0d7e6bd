"""Prints the crash matrix after a run of it: per store and verb, the deaths and what the second run had to do."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.fault.matrix import TABLE
from tests.fault.matrix_recovery import Recovery

_ROW = "{:<8} {:<13} {:>7} {:>7}" + " {:>15}" * len(Recovery)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table and its totals, of the cases that passed."""
    found = [
        value
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == TABLE
    ]
    if not found:
        return
    killed: dict[tuple[str, str], Counter[str]] = {}
    points: dict[tuple[str, str], set[str]] = {}
    for store, verb, point, recovery in found:
        killed.setdefault((store, verb), Counter())[recovery] += 1
        points.setdefault((store, verb), set()).add(point)
    say = terminalreporter.write_line
    terminalreporter.section("crash matrix")
    say(_ROW.format("store", "verb", "points", "killed", *(r.value for r in Recovery)))
    for (store, verb), ways in sorted(killed.items()):
        say(_ROW.format(store, verb, len(points[store, verb]), ways.total(), *(ways[r.value] for r in Recovery)))
    total = sum(killed.values(), Counter())
    every = {point for _, _, point, _ in found}
    say(_ROW.format("all", "", len(every), total.total(), *(total[r.value] for r in Recovery)))
