"""`ready`: whether the applied revision can be served, and what a server would serve of it.

Rules:

1. Only what is applied counts: graphs, queries, policies and bindings come from the ledger and its catalog, and of
   `cluster.yaml` only the place of the ledger is read. What is declared and not applied never shows.
2. No lock is taken, and a held lock does not matter: the ledger is read as one snapshot.
3. Every problem is reported in one run, and whatever cannot be checked is a problem.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from gitops.cluster.catalog import applied_query, catalog_text
from gitops.cluster.observations import RECOVERIES, STATE_FILE, observe, read_at_once
from gitops.cluster.workspace import Stores, Workspace
from gitops.config.cluster_yaml import load_header
from gitops.config.compiler import LanguageCompiler
from gitops.config.reader import SourceFile
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.language.schema import Schema
from gitops.ledger.port import BlobReading, LedgerReader, LedgerView
from gitops.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, is_name, schema_address
from gitops.model.ledger import LedgerState, LockObservation
from gitops.model.outcome import ReadyOutcome, ServedGraph, StateObservations
from gitops.storage.parallel import in_parallel


def ready(workspace: Workspace) -> ReadyOutcome:
    """Check the applied revision as a server does before it starts. Writes nothing."""
    header, problems = load_header(workspace.tree)
    seen = StateObservations()
    graphs: tuple[ServedGraph, ...] = ()
    cluster_policy: str | None = None
    try:
        if header is not None:
            stores = workspace.open_stores(header.storage)
            held, view = _read_ledger(stores.ledger, problems)
            seen = observe(stores.ledger, view, held, workspace.clock.now())
            if view.state is not None:
                graphs, cluster_policy = _Inspection(stores, view.state, problems).run()
    except GitopsError as error:
        problems.add_error(error)
    return ReadyOutcome(
        config_dir=workspace.config_dir,
        observations=seen,
        graphs=graphs,
        cluster_policy=cluster_policy,
        diagnostics=tuple(problems),
    )


def _read_ledger(ledger: LedgerReader, problems: Diagnostics) -> tuple[LockObservation, LedgerView]:
    """The lock and the ledger; a ledger that is missing or unreadable, and operations that are not settled, are errors."""
    held, listing, view = read_at_once(ledger)
    problems.extend(view.problems)
    if not view.found:
        problems.add(Code.CLUSTER_STATE_MISSING, STATE_FILE, "the cluster has no ledger yet")
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem, severity=Severity.ERROR)
    names = sorted([i.operation_id for i in listing.intents] + [u.name for u in listing.unreadable])
    if names:
        detail = f"{len(names)} interrupted operation(s) are not settled: {', '.join(names[:5])}; apply settles them"
        problems.add(Code.CLUSTER_RECOVERY_PENDING, RECOVERIES, detail, severity=Severity.ERROR)
    return held, view


class _Inspection:
    """The checks of one recorded state; each part is read once."""

    def __init__(self, stores: Stores, state: LedgerState, problems: Diagnostics) -> None:
        self._stores = stores
        self._state = state
        self._compiler = LanguageCompiler(problems)
        self._found = problems
        self._schemas: dict[str, Schema | None] = {}
        self._queries: dict[str, list[str]] = defaultdict(list)
        self._bound: dict[str, list[str]] = defaultdict(list)
        self._blobs: dict[Address, BlobReading] = {}
        self._live: dict[Address, bytes | GitopsError] = {}

    def run(self) -> tuple[tuple[ServedGraph, ...], str | None]:
        """Check everything. Returns the graphs, in order of their ids, and the policy of the cluster; nothing after errors."""
        addresses = sorted(self._state.resources)
        self._read(addresses)
        for address in addresses:
            if address.kind is Kind.GRAPH and is_name(address.name):
                self._graph(address)
        if not self._schemas:
            fix = None if self._state.resources else "apply the cluster: gitops apply"
            self._found.add(Code.CLUSTER_EMPTY, "graphs", "no graph is applied", fix=fix)
        for address in addresses:
            if address.kind is Kind.QUERY:
                self._query(address)
            elif address.kind is Kind.POLICY:
                self._policy(address)
        for scope, names in sorted(self._bound.items()):
            if len(names) > 1:
                self._found.add(Code.POLICY_SCOPE_CONFLICT, scope, f"bound by {', '.join(names)}")
        if self._found.has_errors:
            return (), None
        policies = {scope: names[0] for scope, names in self._bound.items()}
        served = tuple(
            ServedGraph(
                graph_id=graph,
                uri=self._stores.graph_uri(graph),
                schema_digest=self._state.resources[schema_address(graph)].digest,
                queries=tuple(self._queries[graph]),
                policy=policies.get(graph_address(graph)),
            )
            for graph in self._schemas
        )
        return served, policies.get(CLUSTER_SCOPE)

    def _read(self, addresses: Sequence[Address]) -> None:
        """Read all blobs and schemas; where answers are slow, many at the same time."""
        stores, resources = self._stores, self._state.resources

        def read_schema(graph: Address) -> bytes | GitopsError:
            try:
                uri = stores.graph_uri(graph.name)
                source = stores.engine.read(uri).schema_source
                stores.engine.check_files(uri)
            except GitopsError as error:
                return error
            return source

        blobs = [a for a in addresses if a.kind in (Kind.QUERY, Kind.POLICY)]
        readings = in_parallel(lambda a: stores.ledger.blob(a, resources[a].digest), blobs, stores.ledger.parallel)
        self._blobs = dict(zip(blobs, readings, strict=True))
        graphs = [
            a for a in addresses if a.kind is Kind.GRAPH and is_name(a.name) and schema_address(a.name) in resources
        ]
        self._live = dict(zip(graphs, in_parallel(read_schema, graphs, stores.ledger.parallel), strict=True))

    def _graph(self, address: Address) -> None:
        self._schemas[address.name] = None
        schema = self._state.resources.get(schema_address(address.name))
        if schema is None:
            self._found.add(Code.GRAPH_UNREADABLE, address, "the ledger records no schema of the graph")
            return
        source = self._live[address]
        if isinstance(source, GitopsError):
            self._found.add(source.code, address, source.detail)
            return
        file = SourceFile(schema_address(address.name), source)
        if file.digest != schema.digest:
            detail = f"the live schema is {file.digest[:12]}, the applied one {schema.digest[:12]}; refresh, then apply"
            self._found.add(Code.GRAPH_UNREADABLE, address, detail)
            return
        self._schemas[address.name] = self._compiler.schema(file, address)

    def _query(self, address: Address) -> None:
        file = catalog_text(self._blobs[address], address, self._found)
        graph = address.graph or ""
        if graph not in self._schemas:
            self._found.add(Code.DANGLING_GRAPH_REFERENCE, address, f"graph {graph} is not applied")
            return
        schema = self._schemas[graph]
        if file is None or schema is None:
            return
        if applied_query(file, schema, address, self._compiler, self._found) is not None:
            self._queries[graph].append(address.name)

    def _policy(self, address: Address) -> None:
        catalog_text(self._blobs[address], address, self._found)
        bindings = self._state.resources[address].applies_to
        if not bindings:
            self._found.add(Code.POLICY_BINDINGS_MISSING, address, "the ledger does not record what it applies to")
        for scope in bindings or ():
            if scope != CLUSTER_SCOPE and Address(scope).graph not in self._schemas:
                # A policy of several graphs stays as it is until all are gone that the folder declares no longer.
                if self._state.observations.get(Address(scope), {}).get("kind") == "tombstone":
                    continue
                self._found.add(Code.POLICY_BINDING_UNKNOWN, address, f"{scope} is not applied")
            self._bound[scope].append(address.name)
