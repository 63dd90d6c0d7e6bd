"""A provider acts on the world for some resource kinds: it carries out one node of an execution graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gitops.core.faults import Faults
from gitops.graph.port import GraphEngine
from gitops.ledger.port import LedgerStore
from gitops.model.address import Address
from gitops.model.change import Change
from gitops.model.ledger import Intent
from gitops.model.plan import ExecNode, NodeResult
from gitops.model.resource import Resource

# Facts of a result that the apply verb reads.
DISARMED = "disarmed"
CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class ClusterWork:
    """What the provider works with: stores, the sources by address, and the armed-to-be intents by node id.

    `read_source` reads a schema file again, so that a folder that moves under a run is noticed.
    """

    ledger: LedgerStore
    engine: GraphEngine
    graph_uri: Callable[[str], str]
    resources: Mapping[Address, Resource]
    intents: Mapping[str, Intent]
    read_source: Callable[[str], bytes]
    faults: Faults
    actor: str | None


class Provider(Protocol):
    """Carries out nodes. Called from worker threads, one call per node, locks of the node held."""

    def apply(self, node: ExecNode, change: Change) -> NodeResult:
        """Do it. Never raises for a failure of the work itself: that is outcome FAILED with diagnostics."""
        ...


ProviderFactory = Callable[[ClusterWork], Provider]
