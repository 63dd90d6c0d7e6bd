"""Access policies: read, bound, decided, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.access import AccessClass, AccessRow, CauseKind, widening_words
from gitops.cluster.policy.access import AccessState, PolicyText
from gitops.cluster.policy.access_diff import access_diff
from gitops.cluster.policy.bind import BoundBundle, bind, check_kinds, conflicts, normalized
from gitops.cluster.policy.bundle import BranchScope, Bundle, EngineKind, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide, is_mentioned
from gitops.cluster.policy.read import read_bundle
from gitops.core.errors import GitopsError

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
        Rule("reading", "readers", (PolicyAction.READ, PolicyAction.EXPORT), BranchScope.ANY, line=7, column=5),
        Rule("running", "readers", (PolicyAction.INVOKE_QUERY,), queries=("find_*", "count"), line=12, column=5),
        Rule("merging", "editors", (PolicyAction.BRANCH_MERGE,), None, BranchScope.PROTECTED, line=14, column=5),
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
        ("version: 1\ngroups: {a: [b\n", [("policy_parse", 2, 13)]),
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


HEAD = "version: 1\ngroups: {all: [ada]}\nrules:\n"


def rule(*actions: str) -> str:
    return f"  - {{id: {actions[0]}, allow: {{actors: {{group: all}}, actions: [{', '.join(actions)}]}}}}\n"


def bound(text: str, *scopes: str, name: str = "p") -> BoundBundle:
    bundle, _ = read_bundle(text.encode(), "p.yaml")
    assert bundle is not None
    return BoundBundle(name, bundle, normalized(scopes), "p.yaml")


def test_bindings_are_normalized():
    assert normalized(["k", "graph.k", "cluster", "a"]) == ("cluster", "graph.a", "graph.k")


@pytest.mark.parametrize(
    ("actions", "scope", "fix"),
    [
        (("graph_list",), "graph.k", "move the action to a policy that is bound to cluster"),
        (("read",), "cluster", "move the action to a policy that is bound to graph.<id>"),
    ],
)
def test_an_action_of_the_other_kind_is_refused_with_where_to_move_it(actions, scope, fix):
    (problem,) = check_kinds(bound(HEAD + rule(*actions), scope), "policies.p")
    assert (problem.code, problem.path, problem.fix) == ("policy_kind_mismatch", "policies.p", fix)
    assert f"the rule '{actions[0]}' permits {actions[0]}" in problem.message
    assert str(problem.source) == "p.yaml:4:5"


@pytest.mark.parametrize(("scope", "codes"), [("cluster", []), ("k", ["policy_kind_mismatch"])])
def test_the_deprecated_kind_agrees_with_the_bindings(scope, codes):
    problems = check_kinds(bound("version: 1\nkind: server\n", scope), "policies.p")
    assert [(d.code, str(d.source)) for d in problems] == [(code, "p.yaml:2") for code in codes]


def test_a_bundle_of_both_kinds_of_scopes_gives_each_its_rules():
    mixed = bound(HEAD + rule("graph_list") + rule("read", "change"), "cluster", "k")
    enforced, problems = bind([mixed])
    assert [(d.code, d.severity) for d in problems] == [("policy_mixed_binding_kinds", "warning")]
    assert {scope: [r.id for r in each.bundle.rules] for scope, each in enforced.items()} == {
        "cluster": ["graph_list"],
        "graph.k": ["read"],
    }
    assert enforced["graph.k"].bundle.actors == {"ada"}


def test_a_bundle_may_be_bound_to_many_graphs_and_a_graph_to_one_bundle():
    first, second = (BoundBundle(name, Bundle(), ("graph.a", "graph.b"), "p.yaml") for name in "yx")
    enforced, problems = bind([first])
    assert ([*enforced], list(problems)) == (["graph.a", "graph.b"], [])
    _, problems = bind([first, second])
    assert [(d.code, d.path, d.message) for d in problems] == [
        ("policy_scope_conflict", "graph.a", "more than one policy is bound to it: x, y"),
        ("policy_scope_conflict", "graph.b", "more than one policy is bound to it: x, y"),
    ]
    assert conflicts({"x": ("graph.a",), "y": ("graph.b",)}) == {}


FILES = {
    "cluster.yaml": b"""\
