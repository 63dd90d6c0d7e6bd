"""Drift: where the live graphs and texts differ from the ledger's records, and which drift blocks a merge.

With `apply.on_drift: block`, no part of a merge is applied while drift of its cluster is open:

1. All drift of the cluster counts, including graphs that the merge does not touch, because the person who changed a
   graph manually may depend on everything else.
2. Unrecorded drift is open, unless the merge declares exactly the live state: then its apply accepts it.
3. Drift that a refresh recorded is open while the plan would not resolve it, because its change waits for an approval
   or something else.
4. A plan without changes is never blocked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import StrEnum

from gitops.cluster.model.address import Address, Kind, graph_address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.probe import probe_graph
from gitops.cluster.session.session import VANISHED, Session, verify_catalog
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.database.graph.port import Existence
from gitops.database.storage.parallel import in_parallel

_LEFT = (Disposition.BLOCKED, Disposition.DEFERRED)


class DriftKind(StrEnum):
    """Kind of drift.

    SCHEMA: a graph accepts a different schema. VANISHED: an applied graph is missing without a delete. CATALOG: the text of
    a query or policy is not the applied one. HOST: a machine has another item than the applied one.
    """

    SCHEMA = "schema"
    VANISHED = "vanished"
    CATALOG = "catalog"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class DriftItem:
    """One resource that differs. `recorded` and `live` are digests; `live` is None if nothing exists.

    `source` is the live schema, and `path` is the file in the cluster folder that declares it. If both are known, a
    change to files can declare the live schema.
    """

    address: Address
    kind: DriftKind
    recorded: str
    live: str | None = None
    detail: str = ""
    path: str | None = None
    source: bytes | None = None

    @property
    def adoptable(self) -> bool:
        """Whether you can declare the drift by changing files."""
        return self.path is not None and self.source is not None


def find_drift(
    current: Session, state: LedgerState, problems: Diagnostics, *, moving: Collection[str] = (), files: bool = False
) -> Iterator[DriftItem]:
    """Yield the differences from a state, except in the graphs `moving`. Reports unreadable items as errors.

    With `files`, a graph that lacks a data file counts as unreadable.
    """
    yield from _schema_drift(current, state, problems, moving, files=files)
    found = Diagnostics()
    verify_catalog(current.opened.ledger, state, found)
    for problem in found:
        if problem.code == Code.CATALOG_PAYLOAD_READ_ERROR:
            # If something cannot be read, that is a problem, not a difference.
            problems.extend([problem])
        else:
            recorded = state.resources[Address(problem.path)].digest
            yield DriftItem(Address(problem.path), DriftKind.CATALOG, recorded, detail=problem.message)


def _schema_drift(
    current: Session, state: LedgerState, problems: Diagnostics, moving: Collection[str], *, files: bool
) -> Iterator[DriftItem]:
    schemas = [each for each in sorted(state.resources) if each.kind is Kind.SCHEMA and each.name not in moving]
    stores = current.opened
    probes = in_parallel(lambda each: probe_graph(stores, each.name, files=files), schemas, stores.workers)
    for schema, (observed, error) in zip(schemas, probes, strict=True):
        graph, recorded = graph_address(schema.name), state.resources[schema].digest
        if observed.existence is Existence.ABSENT:
            yield DriftItem(graph, DriftKind.VANISHED, recorded, detail=VANISHED)
        elif observed.reading is None:
            problems.add(Code.GRAPH_OBSERVATION_ERROR, graph, error or "the graph cannot be read")
        elif observed.live != recorded:
            declared = current.desired.resources.get(schema)
            yield DriftItem(
                schema,
                DriftKind.SCHEMA,
                recorded,
                digest(observed.reading.schema_source),
                "the live schema is not the applied one",
                None if declared is None else declared.path,
                observed.reading.schema_source,
            )


def open_drift(
    current: Session, plan: Plan, state: LedgerState, moving: Collection[str], *, live: bool
) -> tuple[Diagnostic, ...]:
    """Return the drift that prevents the plan from being applied, if the rules block applies instead of only warning.

    `moving` are the ids of graphs that an interrupted run is changing. Graphs are read if they are accessible, or with
    `live`; otherwise only recorded drift is known, and the session gets a warning.
    """
    if not any(change.disposition is Disposition.APPLIED for change in plan.changes):
        return ()
    found, after, chosen = Diagnostics(), current.desired.digests(), current.workspace.selected
    remedy = (
        f"record the live state: gitops refresh{chosen}; then restore the declared state: gitops apply{chosen}; "
        f"or declare the live state: gitops bot drift{chosen}"
    )
    left = {c.address.graph or c.address for c in plan.changes if c.disposition in _LEFT}
    for address in sorted(state.drifted):
        if (address.graph or address) in left and address.graph not in moving:
            found.add(Code.DRIFT_OPEN, address, "a refresh recorded drift that this plan leaves as it is", fix=remedy)
    if not (live or current.opened.data_at_hand):
        detail = "graphs are not read here; gitops apply reads them before it changes anything"
        current.problems.add(Code.DRIFT_UNKNOWN, "apply.on_drift", detail)
        return tuple(found)
    for item in find_drift(current, state, found, moving=moving):
        declared = after.get(item.address)
        is_accepted = item.recorded != declared if item.kind is DriftKind.CATALOG else item.live == declared
        if not is_accepted and item.address not in state.vanished:
            found.add(
                Code.DRIFT_OPEN, item.address, f"{item.detail}; nothing is applied until it is settled", fix=remedy
            )
    return tuple(found)
