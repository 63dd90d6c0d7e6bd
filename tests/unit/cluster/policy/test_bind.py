"""Bindings: scopes, kinds, and what is enforced on each scope."""

from __future__ import annotations

import pytest

from gitops.cluster.policy.bind import BoundBundle, bind, check_kinds, conflicts, normalized
from gitops.cluster.policy.bundle import Bundle
from gitops.cluster.policy.read import read_bundle

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
    assert str(problem.source) == "p.yaml:4"


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
