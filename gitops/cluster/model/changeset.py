"""Changesets: the ledger's record of one plan's run, and the events that build up that record.

A cluster is never changed directly. First, a changeset that lists the changes is created. It is tracked while its
members are prepared, and then moves the cluster's applied state atomically.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Effect
from gitops.cluster.model.plan import RunRecord
from gitops.core.dataclass import dataclass


class ChangesetState(StrEnum):
    """Progress of a changeset. The last two states are final."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    ROLLING_BACK = "rolling_back"
    COMMITTED = "committed"
    DRAINED = "drained"
    FINALIZED = "finalized"
    FAILED = "failed"


BLOCKING = frozenset({ChangesetState.PREPARING, ChangesetState.PREPARED, ChangesetState.ROLLING_BACK})
"""A changeset in one of these states prevents its cluster from getting another one, unless that is created beside it."""

INTERRUPTED = "the run was interrupted"
"""The error of a changeset whose run was stopped or crashed, without an error in any of its changes."""

ENDED = frozenset({ChangesetState.FINALIZED, ChangesetState.FAILED})
"""A record in one of these states never changes again."""


class ChangesetKind(StrEnum):
    """Why a changeset exists: a merge, a retry, a repair of drift, or a strategy decision."""

    MERGE = "merge"
    RETRY = "retry"
    RECONCILE = "reconcile"
    TICK = "tick"


class RuntimeState(StrEnum):
    """Progress of one member of a changeset."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    READY = "ready"
    CANONICAL = "canonical"
    FAILED = "failed"
    SKIPPED = "skipped"
    COMPENSATED = "compensated"


class RemovalState(StrEnum):
    """Progress of removing a resource."""

    PLANNED = "planned"
    DRAINING = "draining"
    DEPROVISIONING = "deprovisioning"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Runtime:
    """Progress of a member while its changeset runs. Times are RFC 3339 in UTC; `outputs` contain no secrets."""

    state: RuntimeState = RuntimeState.PENDING
    attempts: int = 0
    started_at: str | None = None
    updated_at: str | None = None
    outputs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A resource that a changeset creates or changes. It has the digest of the complete new definition, never a patch.

    `lifted` means that it could be staged but depends on a pivot. It is applied after the pivot and can still be rolled
    back. A migration with an `expanded` schema leads to that schema, by digest, before the commit, and drops the rest
    afterwards.
    """

    address: Address
    action: Action
    effect: Effect
    before: str | None
    after: str | None
    binding_change: bool = False
    lifted: bool = False
    expanded: str | None = None
    runtime: Runtime = field(default_factory=Runtime)

    @property
    def staged(self) -> str | None:
        """The digest that the resource must have before the commit."""
        return self.after if self.expanded is None else self.expanded

    @property
    def finishes(self) -> bool:
        """Whether part of its work happens after the commit."""
        return self.effect is Effect.FINISH or self.expanded is not None


