"""Computes who gains or loses access, from the policy and query texts before and after a change to a cluster.

Only the inputs of affected scopes are read. A recorded policy that cannot be read counts as permitting nothing, so
everything that is permitted afterwards is a gain.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from gitops.cluster.ledger.port import LedgerReader
from gitops.cluster.model.access import AccessDiff
from gitops.cluster.model.address import (
    CLUSTER_SCOPE,
    Address,
    Kind,
    graph_address,
    of_kind,
    policy_address,
    query_address,
)
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.resource import Resource
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError

if TYPE_CHECKING:
    from gitops.cluster.policy.access import PolicyText
    from gitops.cluster.policy.bundle import Bundle


class _Recorded(Protocol):
    """A resource on either side."""

    @property
    def digest(self) -> str: ...

    @property
    def applies_to(self) -> tuple[str, ...] | None: ...


class AccessSource:
    """One side of a change: its resources, and the texts of its policies and queries (None if unreadable).

    `path` is a policy's file, for display.
    """

    def __init__(
        self,
        resources: Mapping[Address, _Recorded],
        text: Callable[[Address, str], bytes | None],
        path: Callable[[Address], str],
    ) -> None:
        self._resources, self._text, self.path = resources, text, path
        self._texts: dict[str, bytes | None] = {}

    @cached_property
    def policies(self) -> dict[str, str]:
        """The policy digests, by name."""
        return {address.name: self._resources[address].digest for address in of_kind(self._resources, Kind.POLICY)}

    @cached_property
    def graphs(self) -> frozenset[str]:
        """The graph ids."""
        return frozenset(address.name for address in of_kind(self._resources, Kind.GRAPH))

    @cached_property
    def bound(self) -> dict[str, tuple[str, ...]]:
        """Each scope's policies, sorted. A ledger with several policies for one scope cannot be served."""
        found: dict[str, tuple[str, ...]] = {}
        for name in sorted(self.policies):
            for scope in self._resources[policy_address(name)].applies_to or ():
                found[scope] = (*found.get(scope, ()), name)
        return found

    @cached_property
    def unbound(self) -> frozenset[str]:
        """The policies whose bindings are not recorded."""
        return frozenset(name for name in self.policies if not self._resources[policy_address(name)].applies_to)

    @cached_property
    def queries(self) -> dict[str, dict[str, str]]:
        """Each graph's query digests, by name."""
        found: dict[str, dict[str, str]] = {graph: {} for graph in self.graphs}
        for address in of_kind(self._resources, Kind.QUERY):
            found.setdefault(address.graph or "", {})[address.name] = self._resources[address].digest
        return found

    def text(self, address: Address, digest: str) -> bytes | None:
        """Return a text by its digest.

        Each text is read only once, because a query file is the text of many queries.
        """
        if digest not in self._texts:
            self._texts[digest] = self._text(address, digest)
        return self._texts[digest]


def access_of_plan(current: Session, changes: Iterable[Change], state: LedgerState) -> AccessDiff | None:
    """Return the gains and losses that a plan's changes cause, or None if they don't affect access or nothing has a policy.

    Recorded texts are read from the ledger only if they differ from the declared ones.
    """
    kinds = {(each.address.kind, each.action) for each in changes}
    touched = any(
        kind in (Kind.POLICY, Kind.QUERY) or (kind is Kind.GRAPH and action is not Action.UPDATE)
        for kind, action in kinds
    )
    declared = current.desired.resources
    if not touched or not (of_kind(declared, Kind.POLICY) or of_kind(state.resources, Kind.POLICY)):
        return None
    found = access_between(recorded_access(current.opened.ledger, state, declared), declared_access(declared))
    return found if found.rows or any(kind is Kind.POLICY for kind, _ in kinds) else None


def declared_access(declared: Mapping[Address, Resource]) -> AccessSource:
    """Return a folder's declarations as an access source."""
    return AccessSource(
        declared, lambda address, _: declared[address].content, lambda policy: declared[policy].path or policy
    )


def recorded_access(
    ledger: LedgerReader, state: LedgerState, declared: Mapping[Address, Resource] = MappingProxyType({})
) -> AccessSource:
    """Return a ledger's records as an access source. A `declared` text with the same digest is not read from the ledger."""

    def text(address: Address, digest: str) -> bytes | None:
        if address in declared and declared[address].digest == digest:
            return declared[address].content
        with suppress(GitopsError):
            return ledger.blob(address, digest).content
        return None

    return AccessSource(state.resources, text, lambda policy: (policy in declared and declared[policy].path) or policy)


