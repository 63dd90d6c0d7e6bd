"""Decides with Cedar. Its decisions equal those of `gitops.cluster.policy.decide`.

A bundle is compiled once per scope: each action of each rule becomes a policy with the id `<rule id>:<action>`.
Everything is passed as JSON values, so text from a bundle or a request is never parsed as Cedar.
"""

from __future__ import annotations

import json
from typing import Any

from gitops.cluster.model.address import CLUSTER_SCOPE, Address
from gitops.cluster.policy.bundle import SERVER_ACTIONS, BranchScope, Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide_groups, denial, permission, stranger
from gitops.core.codes import Code
from gitops.core.errors import GitopsError

_NAMESPACE = "Omnigraph"
_KEPT, _KEPT_LENGTH = 4096, 512
_FLAGS = ("has_branch", "has_target_branch", "branch_is_protected", "target_branch_is_protected")
_CONTEXT = {
    "type": "Record",
    "attributes": {
        **{name: {"type": "Boolean"} for name in _FLAGS},
        "branch": {"type": "String"},
        "target_branch": {"type": "String"},
        "query_name": {"type": "String", "required": False},
    },
}


class CedarEngine:
    """Decides with one bundle on one scope. Thread-safe.

    A decision depends only on bundle and request, and a server gets the same requests again and again, so decisions are
    cached.
    """

    def __init__(self, bundle: Bundle, scope: str) -> None:
        """Compile the bundle for `cluster` or `graph.<id>`.

        Raises GitopsError `policy_invalid` if Cedar refuses it, which the bundle reader and `check_kinds` rule out.
        """
        import cedarpy

        self._cedar = cedarpy
        self.bundle = bundle
        self._known = bundle.actors
        self._protected = bundle.protected_branches
        self._decided: dict[AccessRequest, AccessDecision] = {}
        graph = None if scope == CLUSTER_SCOPE else Address(scope).graph or scope
        self._resource = _entity("Server", "root") if graph is None else _entity("Graph", graph)
        policies = {
            f"{rule.id}:{action}": _policy(rule, action, self._resource)
            for rule in bundle.rules
            for action in rule.actions
        }
        text = json.dumps({"staticPolicies": policies, "templates": {}, "templateLinks": []})
        try:
            schema = cedarpy.Schema.from_json_str(json.dumps(_schema()))
            self._policies = cedarpy.PolicySet.from_json_str(text)
            self._entities = cedarpy.Entities.from_json_str(json.dumps(_entities(bundle, graph)), schema)
            checked = cedarpy.validate_policies(cedarpy.policies_from_json_str(text), schema)
        except ValueError as error:
            raise GitopsError(Code.POLICY_INVALID, f"Cedar rejects the policy: {error}", path=scope) from error
        if not checked.validation_passed:
            detail = f"Cedar rejects the policy: {'; '.join(map(str, checked.errors))}"
            raise GitopsError(Code.POLICY_INVALID, detail, path=scope)

    def decide(self, request: AccessRequest) -> AccessDecision:
        """Decide whether the bundle permits the request. Raises GitopsError `policy_evaluation_failed`."""
        if request.groups:
            return decide_groups(request, self.decide)
        if request.actor not in self._known:
            return stranger(request)
        known = self._decided.get(request)
        if known is not None:
            return known
        decision = self._decide(request)
        # Whoever sends a request chooses the names in it.
        if sum(map(len, (request.branch or "", request.target_branch or "", request.query or ""))) <= _KEPT_LENGTH:
            if len(self._decided) >= _KEPT:
                self._decided.clear()
            self._decided[request] = decision
        return decision

    def _decide(self, request: AccessRequest) -> AccessDecision:
        branch, target = request.branch, request.target_branch
        context = {
            "has_branch": branch is not None,
            "branch": branch or "",
            "branch_is_protected": branch in self._protected,
            "has_target_branch": target is not None,
            "target_branch": target or "",
            "target_branch_is_protected": target in self._protected,
        }
        if request.query is not None:
            context["query_name"] = request.query
        asked = {
            "principal": _entity("Actor", request.actor),
            "action": _entity("Action", request.action),
            "resource": self._resource,
            "context": context,
        }
        # The policies are validated, and the request is built here. Checking both against the schema again would take
        # twice as long.
        result = self._cedar.is_authorized(asked, self._policies, self._entities)
        if result.diagnostics.errors or result.decision is self._cedar.Decision.NoDecision:
            detail = "; ".join(result.diagnostics.errors) or "no reason is given"
            raise GitopsError(Code.POLICY_EVALUATION_FAILED, f"Cedar cannot decide the request: {detail}")
        if not result.allowed:
            return denial(request)
        return permission(min(reason.rpartition(":")[0] for reason in result.diagnostics.reasons))


