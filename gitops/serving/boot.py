"""Turns a verified revision into a generation, both for a server that starts and for `gitops ready`.

1. Bundles are read and bound to the server and to graphs. A problem in the server's bundle is fatal. A problem in any
   other bundle counts as a problem with each graph that it is bound to.
2. Each graph is opened and compared with its record in the ledger. Its stored queries are parsed, found by their names,
   and checked against the live schema.
3. Each policy is compiled for its bindings.

All problems are reported in one run, in this order. A problem with one graph makes the boot fail, unless a degraded
boot is allowed. In that case, the graph is quarantined, and the boot fails only if no graph is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.model.address import CLUSTER_SCOPE, graph_address, is_servable, policy_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.outcome import OfferedGraph as ReadyGraph
from gitops.cluster.model.outcome import ReadyOutcome, StateObservations
from gitops.cluster.plan.draft import UNKNOWN_DATA
from gitops.cluster.policy.bind import BoundBundle, Enforced, bind
from gitops.cluster.policy.decide import PolicyEngine
from gitops.cluster.policy.read import read_bundle
from gitops.cluster.session.session import observe, read_at_once
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.canonical import digest
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.graph.port import GraphReading
from gitops.database.language.schema import Schema
from gitops.database.storage.parallel import in_parallel
from gitops.serving.generation import (
    AppliedRevision,
    Compiled,
    Generation,
    ServedGraph,
    StoredQuery,
    TextOfGraph,
    verify_revision,
)

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache

CompilePolicy = Callable[[Enforced], PolicyEngine]
"""Compiles a policy for its bindings. Raises GitopsError `policy_invalid`."""

_OPENED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class BootRules:
    """Rules for what prevents a boot.

    With `allow_degraded`, the remaining graphs are served if some have problems. With `strict_schema`, a live schema
    that differs from the applied one is a problem.
    """

    allow_degraded: bool = False
    strict_schema: bool = False


def boot(
    revision: AppliedRevision,
    stores: Stores,
    rules: BootRules,
    found: Diagnostics,
    *,
    compile_policy: CompilePolicy | None,
    compiled: Compiled,
    rows: Callable[[], ReadCache] | None = None,
) -> Generation | None:
    """Create a generation from a revision. If it must not be served, add the reasons to `found` and return None.

    `compiled` is shared with earlier generations of the process, and all graphs share the cache that `rows` creates.
    Without `rows` or `compile_policy`, the generation can only be inspected: policies are not compiled, and rows cannot
    be read.
    """
    run = _Boot(revision, stores, rules, found)
    run.bind_policies()
    graphs = run.open_graphs(compiled)
    engines = {} if compile_policy is None else run.compile_policies(compile_policy)
    quarantined = run.settle()
    if found.has_errors:
        return None
    # The driver starts threads, so it is loaded only after the last fork. A generation that is only inspected does not
    # need it.
    cache = cast("ReadCache", None if rows is None else rows())
    digests = {policy.address.name: policy.digest for policy in revision.policies}
    served = {
        graph: ServedGraph(
            graph_id=graph,
            uri=opened.uri,
            schema=opened.schema,
            schema_source=opened.schema.source,
            schema_digest=opened.schema_digest,
            queries=MappingProxyType(opened.queries),
            engine=engines.get(scope := graph_address(graph)),
            cache=cache,
            drifted=opened.schema_digest != revision.schemas[graph],
            policy=run.policy_of(scope),
            policy_digest=digests.get(run.policy_of(scope) or ""),
            seen=opened.seen,
        )
        for graph, opened in graphs.items()
        if graph not in quarantined
    }
    return Generation(
        revision=revision.identity,
        graphs=MappingProxyType(served),
        engine=engines.get(CLUSTER_SCOPE),
        quarantined=MappingProxyType(quarantined),
        guarded=revision.guarded,
        warnings=tuple(found),
        policy=run.policy_of(CLUSTER_SCOPE),
        policy_digest=digests.get(run.policy_of(CLUSTER_SCOPE) or ""),
        issuers=revision.issuers,
        use=revision.use,
    )


@dataclass(frozen=True, slots=True)
class _Opened:
    """An opened graph: its location, its live schema, and its queries that match that schema."""

    uri: str
    schema: Schema
    schema_digest: str
    queries: dict[str, StoredQuery]
    seen: Seen


class _Boot:
    """A single boot. Problems of a graph are collected separately from general ones."""

    def __init__(self, revision: AppliedRevision, stores: Stores, rules: BootRules, found: Diagnostics) -> None:
        self._revision = revision
        self._stores = stores
        self._rules = rules
        self._found = found
        self._broken: dict[str, Diagnostics] = defaultdict(Diagnostics)
        for graph, problems in revision.broken.items():
            self._broken[graph].extend(problems)
        self._enforced: Mapping[str, Enforced] = {}

    def policy_of(self, scope: str) -> str | None:
        """Return the name of the policy enforced on a scope."""
        enforced = self._enforced.get(scope)
        return None if enforced is None else enforced.policy

    def bind_policies(self) -> None:
        """Step 1."""
        bound, scopes = [], {policy.address: policy.scopes for policy in self._revision.policies}
        for policy in self._revision.policies:
            bundle, problems = read_bundle(policy.content, policy.address, policy.address)
            self._report(problems, policy.scopes)
            if bundle is not None:
                bound.append(BoundBundle(policy.address.name, bundle, policy.scopes, policy.address))
        self._enforced, problems = bind(bound)
        for problem in problems:
            self._report([problem], next((scopes[a] for a in scopes if a == problem.path), (CLUSTER_SCOPE,)))

    def open_graphs(self, compiled: Compiled) -> Mapping[str, _Opened]:
        """Step 2: return the graphs that could be opened, sorted by id."""
        graphs = list(self._revision.schemas)
        # Folders respond immediately, and threads would only compete for the interpreter.
        limit = min(_OPENED_AT_ONCE, self._stores.ledger.parallel)
        readings = in_parallel(self._read, graphs, limit)
        opened = {}
        texts: dict[str, list[TextOfGraph]] = {}
        for graph, (uri, found) in zip(graphs, readings, strict=True):
            problems = self._broken[graph]
            if not is_servable(graph):
                message = "a server takes ids of 1 to 64 letters, digits and -, and keeps some words for itself"
                problems.add(Code.GRAPH_ID_UNSERVABLE, graph_address(graph), message, severity=Severity.ERROR)
            if self._revision.schemas[graph] is None:
                problems.add(Code.GRAPH_UNREADABLE, graph_address(graph), "the ledger records no schema of the graph")
            if isinstance(found, GitopsError):
                problems.add(found.code, graph_address(graph), found.detail, severity=Severity.ERROR)
                continue
            self._compare_data(graph, found, problems)
            source = found.schema_source
            schema = compiled.schema(source, graph_address(graph), problems)
            if schema is not None:
                live = digest(source)
                applied = self._revision.schemas[graph]
                if applied not in (None, live):
                    message = f"the live schema is {live[:12]}, the applied one {(applied or '')[:12]}"
                    strict = self._rules.strict_schema and graph not in self._revision.dropping
                    severity = Severity.ERROR if strict else Severity.WARNING
                    problems.add(Code.SCHEMA_DRIFT, graph_address(graph), message, severity=severity)
                opened[graph] = _Opened(
                    uri, schema, live, {}, Seen(found.incarnation, found.rows, found.manifest_version)
                )
                texts[graph] = [TextOfGraph(text, schema, live) for text in self._revision.queries.get(graph, ())]
        if self._stores.ledger.parallel == 1:
            # A bucket client has threads, which a fork of this process would lack.
            compiled.check_many(text for of_graph in texts.values() for text in of_graph)
        for graph, of_graph in texts.items():
            for text in of_graph:
                query = compiled.query(text, self._broken[graph])
                if query is not None:
                    opened[graph].queries[query.name] = query
        return opened

    def compile_policies(self, compile_policy: CompilePolicy) -> Mapping[str, PolicyEngine]:
        """Step 3: return the policy engines by scope."""
        engines = {}
        for scope, enforced in self._enforced.items():
            try:
                engines[scope] = compile_policy(enforced)
            except GitopsError as error:
                problems = Diagnostics()
                problems.add(error.code, policy_address(enforced.policy), error.detail, fix=error.fix)
                self._report(problems, (scope,))
        return engines

    def settle(self) -> dict[str, tuple[Diagnostic, ...]]:
        """Return the graphs that are not served, with their problems.

        If the boot must fail, the reason is an error in `found`.
        """
        quarantined: dict[str, tuple[Diagnostic, ...]] = {}
        for graph, problems in sorted(self._broken.items()):
            if not problems.has_errors:
                self._found.extend(problems)
            elif self._rules.allow_degraded:
                quarantined[graph] = tuple(problems)
            else:
                self._found.extend(problems)
        graphs = self._revision.schemas
        if graphs and all(graph in quarantined for graph in graphs):
            for reasons in quarantined.values():
                self._found.extend(reasons)
            message = f"none of the applied graphs can be served ({len(graphs)} in all)"
            self._found.add(Code.CLUSTER_NO_HEALTHY_GRAPHS, "graphs", message)
        return quarantined

    def _read(self, graph: str) -> tuple[str, GraphReading | GitopsError]:
        """Return a graph's root, and its content or the reason why it cannot be opened."""
        stores, uri = self._stores, ""
        try:
            uri = stores.graph_uri(graph)
            found = stores.engine.read(uri)
            stores.engine.check_files(uri)
        except GitopsError as error:
            return uri, error
        return uri, found

    def _compare_data(self, graph: str, found: GraphReading, problems: Diagnostics) -> None:
        """Check that the graph at the root is the recorded one, and not an older copy."""
        recorded = self._revision.seen.get(graph)
        if recorded is None or recorded == UNKNOWN_DATA:
            return
        if found.incarnation != recorded.incarnation:
            message = f"the ledger records graph {recorded.incarnation}, but {found.incarnation} is at its root"
            fix = "record the graph that is there now: gitops refresh; then start the server again"
            problems.add(Code.GRAPH_REPLACED, graph_address(graph), message, fix=fix, severity=Severity.ERROR)
        elif found.manifest_version < recorded.version:
            message = (
                f"its newest version is {found.manifest_version}, but the ledger records version {recorded.version}"
            )
            problems.add(Code.GRAPH_REWOUND, graph_address(graph), message)

    def _report(self, problems: Iterable[Diagnostic], scopes: tuple[str, ...]) -> None:
        """Report a policy's problems.

        They are fatal if the policy guards the server, or guards nothing. Otherwise they count as problems of its graphs.
        """
        for problem in problems:
            graphs = [scope for scope in scopes if scope != CLUSTER_SCOPE]
            if problem.severity is Severity.WARNING or CLUSTER_SCOPE in scopes or not graphs:
                self._found.extend([problem])
                continue
            for scope in graphs:
                self._broken[scope.partition(".")[2]].extend([problem])


