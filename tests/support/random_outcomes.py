"""Outcomes and comments of any content, with values that try to be more than values."""

from __future__ import annotations

from hypothesis import strategies as st

from gitops.cluster.apply.drift import DriftOutcome
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change, Disposition, Reason
from gitops.cluster.model.ledger import Debt, LedgerState, LockInfo, LockObservation, Status, StatusRecord
from gitops.cluster.model.outcome import (
    ApplyOutcome,
    PlanOutcome,
    RefreshOutcome,
    StateObservations,
    StatusOutcome,
    UnlockOutcome,
)
from gitops.cluster.model.plan import (
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
from gitops.cluster.model.trust import RuleChange
from gitops.cluster.plan.drift import DriftItem, DriftKind
from gitops.core.diagnostics import Diagnostic, Severity, SourceRef
from gitops.database.graph.port import MigrationPreview
from gitops.render.comment import apply_comment, plan_comment, refusal_comment
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
    page=URLS,
)
APPROVALS = several(
    st.builds(
        ApprovalState,
        resource=HOSTILE,
        satisfied=st.booleans(),
        by=several(HOSTILE, 2),
        refused=several(st.tuples(HOSTILE, HOSTILE), 2),
        step=st.none() | st.integers(1, 8),
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
    kept=st.just("3c" * 20),
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
