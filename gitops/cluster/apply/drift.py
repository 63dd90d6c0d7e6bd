"""`drift`: compares the live state with the ledger and writes nothing.

`refresh` records what it observes as applied. `drift` only reports a difference, and people decide what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from gitops.cluster.model.address import Address, Kind, graph_address
from gitops.cluster.model.outcome import StateObservations, VerbOutcome
from gitops.cluster.plan.probe import probe_graph
from gitops.cluster.session.session import RECOVERIES, VANISHED, Session, StateNeed, reading, verify_catalog
from gitops.cluster.session.workspace import Workspace
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.database.graph.port import Existence


class DriftKind(StrEnum):
    """Kind of drift.

    SCHEMA: a graph accepts a different schema. VANISHED: an applied graph is missing without a delete. CATALOG: the text of
    a query or policy is not the applied one.
    """

    SCHEMA = "schema"
    VANISHED = "vanished"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class DriftItem:
    """One resource that differs. `recorded` and `live` are digests; `live` is None if nothing exists.

    `source` is the live schema and `path` the file of the cluster folder that declares it, if both are known: then a change
    to files can declare the live schema.
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
        """True if a change to files can declare it."""
        return self.path is not None and self.source is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftOutcome(VerbOutcome):
    """The detected drift. An error among the diagnostics means that not everything could be compared."""

    observations: StateObservations
    items: tuple[DriftItem, ...] = ()

    @property
    def adoptable(self) -> bool:
        """True if a change to files can declare all of it."""
        return bool(self.items) and all(item.adoptable for item in self.items)


def drift(workspace: Workspace) -> DriftOutcome:
    """Compare every recorded graph, and every text in the catalog."""
    return reading(workspace, "drift", StateNeed.REQUIRED, _drift)


def _drift(current: Session) -> DriftOutcome:
    items: list[DriftItem] = []
    if current.ready:
        # What an interrupted operation has done so far is not drift.
        listing = current.opened.ledger.intents()
        if listing.problem is None and not listing.intents and not listing.unreadable:
            items = [*_schema_drift(current)]
            found = Diagnostics()
            verify_catalog(current.opened.ledger, current.state, found)
            for problem in found:
                if problem.code == Code.CATALOG_PAYLOAD_READ_ERROR:
                    # What cannot be read is a problem, not a difference.
                    current.problems.extend([problem])
                else:
                    recorded = current.state.resources[Address(problem.path)].digest
                    items.append(DriftItem(Address(problem.path), DriftKind.CATALOG, recorded, detail=problem.message))
        else:
            detail = listing.problem or "an interrupted operation is not settled; apply settles it"
            current.problems.add(Code.CLUSTER_RECOVERY_PENDING, RECOVERIES, detail, severity=Severity.ERROR)
    return DriftOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        items=tuple(items),
        diagnostics=tuple(current.problems),
    )


def _schema_drift(current: Session) -> Iterator[DriftItem]:
    for schema in sorted(current.state.resources):
        if schema.kind is not Kind.SCHEMA:
            continue
        graph, recorded = graph_address(schema.name), current.state.resources[schema].digest
        observed, error = probe_graph(current.opened, schema.name, files=True)
        if observed.existence is Existence.ABSENT:
            yield DriftItem(graph, DriftKind.VANISHED, recorded, detail=VANISHED)
        elif observed.reading is None:
            current.problems.add(Code.GRAPH_OBSERVATION_ERROR, graph, error or "the graph cannot be read")
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
