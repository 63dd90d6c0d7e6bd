"""What a CI job keeps of a run: its summary page, and its outputs.

Both are files that the runner names (GITHUB_STEP_SUMMARY, GITHUB_OUTPUT; Gitea and Forgejo do the same). A value is framed by a
delimiter that nobody can have known, so that no text in it ends it and begins another.
Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#multiline-strings
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gitops.bot.context import Told
from gitops.bot.results import Verdict
from gitops.render.comment import apply_comment, plan_summary, refusal_comment
from gitops.render.comment_inputs import ApplyComment, PlanComment

__all__ = ["write_outputs"]

_MAX_SUMMARY = 1024 * 1024
"""Bytes of the summary of one step: https://docs.github.com/en/actions/reference/limits."""

Redact = Callable[[str], str]


def write_outputs(environ: Mapping[str, str], verdict: Verdict, told: Sequence[Told], redact: Redact) -> None:
    """Write summary and outputs where the job wants them. Raises OSError for a file that cannot be written."""
    if environ.get("GITHUB_STEP_SUMMARY") and told:
        _append(environ["GITHUB_STEP_SUMMARY"], redact(_summary(told)))
    if environ.get("GITHUB_OUTPUT"):
        digests = [t.plan.digest for t in told if t.plan is not None]
        values = {
            "verdict": verdict.name.lower(),
            "plan-digest": "\n".join(digests),
            "summary": "\n".join(t.line for t in told),
        }
        _append(environ["GITHUB_OUTPUT"], "".join(_output(name, redact(value)) for name, value in values.items()))


def _summary(told: Sequence[Told]) -> str:
    """The reports one after the other; what does not fit any more is left out as a whole, and said to be."""
    parts: list[str] = []
    room = _MAX_SUMMARY - 1024
    for each in told:
        text = _page(each)
        room -= len(text.encode()) + 1
        if room < 0:
            parts.append(f"{len(told) - len(parts)} more report(s) do not fit on this page.\n")
            break
        parts.append(text)
    return "\n".join(parts)


def _page(told: Told) -> str:
    report = told.report
    if isinstance(report, PlanComment):
        return plan_summary(report)
    return apply_comment(report) if isinstance(report, ApplyComment) else refusal_comment(report)


def _output(name: str, value: str) -> str:
    frame = f"gitops_{secrets.token_hex(16)}"
    return f"{name}<<{frame}\n{value}\n{frame}\n"


def _append(file: str, text: str) -> None:
    with Path(file).open("a", encoding="utf-8") as target:
        target.write(text)
