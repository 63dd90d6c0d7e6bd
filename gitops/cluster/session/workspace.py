"""Every command's inputs: a source tree, its stores, clock, ids, identity, and governance for a branch ledger."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gitops.cluster.config.cache import Hints
from gitops.cluster.config.sound import VouchedGraphs
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ClusterTarget, UnknownAuthors
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.changeset import Changeset, ChangesetKind, ChangesetSource
from gitops.cluster.model.ledger import Authors, Origin, SourceRevision
from gitops.cluster.model.plan import Observer
from gitops.cluster.model.scope import ClusterScope, ScopeChange
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.model.use import Callers
from gitops.core.cancel import Cancellation
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.port import GraphEngine, StepCount

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ApplyRule
    from gitops.cluster.config.host_rule import HostRule
    from gitops.cluster.hosts.port import OpenHosts
    from gitops.cluster.ledger.served import ServingReports
    from gitops.cluster.ledger.use import UseRecords
    from gitops.cluster.model.compute import ComputeTarget
    from gitops.cluster.targets.port import StrategyTarget

# Facts in a result that the apply command reads.
DISARMED = "disarmed"
CRASHED = "crashed"

TIME_LIMIT = timedelta(minutes=10)
"""The default time limit for waiting for one change."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a cluster whose storage root is known. `graph_uri` returns a graph's root for its id.

    `data_problem` explains why graphs must not be created or changed here, for example because the checkout is deleted
    afterwards; reading is still possible. `data_at_hand` means that plans can read graphs; it is False for a bucket,
    because planning must not require its credentials. `use_at_hand` means that plans can read `use`, which a bucket permits
    if there are credentials. `workers` is the useful number of concurrent changes. `reports`
    are the reports of this cluster's servers, and `use` are their records of calls; None if there is no place for them.
    """

    ledger: LedgerStore
    engine: GraphEngine
    graph_uri: Callable[[str], str]
    data_problem: GitopsError | None = None
    data_at_hand: bool = True
    workers: int = 1
    reports: ServingReports | None = None
    use: UseRecords | None = None
    use_at_hand: bool = True


class Governance(Protocol):
    """A run's additional inputs for a branch ledger: target, source commit, authors, and that commit's keys and rules."""

    @property
    def target(self) -> ClusterTarget:
        """The target that approvals are bound to."""
        ...

    @property
    def source(self) -> SourceRevision:
        """The commit to apply, and its cluster folder."""
        ...

    @property
    def trust_files(self) -> Mapping[str, bytes]:
        """The key and rule files at the source commit, by path."""
        ...

    @property
    def trust(self) -> TrustRoot:
        """The keys and rules in these files."""
        ...

    @property
    def scope(self) -> ClusterScope | None:
        """The cluster's location in the newest entry, or None before the first entry."""
        ...

    @property
    def successor(self) -> str | None:
        """The cluster that replaces a removed one, if any."""
        ...

    @property
    def carried(self) -> tuple[Origin, ...]:
        """The origins of changes that have been waiting since an earlier entry."""
        ...

    @property
    def forge(self) -> str:
        """The kind of forge in use, or an empty string if it is unknown."""
        ...

    def authors_of(self, address: Address) -> Authors:
        """Return the authors of the unapplied changes to an address."""
        ...

    def authors_for(self, change: Change) -> Authors:
        """Return a change's authors. A change without a commit has no author, so no approver is excluded."""
        ...

    def knows_origins(self) -> bool:
        """Whether the origins of commits can be determined here."""
        ...

    def touched(self) -> bool:
        """Whether a commit since the newest entry changes the cluster, even if a later one reverts it."""
        ...

    def changed_files(self, tree: str) -> tuple[str, ...]:
        """Return the files in the cluster folder that differ from another version of its tree."""
        ...

    def changed_by(self, since: str, files: Collection[str]) -> str | None:
        """Return the first commit of the target branch after `since` that changed one of these files of the folder."""
        ...

    def admit(self, view: LedgerView) -> None:
        """Raise GitopsError if the source commit must not be applied on top of this view."""
        ...

    def recorded(self, view: LedgerView) -> ClusterScope | None:
        """Return the cluster's location in the newest entry of a view. Entries of the first release record only part of it."""
        ...

    def declares(self, storage: str | None) -> ClusterScope | None:
        """Return the declared location of a cluster whose folder declares this storage, or None if the cluster was removed."""
        ...

    def stores_at(self, scope: ClusterScope) -> Stores:
        """Return a location's stores."""
        ...

    def unknown_elsewhere(self, address: Address) -> UnknownAuthors | None:
        """Return why no one can approve a change yet, as the bot found for the same commit; None if anyone may."""
        ...

    def seen_elsewhere(self, change: Change, recorded: Seen | None) -> Seen | None:
        """Return the last known data of an unreadable graph, from the ledger or, in a clone, from the bot's plans."""
        ...

    def counted_elsewhere(self, change: Change) -> tuple[StepCount | None, ...] | None:
        """Return the rows of each step of a migration as one of the bot's plans has them, or None if none is known."""
        ...

    def callers_elsewhere(self, change: Change) -> Callers | None:
        """Return the clients that a change breaks as one of the bot's plans has them, or None if none is known."""
        ...


