"""A bot run's log lines and its result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, by_place
from gitops.core.errors import GitopsError


class RunResult(IntEnum):
    """A run's result. The values are exit codes. 2 is not used, because it means wrong usage.

    WAITS: there is no error, but a person must decide. LOST: another run was faster, or this one was interrupted, and a
    retry may succeed.
    """

    DONE = 0
    PROBLEMS = 1
    WAITS = 3
    LOST = 4


_WORST_FIRST = (RunResult.PROBLEMS, RunResult.LOST, RunResult.WAITS, RunResult.DONE)
# The input is valid, but a compare-and-swap failed, or a head moved during the run.
_LOST_CODES = frozenset(
    {Code.STATE_CAS_MISMATCH, Code.GIT_REF_CONFLICT, Code.REQUEST_HEAD_MOVED, Code.MERGE_NOT_CURRENT}
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line about one completed action, without a line feed. Its text is untrusted, so escape it before printing."""

    text: str
    result: RunResult = RunResult.DONE


def combined_result(results: Iterable[RunResult]) -> RunResult:
    """Combine the results of a run's parts.

    Problems take precedence over conflicts, and conflicts over waiting.
    """
    found = set(results)
    return next((result for result in _WORST_FIRST if result in found), RunResult.DONE)


def result_of(diagnostics: Iterable[Diagnostic]) -> RunResult:
    """Return a run's result, given its diagnostics: LOST if every error is a conflict, or if the run was interrupted."""
    errors = {d.code for d in diagnostics if d.severity == "error"}
    if not errors:
        return RunResult.DONE
    return RunResult.LOST if errors <= _LOST_CODES or Code.APPLY_INTERRUPTED in errors else RunResult.PROBLEMS


def diagnostics_of(error: GitopsError) -> tuple[Diagnostic, ...]:
    """Convert an exception to an outcome's only diagnostic."""
    problems = Diagnostics()
    problems.add_error(error)
    return tuple(problems)


def error_line(subject: str, error: GitopsError) -> LogLine:
    """Return the line that reports the exception that ended one part of a run."""
    return LogLine(f"{subject}: {error.code}: {error.detail}", result_of(diagnostics_of(error)))


def logged(failure: str, write: Callable[[], object]) -> Iterator[LogLine]:
    """Run `write`, which writes text for people. A failure is only logged, because the next event writes the text again."""
    try:
        write()
    except GitopsError as error:
        yield LogLine(f"{failure}: {error.code}: {error.detail}")


def diagnostic_lines(diagnostics: Iterable[Diagnostic], folder: str = "") -> Iterator[LogLine]:
    """Yield a line for each diagnostic, with its place relative to the repository root.

    The lines don't affect the result of the run. `folder` is the cluster folder.
    """
    for each in by_place(diagnostics):
        where = f" {each.path}" if each.path else ""
        place = "" if each.source is None else f" ({each.source.shown(folder)})"
        yield LogLine(f"  {each.severity.value} {each.code}{where}: {each.message}{place}")
