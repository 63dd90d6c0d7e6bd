"""Code that commands share: reading common options, printing, and returning exit codes."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

from gitops.core.codes import Code, remedy
from gitops.core.errors import GitopsError, UsageError
from gitops.render.characters import visible
from gitops.render.commands import completed
from gitops.repository.wiring.system import git_setting

if TYPE_CHECKING:
    from gitops.bot.context import Bot, ClusterReport
    from gitops.cluster.model.outcome import DrillOutcome, VerbOutcome
    from gitops.cluster.session.workspace import Workspace
    from gitops.database.graph.results import GraphOutcome
    from gitops.forge.port import Forge
    from gitops.git.port import Person
    from gitops.repository.wiring.local import LocalRepository
    from gitops.repository.wiring.system import Setting
    from gitops.review.tests.bind import BoundTest
    from gitops.review.tests.verdicts import QueryTestResult

OK, FAILED, USAGE = 0, 1, 2
"""Exit codes: no error, any error diagnostic, wrong usage."""

RULES = "gitops.yaml"

UNWRITTEN = "create the folder of the file first, or use a file that you can write"
"""Remedy for an output file that cannot be written."""

_RED, _GREEN, _YELLOW, _CYAN = "31", "32", "33", "36"
# Words at the start of report lines, and their colours. Text from a change request never starts such a line.
_STYLES = (
    (r"ERROR \S+|cluster [\w-]+ failed| +Delete \S+| {4,6}- ?.*| +waits: ", _RED),
    (r"WARN  \S+| +Update \S+| {6}~ .*|NOTE  ", _YELLOW),
    (r" +Create \S+| {4,6}\+ ?.*", _GREEN),
    (r" +fix: | +in sync: ", _CYAN),
)


_collecting: list[list[Mapping[str, Any]]] = []


def in_ci() -> bool:
    """Return True in a CI job."""
    return os.environ.get("CI", "").lower() in ("1", "true")


def actor_of(options: argparse.Namespace) -> str | None:
    """Return the person who runs the command: `--as`, or `git config gitops.actor`, or None."""
    given: str | None = getattr(options, "actor", None)
    return given or git_setting("gitops.actor", getattr(options, "config", None) or ".")


def open_repository(
    options: argparse.Namespace,
    *,
    offline: bool = False,
    login: Callable[[Setting], Callable[[str], str]] | None = None,
    forge: str | None = None,
) -> LocalRepository:
    """Open the repository that `--repo` selects, or the one that contains `--config` or the current folder, with `--remote`.

    `forge` is the kind of forge, if the caller knows it.
    """
    from gitops.repository.wiring.local import LocalRepository

    path = options.repo or getattr(options, "config", None) or "."
    local = LocalRepository(path, options.remote, offline=offline, login=login)
    if options.remote is not None or offline:
        return local
    if local.git.work_tree is not None or local.git.setting("remote.origin.url") is None:
        return local
    # A bare clone of a repository on a forge has only a copy of the ledger.
    try:
        kind = forge or local.config().forge.kind
    except GitopsError:
        return local  # gitops.yaml may be broken or missing
    return local if kind in (None, "local") else LocalRepository(path, "origin", login=login)


def bot_of(
    local: LocalRepository,
    forge: Forge,
    forge_kind: str,
    person: Person,
    on_report: Callable[[ClusterReport], object] = lambda _: None,
    *,
    run_url: str = "",
    silent: bool = False,
    private: bool = False,
) -> Bot:
    """Return a repository's bot.

    It signs attestations if it has a key. A `silent` bot neither writes nor signs. `private` means that only members of
    the repository can read its comments.
    """
    from gitops.bot.context import Bot
    from gitops.repository.wiring.previews import MachinePreviews

    def drill(workspace: Workspace) -> DrillOutcome:
        from gitops.repository.wiring.drill import run_drill

        return run_drill(workspace)

    local.forge_kind = forge_kind
    return Bot(
        repository=local,
        forge=forge,
        actor=local.git.setting("gitops.actor") or person.email,
        person=None if silent else person,
        approval_publisher=None if silent else local.attestation_publishers(person),
        run_url=run_url,
        on_report=on_report,
        drill=drill,
        previews=None if silent else MachinePreviews(local, os.environ),
        private=private,
        run_tests=run_plan_tests,
    )


def run_plan_tests(tests: Sequence[BoundTest], workers: int, budget_s: float) -> Sequence[QueryTestResult]:
    """Judge the query tests of a plan in worker processes."""
    from gitops.review.tests.run import run_tests

    return run_tests(tests, workers=workers, budget_s=budget_s)


def shown_folder(options: argparse.Namespace, path: str) -> str:
    """Return a cluster folder as problems show it: relative to the start folder, or absolute in a CI job.

    `path` comes from `--config` or is the current folder; for a commit, it is relative to the root of the repository.
    """
    given, opened = getattr(options, "config", None), getattr(options, "opened", None)
    root = None if opened is None else opened.git.work_tree
    return from_here(path, root) if given is None else from_here(given)


def rules_folder(options: argparse.Namespace) -> str:
    """Return the folder of `gitops.yaml` as problems show it. A command's error never refers to another file."""
    named = (getattr(options, name, None) for name in ("repo", "config"))
    root = checkout(next((each for each in named if isinstance(each, str)), "."))
    return from_here("", root)


