"""`gitops strategies`: runs applied strategies on targets' replicas, and predicts their actions.

A target's URL comes from --postgres-url, otherwise from DATABASE_URL, otherwise from the variable given in
`cluster.yaml`. Variables come from the environment, then from a `.env` file next to `cluster.yaml`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cli.cluster import to_read, to_write
from gitops.cli.shared import (
    FAILED,
    OK,
    UNWRITTEN,
    USAGE,
    complain,
    say,
    say_report,
    show_document,
    show_form,
    shown_folder,
)
from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.compute.strategies.simulation import Scenario, Timeline, read_scenario, simulate
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import UsageError, system_reason
from gitops.core.redact import Secret
from gitops.render.characters import visible
from gitops.render.strategies import comparison_lines, timeline_form, timeline_lines, to_plot
from gitops.render.text import diagnostic_lines

if TYPE_CHECKING:
    from gitops.cluster.model.compute import ComputeTarget
    from gitops.cluster.model.outcome import VerbOutcome
    from gitops.cluster.session.workspace import OpenTarget, Workspace
    from gitops.cluster.targets.port import StrategyTarget
    from gitops.compute.ticks.tick import MemoryOutcome, Ticking, TickOutcome

_UNREACHABLE = 3
_OVERRIDE = "DATABASE_URL"
_ENV_FILE = ".env"
_ENV_LINE = re.compile(r"""(?:export +)?([A-Za-z_][A-Za-z0-9_]*)=(?:'([^']*)'|"([^"]*)"|([^\s'"#`\\]*))\s*\Z""")


def dry_run(options: argparse.Namespace) -> int:
    """`gitops strategies dry-run`: decide without writing anything."""
    from gitops.compute.ticks.tick import preview

    (workspace,) = to_read(options)
    outcome, form = preview(workspace, _how(options, workspace)), options.graph_format
    if not (form or options.show_graph) or not outcome.loaded:
        return _show_tick(outcome, options)
    from gitops.compute.ticks.graph import tick_graph
    from gitops.render.graph import to_json, to_mermaid, to_text
    from gitops.render.strategies import tick_form

    graph = tick_graph(outcome.actions)
    if form == "mermaid":
        say(to_mermaid(graph))
    elif form == "json":
        show_document(to_json(graph))
    elif options.json:
        show_form({**tick_form(outcome), "execution_graph": to_json(graph)})
    else:
        _show_tick(outcome, options)
        say(f"\n{to_text(graph)}")
    return exit_code(outcome, loaded=True, unreachable=outcome.unreachable)


def apply(options: argparse.Namespace) -> int:
    """`gitops strategies apply`: run one tick."""
    from dataclasses import replace

    from gitops.cli.progress import heeding_signals, watching
    from gitops.compute.ticks.tick import tick

    with heeding_signals() as cancel:
        with watching(options) as on_event:
            (workspace,) = to_write(options)
            outcome = tick(replace(workspace, on_event=on_event, cancel=cancel), _how(options, workspace))
            if options.log_format == "json":
                from gitops.render.strategies import tick_line

                complain(tick_line(outcome, workspace.stamp()))
        return _show_tick(outcome, options)


def wipe_state(options: argparse.Namespace) -> int:
    """`gitops strategies wipe-state`: delete stored strategy states."""
    from gitops.compute.ticks.tick import Wipe, wipe

    what = Wipe.EVERYTHING if options.recreate else Wipe.ORPHANS if options.orphans else Wipe.CHOSEN
    (workspace,) = to_write(options)
    return _show_memory(wipe(workspace, _how(options, workspace), what), ("row", "deleted"), options)


def wake(options: argparse.Namespace) -> int:
    """`gitops strategies wake`: resume a suspended compute cluster."""
    from gitops.compute.ticks.tick import wake as run

    (workspace,) = to_write(options)
    outcome = run(workspace, _how(options, workspace), options.name)
    return _show_memory(outcome, ("compute cluster", "woken"), options)


def _show_tick(outcome: TickOutcome, options: argparse.Namespace) -> int:
    from gitops.render.strategies import tick_form, tick_lines

    if options.json:
        show_form(tick_form(outcome))
    else:
        lines = tick_lines(outcome, table=sys.stdout.isatty(), verbose=options.verbose) if outcome.loaded else []
        say_lines(lines, outcome, options)
    return exit_code(outcome, loaded=outcome.loaded, unreachable=outcome.unreachable)


def _show_memory(outcome: MemoryOutcome, done: tuple[str, str], options: argparse.Namespace) -> int:
    from gitops.render.strategies import memory_form, memory_lines

    if options.json:
        show_form(memory_form(outcome))
    else:
        say_lines(memory_lines(outcome, *done), outcome, options)
    unreachable = {each.code for each in outcome.diagnostics} == {Code.TARGET_UNREACHABLE}
    return exit_code(outcome, loaded=outcome.loaded, unreachable=unreachable)


def say_lines(lines: list[str], outcome: VerbOutcome, options: argparse.Namespace) -> None:
    """Print a command's results and its problems."""
    from gitops.render.text import diagnostic_lines

    folder = shown_folder(options, outcome.config_dir)
    said = [*lines, *diagnostic_lines(outcome.diagnostics, folder=folder, verbose=options.verbose)]
    say_report("\n".join(map(visible, said)), options, ok=outcome.ok and not outcome.diagnostics)


def exit_code(outcome: VerbOutcome, *, loaded: bool, unreachable: bool) -> int:
    """Return the exit code for a command that works on targets."""
    if not loaded:
        return USAGE
    if unreachable:
        return _UNREACHABLE
    return OK if outcome.ok else FAILED


