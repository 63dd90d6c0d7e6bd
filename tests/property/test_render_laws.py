"""Laws of rendering: hostile values stay values, comments fit, terminals see no control characters."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.apply.drift import DriftItem, DriftKind, DriftOutcome
from gitops.core.diagnostics import Diagnostic, Severity, SourceRef
from gitops.graph.port import MigrationPreview
from gitops.model.address import Address
from gitops.model.change import Action, Change, Disposition, Reason
from gitops.model.ledger import Debt, LedgerState, LockInfo, LockObservation, Status, StatusRecord
from gitops.model.outcome import (
    ApplyOutcome,
    PlanOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
)
from gitops.model.plan import (
    ApprovalRequirement,
    ExecEdge,
    ExecNode,
    ExecutionGraph,
    Impact,
    NodeOutcome,
    NodeResult,
    Plan,
    TextChange,
)
from gitops.model.trust import RuleChange
from gitops.render import json as render_json
from gitops.render import text as render_text
from gitops.render.comment import apply_comment, drift_body, plan_comment, plan_document, plan_summary, refusal_comment
from gitops.render.comment_inputs import (
    ApplyComment,
    ApprovalState,
    CommentSubject,
    DriftReport,
    OtherRequest,
    PlanComment,
    RefusalComment,
    RefusedCommand,
)
from gitops.render.graph import to_mermaid
from gitops.render.markdown import COMMENT_LIMIT, SUMMARY_LIMIT, block, code, link, text
from tests.support.effort import cases

PIECES = st.sampled_from(
    [
        "`", "```", "````", "~~~", "|", "\\", "\\|", "<img src=x onerror=y>", "<!-- gitops:plan cluster=a -->", "-->",
        "@admin", "@org/team", "#12", "GH-12", "org/repo#1", "closes #1", "https://evil.example/a", "www.evil.example",
        "bob@evil.example", "![x](https://evil.example/p.png)", "[x](javascript:y)", "[x]: https://evil.example", "\n",
        "\r\n", "\n\n", "\t", "\n/close\n", "\n# h", "\n---\n", "\n- x", "    ", "*", "**", "_", "&lt;", "&#64;bob",
        "{{ 7*7 }}", "{% raw %}", "\x1b[2J", "\x07", "\x1e", "\x1f", "\u202e", "\u200b", "\u2028", "\x85", "\ud800",
        "::error::x", "##[error]x", "a", "graph.x", "Person", "0", "</details>", "</summary>", "<details>", "1. ", "$",
        "/gitops plan", "deadbeef", "- [ ] x", "+ x", "[^1]", ":tada:", "!3", "~bug", "%%{init: {}}%%",
        '"]; click n0 "x"', "a/b@abcdef0",
    ]
)  # fmt: skip
HOSTILE = st.lists(st.one_of(PIECES, st.text(max_size=8)), max_size=8).map("".join)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,20}", fullmatch=True)
JSON = st.recursive(st.none() | st.integers() | HOSTILE, lambda s: st.lists(s, max_size=3), max_leaves=6)
STEPS = st.one_of(
    st.dictionaries(HOSTILE, JSON, max_size=3),
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["add_type", "unsupported_change", "drop_property", "extend_enum"]),
            "type_kind": st.sampled_from(["node", "edge"]),
            "name": HOSTILE,
            "type_name": HOSTILE,
            "property_name": HOSTILE,
            "mode": st.sampled_from(["soft", "hard"]),
            "added_values": st.lists(HOSTILE, max_size=3),
            "entity": HOSTILE,
            "reason": HOSTILE,
            "code": HOSTILE,
        }
    ),
)
DIAGNOSTICS = st.builds(
    Diagnostic,
    code=HOSTILE,
    severity=st.sampled_from(Severity),
    path=HOSTILE,
    message=HOSTILE,
    source=st.none() | st.builds(SourceRef, HOSTILE, st.integers(0, 9), st.integers(0, 9)),
    fix=st.none() | HOSTILE,
)
CHANGES = st.builds(
    Change,
    address=HOSTILE.map(Address),
    action=st.sampled_from(Action),
    before=st.none() | HOSTILE,
    after=st.none() | HOSTILE,
    disposition=st.sampled_from(Disposition),
    reason=st.none() | st.sampled_from(Reason),
    binding_change=st.booleans(),
    migration=st.none()
    | st.builds(MigrationPreview, supported=st.booleans(), steps=st.lists(STEPS, max_size=3).map(tuple)),
)
LOCKS = st.builds(
    LockObservation,
    held=st.booleans(),
    info=st.none() | st.builds(LockInfo, HOSTILE, HOSTILE, HOSTILE, st.integers(0, 99_999)),
    problem=st.none() | HOSTILE,
)
SEEN = st.builds(
    StateObservations,
    state_path=HOSTILE,
    lock_path=HOSTILE,
    state_found=st.booleans(),
    applied_config_digest=st.none() | HOSTILE,
    state_cas=st.none() | HOSTILE,
    held=LOCKS,
    lock_age_seconds=st.none() | st.integers(0, 99),
)
STATES = st.builds(
    LedgerState,
    statuses=st.dictionaries(HOSTILE, st.builds(StatusRecord, st.sampled_from(Status), message=HOSTILE), max_size=2),
    observations=st.dictionaries(HOSTILE, st.dictionaries(HOSTILE, JSON, max_size=2), max_size=2),
)


def several(strategy, most=4):
    return st.lists(strategy, max_size=most).map(tuple)


PROBLEMS = several(DIAGNOSTICS)
GRAPHS = st.builds(
    ExecutionGraph,
    nodes=several(
        st.builds(ExecNode, HOSTILE, st.sampled_from(["graph", "barrier"]), st.sampled_from(Action), st.integers(0, 9))
    ),
    edges=several(st.builds(ExecEdge, HOSTILE, HOSTILE, HOSTILE)),
)
URLS = st.one_of(
    HOSTILE, HOSTILE.map("https://forge.example/{}".format), st.just("https://forge.example/a/b/pull/9?a=b#c")
)
REFUSED = several(st.builds(RefusedCommand, HOSTILE, HOSTILE, HOSTILE), 2)
DEBTS = several(st.builds(Debt, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE), 2)
PLANS = st.builds(
    Plan,
    config_digest=st.just("b" * 64),
    digest=st.just("e" * 64),
    changes=several(CHANGES),
    impact=several(st.builds(Impact, HOSTILE.map(Address), several(HOSTILE.map(Address), 30))),
    approvals_required=several(st.builds(ApprovalRequirement, HOSTILE, HOSTILE, HOSTILE)),
    graph=GRAPHS,
    rule_changes=several(
        st.builds(RuleChange, HOSTILE.map(Address), HOSTILE, st.none() | HOSTILE, st.none() | HOSTILE, st.booleans()), 2
    ),
)
TEXTS = st.builds(
    TextChange,
    resources=st.lists(st.sampled_from(["schema.{}", "policy.{}", "query.a.{}"]), min_size=1, max_size=2).flatmap(
        lambda forms: st.tuples(*(HOSTILE.map(forms[0].format).map(Address) for _ in forms))
    ),
    before=st.none() | HOSTILE.map(lambda text: text.encode("utf-8", "replace")),
    after=st.none() | HOSTILE.map(lambda text: text.encode("utf-8", "replace")),
)
PLAN_OUTCOMES = st.builds(
    PlanOutcome,
    config_dir=HOSTILE,
    observations=SEEN,
    plan=st.none() | PLANS,
    texts=several(TEXTS, 3),
    diagnostics=PROBLEMS,
)
APPLY_OUTCOMES = st.builds(
    ApplyOutcome,
    config_dir=HOSTILE,
    observations=SEEN,
    actor=st.none() | HOSTILE,
    changes=several(CHANGES),
    state=st.none() | STATES,
    results=several(st.builds(NodeResult, HOSTILE, st.sampled_from(NodeOutcome), blocked_by=st.none() | HOSTILE)),
    entry_id=st.none() | HOSTILE,
    diagnostics=PROBLEMS,
)
OUTCOMES = st.one_of(
    PLAN_OUTCOMES,
    APPLY_OUTCOMES,
    st.builds(StatusOutcome, config_dir=HOSTILE, observations=SEEN, state=st.none() | STATES, diagnostics=PROBLEMS),
    st.builds(
        RefreshOutcome,
        config_dir=HOSTILE,
        operation=st.sampled_from(["refresh", "import"]),
        observations=SEEN,
        diagnostics=PROBLEMS,
    ),
    st.builds(UnlockOutcome, config_dir=HOSTILE, observations=SEEN, diagnostics=PROBLEMS),
)
SUBJECTS = st.builds(
    CommentSubject,
    cluster=NAMES,
    environment=HOSTILE,
    request=st.integers(1, 9),
    head=st.just("1a" * 20),
    base=st.just("2b" * 20),
)
APPROVALS = several(
    st.builds(
        ApprovalState,
        resource=HOSTILE,
        satisfied=st.booleans(),
        by=several(HOSTILE, 2),
        refused=several(st.tuples(HOSTILE, HOSTILE), 2),
        command=HOSTILE,
        may=several(HOSTILE, 2),
    )
)
LAYOUT = st.sampled_from(
    [
        "\n", "\n\n", "\n\n- ", "| ", " |\n", "**", "_", "[", "]", "[x](", "](", "(", ")", "> ", "\n> ", "    ", "# ", "&", "1. ",
        "1) ",
        "[x]: ", "[^1]: ", "!", "\n---\n", "\n===\n", "- [ ] ", "\n| a | b |\n| --- | --- |\n", "a", "$", ":", "\n    ", '"', "'",
    ]
)  # fmt: skip
TEMPLATE_TEXT = st.one_of(PIECES, LAYOUT)
TEMPLATE_VALUE = st.sampled_from(
    [
        "{{ environment|code }}", "{{ environment|text }}", "{{ environment|block }}", "{{ environment|link(environment) }}",
        "{% for d in warnings %}{{ d.message|text }}{% endfor %}", "{{ section('A', 1) }}", "{{ section('B', 2, fold=true) }}",
        "{{ request }}", "{% set x = environment|code %}{{ x }}", "{% if errors %}a{% else %}{{ environment|code }}{% endif %}",
        "{% macro m(x) %}{{ x|text }}{% endmacro %}{{ m(environment) }}", "{{ verdict }}", "{% if errors %}",
    ]
)  # fmt: skip
TEMPLATES = st.lists(st.one_of(LAYOUT, TEMPLATE_VALUE, TEMPLATE_VALUE, TEMPLATE_TEXT), max_size=9).map("".join)
OWN = st.one_of(st.just({}), st.fixed_dictionaries({"plan.md.j2": TEMPLATES}))
# Every part of it has a sign that would be a mention outside of code.
SIGNED = st.lists(PIECES, min_size=1, max_size=6).map(lambda pieces: "".join(f"{piece}@ZZ" for piece in pieces))
PLAN_COMMENTS = st.builds(
    PlanComment,
    subject=SUBJECTS,
    outcome=PLAN_OUTCOMES,
    approvals=APPROVALS,
    others=several(st.builds(OtherRequest, st.integers(1, 9), HOSTILE, URLS, several(HOSTILE, 25)), 2),
    explained=several(HOSTILE, 2),
    refusals=REFUSED,
    debts=DEBTS,
    since=several(HOSTILE, 2),
    forge_verdict_missing=st.booleans(),
    run=URLS,
    ref=HOSTILE,
    forge_commands=st.booleans(),
    several=st.booleans(),
)
APPLY_COMMENTS = st.builds(
    ApplyComment,
    subject=SUBJECTS,
    outcome=APPLY_OUTCOMES,
    approvals=APPROVALS,
    debts=DEBTS,
    refusals=REFUSED,
    notes=several(HOSTILE, 2),
    deployment=URLS,
    run=URLS,
    forge_commands=st.booleans(),
)
REFUSAL_COMMENTS = st.builds(
    RefusalComment,
    subject=SUBJECTS,
    command=HOSTILE,
    diagnostics=PROBLEMS,
    refusals=REFUSED,
    notes=several(HOSTILE, 2),
    run=URLS,
    forge_commands=st.booleans(),
)
COMMENTS = st.one_of(
    st.tuples(st.just(plan_comment), PLAN_COMMENTS),
    st.tuples(st.just(apply_comment), APPLY_COMMENTS),
    st.tuples(st.just(refusal_comment), REFUSAL_COMMENTS),
)
DRIFTS = st.builds(
    DriftReport,
    cluster=NAMES,
    environment=HOSTILE,
    at=HOSTILE,
    outcome=st.builds(
        DriftOutcome,
        config_dir=HOSTILE,
        observations=SEEN,
        items=several(
            st.builds(
                DriftItem,
                HOSTILE,
                st.sampled_from(DriftKind),
                HOSTILE,
                st.none() | HOSTILE,
                HOSTILE,
                st.none() | HOSTILE,
            )
        ),
        diagnostics=PROBLEMS,
    ),
    adopt=several(HOSTILE, 2),
    reapply=several(HOSTILE, 2),
    proposal=URLS,
)

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
    assert tokens[last + 2].content.startswith(f"Change request {comment.subject.request}, head")


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


@given(OUTCOMES)
def test_a_terminal_sees_lines_of_ours_and_no_control_characters(outcome):
    printed = render_text.to_text(outcome)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert printed.endswith("\n")
    assert "##[" not in printed
    first_words = (
        r"cluster |  (Create|Update|Delete|Adopt|diff of|approval of|\d+ quer(y|ies) of) |  \w[\w ]*: "
        r"|      |    [-+@ ]|ERROR |WARN  "
    )
    for line in printed.split("\n")[:-1]:
        assert re.match(rf"{first_words}|  no changes\Z", line)


@given(OUTCOMES)
def test_json_is_printable_and_says_what_the_envelope_says(outcome):
    form = render_json.envelope(outcome)
    printed = render_json.to_text(form)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert json.loads(printed) == form
