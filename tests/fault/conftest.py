"""Prints the crash matrix after a run of it: per store and verb, the deaths and what the second run had to do.

And the tables of runs that land whole or not at all, of the crash campaign of the engine and of the faults of ticks, likewise.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.fault import atomic_matrix, engine_campaign, tick_campaign
from tests.fault.atomic_matrix import Ending
from tests.fault.matrix import TABLE, Recovery
from tests.support import prefork


@pytest.fixture(scope="session", autouse=True)
def program() -> None:
    """What dies by its own hand is forked from a process that has its imports behind it."""
    prefork.start()


_ROW = "{:<8} {:<13} {:>7} {:>7}" + " {:>15}" * len(Recovery)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tables and their totals, of the cases that passed."""
    deaths = _values(terminalreporter, engine_campaign.TABLE)
    if deaths:
        terminalreporter.section("crash campaign of the engine")
        engine_campaign.print_table(deaths, terminalreporter.write_line)
    found = _values(terminalreporter, TABLE)
    if found:
        _print_matrix(terminalreporter, found)
    ticks = _values(terminalreporter, tick_campaign.TABLE)
    if ticks:
        terminalreporter.section("faults of targets at the statements of ticks")
        tick_campaign.print_table(ticks, terminalreporter.write_line)
    atomic = _values(terminalreporter, atomic_matrix.TABLE, "passed", "failed")
    if atomic:
        _print_atomic(terminalreporter, atomic)


def _values(terminalreporter: pytest.TerminalReporter, table: str, *outcomes: str) -> list[Any]:
    found = [report for outcome in outcomes or ("passed",) for report in terminalreporter.getreports(outcome)]
    # The report of a subtest repeats what its test has said so far.
    reports = [report for report in found if not isinstance(report, pytest.SubtestReport)]
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


def _print_atomic(terminalreporter: pytest.TerminalReporter, found: list[Any]) -> None:
    row = "{:<8} {:<11} {:>7} {:>7}" + " {:>15}" * len(Ending) + "  {}"
    say = terminalreporter.write_line
    terminalreporter.section("crash matrix of runs that land whole or not at all")
    say(row.format("store", "run", "points", "killed", *(each.value for each in Ending), "recovered by"))
    names = sorted({(store, story) for store, story, *_ in found})
    for store, story in [*names, ("all", "")]:
        deaths = [death for death in found if store == "all" or (store, story) == tuple(death[:2])]
        ways, by = Counter(death[3] for death in deaths), Counter(death[4] for death in deaths)
        points = {death[2] for death in deaths}
        commands = ", ".join(f"{name} {count}" for name, count in sorted(by.items()))
        say(row.format(store, story, len(points), len(deaths), *(ways[each.value] for each in Ending), commands))
