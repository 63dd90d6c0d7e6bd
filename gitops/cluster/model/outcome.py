"""What each verb returns: values that the text, JSON and comment renderers read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ClusterTarget
from gitops.cluster.model.change import Change
from gitops.cluster.model.changeset import Changeset, ChangesetState, Orphan
from gitops.cluster.model.ledger import Debt, LedgerEntry, LedgerState, LockObservation, Status, StatusRecord
from gitops.cluster.model.plan import ExecNode, NodeResult, Plan, TextChange
from gitops.cluster.model.resource import Dependency, Resource
from gitops.cluster.model.served import Replica
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Severity

if TYPE_CHECKING:
    from gitops.cluster.model.compute import StrategyChanges, WhatIf

# What is reported of changes that wait, be it for an approval of their own or for one of what they need.
_WAITING = frozenset({Code.APPLY_DEPENDENCY_BLOCKED, Code.TRUST_CHANGE_PENDING, Code.CLUSTER_CHANGE_PENDING})


@dataclass(frozen=True, slots=True)
class StateObservations:
    """What a command saw of ledger and lock; every envelope but that of `validate` carries it.

    `held` is a lock that was there before this command. `acquired_lock_id` is set if this command held the lock itself.
    `lock_age_seconds` is whole seconds since the holder took it, floored at 0.
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
    """Common part: the folder as given, and the diagnostics in emission order."""

    config_dir: str
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no diagnostic is an error."""
        return all(d.severity is not Severity.ERROR for d in self.diagnostics)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOutcome(VerbOutcome):
    """`validate`: what loaded, also when there were errors."""

    config_file: str
    resources: tuple[Resource, ...] = ()
    dependencies: Collection[Dependency] = ()


class Course(StrEnum):
    """What the next apply does with a changeset that an interrupted run left open."""

    CLOSED = "closed"
    RESUMED = "resumed"
    TAKEN_BACK = "taken_back"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class OpenChangeset:
    """A changeset that is open, and what the next apply does with it.

    `orphaned` is what stays behind where it is taken back, `unfinished` what cannot be finished yet where it is committed.
    """

    key: str
    course: Course
    orphaned: tuple[Orphan, ...] = ()
    unfinished: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome(VerbOutcome):
    """`plan`: the plan, None when the command failed before there was one. `debts` stop what it would apply.

    `obstacles` keep an apply of exactly this plan from landing all of it now, as far as that can be known without side effects.
    `selected` are the options of a command that approves a change of this plan, None where it cannot be approved as it is.
    `texts` are those that it changes, if they were asked for. `interrupted` are the changesets that the next apply settles first.
    `atomic` says that the apply lands the plan whole or not at all. `strategies` is what it changes of those of compute clusters,
    and `what_if` what that would do, where a target was asked.
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

    @property
    def lands(self) -> bool:
        """Whether an apply of exactly this plan would land all of it now: what a status, a comment and an exit code say."""
        return self.ok and self.plan is not None and not self.obstacles

    @property
    def blockers(self) -> tuple[Diagnostic, ...]:
        """The obstacles that stay once every missing approval is given; what waits together with a gated change is left out."""
        missing = self.plan is not None and any(not need.satisfied for need in self.plan.approvals_required)
        return tuple(each for each in self.obstacles if not (missing and each.code in _WAITING))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOutcome(VerbOutcome):
    """`apply`: the changes with their final dispositions, and the ledger as it is on disk afterwards.

    `debts` are open then: emergencies that wait for a second person. `republished` are the queries among the changes whose own
    text stays while their file changes. `plan` is what was carried out, and `changesets` record it, one for each of its parts.
    `dry_run` are the nodes of a dry run in the order of their starts, None for a run that has effects: the rest is then what
    that would report, but for the ledger, which is as before. `serving` are the live servers when the wait for them ended, None
    where none was asked for.
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
    plan: Plan | None = None
    changesets: tuple[Changeset, ...] = ()
    dry_run: tuple[ExecNode, ...] | None = None
    serving: tuple[Replica, ...] | None = None

    @property
    def applied_count(self) -> int:
        """How many changes were applied; 0 for a run that ended early."""
        return sum(c.disposition == "applied" for c in self.changes) if self.counted else 0

    @property
    def deferred_count(self) -> int:
        """How many changes were deferred or blocked; 0 for a run that ended early."""
        return sum(c.disposition in ("deferred", "blocked") for c in self.changes) if self.counted else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalSubject:
    """What an approval is about: the gated change of `address` in `plan`.

    For a branch ledger also the target, the commit `head` that would be applied or merged, and `tree`, its cluster folder.
    """

    address: Address
    plan: Plan
    target: ClusterTarget | None = None
    head: str = ""
    tree: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproveOutcome(VerbOutcome):
    """`approve`: the approval that was written. `commit` is its commit id in a branch ledger.

    `about` is what the approver has to see, None where no such change was found.
    """

    approval: Approval | None = None
    commit: str | None = None
    about: ApprovalSubject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingApprovals(VerbOutcome):
    """The gated changes of a cluster whose approval is missing and that one person may approve: their `addresses`."""

    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSubject:
    """What a decision is about: an approval of `resource` by `principal`, with its commit and the reason that it states."""

    resource: Address
    principal: str
    commit: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOutcome(VerbOutcome):
    """`revoke` and `countersign`: the decision about an approval, who made it, and its commit.

    `resource` is what the approval is for. `commit` is None when the command failed. `about` is what its signer has to see. Of a
    revocation `recorded` says whether an entry of the ledger has it, `deleted` are the branches of the approval that went with
    it, and `kept` is why they did not.
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
    """How far a changeset is, and the time of its newest event."""

    key: str
    state: ChangesetState
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusOutcome(VerbOutcome):
    """`status`: the ledger as recorded, and whether it records what the cluster folder declares now.

    `in_sync` is None where that is not known: without a ledger, or if the folder has errors. `entry` is the newest one of a
    branch ledger, `newest` the newest changeset of a ledger in a folder, `rules` the address of keys and rules
    that are merged and not in force, and `approvers` are those who may approve what waits.
    `serving` are the live servers that report, None where their reports were not read.
    """

    observations: StateObservations = StateObservations()
    state: LedgerState | None = None
    in_sync: bool | None = None
    entry: LedgerEntry | None = None
    newest: ChangesetStanding | None = None
    rules: Address | None = None
    approvers: tuple[str, ...] = ()
    serving: tuple[Replica, ...] | None = None

    @property
    def waiting(self) -> Mapping[Address, StatusRecord]:
        """What an apply left blocked, in address order, then keys and rules that are not in force."""
        why = "the keys and rules of the newest entry stay in force until this change of them is approved and applied"
        rules = {} if self.rules is None else {self.rules: StatusRecord(Status.BLOCKED, message=why)}
        return self._with(Status.BLOCKED) | rules

    @property
    def drifted(self) -> tuple[Address, ...]:
        """What the last refresh found changed, damaged or gone, in address order."""
        gone = frozenset[Address]() if self.state is None else self.state.vanished
        failed = self._with(Status.ERROR).items()
        damaged = {address for address, record in failed if Code.GRAPH_OBSERVATION_ERROR in record.conditions}
        return tuple(sorted(gone.union(self._with(Status.DRIFTED), damaged)))

    def _with(self, status: Status) -> dict[Address, StatusRecord]:
        known = {} if self.state is None else self.state.statuses
        return {address: known[address] for address in sorted(known) if known[address].status is status}


@dataclass(frozen=True, slots=True)
class OfferedGraph:
    """A graph of the applied revision as a server offers it: its queries and its policy by name."""

    graph_id: str
    uri: str
    schema_digest: str
    queries: tuple[str, ...] = ()
    policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyOutcome(VerbOutcome):
    """`ready`: what a server would serve of the applied revision; nothing at all if there is any problem."""

    observations: StateObservations
    graphs: tuple[OfferedGraph, ...] = ()
    cluster_policy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshOutcome(VerbOutcome):
    """`refresh` and `import`: the ledger afterwards, None if there is none.

    `unwritten` is what an import observed that could not observe everything, and therefore wrote nothing.
    """

    operation: str
    observations: StateObservations
    state: LedgerState | None = None
    unwritten: LedgerState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlockOutcome(VerbOutcome):
    """`force-unlock`: whether the lock is gone."""

    observations: StateObservations
    lock_removed: bool = False