@dataclass(frozen=True, slots=True)
class ChangesetFacts:
    """The caller's facts about an apply's changeset: its origin and the merges that it applies.

    `attempt` counts the attempts at the same merge, from 1; `retry_of` is the key of the previous one.
    """

    source: ChangesetSource
    kind: ChangesetKind = ChangesetKind.MERGE
    attempt: int = 1
    retry_of: str | None = None
    covers: tuple[str, ...] = ()


def next_attempt(failed: Changeset, actor: str | None) -> ChangesetFacts:
    """Return the facts for the next attempt after a failed changeset, requested by `actor`."""
    source = replace(failed.source, actor=actor)
    return ChangesetFacts(source, ChangesetKind.RETRY, failed.attempt + 1, failed.key, failed.covers)


@dataclass(frozen=True, slots=True)
class Drain:
    """The evidence that the removed data is no longer read, and how long the wait took."""

    waited_ms: int
    evidence: str


@dataclass(slots=True)
class KeptLock:
    """A ledger's lock that a caller keeps between commands. While it is to be kept, no command releases it.

    `lock_id` is None while the lock is not held between commands.
    """

    keep: bool = False
    lock_id: str | None = None


OpenTarget: TypeAlias = "Callable[[ComputeTarget], StrategyTarget]"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A cluster folder with its ledger, engine and clock.

    `config_dir` is returned as given. `open_stores` takes the declared storage root (None for the default) and raises
    GitopsError if it cannot be used. `accepted_schema` finds the applied schema text of a graph by its digest, if git
    has it, so that a migration can be planned without reading the graph. `proposed_scope` returns how uncommitted files
    change the location of the cluster, given their declared storage. `vouched` are the graphs of the folder that the
    ledger lists as checked: no verb reads them. `on_event` observes applies. `workers` is the number of concurrent
    changes, if a person chose it; otherwise the stores decide. After a failure, no more changes start with `fail_fast`,
    the other graphs continue with `keep_going`, and otherwise the other graphs wait. `time_limit` is how long an apply
    waits for one interruptible change, and `cancel` requests a stop. `undoes` means that the folder reverts changes, so
    that a plan explains what it restores. `atomic` makes an apply atomic instead of best-effort. `changeset` is the
    origin of the changes of an apply. Data that an atomic apply deletes is kept for `drain_grace` after the commit, or
    until every reporting server has released it. `keeps_staged` leaves the staged changes of a failed atomic apply in
    place, for people to inspect. `await_staged` returns once this process has ended the work that it does ahead for an
    open changeset, given its key. `lock` is a lock that the caller may keep between commands. `open_target` creates a
    strategy target, which connects when it is entered; it raises UsageError if this machine does not know its URL, and is
    None if no URLs are known. `open_hosts` returns what reads and changes machines during an apply;
    without it, their changes are planned and not applied. `rollout` is how many hosts with readiness checks change at the
    same time, and with `hosts_first` they change before the graphs.
    """

    tree: SourceTree
    config_dir: str
    open_stores: Callable[[str | None], Stores]
    clock: Clock
    ids: IdSource
    actor: str | None = None
    workers: int | None = None
    fail_fast: bool = False
    keep_going: bool = False
    governance: Governance | None = None
    accepted_schema: Callable[[str, str], bytes | None] = lambda _graph, _digest: None
    proposed_scope: Callable[[str | None], ScopeChange | None] = lambda _storage: None
    faults: Faults = field(default_factory=NoFaults)
    pid: int = 0
    hints: Hints | None = None
    vouched: VouchedGraphs | None = None
    on_event: Observer | None = None
    time_limit: timedelta | None = TIME_LIMIT
    cancel: Cancellation = field(default_factory=Cancellation)
    undoes: bool = False
    atomic: bool = False
    changeset: ChangesetFacts | None = None
    drain_grace: timedelta = timedelta(0)
    keeps_staged: bool = False
    open_target: OpenTarget | None = None
    await_staged: Callable[[str], None] = lambda _key: None
    lock: KeptLock | None = None
    open_hosts: OpenHosts | None = None
    rollout: int = 1
    hosts_first: bool = False

    @property
    def selected(self) -> str:
        """The options that select this cluster on a command line, with a leading blank."""
        if self.governance is not None:
            return f" --cluster {self.governance.target.cluster}"
        return "" if self.config_dir == "." else f" --config {shlex.quote(self.config_dir)}"

    def stamp(self) -> str:
        """Return the current time as an RFC 3339 string in UTC."""
        return timestamp(self.clock.now())


def by_rule(workspace: Workspace, rule: ApplyRule, hosts: HostRule) -> Workspace:
    """Return the workspace with the apply settings of `gitops.yaml`."""
    return replace(
        workspace,
        workers=rule.parallel,
        fail_fast=rule.fail_fast,
        time_limit=rule.node_timeout,
        drain_grace=rule.drain_grace,
        keeps_staged=rule.on_failure == "keep",
        rollout=hosts.rollout.batch,
        hosts_first=hosts.order == "before",
    )