def checkout(folder: str) -> str | None:
    """Return the root of the work tree that contains a folder, or None if it has no `gitops.yaml`."""
    current = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    while not os.path.lexists(os.path.join(current, ".git")):  # noqa: PTH118
        parent = os.path.dirname(current)  # noqa: PTH120
        if parent == current:
            return None
        current = parent
    return current if os.path.lexists(os.path.join(current, RULES)) else None  # noqa: PTH118


def from_here(path: str, root: str | None = None) -> str:
    """Return a path, or a path below `root`, relative to the start folder; in a CI job it is absolute."""
    whole = os.path.abspath(os.path.join(root or "", path))  # noqa: PTH100, PTH118 - links stay as they are
    return whole if in_ci() else os.path.relpath(whole, os.environ.get("GIT_PREFIX") or None)


def show(result: VerbOutcome | GraphOutcome, options: argparse.Namespace) -> int:
    """Print a command's result as text or as one JSON document, and return the exit code."""
    # Commands import only the results and formats that they use. Results about rows have a different JSON form.
    if hasattr(result, "to_json"):
        import shutil

        from gitops.database.graph.results import GraphReport
        from gitops.render.graph_data import graph_form, graph_text

        data = cast("GraphOutcome", result)
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        if options.json:
            show_form(graph_form(data))
        elif not (options.quiet and data.ok and isinstance(data, GraphReport)):
            say(graph_text(data, options.graph, width=width))
        return OK if data.ok else FAILED
    if options.json:
        from gitops.render.json import envelope

        show_form(envelope(result))
    else:
        from gitops.render.text import to_text

        folder = shown_folder(options, getattr(result, "config_dir", ""))
        if text := to_text(result, folder=folder, quiet=options.quiet, verbose=options.verbose):
            say_coloured(text, options)
    return OK if result.ok else FAILED


def show_form(form: Mapping[str, Any]) -> None:
    """Print a command's JSON document, including `ok` and `problems`."""
    if missing := {"ok", "problems"} - form.keys():
        raise KeyError(*missing)
    form = {**form, **{name: list(map(_completed, form[name])) for name in ("problems", "diagnostics") if name in form}}
    if _collecting:
        _collecting[-1].append(form)
    else:
        show_document(form)


def _completed(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**problem, **{name: completed(problem[name]) for name in ("message", "fix") if problem.get(name)}}


def show_document(form: Mapping[str, Any]) -> None:
    """Print a document in a different format, such as SARIF."""
    from gitops.render.json_text import to_text

    say(to_text(form))


@contextmanager
def collected(wanted: bool) -> Iterator[list[Mapping[str, Any]]]:
    """If `wanted`, collect the documents that commands in the block would otherwise print."""
    found = list[Mapping[str, Any]]()
    _collecting.extend([found] if wanted else [])
    try:
        yield found
    finally:
        if wanted:
            _collecting.remove(found)


def say_report(report: str, options: argparse.Namespace, *, ok: bool = True) -> None:
    """Print a command's report. `--quiet` omits it if `ok` is True."""
    if not (options.quiet and ok):
        say_coloured(report, options)


