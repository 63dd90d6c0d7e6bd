"""A strategy target that is a Materialize database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import chain
from types import MappingProxyType, TracebackType
from typing import Any, Self

from gitops.cluster.config.compute import RESERVED_REPLICAS
from gitops.cluster.targets import port, signals
from gitops.compute.materialize import queries
from gitops.compute.materialize.connection import (
    MissingColumnError,
    MissingFunctionError,
    MissingRelationError,
    TargetAddress,
    TargetConnection,
)
from gitops.compute.strategies import statements
from gitops.core.errors import GitopsError

_TICK = timedelta(microseconds=1)
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class MaterializeTarget:
    """A StrategyTarget with one connection for statements and a second one that holds the lock."""

    def __init__(self, address: TargetAddress) -> None:
        """Create the target without connecting. Raises UsageError `target_url_invalid`."""
        self._address = address
        self._statements = TargetConnection(address)
        self._lock: TargetConnection | None = None

    def __enter__(self) -> Self:
        self._statements.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._statements.close()
        if self._lock is None:
            return
        # A server needs a moment to notice that a connection is closed. Until then, the next program would find the
        # lock taken.
        with suppress(MissingFunctionError, GitopsError):
            if self._lock.is_open:
                self._lock.run(queries.UNLOCK)
        self._lock.close()

    def probe(self) -> None:
        """Check all relations with one statement. If that fails, check each column."""
        try:
            self._statements.run(queries.probe(queries.SIGNALS))
        except (MissingRelationError, MissingColumnError):
            missing = [
                f"{relation}({column})"
                for relation, columns in queries.SIGNALS.items()
                for column in columns
                if not self._is_there(relation, column)
            ]
            raise statements.signals_missing(self._statements.place, missing) from None

    def _is_there(self, relation: str, column: str) -> bool:
        try:
            self._statements.run(queries.probe({relation: (column,)}))
        except (MissingRelationError, MissingColumnError):
            return False
        return True

    def clusters(self) -> Mapping[str, signals.ComputeCluster]:
        """Read the compute clusters. Uses one statement."""
        found: dict[str, signals.ComputeCluster] = {}
        replicas: dict[str, dict[str, signals.ReplicaSpec]] = {}
        for owner, name, managed, replica, size in self._signals(queries.CLUSTERS):
            held = replicas.setdefault(name, {})
            found.setdefault(name, signals.ComputeCluster(owner, name, MappingProxyType(held), managed))
            if replica is not None and replica not in RESERVED_REPLICAS:
                held[replica] = signals.ReplicaSpec(size)
        return found

    def observe(
        self, clusters: Collection[signals.ComputeCluster], *, now: datetime, lookback: timedelta | None
    ) -> Mapping[str, signals.Signals]:
        """Read the signals. Uses four statements."""
        owners = [each.cluster_id for each in clusters]
        sizes = self.sizes()
        since = _LONG_AGO if lookback is None else now - lookback
        seen = self._signals(queries.ACTIVITY, owners, self._address.application_name, since, since)
        activity = {owner: at.astimezone(UTC) for owner, at in seen}
        hydrated = self._hydrated(owners)
        crashes: dict[str, dict[str, signals.Crashes]] = {}
        for owner, replica, total, out_of_memory in self._signals(
            queries.CRASHES, owners, now - port.CRASHES_COUNT_FOR
        ):
            crashes.setdefault(owner, {})[replica] = signals.Crashes(total, out_of_memory)
        return {
            owner: signals.Signals(
                now,
                sizes,
                activity.get(owner),
                hydrated.get(owner, frozenset()),
                MappingProxyType(crashes.get(owner, {})),
            )
            for owner in owners
        }

    def sizes(self) -> signals.SizeTable:
        """Read the sizes. Uses one statement."""
        return signals.SizeTable(
            {size: None if cost is None else float(cost) for size, cost in self._signals(queries.SIZES)}
        )

    def hydrated(self, cluster_id: str) -> frozenset[str]:
        """Read which replicas are hydrated. Uses one statement."""
        return self._hydrated([cluster_id]).get(cluster_id, frozenset())

    def _hydrated(self, owners: list[str]) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for owner, replica in self._signals(queries.HYDRATION, owners):
            if replica not in RESERVED_REPLICAS:
                found.setdefault(owner, set()).add(replica)
        return {owner: frozenset(names) for owner, names in found.items()}

    def _signals(self, query: queries.TargetQuery, *values: object) -> list[tuple[Any, ...]]:
        """Read rows of the system catalog. If an object is missing, the signal is unavailable."""
        try:
            return self._statements.run(query, *values)[0]
        except (MissingRelationError, MissingColumnError) as error:
            raise statements.signals_missing(self._statements.place, [f"relation or column ({error})"]) from None

    def strategies(self) -> Mapping[tuple[str, str], port.StrategyRow]:
        """Read the strategy rows. Uses one statement."""
        found = self._if_there(queries.STRATEGIES)
        return port.newest_strategies(
            port.StrategyRow(owner, kind, config if isinstance(config, dict) else {}, at)
            for owner, kind, config, at in found
        )

    def states(self) -> Mapping[str, Sequence[signals.StrategyState]]:
        """Read the strategy states, except those of other versions. Uses one statement."""
        found = (
            (owner, signals.read_payload(version, payload), at)
            for owner, version, payload, at in self._if_there(queries.STATES, signals.STATE_VERSION)
        )
        return port.newest_states(port.StateRow(owner, state, at) for owner, state, at in found if state is not None)

    def state_owners(self) -> frozenset[str]:
        """Read the owners of strategy states. Uses one statement."""
        return frozenset(owner for (owner,) in self._if_there(queries.OWNERS))

    def audited(self, cluster_ids: Collection[str], *, since: datetime) -> Sequence[port.AuditRow]:
        """Read the audit rows. Uses one statement."""
        return [
            port.AuditRow(
                action, owner, sql, context if isinstance(context, dict) else {}, executed, said, at.astimezone(UTC)
            )
            for action, owner, sql, context, executed, said, at in self._if_there(
                queries.AUDITED, list(cluster_ids), since
            )
        ]

    def activity(
        self, cluster_ids: Collection[str], *, since: datetime
    ) -> Mapping[str, Sequence[tuple[datetime, datetime]]]:
        """Read the activity. Uses one statement."""
        found: dict[str, list[tuple[datetime, datetime]]] = {}
        seen = self._signals(queries.SPANS, list(cluster_ids), self._address.application_name, since, since)
        for owner, first, last in seen:
            found.setdefault(owner, []).append((first.astimezone(UTC), last.astimezone(UTC)))
        return found

    def _if_there(self, query: queries.TargetQuery, *values: object) -> list[tuple[Any, ...]]:
        """Return rows of one of the three tables; none if the table is missing."""
        try:
            return self._on_table(query, *values)[0]
        except MissingRelationError:
            return []

    def try_lock(self, key: str) -> bool | None:
        """Try to take the lock whose key is a number derived from the text `key`."""
        if self._lock is None:
            self._lock = TargetConnection(self._address)
        number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], signed=True)
        try:
            return bool(self._lock.run(queries.LOCK, number)[0][0][0])
        except MissingFunctionError:
            self._lock.close()
            return None

    def create_tables(self) -> None:
        """Create the tables. Uses one statement for each."""
        for query in queries.CREATE_TABLES.values():
            self._write(query)

    def replace_strategies(self, rows: Collection[port.StrategyRow], *, at: datetime) -> None:
        """Replace the strategy rows.

        Three statements read the newest time, insert the new rows and delete the old ones.
        """
        if not rows:
            return
        pairs = list(chain.from_iterable((row.cluster_id, row.strategy_type) for row in rows))
        at = self._after(queries.rows(queries.NEWEST_PAIRS, queries.PAIR, len(rows)), pairs, at)
        values = [(row.cluster_id, row.strategy_type, json.dumps(dict(row.config)), at) for row in rows]
        self._write(queries.rows(queries.INSERT_STRATEGIES, queries.STORED, len(rows)), *chain.from_iterable(values))
        self._write(queries.rows(queries.PRUNE_PAIRS, queries.PAIR, len(rows)), *pairs, at)

    def delete_strategies(self, pairs: Collection[tuple[str, str]]) -> None:
        """Delete strategy rows. Uses two statements."""
        if pairs:
            values = list(chain.from_iterable(pairs))
            self._write(queries.rows(queries.DELETE_PAIRS, queries.PAIR, len(pairs)), *values)
            self._write(queries.rows(queries.DELETE_PAIR_STATES, queries.PAIR, len(pairs)), *values)

    def replace_states(self, cluster_id: str, states: Iterable[signals.StrategyState], *, at: datetime) -> None:
        """Replace the strategy states. Uses three statements, like `replace_strategies`."""
        payloads = {state.strategy.value: json.dumps(dict(state.payload)) for state in states}
        if not payloads:
            return
        types = list(payloads)
        at = self._after(queries.NEWEST_STATES, [cluster_id, types], at)
        values = [(cluster_id, signals.STATE_VERSION, payload, at) for payload in payloads.values()]
        self._write(queries.rows(queries.INSERT_STATES, queries.STORED, len(values)), *chain.from_iterable(values))
        self._write(queries.PRUNE_STATES, cluster_id, types, at)

    def _after(self, query: queries.TargetQuery, values: Iterable[object], at: datetime) -> datetime:
        """Return the time, or a later one if existing rows are newer."""
        newest = self._write(query, *values)[0][0][0]
        return at if newest is None else max(at, newest.astimezone(UTC) + _TICK)

    def wipe_states(self, cluster_ids: Collection[str]) -> int:
        """Delete the states with one statement. Returns 0 if the table is missing."""
        try:
            return self._on_table(queries.WIPE_STATES, list(cluster_ids))[1]
        except MissingRelationError:
            return 0

    def recreate_states(self) -> None:
        """Recreate the state table. Uses two statements."""
        self._write(queries.DROP_STATES)
        self._write(queries.CREATE_TABLES["mz_cluster_strategy_state"])

    def audit(self, row: port.AuditRow) -> None:
        """Write an audit row with one statement, which has no effect the second time."""
        context = json.dumps(dict(row.decision_ctx))
        values = (row.action_id, row.cluster_id, row.action_sql, context, row.executed, row.error_message)
        self._write(queries.AUDIT, *values, row.action_id)

    def _write(self, query: queries.TargetQuery, *values: object) -> tuple[list[tuple[Any, ...]], int]:
        """Execute a statement on a table that must exist."""
        try:
            return self._on_table(query, *values)
        except MissingRelationError as error:
            raise statements.failed(self._statements.place, str(error)) from None

    def _on_table(self, query: queries.TargetQuery, *values: object) -> tuple[list[tuple[Any, ...]], int]:
        """Execute a statement on a table.

        Raises an error for a table with different columns, which a different program created.
        """
        try:
            return self._statements.run(query, *values)
        except MissingColumnError as error:
            raise statements.failed(self._statements.place, str(error)) from None

    def create_replica(self, cluster: str, replica: str, size: str) -> port.ReplicaResult:
        """Create a replica. Uses one statement."""
        return self._statements.replica_statement(statements.create_replica(cluster, replica, size))

    def drop_replica(self, cluster: str, replica: str) -> port.ReplicaResult:
        """Drop a replica. Uses one statement."""
        return self._statements.replica_statement(statements.drop_replica(cluster, replica))
