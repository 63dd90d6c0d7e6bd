"""Port to a strategy target: reads signals, maintains three tables, and changes replicas.

A target has no transactions that read and write, and a connection can be lost at any statement. Therefore every write of
rows can be repeated with the same arguments, and a statement about a replica with an unknown effect reports that.

Every method raises RemoteError `target_unreachable` if the target does not respond, in which case the next call connects
again; `target_denied` if it does not permit the statement; and `target_failed` if it refuses it for another reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any, Protocol, Self

from gitops.cluster.targets.signals import ComputeCluster, Signals, SizeTable, StrategyState
from gitops.core.dataclass import dataclass

CRASHES_COUNT_FOR = timedelta(hours=1)
"""The period for which crashes are read."""

TARGET_LOCK = "cluster-gitops"
"""Key of the lock that every run takes before it changes a target (a database), whatever its cluster folder is."""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A row of `mz_cluster_strategies`. Its type is a string, because other programs can write to the table."""

    cluster_id: str
    strategy_type: str
    config: Mapping[str, Any]
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StateRow:
    """A row of `mz_cluster_strategy_state` that `state.read_payload` could read."""

    cluster_id: str
    state: StrategyState
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row of `mz_cluster_strategy_actions`: a statement, its reason and its result.

    `created_at` is the row's time on the target; None for a row that is not written yet.
    """

    action_id: str
    cluster_id: str
    action_sql: str
    decision_ctx: Mapping[str, Any]
    executed: bool
    error_message: str | None = None
    created_at: datetime | None = None


class ReplicaOutcome(StrEnum):
    """The result of a statement about a replica.

    INDETERMINATE: it may or may not have been executed, so read `clusters` before doing anything else. ABSENT: the
    replica or its compute cluster does not exist. SINGLE_REPLICA: the target permits only one replica of a cluster with
    sources or sinks.
    """

    DONE = "done"
    EXISTS = "exists"
    ABSENT = "absent"
    INVALID_SIZE = "invalid_size"
    MANAGED = "managed"
    SINGLE_REPLICA = "single_replica"
    INDETERMINATE = "indeterminate"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReplicaResult:
    """The outcome, and the target's message, which is empty on success."""

    outcome: ReplicaOutcome
    message: str = ""


class TargetReader(Protocol):
    """A target's read-only half.

    Entering it opens the connection, and leaving it closes everything that it opened.
    """

    def __enter__(self) -> Self:
        """Connect."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections, which releases the lock."""
        ...

    def probe(self) -> None:
        """Check that every relation with signals exists and has the expected columns.

        Raises RemoteError `signal_unavailable`, which lists everything that is missing. After that, replicas must not
        be dropped.
        """
        ...

    def clusters(self) -> Mapping[str, ComputeCluster]:
        """Return the users' compute clusters by name, without the tools' temporary replicas (`RESERVED_REPLICAS`)."""
        ...

    def observe(
        self, clusters: Collection[ComputeCluster], *, now: datetime, lookback: timedelta | None
    ) -> Mapping[str, Signals]:
        """Return the signals of each of these clusters, by id. Uses a fixed number of statements.

        Activity older than `lookback` is ignored; None means as far back as the target remembers. Statements under our own
        application name do not count. Raises RemoteError `signal_unavailable`.
        """
        ...

    def sizes(self) -> SizeTable:
        """Return the replica sizes that the target offers. Raises RemoteError `signal_unavailable`."""
        ...

    def hydrated(self, cluster_id: str) -> frozenset[str]:
        """Return the names of a compute cluster's currently hydrated replicas. Raises RemoteError `signal_unavailable`."""
        ...

    def strategies(self) -> Mapping[tuple[str, str], StrategyRow]:
        """Return the newest row for each cluster id and type, or nothing if the table is missing."""
        ...

    def states(self) -> Mapping[str, Sequence[StrategyState]]:
        """Return each strategy's newest state by cluster id, or nothing if the table is missing."""
        ...

    def state_owners(self) -> frozenset[str]:
        """Return the cluster ids in all rows of the state table, of any version."""
        ...

    def audited(self, cluster_ids: Collection[str], *, since: datetime) -> Sequence[AuditRow]:
        """Return these cluster ids' audit rows since a given time, in time order, or nothing if the table is missing."""
        ...

    def activity(
        self, cluster_ids: Collection[str], *, since: datetime
    ) -> Mapping[str, Sequence[tuple[datetime, datetime]]]:
        """Return the times of other users' statements since a given time, sorted, by cluster id.

        There is one pair for each minute in which statements began: the first start and the last end. A longer
        statement counts where it started. Raises RemoteError `signal_unavailable`.
        """
        ...


class StrategyTarget(TargetReader, Protocol):
    """A target that can also be changed."""

    def try_lock(self, key: str) -> bool | None:
        """Take the lock with this key until the target is closed, without waiting. Returns None if the target has no locks.

        Returns False if another connection holds it. The lock has a separate connection and is lost with it.
        """
        ...

    def create_tables(self) -> None:
        """Create the tables that are missing."""
        ...

    def replace_strategies(self, rows: Collection[StrategyRow], *, at: datetime) -> None:
        """Make each of these rows the newest for its cluster id and type, then delete the older ones.

        A reader always finds a row. The rows get the time `at`, or a later one if an existing row has a time that is not
        earlier.
        """
        ...

    def delete_strategies(self, pairs: Collection[tuple[str, str]]) -> None:
        """Delete the rows with these cluster ids and types, and their states."""
        ...

    def replace_states(self, cluster_id: str, states: Iterable[StrategyState], *, at: datetime) -> None:
        """Make each of these the newest state of its strategy, then delete the older ones.

        Times are set as in `replace_strategies`.
        """
        ...

    def wipe_states(self, cluster_ids: Collection[str]) -> int:
        """Delete these cluster ids' states of any version. Returns the number of deleted rows."""
        ...

    def recreate_states(self) -> None:
        """Drop and recreate the state table, because its columns have a different version."""
        ...

    def audit(self, row: AuditRow) -> None:
        """Add a row unless this action id already has one."""
        ...

    def create_replica(self, cluster: str, replica: str, size: str) -> ReplicaResult:
        """Execute `statements.create_replica`. Errors of the target are returned as outcomes."""
        ...

    def drop_replica(self, cluster: str, replica: str) -> ReplicaResult:
        """Execute `statements.drop_replica`, which also succeeds without the replica. Errors are returned as outcomes."""
        ...


def newest_strategies(rows: Iterable[StrategyRow]) -> Mapping[tuple[str, str], StrategyRow]:
    """Return the latest row for each cluster id and type. A row without a time counts as the oldest."""
    found: dict[tuple[str, str], StrategyRow] = {}
    for row in sorted(rows, key=_age):
        found[row.cluster_id, row.strategy_type] = row
    return found


def newest_states(rows: Iterable[StateRow]) -> Mapping[str, Sequence[StrategyState]]:
    """Return each strategy's latest state by cluster id, in the order in which strategies decide."""
    found: dict[str, dict[Any, StrategyState]] = {}
    for row in sorted(rows, key=_age):
        found.setdefault(row.cluster_id, {})[row.state.strategy] = row.state
    return {
        owner: tuple(sorted(each.values(), key=lambda state: state.strategy.priority)) for owner, each in found.items()
    }


def _age(row: StrategyRow | StateRow) -> tuple[bool, float]:
    return row.updated_at is not None, 0.0 if row.updated_at is None else row.updated_at.timestamp()