def say_coloured(text: str, options: argparse.Namespace) -> None:
    """Print lines, coloured on a terminal."""
    say(_painted(text, options, sys.stdout))


def _painted(report: str, options: argparse.Namespace, output: TextIO) -> str:
    """Add colours to a report if the terminal `output` supports them and the user has not disabled them: https://no-color.org."""
    wanted = not (options.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")
    if not (wanted and output.isatty()):
        return report
    return coloured(report)


def coloured(report: str) -> str:
    """Add colours to a report whose lines don't contain terminal control characters.

    Colours only repeat the meaning of words and symbols in a line.
    """
    lines = []
    for line in report.splitlines(keepends=True):
        shown = line
        for begin, colour in _STYLES:
            if (found := re.match(begin, line, re.ASCII)) is not None:
                shown = f"\x1b[{colour}m{found[0]}\x1b[0m{line[found.end() :]}"
                break
        lines.append(shown)
    return "".join(lines)


def show_error(error: GitopsError, options: argparse.Namespace, *, as_json: bool) -> int:
    """Print the problem that ended a command without an outcome, and return the exit code.

    The remedy includes the graph or its `--root` for a command on one graph, and the command itself for a wrong command
    line.
    """
    from gitops.cluster.model.address import graph_address, is_name
    from gitops.core.diagnostics import Diagnostics
    from gitops.render.text import diagnostic_lines

    problems = Diagnostics()
    fix, graph = error.fix, getattr(options, "graph", None)
    if fix is None and error.code == Code.USAGE_ERROR:
        fix = _usage_remedy(error.detail, options)
    root = getattr(options, "root", None)
    if fix is None and error.code == Code.GRAPH_MISSING and root is not None:
        fix = f"correct --root {root}: it must be the root of one graph, such as FOLDER/graphs/GRAPH.omni"
    if isinstance(graph, str) and is_name(graph):
        fix = remedy(error.code, graph_address(graph)) if fix is None else re.sub(r"\bGRAPH\b", graph, fix)
    error.fix = fix
    problems.add_error(error)
    if as_json:
        # Like the JSON of verbs, it uses the name that programs written for the first release expect.
        show_form({"ok": False, "problems": problems.to_json(), "diagnostics": problems.to_json()})
    else:
        lines = diagnostic_lines(problems, folder=rules_folder(options))
        complain(_painted("\n".join(map(visible, lines)), options, sys.stderr))
    return USAGE if isinstance(error, UsageError) else FAILED


def _usage_remedy(detail: str, options: argparse.Namespace) -> str:
    """Describe the options that an error mentions; if there are none, return the command that lists them.

    Empty if the error itself lists the known values.
    """
    if re.search(r"did you mean `|; known: ", detail):
        return ""
    command = getattr(options, "command", None)
    named = set(re.findall(r"(?<!\S)--[a-z-]+", detail))
    known = () if command is None else command.arguments
    if meant := [f"{each.label}: {each.meaning}" for each in known if each.name in named]:
        return "; ".join(meant)
    return (remedy(Code.USAGE_ERROR, "") or "").replace("gitops COMMAND", getattr(options, "prog", "gitops COMMAND"))


def say(text: str, *, flush: bool = False) -> None:
    """Print to standard output, with one newline at the end. With `flush`, the text appears immediately."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    if flush:
        sys.stdout.flush()


def shows_progress(options: argparse.Namespace) -> bool:
    """Return True if a command can show its progress on standard error."""
    return not (options.json or options.quiet)


def lasting(stream: TextIO) -> Callable[[str], None]:
    """Return a function that prints untrusted lines and flushes each one.

    It continues after the reader disconnects, because a closed connection must not interrupt an apply.
    """

    def write(line: str) -> None:
        try:
            stream.write(visible(line) + "\n")
            stream.flush()
        except BrokenPipeError:
            # When the process ends, the rest of the buffer goes there too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())

    return write


def say_lines(lines: Iterable[str]) -> None:
    """Print these lines, if any. Their text can be untrusted."""
    sys.stdout.write("".join(visible(line) + "\n" for line in lines))


def complain(text: str) -> None:
    """Print an error message to standard error."""
    sys.stderr.write(text + "\n")
