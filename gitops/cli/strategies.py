"""`gitops strategies`: what the declared strategies of compute clusters do."""

from __future__ import annotations

import argparse
from pathlib import Path

from gitops.cli.shared import FAILED, OK, say_report, show_form
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError, system_reason
from gitops.render.characters import visible
from gitops.render.strategies import comparison_lines, timeline_form, timeline_lines, to_plot
from gitops.render.text import diagnostic_lines
from gitops.strategies.scenario import read_scenario
from gitops.strategies.simulation import Scenario, Timeline, simulate


def play(options: argparse.Namespace) -> int:
    """`gitops strategies simulate`: exit code 1 for a scenario that is not valid."""
    found = Diagnostics()
    scenario = _scenario(options.scenario, found)
    against = None if options.against is None else _scenario(options.against, found)
    if scenario is None or (options.against is not None and against is None):
        return _show([], {}, found, options)
    timeline = simulate(scenario)
    before: Timeline | None = None if against is None else simulate(against)
    if options.svg is not None:
        try:
            Path(options.svg).write_text(to_plot(timeline), encoding="utf-8")
        except OSError as error:
            detail = f"--svg {options.svg}: {system_reason(error, options.svg)}"
            raise UsageError(Code.USAGE_ERROR, detail) from error
    lines = timeline_lines(timeline)
    form = {**timeline_form(timeline), "against": None if before is None else timeline_form(before)["usage"]}
    if before is not None:
        lines = [*lines, "", f"{options.against} -> {options.scenario}", *comparison_lines(before, timeline)]
    return _show(lines, {key: value for key, value in form.items() if value is not None}, found, options)


def _scenario(path: str, found: Diagnostics) -> Scenario | None:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(Code.USAGE_ERROR, f"{path}: {system_reason(error, path)}") from error
    return read_scenario(data, path, found)


def _show(lines: list[str], form: dict[str, object], found: Diagnostics, options: argparse.Namespace) -> int:
    ok = not found.has_errors
    if options.json:
        show_form({"ok": ok, **form, "diagnostics": found.to_json()})
    else:
        said = [*lines, *diagnostic_lines(found)]
        say_report("\n".join(map(visible, said)), options, ok=ok and not len(found))
    return OK if ok else FAILED
