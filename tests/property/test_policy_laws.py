"""Laws: Cedar, our evaluator and the table of the reference decide alike, and what is read of a file means what was written."""

from __future__ import annotations

import json
import re
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.policy.bind import kind_of, projected
from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    GRAPH_ACTIONS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    BranchScope,
    Bundle,
    PolicyAction,
    Rule,
)
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import AccessRequest, decide
from gitops.cluster.policy.read import read_bundle
from tests.support.effort import cases

# Few names, so that requests meet rules, and characters that a language between us and Cedar could trip over.
_GROUPS = ["staff", "a:b", 'q"\\']
_ACTORS = ["ada", "Ada", "böb", "line\nend", '\u202e"\\*', "ada "]
_BRANCHES = ["main", " main ", "", "release/1", "*", 'x"y']
_QUERIES = ["find", "find_all", "add-row", "find_"]
_PATTERNS = ["*", "find", "find*", "*_*", "add-*", "*d*d*"]


@st.composite
def _rules(draw: st.DrawFn, number: int) -> Rule:
    actions = draw(
        st.sampled_from([BRANCH_SCOPED, TARGET_SCOPED, GRAPH_ACTIONS, SERVER_ACTIONS, {PolicyAction.INVOKE_QUERY}])
    )
    chosen = tuple(draw(st.lists(st.sampled_from(sorted(actions)), min_size=1, max_size=4, unique=True)))
    scope = draw(st.none() | st.sampled_from(BranchScope))
    return Rule(
        id=draw(st.sampled_from(["", "b", "a", "é", "x:read", 'q"'])) + str(number),
        group=draw(st.sampled_from(_GROUPS)),
        actions=chosen,
        branch_scope=scope if BRANCH_SCOPED.issuperset(chosen) else None,
        target_branch_scope=scope if TARGET_SCOPED.issuperset(chosen) else None,
        queries=tuple(draw(st.lists(st.sampled_from(_PATTERNS), max_size=2)))
        if {*chosen} == {PolicyAction.INVOKE_QUERY}
        else (),
    )


@st.composite
def _bundles(draw: st.DrawFn) -> Bundle:
    members = st.lists(st.sampled_from(_ACTORS[:-1]), min_size=1, max_size=4).map(tuple)
    return Bundle(
        groups={name: draw(members) for name in _GROUPS},
        protected_branches=frozenset(draw(st.sets(st.sampled_from(_BRANCHES), max_size=3))),
        rules=tuple(draw(_rules(number)) for number in range(draw(st.integers(0, 6)))),
    )


_requests = st.builds(
    AccessRequest,
    actor=st.sampled_from(_ACTORS),
    action=st.sampled_from(PolicyAction),
    branch=st.none() | st.sampled_from(_BRANCHES),
    target_branch=st.none() | st.sampled_from(_BRANCHES),
    query=st.none() | st.sampled_from(_QUERIES),
)


def reference(bundle: Bundle, request: AccessRequest) -> tuple[bool, str | None, bool]:
    """Allowed, rule, known: the table of scopes, one line for one sentence."""
    groups = {name for name, members in bundle.groups.items() if request.actor in members}

    def holds(scope: BranchScope | None, branch: str | None) -> bool:
        return {
            None: True,
            BranchScope.ANY: True,
            BranchScope.PROTECTED: branch is not None and branch in bundle.protected_branches,
            BranchScope.UNPROTECTED: branch is not None and branch not in bundle.protected_branches,
        }[scope]

    def names(patterns: tuple[str, ...], query: str | None) -> bool:
        matches = [re.fullmatch(".*".join(map(re.escape, each.split("*"))), query or "") for each in patterns]
        return not patterns or (query is not None and any(matches))

    permitting = [
        rule.id
        for rule, action in ((rule, action) for rule in bundle.rules for action in rule.actions)
        if rule.group in groups
        and action == request.action
        and holds(rule.branch_scope, request.branch)
        and holds(rule.target_branch_scope, request.target_branch)
        and names(rule.queries, request.query)
    ]
    return bool(permitting), min(permitting) if permitting else None, bool(groups)


@settings(max_examples=cases(1200))
@given(_bundles(), st.lists(_requests, min_size=20, max_size=40), st.sampled_from(["cluster", "graph.g", "graph.G-1"]))
def test_cedar_the_evaluator_and_the_table_decide_alike(bundle, requests, scope):
    enforced = projected(bundle, kind_of(scope))
    engine = CedarEngine(enforced, scope)
    for request in requests:
        decision = engine.decide(request)
        assert decision == decide(enforced, request)
        assert (decision.allowed, decision.rule, decision.known) == reference(enforced, request)


def _written(rule: Rule) -> dict[str, object]:
    limits = {"branch_scope": rule.branch_scope, "target_branch_scope": rule.target_branch_scope}
    allow = {"actors": {"group": rule.group}, "actions": rule.actions, "queries": rule.queries or None, **limits}
    return {"id": rule.id, "allow": {key: value for key, value in allow.items() if value is not None}}


@given(_bundles())
def test_a_file_means_what_it_says(bundle):
    """JSON is YAML. Rules of both kinds, and branches without a name, are what the reader refuses."""
    document = {
        "version": 1,
        "groups": bundle.groups,
        "protected_branches": sorted(bundle.protected_branches),
        "rules": [_written(rule) for rule in bundle.rules],
    }
    read, found = read_bundle(json.dumps(document, ensure_ascii=False).encode(), "p.yaml")
    if "" in bundle.protected_branches:
        assert (read, {*found.codes()}) == (None, {"policy_protected_branch_blank"})
    else:
        assert read is not None
        assert list(found) == []
        everyone = product(_ACTORS, PolicyAction, (None, *_BRANCHES[:1]), _QUERIES[:2])
        for actor, action, branch, query in everyone:
            request = AccessRequest(actor, action, branch, branch, query)
            assert decide(read, request) == decide(bundle, request)
