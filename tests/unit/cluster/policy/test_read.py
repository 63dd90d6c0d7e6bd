"""Reading policy files: what is refused, with which code, at which line."""

from __future__ import annotations

import pytest

from gitops.cluster.policy.bundle import BranchScope, EngineKind, PolicyAction, Rule
from gitops.cluster.policy.read import read_bundle

GOOD = """\
version: 1
groups:
  readers: [act-reader, act-editor]
  editors: [act-editor]
protected_branches: [main]
rules:
  - id: reading
    allow:
      actors: {group: readers}
      actions: [read, export]
      branch_scope: any
  - id: running
    allow: {actors: {group: readers}, actions: [invoke_query], queries: [find_*, count]}
  - id: merging
    allow:
      actors: {group: editors}
      actions: [branch_merge]
      target_branch_scope: protected
"""


def found(text: str) -> list[tuple[str, int, int]]:
    """Codes with line and column."""
    bundle, problems = read_bundle(text.encode(), "p.yaml")
    assert (bundle is None) == problems.has_errors
    assert {d.source.file for d in problems if d.source} <= {"p.yaml"}
    return [(d.code, d.source.line, d.source.column) for d in problems if d.source]


def message(text: str) -> str:
    """The first message with its remedy."""
    _, problems = read_bundle(text.encode(), "p.yaml")
    first = next(iter(problems))
    return f"{first.message}; {first.fix}"


def edited(old: str, new: str) -> str:
    assert GOOD.count(old) == 1
    return GOOD.replace(old, new)


def test_a_bundle_has_what_its_file_says():
    bundle, problems = read_bundle(GOOD.encode(), "p.yaml")
    assert bundle is not None
    assert list(problems) == []
    assert bundle.groups == {"readers": ("act-reader", "act-editor"), "editors": ("act-editor",)}
    assert bundle.protected_branches == {"main"}
    assert bundle.rules == (
        Rule("reading", "readers", (PolicyAction.READ, PolicyAction.EXPORT), BranchScope.ANY, line=7),
        Rule("running", "readers", (PolicyAction.INVOKE_QUERY,), queries=("find_*", "count"), line=12),
        Rule("merging", "editors", (PolicyAction.BRANCH_MERGE,), None, BranchScope.PROTECTED, line=14),
    )


@pytest.mark.parametrize(
    "text", ["version: 1\n", "version: 1\ngroups:\nprotected_branches:\nrules:\n", "{version: 1, rules: []}"]
)
def test_a_bundle_without_rules_permits_nothing(text):
    bundle, problems = read_bundle(text.encode(), "p.yaml")
    assert bundle is not None
    assert (bundle.rules, list(problems)) == ((), [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("policy_parse", 1, 1)]),
        ("- 1\n", [("policy_parse", 1, 1)]),
        ("rules: []\n", [("policy_parse", 1, 1)]),
        ("version:\n", [("policy_parse", 1, 1)]),
        ("version: true\n", [("policy_parse", 1, 10)]),
        ("version: 1\nversion: 1\n", [("policy_parse", 2, 1)]),
        ("version: 1\ngroups: &a {}\nrules: *a\n", [("policy_parse", 2, 9)]),
        ("version: 1\ngroups: {a: [b\n", [("policy_parse", 3, 1)]),
        ("version: 1\ngroups: []\n", [("policy_parse", 2, 9)]),
        ("version: 1\nrules: {}\n", [("policy_parse", 2, 8)]),
        ("version: 2\n", [("policy_version", 1, 10)]),
        ("version: 1\nkind: sever\n", [("policy_parse", 2, 7)]),
        (edited("[act-reader, act-editor]", "[act-reader, 123]"), [("policy_parse", 3, 25)]),
        (edited("[act-reader, act-editor]", "[2026-01-01, ~]"), [("policy_parse", 3, 25)]),
        (edited("[act-reader, act-editor]", "['123', '~']"), []),
        (edited("[act-reader, act-editor]", "[]"), [("policy_group_empty", 3, 3)]),
        (edited("[act-reader, act-editor]", ""), [("policy_group_empty", 3, 3)]),
        (edited("[act-reader, act-editor]", "[a, ' ']"), [("policy_group_blank_actor", 3, 16)]),
        (edited("  editors: [", "  ' ': [x]\n  editors: ["), [("policy_group_blank_name", 4, 3)]),
        (edited("[main]", "['']"), [("policy_protected_branch_blank", 5, 22)]),
        (edited("id: running", "id: ''"), [("policy_rule_id_blank", 12, 9)]),
        (edited("id: running", "id: reading"), [("policy_rule_id_duplicate", 12, 9)]),
        (edited("  - id: merging\n    allow:", "  - allow:"), [("policy_parse", 14, 5)]),
        (edited("id: merging\n", "id: merging\n    deny: {}\n"), [("policy_parse", 15, 5)]),
        (edited("{group: editors}", "{group: ' '}"), [("policy_rule_group_blank", 16, 23)]),
        (edited("{group: editors}", "{group: editor}"), [("policy_rule_group_unknown", 16, 23)]),
        (edited("{group: editors}", "{actor: act-editor}"), [("policy_parse", 16, 16), ("policy_parse", 16, 15)]),
        (edited("[read, export]", "[]"), [("policy_rule_no_actions", 10, 16)]),
        (edited("[read, export]", "[read, raed]"), [("policy_parse", 10, 23)]),
        (edited("[read, export]", "[schema-apply]"), [("policy_parse", 10, 17)]),
        (edited("[read, export]", "[read, read]"), [("policy_rule_action_duplicate", 10, 23)]),
        (edited("branch_scope: any\n", "branch_scope: all\n"), [("policy_parse", 11, 21)]),
        (edited("branch_scope: any\n", "branch_scope:\n"), [("policy_parse", 11, 20)]),
        (edited("[find_*, count]", "[]"), [("policy_parse", 13, 73)]),
        (edited("[find_*, count]", "['find?']"), [("policy_parse", 13, 74)]),
    ],
)
def test_each_problem_has_its_code_and_place(text, expected):
    assert found(text) == expected


