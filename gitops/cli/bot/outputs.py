"""What a CI job keeps of a run: its summary page and its outputs.

Both are files that the runner names (GITHUB_STEP_SUMMARY, GITHUB_OUTPUT; Gitea and Forgejo do the same). A value is framed by a
random delimiter, so that no text in it can end it and begin another.
Source: https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#multiline-strings
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gitops.bot.context import ClusterReport
from gitops.bot.results import RunResult
from gitops.render.comment import apply_comment, plan_summary, refusal_comment
from gitops.render.comment_inputs import ApplyComment, PlanComment

__all__ = ["write_outputs"]

_MAX_SUMMARY = 1024 * 1024
"""Bytes of the summary of one step: https://docs.github.com/en/actions/reference/limits."""


def write_outputs(
    environ: Mapping[str, str],
    result: RunResult,
    reports: Sequence[ClusterReport],
    redact: Callable[[str], str],
) -> None:
    """Write summary and outputs to the files that the job names. Raises OSError for a file that cannot be written."""
    if environ.get("GITHUB_STEP_SUMMARY") and reports:
        _append(environ["GITHUB_STEP_SUMMARY"], redact(_summary(reports)))
    if environ.get("GITHUB_OUTPUT"):
        values = {
            "verdict": result.name.lower(),
            "plan-digest": "\n".join(report.plan.digest for report in reports if report.plan is not None),
            "summary": "\n".join(report.line for report in reports),
        }
        text = ""
        for name, value in values.items():
            frame = f"gitops_{secrets.token_hex(16)}"
            text += f"{name}<<{frame}\n{redact(value)}\n{frame}\n"
        _append(environ["GITHUB_OUTPUT"], text)


def _summary(reports: Sequence[ClusterReport]) -> str:
    """The reports one after the other; those that do not fit are left out as a whole, and counted in a last line."""
    parts: list[str] = []
    room = _MAX_SUMMARY - 1024
    for report in reports:
        comment = report.comment
        if isinstance(comment, PlanComment):
            text = plan_summary(comment)
        else:
            text = apply_comment(comment) if isinstance(comment, ApplyComment) else refusal_comment(comment)
        room -= len(text.encode()) + 1
        if room < 0:
            parts.append(f"{len(reports) - len(parts)} more report(s) do not fit on this page.\n")
            break
        parts.append(text)
    return "\n".join(parts)


def _append(file: str, text: str) -> None:
    with Path(file).open("a", encoding="utf-8") as target:
        target.write(text)
