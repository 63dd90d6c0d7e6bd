"""A target of strategies at hand: what is read from it, the three tables that are kept on it, and what is done to its replicas.

A target has no transactions that read and write, and a connection can be lost at any statement. Therefore every write of rows
can be repeated with the same arguments, and a statement about a replica whose effect is not known says so.

Every method raises RemoteError `target_unreachable` where the target does not answer, in which case the next call connects
again; `target_denied` where it does not permit the statement; and `target_failed` where it refuses it for another reason.
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
"""How far back crashes are read."""

TARGET_LOCK = "cluster-gitops"
"""The key of the lock that every run takes which changes a target, whatever cluster folder it is of. A target is a database."""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """A row of `mz_cluster_strategies`. The type is a text: other programs may write there too."""

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
    """A row of `mz_cluster_strategy_actions`: a statement, why it was given, and what came of it.

    `created_at` is the target's own time of the row; one that is still to be written has none.
    """

    action_id: str
    cluster_id: str
    action_sql: str
    decision_ctx: Mapping[str, Any]
    executed: bool
    error_message: str | None = None
    created_at: datetime | None = None


class ReplicaOutcome(StrEnum):
    """What came of a statement about a replica.

    INDETERMINATE: it may have been carried out or not; read `clusters` before anything else is done. ABSENT: the replica or its
    compute cluster is not there. SINGLE_REPLICA: the target permits only one replica of a cluster with sources or sinks.
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
    """The outcome, and what the target said; no text where it was done."""

    outcome: ReplicaOutcome
    message: str = ""


class TargetReader(Protocol):
    """What changes nothing on a target. Entering it opens the connection, leaving it closes what it opened."""

    def __enter__(self) -> Self:
        """Connect."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections, and so give back the lock."""
        ...

    def probe(self) -> None:
        """Check that every relation which signals are read from is there, with its columns.

        Raises RemoteError `signal_unavailable`, which names all that is missing. After that nothing may be dropped.
        """
        ...

    def clusters(self) -> Mapping[str, ComputeCluster]:
        """The compute clusters of users, by name. Replicas that tools make for a moment (`RESERVED_REPLICAS`) are left out."""
        ...

    def observe(
        self, clusters: Collection[ComputeCluster], *, now: datetime, lookback: timedelta | None
    ) -> Mapping[str, Signals]:
        """The signals of each of these clusters, by its id, in a number of statements that does not depend on how many they are.

        Activity older than `lookback` is not looked for; None looks for it as far as the target remembers. Statements under our
        own application name do not count. Raises RemoteError `signal_unavailable`.
        """
        ...

    def sizes(self) -> SizeTable:
        """The sizes that replicas can have here. Raises RemoteError `signal_unavailable`."""
        ...

    def hydrated(self, cluster_id: str) -> frozenset[str]:
        """The names of the replicas of one compute cluster that are hydrated now. Raises RemoteError `signal_unavailable`."""
        ...

    def strategies(self) -> Mapping[tuple[str, str], StrategyRow]:
        """The newest row of each cluster id and type; empty where the table is missing."""
        ...

    def states(self) -> Mapping[str, Sequence[StrategyState]]:
        """By cluster id, the newest state of each strategy; empty where the table is missing."""
        ...

    def state_owners(self) -> frozenset[str]:
        """The cluster ids that any row of the state table has, of whatever version."""
        ...

    def audited(self, cluster_ids: Collection[str], *, since: datetime) -> Sequence[AuditRow]:
        """The audit rows of these cluster ids from a time on, in the order of their times; none where the table is missing."""
        ...

    def activity(
        self, cluster_ids: Collection[str], *, since: datetime
    ) -> Mapping[str, Sequence[tuple[datetime, datetime]]]:
        """By cluster id, when statements of others ran from a time on, as far as the target remembers; in order.

        One pair for each minute in which statements began: the first begin, and the last end. A statement that goes on counts
        where it began. Raises RemoteError `signal_unavailable`.
        """
        ...


class StrategyTarget(TargetReader, Protocol):
    """A target that is also changed."""

    def try_lock(self, key: str) -> bool | None:
        """Take the lock with this key until the target is left, without waiting; None where the target has no locks.

        False where another connection holds it. The lock has a connection of its own, and goes with it if that is lost.
        """
        ...

    def create_tables(self) -> None:
        """Make those of the three tables that are missing."""
        ...

    def replace_strategies(self, rows: Collection[StrategyRow], *, at: datetime) -> None:
        """Let each of these be the newest row of its cluster id and type, and then delete the older ones.

        A reader always finds a row. The rows get the time `at`, or a later one where a row is there whose time is not before it.
        """
        ...

    def delete_strategies(self, pairs: Collection[tuple[str, str]]) -> None:
        """Delete the rows of these cluster ids and types, and their states."""
        ...

    def replace_states(self, cluster_id: str, states: Iterable[StrategyState], *, at: datetime) -> None:
        """Let each of these be the newest state of its strategy, and then delete the older ones. Times as above."""
        ...

    def wipe_states(self, cluster_ids: Collection[str]) -> int:
        """Delete the states of these cluster ids, of whatever version; how many rows that were."""
        ...

    def recreate_states(self) -> None:
        """Drop the state table and make it again, as for another version of its columns."""
        ...

    def audit(self, row: AuditRow) -> None:
        """Add a row unless one with this action id is there."""
        ...

    def create_replica(self, cluster: str, replica: str, size: str) -> ReplicaResult:
        """Carry out `statements.create_replica`. Errors of the target are outcomes."""
        ...

    def drop_replica(self, cluster: str, replica: str) -> ReplicaResult:
        """Carry out `statements.drop_replica`, which is done too where the replica is not there. Errors are outcomes."""
        ...


def newest_strategies(rows: Iterable[StrategyRow]) -> Mapping[tuple[str, str], StrategyRow]:
    """Of each cluster id and type the row with the latest time; one without a time is older than all that have one."""
    found: dict[tuple[str, str], StrategyRow] = {}
    for row in sorted(rows, key=_age):
        found[row.cluster_id, row.strategy_type] = row
    return found


def newest_states(rows: Iterable[StateRow]) -> Mapping[str, Sequence[StrategyState]]:
    """By cluster id, the latest state of each strategy, in the order in which they decide."""
    found: dict[str, dict[Any, StrategyState]] = {}
    for row in sorted(rows, key=_age):
        found.setdefault(row.cluster_id, {})[row.state.strategy] = row.state
    return {
        owner: tuple(sorted(each.values(), key=lambda state: state.strategy.priority)) for owner, each in found.items()
    }


def _age(row: StrategyRow | StateRow) -> tuple[bool, float]:
    return row.updated_at is not None, 0.0 if row.updated_at is None else row.updated_at.timestamp()