def _entity(kind: str, name: str) -> dict[str, str]:
    return {"type": f"{_NAMESPACE}::{kind}", "id": name}


def _schema() -> dict[str, Any]:
    """Return the Cedar schema.

    Actors are members of groups, graphs and the server have no attributes, and each action lists its subjects.
    """
    entities: dict[str, Any] = {kind: {} for kind in ("Group", "Graph", "Server")}
    entities["Actor"] = {"memberOfTypes": ["Group"]}
    actions = {
        action.value: {
            "appliesTo": {
                "principalTypes": ["Actor"],
                "resourceTypes": ["Server" if action in SERVER_ACTIONS else "Graph"],
                "context": _CONTEXT,
            }
        }
        for action in PolicyAction
    }
    return {_NAMESPACE: {"entityTypes": entities, "actions": actions}}


def _entities(bundle: Bundle, graph: str | None) -> list[dict[str, Any]]:
    """Return the groups, their members, and the resource on which the bundle is enforced."""
    parents: dict[str, list[str]] = {actor: [] for actor in sorted(bundle.actors)}
    for name, members in bundle.groups.items():
        for actor in sorted({*members}):
            parents[actor].append(name)
    entities: list[tuple[dict[str, str], list[dict[str, str]]]] = [(_entity("Server", "root"), [])]
    if graph is not None:
        entities.append((_entity("Graph", graph), []))
    entities += [(_entity("Group", name), []) for name in bundle.groups]
    entities += [(_entity("Actor", a), [_entity("Group", name) for name in names]) for a, names in parents.items()]
    return [{"uid": uid, "attrs": {}, "parents": above} for uid, above in entities]


def _policy(rule: Rule, action: PolicyAction, resource: dict[str, str]) -> dict[str, Any]:
    conditions = [
        *_covered("branch", rule.branch_scope),
        *_covered("target_branch", rule.target_branch_scope),
        *_queried(rule.queries),
    ]
    return {
        "effect": "permit",
        "principal": {"op": "in", "entity": _entity("Group", rule.group)},
        "action": {"op": "==", "entity": _entity("Action", action)},
        "resource": {"op": "==", "entity": resource},
        "conditions": [{"kind": "when", "body": body} for body in conditions],
    }


def _covered(key: str, scope: BranchScope | None) -> list[dict[str, Any]]:
    """Return the condition on the request's branch: it exists, and is (or is not) protected."""
    if scope is None or scope is BranchScope.ANY:
        return []
    protected = _attribute(f"{key}_is_protected")
    wanted = protected if scope is BranchScope.PROTECTED else {"!": {"arg": protected}}
    return [{"&&": {"left": _attribute(f"has_{key}"), "right": wanted}}]


def _queried(queries: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the condition on the stored query: there is one, and it has one of the names."""
    if not queries:
        return []
    names = [_like(query) for query in queries]
    one = names[0]
    for other in names[1:]:
        one = {"||": {"left": one, "right": other}}
    return [{"&&": {"left": {"has": {"left": {"Var": "context"}, "attr": "query_name"}}, "right": one}}]


def _like(query: str) -> dict[str, Any]:
    pattern = ["Wildcard" if character == "*" else {"Literal": character} for character in query]
    return {"like": {"left": _attribute("query_name"), "pattern": pattern}}


def _attribute(name: str) -> dict[str, Any]:
    return {".": {"left": {"Var": "context"}, "attr": name}}
