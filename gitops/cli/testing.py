"""`gitops test`: runs the tests of stored queries and policies in a cluster folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

from gitops.cli.finding import cluster_folder, folders_of_tests
from gitops.cli.shared import FAILED, OK, RULES, UNWRITTEN, checkout, say, say_report, show_form, shown_folder
from gitops.cli.texts import relative_paths, relative_to, replace_file
from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.config.load import load_desired
from gitops.cluster.session.fmt import FileLayout
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity, SourceRef
from gitops.core.errors import GitopsError, RemoteError, UsageError, system_reason
from gitops.render.characters import visible
from gitops.render.json_text import to_text
from gitops.render.verdicts import verdicts_form, verdicts_junit, verdicts_text
from gitops.repository.wiring.git import open_commit_tree, open_git
from gitops.repository.wiring.system import SystemClock
from gitops.review.tests.bind import BoundTest
from gitops.review.tests.run import run_tests
from gitops.review.tests.select import (
    CollectedTests,
    QueryTestFolders,
    changed_since,
    collect_tests,
    coverage_of,
    decide_cases,
    id_matches,
)
from gitops.review.tests.update import update_file
from gitops.review.tests.verdicts import QueryTestReport, QueryTestResult, QueryTestVerdict

_MOST_JOBS = 16
_LOOK_EVERY_S = 0.5


def test(options: argparse.Namespace) -> int:
    """`gitops test`. Exits 1 if a test does not pass, a file is invalid or coverage is too low."""
    form = options.format or ("json" if options.json else "text")
    if options.json and form != "json":
        raise UsageError(Code.USAGE_ERROR, "--json and --format cannot be combined", fix="leave one out")
    if options.watch and (options.update or form != "text"):
        raise UsageError(Code.USAGE_ERROR, "--watch prints text and rewrites nothing", fix="leave the other option out")
    if options.update and os.environ.get("CI"):
        raise GitopsError(Code.TEST_UPDATE_REFUSED, "--update rewrites test files, and the variable CI is set")
    options.json = form == "json"
    folder = cluster_folder(options)
    if options.watch:
        return _watch(options, folder)
    return _once(options, folder, form)


def _once(options: argparse.Namespace, folder: str, form: str) -> int:
    report, collected = _run(options, folder)
    if options.update and collected is not None and _update(options, folder, report, collected):
        report, _ = _run(options, folder)
    _show(options, folder, form, report)
    low = report.coverage is not None and report.coverage.percent() < (options.fail_under or 0)
    strict = options.strict and any(each.severity is Severity.WARNING for each in report.problems)
    return OK if report.ok and not low and not strict else FAILED


def _watch(options: argparse.Namespace, folder: str) -> int:
    """Run the tests whenever a file of the folder changes. Returns the last exit code when it is interrupted."""
    code, pause = OK, threading.Event()
    try:
        while True:
            before = _stamps(folder)
            code = _once(options, folder, "text")
            say("waiting for changes; press Ctrl-C to stop")
            while _stamps(folder) == before:
                pause.wait(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return code


def _stamps(folder: str) -> Mapping[str, int]:
    """Return the modification times of the files that verdicts can depend on."""
    found = {}
    for suffix in ("*.yaml", "*.gq", "*.pg", "*.jsonl", "*.ndjson"):
        for path in Path(folder).rglob(suffix):
            with contextlib.suppress(OSError):
                found[str(path)] = path.stat().st_mtime_ns
    return found


def _run(options: argparse.Namespace, folder: str) -> tuple[QueryTestReport, CollectedTests | None]:
    clock = SystemClock()
    started = clock.monotonic()
    _, paths = relative_paths(folder, options.paths)
    collected, problems = collect(folders_of_tests(folder), lambda path: _below(path, paths))
    if collected is None:
        return QueryTestReport(problems=tuple(problems)), None
    chosen = _chosen(options, folder, collected)
    tests = [each for each in collected.tests if chosen(each.id)]
    results = decide_cases(collected, chosen)
    results += run_tests(tests, workers=_jobs(options), actual=options.update) if tests else []
    if not results and not problems.has_errors:
        problems.add(Code.TESTS_NONE, "", _nothing(collected))
    coverage = coverage_of(collected, results) if options.coverage or options.fail_under is not None else None
    ms = int((clock.monotonic() - started) * 1000)
    return QueryTestReport(tuple(results), tuple(problems), ms, coverage), collected


def collect(
    folders: QueryTestFolders, wanted: Callable[[str], bool] = lambda _: True
) -> tuple[CollectedTests | None, Diagnostics]:
    """Return a folder's tests and all problems with it, or None if the folder itself has an error.

    A policy case that fails is not an error here, because it is a test's result.
    """
    loaded = load_desired(folders.cluster)
    problems = Diagnostics(each for each in loaded.diagnostics if each.code is not Code.POLICY_TEST_FAILED)
    desired = loaded.desired
    if desired is None and not problems.has_errors:
        # A load for applied folders skips the cases.
        desired = load_desired(folders.cluster, applied=True).desired
    if desired is None or problems.has_errors:
        return None, problems
    found = collect_tests(folders, desired, loaded.judgement.policies, wanted)
    problems.extend(found.problems)
    return found, problems


def _below(path: str, chosen: Sequence[str]) -> bool:
    return not chosen or any(each in {".", path} or path.startswith(f"{each}/") for each in chosen)


def _chosen(options: argparse.Namespace, folder: str, collected: CollectedTests) -> Callable[[str], bool]:
    changed = None
    if options.changed is not None:
        before, _ = collect(_folders_at(folder, options.changed))
        changed = changed_since(collected, before)
    return lambda test_id: (
        (changed is None or test_id in changed) and (options.id is None or id_matches(test_id, options.id))
    )


def _folders_at(folder: str, ref: str) -> QueryTestFolders:
    """Return the same folders at a branch, tag or commit. Raises UsageError if there is no such commit."""
    git = open_git(folder)
    top = Path(git.work_tree or folder).resolve()
    path = Path(folder).resolve().relative_to(top).as_posix()
    commit = git.revision(ref)
    whole = None if commit is None else git.commit(commit).tree
    tree = None if whole is None else git.subtree(whole, path)
    if tree is None or whole is None:
        detail = f"'{ref[:80]}' is not a commit of this clone with the folder {path}"
        raise UsageError(
            Code.USAGE_ERROR, detail, fix="use a branch, tag or commit; to list the branches: git branch -a"
        )
    rules = git.read(whole, RULES)
    paths = () if rules is None else parse_bot_config(rules).tests.paths
    return QueryTestFolders(open_commit_tree(git, tree, path), open_commit_tree(git, whole, "."), paths, path)


def _jobs(options: argparse.Namespace) -> int:
    return min(_MOST_JOBS, options.jobs or len(os.sched_getaffinity(0)))


def _nothing(collected: CollectedTests) -> str:
    if any(file.file.tests or file.file.cases for file in collected.files):
        return "the options select none of the tests"
    return "no file NAME.test.yaml with tests was found"


def _update(options: argparse.Namespace, folder: str, report: QueryTestReport, collected: CollectedTests) -> bool:
    """Rewrite the files of failed tests and print the differences. Returns whether anything was rewritten."""
    results = {each.id: each for each in report.results}
    files: dict[str, list[tuple[BoundTest, QueryTestResult]]] = {}
    for test in collected.tests:
        result = results.get(test.id)
        if result is not None and result.verdict not in (QueryTestVerdict.PASSED, QueryTestVerdict.NOT_RUN):
            files.setdefault(test.at.file, []).append((test, result))
    written = False
    for path, failed in files.items():
        place = os.path.join(folder, path)  # noqa: PTH118
        updated = update_file(path, Path(place).read_bytes(), failed)
        if updated.before != updated.after:
            replace_file(place, FileLayout(path, updated.before, updated.after))
            written = True
        if not options.json:
            shown = SourceRef(path).shown(shown_folder(options, folder))
            before, after = (each.decode().splitlines(keepends=True) for each in (updated.before, updated.after))
            say("".join(map(visible_line, unified_diff(before, after, shown, shown))).rstrip("\n"))
            for test_id, reason in updated.skipped:
                say(f"not rewritten: {test_id}: {reason}")
    return written


def visible_line(line: str) -> str:
    """Return a line of a file for a terminal."""
    return visible(line.rstrip("\n")) + "\n"


def _show(options: argparse.Namespace, folder: str, form: str, report: QueryTestReport) -> None:
    """Print the report; with `--output`, write it to a file and print the text."""
    shown = shown_folder(options, folder)
    text = verdicts_text(report, folder=shown, verbose=options.verbose)
    if options.output is not None:
        _write(options.output, text if form == "text" else _document(options, folder, form, report))
    elif form == "json":
        show_form(verdicts_form(report))
        return
    elif form != "text":
        say(_document(options, folder, form, report))
        return
    say_report(text, options, ok=report.ok)


def _document(options: argparse.Namespace, folder: str, form: str, report: QueryTestReport) -> str:
    if form == "junit":
        return verdicts_junit(report, folder=shown_folder(options, folder))
    if form == "json":
        return to_text(verdicts_form(report))
    from gitops.render.sarif import verdicts_sarif

    here = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    place = relative_to(here, checkout(folder) or os.getcwd())  # noqa: PTH109
    return to_text(verdicts_sarif(tuple(report.diagnostics()), place))


def _write(path: str, text: str) -> None:
    """Write a report. Raises RemoteError."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, path), path=path, fix=UNWRITTEN) from error
