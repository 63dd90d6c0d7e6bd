"""Names that look like syntax, and errors of several lines, in everything that shows a problem.

No output spells out a line end, no code span contains backticks, and problems are in the order of their places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from comment_cases import DRIFT, SUBJECT, applied, planned
from ledger_cases import BAD
from markdown_it import MarkdownIt
from render_cases import VERBS

from gitops.cluster.apply.drift import DriftItem, DriftKind
from gitops.cluster.audit.report import AuditFinding
from gitops.cluster.session.down import DownOutcome
from gitops.cluster.session.lint import LintOutcome
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.core.errors import GitopsError
from gitops.database.graph.results import LoadRefusal
from gitops.doctor.findings import error, findings_text
from gitops.render.audit import audit_text
from gitops.render.comment import apply_comment, drift_body, plan_comment, plan_summary, refusal_comment
from gitops.render.comment_inputs import ApplyComment, PlanComment, RefusalComment
from gitops.render.down import down_text
from gitops.render.graph_data import graph_text
from gitops.render.lint import lint_text
from gitops.render.text import to_text
from gitops.repository.results import diagnostic_lines as bot_lines
from gitops.repository.results import error_line

NAMES = ("it's", 'say "x"', "two words", "a|b", "back\\slash", "<b>", "@admin", "node")
_REFUSED = "remote: refused: {}\nremote: ask an owner\r\n\nhint: {}\n"


def _git(name: str) -> GitopsError:
    """What git said on several lines."""
    return GitopsError(Code.PUSH_REFUSED, _REFUSED.format(name, name), path=name)


def _problems(name: str) -> tuple[Diagnostic, ...]:
    """One of git, and three of files, by the names of their queries and not by their places."""
    found = Diagnostics()
    found.add_error(_git(name))
    for query, file, line in (("z", "p.gq", 1), ("a", "q.gq", 9), ("b", "q.gq", 2)):
        message = f"type error: T1: unknown node type `{name} of {query}`, expected `Person`"
        found.add(Code.QUERY_TYPECHECK_ERROR, f"query.g.{query}", message, source=SourceRef(file, line, 3))
    return tuple(found)


def _verbs(name: str) -> str:
    return "".join(to_text(replace(outcome, diagnostics=_problems(name)), verbose=True) for outcome in VERBS.values())


def _bot(name: str) -> str:
    return "\n".join(line.text for line in (error_line("apply", _git(name)), *bot_lines(_problems(name))))


def _audit(name: str) -> str:
    return audit_text(replace(BAD, findings=(AuditFinding("5d" * 20, 3, Code.PUSH_REFUSED, _git(name).detail),)))


TERMINAL: dict[str, Callable[[str], str]] = {
    "verbs": _verbs,
    "lint": lambda name: lint_text(LintOutcome(diagnostics=_problems(name))),
    "down": lambda name: down_text(DownOutcome(config_dir=".", subject="g", diagnostics=_problems(name))),
    "audit": _audit,
    "doctor": lambda name: findings_text([error("remote", _git(name).detail, "ask an owner")]),
    "load": lambda name: graph_text(LoadRefusal(Diagnostics(_problems(name))), "g", width=None),
    "bot": _bot,
}
COMMENTS: dict[str, Callable[[str], str]] = {
    "plan": lambda name: plan_comment(_plan(name)),
    "summary": lambda name: plan_summary(_plan(name)),
    "apply": lambda name: apply_comment(
        ApplyComment(subject=SUBJECT, outcome=replace(applied("apply_not_ok"), diagnostics=_problems(name)))
    ),
    "refusal": lambda name: refusal_comment(
        RefusalComment(subject=SUBJECT, command="apply", diagnostics=_problems(name))
    ),
    "drift": lambda name: drift_body(
        replace(
            DRIFT,
            outcome=replace(
                DRIFT.outcome,
                items=(DriftItem("graph.a", DriftKind.SCHEMA, _git(name).detail),),
                diagnostics=_problems(name),
            ),
        )
    ),
}


def _plan(name: str) -> PlanComment:
    return PlanComment(subject=SUBJECT, outcome=replace(planned("plan_not_ok"), diagnostics=_problems(name)))


def _spans(markdown: str) -> Iterable[str]:
    """The texts that a reader of a comment sees as code."""
    for block in MarkdownIt("commonmark").parse(markdown):
        yield from (child.content for child in block.children or () if child.type == "code_inline")


def _in_order(shown: str) -> list[str]:
    """The queries of the problems, as often as they are listed."""
    return re.findall(r" of ([abz])\b", shown)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("renderer", sorted(TERMINAL))
def test_a_terminal_shows_problems_in_order_on_whole_lines(renderer: str, name: str) -> None:
    shown = TERMINAL[renderer](name)
    assert f"refused: {name}; remote: ask an owner; hint: {name}" in shown
    assert re.findall(r"\\+[nr](?!\w)|b'", shown) == []
    order = _in_order(shown)
    assert order == ["z", "b", "a"] * (len(order) // 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("renderer", sorted(COMMENTS))
def test_a_comment_shows_problems_in_order_and_names_as_code(renderer: str, name: str) -> None:
    shown = COMMENTS[renderer](name)
    spans = list(_spans(shown))
    assert [span for span in spans if "`" in span or re.search(r"\\+[nr](?!\w)", span)] == []
    quoted = " ".join(f"{name} of a".split()).replace("|", "\\x7c")
    assert quoted in spans
    assert _in_order("\n".join(spans)) == ["z", "b", "a"]


def test_the_lines_of_an_error_are_one_line() -> None:
    assert GitopsError(Code.GIT_FAILED, "fatal: a\r\n\n  hint: b\n").detail == "fatal: a; hint: b"
