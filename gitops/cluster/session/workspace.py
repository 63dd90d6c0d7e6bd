"""What every verb works with: a source tree, its stores, time, ids, identity, and governance for a branch ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeAlias

from gitops.cluster.config.cache import Hints
from gitops.cluster.config.sound import VouchedGraphs
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.change import Change, Seen
from gitops.cluster.model.changeset import Changeset, ChangesetKind, ChangesetSource
from gitops.cluster.model.ledger import Authors, Origin, SourceRevision
from gitops.cluster.model.plan import Observer
from gitops.cluster.model.scope import ClusterScope, ScopeChange
from gitops.cluster.model.trust import TrustRoot
from gitops.core.cancel import Cancellation
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.port import GraphEngine

if TYPE_CHECKING:
    from gitops.cluster.config.gitops_yaml import ApplyRule
    from gitops.cluster.ledger.served import ServingReports
    from gitops.cluster.model.compute import ComputeTarget
    from gitops.cluster.targets.port import StrategyTarget

# Facts of a result that the apply verb reads.
DISARMED = "disarmed"
CRASHED = "crashed"

TIME_LIMIT = timedelta(minutes=10)
"""How long a run waits for one change unless it is configured."""


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of a cluster once its storage root is known; `graph_uri` derives a graph's root from its id.

    `data_problem` says why graphs must not be created or changed here, such as a checkout that is deleted afterwards; reading
    is still possible. `data_at_hand` says that plans may read graphs: a plan of a bucket must not need its credentials.
    `workers` is how many changes are worth applying at the same time. `reports` are those of the servers of this cluster, None
    where there is no place for them.
    """

    ledger: LedgerStore
    engine: GraphEngine
    graph_uri: Callable[[str], str]
    data_problem: GitopsError | None = None
    data_at_hand: bool = True
    workers: int = 1
    reports: ServingReports | None = None


class Governance(Protocol):
    """What a branch ledger adds to a run: target, source commit, authorship, and the keys and rules of that commit."""

    @property
    def target(self) -> ClusterTarget:
        """What approvals are bound to."""
        ...

    @property
    def source(self) -> SourceRevision:
        """The commit that is applied, with its cluster folder."""
        ...

    @property
    def trust_files(self) -> Mapping[str, bytes]:
        """The files of keys and rules at the source commit, by path."""
        ...

    @property
    def trust(self) -> TrustRoot:
        """What these files say."""
        ...

    @property
    def scope(self) -> ClusterScope | None:
        """Where the newest entry records the cluster, None before the first one."""
        ...

    @property
    def successor(self) -> str | None:
        """The cluster in the place of one that was taken out, if there is one."""
        ...

    @property
    def carried(self) -> tuple[Origin, ...]:
        """The origins of changes that wait since an earlier entry."""
        ...

    @property
    def forge(self) -> str:
        """The kind of the forge in use, empty if it is not known."""
        ...

    def authors_of(self, address: Address) -> Authors:
        """The authors of what is not applied of an address."""
        ...

    def authors_for(self, change: Change) -> Authors:
        """The authors of a change; of one that no commit made there are none, and its approvers decide alone."""
        ...

    def knows_origins(self) -> bool:
        """Whether the origins of commits can be known here."""
        ...

    def touched(self) -> bool:
        """Whether a commit since the newest entry changes the cluster, even if another takes it back."""
        ...

    def changed_files(self, tree: str) -> tuple[str, ...]:
        """The files of the cluster folder that differ from another tree of it."""
        ...

    def admit(self, view: LedgerView) -> None:
        """Raise GitopsError if the source commit must not be applied on top of a view."""
        ...

    def recorded(self, view: LedgerView) -> ClusterScope | None:
        """Where the newest entry of a view records the cluster; entries of the first release do not say all of it."""
        ...

    def declares(self, storage: str | None) -> ClusterScope | None:
        """Where the cluster is declared, whose folder declares this storage; None where it was taken out."""
        ...

    def stores_at(self, scope: ClusterScope) -> Stores:
        """The stores of a place."""
        ...

    def seen_elsewhere(self, change: Change, recorded: Seen | None) -> Seen | None:
        """What is believed of the graph of a change that is not at hand: by the ledger, or in a clone by the bot's plans."""
        ...


@dataclass(frozen=True, slots=True)
class ChangesetFacts:
    """What the caller of an apply knows of its changeset: where it comes from, and the merges that it brings in.

    `attempt` counts the attempts at the same merge, from 1; `retry_of` is the key of the one before.
    """

    source: ChangesetSource
    kind: ChangesetKind = ChangesetKind.MERGE
    attempt: int = 1
    retry_of: str | None = None
    covers: tuple[str, ...] = ()


def next_attempt(failed: Changeset, actor: str | None) -> ChangesetFacts:
    """What is known of the attempt that follows a changeset that failed; `actor` asks for it."""
    source = replace(failed.source, actor=actor)
    return ChangesetFacts(source, ChangesetKind.RETRY, failed.attempt + 1, failed.key, failed.covers)


@dataclass(frozen=True, slots=True)
class Drain:
    """How it is known that nothing reads what was removed, and how long that took."""

    waited_ms: int
    evidence: str


OpenTarget: TypeAlias = "Callable[[ComputeTarget], StrategyTarget]"


@dataclass(frozen=True, slots=True)
class Workspace:
    """A cluster folder with its ledger, engine and clock.

    `config_dir` is echoed as given. `open_stores` takes the declared storage root (None for the default) and raises
    GitopsError when it cannot be used. `accepted_schema` finds the applied schema text of a graph by its digest, where git
    has it, so that a migration can be planned without reaching the graph. `proposed_scope` gives what files that are not
    committed change of where the cluster is, from the storage that they declare. `vouched` are the graphs of the folder that
    the ledger vouches for: no verb reads them. `on_event` watches applies. `workers` is how many changes are applied
    at the same time, if a person chose it; else the stores say it. `time_limit` is how long an apply waits for one change that
    may be interrupted, and `cancel` asks it to stop. `undoes` says that the folder takes changes back, so that a plan explains
    what it restores. `atomic` lets an apply land whole or not at all; else it lands what it can. `changeset` says where the
    changes of an apply come from. What an atomic apply deletes is kept for `drain_grace` after the commit, or until every server
    that reports has let go of it. `keeps_staged` leaves what an atomic apply has staged as it is when that fails, for people to
    look at. `open_target` makes a target of strategies, which connects when it is entered; it raises UsageError where this
    machine does not know its URL, and is None where no URLs are known.
    """

    tree: SourceTree
    config_dir: str
    open_stores: Callable[[str | None], Stores]
    clock: Clock
    ids: IdSource
    actor: str | None = None
    workers: int | None = None
    fail_fast: bool = False
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

    def stamp(self) -> str:
        """The time now as RFC 3339 UTC text."""
        return timestamp(self.clock.now())


def by_rule(workspace: Workspace, rule: ApplyRule) -> Workspace:
    """The workspace whose applies run as `gitops.yaml` says."""
    return replace(
        workspace,
        workers=rule.parallel,
        fail_fast=rule.fail_fast,
        time_limit=rule.node_timeout,
        drain_grace=rule.drain_grace,
        keeps_staged=rule.on_failure == "keep",
    )
