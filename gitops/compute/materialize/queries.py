"""The adapter's SQL statements, except those about replicas, with the privileges that they need.

Each statement reads all compute clusters. Parameters use the driver's syntax (`%s`), so a percent sign in SQL must be
doubled. They have explicit types, because a target cannot always infer types, and never in `ANY(%s)`.

Sources: https://materialize.com/docs/sql/system-catalog/mz_catalog/,
https://materialize.com/docs/sql/system-catalog/mz_internal/
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gitops.core.dataclass import dataclass

_CLUSTERS = "mz_catalog.mz_clusters"
_REPLICAS = "mz_catalog.mz_cluster_replicas"
_SIZES = "mz_catalog.mz_cluster_replica_sizes"
_INDEXES = "mz_catalog.mz_indexes"
_VIEWS = "mz_catalog.mz_materialized_views"
_SOURCES = "mz_catalog.mz_sources"
_SINKS = "mz_catalog.mz_sinks"
_HYDRATION = "mz_internal.mz_hydration_statuses"
_STATUSES = "mz_internal.mz_cluster_replica_status_history"
_HISTORY = "mz_internal.mz_statement_execution_history_redacted"
_STRATEGIES = "mz_cluster_strategies"
_STATES = "mz_cluster_strategy_state"
_ACTIONS = "mz_cluster_strategy_actions"

SIGNALS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        _CLUSTERS: ("id", "name", "managed"),
        _REPLICAS: ("id", "name", "cluster_id", "size"),
        _SIZES: ("size", "processes", "workers", "credits_per_hour"),
        _INDEXES: ("id", "cluster_id"),
        _VIEWS: ("id", "cluster_id"),
        _SOURCES: ("id", "type", "cluster_id"),
        _SINKS: ("id", "cluster_id"),
        _HYDRATION: ("object_id", "replica_id", "hydrated"),
        _STATUSES: ("replica_id", "process_id", "status", "reason", "occurred_at"),
        _HISTORY: ("cluster_id", "application_name", "began_at", "finished_at"),
    }
)
"""The relations that contain signals, with the columns that are needed."""


@dataclass(frozen=True, slots=True)
class TargetQuery:
    """A statement, and the privilege that it needs on relations."""

    text: str
    privilege: str = "SELECT"
    relations: tuple[str, ...] = ()


CLUSTERS = TargetQuery(
    """SELECT c.id, c.name, coalesce(c.managed, false), r.name, coalesce(r.size, '')
    FROM mz_catalog.mz_clusters AS c LEFT JOIN mz_catalog.mz_cluster_replicas AS r ON r.cluster_id = c.id
    WHERE c.id LIKE 'u%' ORDER BY c.name, r.name""",
    relations=(_CLUSTERS, _REPLICAS),
)

SIZES = TargetQuery(
    """SELECT size, credits_per_hour FROM mz_catalog.mz_cluster_replica_sizes
    ORDER BY credits_per_hour NULLS LAST, processes, workers, size""",
    relations=(_SIZES,),
)

# Parameters: cluster ids, our application name, start time (twice).
ACTIVITY = TargetQuery(
    """SELECT cluster_id, greatest(max(began_at), max(finished_at)) FROM mz_internal.mz_statement_execution_history_redacted
    WHERE cluster_id = ANY(%s::text[]) AND application_name IS DISTINCT FROM %s::text AND (began_at >= %s OR finished_at >= %s)
    GROUP BY cluster_id""",
    relations=(_HISTORY,),
)

# Parameters: cluster ids, our application name, start time (twice).
SPANS = TargetQuery(
    """SELECT cluster_id, min(began_at) AS first, max(greatest(began_at, finished_at))
    FROM mz_internal.mz_statement_execution_history_redacted
    WHERE cluster_id = ANY(%s::text[]) AND application_name IS DISTINCT FROM %s::text AND (began_at >= %s OR finished_at >= %s)
    GROUP BY cluster_id, date_trunc('minute', began_at) ORDER BY first""",
    relations=(_HISTORY,),
)

# These objects are the ones in the view mz_hydration_statuses. An object without a status is not hydrated. A target
# runs each sink, and each source of these types, on its oldest replica until that replica is dropped. If the object is
# hydrated there, no other replica needs to wait for it, because it will never hydrate on them. A replica without
# objects has nothing to read, so its processes only need to be online. Parameter: cluster ids.
HYDRATION = TargetQuery(
    """WITH objects AS (
      SELECT id, cluster_id, false AS single FROM mz_catalog.mz_indexes
      UNION ALL SELECT id, cluster_id, false FROM mz_catalog.mz_materialized_views
      UNION ALL SELECT id, cluster_id, type IN ('postgres', 'mysql', 'sql-server') FROM mz_catalog.mz_sources
        WHERE cluster_id IS NOT NULL AND type <> 'webhook'
      UNION ALL SELECT id, cluster_id, true FROM mz_catalog.mz_sinks
    ), running AS (
      SELECT DISTINCT h.object_id FROM mz_internal.mz_hydration_statuses AS h
      JOIN mz_catalog.mz_cluster_replicas AS r ON r.id = h.replica_id WHERE h.hydrated
    ), newest AS (
      SELECT DISTINCT ON (replica_id, process_id) replica_id, status FROM mz_internal.mz_cluster_replica_status_history
      ORDER BY replica_id, process_id, occurred_at DESC
    ), online AS (
      SELECT replica_id, bool_and(status = 'online') AS online FROM newest GROUP BY replica_id
    )
    SELECT r.cluster_id, r.name
    FROM mz_catalog.mz_cluster_replicas AS r
    LEFT JOIN objects AS o ON o.cluster_id = r.cluster_id
    LEFT JOIN mz_internal.mz_hydration_statuses AS h ON h.object_id = o.id AND h.replica_id = r.id
    LEFT JOIN running AS n ON n.object_id = o.id AND o.single
    LEFT JOIN online AS s ON s.replica_id = r.id
    WHERE r.cluster_id = ANY(%s::text[])
    GROUP BY r.cluster_id, r.name
    HAVING bool_and(CASE WHEN o.id IS NULL THEN coalesce(s.online, false)
      ELSE coalesce(h.hydrated, false) OR n.object_id IS NOT NULL END)""",
    relations=(_HYDRATION, _STATUSES, _INDEXES, _VIEWS, _SOURCES, _SINKS, _REPLICAS),
)

# All processes of a replica report the same crash. Parameters: cluster ids, start time.
CRASHES = TargetQuery(
    """SELECT r.cluster_id, r.name, count(DISTINCT s.occurred_at),
      count(DISTINCT s.occurred_at) FILTER (WHERE lower(s.reason) LIKE '%%oom%%')
    FROM mz_internal.mz_cluster_replica_status_history AS s JOIN mz_catalog.mz_cluster_replicas AS r ON r.id = s.replica_id
    WHERE r.cluster_id = ANY(%s::text[]) AND s.status = 'offline' AND s.reason IS NOT NULL AND s.occurred_at >= %s
    GROUP BY r.cluster_id, r.name""",
    relations=(_STATUSES, _REPLICAS),
)

CREATE_TABLES: Mapping[str, TargetQuery] = MappingProxyType(
    {
        name: TargetQuery(f"CREATE TABLE IF NOT EXISTS {name} ({columns})", "CREATE", ("SCHEMA public",))
        for name, columns in {
            _STRATEGIES: "cluster_id TEXT NOT NULL, strategy_type TEXT NOT NULL, config JSONB NOT NULL, "
            "updated_at TIMESTAMPTZ DEFAULT now()",
            _STATES: "cluster_id TEXT NOT NULL, state_version INT NOT NULL, payload JSONB NOT NULL, "
            "updated_at TIMESTAMPTZ DEFAULT now()",
            _ACTIONS: "action_id TEXT NOT NULL, cluster_id TEXT, action_sql TEXT, decision_ctx JSONB, executed BOOL, "
            "error_message TEXT, created_at TIMESTAMPTZ DEFAULT now()",
        }.items()
    }
)
"""The statements that create the three tables if they are missing, by table name."""

STRATEGIES = TargetQuery(
    "SELECT cluster_id, strategy_type, config, updated_at FROM mz_cluster_strategies", relations=(_STRATEGIES,)
)
# `rows` puts one of these in place of the braces for each row.
PAIR = "(%s::text, %s::text)"
STORED = "(%s, %s, %s::jsonb, %s)"

# Parameters: cluster id and type of each pair, and the time if there is one.
NEWEST_PAIRS = TargetQuery(
    "SELECT max(updated_at) FROM mz_cluster_strategies WHERE (cluster_id, strategy_type) IN ({})",
    relations=(_STRATEGIES,),
)
INSERT_STRATEGIES = TargetQuery(
    "INSERT INTO mz_cluster_strategies (cluster_id, strategy_type, config, updated_at) VALUES {}",
    "INSERT",
    (_STRATEGIES,),
)
PRUNE_PAIRS = TargetQuery(
    """DELETE FROM mz_cluster_strategies
    WHERE (cluster_id, strategy_type) IN ({}) AND (updated_at IS NULL OR updated_at < %s)""",
    "DELETE",
    (_STRATEGIES,),
)
DELETE_PAIRS = TargetQuery(
    "DELETE FROM mz_cluster_strategies WHERE (cluster_id, strategy_type) IN ({})", "DELETE", (_STRATEGIES,)
)
DELETE_PAIR_STATES = TargetQuery(
    "DELETE FROM mz_cluster_strategy_state WHERE (cluster_id, payload ->> 'strategy_type') IN ({})",
    "DELETE",
    (_STATES,),
)

STATES = TargetQuery(
    "SELECT cluster_id, state_version, payload, updated_at FROM mz_cluster_strategy_state WHERE state_version = %s::int",
    relations=(_STATES,),
)
OWNERS = TargetQuery("SELECT DISTINCT cluster_id FROM mz_cluster_strategy_state", relations=(_STATES,))
# Parameters: cluster id, types, and the time if there is one.
NEWEST_STATES = TargetQuery(
    """SELECT max(updated_at) FROM mz_cluster_strategy_state
    WHERE cluster_id = %s AND payload ->> 'strategy_type' = ANY(%s::text[])""",
    relations=(_STATES,),
)
INSERT_STATES = TargetQuery(
    "INSERT INTO mz_cluster_strategy_state (cluster_id, state_version, payload, updated_at) VALUES {}",
    "INSERT",
    (_STATES,),
)
PRUNE_STATES = TargetQuery(
    """DELETE FROM mz_cluster_strategy_state WHERE cluster_id = %s AND payload ->> 'strategy_type' = ANY(%s::text[])
    AND (updated_at IS NULL OR updated_at < %s)""",
    "DELETE",
    (_STATES,),
)
WIPE_STATES = TargetQuery(
    "DELETE FROM mz_cluster_strategy_state WHERE cluster_id = ANY(%s::text[])", "DELETE", (_STATES,)
)
DROP_STATES = TargetQuery("DROP TABLE IF EXISTS mz_cluster_strategy_state", "DROP", (_STATES,))

# Parameters: the columns of the row in order, and its id again.
AUDIT = TargetQuery(
    """INSERT INTO mz_cluster_strategy_actions (action_id, cluster_id, action_sql, decision_ctx, executed, error_message)
    SELECT %s::text, %s::text, %s::text, %s::jsonb, %s::bool, %s::text
    WHERE NOT EXISTS (SELECT 1 FROM mz_cluster_strategy_actions WHERE action_id = %s)""",
    "INSERT",
    (_ACTIONS,),
)

# Parameters: cluster ids, start time.
AUDITED = TargetQuery(
    """SELECT action_id, cluster_id, coalesce(action_sql, ''), decision_ctx, coalesce(executed, false), error_message, created_at
    FROM mz_cluster_strategy_actions WHERE cluster_id = ANY(%s::text[]) AND created_at >= %s
    ORDER BY created_at, action_id""",
    relations=(_ACTIONS,),
)

LOCK = TargetQuery("SELECT pg_try_advisory_lock(%s::bigint)")
UNLOCK = TargetQuery("SELECT pg_advisory_unlock_all()")


def rows(query: TargetQuery, row: str, length: int) -> TargetQuery:
    """Return the query with its braces replaced by this many rows of parameters."""
    return TargetQuery(query.text.format(", ".join([row] * length)), query.privilege, query.relations)


def probe(relations: Mapping[str, tuple[str, ...]]) -> TargetQuery:
    """Return a query that returns no rows, but fails if a relation or a column is missing."""
    each = "(SELECT {} FROM {} LIMIT 0) AS r{}".format
    parts = (each(", ".join(columns), name, at) for at, (name, columns) in enumerate(relations.items()))
    text = "SELECT 1 FROM " + ", ".join(parts)  # noqa: S608 - names of this module
    return TargetQuery(text, relations=tuple(relations))
