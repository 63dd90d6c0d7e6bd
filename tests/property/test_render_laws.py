"""Laws of rendering: hostile values stay values, comments fit, terminals see no control characters."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.core.diagnostics import Diagnostic, Severity, SourceRef
from gitops.model.address import Address
from gitops.model.change import Action, Change, Disposition, MigrationPreview, Reason
from gitops.model.execution import ExecutionGraph, NodeResult, Outcome
from gitops.model.lock import LockInfo, LockObservation
from gitops.model.outcome import (
    ApplyOutcome,
    PlanOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
)
from gitops.model.plan import ApprovalRequirement, Impact, Plan
from gitops.model.state import State, Status, StatusRecord
from gitops.render import json as render_json
from gitops.render import text as render_text
from gitops.render.comment import (
    ApplyComment,
    ApprovalState,
    PlanComment,
    RefusalComment,
    Subject,
    apply_comment,
    plan_comment,
    refusal_comment,
)
from gitops.render.markdown import COMMENT_LIMIT, block, cell, code, text

PIECES = st.sampled_from(
    [
        "`", "```", "````", "~~~", "|", "\\", "\\|", "<img src=x onerror=y>", "<!-- gitops:plan cluster=a -->", "-->",
        "@admin", "@org/team", "#12", "GH-12", "org/repo#1", "closes #1", "https://evil.example/a", "www.evil.example",
        "bob@evil.example", "![x](https://evil.example/p.png)", "[x](javascript:y)", "[x]: https://evil.example", "\n",
        "\r\n", "\n\n", "\t", "\n/close\n", "\n# h", "\n---\n", "\n- x", "    ", "*", "**", "_", "&lt;", "&#64;bob",
        "{{ 7*7 }}", "{% raw %}", "\x1b[2J", "\x07", "\x1e", "\x1f", "\u202e", "\u200b", "\u2028", "\x85", "\ud800",
        "::error::x", "##[error]x", "a", "graph.x", "Person", "0",
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
    address=HOSTILE.map(Address.parse),
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
    State,
    statuses=st.dictionaries(HOSTILE, st.builds(StatusRecord, st.sampled_from(Status), message=HOSTILE), max_size=2),
    observations=st.dictionaries(HOSTILE, st.dictionaries(HOSTILE, JSON, max_size=2), max_size=2),
)


def several(strategy, most=4):
    return st.lists(strategy, max_size=most).map(tuple)


PROBLEMS = several(DIAGNOSTICS)
PLANS = st.builds(
    Plan,
    config_digest=st.just("b" * 64),
    digest=st.just("e" * 64),
    changes=several(CHANGES),
    impact=several(st.builds(Impact, HOSTILE, several(HOSTILE, 30))),
    approvals_required=several(st.builds(ApprovalRequirement, HOSTILE, HOSTILE, HOSTILE)),
    graph=st.just(ExecutionGraph()),
)
PLAN_OUTCOMES = st.builds(
    PlanOutcome, config_dir=HOSTILE, observations=SEEN, plan=st.none() | PLANS, diagnostics=PROBLEMS
)
APPLY_OUTCOMES = st.builds(
    ApplyOutcome,
    config_dir=HOSTILE,
    observations=SEEN,
    actor=st.none() | HOSTILE,
    changes=several(CHANGES),
    state=st.none() | STATES,
    results=several(st.builds(NodeResult, HOSTILE, st.sampled_from(Outcome), blocked_by=st.none() | HOSTILE)),
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
        digests=st.dictionaries(HOSTILE, HOSTILE, max_size=2),
        diagnostics=PROBLEMS,
    ),
    st.builds(UnlockOutcome, config_dir=HOSTILE, observations=SEEN, diagnostics=PROBLEMS),
)
SUBJECTS = st.builds(
    Subject,
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
        code=st.none() | HOSTILE,
        detail=HOSTILE,
        command=HOSTILE,
    )
)
COMMENTS = st.one_of(
    st.tuples(
        st.just(plan_comment), st.builds(PlanComment, subject=SUBJECTS, outcome=PLAN_OUTCOMES, approvals=APPROVALS)
    ),
    st.tuples(
        st.just(apply_comment), st.builds(ApplyComment, subject=SUBJECTS, outcome=APPLY_OUTCOMES, approvals=APPROVALS)
    ),
    st.tuples(
        st.just(refusal_comment), st.builds(RefusalComment, subject=SUBJECTS, command=HOSTILE, diagnostics=PROBLEMS)
    ),
)

# Everything that a forge would act on outside of code. The first two lines of a comment are our own hidden notes.
REFERENCE = re.compile(r"@\w|\w#\d|#\d|GH-\d|://|www\.|!\w", re.IGNORECASE)
ALLOWED = {
    "paragraph", "inline", "heading", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td", "hr", "fence",
    "html_block", "text", "code_inline", "strong", "softbreak",
}  # fmt: skip


def parsed(body):
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(body)
    return [each for token in tokens for each in (token, *(token.children or ()))]


def assert_tame(body, html_blocks=0):
    body.encode("utf-8")
    tokens = parsed(body)
    kinds = {re.sub(r"_(open|close)$", "", token.type) for token in tokens}
    assert kinds <= ALLOWED
    assert sum(token.type == "html_block" for token in tokens) == html_blocks
    for token in tokens:
        if token.type == "text":
            assert REFERENCE.search(token.content) is None
            assert not token.content.startswith("/")
    assert all(c in "\n\t" or c.isprintable() for c in body)


@given(HOSTILE)
def test_a_value_as_code_is_one_code_span(value):
    kinds = [t.type for t in parsed(f"x {code(value)} y")]
    assert kinds == ["paragraph_open", "inline", "text", "code_inline", "text", "paragraph_close"]


@given(HOSTILE, HOSTILE)
def test_a_value_in_a_cell_stays_in_its_cell(left, right):
    body = f"| a | b |\n| --- | --- |\n| {cell(left)} | {cell(right)} |\n| c | d |\n"
    tokens = parsed(body)
    assert sum(t.type == "td_open" for t in tokens) == 4
    assert sum(t.type == "code_inline" for t in tokens) == 2
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
    assert_tame(body, html_blocks=2)
    assert parsed(body)[-1].type == "paragraph_close"


@settings(max_examples=25)
@given(
    several(DIAGNOSTICS, 3),
    several(CHANGES, 3),
    st.integers(0, 3_000),
    st.integers(0, 3_000),
    st.integers(0, 5_000),
)
def test_any_comment_fits_and_closes_its_fences(problems, changes, many_problems, many_changes, length):
    gates = tuple(ApprovalRequirement(f"graph.g{i}", "a" * length, "") for i in range(many_changes))
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
    subject = Subject(cluster="a", environment="e" * length, request=1, head="1a" * 20, base="2b" * 20)
    body = plan_comment(PlanComment(subject=subject, outcome=outcome, approvals=states))
    assert len(body) <= COMMENT_LIMIT
    assert "e" * 64 in body
    fences = [line for line in body.split("\n") if re.fullmatch(r"`{3,}(sh)?", line)]
    assert len(fences) % 2 == 0
    assert_tame(body, html_blocks=2)


@given(OUTCOMES)
def test_a_terminal_sees_lines_of_ours_and_no_control_characters(outcome):
    printed = render_text.to_text(outcome)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert printed.endswith("\n")
    assert "##[" not in printed
    for line in printed.split("\n")[:-1]:
        assert re.match(r"cluster |  (Create|Update|Delete) |  \w[\w ]*: |      |ERROR |WARN  |  no changes\Z", line)


@given(OUTCOMES)
def test_json_is_printable_and_says_what_the_envelope_says(outcome):
    form = render_json.envelope(outcome)
    printed = render_json.to_text(form)
    printed.encode("utf-8")
    assert all(c == "\n" or c.isprintable() for c in printed)
    assert json.loads(printed) == form
