"""`graph queries`: lists a cluster's declared or applied stored queries with their contracts. Read-only.

1. Declared queries are in the folder; applied queries are recorded in the ledger, with their texts in its catalog.
2. Both are checked against the schema of their graph. An applied query with a problem is omitted, and for a folder with
   an error, nothing is listed. All problems are reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.compiler import LanguageCompiler
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.reader import SourceFile
from gitops.cluster.ledger.port import BlobCondition, BlobReading
from gitops.cluster.model.address import Address, Kind, graph_address, schema_address
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.outcome import VerbOutcome
from gitops.cluster.session.session import STATE_FILE
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.language.query import CheckedQuery
from gitops.database.language.schema import Schema
from gitops.database.language.suggest import choices
from gitops.database.language.text import LanguageError

# -- the catalog -------------------------------------------------------------------------------------------------------
# Texts in the ledger's catalog, and the stored queries in them, for verbs that read the applied revision.


_BLOBS = {
    BlobCondition.MISSING: Code.CATALOG_PAYLOAD_MISSING,
    BlobCondition.MISMATCH: Code.CATALOG_PAYLOAD_DIGEST_MISMATCH,
    BlobCondition.UNREADABLE: Code.CATALOG_PAYLOAD_READ_ERROR,
}


def catalog_text(reading: BlobReading, address: Address, found: Diagnostics) -> SourceFile | None:
    """Return a catalog blob as text. Adds problems to `found`."""
    code = _BLOBS.get(reading.condition)
    if code is not None or reading.content is None:
        detail = reading.detail or f"the blob is {reading.condition}"
        found.add(code or Code.CATALOG_PAYLOAD_READ_ERROR, address, detail, severity=Severity.ERROR)
        return None
    file = SourceFile(address, reading.content)
    if file.broken is not None:
        found.add(Code.CATALOG_PAYLOAD_INVALID, address, f"not UTF-8 at byte {file.broken.start}")
        return None
    return file


def applied_query(
    file: SourceFile, schema: Schema, address: Address, compiler: LanguageCompiler, found: Diagnostics
) -> CheckedQuery | None:
    """Return the query with this address, read from its text. Adds problems to `found`."""
    parsed = compiler.queries(file)
    if isinstance(parsed, LanguageError):
        compiler.report_query(parsed, file, address)
        return None
    query = next((each for each in parsed if each.name.text == address.name), None)
    if query is None:
        found.add(Code.QUERY_KEY_MISMATCH, address, "its file does not declare this query")
        return None
    return compiler.check(query, file, schema, address)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesOutcome(VerbOutcome):
    """Stored queries by graph, both sorted by name. `applied` means that they are the applied ones."""

    graphs: Mapping[str, tuple[CheckedQuery, ...]]
    applied: bool


def declared_queries(workspace: Workspace, graph: str | None = None) -> QueriesOutcome:
    """Return the declared queries of one graph or all graphs. Raises GitopsError `graph_unknown`."""
    loaded = load_desired(workspace.tree)
    declared = {} if loaded.desired is None else loaded.desired.graphs
    chosen = _chosen(declared, graph, "the folder declares") if loaded.desired is not None else ()
    found = {name: tuple(query for _, query in sorted(declared[name].queries.items())) for name in chosen}
    return QueriesOutcome(
        config_dir=workspace.config_dir, graphs=found, applied=False, diagnostics=tuple(loaded.diagnostics)
    )


def applied_queries(workspace: Workspace, graph: str | None = None) -> QueriesOutcome:
    """Return the applied queries of one graph or all graphs, without a lock. Raises GitopsError `graph_unknown`."""
    header, problems = load_header(workspace.tree)
    found: dict[str, tuple[CheckedQuery, ...]] = {}
    if header is not None:
        stores = workspace.open_stores(header.storage)
        view = stores.ledger.view()
        problems.extend(view.problems)
        if view.state is not None:
            found = _applied(workspace, stores, view.state, graph, problems)
        elif not view.found:
            problems.add(Code.CLUSTER_STATE_MISSING, STATE_FILE, "the cluster has no ledger yet")
    return QueriesOutcome(config_dir=workspace.config_dir, graphs=found, applied=True, diagnostics=tuple(problems))


def _applied(
    workspace: Workspace, stores: Stores, state: LedgerState, graph: str | None, problems: Diagnostics
) -> dict[str, tuple[CheckedQuery, ...]]:
    recorded: dict[str, list[CheckedQuery]] = defaultdict(list)
    names = sorted(address.name for address in state.resources if address.kind is Kind.GRAPH)
    compiler = LanguageCompiler(problems)
    for name in _chosen(names, graph, "the ledger records"):
        addresses = sorted(a for a in state.resources if a.kind is Kind.QUERY and a.graph == name)
        schema = _schema(workspace, stores, state, name, compiler) if addresses else None
        recorded[name] = []
        for address in addresses:
            file = catalog_text(stores.ledger.blob(address, state.resources[address].digest), address, problems)
            if file is None or schema is None:
                continue
            if (query := applied_query(file, schema, address, compiler, problems)) is not None:
                recorded[name].append(query)
    return {name: tuple(queries) for name, queries in recorded.items()}


def _schema(
    workspace: Workspace, stores: Stores, state: LedgerState, graph: str, compiler: LanguageCompiler
) -> Schema | None:
    """Return the applied schema of a graph, from git if available, otherwise from the live graph.

    Raises GitopsError.
    """
    address = schema_address(graph)
    recorded = state.resources.get(address)
    if recorded is None:
        raise GitopsError(Code.SCHEMA_NOT_RECORDED, f"the ledger records no schema of {graph}", path=address)
    source = workspace.accepted_schema(graph, recorded.digest)
    if source is None:
        source = stores.engine.read(stores.graph_uri(graph)).schema_source
    return compiler.schema(SourceFile(address, source), graph_address(graph))


def _chosen(names: Iterable[str], graph: str | None, where: str) -> list[str]:
    """Return all graphs, or only the selected one. Raises GitopsError `graph_unknown`."""
    known = sorted(names)
    if graph is None or graph in known:
        return known if graph is None else [graph]
    raise GitopsError(Code.GRAPH_UNKNOWN, f"{where} no graph {graph[:80]!r}{choices(graph, known)}", path="graphs")
