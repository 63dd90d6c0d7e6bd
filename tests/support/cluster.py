"""A cluster on the bench: a folder that tests edit, and the verbs on it over chosen stores, with fixed time and ids.

`Cluster(folder)` holds fixture F: graph `knowledge` with query `find_person`, and policy `base` bound to it. Change its
`graphs`, `policies` and files, then call verbs. Each verb call is a new run, as of another process: only stores survive.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster, refresh
from gitops.cluster.approving.approve import approve
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.documents import read_state, write_lock, write_state
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.layout import LOCK, STATE, graph_root
from gitops.cluster.ledger.port import LedgerStore
from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Change
from gitops.cluster.model.ledger import AppliedResource, LedgerState, LockInfo
from gitops.cluster.model.outcome import (
    ApplyOutcome,
    ApproveOutcome,
    PlanOutcome,
    ReadyOutcome,
    RefreshOutcome,
    StatusOutcome,
    UnlockOutcome,
    ValidateOutcome,
    VerbOutcome,
)
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.status import force_unlock, status
from gitops.cluster.session.validate import validate
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.diagnostics import Diagnostic
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.engine import LanceEngine
from gitops.database.graph.port import GraphEngine
from gitops.database.storage.local import LocalStore
from gitops.database.storage.port import ObjectStore
from gitops.serving.boot import ready
from tests.support.clock import FixedClock
from tests.support.ids import SequentialIds
from tests.support.memory_engine import MemoryEngine
from tests.support.memory_store import MemoryStore

SCHEMA = "node Person {\n  handle: String @key\n  born: I32?\n}\n"
WIDER = "node Person {\n  handle: String @key\n  born: I32?\n  city: String?\n}\n"
RETYPED = "node Person {\n  handle: String @key\n  born: Blob?\n}\n"
COMMENTED = "// people, living and dead\n" + SCHEMA
QUERY = "query find_person($h: String) {\n  match { $p: Person { handle: $h } }\n  return { $p.handle }\n}\n"
POLICY = "version: 1\nrules: []\n"
OTHER_QUERY = QUERY.replace("handle }", "born }")
GRAPH, QUERY_ADDRESS, SCHEMA_ADDRESS = "graph.knowledge", "query.knowledge.find_person", "schema.knowledge"
ALL = {GRAPH, "policy.base", QUERY_ADDRESS, SCHEMA_ADDRESS}
START = datetime(2026, 6, 11, 8, tzinfo=UTC)


class Cluster:
    """A cluster folder and its stores; see the module."""

    def __init__(self, folder: Path, *, memory: bool = False, engine: GraphEngine | None = None) -> None:
        """`memory` keeps the files of the ledger in memory; the engine is the in-memory twin unless one is given."""
        self.folder = folder
        self.clock = FixedClock(START)
        self.ids = SequentialIds()
        self.twin = MemoryEngine()
        self.engine: GraphEngine = engine or self.twin
        self.memory = MemoryStore() if memory else None
        self.reports = ServingReports(lambda: self.store)
        self.options: dict[str, Any] = {"metadata": {"name": "library"}}
        self.graphs: dict[str, dict[str, str]] = {"knowledge": {"find_person": "people.gq"}}
        self.policies: dict[str, list[str]] = {"base": ["knowledge"]}
        self.workers = 1
        self.write("people.gq", QUERY)
        self.write("knowledge.pg", SCHEMA)
        self.write("base.policy.yaml", POLICY)
        self.save()

    # The folder.

    def write(self, path: str, text: str) -> None:
        """Write a file of the folder."""
        (self.folder / path).write_text(text, encoding="utf-8")

    def save(self) -> None:
        """Write cluster.yaml; schemas and policies that have no file yet get that of the fixture."""
        for name, text in [(f"{g}.pg", SCHEMA) for g in self.graphs] + [
            (f"{p}.policy.yaml", POLICY) for p in self.policies
        ]:
            if not (self.folder / name).exists():
                self.write(name, text)
        document = {
            "version": 1,
            **self.options,
            "graphs": {
                graph: {"schema": f"{graph}.pg", "queries": {name: {"file": file} for name, file in queries.items()}}
                for graph, queries in self.graphs.items()
            },
            "policies": {
                name: {"file": f"{name}.policy.yaml", "applies_to": bindings}
                for name, bindings in self.policies.items()
            },
        }
        self.write("cluster.yaml", json.dumps(document, indent=1))

    def bind(self, policy: str, scopes: list[str]) -> None:
        """Bind a policy; each scope has one, so that other policies lose these, and those that have none left are gone."""
        others = {
            name: [s for s in bound if s not in scopes] for name, bound in self.policies.items() if name != policy
        }
        self.policies = {**{name: left for name, left in others.items() if left}, policy: scopes}

    def desired(self) -> DesiredState:
        """What the folder declares now."""
        loaded = load_desired(FolderTree(self.folder, confined=False))
        assert loaded.desired is not None, [d.message for d in loaded.diagnostics]
        return loaded.desired

    # The stores.

    @property
    def store(self) -> ObjectStore:
        """Where the files of the ledger are."""
        return self.memory or LocalStore(self.folder)

    def stored(self, key: str) -> bytes | None:
        """The bytes of one ledger file."""
        if self.memory is not None:
            return self.memory.read(key)
        path = self.folder / key
        return path.read_bytes() if path.is_file() else None

    def plant(self, key: str, data: bytes | None) -> None:
        """Put a ledger file as a hand or another release would leave it; None removes it."""
        self.store.delete(key) if data is None else self.store.write(key, data)

    def files(self, below: str = "__cluster") -> list[str]:
        """Keys of the ledger files below a folder of it, sorted."""
        if self.memory is not None:
            keys = self.memory.keys()
        else:
            keys = [p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file()]
        return sorted(key for key in keys if key.startswith(f"{below}/"))

    @property
    def sidecars(self) -> list[dict[str, Any]]:
        """The recovery sidecars as JSON."""
        keys = [key for key in self.files("__cluster/recoveries") if key.endswith(".json")]
        return [json.loads(self.stored(key) or b"") for key in keys]

    @property
    def state_bytes(self) -> bytes | None:
        """The state document."""
        return self.stored(STATE)

    @property
    def state(self) -> LedgerState:
        """The state document, read."""
        assert self.state_bytes is not None
        return read_state(self.state_bytes)

    @property
    def locked(self) -> bool:
        """Return whether a lock lies there."""
        return self.stored(LOCK) is not None

    def uri(self, graph: str) -> str:
        """The root of a graph."""
        return str(self.folder / graph_root(graph))

    def live(self, graph: str) -> str:
        """The schema text of the live graph."""
        return self.engine.read(self.uri(graph)).schema_source.decode()

    # Situations.

    def put_state(self, state: LedgerState) -> None:
        """Plant a ledger."""
        self.plant(STATE, write_state(state))

    def seed(self) -> None:
        """Plant a ledger that has the declared graphs and schemas and nothing else."""
        kept = {t: r for t, r in self.desired().resources.items() if r.address.kind in ("graph", "schema")}
        self.put_state(LedgerState(revision=1, resources={t: AppliedResource(r.digest) for t, r in kept.items()}))

    def converge(self) -> None:
        """Import if need be, and apply everything."""
        if self.state_bytes is None:
            assert self.import_().ok
        outcome = self.apply()
        assert outcome.ok, [d.message for d in outcome.diagnostics]
        assert outcome.converged

    def make_graph(self, graph: str, schema: str = SCHEMA) -> None:
        """Create a live graph behind the control plane's back."""
        self.engine.prepare_create(self.uri(graph), schema.encode(), actor=None).publish()

    def migrate_graph(self, graph: str, schema: str) -> None:
        """Change a live graph behind the control plane's back."""
        self.engine.prepare_migration(self.uri(graph), schema.encode(), actor=None).publish()

    def hold_lock(self, lock_id: str = "01JZ0000000000000000000CCC") -> bytes:
        """Take the lock as another process would, and return its bytes."""
        data = write_lock(LockInfo(lock_id, "apply", "2026-06-11T07:59:00Z", 4711))
        self.plant(LOCK, data)
        return data

    # The verbs.

    def workspace(self, actor: str | None = None, faults: Faults | None = None) -> Workspace:
        """One run's view of the cluster."""
        return Workspace(
            tree=FolderTree(self.folder, confined=False),
            config_dir=str(self.folder),
            open_stores=lambda _storage: Stores(
                self._ledger(faults or NoFaults()), self.engine, self.uri, reports=self.reports
            ),
            clock=self.clock,
            ids=self.ids,
            actor=actor,
            workers=self.workers,
            faults=faults or NoFaults(),
            pid=99,
        )

    def _ledger(self, faults: Faults) -> LedgerStore:
        return FolderLedger(self.store, clock=self.clock, faults=faults)

    def validate(self) -> ValidateOutcome:
        return validate(self.workspace())

    def plan(self) -> PlanOutcome:
        return plan(self.workspace())

    def apply(
        self,
        actor: str | None = None,
        faults: Faults | None = None,
        *,
        fail_fast: bool = False,
        keep_going: bool = False,
        atomic: bool = False,
    ) -> ApplyOutcome:
        workspace = self.workspace(actor, faults)
        return apply(replace(workspace, fail_fast=fail_fast, keep_going=keep_going, atomic=atomic))

    def ledger(self) -> LedgerStore:
        """The ledger, as another program opens it."""
        return self._ledger(NoFaults())

    def approve(self, address: str, actor: str = "sam") -> ApproveOutcome:
        return approve(self.workspace(actor), Address(address))

    def refresh(self, faults: Faults | None = None) -> RefreshOutcome:
        return refresh(self.workspace(faults=faults))

    def import_(self) -> RefreshOutcome:
        return import_cluster(self.workspace())

    def ready(self) -> ReadyOutcome:
        return ready(self.workspace())

    def status(self) -> StatusOutcome:
        return status(self.workspace())

    def unlock(self, lock_id: str) -> UnlockOutcome:
        return force_unlock(self.workspace(), lock_id)


