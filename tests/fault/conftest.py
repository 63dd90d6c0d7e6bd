"""Prints the crash matrix after a run of it: per store and verb, the deaths and what the second run had to do.

And the table of the crash campaign of the engine, likewise.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.fault import engine_table
from tests.fault.matrix import TABLE
from tests.fault.matrix_recovery import Recovery
from tests.support import prefork


@pytest.fixture(scope="session", autouse=True)
def program() -> None:
    """What dies by its own hand is forked from a process that has its imports behind it."""
    prefork.start()


_ROW = "{:<8} {:<13} {:>7} {:>7}" + " {:>15}" * len(Recovery)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tables and their totals, of the cases that passed."""
    deaths = _values(terminalreporter, engine_table.TABLE)
    if deaths:
        terminalreporter.section("crash campaign of the engine")
        engine_table.print_table(deaths, terminalreporter.write_line)
    found = _values(terminalreporter, TABLE)
    if found:
        _print_matrix(terminalreporter, found)


def _values(terminalreporter: pytest.TerminalReporter, table: str) -> list[Any]:
    reports = terminalreporter.getreports("passed")
    return [value for report in reports for name, value in report.user_properties if name == table]


def _print_matrix(terminalreporter: pytest.TerminalReporter, found: list[Any]) -> None:
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
