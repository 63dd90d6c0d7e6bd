"""A changeset: the run of one plan as a record of the ledger, and the events that the record is made of.

A cluster is never changed directly. A changeset is created first, says what will change, is followed while its parts are
prepared, and moves the applied state of the cluster in one step or not at all.
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
    """How far a changeset is. Its last two states are final."""

    PREPARING = "preparing"
    PREPARED = "prepared"
    ROLLING_BACK = "rolling_back"
    COMMITTED = "committed"
    DRAINED = "drained"
    FINALIZED = "finalized"
    FAILED = "failed"


BLOCKING = frozenset({ChangesetState.PREPARING, ChangesetState.PREPARED, ChangesetState.ROLLING_BACK})
"""A changeset in one of these states keeps every other one of its cluster from being created."""

ENDED = frozenset({ChangesetState.FINALIZED, ChangesetState.FAILED})
"""A record in one of these states never changes again."""


class ChangesetKind(StrEnum):
    """Why a changeset was created: a merge, another attempt at one, a repair of drift, or the decision of a strategy."""

    MERGE = "merge"
    RETRY = "retry"
    RECONCILE = "reconcile"
    TICK = "tick"


class RuntimeState(StrEnum):
    """How far one member of a changeset is."""

    PENDING = "pending"
    PROVISIONING = "provisioning"
    READY = "ready"
    CANONICAL = "canonical"
    FAILED = "failed"
    SKIPPED = "skipped"
    COMPENSATED = "compensated"


class RemovalState(StrEnum):
    """How far the removal of a resource is."""

    PLANNED = "planned"
    DRAINING = "draining"
    DEPROVISIONING = "deprovisioning"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class Runtime:
    """What is known of a member while its changeset runs. Times are RFC 3339 in UTC; `outputs` hold no secret."""

    state: RuntimeState = RuntimeState.PENDING
    attempts: int = 0
    started_at: str | None = None
    updated_at: str | None = None
    outputs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A resource that a changeset creates or changes: the whole new definition by its digest, never a patch.

    `lifted` says that it could be staged, but depends on a pivot: it is carried out after that, and is still taken back. A
    migration with an `expanded` schema leads to that, by its digest, before the commit, and drops the rest after it.
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
        """The digest of what it has to be before the commit."""
        return self.after if self.expanded is None else self.expanded

    @property
    def finishes(self) -> bool:
        """Whether something of it is left to do after the commit."""
        return self.effect is Effect.FINISH or self.expanded is not None


@dataclass(frozen=True, slots=True)
class Removal:
    """A resource that leaves the cluster: taken out of the applied state by the commit, and deleted after it."""

    address: Address
    digest: str
    state: RemovalState = RemovalState.PLANNED
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class Excluded:
    """A change of the plan that is not a member, with its disposition and the reason for it."""

    address: Address
    disposition: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that a failed changeset left behind, and why it was not removed."""

    address: Address
    reason: str


@dataclass(frozen=True, slots=True)
class ChangesetSource:
    """Where a changeset comes from: the merge, the commit that was applied before it, the change request, and who ran it."""

    branch: str | None = None
    merge_commit: str | None = None
    previous_commit: str | None = None
    pull_request: int | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class ChangesetBase:
    """The applied state that a changeset starts from; `applied_digest` is that of its `applied_revision` alone."""

    state_revision: int
    state_cas: str | None
    applied_digest: str
    config_digest: str | None


@dataclass(frozen=True, slots=True)
class PlanFacts:
    """The plan of a changeset: its digest and the size of its execution graph."""

    digest: str
    nodes: int
    edges: int
    layers: int


@dataclass(frozen=True, slots=True)
class ChangesetResult:
    """How a changeset ended. `counts` has one number per way in which a member or a removal ended."""

    state_revision: int
    converged: bool
    no_change: bool
    counts: Mapping[str, int]
    duration_ms: int
    failed: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Barriers:
    """The times, RFC 3339 in UTC, at which a changeset passed its four boundaries."""

    prepared: str | None = None
    committed: str | None = None
    drained: str | None = None
    finalized: str | None = None


@dataclass(frozen=True, slots=True)
class Changeset:
    """The record of one changeset, as it is after its newest event.

    `part` is `i/k` where one merge needs several changesets. `covers` are the merge commits that this changeset brings in, the
    oldest first. `needs_attention` says that a step after the commit failed; every later run tries it again.
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

    @property
    def addresses(self) -> frozenset[Address]:
        """Everything that the changeset touches."""
        return frozenset((*(m.address for m in self.members), *(r.address for r in self.removals)))

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits that the changeset is about: its merge, and every merge that it brings in."""
        return tuple(dict.fromkeys(filter(None, (self.source.merge_commit, *self.covers))))

    @property
    def phase(self) -> str:
        """One of the three states that a simple client knows: `provisioning`, `committed` or `failed`."""
        otherwise = "failed" if self.state is ChangesetState.FAILED else "committed"
        return "provisioning" if self.state in BLOCKING else otherwise

    @property
    def ended(self) -> bool:
        """Whether the record is final."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class Created:
    """`changeset_created`: the whole first record."""

    record: Changeset


@dataclass(frozen=True, slots=True)
class RuntimeUpdated:
    """`resource_runtime_updated`: how one member, or the removal of a resource, went on."""

    address: Address
    runtime: Runtime


@dataclass(frozen=True, slots=True)
class Staged:
    """`resource_staged`: the new content of a member is where the cluster will find it, and nothing refers to it yet."""

    address: Address
    digest: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """`changeset_prepared`: everything that can be taken back is done."""

    ready: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """`changeset_committed`: the applied state has moved."""

    state_revision: int
    previous_revision: int
    addresses: tuple[Address, ...]
    converged: bool = True


@dataclass(frozen=True, slots=True)
class Drained:
    """`changeset_drained`: nothing reads what was removed; `evidence` says how that is known."""

    waited_ms: int
    evidence: str


@dataclass(frozen=True, slots=True)
class Removed:
    """`resource_removed`: the data of a removed resource are deleted."""

    address: Address


@dataclass(frozen=True, slots=True)
class Finalized:
    """`changeset_finalized`: nothing is left to do."""

    result: ChangesetResult


@dataclass(frozen=True, slots=True)
class RollingBack:
    """`changeset_rolling_back`: a failure, before anything is taken back. `on_failure` is `rollback` or `keep`."""

    error: str
    failed: Address | None
    on_failure: str = "rollback"


@dataclass(frozen=True, slots=True)
class Failed:
    """`changeset_failed`: the applied state is what it was."""

    error: str
    orphaned: tuple[Orphan, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalRequired:
    """`approval_required`: a change is left out, or waits, because of a missing approval."""

    address: Address
    digest: str


@dataclass(frozen=True, slots=True)
class ApprovalConsumed:
    """`approval_consumed`: an approval was used up."""

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
    """Something that happened to a changeset. `seq` counts the events of a cluster without gaps, from 1."""

    seq: int
    at: str
    cluster: str
    changeset: str
    happening: Happening


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event that the ledger has not numbered yet; `run` is how the run went whose last event it is."""

    changeset: str
    at: str
    happening: Happening
    run: RunRecord | None = None


@dataclass(frozen=True, slots=True)
class EndedChangeset:
    """What the ledger lists of a changeset that has ended: how, when, its first and newest event, and the commits it is about."""

    key: str
    state: ChangesetState
    at: str
    first: int
    last: int
    commits: tuple[str, ...] = ()
