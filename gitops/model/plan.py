"""The plan: what would change, why, what breaks, which approvals are needed, and the execution graph of it all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from gitops.core.diagnostics import Diagnostic
from gitops.graph.observation import MigrationPreview
from gitops.model.address import Address
from gitops.model.approval import Approval
from gitops.model.change import Change
from gitops.model.execution import ExecutionGraph
from gitops.model.impact import RecordedGraph, SchemaImpact
from gitops.model.resource import DesiredState
from gitops.model.state import State


@dataclass(frozen=True, slots=True)
class TrustChange:
    """The keys and rules of the branch ledger are about to change; digests of the two bundles."""

    cluster: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything that a plan is a function of; no clock, no store, no network.

    `approvals` are the unconsumed approvals that already passed every check of their store (in a branch ledger: signature,
    signer, target, author, expiry). `pending` are graph ids whose interrupted operation is not settled. `previews` holds a
    migration preview per schema address where the accepted schema could be read. `recorded` holds per schema address what the
    ledger records of the graph, if the plan is to explain what the migration affects. `approvals_needed` is how many distinct
    people must approve an irreversible change; each of the approvals in `alone` is enough by itself.
    """

    desired: DesiredState
    state: State
    approvals: tuple[Approval, ...] = ()
    pending: frozenset[str] = frozenset()
    previews: Mapping[Address, MigrationPreview] = field(default_factory=lambda: MappingProxyType({}))
    recorded: Mapping[Address, RecordedGraph] = field(default_factory=lambda: MappingProxyType({}))
    trust_change: TrustChange | None = None
    approvals_needed: int = 1
    alone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Impact:
    """`affected` are the resources that directly need `resource`, in edge order."""

    resource: Address
    affected: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ApprovalRequirement:
    """A change that needs permission from `needed` distinct people; `approvals` are the valid ones found."""

    resource: Address
    reason: str
    change_digest: str
    approvals: tuple[Approval, ...] = ()
    needed: int = 1

    @property
    def satisfied(self) -> bool:
        """Whether enough valid approvals exist."""
        return len(self.approvals) >= self.needed


@dataclass(frozen=True, slots=True)
class Plan:
    """The result of the planner; comment, text, JSON and the run all read it.

    `digest` covers the config digest and each change's address, action, before, after, bindings flag and migration steps:
    not serial, time, disposition or evidence, so that it survives approval and merge unless reality moved.
    `changes` is sorted by address. `schema_impact` is empty unless the inputs had what it is made of; it only explains.
    """

    config_digest: str
    digest: str
    changes: tuple[Change, ...]
    impact: tuple[Impact, ...]
    approvals_required: tuple[ApprovalRequirement, ...]
    graph: ExecutionGraph
    diagnostics: tuple[Diagnostic, ...] = ()
    schema_impact: tuple[SchemaImpact, ...] = ()

    def change(self, address: Address) -> Change | None:
        """The change of one resource, if it has one."""
        return next((c for c in self.changes if c.address == address), None)
