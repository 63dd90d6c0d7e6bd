"""What the bot says while it works: one line per thing done, with what it means for whoever waits for the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import GitopsError


class Verdict(IntEnum):
    """How a run ended; the values are exit codes (2 is wrong usage, which no handler sees).

    WAITS: nothing is wrong, a person has to decide. LOST: somebody else was faster, and the same run may succeed later.
    """

    DONE = 0
    PROBLEMS = 1
    WAITS = 3
    LOST = 4


_RANK = (Verdict.PROBLEMS, Verdict.LOST, Verdict.WAITS, Verdict.DONE)
# Nothing was wrong with the input: a compare-and-swap failed, or the world moved on.
_LOST_CODES = frozenset(
    {Code.STATE_CAS_MISMATCH, Code.GIT_REF_CONFLICT, Code.REQUEST_HEAD_MOVED, Code.MERGE_NOT_CURRENT}
)


@dataclass(frozen=True, slots=True)
class Note:
    """One line, without a line feed. It may hold text of a stranger: whoever prints it makes that visible first."""

    text: str
    verdict: Verdict = Verdict.DONE


def overall(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a run from those of its parts: problems outweigh lost races, which outweigh waiting."""
    found = set(verdicts)
    return next((verdict for verdict in _RANK if verdict in found), Verdict.DONE)


def verdict_of(diagnostics: Iterable[Diagnostic]) -> Verdict:
    """What problems mean for a run: LOST if every error is a lost race."""
    errors = {d.code for d in diagnostics if d.severity == "error"}
    if not errors:
        return Verdict.DONE
    return Verdict.LOST if errors <= _LOST_CODES else Verdict.PROBLEMS


def problem_of(error: GitopsError) -> tuple[Diagnostic, ...]:
    """An exception as the one problem of an outcome."""
    problems = Diagnostics()
    problems.add_error(error)
    return tuple(problems)