# `gitops ready`: checks like a boot whether the applied revision can be served, and shows what a server would serve.
#
# Only the ledger's location is read from `cluster.yaml`. Unapplied declarations have no effect.


def ready(workspace: Workspace) -> ReadyOutcome:
    """Check the applied revision as a server does at startup. Writes nothing."""
    header, found = load_header(workspace.tree)
    seen, generation = StateObservations(), None
    try:
        if header is not None:
            stores = workspace.open_stores(header.storage)
            seen, revision = see_revision(stores, workspace.clock, found)
            if revision is not None:
                generation = boot(revision, stores, BootRules(), found, compile_policy=None, compiled=Compiled())
    except GitopsError as error:
        found.add_error(error)
    return ready_outcome(workspace.config_dir, seen, generation, found)


def see_revision(stores: Stores, clock: Clock, found: Diagnostics) -> tuple[StateObservations, AppliedRevision | None]:
    """Return the observations of the lock and ledger, and the verified revision. Problems are added to `found`.

    Raises RemoteError if the ledger does not respond.
    """
    held, listing, view = read_at_once(stores.ledger)
    revision = verify_revision(stores.ledger, listing, view, found)
    return observe(stores.ledger, view, held, clock.now()), revision


def ready_outcome(
    place: str, seen: StateObservations, generation: Generation | None, found: Diagnostics
) -> ReadyOutcome:
    """Return a generation's served content, or the reason why it cannot start. `place` is shown unchanged.

    The reason why a graph is quarantined is only a warning, because the others are served.
    """
    graphs = () if generation is None or found.has_errors else tuple(generation.graphs.values())
    quarantined = () if generation is None else [each for of in generation.quarantined.values() for each in of]
    problems = [replace(each, severity=Severity.WARNING) for each in quarantined]
    return ReadyOutcome(
        config_dir=place,
        observations=seen,
        graphs=tuple(
            ReadyGraph(each.graph_id, each.uri, each.schema_digest, tuple(each.queries), each.policy) for each in graphs
        ),
        cluster_policy=None if generation is None or found.has_errors else generation.policy,
        diagnostics=(*found, *problems),
    )
