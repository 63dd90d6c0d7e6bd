"""The locks that the nodes of an execution graph hold while they run; a node takes all of its locks at once, when it starts.

| key                  | mode      | who                                                                              |
| ---                  | ---       | ---                                                                              |
| `graph:<graph>`      | exclusive | creation and delete of the graph, migration of its schema, restore of its rows   |
| `graph:<graph>`      | shared    | queries of the graph; policies that are to be bound to it                        |
| `policy-scope:<ref>` | exclusive | policies that are bound to the graph or the cluster, or were                     |
| `blob:<digest>`      | exclusive | texts of equal content, if several files declare them                            |
| `approval:<id>`      | exclusive | the change that uses the approval                                                |
| `compute:<target>`   | exclusive | looks of an apply at the target (`targets`), decisions and actions of a tick     |
| `replicas:<t>/<cc>`  | exclusive | actions of a tick on one compute cluster of the target (`tick`)                  |
| `ledger`             | exclusive | barriers                                                                         |

A run is of one cluster, so no key names it.

The queries of one file are one text, which is published under the address of each. They need no lock among themselves: one after
the other, a file of forty queries would take forty requests to a bucket in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, of_kind
from gitops.cluster.model.change import Change
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import ExecNode, LockClaim, LockMode
from gitops.cluster.model.resource import DesiredState


class Bindings(NamedTuple):
    """What a policy is bound to, as it is recorded and as it is declared: references of graphs, and `cluster`."""

    recorded: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def released(self) -> frozenset[str]:
        """What it guards no longer."""
        return frozenset(self.recorded).difference(self.declared)

    @property
    def taken(self) -> frozenset[str]:
        """What it guards from now on."""
        return frozenset(self.declared).difference(self.recorded)


LEDGER = LockClaim("ledger")
"""The lock of what writes the ledger."""

_APPROVAL = "approval:"
_UNBOUND = Bindings()
NO_BINDINGS: Mapping[Address, Bindings] = MappingProxyType({})


def bindings_of(changes: Iterable[Change], desired: DesiredState, state: LedgerState) -> Mapping[Address, Bindings]:
    """The bindings of every policy that changes. What an old ledger does not record is empty."""
    found = {}
    for address in of_kind((change.address for change in changes), Kind.POLICY):
        before, after = state.resources.get(address), desired.resources.get(address)
        found[address] = Bindings(
            () if before is None else before.applies_to or (), () if after is None else after.applies_to or ()
        )
    return found


def givers_of(bindings: Mapping[Address, Bindings]) -> Mapping[Address, tuple[Address, ...]]:
    """Per policy that takes a scope, the policies that let go of it, sorted."""
    by_scope: dict[str, list[Address]] = {}
    for policy in sorted(bindings):
        for scope in bindings[policy].released:
            by_scope.setdefault(scope, []).append(policy)
    found = {
        policy: {giver for scope in bound.taken for giver in by_scope.get(scope, ())}
        for policy, bound in bindings.items()
    }
    return {policy: tuple(sorted(givers)) for policy, givers in found.items() if givers}


def approvals_of(nodes: Iterable[ExecNode]) -> list[str]:
    """The ids of the approvals that any of the nodes claims, sorted."""
    keys = {claim.key for node in nodes for claim in node.locks}
    return sorted(key.removeprefix(_APPROVAL) for key in keys if key.startswith(_APPROVAL))


def moves_graph(change: Change) -> bool:
    """Whether the change touches a live graph: a derived update of a graph has no node that could."""
    return change.address.kind is Kind.GRAPH or rules_of(change.address).operation(change.action) is not None


def lock_claims(
    changes: Iterable[Change],
    bindings: Mapping[Address, Bindings],
    granted: Mapping[Address, Iterable[str]],
    file_of: Callable[[Address], str | None],
) -> Mapping[Address, tuple[LockClaim, ...]]:
    """The locks of each change, sorted; changes without any are left out.

    `granted` are the ids of the approvals that a change uses, `file_of` names the file that declares a text.
    """
    by_content: dict[str, list[Address]] = {}
    claims: dict[Address, set[LockClaim]] = {}
    for change in changes:
        address = change.address
        claims[address] = {LockClaim(f"{_APPROVAL}{approval}") for approval in granted.get(address, ())}
        claims[address] |= _graph_claims(change, bindings.get(address, _UNBOUND))
        if rules_of(address).catalog_suffix and change.after is not None:
            by_content.setdefault(change.after, []).append(address)
    for content, texts in by_content.items():
        if len(texts) > 1 and len({file_of(text) for text in texts}) > 1:
            for text in texts:
                claims[text].add(LockClaim(f"blob:{content}"))
    return {address: tuple(sorted(found)) for address, found in claims.items() if found}


def _graph_claims(change: Change, bound: Bindings) -> set[LockClaim]:
    """The graphs and scopes that a change needs for itself, or as they are."""
    address = change.address
    if moves_graph(change):
        return {LockClaim(f"graph:{address.graph}")}
    used = [address.graph] if rules_of(address).uses_graph else []
    used += (Address(scope).graph for scope in bound.declared if scope != CLUSTER_SCOPE)
    return {
        *(LockClaim(f"policy-scope:{scope}") for scope in (*bound.recorded, *bound.declared)),
        *(LockClaim(f"graph:{graph}", LockMode.SHARED) for graph in used),
    }
