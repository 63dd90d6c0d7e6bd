"""Comments against their goldens, with templates and hostile names.

Names that look like syntax, and errors of several lines, in everything that shows a problem.

No output spells out a line end, no code span contains backticks, and problems are in the order of their places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from comment_cases import BLOCKED, DATA, DRIFT, LANDED, MISSING, OWN, SUBJECT, applied, comments, everything, planned
from ledger_cases import BAD
from markdown_it import MarkdownIt
from plan_cases import PLAN, digest, problems
from render_cases import VERBS

from gitops.cluster.audit.report import AuditFinding
from gitops.cluster.model.address import Address, graph_address, query_address, schema_address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import Debt
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ExecEdge, ExecNode, ExecutionGraph, Impact, Plan, TextChange
from gitops.cluster.model.resource import Dependencies, Dependency
from gitops.cluster.plan.drift import DriftItem, DriftKind
from gitops.cluster.session.down import DownOutcome
from gitops.cluster.session.lint import LintOutcome
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic, Diagnostics, SourceRef
from gitops.core.errors import BugError, GitopsError
from gitops.database.graph.results import LoadRefusal
from gitops.doctor.findings import error, findings_text
from gitops.render import environment
from gitops.render.audit import audit_text
from gitops.render.comment import (
    apply_comment,
    drift_body,
    drift_marker,
    drift_title,
    plan_comment,
    plan_document,
    plan_summary,
    refusal_comment,
)
from gitops.render.comment_inputs import ApplyComment, PlanComment, RefusalComment
from gitops.render.down import down_text
from gitops.render.environment import TEMPLATE_LIMIT, render_sections
from gitops.render.explanations import verification_steps
from gitops.render.graph import to_mermaid
from gitops.render.graph_data import graph_text
from gitops.render.lint import lint_text
from gitops.render.markdown import MUST_KEEP, Section
from gitops.render.text import to_text
from gitops.repository.results import diagnostic_lines as bot_lines
from gitops.repository.results import error_line
from tests.support.remedies import on_one_line

FILES = comments()


@pytest.mark.parametrize("name", sorted(FILES))
def test_comment_equals_its_file(name):
    assert FILES[name] == (DATA / name).read_text("utf-8")


def test_every_file_has_a_case():
    assert {path.name for path in DATA.iterdir()} == set(FILES)


def test_a_blocked_apply_says_once_what_waits_and_gives_the_command_of_the_plan():
    body = FILES["example_blocked_apply.md"]
    assert "**Apply to `production/knowledge`: 0 applied, 248 deferred or blocked · 1 approval missing**" in body
    assert body.count("`query.legacy.q000`") == 1
    assert "to fix:" not in body
    shown = f"```sh\n{MISSING.command}\n```"
    assert on_one_line(body).count(shown) == on_one_line(FILES["plan.md"]).count(shown) == 1
    assert "and 242 more queries: blocked by `graph.legacy`" in body
    assert len(body) < 4_000


def test_a_real_blocked_apply_has_no_results_of_what_waits_and_says_no_more():
    """What an approval is missing for is not even started."""
    outcome = replace(
        BLOCKED, results=(), changes=(*BLOCKED.changes, Change(Address("graph.new"), Action.CREATE, None, "1"))
    )
    body = apply_comment(ApplyComment(subject=SUBJECT, outcome=outcome, approvals=(MISSING,)))
    assert (
        "`query.legacy.q004` and 242 more queries: blocked (waits for an approval)\n- **`ADDS`** `graph.new`: applied\n"
        in body
    )
    assert body.count("query.legacy.q000") == 1


def test_a_refused_approval_is_a_reason_below_do_next_and_no_warning_as_well():
    found = problems(
        *(("approval_stale", "graph.legacy", words, None) for words in ("the folder changed", "another one"))
    )
    missing = replace(MISSING, refused=(("approval_stale", "the folder changed"),))
    outcome = replace(planned("plan_ok"), diagnostics=found)
    body = plan_comment(PlanComment(subject=SUBJECT, outcome=outcome, approvals=(missing,)))
    assert body.count("the folder changed") == 1
    assert "  - an approval doesn't count (`approval_stale`): the folder changed\n" in body
    assert "- **warning** `approval_stale` at `graph.legacy`: another one\n" in body


def test_what_is_counted_is_named_by_its_kinds_and_a_new_graph_affects_nothing():
    new = [graph_address("new"), schema_address("new"), *(query_address("new", f"q{n:02}") for n in range(60))]
    changes = tuple(Change(address, Action.CREATE, None, digest("1")) for address in new)
    known = tuple(Change(query_address("old", f"q{n}"), Action.UPDATE, digest("1"), digest("2")) for n in range(2))
    needed = (Impact(new[0], tuple(new[1:])), Impact(known[0].address, (known[1].address,)))
    outcome = planned("plan_ok")
    plan = Plan(PLAN.config_digest, PLAN.digest, (*changes, *known), needed, (), ExecutionGraph())
    body = plan_comment(PlanComment(subject=SUBJECT, outcome=replace(outcome, plan=plan)))
    assert "- **`CHANGES`** `query.old.q0`, `query.old.q1`\n" in body
    first = "`graph.new`, `schema.new`, `query.new.q00`, `query.new.q01`, `query.new.q02`"
    assert f"- **`ADDS`** {first} and 57 more (1 graph, 60 queries, 1 schema in total)\n" in body
    assert "- `query.old.q0` is used by `query.old.q1`\n" in body
    assert "is used by `query.new" not in body


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.startswith(("plan", "example", "apply"))))
def test_each_fact_of_a_comment_is_shown_once(name):
    """Outside of its folds: a change has one row, and no sentence, reason, remedy or whole digest is there twice."""
    shown = re.sub(r"^<details>.*?^</details>", "", FILES[name].partition("\n\n")[2], flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\S- \*\*`", shown)
    rows = re.findall(r"^- \*\*`[A-Z ]+`\*\* ((?:`[^`]+`(?:, )?)+)", shown.partition("### Access")[0], re.MULTILINE)
    named = [address for row in rows for address in re.findall(r"`([^`]+)`", row)]
    assert sorted(named) == sorted(set(named))
    lines = [line for line in shown.split("\n") if len(line) > 20 and not line.startswith(("```", "    ", "| ---"))]
    assert sorted(lines) == sorted(set(lines))
    digests = re.findall(r"[0-9a-f]{64}", shown)
    assert len(digests) == len(set(digests))


def test_an_emergency_is_shown_as_one():
    given = "  - approved by `bob@example.com`"
    assert f"{given} **alone, in an emergency**\n" in FILES["example_emergency.md"]
    assert f"{given}\n" in FILES["plan_approved.md"]


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".md")))
def test_a_renderer_shows_tables_folds_and_blocks(name):
    """As GitHub renders it: every line of a table is in a table, every fold is closed, and no fence is left in the text."""
    page = MarkdownIt("gfm-like", {"linkify": False, "html": True}).render(FILES[name])
    rows = [line for line in FILES[name].split("\n") if line.startswith("|")]
    tables = sum(line.startswith("| ---") for line in rows)
    assert page.count("<table>") == page.count("</table>") == tables
    assert page.count("<tr>") == len(rows) - tables
    assert page.count("<details>") == page.count("</details>") == page.count("<summary>")
    assert (
        page.count("<pre><code")
        == page.count("</code></pre>")
        == len(re.findall(r"^`{3,}[a-z]+$|^```$\n\S", FILES[name], re.MULTILINE))
    )
    text = re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert not re.search(r"`{3}|^\||\*\*|\| ---", text, re.MULTILINE)


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".md")))
def test_no_sentence_is_broken_where_a_forge_keeps_line_breaks(name):
    """GitHub and Gitea show every line break of a comment, also one within a paragraph."""
    page = MarkdownIt("gfm-like", {"linkify": False, "html": True, "breaks": True}).render(FILES[name])
    assert "<br" not in page


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.endswith(".md")))
def test_no_line_is_a_command_to_a_forge(name):
    outside = True
    for line in FILES[name].split("\n"):
        if line.startswith("```"):
            outside = not outside
        assert not (outside and line.lstrip("> -").startswith("/"))
        assert not line.startswith("/") or line.startswith("/gitops ")
    assert outside


def test_the_document_of_a_plan_does_not_depend_on_the_moment():
    outcome = everything().outcome
    later = replace(outcome, observations=replace(outcome.observations, lock_age_seconds=5, acquired_lock_id="x"))
    assert plan_document(later) == plan_document(outcome)
    form = json.loads(plan_document(outcome))
    assert form["plan_digest"] == outcome.plan.digest
    assert len(form["changes"]) == len(outcome.plan.changes)
    assert len(form["execution_graph"]["nodes"]) == 4
    failed = json.loads(plan_document(PlanOutcome(config_dir=".", observations=outcome.observations)))
    assert (failed["plan_digest"], failed["execution_graph"], failed["changes"]) == (None, None, [])


def test_the_document_of_a_plan_leaves_out_what_does_not_change():
    outcome = everything().outcome
    others = {f"query.other.q{n}": "9" * 64 for n in range(1_000)}
    edges = tuple(Dependency(Address(name), Address("schema.other")) for name in others)
    large = replace(
        outcome,
        resource_digests={**outcome.resource_digests, **others},
        dependencies=(*outcome.dependencies, *edges),
    )
    assert plan_document(large) == plan_document(outcome)


def test_the_document_of_a_plan_asks_only_for_the_dependencies_near_its_changes():
    def all_of_them() -> tuple[Dependency, ...]:
        raise AssertionError("a large cluster has tens of thousands")

    outcome = everything().outcome
    near = Dependencies(all_of_them, lambda _: tuple(outcome.dependencies))
    assert plan_document(replace(outcome, dependencies=near)) == plan_document(outcome)


def test_commands_name_their_cluster_only_where_there_are_several():
    one = plan_comment(replace(everything(), several=False))
    assert f"\n/gitops approve graph.legacy {everything().outcome.plan.digest}\n" in one
    assert "\n/gitops" not in plan_comment(replace(everything(), forge_commands=False))
    assert "\n/gitops" not in plan_comment(replace(everything(), approvals=(MISSING,)))


def test_a_picture_is_bounded():
    nodes = tuple(ExecNode(f"graph.g{n}" + "x" * 500, "graph", Action.CREATE, n) for n in range(1_000))
    drawn = to_mermaid(ExecutionGraph(nodes), most=60)
    assert drawn.count('["1 change of g') == 59
    assert '["941 changes of 941 more graphs"]' in drawn
    assert len(drawn) < 50_000


def _folds(body: str) -> list[str]:
    return re.findall(r"^<details>.*?^</details>", body, re.DOTALL | re.MULTILINE)


def test_a_fold_has_at_most_twelve_thousand_characters_and_closes_its_fence():
    lines = "".join(f"    property_{n:03}: String?\n" for n in range(100))
    texts = tuple(TextChange((schema_address(f"g{n}"),), None, f"node T {{\n{lines}}}\n".encode()) for n in range(9))
    found = problems(*(("cluster_recovery_pending", "a", f"{n} {'x' * 300}", None) for n in range(99)))
    plan = PlanComment(subject=SUBJECT, outcome=replace(planned("plan_ok"), texts=texts, diagnostics=found))
    done = ApplyComment(subject=SUBJECT, outcome=replace(LANDED, diagnostics=found))
    for body, cut in ((plan_comment(plan), {"Schema diff", "Warnings"}), (apply_comment(done), {"Warnings"})):
        long = {re.findall("<summary>([A-Z][a-z ]+) ", fold)[0] for fold in _folds(body) if len(fold) > 11_000}
        assert long == cut
        assert max(map(len, _folds(body))) <= 12_000
        assert all(fold.count("```") % 2 == 0 for fold in _folds(body))
        assert all(f"lines of {title}" in body.rpartition("Left out to fit: ")[2] for title in cut)


def _pictured(name: str) -> str:
    """The comment on a plan of nine migrations, and of nine queries that come after them."""
    nodes, edges = [], []
    for n in range(9):
        nodes += [
            ExecNode(f"schema.g{n}{name}", "schema", Action.UPDATE, 2 * n),
            ExecNode(f"query.g{n}{name}.{name}", "query", Action.CREATE, 2 * n + 1),
        ]
        edges.append(ExecEdge(f"schema.g{n}{name}", f"query.g{n}{name}.{name}", "schema_query"))
    outcome = planned("plan_ok")
    drawn = replace(outcome.plan, graph=ExecutionGraph(tuple(nodes), tuple(edges)))
    return plan_comment(PlanComment(subject=SUBJECT, outcome=replace(outcome, plan=drawn), approvals=(MISSING,)))


def test_a_picture_that_a_forge_would_not_draw_is_left_out():
    """Forgejo draws none of more than 5,000 characters. Long names are shortened before; a foreign letter takes eight."""
    drawn = _pictured("find" * 50).partition("```mermaid\n")[2].partition("```")[0]
    assert 1_000 < len(drawn) < 5_000
    assert "Execution graph" not in _pictured("\U0001d54f" * 60)


def _large(number: int, name: int = 60) -> PlanComment:
    """A plan with so many more changes, each of about 50 characters and its name in a table."""
    outcome = planned("plan_ok")
    assert outcome.plan is not None
    model = outcome.plan.changes[3]
    many = tuple(replace(model, address=query_address("knowledge", f"q{n:05}_{'x' * name}")) for n in range(number))
    large = replace(outcome, plan=replace(outcome.plan, changes=(*outcome.plan.changes, *many)))
    return PlanComment(subject=SUBJECT, outcome=large, approvals=(MISSING,))


def test_a_plan_of_three_megabytes_gives_one_comment_with_all_that_matters():
    comment = _large(7_000, 400)
    body, summary = plan_comment(comment), plan_summary(comment)
    assert len(plan_document(comment.outcome)) > 3_000_000
    assert len(body) < 5_000
    assert len(summary.encode()) <= 1_048_576
    for text in (body, summary):
        assert "**Plan for `production/knowledge`: `+7,001 ~3 −3` · 1 graph destroyed" in text
        assert text.count(f" --plan {PLAN.digest}\n") == 1
        assert f"```sh\ngitops approve graph.legacy --request 7 --plan {PLAN.digest}\n```" in on_one_line(text)
        assert "- **`IRREVERSIBLE`** `graph.legacy`: deleted" in text
        assert text.count("```") % 2 == 0
    assert " and 6,996 more queries\n" in body
    assert "lines of Changes" in summary


def test_from_fifty_changes_on_what_needs_eyes_is_listed_and_the_rest_counted():
    short, long = plan_comment(_large(42)), plan_comment(_large(43))
    assert short.count("- **`ADDS`** `query.knowledge") == 43
    listed = [line for line in long.split("\n") if line.startswith("- **`")]
    badges = ["IRREVERSIBLE", "CANNOT LAND", "RETAINED", "DELETES", "DELETES", "CHANGES", "ADDS"]
    assert [line.split("`")[1] for line in listed] == badges
    assert listed[0].startswith("- **`IRREVERSIBLE`** `graph.legacy`")
    assert listed[-1].endswith(" and 39 more queries")


def test_a_summary_has_the_changes_that_a_comment_leaves_out():
    comment = _large(2_500)
    assert " and 2,496 more queries\n" in plan_comment(comment)
    summary = plan_summary(comment)
    assert summary.count("- **`ADDS`** `query") == 2_501
    assert "Left out" not in summary


def test_a_template_of_the_repository_may_lay_out_a_large_plan():
    template = '{% import "builtin/macros.md.j2" as m %}{{ section("Changes", 1) }}{{ m.changes(rows) }}'
    body = plan_comment(replace(_large(5_000), templates={"plan.md.j2": template}))
    assert "template_invalid" not in body
    assert "lines of Changes" in body


def test_the_check_of_an_approval_is_told_as_far_as_it_came():
    assert {c["state"] for c in verification_steps(replace(MISSING, satisfied=True))} == {"passed"}
    assert [c["state"] for c in verification_steps(replace(MISSING, step=6))] == [
        *["passed"] * 5,
        "refused",
        *["not reached"] * 2,
    ]
    assert verification_steps(replace(MISSING, step=None)) == ()


def test_the_report_of_drift_is_found_again():
    assert drift_body(DRIFT).startswith("<!-- gitops drift=knowledge -->\n")
    assert drift_title(DRIFT) == "Drift in production/knowledge: 3 resources"
    assert drift_title(replace(DRIFT, environment="@prod\n")) == "Drift in knowledge: 3 resources"
    with pytest.raises(ValueError):
        drift_marker("a b")
    with pytest.raises(ValueError):
        drift_body(replace(DRIFT, cluster="-->"))


def test_another_plan_gives_another_comment_and_the_same_one_the_same():
    assert plan_comment(everything()) == plan_comment(everything())
    moved = replace(everything().outcome, plan=replace(everything().outcome.plan, digest=digest("c")))
    assert plan_comment(replace(everything(), outcome=moved)) != plan_comment(everything())


def test_an_approval_that_too_few_people_may_give_says_what_to_do():
    alone = replace(MISSING, needed=2, may=("bob",))
    body = apply_comment(ApplyComment(subject=SUBJECT, outcome=applied("apply_ok"), approvals=(alone,)))
    assert "  - **needs 2 approvals**, but only `bob` can approve\n" in body
    assert "  - to fix: add approvers who are not authors of the change to `gitops.yaml`\n" in body


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
    added = {said, "  - to fix: correct this line of the template on the target branch"}
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
    assert rest.startswith("nothing\n\n---\n\nRequest 7, head")
    assert f"plan `{PLAN.digest[:12]}`" in rest


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
        "cluster", "environment", "place", "request", "verdict", "since", "approvals", "missing", "gated", "stuck", "blockers",
        "forge_verdict_missing", "commands", "approve_all", "forge_commands", "refusals", "debts", "countersign", "rules", "rows",
        "listed", "counted", "automatic", "migrations",
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
        message = f"type error: unknown node type `{name} of {query}`, expected `Person`"
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


def test_commands_fit_into_the_width_of_a_comment():
    """Whoever approves reads the whole command, and copies it from its first to its last line."""
    shown = [
        line
        for body in FILES.values()
        for lines in re.findall(r"^`{3,}sh\n(.*?)\n`{3,}$", body, re.DOTALL | re.MULTILINE)
        for line in lines.split("\n")
    ]
    assert any("--plan" in line for line in shown)
    assert max(map(len, shown)) <= 80