def test_a_misspelt_key_is_refused_and_named():
    """Ignored, it would permit on every branch."""
    text = edited("      branch_scope: any", "      branch_scpoe: protected")
    assert found(text) == [("policy_parse", 11, 7)]
    assert message(text) == (
        "rules[0].allow.branch_scpoe: unknown key; did you mean `branch_scope`?; correct or delete the key"
    )


@pytest.mark.parametrize(
    ("action", "scope"),
    [
        ("invoke_query", "branch_scope: any"),
        ("branch_merge", "branch_scope: any"),
        ("read", "target_branch_scope: any"),
        ("admin", "target_branch_scope: any"),
        ("read", "queries: [find]"),
        ("change, invoke_query", "queries: [find]"),
    ],
)
def test_a_limit_that_an_action_does_not_have_is_refused_by_name(action, scope):
    rule = f"  - {{id: x, allow: {{actors: {{group: editors}}, actions: [{action}], {scope}}}}}\n"
    (code, line, _), *others = found(GOOD + rule)
    assert (code, line, others) == ("policy_rule_scope_unsupported", 19, [])
    assert f"{scope.partition(':')[0]} is not about {action.partition(',')[0]}" in message(GOOD + rule)


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("actions: [change], branch_scope: any, target_branch_scope: any", "policy_rule_two_scopes"),
        ("actions: [graph_list, read]", "policy_rule_mixed_kinds"),
        ("actions: [graph_list, reload], branch_scope: protected", "policy_rule_server_scope"),
        ("actions: [reload], queries: ['*']", "policy_rule_server_scope"),
    ],
)
def test_what_does_not_fit_together_in_a_rule_is_refused(limits, code):
    rule = f"  - {{id: x, allow: {{actors: {{group: editors}}, {limits}}}}}\n"
    assert [(each, line) for each, line, _ in found(GOOD + rule)] == [(code, 19)]


def test_problems_come_in_the_order_of_the_file_and_those_of_the_shape_alone():
    invalid = edited("version: 1", "version: 7").replace("[main]", "['']").replace("group: editors", "group: nobody")
    assert [code for code, *_ in found(invalid)] == [
        "policy_version",
        "policy_protected_branch_blank",
        "policy_rule_group_unknown",
    ]
    assert [code for code, *_ in found(invalid.replace("[read, export]", "read"))] == ["policy_parse"]


def test_the_deprecated_kind_is_a_warning_and_known():
    bundle, problems = read_bundle(b"version: 1\nkind: server\n", "p.yaml", "policy.p")
    assert bundle is not None
    assert (bundle.kind, bundle.kind_line) == (EngineKind.SERVER, 2)
    assert [(d.code, d.path, d.severity) for d in problems] == [("policy_kind_deprecated", "policy.p", "warning")]
