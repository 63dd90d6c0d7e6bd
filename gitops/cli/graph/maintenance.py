"""`gitops graph preview`, `optimize`, `gc` and `verify`: a graph kept in order."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from datetime import timedelta

from gitops.cli.graph.inputs import records_of, root_of
from gitops.cli.options import actor_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.graph.engine import driver
from gitops.graph.history.work import Work
from gitops.render.characters import visible
from gitops.render.json import to_line
from gitops.wiring.system import RandomIds, SystemClock

_AGE = re.compile(r"([0-9]{1,6})([dhm])")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
_MIB = 2**20


@driver()
def optimize(options: argparse.Namespace) -> int:
    """`gitops graph optimize GRAPH`."""
    from gitops.graph.history.optimize import OptimizeOptions
    from gitops.graph.history.optimize import optimize as run

    chosen = OptimizeOptions()
    if not options.vectors:
        chosen = replace(chosen, vector_rows=2**62)
    form = run(root_of(options), _work(options), chosen, options.branch).to_json()
    if options.json:
        show_form({"ok": True, **form, "diagnostics": []})
        return OK
    say(
        f"graph optimize: {len(form['tables'])} table(s) of {options.graph}, manifest version {form['manifest_version']}"
    )
    for key, steps in form["tables"].items():
        say(visible(f"  {key}: {', '.join(steps)}"))
    return OK


@driver()
def gc(options: argparse.Namespace) -> int:
    """`gitops graph gc GRAPH`."""
    from gitops.graph.history.gc import Retention
    from gitops.graph.history.gc import gc as run

    match = _AGE.fullmatch(options.older_than)
    if match is None:
        raise UsageError(
            Code.USAGE_ERROR, f"--older-than {options.older_than[:40]!r}: use an age such as 7d, 12h or 30m"
        )
    if options.keep < 1:
        raise UsageError(Code.USAGE_ERROR, "--keep must be at least 1: the newest version of a branch always stays")
    age = timedelta(**{_UNITS[match[2]]: int(match[1])})
    result = run(root_of(options), _work(options), Retention(options.keep, age), dry_run=options.dry_run)
    if options.json:
        show_form({"ok": True, **result.to_json(), "diagnostics": []})
        return OK
    tables = sum(map(len, result.table_versions.values()))
    freed = f"{result.bytes / _MIB:.1f} MiB in {result.manifests} version(s), {tables} table version(s)"
    said = "would free about" if options.dry_run else "freed"
    say(f"graph gc: {said} {freed} and {len(result.paths)} file(s) or folder(s) of {options.graph}")
    return OK


@driver()
def purge(options: argparse.Namespace) -> int:
    """`gitops graph purge GRAPH`: nothing goes unless the options say so."""
    from gitops.graph.history.purge import purge_dropped

    if not (options.allow_data_loss or options.dry_run):
        raise UsageError(
            Code.USAGE_ERROR, "this cannot be undone: look first with --dry-run, then add --allow-data-loss"
        )
    result = purge_dropped(root_of(options), _work(options), dry_run=options.dry_run)
    if options.json:
        show_form({"ok": True, **result.to_json(), "diagnostics": []})
        return OK
    count = len(result.types) + sum(map(len, result.properties.values()))
    said = "would remove" if options.dry_run else "removed"
    say(f"graph purge: {said} {count} dropped type(s) and properties of {options.graph} for good")
    for key in result.types:
        say(visible(f"  {key}"))
    for key in sorted(result.properties):
        say(visible(f"  {key}: {', '.join(result.properties[key])}"))
    return OK


@driver()
def verify(options: argparse.Namespace) -> int:
    """`gitops graph verify GRAPH`; exit code 1 when anything is wrong."""
    from gitops.graph.history.verify import verify as run

    report = run(root_of(options), deep=options.deep)
    if options.json:
        show_form({**report.to_json(), "diagnostics": []})
        return OK if report.ok else FAILED
    problems = [finding for finding in report.findings if finding.is_problem]
    looked = f"{report.manifests} version(s), {report.table_versions} table version(s)"
    say(f"graph verify: {len(problems)} problem(s) in {looked} of {options.graph}")
    for finding in report.findings:
        sign = "problem" if finding.is_problem else "note"
        say(visible(f"  {sign} {finding.code.value}: {finding.path}: {finding.detail}"))
    return OK if report.ok else FAILED


@driver()
def preview(options: argparse.Namespace) -> int:
    """`gitops graph preview GRAPH FILE`; exit code 1 for a schema that the graph cannot be taken to."""
    from gitops.graph.history.preview import preview_on_branch

    with records_of(options.schema) as file:
        source = file.read()
    result = preview_on_branch(root_of(options), source, _work(options))
    form = result.to_json()
    if options.json:
        show_form({"ok": result.supported, **form, "diagnostics": []})
        return OK if result.supported else FAILED
    verdict = "can be migrated" if result.supported else "cannot be migrated"
    say(f"graph preview: {options.graph} at version {result.manifest_version} {verdict}, {len(result.steps)} step(s)")
    for effect in result.steps:
        rows = "" if effect.rows is None else f" ({effect.rows} row(s))"
        say(visible(f"  {to_line(effect.step.to_json())}{rows}"))
    for key, count in form["tables"].items():
        say(visible(f"  then {key}: {count} row(s)"))
    return OK if result.supported else FAILED


def _work(options: argparse.Namespace) -> Work:
    return Work(SystemClock(), RandomIds(), actor_of(options))
