"""The page on comments: its template works, and its lists are those of the code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from comment_cases import MISSING, SUBJECT, applied, comments, drifted, everything, planned
from jinja2 import meta
from markdown_it import MarkdownIt

from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.render.comment import apply_comment, drift_body, plan_comment, refusal_comment
from gitops.render.comment_inputs import TEMPLATE_NAMES, ApplyComment, PlanComment, RefusalComment, Templates
from gitops.render.environment import _FILTERS, _Environment
from tests.support.pages import ROOT, read_page

_PAGE = read_page("comments.md")
_BUILT_IN = ROOT / "templates"


def _fence(language: str) -> str:
    found = [t.content for t in MarkdownIt().parse(_PAGE) if t.type == "fence" and t.info == language]
    assert len(found) == 1
    return found[0]


def _table(first: str) -> dict[str, set[str]]:
    """The names in each row of the table whose first heading is `first`, by the text of its first cell."""
    rows = re.search(rf"^\| {first} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", _PAGE, re.MULTILINE)
    assert rows is not None
    pairs = [row.strip("|\n").split(" | ", 1) for row in rows[1].splitlines()]
    return {key.strip(): set(re.findall(r"`([a-z_]+)`", value)) for key, value in pairs}


def _rendered(name: str, text: str) -> str:
    """The comment of a kind when its template is `text`."""
    own: Templates = {name: text}
    match name:
        case "plan.md.j2":
            return plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_ok"), templates=own))
        case "apply.md.j2":
            return apply_comment(ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), templates=own))
        case "refusal.md.j2":
            comment = RefusalComment(subject=SUBJECT, command="apply", diagnostics=(), templates=own)
            return refusal_comment(comment)
    report = drifted(0, 1)
    return drift_body(replace(report, templates=own))


def test_the_examples_of_the_page_are_lines_of_comments():
    known = {line for body in comments().values() for line in body.split("\n")}
    examples = [t.content for t in MarkdownIt().parse(_PAGE) if t.type == "fence" and t.info == "markdown"]
    assert len(examples) == 7
    assert [line for example in examples for line in example.split("\n") if line not in known] == []


def test_the_template_of_the_page_is_used_as_it_is():
    comment = PlanComment(
        subject=SUBJECT, outcome=planned("plan_ok"), approvals=(MISSING,), templates={"plan.md.j2": _fence("jinja")}
    )
    body = plan_comment(comment)
    assert "template_invalid" not in body
    assert "\n## `production/knowledge`: 7 changes, 1 approval missing, 1 obstacle to an apply" in body
    assert f"```sh\n{MISSING.command}\n```" in body
    assert "- **`IRREVERSIBLE`** `graph.legacy`" in body
    assert "<summary>Warnings</summary>\n\n- `cluster_recovery_pending`: an apply was interrupted" in body


def test_a_template_that_breaks_a_rule_is_warned_of():
    body = plan_comment(PlanComment(subject=SUBJECT, outcome=planned("plan_ok"), templates={"plan.md.j2": "{{ x }}"}))
    found = re.findall(r"\*\*warning\*\* `([a-z_]+)` at `plan.md.j2` line 1", body)
    assert found == ["template_invalid"]


def test_the_setting_of_the_page_is_one():
    config = parse_bot_config(f"version: 1\nclusters: []\n{_fence('yaml')}".encode())
    assert config.forge.templates == ".gitops/templates"


def test_every_template_that_may_be_overridden_is_named_and_there():
    assert all(f"`{name}`" in _PAGE and (_BUILT_IN / name).is_file() for name in TEMPLATE_NAMES)


def test_every_filter_is_on_the_page():
    listed = set(re.findall(r"<code>([a-z]+)", _PAGE))
    assert listed == {*_FILTERS, "length", "top", "section"}


@pytest.mark.parametrize("name", sorted(set(TEMPLATE_NAMES) - {"macros.md.j2"}))
def test_the_values_of_a_template_are_those_of_the_page(name):
    table = _table("template")
    listed = table["all"] | table[f"`{name}`"] | (set() if name == "drift.md.j2" else table["all but `drift.md.j2`"])
    text = "".join(f"{{% if {value} is defined %}}{{{{ 1 }}}}{{% endif %}}" for value in sorted(listed))
    assert f"\n\n{'1' * len(listed)}\n\n" in _rendered(name, text)
    tree = _Environment().parse(Path(_BUILT_IN / name).read_text("utf-8"))
    assert meta.find_undeclared_variables(tree) - {"section"} <= listed


def test_the_fields_of_items_are_those_of_the_page():
    full = everything()
    fields = _table("item of")
    names = ("rows", "counted", "checks", "schema_diffs", "approvals", "refusals", "debts", "migrations", "others")
    for value in (*names, "impact", "warnings"):
        row = next(names for key, names in fields.items() if f"`{value}`" in key)
        text = f"{{% for item in {value}|top(1) %}}" + "".join(
            f"{{% if item.{name} is defined %}}{{{{ 1 }}}}{{% endif %}}" for name in sorted(row)
        )
        own = {"plan.md.j2": text + "{% endfor %}"}
        body = plan_comment(replace(full, templates=own))
        assert f"\n\n{'1' * len(row)}\n\n" in body, value
