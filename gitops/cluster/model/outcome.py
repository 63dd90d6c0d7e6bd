"""Command outcomes, for the text, JSON and comment renderers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gitops.cluster.model.address import Address, Kind, cluster_address
from gitops.cluster.model.approval import Approval, ClusterTarget
from gitops.cluster.model.change import Change, Reason
from gitops.cluster.model.changeset import Changeset, ChangesetState, Orphan
from gitops.cluster.model.drill import RestoreDrill
from gitops.cluster.model.ledger import Debt, LedgerEntry, LedgerState, LockObservation, Status, StatusRecord
from gitops.cluster.model.others import OtherRequests
from gitops.cluster.model.plan import ExecNode, NodeResult, Plan, TextChange
from gitops.cluster.model.resource import Dependency, Resource
from gitops.cluster.model.served import Replica
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from gitops.cluster.model.compute import StrategyChanges, WhatIf
    from gitops.cluster.model.identity import Identity

# Codes for changes that wait for their own approval or for that of a dependency.
_WAITING = frozenset({Code.APPLY_DEPENDENCY_BLOCKED, Code.TRUST_CHANGE_PENDING, Code.CLUSTER_CHANGE_PENDING})


@dataclass(frozen=True, slots=True)
class StateObservations:
    """What a command observed about the ledger and the lock. Every envelope except that of `validate` contains it.

    `held` is a lock that existed before this command. `acquired_lock_id` is set if this command held the lock itself.
    `lock_age_seconds` is whole seconds since the holder took it, at least 0.
    """

    state_path: str = ""
    lock_path: str = ""
    state_found: bool = False
    applied_config_digest: str | None = None
    state_revision: int = 0
    state_cas: str | None = None
    resource_count: int = 0
    held: LockObservation = field(default_factory=lambda: LockObservation(held=False))
    lock_age_seconds: int | None = None
    acquired_lock_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbOutcome:
    """What all outcomes share: the folder as given, and the diagnostics in emission order."""

    config_dir: str
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """True if no diagnostic is an error."""
        return all(d.severity is not Severity.ERROR for d in self.diagnostics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOutcome(VerbOutcome):
    """Outcome of `validate`: everything that could be loaded, even if there were errors."""

    config_file: str
    resources: tuple[Resource, ...] = ()
    dependencies: Collection[Dependency] = ()


class Course(StrEnum):
    """How the next apply treats a changeset that an interrupted run left open."""

    CLOSED = "closed"
    RESUMED = "resumed"
    TAKEN_BACK = "taken_back"
    FINISHED = "finished"
    WAITS = "waits"


@dataclass(frozen=True, slots=True)
class OpenChangeset:
    """An open changeset, and what the next apply does with it.

    `orphaned` remains after a rollback; `unfinished` cannot be finished yet after a commit.
    """

    key: str
    course: Course
    orphaned: tuple[Orphan, ...] = ()
    unfinished: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome(VerbOutcome):
    """Outcome of `plan`. `plan` is None if the command failed before it had one. `debts` prevent an apply.

    `obstacles` prevent an apply of exactly this plan from succeeding completely now, as far as that can be known without
    side effects. `selected` are the options of a command that approves a change of this plan, None if it cannot be approved
    unchanged. `texts` are the changed texts, if requested. `interrupted` are the changesets that the next apply settles
    first. `atomic` means that the apply is atomic. `others` is what the bot said about other open requests. `strategies` are
    the changes to compute cluster strategies, and `what_if` their effects, if a target was queried.
    """

    observations: StateObservations
    config_digest: str | None = None
    resource_digests: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    dependencies: Collection[Dependency] = ()
    plan: Plan | None = None
    debts: tuple[Debt, ...] = ()
    obstacles: tuple[Diagnostic, ...] = ()
    selected: tuple[str, ...] | None = None
    texts: tuple[TextChange, ...] = ()
    interrupted: tuple[OpenChangeset, ...] = ()
    atomic: bool = False
    strategies: StrategyChanges | None = None
    what_if: tuple[WhatIf, ...] = ()
    others: OtherRequests | None = None

    @property
    def lands(self) -> bool:
        """True if an apply of exactly this plan would succeed now. Status, comment and exit code report this."""
        return self.ok and self.plan is not None and not self.obstacles

    @property
    def blockers(self) -> tuple[Diagnostic, ...]:
        """The problems that block the plan even with every approval. Omits changes that only wait for a gated change."""
        missing = self.plan is not None and any(not need.satisfied for need in self.plan.approvals_required)
        return tuple(each for each in self.obstacles if not (missing and each.code in _WAITING))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOutcome(VerbOutcome):
    """Outcome of `apply`: the changes with their final dispositions, and the ledger that the run left.

    `debts` are emergencies that still wait for a second person. `republished` are the updated queries whose file
    changed but not their text, and `formatting` the updates of layout or comments only. `plan` is the applied plan, and
    `changesets` record it, one for each of its parts.
    `dry_run` are the nodes of a dry run in the order in which they would start, or None for a real run. In a dry run,
    the other fields are the same as in a real run, except for the unchanged ledger. `serving` are the live servers when
    the command stopped waiting for them, or None if it did not wait.
    """

    observations: StateObservations
    actor: str | None = None
    config_digest: str | None = None
    changes: tuple[Change, ...] = ()
    converged: bool = False
    state_written: bool = False
    state: LedgerState | None = None
    results: tuple[NodeResult, ...] = ()
    debts: tuple[Debt, ...] = ()
    plan_digest: str | None = None
    entry_id: str | None = None
    approvals_used: Mapping[Address, tuple[Approval, ...]] = field(default_factory=lambda: MappingProxyType({}))
    counted: bool = True
    republished: frozenset[Address] = frozenset()
    formatting: frozenset[Address] = frozenset()
    plan: Plan | None = None
    changesets: tuple[Changeset, ...] = ()
    dry_run: tuple[ExecNode, ...] | None = None
    serving: tuple[Replica, ...] | None = None

    @property
    def applied_count(self) -> int:
        """Number of applied changes, which is 0 if the run ended early."""
        return sum(c.disposition == "applied" for c in self.changes) if self.counted else 0

    @property
    def deferred_count(self) -> int:
        """Number of deferred or blocked changes, which is 0 if the run ended early."""
        return sum(c.disposition in ("deferred", "blocked") for c in self.changes) if self.counted else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSubject:
    """The subject of an approval: the gated change of `address` in `plan`.

    For a branch ledger, it also contains the target, the commit `head` that would be applied or merged, and `tree`, the
    tree of its cluster folder.
    """

    address: Address
    plan: Plan
    target: ClusterTarget | None = None
    head: str = ""
    tree: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveOutcome(VerbOutcome):
    """Outcome of `approve`: the new approval. In a branch ledger, `commit` is its commit id.

    `about` is the information that the approver must see; None if there is no such change.
    """

    approval: Approval | None = None
    commit: str | None = None
    about: ApprovalSubject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingApprovals(VerbOutcome):
    """A cluster's gated changes (`addresses`) that still need an approval which one person may give."""

    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSubject:
    """The subject of a decision: an approval of `resource` by `principal`, with its commit and stated reason."""

    resource: Address
    principal: str
    commit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome(VerbOutcome):
    """Outcome of `revoke` and `countersign`: the decision about an approval, its signer and its commit.

    `resource` is the approved resource. `commit` is None if the command failed. `about` is the information that its
    signer must see. For a revocation, `recorded` is True if a ledger entry contains it, `deleted` are the approval
    branches that were deleted with it, and `kept` is the reason why they were not.
    """

    operation: str
    approval_id: str
    resource: str = ""
    decided_by: str = ""
    commit: str | None = None
    about: DecisionSubject | None = None
    recorded: bool | None = None
    deleted: tuple[str, ...] = ()
    kept: str = ""