@dataclass(frozen=True, slots=True)
class Removal:
    """A resource that leaves the cluster.

    The commit removes it from the applied state, and its data is deleted afterwards.
    """

    address: Address
    digest: str
    state: RemovalState = RemovalState.PLANNED
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A planned change that is not a member, with its disposition and reason."""

    address: Address
    disposition: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Orphan:
    """Data that a failed changeset left behind, and the reason why it was not removed."""

    address: Address
    reason: str


@dataclass(frozen=True, slots=True)
class ChangesetSource:
    """Where a changeset comes from: the merge, the previously applied commit, the change request, and the actor."""

    branch: str | None = None
    merge_commit: str | None = None
    previous_commit: str | None = None
    pull_request: int | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class ChangesetBase:
    """The applied state that a changeset starts from. `applied_digest` covers only its `applied_revision`."""

    state_revision: int
    state_cas: str | None
    applied_digest: str
    config_digest: str | None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """Facts about a changeset's plan: its digest and its execution graph's size."""

    digest: str
    nodes: int
    edges: int
    layers: int


@dataclass(frozen=True, slots=True)
class ChangesetResult:
    """A changeset's result. `counts` has the number of members and removals by outcome."""

    state_revision: int
    converged: bool
    no_change: bool
    counts: Mapping[str, int]
    duration_ms: int
    failed: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Barriers:
    """When a changeset passed each of its four boundaries (RFC 3339, UTC)."""

    prepared: str | None = None
    committed: str | None = None
    drained: str | None = None
    finalized: str | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """The record of one changeset after its newest event.

    `part` is `i/k` if one merge needs several changesets. `covers` are the merge commits that this changeset applies,
    oldest first. `needs_attention` means that a step after the commit failed; every later run retries it. `beside` are
    the keys of the open changesets of earlier merges, oldest first, beside which this one was created. Its `base` is then
    the state after all of them, so it commits after them.
    """

    key: str
    cluster: str
    kind: ChangesetKind
    attempt: int
    part: str
    created_at: str
    updated_at: str
    source: ChangesetSource
    base: ChangesetBase
    desired_digest: str
    plan: PlanFacts
    members: tuple[Member, ...] = ()
    removals: tuple[Removal, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    covers: tuple[str, ...] = ()
    retry_of: str | None = None
    atomic: bool = True
    state: ChangesetState = ChangesetState.PREPARING
    error: str | None = None
    barriers: Barriers = field(default_factory=Barriers)
    orphaned: tuple[Orphan, ...] = ()
    needs_attention: bool = False
    result: ChangesetResult | None = None
    beside: tuple[str, ...] = ()

    @property
    def addresses(self) -> frozenset[Address]:
        """The addresses of all resources that the changeset affects."""
        return frozenset((*(m.address for m in self.members), *(r.address for r in self.removals)))

    @property
    def commits(self) -> tuple[str, ...]:
        """The changeset's merge commits: its own merge and every merge that it applies."""
        return tuple(dict.fromkeys(filter(None, (self.source.merge_commit, *self.covers))))

    @property
    def phase(self) -> str:
        """One of three states, for simple clients: `provisioning`, `committed` or `failed`."""
        otherwise = "failed" if self.state is ChangesetState.FAILED else "committed"
        return "provisioning" if self.state in BLOCKING else otherwise

    @property
    def ended(self) -> bool:
        """True if the record no longer changes."""
        return self.state in ENDED

    @property
    def untried(self) -> bool:
        """True if it was prepared beside earlier changesets and rolled back although none of its changes failed.

        Its merge then does not count as tried.
        """
        return self.state is ChangesetState.FAILED and bool(self.beside) and self.error == INTERRUPTED


@dataclass(frozen=True, slots=True)
class Created:
    """`changeset_created`, with the complete first record."""

    record: Changeset


@dataclass(frozen=True, slots=True)
class RuntimeUpdated:
    """`resource_runtime_updated`: the progress of one member or removal."""

    address: Address
    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Staged:
    """`resource_staged`: a member's new content is stored, but nothing refers to it yet."""

    address: Address
    digest: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """`changeset_prepared`: all work that can be rolled back is done."""

    ready: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """`changeset_committed`: the applied state has changed."""

    state_revision: int
    previous_revision: int
    addresses: tuple[Address, ...]
    converged: bool = True


@dataclass(frozen=True, slots=True)
class Drained:
    """`changeset_drained`: no server reads the removed data any longer; `evidence` explains why this is known."""

    waited_ms: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Removed:
    """`resource_removed`: the data of a removed resource was deleted."""

    address: Address


@dataclass(frozen=True, slots=True)
class Finalized:
    """`changeset_finalized`: all work is done."""

    result: ChangesetResult


@dataclass(frozen=True, slots=True)
class RollingBack:
    """`changeset_rolling_back`: something failed, and the rollback is about to start. `on_failure` is `rollback` or `keep`."""

    error: str
    failed: Address | None
    on_failure: str = "rollback"


@dataclass(frozen=True, slots=True)
class Failed:
    """`changeset_failed`: the applied state is unchanged."""

    error: str
    orphaned: tuple[Orphan, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """`approval_required`: a change is skipped or waits because an approval is missing."""

    address: Address
    digest: str


@dataclass(frozen=True, slots=True)
class ApprovalConsumed:
    """`approval_consumed`: an approval was consumed."""

    address: Address
    approval: str
    actor: str | None
    digest: str


Happening = (
    Created
    | RuntimeUpdated
    | Staged
    | Prepared
    | Committed
    | Drained
    | Removed
    | Finalized
    | RollingBack
    | Failed
    | ApprovalRequired
    | ApprovalConsumed
)


@dataclass(frozen=True, slots=True)
class ChangesetEvent:
    """A changeset event. `seq` numbers a cluster's events without gaps, starting at 1."""

    seq: int
    at: str
    cluster: str
    changeset: str
    happening: Happening


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event that the ledger has not numbered yet. `run` is the record of the run that it ends."""

    changeset: str
    at: str
    happening: Happening
    run: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class EndedChangeset:
    """The ledger's summary of an ended changeset: result, time, first and newest event, and commits."""

    key: str
    state: ChangesetState
    at: str
    first: int
    last: int
    commits: tuple[str, ...] = ()