def lance_engine() -> LanceEngine:
    """The real engine with fixed time and ids."""
    return LanceEngine(FixedClock(START), SequentialIds(500_000))


def gates(outcome: PlanOutcome | ApplyOutcome) -> dict[str, bool]:
    """The resources whose change needs an approval, and whether it has enough."""
    return {r.resource: r.satisfied for r in outcome.plan.approvals_required}


def remove_graph(cluster: Cluster, graph: str = "knowledge") -> None:
    """Drop a graph and what is bound to it from the configuration."""
    del cluster.graphs[graph]
    cluster.policies = {p: [b for b in bound if b != graph] for p, bound in cluster.policies.items()}
    cluster.policies = {p: bound for p, bound in cluster.policies.items() if bound}
    cluster.save()


def codes(outcome: VerbOutcome) -> list[str]:
    """The codes of an outcome, in emission order."""
    return [d.code for d in outcome.diagnostics]


def found(outcome: VerbOutcome, code: str) -> Diagnostic:
    """The one diagnostic of a code."""
    (problem,) = [d for d in outcome.diagnostics if d.code == code]
    return problem


def rulings(changes: tuple[Change, ...]) -> dict[str, str]:
    """Address to `operation disposition` or `operation disposition:reason`."""
    return {
        c.address: f"{c.action} {c.disposition}" + (f":{c.reason}" if c.reason is not None else "") for c in changes
    }


def statuses(state: LedgerState | None) -> dict[str, str]:
    """Address to `status` or `status:condition`."""
    assert state is not None
    return {t: ":".join([r.status.value, *r.conditions]) for t, r in sorted(state.statuses.items())}