version: 1
graphs:
  knowledge: {schema: s.pg, queries: q.gq}
  open: {schema: s.pg}
policies:
  k: {file: policies/k.yaml, applies_to: [knowledge]}
  server: {file: policies/server.yaml, applies_to: [cluster]}
""",
    "s.pg": b"node Person {\n  name: String @key\n}\n",
    "q.gq": b"""\
query find() { match { $p: Person } return { $p.name } }
query add($n: String) { insert Person { name: $n } }
""",
    "policies/k.yaml": b"""\
version: 1
groups: {staff: [ada, bob], editors: [bob], drafters: [dan]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read, invoke_query]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change, branch_merge]}}
  - {id: drafts, allow: {actors: {group: drafters}, actions: [read], branch_scope: unprotected}}
  - {id: copying, allow: {actors: {group: drafters}, actions: [branch_create]}}
""",
    "policies/server.yaml": b"version: 1\ngroups: {admins: [eve]}\nrules:\n"
    b"  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}\n",
}
CASES_GOOD = """\
version: 1
graph: knowledge
tests: [{id: later}]
cases:
  - {id: edit, actor: bob, action: change, branch: main, expect: {decision: allow, rule: editing}}
  - {id: staff, actors: [ada, eve], actions: [change, schema_apply], branch: main, expect: deny}
  - {id: writers, who: {action: change, branch: main}, exactly: [bob]}
  - {id: readers, who: {action: read}, exactly: {groups: [staff]}}
  - {id: copy, actor: dan, action: branch_create, branch: draft, target_branch: main, expect: {decision: allow, rule: copying}}
  - {id: no-copy, actor: dan, action: branch_create, branch: draft, expect: deny}
  - {id: copiers, who: {action: branch_merge, branch: main}, exactly: [bob]}
  - {id: run, who: {query: find}, exactly: [ada, bob]}
  - {id: run-writing, who: {query: add}, exactly: [bob]}
  - {id: listing, actor: eve, action: graph_list, expect: allow}
  - {id: unguarded, actor: anyone, action: read, graph: open, expect: allow}
  - {id: unguarded-write, actor: anyone, actions: [change, export], graph: open, expect: deny}
