"""Laws of rendering: hostile values stay values, comments fit, terminals see no control characters."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Seen, Tier
from gitops.cluster.model.outcome import (
    PlanOutcome,
    StateObservations,
)
from gitops.cluster.model.plan import (
    ApprovalRequirement,
    ExecutionGraph,
    Plan,
)
from gitops.render import json as render_json
from gitops.render import text as render_text
from gitops.render.commands import wrapped
from gitops.render.comment import drift_body, plan_comment, plan_document, plan_summary
from gitops.render.comment_inputs import (
    ApprovalState,
    CommentSubject,
    PlanComment,
)
from gitops.render.graph import to_mermaid
from gitops.render.json_text import to_text
from gitops.render.markdown import COMMENT_LIMIT, SUMMARY_LIMIT, Section, assemble, block, code, link, text
from tests.support.effort import cases
from tests.support.random_outcomes import (
    CHANGES,
    COMMENTS,
    DIAGNOSTICS,
    DRIFTS,
    GRAPHS,
    HOSTILE,
    LAYOUT,
    NAMES,
    OUTCOMES,
    OWN,
    PLAN_COMMENTS,
    SIGNED,
    TEMPLATE_VALUE,
    URLS,
    several,
)
from tests.support.remedies import on_one_line

# Everything that a forge would act on outside of code. The first two lines of a comment are our own hidden notes.
REFERENCE = re.compile(r"@\w|\w#\d|#\d|GH-\d|://|www\.|!\w", re.IGNORECASE)
ALLOWED = {
    "paragraph", "inline", "heading", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td", "hr", "fence",
    "html_block", "text", "code_inline", "strong", "softbreak", "link",
}  # fmt: skip
FOLD = re.compile(r"<details>\n<summary>[A-Za-z ]+( \(\d+\))?</summary>\n|</details>\n?")
NOTE = re.compile(r"<!-- [A-Za-z0-9_:=. -]+ -->\n?")


def parsed(body):
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(body)
    return [each for token in tokens for each in (token, *(token.children or ()))]


def assert_tame(body, notes=0, markup=ALLOWED):
    """Nothing in a body but what the layout makes: no foreign element, link, mention, reference, command or HTML."""
    body.encode("utf-8")
    tokens = parsed(body)
    kinds = {re.sub(r"_(open|close)$", "", token.type) for token in tokens}
    assert kinds <= markup
    html = [token.content for token in tokens if token.type == "html_block"]
    assert sum(NOTE.fullmatch(each) is not None for each in html) == notes
    folds = [each for each in html if NOTE.fullmatch(each) is None]
    assert all(FOLD.fullmatch(each) for each in folds)
    assert [each.startswith("</") for each in folds] == [False, True] * (len(folds) // 2)
    for token in tokens:
        if token.type == "inline":
            # A row that is not part of its table would be a paragraph.
            assert not token.content.startswith("|")
        if token.type == "text":
            assert REFERENCE.search(token.content) is None
            assert not token.content.startswith("/")
        elif token.type == "link_open":
            assert re.fullmatch(r"https?://[A-Za-z0-9.:/_~%+=&?#@-]+", token.attrs["href"])
    assert all(c in "\n\t" or c.isprintable() for c in body)
    assert not [line for line in body.split("\n") if line.startswith("/") and not line.startswith("/gitops ")]


@given(HOSTILE)
def test_a_value_as_code_is_one_code_span(value):
    kinds = [t.type for t in parsed(f"x {code(value)} y")]
    assert kinds == ["paragraph_open", "inline", "text", "code_inline", "text", "paragraph_close"]


@given(HOSTILE, HOSTILE)
def test_a_value_in_a_cell_stays_in_its_cell(left, right):
    body = f"| a | b |\n| --- | --- |\n| {code(left)} | {text(right)} |\n| c | d |\n"
    tokens = parsed(body)
    assert sum(t.type == "td_open" for t in tokens) == 4
    assert_tame(body)


@given(HOSTILE)
def test_a_value_as_text_is_words_and_code(value):
    assert_tame(f"- **x** {text(value)} y")
    assert "\n" not in text(value)


@given(HOSTILE)
def test_a_value_in_a_block_is_one_fence(value):
    tokens = parsed(f"a\n\n{block(value, 'sh')}\n\nb")
    assert [t.type for t in tokens if t.level == 0].count("fence") == 1
    assert tokens[-2].content == "b" or tokens[-1].type == "paragraph_close"
    assert_tame(block(value))


_TYPED = st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" '\"\\/#$-`"), max_size=40)


@given(st.lists(_TYPED, min_size=1, max_size=12))
def test_a_long_command_stays_the_same_command(words):
    lines = wrapped(shlex.join(words)).split(" \\\n")
    assert [word for line in lines for word in shlex.split(line)] == words
    assert not any(line.lstrip().startswith(("/", "#")) for line in lines[1:])
    assert max(map(len, lines[:-1]), default=0) <= 78 or any(len(shlex.quote(word)) > 30 for word in words)


@given(st.integers(300, 1_500), st.integers(1, 30), st.booleans())
def test_no_cut_leaves_the_start_of_a_command(limit, commands, fold):
    lines = "\n".join(f"gitops approve graph.g{i} --request 7 --plan {'0' * 64}" for i in range(commands))
    body = assemble(
        (Section("Approvals", 1, f"a\n{block(lines, 'sh')}", fold=fold),), limit=limit + 2_000, fold_limit=limit
    )
    shown = on_one_line(body)
    assert re.findall("^gitops.*$", shown, re.MULTILINE) == lines.split("\n")[: shown.count("gitops")]


@given(COMMENTS)
def test_no_value_escapes_from_a_comment(comment):
    render, values = comment
    body = render(values)
    first, second, blank, verdict, *_ = body.split("\n")
    assert re.fullmatch(r"<!-- gitops cluster=[A-Za-z0-9_-]+ -->", first)
    assert re.fullmatch(r"<!-- gitops:(plan|apply|refusal) head=[0-9a-f]{40} plan=([0-9a-f]{64}|none) -->", second)
    assert blank == ""
    assert verdict.startswith("**")
    assert verdict.endswith("**")
    assert_tame(body, notes=2)
    assert parsed(body)[-1].type == "paragraph_close"


@given(URLS, HOSTILE)
def test_a_link_is_a_link_or_words(address, words):
    assert_tame(f"- {link(address, words)} y")


@settings(max_examples=cases(50))
@given(PLAN_COMMENTS)
def test_a_summary_is_the_plan_without_its_hidden_lines(comment):
    assert_tame(plan_summary(comment))
    assert plan_document(comment.outcome) == plan_document(comment.outcome)
    json.loads(plan_document(comment.outcome))


@given(DRIFTS)
def test_no_value_escapes_from_a_report_of_drift(report):
    body = drift_body(report)
    assert re.match(r"<!-- gitops drift=[A-Za-z0-9_-]+ -->\n\n\*\*", body)
    assert len(body) <= COMMENT_LIMIT
    assert_tame(body, notes=1)


@settings(max_examples=cases(50))
@given(PLAN_COMMENTS, OWN)
def test_no_value_escapes_from_a_template_of_the_repository(comment, own):
    """Whatever its layout: either the template is refused, or every value in it is words and code, and the frame stands."""
    comment = replace(comment, templates=own)
    body = plan_comment(comment)
    tokens = parsed(body)
    assert sum(NOTE.fullmatch(t.content) is not None for t in tokens if t.type == "html_block") == 2
    assert not [t for t in tokens if t.type == "html_inline"]
    assert all(FOLD.fullmatch(t.content) or NOTE.fullmatch(t.content) for t in tokens if t.type == "html_block")
    digest = comment.outcome.plan.digest if comment.outcome.plan else None
    assert body.split("\n")[1].endswith(f"plan={digest or 'none'} -->")
    last = max(i for i, token in enumerate(tokens) if token.type == "hr")
    assert [t.type for t in tokens[last + 1 : last + 3]] == ["paragraph_open", "inline"]
    assert tokens[last + 2].content.startswith(f"Request {comment.subject.request}, head")


@given(SIGNED, st.lists(st.one_of(LAYOUT, TEMPLATE_VALUE), max_size=12).map("".join))
def test_a_value_stays_code_wherever_a_template_prints_it(value, template):
    subject = CommentSubject(cluster="a", environment=value, request=1, head="1a" * 20, base="2b" * 20)
    outcome = PlanOutcome(config_dir=".", observations=StateObservations("s", "l"))
    body = plan_comment(PlanComment(subject=subject, outcome=outcome, templates={"plan.md.j2": template}))
    assert not [t.content for t in parsed(body) if t.type.startswith(("text", "html")) and "@ZZ" in t.content]


@given(GRAPHS, st.integers(0, 3), st.booleans())
def test_a_picture_holds_labels_only(graph, most, reasons):
    label = '"[A-Za-z0-9_ .:,#;-]*"'
    node = rf"(  )?n\d+(\[{label}\]|\{{\{{{label}\}}\}})"
    arrow = rf"n\d+ -->(\|{label}\|)? n\d+"
    first, *lines = to_mermaid(graph, most=most, reasons=reasons).splitlines()
    assert first == "flowchart LR"
    assert all(re.fullmatch(rf"  ({node}|{arrow}|subgraph g\d+\[{label}\]|end)", line) for line in lines)
    assert sum("-->" not in line and " n" in line for line in lines) <= max(1, most)


@settings(max_examples=cases(25))
@given(
    several(DIAGNOSTICS, 3),
    several(CHANGES, 3),
    st.integers(0, 3_000),
    st.integers(0, 3_000),
    st.integers(0, 5_000),
)
def test_any_comment_fits_and_closes_its_fences(problems, changes, many_problems, many_changes, length):
    gates = tuple(ApprovalRequirement(Address(f"graph.g{i}"), "a" * length, "") for i in range(many_changes))
    states = tuple(
        ApprovalState(
            resource=g.resource, satisfied=False, command=f"gitops approve {g.resource} {'x' * (length % 500)}"
        )
        for g in gates
    )
    plan = Plan("b" * 64, "e" * 64, changes * many_changes, (), gates, ExecutionGraph())
    outcome = PlanOutcome(
        config_dir=".", observations=StateObservations("s", "l"), plan=plan, diagnostics=problems * (many_problems // 3)
    )
    subject = CommentSubject(cluster="a", environment="e" * length, request=1, head="1a" * 20, base="2b" * 20)
    comment = PlanComment(subject=subject, outcome=outcome, approvals=states)
    body = plan_comment(comment)
    assert len(body) <= COMMENT_LIMIT
    assert len(plan_summary(comment).encode()) <= SUMMARY_LIMIT
    assert "e" * 64 in body
    fences = [line for line in body.split("\n") if re.fullmatch(r"`{3,}(sh)?", line)]
    assert len(fences) % 2 == 0
    assert_tame(body, notes=2)


_ROWS = st.one_of(st.none(), st.integers(0, 5_000))
_EDITS = st.dictionaries(
    NAMES, st.tuples(st.sampled_from(["graph", "query.g"]), st.sampled_from(Action), _ROWS), max_size=9
)


@given(_EDITS, st.integers(1, 3))
def test_the_first_line_of_a_plan_has_its_numbers(edits, needed):
    """For every printer; what is not known is never a number."""
    changes, gates, left = [], [], []
    for name, (kind, action, rows) in sorted(edits.items()):
        address, seen = Address(f"{kind}.{name}"), None if rows is None else Seen("01", rows, 1)
        lost = kind == "graph" and action is Action.DELETE
        changes.append(Change(address, action, None, None, seen=seen, tier=Tier.IRREVERSIBLE if lost else None))
        gates += [ApprovalRequirement(address, "why", "d", needed=needed)] if lost else []
        left += [rows] if lost else []
    plan = Plan("b" * 64, "e" * 64, tuple(changes), (), tuple(gates), ExecutionGraph())
    outcome = PlanOutcome(config_dir=".", observations=StateObservations(), plan=plan)
    subject = CommentSubject(cluster="c", environment="e", request=1, head="1a" * 20, base="2b" * 20)
    commented = plan_comment(PlanComment(subject=subject, outcome=outcome)).split("\n")[3].replace("`", "").strip("*")
    printed = render_text.to_text(outcome).split("\n")[0]
    assert commented.removeprefix("Plan for e/c: ").removesuffix(" · ready to merge") == printed.removeprefix("Plan: ")
    if not changes:
        assert printed == "Plan: no changes"
        return
    found = [sum(each.action is action for each in changes) for action in (Action.CREATE, Action.UPDATE, Action.DELETE)]
    assert "+{:,} ~{:,} −{:,}".format(*found) in printed
    known = [rows for rows in left if rows is not None]
    destroyed = re.search(
        r"([\d,]+) (empty )?graphs? (?:with (at least )?([\d,]+) rows? )?destroyed(, number of rows unknown)?", printed
    )
    missing = re.search(r"([\d,]+) approvals? missing", printed)
    if not left:
        assert destroyed is missing is None
        return
    number, empty, least, rows, unknown = destroyed.groups()
    assert int(number) == len(left)
    assert ((rows is not None and int(rows.replace(",", ""))) or 0) == sum(known)
    assert bool(unknown) == (not known)
    assert bool(least) == (0 < len(known) < len(left))
    assert bool(empty) == (known == [0] * len(left))
    assert int(missing[1]) == needed * len(left)


@given(OUTCOMES)
def test_a_terminal_sees_lines_of_ours_and_no_control_characters(outcome):
    printed = render_text.to_text(outcome)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert printed.endswith("\n")
    assert "##[" not in printed
    first_words = (
        r"cluster |(Plan|Apply|Dry run|Approved?|Revoked?|Countersign|Countersigned|Status|State|Refresh|Import|Ready)"
        r"(:| failed)|(Force-unlock failed|Lock removed)|  (Create|Update|Delete|Adopt|diff of|approval of|graph) "
        r"|  [\d,]+ (graphs|query|queries) |  \w[\w ]*: |      |    [-+@ ]|ERROR |WARN  "
    )
    for line in printed.split("\n")[:-1]:
        assert re.match(first_words, line)


@given(OUTCOMES)
def test_json_is_printable_and_says_what_the_envelope_says(outcome):
    form = render_json.envelope(outcome)
    printed = to_text(form)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert json.loads(printed) == form