def _how(options: argparse.Namespace, workspace: Workspace) -> Ticking:
    from gitops.compute.ticks.targets import Selection
    from gitops.compute.ticks.tick import Ticking

    pattern: re.Pattern[str] | None = None
    if (text := getattr(options, "pattern", None)) is not None:
        try:
            pattern = re.compile(text)
        except re.error as error:
            where = "" if error.pos is None else f" at character {error.pos + 1}"
            detail = f"the compute cluster filter {text[:80]!r} is not a regular expression: {error.msg}{where}"
            raise UsageError(Code.USAGE_ERROR, detail) from error
    scheduled = getattr(options, "scheduled", False)
    return Ticking(opening(options, workspace), Selection(pattern, options.target), scheduled=scheduled)


def opening(options: argparse.Namespace, workspace: Workspace) -> OpenTarget:
    """Return the function that opens a target for a command. Raises UsageError for an invalid `.env` file."""
    folder = Path(options.config or ".")
    if not (folder / CONFIG_FILE).exists():
        # In a clone whose ledger is a branch. A bare repository has no files.
        folder = Path(options.repo or ".") / workspace.config_dir
    return _Opening(options, _variables(folder))


def _variables(folder: Path) -> Mapping[str, str]:
    """Return the environment plus the variables of a `.env` file in the cluster folder.

    Raises UsageError if it is invalid.
    """
    path = folder / _ENV_FILE
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return os.environ
    except OSError as error:
        raise UsageError(Code.USAGE_ERROR, system_reason(error, path), fix="use a file that you can read") from error
    return {**_parse_env(data, str(path)), **os.environ}


class _Opening:
    """Opens the targets of one command. An address given by an option applies to a single target only."""

    def __init__(self, options: argparse.Namespace, variables: Mapping[str, str]) -> None:
        self._given, self._variables = options.postgres_url, variables
        self._chosen: str | None = options.target
        self._query_cluster: str | None = options.query_cluster
        self._opened: set[str] = set()

    def __call__(self, target: ComputeTarget) -> StrategyTarget:
        """Return a target that is not connected yet.

        Raises UsageError `target_unnamed`, and the errors of the wiring.
        """
        from gitops.cluster.targets.projection import place_of
        from gitops.repository.wiring import stores

        url, place = self._given or self._variables.get(_OVERRIDE), place_of(target.name)
        if not url:
            return stores.declared_target(self._variables, target, query_cluster=self._query_cluster)
        self._opened.add(target.name)
        if self._chosen is None and len(self._opened) > 1:
            detail = f"one URL is given for several targets: {', '.join(sorted(self._opened))}"
            raise UsageError(Code.TARGET_UNNAMED, detail, path=place)
        secret = Secret("--postgres-url" if self._given else _OVERRIDE, url)
        name, query_cluster = target.application_name, self._query_cluster
        return stores.open_target(place, secret, application_name=name, query_cluster=query_cluster)


# -- `gitops strategies simulate`: a scenario, or the history that a target recorded -----------------------------------

_DAYS = 7


def play(options: argparse.Namespace) -> int:
    """`gitops strategies simulate`. Exits 1 if the scenario is invalid."""
    if options.from_audit is not None:
        return _replay(options)
    if options.last is not None:
        fix = "gitops strategies simulate --from-audit --last 7d"
        raise UsageError(Code.USAGE_ERROR, "--last needs --from-audit, because it selects recorded statements", fix=fix)
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
    """Replay the recorded history of targets with the applied strategies and with those of the folder."""
    from gitops.cli.cluster import planning_workspace
    from gitops.compute.ticks.targets import Selection
    from gitops.compute.ticks.what_if import replays
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
        raise UsageError(Code.USAGE_ERROR, f"--svg draws one compute cluster: name one of {keys} after --from-audit")
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
        fix = "use a file that exists and that you can read"
        raise UsageError(Code.USAGE_ERROR, system_reason(error, path), fix=fix) from error
    return read_scenario(data, path, found)


def _show(lines: list[str], form: dict[str, object], found: Diagnostics, options: argparse.Namespace) -> int:
    ok = not found.has_errors
    if options.json:
        show_form({"ok": ok, **form, "problems": found.to_json()})
    else:
        said = [*lines, *diagnostic_lines(found, verbose=options.verbose)]
        say_report("\n".join(map(visible, said)), options, ok=ok and not len(found))
    return OK if ok else FAILED


def _parse_env(data: bytes, place: str) -> Mapping[str, str]:
    """Parse a `.env` file with one `NAME=VALUE` per line. Blank lines and lines that begin with `#` are ignored.

    A value can be in single or double quotes; nothing in it is expanded or escaped. Everything else is refused, because
    a value that a shell would read differently must not become an address or a password. Raises UsageError
    `usage_error` with the line number, but not with the content of the line.
    """
    found: dict[str, str] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UsageError(Code.USAGE_ERROR, f"{place} is not UTF-8 text", fix="save it as UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _ENV_LINE.match(line.strip())
        if match is None:
            fix = "write a value with spaces or quotes between single quotes: NAME='VALUE'"
            raise UsageError(Code.USAGE_ERROR, f"{place}:{number} is not NAME=VALUE", fix=fix)
        if match[1] in found:
            raise UsageError(Code.USAGE_ERROR, f"{place}:{number} sets {match[1]} again", fix="delete one of the lines")
        found[match[1]] = next(each for each in (*match.groups()[1:], "") if each is not None)
    return found
