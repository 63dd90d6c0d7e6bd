"""Decides whether a bundle permits a request, without side effects. Tests check that Cedar makes the same decisions.

A request can need several permissions, each of which is decided separately; `decide_all` is used to enforce, explain
and list.

1. An actor in no group is denied.
2. A rule permits the request if it lists the action, the actor is in its group, the branch of the action is in its scope,
   and, for a stored query, it covers the query.
3. If several rules permit it, the one with the first id by code point is reported; rules for the actor come before
   rules for its groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Protocol

from gitops.cluster.policy.bundle import BRANCH_SCOPED, READS, TARGET_SCOPED, BranchScope, Bundle, PolicyAction, Rule
from gitops.core.dataclass import dataclass

MAIN = "main"
"""The branch of a request that does not specify one."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """An actor's request. `query` is the name of the stored query to invoke.

    An empty `actor` means a request without an identity, which no policy permits anything. A read without a branch
    applies to `main`; the caller sets it. `groups` are policy members of the form `group:NAME` that also apply to the
    actor, from the identity provider.
    """

    actor: str
    action: PolicyAction
    branch: str | None = None
    target_branch: str | None = None
    query: str | None = None
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The decision on a request, with its rule. `known` is False for an actor without a group."""

    allowed: bool
    rule: str | None
    known: bool
    message: str


class PolicyEngine(Protocol):
    """Decides with one bundle on one resource."""

    @property
    def bundle(self) -> Bundle:
        """The bundle that it decides with."""
        ...

    def decide(self, request: AccessRequest) -> AccessDecision:
        """Decide a request. Raises GitopsError `policy_evaluation_failed`, which does not count as a denial."""
        ...


def permits(bundle: Bundle, rule: Rule, request: AccessRequest) -> bool:
    """Return True if a rule of the bundle permits the request."""
    if request.action not in rule.actions or request.actor not in bundle.groups.get(rule.group, ()):
        return False
    if rule.queries and (request.query is None or not any(fnmatchcase(request.query, each) for each in rule.queries)):
        return False
    protected = bundle.protected_branches
    return _covers(rule.branch_scope, request.branch, protected) and _covers(
        rule.target_branch_scope, request.target_branch, protected
    )


def decide(bundle: Bundle, request: AccessRequest) -> AccessDecision:
    """Decide whether the bundle permits the request."""
    if request.groups:
        return decide_groups(request, lambda each: decide(bundle, each))
    if not any(request.actor in members for members in bundle.groups.values()):
        return stranger(request)
    found = [rule.id for rule in bundle.rules if permits(bundle, rule, request)]
    return permission(min(found)) if found else denial(request)


def decide_groups(request: AccessRequest, decide: Callable[[AccessRequest], AccessDecision]) -> AccessDecision:
    """Decide a request from an actor with groups.

    The actor has its own permissions and those of its groups, because rules only permit.
    """
    own = decide(replace(request, groups=()))
    if own.allowed:
        return own
    found = [decide(replace(request, actor=group, groups=())) for group in request.groups]
    if allowed := [each for each in found if each.allowed]:
        return min(allowed, key=lambda each: each.rule or "")
    return own if own.known or not any(each.known for each in found) else denial(request)


def decide_all(request: AccessRequest, decide: Callable[[AccessRequest], AccessDecision]) -> AccessDecision:
    """Decide a request. If it copies a branch (by default `main`), also decide whether the actor can read that branch."""
    decision = decide(request)
    if not decision.allowed or request.action not in READS:
        return decision
    origin = request.branch or MAIN
    reading = decide(replace(request, action=READS[request.action], branch=origin, target_branch=None))
    if reading.allowed:
        return decision
    return replace(reading, message=f"{request.action} reads branch '{origin}', and {reading.message}")


def is_mentioned(bundle: Bundle, actor: str, groups: Iterable[str] = ()) -> bool:
    """Return True if any rule permits anything to the actor or one of its groups."""
    names = {actor, *groups}
    return any(not names.isdisjoint(bundle.groups.get(rule.group, ())) for rule in bundle.rules)


def stranger(request: AccessRequest) -> AccessDecision:
    """Return the denial for an actor without a group."""
    message = f"actor '{request.actor}' is in no group of the policy"
    return AccessDecision(allowed=False, rule=None, known=False, message=message)


def denial(request: AccessRequest) -> AccessDecision:
    """Return the denial for a request that no rule permits."""
    message = f"no rule permits '{request.actor}' to {request.action}"
    return AccessDecision(allowed=False, rule=None, known=True, message=message)


def without_policy(request: AccessRequest) -> AccessDecision:
    """Decide a request on a scope without a policy. Every token can read there, but not do anything else."""
    message = "without a policy, any token may read, and nothing else"
    return AccessDecision(allowed=request.action is PolicyAction.READ, rule=None, known=True, message=message)


def permission(rule: str) -> AccessDecision:
    """Return the decision that permits a request. `rule` is the first rule, by id, that permits it."""
    return AccessDecision(allowed=True, rule=rule, known=True, message=f"rule '{rule}' permits it")


def _covers(scope: BranchScope | None, branch: str | None, protected: frozenset[str]) -> bool:
    if scope is None or scope is BranchScope.ANY:
        return True
    return branch is not None and (branch in protected) == (scope is BranchScope.PROTECTED)


# Lists the actors who are allowed to do something under a policy.


def who_may(bundle: Bundle, action: PolicyAction, branch: str = MAIN, query: str | None = None) -> Mapping[str, Rule]:
    """Return the actors who can do something on a branch, in order, each with the first rule (by id) that permits it.

    `query` is the stored query that is invoked. An actor is listed for copying to a branch only if there is also a branch
    that the actor can read and copy.
    """
    on, target = branch if action in BRANCH_SCOPED else None, branch if action in TARGET_SCOPED else None
    found: dict[str, Rule] = {}
    for rule in sorted(bundle.rules, key=lambda rule: rule.id):
        members = bundle.groups.get(rule.group, ())
        # Except for its group, a rule requires the same for every member.
        if members and permits(bundle, rule, AccessRequest(members[0], action, on, target, query)):
            for actor in members:
                found.setdefault(actor, rule)
    if action in READS:
        # A branch that is in no list is treated like every other such branch.
        origins = (MAIN, *bundle.protected_branches, "")
        readers = {actor for origin in origins for actor in who_may(bundle, READS[action], origin)}
        found = {actor: rule for actor, rule in found.items() if actor in readers}
    return dict(sorted(found.items()))
