"""State edits that keep a graph's records consistent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.address import Address, Kind, graph_address, schema_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import AppliedResource, LedgerState, StatusRecord
from gitops.cluster.model.resource import graph_composite

UNKNOWN_DATA = Seen("unknown", 0, 1)
"""For a graph that was lost before anything about it was recorded."""


class StateDraft:
    """A state that is being edited. An edit's cost does not depend on the ledger's size, because a run edits once per graph.

    A draft has its own maps. `state` returns them, so the draft must not be edited afterwards.
    """

    def __init__(self, state: LedgerState) -> None:
        """Start with a state, which is not modified."""
        self._start = state
        self._resources = dict(state.resources)
        self._statuses = dict(state.statuses)
        self._approvals = dict(state.approval_records)
        self._recoveries = dict(state.recovery_records)
        self._observations = dict(state.observations)

    @cached_property
    def _owned(self) -> dict[str | None, set[Address]]:
        """Map each graph to its resources. Not called for a state that is not edited."""
        owned: dict[str | None, set[Address]] = {}
        for address in self._resources.keys() | self._statuses.keys():
            owned.setdefault(address.graph, set()).add(address)
        return owned

    @property
    def resources(self) -> Mapping[Address, AppliedResource]:
        """The current resources."""
        return MappingProxyType(self._resources)

    def put(self, address: Address, entry: AppliedResource) -> None:
        """Record a resource."""
        self._owned.setdefault(address.graph, set()).add(address)
        self._resources[address] = entry

    def drop(self, address: Address) -> None:
        """Remove a resource if it exists. Its status is kept."""
        self._resources.pop(address, None)

    def mark(self, address: Address, status: StatusRecord | None) -> None:
        """Set a resource's status. None removes it."""
        if status is None:
            self._statuses.pop(address, None)
            return
        self._statuses[address] = status
        self._owned.setdefault(address.graph, set()).add(address)

    def observe(self, address: Address, observation: Mapping[str, Any]) -> None:
        """Record an observation for an address."""
        self._observations[address] = observation

    def observe_graph(self, graph: str, seen: Seen, live: str, desired: str | None, *, uri: str, at: str) -> None:
        """Record a graph's observation.

        `live` and `desired` are digests of its schema; None if it is not declared.
        """
        observation = graph_observation(graph, uri=uri, at=at, seen=seen, live=live, desired=desired)
        self.observe(graph_address(graph), observation)

    def use_approvals(self, approval_ids: Iterable[str], record: Mapping[str, Any]) -> None:
        """Record approvals as consumed. If one was consumed before, the earlier record is kept."""
        for approval_id in approval_ids:
            self._approvals.setdefault(approval_id, record)

    def record_recovery(self, operation_id: str, record: Mapping[str, Any]) -> None:
        """Record a settled operation."""
        self._recoveries[operation_id] = record

    def renew(self, graph: str, *, create: bool = False) -> None:
        """Recompute one graph's composite digest.

        A graph that is not recorded is skipped, unless `create` is set.
        """
        address = graph_address(graph)
        if address not in self._resources and not create:
            return
        schema = self._resources.get(schema_address(graph))
        queries = {
            each.name: self._resources[each].digest
            for each in self._owned.get(graph, ())
            if each.kind is Kind.QUERY and each in self._resources
        }
        self.put(address, AppliedResource(graph_composite(graph, "" if schema is None else schema.digest, queries)))

    def remove_graph(self, graph: str, *, at: str, approval_id: str | None, actor: str | None) -> None:
        """Remove a graph with its subtree, and record its tombstone."""
        for address in self._owned.pop(graph, ()):
            self._resources.pop(address, None)
            self._statuses.pop(address, None)
        tombstone = {"kind": "tombstone", "deleted_at": at, "approval_id": approval_id, "actor": actor}
        self.observe(graph_address(graph), tombstone)

    def state(self) -> LedgerState:
        """Return the edited state."""
        return replace(
            self._start,
            resources=self._resources,
            statuses=self._statuses,
            approval_records=self._approvals,
            recovery_records=self._recoveries,
            observations=self._observations,
        )


def graph_observation(
    graph: str,
    *,
    uri: str,
    at: str,
    seen: Seen | None,
    live: str | None,
    desired: str | None,
    exists: bool = True,
    error: str | None = None,
) -> dict[str, Any]:
    """Return the record of an observed graph for the state. `live` and `desired` are its schema digests."""
    return {
        "kind": "graph",
        "address": graph_address(graph),
        "graph_uri": uri,
        "observed_at": at,
        "exists": exists,
        "incarnation": None if seen is None else seen.incarnation,
        "rows": None if seen is None else seen.rows,
        "manifest_version": None if seen is None else seen.version,
        "schema_digest": live,
        "desired_schema_digest": desired,
        "schema_matches_desired": False if not exists else None if live is None else live == desired,
        "error": error,
    }


def recorded_data(state: LedgerState, graph: Address) -> Seen | None:
    """Return the last recorded observation of a graph, or None if it is missing or was recorded before this release."""
    found = state.observations.get(graph, {})
    incarnation, rows, version = (found.get(name) for name in ("incarnation", "rows", "manifest_version"))
    at = found.get("observed_at")
    if type(incarnation) is not str or type(rows) is not int or type(version) is not int:
        # Nothing is left to read: the approval is for a graph that is gone, whatever it contained.
        return UNKNOWN_DATA if graph in state.vanished else None
    return Seen(incarnation, rows, version, at if type(at) is str else None)


def lost_words(state: LedgerState, graph: Address) -> tuple[str, ...]:
    """Describe what is lost if a missing graph is recreated, and how to restore it instead."""
    seen = recorded_data(state, graph)
    known = seen if seen is None else replace(seen, recorded_at=None)
    lost = "not known" if known in (None, UNKNOWN_DATA) else f"{known.words}, when it was last recorded"
    way = "to keep it instead, restore its folder from a backup, then, on the machine with the graphs, run: gitops refresh"
    return f"lost: {lost}", way
