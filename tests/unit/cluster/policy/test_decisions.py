"""Decisions, each by our evaluator and by Cedar."""

from __future__ import annotations

from typing import Any

import pytest

from gitops.cluster.policy.bundle import Bundle, PolicyAction, Rule
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide
from gitops.cluster.policy.read import read_bundle
from gitops.core.errors import GitopsError

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
