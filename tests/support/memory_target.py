"""The in-memory twin of a target of strategies: one connection to a world (see `target_world`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from gitops.cluster.config.compute import RESERVED_REPLICAS
from gitops.cluster.targets.port import (
    CRASHES_COUNT_FOR,
    AuditRow,
    ReplicaOutcome,
    ReplicaResult,
    StateRow,
    StrategyRow,
    newest_states,
    newest_strategies,
)
from gitops.cluster.targets.signals import (
    STATE_VERSION,
    ComputeCluster,
    Crashes,
    ReplicaSpec,
    Signals,
    SizeTable,
    StrategyState,
    read_payload,
)
from gitops.compute.strategies import statements
from gitops.core.errors import RemoteError
from tests.support.target_world import Fault, HeldCluster, TargetWorld

__all__ = ["PLACE", "MemoryTarget"]

PLACE = "compute.targets.prod"
_TICK = timedelta(microseconds=1)

T = TypeVar("T")


class Cut(Exception):  # noqa: N818 - what happens to a connection
    """The connection is lost."""


class Refused(Exception):  # noqa: N818 - an answer, not a failure of the twin
    """The target answers with an error."""

    def __init__(self, message: str, state: str = "XX000") -> None:
        super().__init__(message)
        self.message, self.state = message, state


class MemoryTarget:
    """Implements StrategyTarget on a world. Leave it before another one is to take the lock."""

    def __init__(self, world: TargetWorld, *, application_name: str = "cluster-gitops", role: str = "bot") -> None:
        self._world, self._application_name, self._role = world, application_name, role

    def __enter__(self) -> Self:
        if not self._world.reachable:
            raise statements.unreachable(PLACE, "connection refused")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._world.held = {key: holder for key, holder in self._world.held.items() if holder is not self}

    def probe(self) -> None:
        self._answer("probe", self._look)

    def _look(self) -> None:
        if self._world.missing:
            raise statements.signals_missing(PLACE, sorted(self._world.missing))

    def clusters(self) -> Mapping[str, ComputeCluster]:
        def read() -> dict[str, ComputeCluster]:
            return {
                each.name: ComputeCluster(
                    each.cluster_id,
                    each.name,
                    {
                        name: ReplicaSpec(replica.size)
                        for name, replica in sorted(each.replicas.items())
                        if name not in RESERVED_REPLICAS
                    },
                    each.managed,
                )
                for each in self._world.clusters.values()
            }

        self._look()
        return self._answer("select clusters", read, ("SELECT", "mz_catalog.mz_clusters"))

    def observe(
        self, clusters: Collection[ComputeCluster], *, now: datetime, lookback: timedelta | None
    ) -> Mapping[str, Signals]:
        self._look()
        held = {each.cluster_id: each for each in self._world.clusters.values()}
        self._answer("select sizes", lambda: None)
        self._answer("select activity", lambda: None, ("SELECT", "mz_internal.mz_statement_execution_history_redacted"))
        self._answer("select hydration", lambda: None, ("SELECT", "mz_internal.mz_hydration_statuses"))
        self._answer("select crashes", lambda: None)
        since = None if lookback is None else now - lookback
        return {
            each.cluster_id: self._signals(held[each.cluster_id], now, since)
            if each.cluster_id in held
            else Signals(now, self._world.sizes)
            for each in clusters
        }

    def _signals(self, cluster: HeldCluster, now: datetime, since: datetime | None) -> Signals:
        seen = [
            max(filter(None, (began, finished)))
            for application_name, began, finished in cluster.statements
            if application_name != self._application_name
        ]
        crashes = {
            name: [reason for at, reason in replica.crashes.items() if at >= now - CRASHES_COUNT_FOR]
            for name, replica in cluster.replicas.items()
        }
        return Signals(
            now,
            self._world.sizes,
            max((at for at in seen if since is None or at >= since), default=None),
            _hydrated(cluster),
            {
                name: Crashes(len(reasons), sum("oom" in reason.lower() for reason in reasons))
                for name, reasons in crashes.items()
                if reasons
            },
        )

    def sizes(self) -> SizeTable:
        self._look()
        return self._answer("select sizes", lambda: self._world.sizes)

    def hydrated(self, cluster_id: str) -> frozenset[str]:
        def read() -> frozenset[str]:
            found = (each for each in self._world.clusters.values() if each.cluster_id == cluster_id)
            return next((_hydrated(each) for each in found), frozenset())

        return self._answer("select hydration", read, ("SELECT", "mz_internal.mz_hydration_statuses"))

    def strategies(self) -> Mapping[tuple[str, str], StrategyRow]:
        return self._answer("select strategies", lambda: newest_strategies(self._world.strategy_rows or ()))

    def states(self) -> Mapping[str, Any]:
        def read() -> Mapping[str, Any]:
            found = (
                (owner, read_payload(version, payload), at)
                for owner, version, payload, at in self._world.state_rows or ()
            )
            return newest_states(StateRow(owner, state, at) for owner, state, at in found if state is not None)

        return self._answer("select states", read)

    def state_owners(self) -> frozenset[str]:
        return self._answer("select owners", lambda: frozenset(row[0] for row in self._world.state_rows or ()))

    def audited(self, cluster_ids: Collection[str], *, since: datetime) -> Sequence[AuditRow]:
        def read() -> list[AuditRow]:
            rows = [row for row in self._world.audit_rows or () if row.cluster_id in cluster_ids]
            return sorted((row for row in rows if _time(row) >= since), key=lambda row: (_time(row), row.action_id))

        return self._answer("select actions", read)

    def activity(
        self, cluster_ids: Collection[str], *, since: datetime
    ) -> Mapping[str, Sequence[tuple[datetime, datetime]]]:
        self._look()
        needs = ("SELECT", "mz_internal.mz_statement_execution_history_redacted")
        self._answer("select activity", lambda: None, needs)
        found: dict[str, dict[datetime, list[tuple[datetime, datetime]]]] = {}
        for held in self._world.clusters.values():
            for application_name, began, finished in held.statements:
                last = max(filter(None, (began, finished)))
                if held.cluster_id in cluster_ids and application_name != self._application_name and last >= since:
                    minute = began.replace(second=0, microsecond=0)
                    found.setdefault(held.cluster_id, {}).setdefault(minute, []).append((began, last))
        return {
            owner: [(min(a for a, _ in each), max(b for _, b in each)) for _, each in sorted(minutes.items())]
            for owner, minutes in found.items()
        }

    def try_lock(self, key: str) -> bool | None:
        def take() -> bool | None:
            if not self._world.locks:
                return None
            return self._world.held.setdefault(key, self) is self

        return self._answer("lock", take)

    def create_tables(self) -> None:
        world = self._world

        def create() -> None:
            world.strategy_rows = world.strategy_rows or []
            world.state_rows = world.state_rows or []
            world.audit_rows = world.audit_rows or []

        self._answer("create tables", create)

    def replace_strategies(self, rows: Collection[StrategyRow], *, at: datetime) -> None:
        if not rows:
            return
        pairs = {(row.cluster_id, row.strategy_type) for row in rows}
        there = self._answer("select times", lambda: [row for row in self._strategy_rows() if _pair(row) in pairs])
        at = max((at, *(row.updated_at + _TICK for row in there if row.updated_at is not None)))

        def insert() -> None:
            self._strategy_rows().extend(replace(row, config=_stored(row.config), updated_at=at) for row in rows)

        def prune() -> None:
            kept = [row for row in self._strategy_rows() if _pair(row) not in pairs or row.updated_at == at]
            self._world.strategy_rows = kept

        self._answer("insert strategies", insert, ("INSERT", "mz_cluster_strategies"))
        self._answer("delete strategies", prune)

    def delete_strategies(self, pairs: Collection[tuple[str, str]]) -> None:
        def delete() -> None:
            self._world.strategy_rows = [row for row in self._strategy_rows() if _pair(row) not in pairs]

        def delete_states() -> None:
            rows = self._state_rows()
            self._world.state_rows = [row for row in rows if (row[0], row[2].get("strategy_type")) not in pairs]

        if pairs:
            self._answer("delete strategies", delete)
            self._answer("delete states", delete_states)

    def replace_states(self, cluster_id: str, states: Iterable[StrategyState], *, at: datetime) -> None:
        payloads = {state.strategy.value: _stored(state.payload) for state in states}
        if not payloads:
            return

        def ours(row: tuple[str, int, Mapping[str, Any], datetime | None]) -> bool:
            return row[0] == cluster_id and row[2].get("strategy_type") in payloads

        there = self._answer("select times", lambda: [row[3] for row in self._state_rows() if ours(row)])
        at = max((at, *(time + _TICK for time in there if time is not None)))

        def insert() -> None:
            self._state_rows().extend((cluster_id, STATE_VERSION, payload, at) for payload in payloads.values())

        def prune() -> None:
            self._world.state_rows = [row for row in self._state_rows() if not ours(row) or row[3] == at]

        self._answer("insert states", insert, ("INSERT", "mz_cluster_strategy_state"))
        self._answer("delete states", prune)

    def wipe_states(self, cluster_ids: Collection[str]) -> int:
        def wipe() -> int:
            rows = self._world.state_rows or []
            kept = [row for row in rows if row[0] not in cluster_ids]
            self._world.state_rows = None if self._world.state_rows is None else kept
            return len(rows) - len(kept)

        return self._answer("wipe states", wipe)

    def recreate_states(self) -> None:
        self._answer("drop states", lambda: setattr(self._world, "state_rows", None))
        self._answer("create states", lambda: setattr(self._world, "state_rows", []))

    def audit(self, row: AuditRow) -> None:
        def insert() -> None:
            rows = self._world.audit_rows
            if rows is None:
                raise Refused('relation "mz_cluster_strategy_actions" does not exist', "42P01")
            if all(each.action_id != row.action_id for each in rows):
                rows.append(replace(row, decision_ctx=_stored(row.decision_ctx), created_at=self._world.now))

        self._answer("audit", insert, ("INSERT", "mz_cluster_strategy_actions"))

    def create_replica(self, cluster: str, replica: str, size: str) -> ReplicaResult:
        def create(held: HeldCluster) -> None:
            if replica in held.replicas:
                raise Refused(f"cannot create multiple replicas named '{replica}' on cluster '{cluster}'")
            if size not in self._world.sizes.credits:
                raise Refused(f"unknown cluster replica size {size}")
            if held.single and held.replicas:
                raise Refused("cannot create more than one replica of a cluster containing sources or sinks")
            self._world.add_replica(cluster, replica, size)

        return self._replica(statements.create_replica(cluster, replica, size), cluster, create)

    def drop_replica(self, cluster: str, replica: str) -> ReplicaResult:
        return self._replica(
            statements.drop_replica(cluster, replica), cluster, lambda held: held.replicas.pop(replica, None) and None
        )

    def _replica(self, sql: str, cluster: str, effect: Callable[[HeldCluster], None]) -> ReplicaResult:
        def carry_out() -> None:
            held = self._world.clusters.get(cluster)
            if held is None:
                raise Refused(f"unknown cluster '{cluster}'")
            if held.managed:
                raise Refused(f"cannot modify managed cluster {cluster}")
            effect(held)

        try:
            self._statement(sql, carry_out)
        except Refused as error:
            return ReplicaResult(statements.outcome_of(error.message, error.state), error.message)
        except Cut as error:
            return ReplicaResult(statements.outcome_of(str(error), None), str(error))
        return ReplicaResult(ReplicaOutcome.DONE)

    def _answer(self, text: str, effect: Callable[[], T], needs: tuple[str, str] | None = None) -> T:
        """What a statement gives; its failures are those of the port."""
        try:
            if needs is not None and needs in self._world.denied:
                raise statements.denied(PLACE, self._role, *needs, "permission denied")
            return self._statement(text, effect)
        except Refused as error:
            raise self._problem(error) from error
        except Cut as error:
            raise statements.unreachable(PLACE, str(error)) from error

    def _problem(self, error: Refused) -> RemoteError:
        if error.state == "57014":
            return statements.unreachable(PLACE, error.message)
        return statements.failed(PLACE, error.message)

    def _statement(self, text: str, effect: Callable[[], T]) -> T:
        world = self._world
        if not world.reachable:
            raise Cut("connection refused")
        world.statements += 1
        world.log.append(text)
        fault = world.faults.pop(world.statements, None)
        if fault is Fault.CUT_BEFORE:
            raise Cut("server closed the connection unexpectedly")
        if fault is Fault.ERROR:
            raise Refused("something unexpected happened")
        if fault is Fault.CANCELLED:
            raise Refused("canceling statement due to statement timeout", "57014")
        try:
            return effect()
        finally:
            if fault is Fault.CUT_AFTER:
                raise Cut("server closed the connection unexpectedly")

    def _strategy_rows(self) -> list[StrategyRow]:
        if self._world.strategy_rows is None:
            raise Refused('relation "mz_cluster_strategies" does not exist', "42P01")
        return self._world.strategy_rows

    def _state_rows(self) -> list[tuple[str, int, Mapping[str, Any], datetime | None]]:
        if self._world.state_rows is None:
            raise Refused('relation "mz_cluster_strategy_state" does not exist', "42P01")
        return self._world.state_rows


def _pair(row: StrategyRow) -> tuple[str, str]:
    return row.cluster_id, row.strategy_type


def _time(row: AuditRow) -> datetime:
    assert row.created_at is not None
    return row.created_at


def _hydrated(cluster: HeldCluster) -> frozenset[str]:
    """A replica of a cluster without objects has nothing to read: it is hydrated once it is online."""
    return frozenset(
        name
        for name, each in cluster.replicas.items()
        if name not in RESERVED_REPLICAS and (each.hydrated if cluster.objects else each.online)
    )


def _stored(form: Mapping[str, Any]) -> Mapping[str, Any]:
    """As JSON gives it back."""
    stored: Mapping[str, Any] = json.loads(json.dumps(dict(form)))
    return stored
