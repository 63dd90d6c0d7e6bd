"""The stand-in as a world: what happens to it, in the words of `target_world`, and what is in its tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from psycopg.types.json import Jsonb

from gitops.cluster.targets.port import AuditRow, StrategyRow
from gitops.cluster.targets.signals import SizeTable
from gitops.compute.materialize.connection import TargetAddress
from gitops.compute.strategies.statements import create_replica, drop_replica
from gitops.core.redact import Secret
from tests.support.materialize.postgres import PostgresServer
from tests.support.materialize.proxy import Delay, MaterializeProxy
from tests.support.strategies import SIZES
from tests.support.target_world import Fault

__all__ = ["ReplicaChange", "ServerWorld", "address"]

_SCRIPT = Path(__file__).parents[2] / "data" / "materialize" / "stand-in.sql"
_LOCK = "pg_catalog.pg_try_advisory_lock"


class ReplicaChange(NamedTuple):
    """A statement about a replica that had an effect, and how many hydrated replicas its compute cluster had after it."""

    sql: str
    hydrated_left: int


class ServerWorld:
    """A target on PostgreSQL behind the proxy, empty again after each `reset`."""

    sizes: SizeTable = SIZES

    def __init__(self, server: PostgresServer, proxy: MaterializeProxy) -> None:
        self._server, self._proxy = server, proxy
        self._database = server.connect()
        self._script = _SCRIPT.read_text(encoding="utf-8")
        self._numbers = count(1)
        self._indexes: dict[str, list[str]] = {}
        self._database.execute("CREATE ROLE bot LOGIN")

    def close(self) -> None:
        """Give back the connection."""
        self._database.close()

    def reset(self) -> None:
        """Begin again: nothing is there but the sizes and the clusters of the system."""
        self._proxy.start()
        self._proxy.silent, self._proxy.says = False, None
        self._proxy.log.clear()
        self.forget_faults()
        self._database.execute(self._script)
        if self._one("SELECT to_regproc('pg_catalog.stand_in_lock')")[0] is not None:
            self._database.execute("ALTER FUNCTION pg_catalog.stand_in_lock(bigint) RENAME TO pg_try_advisory_lock")

    def url(self, login: str = "bot") -> str:
        """Where a client finds the proxy."""
        return f"postgresql://{login}@127.0.0.1:{self._proxy.port}/postgres"

    @property
    def statements(self) -> int:
        """How many statements there were so far."""
        return self._proxy.statements

    def add_cluster(self, name: str, *, managed: bool = False, single: bool = False, objects: int = 1) -> str:
        """A compute cluster of a user; its id. Of its objects one is an index of the system, as each real one has."""
        owner = f"u{next(self._numbers)}"
        self._insert("mz_catalog.mz_clusters", owner, name, managed, None, None)
        for number in range(objects):
            index = f"{'s' if number == 0 else 'u'}{next(self._numbers)}"
            if number % 2 == 0:
                self._insert("mz_catalog.mz_indexes", index, index, owner)
            else:
                self._insert("mz_catalog.mz_sources", index, index, "kafka", owner)
        # What does not hydrate does not count.
        self._insert("mz_catalog.mz_sources", f"u{next(self._numbers)}", "w", "webhook", owner)
        if single:
            self.set_single(name)
        return owner

    def add_object(self, cluster: str, kind: str) -> None:
        """A compute cluster maintains one more object: a `materialized-view`, a `sink`, or a source of a type."""
        owner, name = self._owner(cluster), f"u{next(self._numbers)}"
        if kind == "materialized-view":
            self._insert("mz_catalog.mz_materialized_views", name, name, owner)
        else:
            self._insert(f"mz_catalog.mz_{'sinks' if kind == 'sink' else 'sources'}", name, name, kind, owner)

    def drop_cluster(self, name: str) -> None:
        """Drop it, with its replicas; the rows of the tables stay."""
        owner = self._owner(name)
        for relation in ("mz_cluster_replicas", "mz_indexes", "mz_materialized_views", "mz_sources", "mz_sinks"):
            self._database.execute(f"DELETE FROM mz_catalog.{relation} WHERE cluster_id = %s", (owner,))  # noqa: S608
        self._database.execute("DELETE FROM mz_catalog.mz_clusters WHERE id = %s", (owner,))

    def set_managed(self, name: str, managed: str = "true") -> None:
        """The target makes the replicas of a compute cluster by itself from now on; no longer, if this is `false`."""
        self._database.execute("UPDATE mz_catalog.mz_clusters SET managed = %s WHERE name = %s", (managed, name))

    def administer(self, statement: str) -> None:
        """An administrator runs a statement."""
        self._database.execute(statement)

    def set_single(self, name: str) -> None:
        """A compute cluster contains sources from now on, and the target permits one replica of it."""
        self._insert("mz_internal.stand_in_single", self._owner(name))

    def forget_size(self, size: str) -> None:
        """The target offers a size no longer."""
        self._database.execute("DELETE FROM mz_catalog.mz_cluster_replica_sizes WHERE size = %s", (size,))

    def add_clusters(self, number: int) -> None:
        """Many compute clusters at once, each with an index and a replica `main` that is hydrated."""
        text = "INSERT INTO mz_catalog.mz_clusters SELECT 'u9' || n, 'c' || n, false FROM generate_series(1, %s) AS n"
        self._database.execute(text, (number,))
        self._database.execute(
            """INSERT INTO mz_catalog.mz_indexes SELECT 'i' || id, 'i', id FROM mz_catalog.mz_clusters WHERE id LIKE 'u%';
            INSERT INTO mz_catalog.mz_cluster_replicas
              SELECT 'r' || id, 'main', id, '25cc' FROM mz_catalog.mz_clusters WHERE id LIKE 'u%';
            INSERT INTO mz_internal.mz_hydration_statuses
              SELECT 'i' || id, 'r' || id, true FROM mz_catalog.mz_clusters WHERE id LIKE 'u%'"""
        )

    def add_replica(self, cluster: str, name: str, size: str, *, hydrated: bool = False) -> None:
        """A replica that is there, without a statement of ours."""
        owner = self._owner(cluster)
        self._insert("mz_catalog.mz_cluster_replicas", f"u{next(self._numbers)}r", name, owner, size, None)
        if hydrated:
            self.hydrate(cluster, name)

    def replicas(self, cluster: str) -> dict[str, str]:
        """The sizes of the replicas by name."""
        rows = self._all(
            "SELECT name, size FROM mz_catalog.mz_cluster_replicas WHERE cluster_id = %s", self._owner(cluster)
        )
        return dict(rows)

    def hydrate(self, cluster: str, replica: str, *, but: str = "") -> None:
        """The replica has read what it needs, `but` objects of a kind, and is online."""
        owner, held = self._owner(cluster), self._replica(cluster, replica)
        # An object that is not there yet has no status, nor has a source that runs on another replica alone. Such a sink has one.
        self._database.execute("DELETE FROM mz_internal.mz_hydration_statuses WHERE replica_id = %s", (held,))
        self._database.execute(
            """INSERT INTO mz_internal.mz_hydration_statuses
            SELECT id, %s, kind <> %s AND NOT elsewhere FROM (
              SELECT *, single AND id IN (SELECT object_id FROM mz_internal.stand_in_running) AS elsewhere
              FROM mz_internal.stand_in_objects WHERE cluster_id = %s
            ) AS o WHERE kind = 'sink' OR kind <> %s AND NOT elsewhere""",
            (held, but, owner, but),
        )
        self.set_online(cluster, replica, online=True)

    def lose_status(self, cluster: str, replica: str) -> None:
        """The target reports the hydration of one object of the replica no longer, if there is another one, as false."""
        held = self._replica(cluster, replica)
        self._database.execute(
            "DELETE FROM mz_internal.mz_hydration_statuses WHERE replica_id = %s AND object_id = "
            "(SELECT max(object_id) FROM mz_internal.mz_hydration_statuses AS s JOIN mz_catalog.mz_sources AS o "
            "ON o.id = s.object_id WHERE replica_id = %s AND o.type = 'kafka')",
            (held, held),
        )

    def set_online(self, cluster: str, replica: str, *, online: bool) -> None:
        """What the newest status of its two processes says; when it is offline, that is one of them."""
        held = self._replica(cluster, replica)
        rows = self._one("SELECT count(*) FROM mz_internal.mz_cluster_replica_status_history")
        at = datetime.fromisoformat("2027-01-01T00:00:00Z") + timedelta(seconds=rows[0])
        for process in (0, 1) if online else (1,):
            self._status(held, process, "online" if online else "offline", None, at)

    def crash(self, cluster: str, replica: str, reason: str, at: datetime, processes: int = 1) -> None:
        """Each process of the replica reports that it went offline, all at the same time; it has to hydrate again."""
        held = self._replica(cluster, replica)
        self._database.execute(
            "UPDATE mz_internal.mz_hydration_statuses SET hydrated = false WHERE replica_id = %s", (held,)
        )
        for process in range(processes):
            self._status(held, process, "offline", reason, at)
        self.set_online(cluster, replica, online=False)

    def activity(
        self, cluster: str, began: datetime, finished: datetime | None = None, application_name: str = "app"
    ) -> None:
        """A statement ran on the compute cluster, or still runs."""
        row = (str(next(self._numbers)), self._owner(cluster), application_name, began, finished, None)
        self._insert("mz_internal.mz_statement_execution_history_redacted", *row)

    def hydrated(self, cluster: str) -> set[str]:
        """The replicas whose objects are all hydrated."""
        text = """SELECT r.name FROM mz_catalog.mz_cluster_replicas AS r
        JOIN mz_internal.mz_hydration_statuses AS h ON h.replica_id = r.id
        WHERE r.cluster_id = %s GROUP BY r.name HAVING bool_and(h.hydrated)"""
        return {name for (name,) in self._all(text, self._owner(cluster))}

    def tick(self) -> None:
        """Time passes: every replica is hydrated."""
        for (cluster,) in self._all("SELECT name FROM mz_catalog.mz_clusters WHERE id LIKE 'u%'"):
            for replica in self.replicas(cluster):
                self.hydrate(cluster, replica)

    @property
    def settled(self) -> bool:
        """Return whether every replica is hydrated."""
        clusters = self._all("SELECT name FROM mz_catalog.mz_clusters WHERE id LIKE 'u%'")
        return all(self.hydrated(name) == set(self.replicas(name)) for (name,) in clusters)

    def fail_next(self, fault: Fault | Delay, *, after: int = 0, says: str | None = None) -> None:
        """Let the next statement fail, or the one `after` so many."""
        self._proxy.says = says
        self._proxy.faults[self._proxy.statements + 1 + after] = fault

    def forget_faults(self) -> bool:
        """Let no statement fail; whether there was a fault that has not happened."""
        left = bool(self._proxy.faults)
        self._proxy.faults.clear()
        return left

    def hide(self, relation: str, column: str) -> None:
        """The target is of another version, in which a relation lacks a column."""
        self._database.execute(f"ALTER TABLE {relation} RENAME COLUMN {column} TO other")

    def deny(self, privilege: str, relation: str) -> None:
        """The role of the program loses a privilege."""
        self._database.execute(f"ALTER TABLE {relation} OWNER TO postgres; REVOKE {privilege} ON {relation} FROM bot")

    def grant(self, privilege: str, relation: str) -> None:
        """The role of the program has a privilege again."""
        self._database.execute(f"GRANT {privilege} ON {relation} TO bot; ALTER TABLE {relation} OWNER TO bot")

    def without_locks(self) -> None:
        """The target has no advisory locks."""
        self._database.execute(f"ALTER FUNCTION {_LOCK}(bigint) RENAME TO stand_in_lock")

    def stop(self) -> None:
        """The server goes away, and has ended all it did for its clients."""
        self._proxy.stop()
        self.end_sessions()

    def end_sessions(self) -> None:
        """What a lost connection left is over: its statement has ended, and its lock is free."""
        self._database.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = 'bot'")

    def start(self) -> None:
        """It comes back."""
        self._proxy.start()

    def silence(self) -> None:
        """It accepts connections and statements, and answers nothing, until the next reset."""
        self._proxy.silent = True

    def tables(self) -> set[str]:
        """Which of the three tables are there."""
        return {name for (name,) in self._all("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}

    def insert_strategy(self, cluster_id: str, kind: str, config: Mapping[str, Any], at: datetime | None) -> None:
        """Another program writes a row."""
        self._insert("public.mz_cluster_strategies", cluster_id, kind, Jsonb(dict(config)), at)

    def delete_strategies(self) -> None:
        """Another program deletes all rows."""
        self._database.execute("DELETE FROM public.mz_cluster_strategies")

    def insert_state(self, cluster_id: str, version: int, payload: Mapping[str, Any], at: datetime | None) -> None:
        """Another program writes a row."""
        self._insert("public.mz_cluster_strategy_state", cluster_id, version, Jsonb(dict(payload)), at)

    def insert_audit(self, row: AuditRow, at: datetime) -> None:
        """A row of an earlier tick, or of another program."""
        context = Jsonb(dict(row.decision_ctx))
        values = (row.action_id, row.cluster_id, row.action_sql, context, row.executed, row.error_message, at)
        self._insert("public.mz_cluster_strategy_actions", *values)

    @property
    def strategy_rows(self) -> list[StrategyRow] | None:
        """All rows of the table; None where it is missing."""
        rows = self._table("mz_cluster_strategies")
        return None if rows is None else [StrategyRow(*row) for row in rows]

    @property
    def state_rows(self) -> list[tuple[Any, ...]] | None:
        """All rows of the table; None where it is missing."""
        return self._table("mz_cluster_strategy_state")

    @property
    def audit_rows(self) -> list[AuditRow] | None:
        """All rows of the table, without their times; None where it is missing."""
        rows = self._table("mz_cluster_strategy_actions")
        return None if rows is None else [AuditRow(*row[:-1]) for row in rows]

    @property
    def log(self) -> list[str]:
        """The statements that came in since the last reset, as they were on the wire."""
        return self._proxy.log

    @property
    def changes(self) -> list[ReplicaChange]:
        """What statements about replicas have changed, in order."""
        found = self._all(
            "SELECT cluster, replica, size, hydrated_left FROM mz_internal.stand_in_changes ORDER BY number"
        )
        return [
            ReplicaChange(drop_replica(cluster, name) if size is None else create_replica(cluster, name, size), left)
            for cluster, name, size, left in found
        ]

    def _owner(self, cluster: str) -> str:
        return str(self._one("SELECT id FROM mz_catalog.mz_clusters WHERE name = %s", cluster)[0])

    def _table(self, name: str) -> list[tuple[Any, ...]] | None:
        return self._all(f"SELECT * FROM public.{name}") if name in self.tables() else None  # noqa: S608 - one of three

    def _replica(self, cluster: str, replica: str) -> str:
        text = "SELECT id FROM mz_catalog.mz_cluster_replicas WHERE cluster_id = %s AND name = %s"
        return str(self._one(text, self._owner(cluster), replica)[0])

    def _status(self, held: str, process: int, status: str, reason: str | None, at: datetime) -> None:
        self._insert("mz_internal.mz_cluster_replica_status_history", held, process, status, reason, at)

    def _insert(self, relation: str, *values: object) -> None:
        self._database.execute(f"INSERT INTO {relation} VALUES ({', '.join(['%s'] * len(values))})", values)  # noqa: S608

    def _all(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(text, values or None).fetchall()

    def _one(self, text: str, *values: object) -> tuple[Any, ...]:
        row = self._database.execute(text, values or None).fetchone()
        assert row is not None
        return row


def address(world: ServerWorld, **changes: Any) -> TargetAddress:
    """Where a client of the program finds a world."""
    given = {
        "place": "compute.targets.prod",
        "url": Secret("MZ_URL", world.url()),
        "application_name": "cluster-gitops",
    }
    return TargetAddress(**given | changes)
