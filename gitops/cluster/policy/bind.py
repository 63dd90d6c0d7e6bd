"""Binds bundles to the server or to graphs.

A scope is `cluster`, which means the server, or `graph.<id>`; each has at most one bundle. A bundle that is bound to
one kind of scope only has rules of that kind. A bundle that is bound to both kinds is projected: each engine gets the
rules for its kind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, policy_address
from gitops.cluster.policy.bundle import SERVER_ACTIONS, Bundle, EngineKind
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef


@dataclass(frozen=True, slots=True)
class BoundBundle:
    """A policy: its name, its bundle, its normalized binding scopes, and the file to report problems in."""

    name: str
    bundle: Bundle
    scopes: tuple[str, ...]
    file: str


@dataclass(frozen=True, slots=True)
class Enforced:
    """The policy enforced on one scope, with only the bundle rules for that kind of scope."""

    policy: str
    scope: str
    bundle: Bundle


def normalized(applies_to: Iterable[str]) -> tuple[str, ...]:
    """Return bindings as sorted unique scopes: `cluster` and `graph.<id>`, also for a bare `<id>`."""
    found = set()
    for text in applies_to:
        known = text == CLUSTER_SCOPE or Address(text).kind is Kind.GRAPH
        found.add(text if known else str(graph_address(text)))
    return tuple(sorted(found))


def kind_of(scope: str) -> EngineKind:
    """Return this scope's kind."""
    return EngineKind.SERVER if scope == CLUSTER_SCOPE else EngineKind.GRAPH


def conflicts(scopes: Mapping[str, Collection[str]]) -> Mapping[str, tuple[str, ...]]:
    """Map each scope with more than one policy to the policy names, in order. `scopes` are each policy's scopes."""
    bound: dict[str, list[str]] = {}
    for name, of_policy in sorted(scopes.items()):
        for scope in of_policy:
            bound.setdefault(scope, []).append(name)
    return {scope: tuple(names) for scope, names in sorted(bound.items()) if len(names) > 1}


def check_kinds(bound: BoundBundle, at: str) -> Diagnostics:
    """Return the problems between a bundle and its bindings. `at` is their subject.

    Reports `policy_kind_mismatch` for each rule and action of another kind, and `policy_mixed_binding_kinds` (a
    warning) for a bundle that is bound to both kinds.
    """
    found = Diagnostics()
    kinds = sorted({kind_of(scope) for scope in bound.scopes})
    if len(kinds) > 1:
        message = f"bound to {', '.join(bound.scopes)}: each is enforced with the rules of its kind only"
        found.add(Code.POLICY_MIXED_BINDING_KINDS, at, message, source=SourceRef(bound.file))
    bundle = bound.bundle
    if bundle.kind is not None and kinds and kinds != [bundle.kind]:
        message = f"kind: {bundle.kind}, and the policy is bound to {', '.join(bound.scopes)}"
        place = SourceRef(bound.file, bundle.kind_line)
        found.add(Code.POLICY_KIND_MISMATCH, at, message, source=place, fix="delete the key, or correct applies_to")
    for rule in bundle.rules if len(kinds) == 1 else ():
        for action in rule.actions:
            own = EngineKind.SERVER if action in SERVER_ACTIONS else EngineKind.GRAPH
            if own is kinds[0]:
                continue
            about, elsewhere = ("the server", CLUSTER_SCOPE) if own is EngineKind.SERVER else ("a graph", "graph.<id>")
            message = (
                f"the rule '{rule.id}' permits {action}, which is about {about}; bound to {', '.join(bound.scopes)}"
            )
            fix = f"move the action to a policy that is bound to {elsewhere}"
            place = SourceRef(bound.file, rule.line, rule.column)
            found.add(Code.POLICY_KIND_MISMATCH, at, message, source=place, fix=fix)
    return found


def bind(policies: Iterable[BoundBundle]) -> tuple[Mapping[str, Enforced], Diagnostics]:
    """Return each scope's enforced policy, and the problems with the policies' addresses.

    If a scope has several policies (`policy_scope_conflict`), the first by name is returned.
    """
    found = Diagnostics()
    enforced: dict[str, Enforced] = {}
    ordered = sorted(policies, key=lambda policy: policy.name)
    for policy in ordered:
        found.extend(check_kinds(policy, policy_address(policy.name)))
        for scope in policy.scopes:
            enforced.setdefault(scope, Enforced(policy.name, scope, projected(policy.bundle, kind_of(scope))))
    for scope, names in conflicts({policy.name: policy.scopes for policy in ordered}).items():
        found.add(Code.POLICY_SCOPE_CONFLICT, scope, f"more than one policy is bound to it: {', '.join(names)}")
    return dict(sorted(enforced.items())), found


def projected(bundle: Bundle, kind: EngineKind) -> Bundle:
    """Return the bundle with only the rules of one kind."""
    server = kind is EngineKind.SERVER
    return replace(bundle, rules=tuple(r for r in bundle.rules if SERVER_ACTIONS.isdisjoint(r.actions) is not server))
