"""`gitops strategies simulate`: strategies against a described world, or against the days that a target recorded."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta
from pathlib import Path

from gitops.cli.shared import FAILED, OK, UNWRITTEN, say_report, show_form
from gitops.compute.strategies.scenario import read_scenario
from gitops.compute.strategies.simulation import Scenario, Timeline, simulate
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError, system_reason
from gitops.render.characters import visible
from gitops.render.strategies import comparison_lines, timeline_form, timeline_lines, to_plot
from gitops.render.text import diagnostic_lines

_DAYS = 7


def play(options: argparse.Namespace) -> int:
    """`gitops strategies simulate`: exit code 1 for a scenario that is not valid."""
    if options.from_audit is not None:
        return _replay(options)
    if options.last is not None:
        fix = "gitops strategies simulate --from-audit --last 7d"
        raise UsageError(Code.USAGE_ERROR, "--last is about what a target recorded", fix=fix)
    found = Diagnostics()
    scenario = _scenario(options.scenario, found)
    against = None if options.against is None else _scenario(options.against, found)
    if scenario is None or (options.against is not None and against is None):
        return _show([], {}, found, options)
    timeline = simulate(scenario)
    before: Timeline | None = None if against is None else simulate(against)
    _plot(timeline, options)
    lines = timeline_lines(timeline)
    form = {**timeline_form(timeline), "against": None if before is None else timeline_form(before)["usage"]}
    if before is not None:
        lines = [*lines, "", f"{options.against} -> {options.scenario}", *comparison_lines(before, timeline)]
    return _show(lines, {key: value for key, value in form.items() if value is not None}, found, options)


def _replay(options: argparse.Namespace) -> int:
    """Play what targets recorded, with the applied strategies and with those of the folder."""
    from gitops.cli.cluster import planning_workspace
    from gitops.cli.ticks import exit_code, opening, say_lines
    from gitops.compute.ticks.replays import replays
    from gitops.compute.ticks.targets import Selection
    from gitops.render.strategies import replay_form, replay_lines

    if options.against is not None:
        detail = "--against compares scenarios: --from-audit compares the declared strategies with the applied ones"
        raise UsageError(Code.USAGE_ERROR, detail, fix="leave out --against")
    name = re.compile(rf"\A{re.escape(options.from_audit)}\Z") if options.from_audit else None
    workspace = planning_workspace(argparse.Namespace(**vars(options), request=None))
    last = options.last or timedelta(days=_DAYS)
    outcome = replays(workspace, opening(options, workspace), Selection(name, options.target), last=last)
    if options.svg is not None and len(outcome.replayed) > 1:
        keys = ", ".join(each.key for each in outcome.replayed)
        raise UsageError(Code.USAGE_ERROR, f"--svg draws one compute cluster: name one of {keys} behind --from-audit")
    for each in outcome.replayed:
        _plot(each.after, options)
    if options.json:
        show_form(replay_form(outcome))
    else:
        say_lines(replay_lines(outcome), outcome, options)
    unreachable = {each.code for each in outcome.diagnostics} == {Code.TARGET_UNREACHABLE}
    return exit_code(outcome, loaded=outcome.loaded, unreachable=unreachable)


def _plot(timeline: Timeline, options: argparse.Namespace) -> None:
    if options.svg is None:
        return
    try:
        Path(options.svg).write_text(to_plot(timeline), encoding="utf-8")
    except OSError as error:
        raise UsageError(Code.USAGE_ERROR, f"--svg {system_reason(error, options.svg)}", fix=UNWRITTEN) from error


def _scenario(path: str, found: Diagnostics) -> Scenario | None:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        fix = "name a file that exists and that you may read"
        raise UsageError(Code.USAGE_ERROR, system_reason(error, path), fix=fix) from error
    return read_scenario(data, path, found)


def _show(lines: list[str], form: dict[str, object], found: Diagnostics, options: argparse.Namespace) -> int:
    ok = not found.has_errors
    if options.json:
        show_form({"ok": ok, **form, "diagnostics": found.to_json()})
    else:
        said = [*lines, *diagnostic_lines(found)]
        say_report("\n".join(map(visible, said)), options, ok=ok and not len(found))
    return OK if ok else FAILED
