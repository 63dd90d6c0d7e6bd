"""What templates of a repository can do, and what becomes of those that try more."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comment_cases import MISSING, OWN, SUBJECT, everything, planned
from plan_cases import PLAN

from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import Debt
from gitops.core.errors import BugError
from gitops.render import environment
from gitops.render.comment import plan_comment
from gitops.render.comment_inputs import PlanComment
from gitops.render.environment import TEMPLATE_LIMIT, render_sections
from gitops.render.markdown import MUST_KEEP, Section

COMMENT = PlanComment(subject=SUBJECT, outcome=planned("plan_ok"), approvals=(MISSING,))
# Each is a whole plan template that must not be used, with the line that is at fault (0 if it is none in particular).
HOSTILE = {
    "a value without a filter": ("a\n{{ verdict }}", 2),
    "a fixed text as a value": ('{{ "`x" }}', 1),
    "a fixed text by condition": ('{{ "a" if true else "b" }}', 1),
    "a private attribute": ("\n\n{{ rows.__class__ }}", 3),
    "a private attribute by index": ('{{ rows["__class__"]|code }}', 1),
    "a private name": ("{{ _spend(1) }}", 1),
    "a shadowed name": ("{% set _spend = 1 %}", 1),
    "globals of a function": ("{{ section.__globals__ }}", 1),
    "a filter that is not ours": ("{{ rows|attr('x') }}", 1),
    "safe": ("{{ verdict|safe }}", 1),
    "a method": ("{{ verdict.upper()|code }}", 1),
    "format": ("{{ '{0.__class__}'.format(rows)|code }}", 1),
    "repetition": ("{{ ('a' * 1000000000)|code }}", 1),
    "concatenation": ("{{ ('a' ~ 'b')|code }}", 1),
    "powers": ("{{ 9 ** 9 ** 9 }}", 1),
    "subtraction of texts": ("{{ verdict - 1 }}", 1),
    "a range": ("{% for i in range(9) %}x{% endfor %}", 1),
    "a cycler": ("{{ cycler }}", 1),
    "a namespace": ("{% set ns = namespace(x=1) %}", 1),
    "another file": ("{% include '/etc/passwd' %}", 1),
    "another folder": ("{% include '../gitops/core/codes.py' %}", 1),
    "another folder of ours": ("{% include 'builtin/../../pyproject.toml' %}", 1),
    "a template by a value": ("{% include verdict %}", 1),
    "a parent": ('{% extends "macros.md.j2" %}', 1),
    "itself": ('{% include "plan.md.j2" %}', 0),
    "itself imported": ('{% import "plan.md.j2" as x %}', 0),
    "a macro that calls itself": ("{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}", 0),
    "loops in loops": ("{% for a in rows %}" * 19 + "x" + "{% endfor %}" * 19, 1),
    "a loop with a condition": ("{% for x in rows if x.risk %}a{% endfor %}", 1),
    "a loop that calls itself": ("{% for x in rows recursive %}{{ loop(rows) }}{% endfor %}", 1),
    "a method of a loop": ('{% for x in rows %}{{ loop.cycle("a") }}{% endfor %}', 1),
    "a comparison of lists": ("{{ 1 if rows == rows else 2 }}", 1),
    "a piece of an escaped text": ("{{ (verdict|code)[1:] }}", 1),
    "a character of an escaped text": ("{{ (verdict|code)[1] }}", 1),
    "characters of an escaped text": ("{% for c in verdict|code %}{{ c }}{% endfor %}", 1),
    "escaping switched off": ("{% autoescape false %}{{ verdict }}{% endautoescape %}", 1),
    "a filter around a block": ("{% filter code %}x{% endfilter %}", 1),
    "an unknown name": ("a\nb\n{{ nope|code }}", 3),
    "an unknown tag": ("{% debug %}", 1),
    "no end": ("a\n{% if errors %}", 2),
    "deep parentheses": ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", 0),
    "deep negation": ("{{ " + "not " * 3_000 + "1 }}", 0),
    "a deep condition": ("{% if errors %}" * 80 + "{% endif %}" * 80, 1),
    "too long": ("x" * (TEMPLATE_LIMIT + 1), 0),
    "a long head": ("x " * 3_000, 0),
    "too many sections": ('{{ section("A", 1) }}x' * 31, 0),
    "HTML": ("one\n<b>", 1),
    "the end of a fold": ("</details>", 1),
    "a hidden line": ("<!-- gitops cluster=other -->", 1),
    "a code mark": ("`", 1),
    "a fence": ("~~~\n", 1),
    "an escape": ("\\{{ verdict|code }}", 1),
    "a quick action": ("hello\n /close", 1),
    "a quick action behind nothing": ("{{ ''|text }}/close", 1),
    "a fence in pieces": ("~~{{ request }}", 1),
    "a link to a value": ("[x]({{ verdict|code }})", 0),
    "a link that ends in a value": ("[x](http://a{% if true %}b{% endif %}{{ verdict|code }})", 0),
    "a link in pieces": ("[x]{% if place %}({% endif %}{{ verdict|code }})", 0),
    "mathematics": ("${{ verdict|code }}$", 1),
    "a section mark": ("\x1e", 1),
    "a bidirectional control": ("\u202e", 1),
    "HTML as a title": ('{{ section("<b>", 1) }}', 1),
    "a title of a value": ("{{ section(verdict, 1) }}", 1),
    "a section that never goes": ('{{ section("A", 0) }}', 1),
    "a language that is no word": ('{{ verdict|block("sh\\n```") }}', 1),
    "a step that is none": ('{{ "x"|step }}', 1),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_template_that_breaks_a_rule_is_not_used_and_named(name):
    text, line = HOSTILE[name]
    body = plan_comment(replace(COMMENT, templates={"plan.md.j2": text}))
    said = next(row for row in body.split("\n") if "`template_invalid`" in row)
    assert said.startswith(f"- **warning** `template_invalid` at `plan.md.j2`{f' line {line}' if line else ''}:")
    added = {said, "  - to fix: correct the template at this line on the target branch"}
    without = [row for row in body.split("\n") if row not in added]
    assert "\n".join(without).replace("Warnings (2)", "Warnings (1)") == plan_comment(COMMENT)


def test_the_same_failure_is_told_in_the_same_words():
    broken = replace(COMMENT, templates={"plan.md.j2": HOSTILE["a method"][0]})
    assert "0x" not in plan_comment(broken)
    assert plan_comment(broken) == plan_comment(broken)


def test_growth_by_macros_is_bounded():
    macros = ["{% macro m0() %}" + "x" * 50 + "{% endmacro %}"]
    macros += [f"{{% macro m{n}() %}}{{% set y = m{n - 1}() %}}{'{{ y }}' * 10}{{% endmacro %}}" for n in range(1, 12)]
    body = plan_comment(replace(COMMENT, templates={"plan.md.j2": "".join(macros) + "{{ m11() }}"}))
    assert "more work than a comment needs" in body


def test_what_is_put_there_by_code_stays_under_any_template():
    body = plan_comment(replace(COMMENT, templates={"plan.md.j2": "nothing"}))
    marks, _, rest = body.partition("\n\n")
    assert marks.split("\n")[0] == "<!-- gitops cluster=knowledge -->"
    assert f"plan={PLAN.digest}" in marks
    assert rest.startswith("nothing\n\n---\n\nChange request 7, head")
    assert f"plan `{PLAN.digest}`" in rest


def test_ours_stay_within_reach_of_those_that_override_them():
    assert "- **`IRREVERSIBLE`** `graph.legacy`" in plan_comment(replace(COMMENT, templates=OWN))
    macros = {"macros.md.j2": OWN["macros.md.j2"]}
    body = plan_comment(replace(COMMENT, templates=macros))
    assert "`template_invalid` at `macros.md.j2`" in body


def test_a_macro_that_is_at_fault_is_named_with_its_own_line():
    own = {
        "plan.md.j2": '{% import "macros.md.j2" as m %}{{ m.bad(rows) }}',
        "macros.md.j2": "{% macro bad(rows) %}\n{{ rows }}{% endmacro %}",
    }
    body = plan_comment(replace(COMMENT, templates=own))
    assert "`template_invalid` at `macros.md.j2` line 2: a value is printed without a filter" in body


def test_a_block_leaves_the_list_that_it_is_printed_in():
    own = {"plan.md.j2": "- {{ place|block }}- {{ place|code }}"}
    body = plan_comment(replace(COMMENT, templates=own))
    assert "- \n\n```\nproduction/knowledge\n```\n\n- `production/knowledge`" in body


def test_values_that_touch_are_kept_apart():
    values = "{{ cluster|code }}{{ ''|text }}{{ environment|code }}"
    own = {"plan.md.j2": values + "{% for item in approvals %}{{ item.detail|text }}{% endfor %}"}
    body = plan_comment(replace(COMMENT, templates=own))
    assert "\n\n`knowledge`  `production` `alice@example.com` wrote commit" in body


def test_every_value_of_a_plan_is_there_for_a_template():
    names = [
        "cluster", "environment", "place", "request", "verdict", "checks", "since", "approvals", "missing", "commands",
        "approve_all", "forge_commands", "refusals", "debts", "countersign", "rules", "rows", "listed", "counted", "migrations",
        "breaks", "schema_diffs", "policy_diffs", "strategy_diffs", "query_diffs", "text_diffs", "explained", "others",
        "impact", "graph",
        "errors", "warnings",
    ]  # fmt: skip
    text = "".join(f"{{% if {name} is defined %}}{{{{ 1 }}}}{{% endif %}}" for name in names)
    assert f"\n\n{'1' * len(names)}\n\n" in plan_comment(replace(everything(), templates={"plan.md.j2": text}))


@pytest.mark.outside
def test_a_built_in_template_that_breaks_a_rule_is_a_defect(tmp_path, monkeypatch):
    (tmp_path / "raw.md.j2").write_text("{{ value }}")
    (tmp_path / "undefined.md.j2").write_text("{{ other|code }}")
    (tmp_path / "good.md.j2").write_text(
        "{{ value|code }} {{ 3 }}{{ section('A', 1) }}x{{ section('B', 2, fold=true) }}y"
    )
    monkeypatch.setattr(environment, "_templates", lambda: tmp_path)
    for name in ("raw", "undefined", "absent"):
        with pytest.raises(BugError):
            render_sections(f"{name}.md.j2", {"value": "<b>"})
    assert render_sections("good.md.j2", {"value": "<b>"}) == (
        Section("Head", MUST_KEEP, "`<b>` 3"),
        Section("A", 1, "x"),
        Section("B", 2, "y", fold=True),
    )


def test_a_value_that_looks_like_a_link_does_not_stop_a_built_in_template():
    debt = Debt("a", "b" * 40, Address("graph.x"), "ada", "](")
    assert "`](`" in plan_comment(replace(everything(), debts=(debt,)))