def access_between(before: AccessSource, after: AccessSource) -> AccessDiff:
    """Return the gains and losses from the first side to the second."""
    # Importing the policy reader and the languages is slow, and few plans change permissions.
    from gitops.cluster.policy.access import AccessState, PolicyText
    from gitops.cluster.policy.access_diff import access_diff

    sides = (before, after)
    scopes = _touched(before, after)
    named = {name for side in sides for scope in scopes for name in side.bound.get(scope, ())}
    bundles = _bundles(sides, named)
    policies = [
        {
            name: PolicyText(name, side.path(policy_address(name)), digest, bundles[digest])
            for name, digest in side.policies.items()
            if name in named
        }
        for side in sides
    ]
    bound = [{scope: side.bound[scope][0] for scope in scopes if scope in side.bound} for side in sides]
    # Bindings that the ledger does not record, or records twice, are unknown.
    lost = {scope for scope in scopes if len(before.bound.get(scope, ())) > 1}
    lost |= {s for s, name in bound[1].items() if name in before.unbound and s not in bound[0]}
    for scope in lost:
        unknown = PolicyText(f"{scope} of the ledger", "", "", None)
        policies[0][unknown.name], bound[0][scope] = unknown, unknown.name
    invoking = {
        scope
        for scope in scopes
        if any(_invokes(texts[of[scope]]) for texts, of in zip(policies, bound, strict=True) if scope in of)
    }
    graphs = {Address(scope).name for scope in invoking if scope != CLUSTER_SCOPE}
    effects = _Effects()
    states = [
        AccessState(texts, of, {graph: effects.of(side, graph) if graph in graphs else {} for graph in side.graphs})
        for side, texts, of in zip(sides, policies, bound, strict=True)
    ]
    found = access_diff(*states)
    return replace(found, unguarded=bool(after.graphs and before.bound and not after.bound))


def _invokes(text: PolicyText) -> bool:
    """Return True if a policy has rules about stored queries."""
    from gitops.cluster.policy.bundle import PolicyAction as Permission

    return text.bundle is not None and any(Permission.INVOKE_QUERY in rule.actions for rule in text.bundle.rules)


def _touched(before: AccessSource, after: AccessSource) -> list[str]:
    """Return the scopes with a difference in any input that determines permissions."""
    scopes = [CLUSTER_SCOPE, *map(graph_address, sorted(before.graphs | after.graphs))]
    changed = {
        name
        for name in before.policies.keys() | after.policies.keys()
        if before.policies.get(name) != after.policies.get(name)
    }

    def differs(scope: str) -> bool:
        old, new = before.bound.get(scope, ()), after.bound.get(scope, ())
        if old != new or not changed.isdisjoint((*old, *new)):
            return True
        if scope == CLUSTER_SCOPE:
            return bool(before.graphs) != bool(after.graphs)
        graph = Address(scope).name
        return (graph in before.graphs) != (graph in after.graphs) or before.queries[graph] != after.queries[graph]

    return [scope for scope in scopes if differs(scope)]


def _bundles(sides: Iterable[AccessSource], names: Collection[str]) -> dict[str, Bundle | None]:
    """Return the contents of the given policies by digest, or None for an unreadable policy."""
    from gitops.cluster.policy.read import read_bundle

    found: dict[str, Bundle | None] = {}
    for side in sides:
        for name, digest in side.policies.items():
            if name in names and digest not in found:
                text = side.text(policy_address(name), digest)
                found[digest] = None if text is None else read_bundle(text, side.path(policy_address(name)))[0]
    return found


class _Effects:
    """Cache that determines from the text whether a stored query writes. An unreadable text counts as a read."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[str]] = {}

    def of(self, side: AccessSource, graph: str) -> dict[str, bool]:
        """Return, for each query of a graph, whether it writes."""
        return {name: name in self._writing(side, graph, name, digest) for name, digest in side.queries[graph].items()}

    def _writing(self, side: AccessSource, graph: str, name: str, digest: str) -> frozenset[str]:
        """Return the queries of a text that write."""
        from gitops.database.language.query import parse_queries
        from gitops.database.language.text import LanguageError

        if digest not in self._known:
            text, found = side.text(query_address(graph, name), digest), frozenset[str]()
            with suppress(LanguageError):
                found = frozenset(q.name.text for q in parse_queries(text or b"") if q.writes)
            self._known[digest] = found
        return self._known[digest]
