"""What the planner needs to know of a resource kind: the pure half. The acting half is a provider."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gitops.model.address import Address, Kind, graph_address
from gitops.model.change import Change, Disposition, Reason

Ruling = tuple[Disposition, Reason | None]

APPLIED: Ruling = (Disposition.APPLIED, None)


@dataclass(frozen=True, slots=True)
class Situation:
    """What else is going on in the plan, as far as a ruling depends on it; sets of graph ids, and of approved addresses.

    `pending`: an interrupted operation of the graph is not settled. `created`, `deleted`: the graph itself is created or
    deleted by this plan. `schema_unsettled`: its schema is deleted, or created without its graph. `approved`: addresses
    whose gate is satisfied. `policy_graphs`: the ids of the graphs that a policy is bound to.
    """

    pending: frozenset[str]
    created: frozenset[str]
    deleted: frozenset[str]
    schema_unsettled: frozenset[str]
    approved: frozenset[Address]
    policy_graphs: Mapping[Address, tuple[str, ...]]

    def delete_approved(self, graph: str | None) -> bool:
        """Whether the graph is deleted by this plan, with permission."""
        return graph is not None and graph in self.deleted and graph_address(graph) in self.approved


class ResourceKind(Protocol):
    """Rules of one kind. Every method is a pure function of its arguments."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """What apply does with the change, and why if it does not carry it out."""
        ...

    def gate(self, change: Change, situation: Situation) -> str | None:
        """A fixed sentence saying why the change needs an approval, or None if it needs none."""
        ...


Kinds = Mapping[Kind, ResourceKind]


def rules_for(kinds: Kinds, address: Address) -> ResourceKind:
    """The rules of an address; a kind without rules of its own has those of UNKNOWN."""
    return kinds.get(address.kind) or kinds[Kind.UNKNOWN]
