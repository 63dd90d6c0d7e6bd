"""Read the applied revision of a ledger, verified, as a server serves it until it reads again.

1. No lock is taken and nothing is written; a held lock does not matter. Statuses, approvals and what is declared and not applied
   do not either.
2. The records of interrupted operations are listed, then the state is read, then each text that it names, in order of addresses.
3. Every problem is reported in one run, and whatever cannot be checked is a problem.
4. What was verified is what is used: the texts are kept, and nothing is read again by its path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gitops.cluster.ledger.port import IntentListing, LedgerReader, LedgerView
from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, is_name, schema_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.plan.draft import recorded_data
from gitops.cluster.session.queries import catalog_text
from gitops.cluster.session.session import RECOVERIES, STATE_FILE
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.database.storage.parallel import in_parallel


@dataclass(frozen=True, slots=True)
class AppliedText:
    """A stored query or a policy as it was applied; `scopes` are the normalized bindings of a policy."""

    address: Address
    digest: str
    content: bytes
    scopes: tuple[str, ...] = ()

    @property
    def form(self) -> Mapping[str, Any]:
        """As JSON; the content is UTF-8."""
        return {
            "address": self.address,
            "digest": self.digest,
            "content": self.content.decode(),
            "scopes": list(self.scopes),
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> AppliedText:
        """What `form` was made of."""
        return cls(Address(form["address"]), form["digest"], form["content"].encode(), tuple(form["scopes"]))


@dataclass(frozen=True, slots=True)
class AppliedRevision:
    """A verified revision: the digests of its schemas by graph, None where none is recorded, and its texts.

    `queries` has those of each graph in order of names. `broken` are the problems that keep one graph from being served. `seen`
    are the graphs as they were recorded last: a graph that is served is not another one, nor an older copy. `dropping` are those
    that still have what their applied schema does not.
    """

    identity: RevisionIdentity
    schemas: Mapping[str, str | None]
    queries: Mapping[str, tuple[AppliedText, ...]]
    policies: tuple[AppliedText, ...]
    broken: Mapping[str, tuple[Diagnostic, ...]]
    seen: Mapping[str, Seen]
    dropping: tuple[str, ...] = ()

    @property
    def guarded(self) -> bool:
        """Whether a policy is bound to the server or to an applied graph."""
        return any(policy.scopes for policy in self.policies)

    @property
    def form(self) -> Mapping[str, Any]:
        """As JSON, for another process of the same program."""
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
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> AppliedRevision:
        """What `form` was made of."""
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
        )


def verify_revision(
    ledger: LedgerReader, listing: IntentListing, view: LedgerView, found: Diagnostics
) -> AppliedRevision | None:
    """The revision of a view, with the interrupted operations that were listed before it.

    None where the state cannot be read. What keeps it from being served is added to `found` as errors, but for problems of one
    graph, which the revision has.
    """
    if listing.problem is not None and not view.problems:
        # Of a ledger that cannot be read the operations cannot be listed either, for the same reason.
        found.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem, severity=Severity.ERROR)
    broken = _interrupted(listing, view.state, found)
    dropping = {intent.graph_id for intent in listing.intents if _only_drops(intent, view.state)}
    found.extend(view.problems)
    if not view.found:
        found.add(Code.CLUSTER_STATE_MISSING, STATE_FILE, "the cluster has no ledger yet")
    if view.state is None or view.cas is None:
        return None
    return _StateVerification(ledger, view.state, found).revision(view.cas.rpartition(":")[2], broken, dropping)


def _interrupted(
    listing: IntentListing, state: LedgerState | None, found: Diagnostics
) -> Mapping[str, Sequence[Diagnostic]]:
    """The problems of each graph that an interrupted operation may have left half-way; of which graph is unknown is fatal.

    What the applied revision no longer has is none of it while that is deleted or dropped: servers have to let go of it before.
    """
    for each in listing.unreadable:
        found.add(each.code, f"{RECOVERIES}/{each.name}", each.detail, severity=Severity.ERROR)
    broken: dict[str, Diagnostics] = defaultdict(Diagnostics)
    for intent in listing.intents:
        detail = f"{intent.kind} of {intent.address} was interrupted, and is not settled"
        place = f"{RECOVERIES}/{intent.operation_id}.json"
        if intent.kind is IntentKind.GRAPH_DELETE and state is not None and intent.address not in state.resources:
            detail = f"{intent.address} has left the cluster, and its data are not deleted yet"
            found.add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.WARNING)
            continue
        if _only_drops(intent, state):
            detail = f"what {intent.address} no longer has is not dropped from its graph yet"
            found.add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.WARNING)
            continue
        broken[intent.graph_id].add(Code.CLUSTER_RECOVERY_PENDING, place, detail, severity=Severity.ERROR)
    return {graph: tuple(problems) for graph, problems in broken.items()}


def _only_drops(intent: Intent, state: LedgerState | None) -> bool:
    """Whether an operation brings a graph to a schema that is applied already: the rest of a migration, after its commit.

    What such a graph has besides is of no query of the revision, each of which is checked against the live schema.
    """
    recorded = None if state is None else state.resources.get(intent.address)
    wanted = intent.desired_schema_digest
    return intent.kind is IntentKind.SCHEMA_APPLY and recorded is not None and recorded.digest == wanted


class _StateVerification:
    """Verifies one state; each text is read once."""

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
            fix = None if recorded else "apply the cluster: gitops apply"
            self._found.add(Code.CLUSTER_EMPTY, "graphs", "no graph is applied", fix=fix)
        queries: dict[str, list[AppliedText]] = {graph: [] for graph in graphs}
        policies = []
        # Where answers are slow, many texts are read at a time.
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
        """What a recorded policy is bound to, without graphs that are not applied."""
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
            # A policy of several graphs stays as it is until all are gone that the folder declares no longer.
            elif self._state.observations.get(graph, {}).get("kind") != "tombstone":
                message = f"{scope} is not applied, so this binding has no effect"
                self._found.add(Code.POLICY_BINDING_UNKNOWN, address, message, severity=Severity.WARNING)
        return tuple(scopes)