class ChangesetStanding(NamedTuple):
    """A changeset's progress, with the time of its newest event."""

    key: str
    state: ChangesetState
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOutcome(VerbOutcome):
    """Outcome of `status`: the recorded ledger, and whether it matches the cluster folder.

    `in_sync` is None if that is not known: without a ledger, or if the folder has errors. `entry` is the newest entry
    of a branch ledger, `newest` the newest changeset of a ledger in a folder, `governed` the addresses of keys and
    rules and of the cluster's location that are merged but not in force, and `approvers` are the people who can approve
    each waiting change, if its authors are recorded. `serving` are the live servers that report, or None if their
    reports were not read. `in_progress` are the changesets of a branch ledger that have not ended, oldest first.
    """

    observations: StateObservations = StateObservations()
    state: LedgerState | None = None
    in_sync: bool | None = None
    entry: LedgerEntry | None = None
    newest: ChangesetStanding | None = None
    governed: tuple[Address, ...] = ()
    approvers: Mapping[Address, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    serving: tuple[Replica, ...] | None = None
    in_progress: tuple[Changeset, ...] = ()

    @property
    def last_drill(self) -> Mapping[str, Any] | None:
        """See `LedgerState.last_drill`. A ledger in a folder records no drills."""
        if self.state is None or self.entry is None:
            return None
        target = self.entry.target if self.entry.scope is None else self.entry.scope.target
        return self.state.last_drill(cluster_address(target.cluster))

    @property
    def waiting(self) -> Mapping[Address, StatusRecord]:
        """The waiting resources: vanished graphs and blocked changes of an apply, then rules and the cluster's location.

        A vanished graph waits from the refresh that recorded it, because any decision about it needs an approval.
        """
        rules = "the keys and rules of the newest entry stay in force until this change is approved and applied"
        place = "the cluster stays where the newest entry records it until this change is approved and applied"
        gone = StatusRecord(Status.BLOCKED, (Reason.APPROVAL_REQUIRED,), Reason.APPROVAL_REQUIRED.words)
        vanished = frozenset[Address]() if self.state is None else self.state.vanished
        return dict(sorted((dict.fromkeys(vanished, gone) | self._with(Status.BLOCKED)).items())) | {
            each: StatusRecord(Status.BLOCKED, message=rules if each.kind is Kind.TRUST else place)
            for each in self.governed
        }

    @property
    def drifted(self) -> tuple[Address, ...]:
        """The resources that the last refresh found changed, damaged or missing, in address order."""
        drifted = frozenset[Address]() if self.state is None else self.state.drifted
        failed = self._with(Status.ERROR).items()
        damaged = {address for address, record in failed if Code.GRAPH_OBSERVATION_ERROR in record.conditions}
        return tuple(sorted(drifted.union(damaged)))

    def _with(self, status: Status) -> dict[Address, StatusRecord]:
        known = {} if self.state is None else self.state.statuses
        return {address: known[address] for address in sorted(known) if known[address].status is status}


@dataclass(frozen=True, slots=True)
class OfferedGraph:
    """A graph in the applied revision, as a server offers it: its queries, and its policy by name."""

    graph_id: str
    uri: str
    schema_digest: str
    queries: tuple[str, ...] = ()
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyOutcome(VerbOutcome):
    """Outcome of `ready`: the part of the applied revision that a server would serve. Empty if there is any problem.

    A server that checks itself also returns the identity providers whose tokens it accepts, whether their keys can be
    read, and the holder of a given token.
    """

    observations: StateObservations
    graphs: tuple[OfferedGraph, ...] = ()
    cluster_policy: str | None = None
    issuers: tuple[tuple[str, bool], ...] = ()
    identity: Identity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome(VerbOutcome):
    """Outcome of `refresh` and `import`: the resulting ledger, or None.

    `unwritten` are the observations of an import that was incomplete and therefore wrote nothing.
    """

    operation: str
    observations: StateObservations
    state: LedgerState | None = None
    unwritten: LedgerState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOutcome(VerbOutcome):
    """Outcome of `drill`: its result, or None if it could not begin, and whether an entry records it.

    `kept` is the scratch root, if it was kept.
    """

    drill: RestoreDrill | None = None
    recorded: bool = False
    kept: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockOutcome(VerbOutcome):
    """Outcome of `force-unlock`: whether the lock was removed."""

    observations: StateObservations
    lock_removed: bool = False
