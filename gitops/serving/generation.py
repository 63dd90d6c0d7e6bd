"""A generation: one applied revision, verified, opened and immutable. Each request is answered from one generation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from gitops.cluster.ledger.port import IntentListing, LedgerReader, LedgerView
from gitops.cluster.ledger.use import use_rules
from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, is_name, schema_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.identity import TokenIssuer
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.model.use import UseRules
from gitops.cluster.plan.draft import recorded_data
from gitops.cluster.policy.decide import PolicyEngine
from gitops.cluster.session.queries import catalog_text
from gitops.cluster.session.session import RECOVERIES, STATE_FILE
from gitops.core.canonical import digest
from gitops.core.codes import REGISTRY, Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity, SourceRef
from gitops.core.errors import IntegrityError
from gitops.database import graph
from gitops.database.language.query import CheckedQuery, Query, check_query, parse_queries
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.text import LanguageError, SourceText
from gitops.database.storage.parallel import in_parallel
from gitops.serving.processes import in_children

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache, ReadTarget, Snapshot
    from gitops.database.language.query import CheckedQuery
    from gitops.database.language.schema import Schema

# Reads and verifies the applied revision of a ledger, which a server then serves until it reads the next one.
#
# 1. No lock is taken, and nothing is written. A held lock, statuses, approvals and unapplied declarations don't matter.
# 2. First the records of interrupted operations are listed, then the state is read, then each text in it, in the order
#    of addresses.
# 3. All problems are reported in one run. Anything that cannot be checked is a problem.
# 4. The verified texts are the ones in use: they are kept, and never read again by path.


@dataclass(frozen=True, slots=True)
class AppliedText:
    """An applied stored query or policy. For a policy, `scopes` are its normalized bindings."""

    address: Address
    digest: str
    content: bytes
    scopes: tuple[str, ...] = ()

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the query or policy as JSON, with UTF-8 content."""
        return {
            "address": self.address,
            "digest": self.digest,
            "content": self.content.decode(),
            "scopes": list(self.scopes),
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> AppliedText:
        """Rebuild a query or policy from the JSON that `form` returned."""
        return cls(Address(form["address"]), form["digest"], form["content"].encode(), tuple(form["scopes"]))


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """A verified revision: its stored queries and policies, and its schema digests by graph (None if not recorded).

    `queries` contains each graph's queries in name order. `broken` are the problems that prevent a graph from being
    served. `seen` are the graphs as last recorded, to detect a different graph or an older copy. `dropping` are graphs
    that still contain data that their applied schema lacks. `issuers` are the identity providers in the rules in force,
    and `use` is how these rules want calls to be recorded, None if they don't.
    """

    identity: RevisionIdentity
    schemas: Mapping[str, str | None]
    queries: Mapping[str, tuple[AppliedText, ...]]
    policies: tuple[AppliedText, ...]
    broken: Mapping[str, tuple[Diagnostic, ...]]
    seen: Mapping[str, Seen]
    dropping: tuple[str, ...] = ()
    issuers: tuple[TokenIssuer, ...] = ()
    use: UseRules | None = None

    @property
    def guarded(self) -> bool:
        """Return True if a policy is bound to the server or to an applied graph."""
        return any(policy.scopes for policy in self.policies)

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the revision as JSON, for another process of the same program."""
        return {
            "digest": self.identity.digest,
            "state_revision": self.identity.state_revision,
            "config_digest": self.identity.config_digest,
            "schemas": dict(self.schemas),
            "queries": {graph: [text.form for text in texts] for graph, texts in self.queries.items()},
            "policies": [text.form for text in self.policies],
            "broken": {graph: [each.to_json() for each in problems] for graph, problems in self.broken.items()},
            "seen": {graph: [each.incarnation, each.rows, each.version] for graph, each in self.seen.items()},
            "dropping": list(self.dropping),
            "issuers": [each.form for each in self.issuers],
            "use": None if self.use is None else self.use.form,
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> AppliedRevision:
        """Rebuild a revision from the JSON that `form` returned."""
        return cls(
            RevisionIdentity(form["digest"], form["state_revision"], form["config_digest"]),
            form["schemas"],
            {graph: tuple(map(AppliedText.of_form, texts)) for graph, texts in form["queries"].items()},
            tuple(map(AppliedText.of_form, form["policies"])),
            {
                graph: tuple(
                    Diagnostic(Code(p["code"]), Severity(p["severity"]), p["path"], p["message"], fix=p.get("fix"))
                    for p in problems
                )
                for graph, problems in form["broken"].items()
            },
            {graph: Seen(*each) for graph, each in form["seen"].items()},
            tuple(form["dropping"]),
            tuple(map(TokenIssuer.of_form, form["issuers"])),
            None if form["use"] is None else UseRules.of_form(form["use"]),
        )


def verify_revision(
    ledger: LedgerReader, listing: IntentListing, view: LedgerView, found: Diagnostics
) -> AppliedRevision | None:
    """Return a view's revision, taking into account the interrupted operations that were listed before it.

    Returns None if the state cannot be read. Problems that prevent serving are added to `found` as errors, except
    problems of a single graph, which are in the revision.
    """
    if listing.problem is not None and not view.problems:
        # If a ledger cannot be read, its operations cannot be listed either, for the same reason.
        found.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem, severity=Severity.ERROR)
    broken = _interrupted(listing, view.state, found)
    dropping = {intent.graph_id for intent in listing.intents if _only_drops(intent, view.state)}
    found.extend(view.problems)
    if not view.found:
        found.add(Code.CLUSTER_STATE_MISSING, STATE_FILE, "the cluster has no ledger yet")
    if view.state is None or view.cas is None:
        return None
    found_now = _StateVerification(ledger, view.state, found).revision(view.cas.rpartition(":")[2], broken, dropping)
    issuers = () if view.trust is None else sorted(view.trust.issuers, key=lambda each: each.issuer)
    return replace(found_now, issuers=tuple(issuers), use=use_rules(view))


def _interrupted(
    listing: IntentListing, state: LedgerState | None, found: Diagnostics
) -> Mapping[str, Sequence[Diagnostic]]:
    """Return, by graph, the problems that an interrupted operation may have left behind.

    If the graph is unknown, the problem is fatal. A pending deletion or drop of data outside the applied revision is
    only a warning, because servers must have released that data before.
    """
    for each in listing.unreadable:
        found.add(each.code, f"{RECOVERIES}/{each.name}", each.detail, severity=Severity.ERROR)
    broken: dict[str, Diagnostics] = defaultdict(Diagnostics)
    for intent in listing.intents:
        detail = f"{intent.kind} of {intent.address} was interrupted, and is not settled"
        place = f"{RECOVERIES}/{intent.operation_id}.json"
        if intent.kind is IntentKind.GRAPH_DELETE and state is not None and intent.address not in state.resources:
            detail = f"{intent.address} has left the cluster, but its data is not deleted yet"
            found.add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.WARNING)
            continue
        if _only_drops(intent, state):
            detail = f"types or properties that {intent.address} no longer declares are not dropped from its graph yet"
            found.add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.WARNING)
            continue
        broken[intent.graph_id].add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.ERROR)
    return {graph: tuple(problems) for graph, problems in broken.items()}


def _only_drops(intent: Intent, state: LedgerState | None) -> bool:
    """Return whether an operation only migrates a graph to the applied schema, after the commit.

    No query in the revision uses the graph's extra data, because each query is checked against the live schema.
    """
    recorded = None if state is None else state.resources.get(intent.address)
    wanted = intent.desired_schema_digest
    return intent.kind is IntentKind.SCHEMA_APPLY and recorded is not None and recorded.digest == wanted


class _StateVerification:
    """Verifies one state. Each text is read once."""

    def __init__(self, ledger: LedgerReader, state: LedgerState, found: Diagnostics) -> None:
        self._ledger = ledger
        self._state = state
        self._found = found

    def revision(
        self, digest: str, broken: Mapping[str, Sequence[Diagnostic]], dropping: Collection[str]
    ) -> AppliedRevision:
        state, recorded = self._state, self._state.resources
        addresses = sorted(recorded)
        graphs = [a.name for a in addresses if a.kind is Kind.GRAPH and is_name(a.name)]
        schemas = {
            graph: None if (schema := recorded.get(schema_address(graph))) is None else schema.digest
            for graph in graphs
        }
        if not graphs:
            self._found.add(Code.CLUSTER_EMPTY, "graphs", "no graph is applied")
        queries: dict[str, list[AppliedText]] = {graph: [] for graph in graphs}
        policies = []
        # If responses are slow, many texts are read concurrently.
        named = [a for a in addresses if a.kind in (Kind.QUERY, Kind.POLICY)]
        readings = in_parallel(lambda a: self._ledger.blob(a, recorded[a].digest), named, self._ledger.parallel)
        files = [catalog_text(each, address, self._found) for address, each in zip(named, readings, strict=True)]
        for address, file in zip(named, files, strict=True):
            content = None if file is None else file.data
            if address.kind is Kind.POLICY:
                scopes = self._scopes(address, schemas)
                if content is not None:
                    policies.append(AppliedText(address, recorded[address].digest, content, scopes))
            elif (graph := address.graph or "") not in queries:
                message = f"graph {graph} is not applied, so the query is not served"
                self._found.add(Code.DANGLING_GRAPH_REFERENCE, address, message, severity=Severity.WARNING)
            elif content is not None:
                queries[graph].append(AppliedText(address, recorded[address].digest, content))
        return AppliedRevision(
            RevisionIdentity(digest, state.revision, state.config_digest),
            schemas,
            {graph: tuple(texts) for graph, texts in queries.items()},
            tuple(policies),
            {graph: tuple(problems) for graph, problems in broken.items()},
            {graph: seen for graph in graphs if (seen := recorded_data(state, graph_address(graph))) is not None},
            tuple(graph for graph in graphs if graph in dropping),
        )

    def _scopes(self, address: Address, schemas: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return a recorded policy's bindings, without graphs that are not applied."""
        bindings = self._state.resources[address].applies_to
        if not bindings:
            self._found.add(Code.POLICY_BINDINGS_MISSING, address, "the ledger does not record what it applies to")
        scopes = []
        for scope in sorted(set(bindings or ())):
            graph = Address(scope)
            if scope == CLUSTER_SCOPE or (graph.kind is Kind.GRAPH and graph.name in schemas):
                scopes.append(scope)
            elif graph.kind is not Kind.GRAPH:
                self._found.add(Code.POLICY_BINDING_UNRECOGNIZED, address, f"'{scope}' is neither cluster nor graph.ID")
            # A policy for several graphs is not changed until all graphs that the folder no longer declares are gone.
            elif self._state.observations.get(graph, {}).get("kind") != "tombstone":
                message = f"{scope} is not applied, so this binding has no effect"
                self._found.add(Code.POLICY_BINDING_UNKNOWN, address, message, severity=Severity.WARNING)
        return tuple(scopes)


class PolicyCover(StrEnum):
    """How requests without a policy are treated. See `classify` in `gitops.serving.access`."""

    OPEN = "open"
    DEFAULT_DENY = "default_deny"
    POLICY_ENABLED = "policy_enabled"


class StoredQuery:
    """A stored query: its text, identified by digest, and its checked form, which is compiled on first use.

    With thousands of queries, many are never used, but all are known to be valid beforehand.
    """

    __slots__ = ("_checked", "digest", "name", "source")

    def __init__(
        self, name: str, digest: str, source: bytes, checked: CheckedQuery | Callable[[], CheckedQuery]
    ) -> None:
        """Create the query with its checked form, or with a function that makes it and must not fail."""
        self.name = name
        self.digest = digest
        self.source = source
        self._checked = checked

    @property
    def checked(self) -> CheckedQuery:
        """The checked form. If two threads request it first, both may create it."""
        if callable(self._checked):
            self._checked = self._checked()
        return self._checked


@dataclass(frozen=True, slots=True)
class ServedGraph:
    """One served graph: its location, its schema, its stored queries in name order, and its access policy.

    `engine` is None if no bundle is bound to the graph. `policy` and `policy_digest` are the bundle's name and digest.
    `drifted` means that the live schema differs from the applied one. `cache` contains data of immutable versions, and
    is shared between graphs and generations. `seen` is the graph's state when the generation was created, or None if
    unknown.
    """

    graph_id: str
    uri: str
    schema: Schema
    schema_source: bytes
    schema_digest: str
    queries: Mapping[str, StoredQuery]
    engine: PolicyEngine | None
    cache: ReadCache
    drifted: bool = False
    policy: str | None = None
    policy_digest: str | None = None
    seen: Seen | None = None

    @property
    def address(self) -> str:
        """The graph's address for the server's clients, independent of the storage location."""
        return f"/graphs/{self.graph_id}"

    def open(self, target: ReadTarget) -> Snapshot:
        """Return a version of the graph. Raises the same errors as `graph.open_snapshot`.

        Also raises IntegrityError `graph_unreadable` if the graph was replaced since the generation was created, and
        `graph_rewound` if it was replaced by an older copy.
        """
        newest = (target.version, target.commit, target.time) == (None, None, None)
        return self._accept(graph.open_snapshot(self.uri, target, self.cache), newest=newest)

    def newest_in_memory(self, branch: str) -> Snapshot | None:
        """Return a branch's newest version if it is known without reading a file, or else None.

        Raises the IntegrityErrors of `open`.
        """
        found = graph.newest_in_memory(self.uri, branch, self.cache)
        return None if found is None else self._accept(found, newest=True)

    def _accept(self, found: Snapshot, *, newest: bool) -> Snapshot:
        """Return a version, unless the graph was replaced."""
        seen = self.seen
        if seen is not None and found.identity.graph_id != seen.incarnation:
            detail = f"graph {found.identity.graph_id} is at the root, but {seen.incarnation} is served"
            raise IntegrityError(Code.GRAPH_UNREADABLE, detail, path=self.uri)
        if seen is not None and newest and found.line.fork is None and found.manifest.n < seen.version:
            detail = f"the newest version is {found.manifest.n}, but version {seen.version} was served"
            raise IntegrityError(Code.GRAPH_REWOUND, detail, path=self.uri)
        return found


@dataclass(frozen=True, slots=True)
class PreviewSource:
    """The change request that a generation is of: its number, the previewed head, and whether its graphs can be changed."""

    number: int
    head: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """A revision with its graphs by id. `quarantined` has the graphs that are not served, with the reasons.

    `engine` makes decisions about the server, using the bundle `policy` with that digest. `guarded` shows whether any
    bundle in the revision is bound to the server or to a graph, served or not. `warnings` are boot problems that don't
    prevent serving. `issuers` are the identity providers of the revision. `preview` is None unless this is what a
    change request declares, on copies of the live graphs; `revision` is then the one that was served when it was opened.
    `use` is how the revision wants calls to be recorded.
    """

    revision: RevisionIdentity
    graphs: Mapping[str, ServedGraph]
    engine: PolicyEngine | None
    quarantined: Mapping[str, tuple[Diagnostic, ...]]
    guarded: bool
    warnings: tuple[Diagnostic, ...] = ()
    policy: str | None = None
    policy_digest: str | None = None
    issuers: tuple[TokenIssuer, ...] = ()
    preview: PreviewSource | None = None
    use: UseRules | None = None


# Schemas and stored queries of a server. Each text is compiled once per process, and each problem gets its place in the
# text.
#
# Every stored query is parsed and checked before it is served, and compiled on first use. If there are thousands,
# several processes check them and only report which ones are valid. The others are checked again here to find their
# problems.

_FEW = 400
"""Up to this number, checking queries is faster than starting processes."""


@dataclass(frozen=True, slots=True)
class TextOfGraph:
    """A stored query, with the live schema that it uses and the schema's digest."""

    text: AppliedText
    schema: Schema
    live: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that determines whether the query is valid. Equal keys have equal results."""
        return (self.live, self.text.digest, self.text.address.name)


class Compiled:
    """Queries and schemas compiled and checked so far. Generations that have a text in common share its result."""

    def __init__(self, processes: int = 1, sound: Iterable[Sequence[str]] = ()) -> None:
        """Create the cache. Up to `processes` processes check texts concurrently.

        `sound` are texts that another process found valid.
        """
        self._processes = processes
        self._schemas: dict[str, Schema] = {}
        self._queries: dict[tuple[str, str, str], StoredQuery] = {}
        self._sound = {(live, text, name) for live, text, name in sound}

    @property
    def sound(self) -> list[tuple[str, str, str]]:
        """The stored queries known to be valid, as JSON."""
        return sorted(self._sound)

    def schema(self, source: bytes, path: str, found: Diagnostics) -> Schema | None:
        """Return a live graph's compiled schema. If it does not compile, report this and return None."""
        name = digest(source)
        if name not in self._schemas:
            try:
                self._schemas[name] = compile_schema(source)
            except LanguageError as error:
                found.add(Code.GRAPH_UNREADABLE, path, f"the live schema does not compile: {error}")
                return None
        return self._schemas[name]

    def check_many(self, texts: Iterable[TextOfGraph]) -> None:
        """Check which of these stored queries are valid. If there are many, several processes check them."""
        new = list({each.key: each for each in texts if each.key not in self._sound}.values())
        if self._processes > 1 and len(new) > _FEW:
            most = -(-len(new) // self._processes)
            shares = [new[begin : begin + most] for begin in range(0, len(new), most)]
            for share, sound in zip(shares, in_children([partial(_sound, share) for share in shares]), strict=True):
                self._sound.update(share[number].key for number in sound)

    def query(self, each: TextOfGraph, found: Diagnostics) -> StoredQuery | None:
        """Return the stored query for a text. Problems are added to `found`."""
        if each.key in self._queries:
            return self._queries[each.key]
        text, checked = each.text, partial(_checked, each)
        if each.key not in self._sound:
            try:
                parsed = _parsed(text.content)
            except LanguageError as error:
                _report(Code.STORED_QUERY_INVALID, error, text, found)
                return None
            if text.address.name not in parsed:
                message = "the blob does not declare a query of this name"
                found.add(Code.STORED_QUERY_INVALID, text.address, message)
                return None
            try:
                check_query(parsed[text.address.name], each.schema.catalog)
            except LanguageError as error:
                _report(Code.STORED_QUERY_CHECK_FAILED, error, text, found)
                return None
            self._sound.add(each.key)
        self._queries[each.key] = StoredQuery(text.address.name, text.digest, text.content, checked)
        return self._queries[each.key]

    def keep(self, generation: Generation) -> None:
        """Forget everything that this generation does not use.

        From then on, only this process checks queries, because it has threads and must not be forked.
        """
        self._processes = 1
        graphs = [(digest(graph.schema_source), graph) for graph in generation.graphs.values()]
        self._schemas = {live: graph.schema for live, graph in graphs}
        stored = [(live, query) for live, graph in graphs for query in graph.queries.values()]
        self._queries = {(live, query.digest, query.name): query for live, query in stored}
        self._sound = set(self._queries)


def _sound(share: Sequence[TextOfGraph]) -> list[int]:
    """Return the positions of the texts that can be parsed and checked."""
    found = []
    for number, each in enumerate(share):
        try:
            _checked(each)
        except (LanguageError, KeyError):
            continue
        found.append(number)
    return found


def _checked(each: TextOfGraph) -> CheckedQuery:
    return check_query(_parsed(each.text.content)[each.text.address.name], each.schema.catalog)


# Queries in the same file have the same text and follow each other.
@lru_cache(maxsize=16)
def _parsed(content: bytes) -> Mapping[str, Query]:
    """Return the queries in a text by name. If a name occurs twice, the first query is used."""
    return {each.name.text: each for each in reversed(parse_queries(content))}


def _report(code: Code, error: LanguageError, text: AppliedText, found: Diagnostics) -> None:
    lines = SourceText(text.content)
    for problem in error.problems:
        place = SourceRef(text.address, *lines.position(problem.span.start))
        fix = problem.fix or REGISTRY[code].fix or None
        found.extend([Diagnostic(code, Severity.ERROR, text.address, problem.rendered(), place, fix)])
