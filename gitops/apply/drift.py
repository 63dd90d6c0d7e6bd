"""`drift`: compare what is really there with what the ledger records, and write nothing.

`refresh` writes into the ledger what it sees, which makes it the new truth. This only looks: what becomes of a difference is for
people to decide.
"""

from __future__ import annotations

from collections.abc import Iterator

from gitops.apply.drift_report import DriftItem, DriftKind, DriftOutcome
from gitops.apply.observe import probe_graph
from gitops.cluster.catalog import verify_catalog
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Workspace
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.graph.observation import Existence
from gitops.model.address import Address, Kind, graph_address, is_name


def drift(workspace: Workspace) -> DriftOutcome:
    """Look at every recorded graph, and at every text of the catalog."""
    return in_session(workspace, "drift", StateNeed.REQUIRED, _drift, exclusive=False)


def _drift(current: Session) -> DriftOutcome:
    items: tuple[DriftItem, ...] = ()
    if current.ready and _settled(current):
        items = (*_graphs(current), *_catalog(current))
    return DriftOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        items=items,
        diagnostics=tuple(current.problems),
    )


def _settled(current: Session) -> bool:
    """Whether no operation is in the middle: what one has done so far is no drift."""
    listing = current.opened.ledger.intents()
    if listing.problem is None and not listing.intents and not listing.unreadable:
        return True
    detail = listing.problem or "an interrupted operation is not settled; apply settles it"
    current.problems.add(Code.CLUSTER_RECOVERY_PENDING, "__cluster/recoveries", detail, severity=Severity.ERROR)
    return False


def _graphs(current: Session) -> Iterator[DriftItem]:
    for address in sorted(current.state.resources):
        if address.kind is Kind.SCHEMA and is_name(address.name):
            yield from _graph(current, address)


def _graph(current: Session, schema: Address) -> Iterator[DriftItem]:
    recorded = current.state.resources[schema].digest
    seen, error = probe_graph(current.opened, schema.name)
    graph = graph_address(schema.name)
    if seen.existence is Existence.ABSENT:
        yield DriftItem(graph, DriftKind.MISSING, recorded, detail="the graph root does not exist")
    elif seen.reading is None:
        current.problems.add(Code.GRAPH_OBSERVATION_ERROR, graph, error or "the graph cannot be read")
    else:
        source = seen.reading.schema_source
        live = digest(source)
        if live != recorded:
            declared = current.desired.resources.get(schema)
            path = None if declared is None else declared.path
            detail = "the live schema is not the applied one"
            yield DriftItem(schema, DriftKind.SCHEMA, recorded, live, detail, path, source)


def _catalog(current: Session) -> Iterator[DriftItem]:
    """Blobs that are missing or say something else; one that cannot be read is a problem, not a difference."""
    found = Diagnostics()
    verify_catalog(current.opened.ledger, current.state, found)
    for problem in found:
        if problem.code == Code.CATALOG_PAYLOAD_READ_ERROR:
            current.problems.extend([problem])
        else:
            address = Address(problem.path)
            recorded = current.state.resources[address].digest
            yield DriftItem(address, DriftKind.CATALOG, recorded, detail=problem.message)