"""


def load(cases: str, place: str = "policies/k.test.yaml") -> Loaded:
    """The folder with a file of cases; with a cache it says the same, also when asked again."""
    files = {**FILES, place: cases.encode()}
    cache = MemoryCache()
    cold = load_desired(MemoryTree(files))
    for _ in range(2):
        assert list(load_desired(MemoryTree(files), hints=Hints(MemoryTree(files), cache)).diagnostics) == list(
            cold.diagnostics
        )
    return cold


def said(cases: str) -> list[tuple[str, int, str]]:
    return [(d.code, d.source.line, d.message) for d in load(cases).diagnostics if d.source]


@pytest.mark.parametrize("place", ["policies/k.test.yaml", "all.test.yaml", "policies/policy.tests.yaml"])
def test_cases_that_hold_say_nothing(place):
    result = load(CASES_GOOD, place)
    assert (list(result.diagnostics), result.judgement.cases) == ([], 12)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "{id: c, actor: ada, action: change, expect: allow}",
            "ada, change on graph.knowledge: expected allow, got deny; no rule permits 'ada' to change",
        ),
        (
            "{id: c, actor: dan, action: branch_create, branch: main, target_branch: draft, expect: allow}",
            (
                "dan, branch_create on graph.knowledge: expected allow, got deny; "
                "branch_create reads branch 'main', and no rule permits 'dan' to read"
            ),
        ),
        (
            "{id: c, actor: bob, action: change, expect: deny}",
            "bob, change on graph.knowledge: expected deny, got allow; rule 'editing' permits it",
        ),
        (
            "{id: c, actor: bob, action: read, expect: {decision: allow, rule: editing}}",
            "bob, read on graph.knowledge: expected rule 'editing', got rule 'reading' permits it",
        ),
        (
            "{id: c, actor: nina, action: read, expect: allow}",
            "nina, read on graph.knowledge: expected allow, got deny; actor 'nina' is in no group of the policy",
        ),
        (
            "{id: c, who: {query: add}, exactly: [ada, bob]}",
            "run add on graph.knowledge: expected exactly ada, bob, got bob",
        ),
        (
            "{id: c, who: {action: admin}, exactly: [ada]}",
            "admin on graph.knowledge: expected exactly ada, got no actor",
        ),
        (
            "{id: c, who: {action: read, graph: open}, exactly: [ada]}",
            "read on graph.open: expected exactly ada; without a policy, any token may read",
        ),
    ],
)
def test_a_case_that_fails_is_an_error_at_its_line(case, message):
    text = f"version: 1\ngraph: knowledge\ncases:\n  - {case}\n"
    assert said(text) == [("policy_test_failed", 4, f"case 'c': {message}")]
    applied = load_desired(MemoryTree({**FILES, "k.test.yaml": text.encode()}), applied=True)
    assert list(applied.diagnostics) == []


@pytest.mark.parametrize(
    "case",
    [
        "{id: c, actor: ada, action: read, graph: gone, expect: allow}",
        "{id: c, actor: ada, query: gone, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, expect: allow}",
        "{id: c, actor: ada, action: raed, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, graph: knowledge, expect: permit}",
        "{id: c, actor: ada, action: read, graph: knowledge}",
        "{id: c, action: read, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, graph: knowledge, expect: allow}",
        "{id: c, who: {action: read, graph: knowledge}}",
        "{id: c, actor: 7, action: read, graph: knowledge, expect: allow}",
        "{id: ' ', actor: ada, action: read, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, graph: knowledge, expect: allow, brunch: main}",
    ],
)
def test_a_case_that_cannot_be_decided_is_an_error_at_its_line(case):
    assert {(code, line) for code, line, _ in said(f"version: 1\ncases:\n  - {case}\n")} == {
        ("policy_tests_invalid", 3)
    }


def test_two_cases_of_one_id_are_refused():
    case = "  - {id: c, actor: ada, action: read, graph: knowledge, expect: allow}\n"
    assert [(code, line) for code, line, _ in said(f"version: 1\ncases:\n{case * 2}")] == [("policy_tests_invalid", 4)]


def test_a_file_of_tests_without_cases_is_not_read_further():
    assert said("tests: [{id: &a x}]\n") == []


BUNDLE = b"""\
version: 1
groups: {staff: [ada, bob], admins: [bob]}
protected_branches: [main]
rules:
  - {id: writing, allow: {actors: {group: staff}, actions: [change], branch_scope: unprotected}}
  - {id: reading, allow: {actors: {group: staff}, actions: [read], branch_scope: protected}}
  - {id: merging, allow: {actors: {group: admins}, actions: [branch_merge], target_branch_scope: protected}}
  - {id: b-running, allow: {actors: {group: staff}, actions: [invoke_query], queries: [find_*]}}
  - {id: a-running, allow: {actors: {group: admins}, actions: [invoke_query]}}
"""


def decided(actor: str, action: PolicyAction, **about: Any) -> AccessDecision:
    bundle, _ = read_bundle(BUNDLE, "p.yaml")
    assert bundle is not None
    request = AccessRequest(actor, action, **about)
    decision = decide(bundle, request)
    assert CedarEngine(bundle, "graph.knowledge").decide(request) == decision
    return decision


@pytest.mark.parametrize(
    ("actor", "action", "about", "rule"),
    [
        ("ada", "change", {"branch": "main"}, None),
        ("ada", "change", {"branch": "feature"}, "writing"),
        ("ada", "change", {"branch": " main "}, "writing"),
        ("ada", "change", {}, None),
        ("ada", "read", {"branch": "main"}, "reading"),
        ("ada", "read", {}, None),
        ("ada", "branch_merge", {"branch": "feature", "target_branch": "main"}, None),
        ("bob", "branch_merge", {"branch": "feature", "target_branch": "main"}, "merging"),
        ("bob", "branch_merge", {"branch": "main", "target_branch": "feature"}, None),
        ("ada", "invoke_query", {"query": "find_person"}, "b-running"),
        ("ada", "invoke_query", {"query": "add_person"}, None),
        ("ada", "invoke_query", {}, None),
        ("bob", "invoke_query", {"query": "add_person"}, "a-running"),
    ],
)
def test_scopes_and_queries(actor, action, about, rule):
    decision = decided(actor, PolicyAction(action), **about)
    assert (decision.allowed, decision.rule, decision.known) == (rule is not None, rule, True)


def test_an_actor_may_do_what_any_of_its_groups_may():
    """Each decision is that of the actor or of one group alone, by the pure rules and by Cedar."""
    for groups, action, about, rule in (
        (("bob",), "branch_merge", {"target_branch": "main"}, "merging"),
        (("nobody", "bob"), "branch_merge", {"target_branch": "main"}, "merging"),
        (("ada", "bob"), "invoke_query", {"query": "find_person"}, "a-running"),
        (("ada",), "branch_merge", {"target_branch": "main"}, None),
    ):
        decision = decided("eve", PolicyAction(action), groups=groups, **about)
        assert (decision.allowed, decision.rule, decision.known) == (rule is not None, rule, True)
        assert "eve" in decision.message or decision.allowed
    assert decided("eve", PolicyAction.READ, groups=("nobody",)).known is False
    # What the actor may do by its own name is said by that rule.
    assert decided("ada", PolicyAction.INVOKE_QUERY, groups=("bob",), query="find_person").rule == "b-running"
    bundle, _ = read_bundle(BUNDLE, "p.yaml")
    assert bundle is not None
    assert not is_mentioned(bundle, "eve")
    assert is_mentioned(bundle, "eve", ("bob",))


def test_the_first_rule_by_id_is_named():
    assert decided("bob", PolicyAction.INVOKE_QUERY, query="find_person").rule == "a-running"


def test_an_actor_in_no_group_is_denied_as_unknown():
    decision = decided("eve", PolicyAction.READ, branch="main")
    assert (decision.allowed, decision.rule, decision.known) == (False, None, False)
    assert decision.message == "actor 'eve' is in no group of the policy"


def test_what_cedar_cannot_evaluate_is_neither_permitted_nor_denied():
    bundle, _ = read_bundle(BUNDLE, "p.yaml")
    assert bundle is not None
    with pytest.raises(GitopsError) as caught:
        CedarEngine(bundle, "graph.k").decide(AccessRequest("ada", PolicyAction.READ, branch="\ud800"))
    assert caught.value.code == "policy_evaluation_failed"


def test_a_bundle_that_cedar_refuses_is_named():
    """The reader of files lets none of these through."""
    bundle = Bundle({"all": ("ada",)}, rules=(Rule("r", "all", (PolicyAction.GRAPH_LIST,)),))
    with pytest.raises(GitopsError) as caught:
        CedarEngine(bundle, "graph.k")
    assert (caught.value.code, caught.value.path) == ("policy_invalid", "graph.k")


def test_a_decision_is_made_once_and_what_is_kept_is_bounded():
    bundle, _ = read_bundle(BUNDLE, "p.yaml")
    assert bundle is not None
    engine, request = CedarEngine(bundle, "graph.knowledge"), AccessRequest("ada", PolicyAction.READ, "main")
    first = engine.decide(request)
    assert engine.decide(AccessRequest("ada", PolicyAction.READ, "main")) is first
    assert CedarEngine(Bundle(bundle.groups), "graph.knowledge").decide(request).allowed is False
    for number in range(4096):
        engine.decide(AccessRequest("ada", PolicyAction.READ, f"b{number}"))
    assert engine.decide(request) is not first
    long = AccessRequest("bob", PolicyAction.INVOKE_QUERY, query="q" * 600)
    assert engine.decide(long).allowed
    assert engine.decide(long) is not engine.decide(long)


STAFF = tuple(f"act-{number:02}" for number in range(11))
GROUPS = {"staff": (*STAFF, "act-editor"), "editors": ("act-editor",)}
EDITING = Rule("editing", "editors", (PolicyAction.CHANGE,), line=17)
READING = Rule("reading", "staff", (PolicyAction.READ,), line=9)
STORED = Rule("stored-queries", "staff", (PolicyAction.INVOKE_QUERY,), line=13)
ACCESS_DIFF_BUNDLE = Bundle(GROUPS, frozenset({"main"}), (READING, STORED, EDITING))
QUERIES = {"find_person": False}


def state(
    bundle: Bundle | None = ACCESS_DIFF_BUNDLE, queries: Mapping[str, bool] = QUERIES, *, bound: bool = True
) -> AccessState:
    """One graph, and a policy that is bound to it or to none."""
    text = PolicyText("k", "policies/k.yaml", "digest", bundle)
    return AccessState({"k": text}, {"graph.knowledge": "k"} if bound else {}, {"knowledge": queries})


def told(row: AccessRow) -> tuple[str, str, str, int, str | None, CauseKind]:
    """What a row says at least."""
    sign = "+" if row.gain else "-"
    return f"{sign}{row.row_class}", row.action, row.scope, len(row.actors.members), row.rule, row.cause.kind


def with_rules(*rules: Rule) -> Bundle:
    return replace(ACCESS_DIFF_BUNDLE, rules=rules)


def test_larger_group_of_a_rule_is_a_gain_with_rule_line_and_cause() -> None:
    wider = with_rules(READING, STORED, replace(EDITING, group="staff"))
    diff = access_diff(state(), state(wider))

    assert [told(row) for row in diff.rows] == [
        ("+protected", "change", "graph.knowledge", 11, "editing", CauseKind.RULE),
        ("+write", "change", "graph.knowledge", 11, "editing", CauseKind.RULE),
    ]
    first = diff.rows[0]
    assert (first.file, first.line, first.branches) == ("policies/k.yaml", 17, ("main",))
    assert (first.cause.words, first.cause.line) == ("rule: group editors -> staff", 17)
    assert (first.actors.union, first.actors.minus) == (("staff",), ("editors",))
    assert diff.rows[1].except_branches == ("main",)
    assert (
        widening_words(row for row in diff.widenings if row.row_class is AccessClass.PROTECTED)
        == "widens access: change on main of knowledge for 11 actors"
    )


def test_branch_that_leaves_the_protected_ones_still_counts_as_protected() -> None:
    limited = replace(ACCESS_DIFF_BUNDLE, rules=(replace(EDITING, branch_scope=BranchScope.UNPROTECTED),))
    diff = access_diff(state(limited), state(replace(limited, protected_branches=frozenset())))

    assert [told(row) for row in diff.rows] == [
        ("+protected", "change", "graph.knowledge", 1, "editing", CauseKind.PROTECTED_BRANCHES)
    ]
    assert diff.widenings == diff.rows


COPYING = Rule("copying", "editors", (PolicyAction.BRANCH_CREATE, PolicyAction.BRANCH_MERGE), line=21)
DRAFTS = Rule("drafts", "guests", (PolicyAction.READ,), BranchScope.UNPROTECTED, line=25)


def test_copies_of_a_protected_branch_are_a_gain_where_an_actor_reads_them_who_does_not_read_the_branch() -> None:
    guests = replace(
        ACCESS_DIFF_BUNDLE, groups={**GROUPS, "guests": ("act-guest",)}, rules=(*ACCESS_DIFF_BUNDLE.rules, DRAFTS)
    )
    limited = replace(COPYING, target_branch_scope=BranchScope.UNPROTECTED)
    diff = access_diff(state(guests), state(replace(guests, rules=(*guests.rules, limited))))

    assert [(*told(row)[:2], row.branches, row.rule) for row in diff.rows] == [
        ("+protected", "branch_create_from", ("main",), "copying"),
        ("+protected", "branch_merge_from", ("main",), "copying"),
        ("+write", "branch_create", (), "copying"),
        ("+write", "branch_merge", (), "copying"),
    ]
    assert (
        widening_words(diff.widenings) == "widens access: branch_create_from main of knowledge for 1 actor, and 3 more"
    )
    # Where everybody reads `main` who reads a copy, there is nothing to protect.
    without = access_diff(state(), state(replace(ACCESS_DIFF_BUNDLE, rules=(*ACCESS_DIFF_BUNDLE.rules, limited))))
    assert {row.row_class for row in without.rows} == {AccessClass.WRITE}


def test_reading_a_protected_branch_is_a_gain_of_copying_it_too() -> None:
    """The editor reads through the group alone that it is now in."""
    guests = replace(
        ACCESS_DIFF_BUNDLE,
        groups={**GROUPS, "staff": STAFF, "guests": ("act-guest",)},
        rules=(READING, COPYING, DRAFTS),
    )
    diff = access_diff(state(guests), state(replace(guests, groups={**guests.groups, "staff": GROUPS["staff"]})))

    assert {(row.row_class, row.action, row.rule) for row in diff.rows if row.branches == ("main",)} == {
        ("protected", "branch_create_from", "reading"),
        ("protected", "branch_merge_from", "reading"),
    }


def test_last_policy_of_a_graph_removed_lets_every_token_read_and_takes_the_rest() -> None:
    diff = access_diff(state(), state(bound=False))

    gains = diff.gains
    assert [told(row) for row in gains] == [("+read", "read", "graph.knowledge", 0, None, CauseKind.BINDING)]
    assert gains[0].actors.others
    assert {row.action for row in diff.rows if not row.gain} == {"change", "invoke_query", "run"}


def test_new_query_is_run_by_those_who_may_invoke_it_and_is_not_gated() -> None:
    diff = access_diff(state(), state(queries={**QUERIES, "add_person": True}))

    assert [told(row) for row in diff.rows] == [
        ("+run", "run", "graph.knowledge", 1, "stored-queries", CauseKind.QUERY)
    ]
    assert diff.rows[0].queries == ("add_person",)
    assert diff.widenings == ()


def test_after_a_policy_that_cannot_be_read_every_right_is_a_gain() -> None:
    diff = access_diff(state(None), state())

    assert {row.gain for row in diff.rows} == {True}
    assert {row.action for row in diff.rows} == {"read", "change", "invoke_query", "run"}
    assert diff.unread == ("graph.knowledge",)
    assert {row.cause.kind for row in diff.rows} == {CauseKind.SEVERAL}


def test_new_graph_has_nothing_to_protect() -> None:
    diff = access_diff(AccessState(), state())

    assert {row.cause.kind for row in diff.rows} == {CauseKind.GRAPH}
    assert diff.widenings == ()


@pytest.mark.parametrize(
    ("after", "cause", "words"),
    [
        (
            replace(ACCESS_DIFF_BUNDLE, groups={**GROUPS, "editors": ("act-editor", "act-00")}),
            CauseKind.MEMBERSHIP,
            "group editors: +act-00",
        ),
        (with_rules(*ACCESS_DIFF_BUNDLE.rules, replace(EDITING, id="more", group="staff")), CauseKind.RULE, "new rule"),
        (
            with_rules(READING, STORED, replace(EDITING, actions=(PolicyAction.CHANGE, PolicyAction.EXPORT))),
            CauseKind.RULE,
            "rule: actions +export",
        ),
        (
            replace(
                with_rules(READING, STORED, replace(EDITING, group="new")),
                groups={**GROUPS, "new": ("act-00", "act-editor")},
            ),
            CauseKind.RULE,
            "rule: group editors -> new",
        ),
    ],
    ids=["member", "rule", "action", "group"],
)
def test_cause_is_the_one_part_that_changes(after: Bundle, cause: CauseKind, words: str) -> None:
    assert {(row.cause.kind, row.cause.words) for row in access_diff(state(), state(after)).rows} == {(cause, words)}


def test_difference_that_no_part_undoes_alone_is_due_to_several() -> None:
    more = [replace(EDITING, id=name, group="staff") for name in ("more", "most")]
    rows = access_diff(state(), state(with_rules(*ACCESS_DIFF_BUNDLE.rules, *more))).rows

    assert {(row.rule, row.cause.kind) for row in rows} == {("more", CauseKind.SEVERAL)}
