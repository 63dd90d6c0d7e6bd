"""The rules for each kind of resource, in one table. `docs/extending.md` shows how to add a kind.

Everything that the rest of the program needs to know about a kind is an attribute or a method of its rules, so there is
no other table of kinds.

A change takes effect at one of four times (`Effect`):

| change | class |
| --- | --- |
| a graph is created, with its schema | stage: nothing refers to it, and an empty graph can be removed again |
| a text is published | stage: it is found by its digest, and the commit binds it |
| a migration only makes additions that a later one can remove | stage: the recorded schema is a part of the new one |
| a migration only drops | finish: readers release the dropped data with the commit |
| a migration makes such additions and drops | stage for the additions, finish for the drops |
| any other migration, a restore | pivot: it changes data in use, and cannot be rolled back |
| a text, a schema or keys and rules leave or change only in the ledger | commit |
| a graph is deleted | finish: it destroys data |
| an item of a host is created or changed | stage: a run can take it back, from its backup |
| a package gets another version | pivot: nothing brings its old data back |
| an item is removed from a host | finish, in reverse order |
| a host is declared, changed or no longer declared | commit: only the ledger changes |
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, graph_address, schema_address
from gitops.cluster.model.change import Action, Change, Disposition, Effect, GateName, Reason, Tier
from gitops.cluster.model.host_rules import HostDifference, gate_reason
from gitops.cluster.model.ledger import IntentKind
from gitops.cluster.model.resource import Dependency
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.database.graph.port import MigrationPreview

Ruling = tuple[Disposition, Reason | None]


LOSES_DATA = (GateName.IRREVERSIBLE, GateName.LOSSY)
"""The gates of changes that destroy rows, such as deleting a graph."""


class Gate(NamedTuple):
    """Why a change needs approval, as a fixed sentence, and which gates it meets.

    Destroying rows also counts as lossy.
    """

    reason: str
    met: tuple[GateName, ...] = LOSES_DATA

    @property
    def tier(self) -> Tier:
        """The tier: whether a later plan can undo the change."""
        return Tier.IRREVERSIBLE if GateName.IRREVERSIBLE in self.met else Tier.REVERSIBLE


class Classified(NamedTuple):
    """A change's class, and the reason in words.

    `expanded` is the digest of the schema to which a staged migration leads before the commit, if part of the migration
    is finished later.
    """

    effect: Effect
    reason: str
    expanded: str | None = None


class Operation(NamedTuple):
    """An operation on a graph: the intent that announces it, and how it is reported if it is not performed.

    `failed` is the status recorded after a failure. `refused` and `skipped` are the codes for a refusal by the graph
    and for an operation that was not attempted; None if the graph's own code is reported.
    """

    intent: IntentKind
    failed: Reason | None = None
    refused: Code | None = None
    skipped: Code | None = None


_CREATES = Operation(
    IntentKind.GRAPH_CREATE, Reason.GRAPH_CREATE_FAILED, Code.GRAPH_CREATE_FAILED, Code.GRAPH_CREATE_SKIPPED
)
_MIGRATES = Operation(
    IntentKind.SCHEMA_APPLY, Reason.SCHEMA_APPLY_FAILED, Code.SCHEMA_APPLY_FAILED, Code.SCHEMA_APPLY_SKIPPED
)
_DELETES = Operation(
    IntentKind.GRAPH_DELETE, Reason.GRAPH_DELETE_FAILED, Code.GRAPH_DELETE_FAILED, Code.GRAPH_DELETE_SKIPPED
)
_RESTORES = Operation(IntentKind.GRAPH_RESTORE)

_APPLIED: Ruling = (Disposition.APPLIED, None)
_DEFERRED: Ruling = (Disposition.DEFERRED, Reason.UNSUPPORTED_KIND)
_NEEDS_APPROVAL: Ruling = (Disposition.BLOCKED, Reason.APPROVAL_REQUIRED)
_DEPENDENCY_WAITS: Ruling = (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED)
_RECOVERY_PENDING: Ruling = (Disposition.BLOCKED, Reason.RECOVERY_PENDING)
_NO_HOST_PROVIDER: Ruling = (Disposition.BLOCKED, Reason.NO_HOST_PROVIDER)


@dataclass(frozen=True, slots=True)
class Situation:
    """What a ruling needs to know about the rest of the plan.

    `pending`: an interrupted operation of the graph is not settled. `created`, `deleted`: the graph itself is created or
    deleted by this plan. `schema_unsettled`: its schema is deleted, or created without its graph. `approved`: addresses
    whose gate is satisfied. `policy_graphs`: the ids of the graphs that a policy is bound to. `guarded`: the graphs in its
    recorded bindings, None if the ledger does not record them. `gapped` are the strategies whose change leaves a compute
    cluster without a replica. `givers`: for each policy that takes over a graph or the cluster, the policies that release
    it. `gates`: the gates in the rules in force; `limits`: the numbers of these rules that gates read, by key, never those
    of the plan. `deletes`: the number of resources that the plan deletes. `gated`: addresses whose change has a gate.
    `widened`: for each policy whose change needs approval because it permits more, a description of the gain.
    `breaking`: for each change that breaks clients for which the rules ask, the reason. `hosts`: what
    each change of a host or item changes, if any does. `hosts_reached`: this run can change machines. `forgotten`: the
    hosts that are no longer declared. `host_deletes`: the number of items that the plan removes from the other hosts.
    `host_references`: the declared and the recorded references of hosts and items.
    """

    pending: frozenset[str]
    created: frozenset[str]
    deleted: frozenset[str]
    schema_unsettled: frozenset[str]
    approved: frozenset[Address]
    policy_graphs: Mapping[Address, tuple[str, ...]]
    gates: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    gated: frozenset[Address] = frozenset()
    deletes: int = 0
    gapped: frozenset[Address] = frozenset()
    guarded: Mapping[Address, tuple[str, ...] | None] = field(default_factory=lambda: MappingProxyType({}))
    givers: Mapping[Address, tuple[Address, ...]] = field(default_factory=lambda: MappingProxyType({}))
    widened: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    breaking: Mapping[Address, str] = field(default_factory=lambda: MappingProxyType({}))
    hosts: Mapping[Address, HostDifference] = field(default_factory=lambda: MappingProxyType({}))
    hosts_reached: bool = False
    forgotten: frozenset[str] = frozenset()
    host_deletes: int = 0
    host_references: tuple[frozenset[Dependency], frozenset[Dependency]] = (frozenset(), frozenset())

    def delete_approved(self, graph: str | None) -> bool:
        """Return True if this plan deletes the graph with an approval."""
        return graph is not None and graph in self.deleted and graph_address(graph) in self.approved

    def guards(self, policy: Address) -> bool:
        """Return True if a recorded policy guards a graph that is no longer declared but not deleted yet."""
        known = self.guarded.get(policy, ())
        graphs = self.deleted if known is None else self.deleted.intersection(known)
        return any(graph in self.pending or not self.delete_approved(graph) for graph in graphs)

    def stays(self, policy: Address) -> bool:
        """Return True if a policy must not change in this plan.

        That is the case if it guards a graph, waits for an approval, or claims an unreleased scope. It also must not
        change if it would release a scope to a policy that waits for an approval, because nothing would guard the scope
        until the approval comes.
        """
        if any(policy in givers and self.is_shut(taker) for taker, givers in self.givers.items()):
            return True
        reached, pending = {policy}, [policy]
        while pending:
            each = pending.pop()
            if self.is_shut(each) or self.guards(each) or (each != policy and self._waits_itself(each)):
                return True
            found = set(self.givers.get(each, ())) - reached
            reached |= found
            pending += found
        return False

    def _waits_itself(self, policy: Address) -> bool:
        """Return True if a policy is bound to a graph that has problems or whose creation is not approved."""
        bound = self.policy_graphs.get(policy, ())
        return any(graph in self.pending or (graph in self.created and self._gate_is_shut(graph)) for graph in bound)

    def unguarded(self, graph: str) -> bool:
        """Return True if a new graph would lack a policy bound to it, because that policy must not change."""
        if graph not in self.created or not (self.deleted or self.givers or self.widened):
            return False
        return any(graph in bound and self.stays(policy) for policy, bound in self.policy_graphs.items())

    def waits(self, graph: str | None) -> bool:
        """Return True if the graph cannot be created or its schema migrated before an approval."""
        if graph is None or graph in self.deleted:
            return False
        return self.unguarded(graph) or self._gate_is_shut(graph)

    def is_shut(self, address: Address) -> bool:
        """Return True if a change still needs an approval."""
        return address in self.gated and address not in self.approved

    def _gate_is_shut(self, graph: str) -> bool:
        return self.is_shut(graph_address(graph)) or self.is_shut(schema_address(graph))


class ResourceKind:
    """One kind's rules, as pure functions. The defaults fit a text that can change at any time."""

    catalog_suffix: ClassVar[str] = ""
    """Suffix of the file names of its texts in the ledger's catalog; empty for a kind without texts there."""
    section: ClassVar[str] = ""
    """The key in `cluster.yaml` under which resources of this kind are declared by name, with their file."""
    file_missing: ClassVar[Code] = Code.SOURCE_MISSING
    """The code for a file of this kind that cannot be read."""
    binds: ClassVar[bool] = False
    """Whether `applies_to` binds it to graphs or to the cluster. It then guards those graphs until they are gone."""
    in_folder: ClassVar[bool] = True
    """Whether cluster folders declare it. They declare everything except keys, rules and the location of a cluster."""
    with_graph: ClassVar[bool] = True
    """Whether resources that belong to a graph are declared with it."""
    uses_graph: ClassVar[bool] = False
    """Whether its graph must not change while it is applied."""
    edge_reasons: ClassVar[Mapping[Kind, str]] = MappingProxyType({})
    """Labels of edges: why it comes after a resource that it needs, by that resource's kind."""

    @property
    def has_text(self) -> bool:
        """True if people can compare a change's old and new text."""
        return bool(self.catalog_suffix)

    def classify(self, change: Change, situation: Situation) -> Ruling:  # noqa: ARG002 - for kinds with conditions
        """Return the disposition of the change, and the reason if it is not applied.

        The planner blocks a change with a separate gate and no approval. A kind does so itself only if that reason has
        priority over another one.
        """
        return _APPLIED

    def effect(self, change: Change, *, restored: bool) -> Classified:  # noqa: ARG002 - for migrations
        """Return the change's class. `restored` is set if the same plan restores rows of its graph."""
        if change.action is Action.DELETE:
            return Classified(Effect.COMMIT, "it only leaves what is recorded")
        return Classified(Effect.STAGE, "its text is published, and nothing refers to it yet")

    def operation(self, action: Action) -> Operation | None:  # noqa: ARG002 - for kinds that touch graphs
        """Return the operation on a live graph, or None if there is none, as for a catalog text."""
        return None

    def gate(self, change: Change, situation: Situation) -> Gate | None:  # noqa: ARG002 - for kinds with gates
        """Return the reason why the change needs approval, or None if it does not need one."""
        return None

    def gated_at(self, change: Change) -> Address:
        """Return the address whose approval covers the change, which can be another change's address."""
        return change.address

    def is_about_data(self, change: Change) -> bool:  # noqa: ARG002 - for kinds with data
        """Return True if an approval of the change covers only the data that its approver saw."""
        return False

    def needs(self, address: Address, bindings: Sequence[str]) -> tuple[Address, ...]:  # noqa: ARG002 - for kinds with needs
        """Return the resources that a resource of this kind depends on. `bindings` are a policy's bindings."""
        return ()


class GraphKind(ResourceKind):
    """Graphs. They are created and deleted. They are updated only because their schema or queries change. Rows 1 to 7."""

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Apply creates and deletes; derive updates."""
        graph = change.address.name
        if change.action is Action.UPDATE:
            return _DEFERRED if graph in situation.schema_unsettled else (Disposition.DERIVED, None)
        if graph in situation.pending:
            return _RECOVERY_PENDING
        waits = change.action is Action.CREATE and situation.unguarded(graph)
        return _DEPENDENCY_WAITS if waits else _APPLIED

    def effect(self, change: Change, *, restored: bool) -> Classified:  # noqa: ARG002 - the rule is about the graph itself
        """Return FINISH for deletes, so that they come last."""
        if change.action is Action.DELETE:
            return Classified(Effect.FINISH, "it destroys data, so it waits until nothing reads it")
        return Classified(Effect.STAGE, "nothing refers to a new graph, and it is removed again while it is empty")

    def operation(self, action: Action) -> Operation | None:
        """Return the operation for a create or a delete, or None for an update."""
        return {Action.CREATE: _CREATES, Action.DELETE: _DELETES}.get(action)

    def gate(self, change: Change, situation: Situation) -> Gate | None:  # noqa: ARG002 - the rule needs no situation
        """Gate every delete, and creating a graph in place of one that vanished."""
        if change.action is Action.CREATE and change.before is not None:
            return Gate("the graph vanished: to create it again is to give up its data")
        return Gate("deleting a graph destroys its data") if change.action is Action.DELETE else None

    def is_about_data(self, change: Change) -> bool:
        """Return True for a delete."""
        return change.action is Action.DELETE


class SchemaKind(ResourceKind):
    """Schemas. They are created and deleted with their graph, and updated by migrations. Rows 8 to 15."""

    edge_reasons: ClassVar[Mapping[Kind, str]] = MappingProxyType({Kind.GRAPH: "graph_schema"})

    @property
    def has_text(self) -> bool:
        """Return True, because the text is in git and in the graph, although not in the catalog."""
        return True

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Apply a create or delete only together with the graph's."""
        graph = change.address.name
        pending = graph in situation.pending
        if change.action is Action.CREATE:
            if graph not in situation.created or pending:
                return _RECOVERY_PENDING
            if situation.unguarded(graph):
                return _DEPENDENCY_WAITS
            return _NEEDS_APPROVAL if situation.is_shut(self.gated_at(change)) else _APPLIED
        if change.action is Action.UPDATE:
            return _RECOVERY_PENDING if pending else _APPLIED
        if graph not in situation.deleted:
            return _DEFERRED
        if pending:
            return _RECOVERY_PENDING
        return _APPLIED if self.gated_at(change) in situation.approved else _NEEDS_APPROVAL

    def gated_at(self, change: Change) -> Address:
        """Return the schema's address for a migration, and the graph's address for a create or delete."""
        return change.address if change.action is Action.UPDATE else graph_address(change.address.name)

    def effect(self, change: Change, *, restored: bool) -> Classified:
        """Classify a migration by its steps."""
        if change.action is Action.UPDATE:
            return _effect_of_migration(change.migration, restored=restored)
        if change.action is Action.DELETE:
            return super().effect(change, restored=restored)
        return Classified(Effect.STAGE, "it is created with its graph")

    def operation(self, action: Action) -> Operation | None:
        """Return the operation for a migration. The graph's operation covers creates and deletes."""
        return _MIGRATES if action is Action.UPDATE else None

    def gate(self, change: Change, situation: Situation) -> Gate | None:
        """Gate a delete unless the graph's gate covers it, and gate a migration by its steps."""
        if change.action is Action.UPDATE:
            return self._migration_gate(change, situation)
        alone = change.action is Action.DELETE and change.address.name not in situation.deleted
        return Gate("deleting a schema makes the data of its graph unreadable") if alone else None

    def is_about_data(self, change: Change) -> bool:
        """Return True if the change removes or alters data. A create never does, because its graph is new."""
        return change.action is not Action.CREATE

    def _migration_gate(self, change: Change, situation: Situation) -> Gate | None:
        """Gate every migration that no later plan can undo, and data loss if the rules list it.

        Unknown rows count as rows. If neither the recorded text nor the graph is available, it counts as such a migration.
        """
        migration = change.migration
        if migration is None and not change.at_hand:
            return Gate("what this schema change does is not known here")
        if migration is None or not migration.supported:
            return None  # the change is not made
        # Importing the schema language is slow, and few plans change a schema.
        from gitops.database.language.schema.step_terms import Reversibility
        from gitops.database.language.schema.steps import reversibility_of

        found = {reversibility_of(step) for step in migration.steps}
        empty = change.at_hand and change.seen is not None and not change.seen.rows
        loses = not empty and Reversibility.LOSSY in found
        if not found <= {Reversibility.REVERSIBLE, Reversibility.LOSSY}:
            return Gate("no later plan can undo this schema change", LOSES_DATA if loses else (GateName.IRREVERSIBLE,))
        if not loses:
            return None
        if migration.empties:
            return Gate("removing every type destroys the data of the graph")
        if GateName.LOSSY not in situation.gates:
            return None
        return Gate("it removes types, properties or values of a graph that holds rows", (GateName.LOSSY,))

    def needs(self, address: Address, bindings: Sequence[str]) -> tuple[Address, ...]:  # noqa: ARG002 - it has none
        """Return the schema's graph."""
        return () if address.graph is None else (graph_address(address.graph),)


def _effect_of_migration(migration: MigrationPreview | None, *, restored: bool) -> Classified:
    """Return the class of a migration. A two-phase one is staged and finished, unless restored rows need the new types."""
    if migration is None or not migration.supported:
        return Classified(Effect.PIVOT, "its steps are not known")
    # Importing the schema language is slow, and few plans change a schema.
    from gitops.database.language.schema.steps import step_from_json

    found = [step_from_json(step) for step in migration.steps]
    adds = [step is not None and step.keeps_readers for step in found]
    drops = [step is not None and step.drops for step in found]
    if all(adds):
        return Classified(Effect.STAGE, "it only adds, so that the applied schema stays a part of the new one")
    if all(drops):
        return Classified(Effect.FINISH, "it only drops, so it waits until nothing reads what goes")
    either = all(one or other for one, other in zip(adds, drops, strict=True))
    if either and migration.expanded is not None and not restored:
        return Classified(Effect.STAGE, "it adds before the commit, and drops after it", digest(migration.expanded))
    kinds = {str(step.get("kind")) for step, added in zip(migration.steps, adds, strict=True) if not added}
    return Classified(Effect.PIVOT, f"these steps cannot be rolled back: {', '.join(sorted(kinds))}")


class QueryKind(ResourceKind):
    """Stored queries: texts in the catalog, published by digest. Rows 16 to 21."""

    catalog_suffix = ".gq"
    uses_graph = True
    edge_reasons: ClassVar[Mapping[Kind, str]] = MappingProxyType(
        {Kind.SCHEMA: "schema_query", Kind.GRAPH: "graph_query"}
    )

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Publish unless the graph waits or has problems. Remove together with the graph only if that is approved."""
        graph = change.address.graph
        pending = graph in situation.pending
        if change.action is Action.DELETE:
            approved = self.gated_at(change) in situation.approved
            if graph not in situation.deleted or (approved and not pending):
                return _APPLIED
            return _NEEDS_APPROVAL
        if pending:
            return _RECOVERY_PENDING
        if graph in situation.schema_unsettled or situation.waits(graph):
            return _DEPENDENCY_WAITS
        return _APPLIED

    def gated_at(self, change: Change) -> Address:
        """Return the graph's address if the query is deleted with its graph, or else the query's own address."""
        return (change.address.graph_address if change.action is Action.DELETE else None) or change.address

    def needs(self, address: Address, bindings: Sequence[str]) -> tuple[Address, ...]:  # noqa: ARG002 - it has none
        """Return its graph and the graph's schema."""
        graph, schema = address.graph_address, address.schema_address
        return () if graph is None or schema is None else (graph, schema)


class PolicyKind(ResourceKind):
    """Access policies: texts in the catalog that apply to the scopes they are bound to. Rows 22 to 24."""

    catalog_suffix = ".yaml"
    section = "policies"
    file_missing = Code.POLICY_FILE_MISSING
    binds = True
    edge_reasons: ClassVar[Mapping[Kind, str]] = MappingProxyType({Kind.GRAPH: "policy_target"})

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Publish unless a bound graph waits for recovery, or for approval of its creation.

        A graph that waits to be deleted keeps its policy, because the changed policy no longer guards it. A graph or the
        cluster has only one policy, so a policy that takes over a scope waits for the one that does not release it. Its own
        approval has priority.
        """
        bound = () if change.action is Action.DELETE else situation.policy_graphs.get(change.address, ())
        if any(graph in situation.pending for graph in bound):
            return _RECOVERY_PENDING
        if situation.is_shut(change.address):
            return _NEEDS_APPROVAL
        waits = any(graph in situation.created and situation.waits(graph) for graph in bound)
        if waits or situation.stays(change.address):
            return _DEPENDENCY_WAITS
        return _APPLIED

    def gate(self, change: Change, situation: Situation) -> Gate | None:
        """Gate a policy that permits more on an existing graph or server, if the rules list that class."""
        reason = situation.widened.get(change.address)
        return None if reason is None else Gate(reason, (GateName.WIDENING,))

    def needs(self, address: Address, bindings: Sequence[str]) -> tuple[Address, ...]:  # noqa: ARG002 - only those
        """Return the graphs that the policy is bound to."""
        return tuple(Address(scope) for scope in bindings if scope != CLUSTER_SCOPE)


class RestoreKind(ResourceKind):
    """One-time restores of rows from an earlier version of a graph. Removing the declaration does not change the graph."""

    with_graph = False
    edge_reasons: ClassVar[Mapping[Kind, str]] = MappingProxyType(
        {Kind.GRAPH: "graph_restore", Kind.SCHEMA: "schema_restore"}
    )

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Return APPLIED once the schema of its graph is applied."""
        graph = change.address.name
        if change.action is Action.DELETE:
            return _APPLIED
        if graph in situation.pending:
            return _RECOVERY_PENDING
        waits = graph in situation.schema_unsettled or situation.waits(graph)
        return _DEPENDENCY_WAITS if waits else _APPLIED

    def effect(self, change: Change, *, restored: bool) -> Classified:
        """Return PIVOT, because a restore cannot be rolled back."""
        if change.action is Action.DELETE:
            return super().effect(change, restored=restored)
        return Classified(Effect.PIVOT, "it replaces rows that are in use, and a run cannot take that back")

    def operation(self, action: Action) -> Operation | None:
        """Return the operation for a restore, or None if the declaration is removed."""
        return None if action is Action.DELETE else _RESTORES

    def gate(self, change: Change, situation: Situation) -> Gate | None:  # noqa: ARG002 - always gated
        """Gate every restore."""
        return None if change.action is Action.DELETE else Gate("restoring rows replaces those that the types have now")

    def is_about_data(self, change: Change) -> bool:
        """Return True for a restore."""
        return change.action is not Action.DELETE

    def needs(self, address: Address, bindings: Sequence[str]) -> tuple[Address, ...]:  # noqa: ARG002 - it has none
        """Return its graph and the graph's schema."""
        graph, schema = address.graph_address, address.schema_address
        return () if graph is None or schema is None else (graph, schema)


class StrategyKind(ResourceKind):
    """Replica strategies: texts in the catalog. Once they are applied, the target follows them."""

    catalog_suffix = ".json"

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Apply strategies of a compute cluster or target together, because they must match. If one needs approval, all wait."""
        if situation.is_shut(change.address):
            return _NEEDS_APPROVAL
        waits = any(situation.is_shut(each) for each in situation.gapped)
        return _DEPENDENCY_WAITS if waits else _APPLIED

    def gate(self, change: Change, situation: Situation) -> Gate | None:
        """Gate dropping a compute cluster's only replica before a new one exists, if the rules list that.

        The new replica is empty at first and must hydrate.
        """
        if change.address not in situation.gapped or GateName.LOSSY not in situation.gates:
            return None
        return Gate("it drops the replica of a compute cluster before the new one is created", (GateName.LOSSY,))


class HostKind(ResourceKind):
    """Machines and their items. Compares the declared with the applied items; only an apply also connects to the machines."""

    catalog_suffix = ".json"

    @property
    def has_text(self) -> bool:
        """Return False, because the normal form of an item is not for people: `details` describe its change."""
        return False

    def classify(self, change: Change, situation: Situation) -> Ruling:
        """Apply the changes that a provider supports. Forgetting a host doesn't need a provider."""
        if change.address.host in situation.forgotten:
            return _APPLIED
        if situation.is_shut(change.address):
            return _NEEDS_APPROVAL
        found = situation.hosts.get(change.address)
        if found is not None and found.look.blocked is not None:
            return Disposition.BLOCKED, found.look.blocked
        return _APPLIED if situation.hosts_reached else _NO_HOST_PROVIDER

    def gate(self, change: Change, situation: Situation) -> Gate | None:
        """Gate new connections, and what destroys data or accounts on a machine."""
        found = situation.hosts.get(change.address)
        reason = None if found is None else gate_reason(found)
        return None if reason is None else Gate(reason, (GateName.IRREVERSIBLE,))

    def effect(self, change: Change, *, restored: bool) -> Classified:  # noqa: ARG002 - the rule is about the item itself
        """Return when a change of an item takes effect. A host itself changes only in the ledger."""
        if change.address.item is None:
            return Classified(Effect.COMMIT, "only the ledger records how a machine is reached")
        if change.action is Action.DELETE:
            return Classified(Effect.FINISH, "it is removed once nothing needs it")
        if change.pivot:
            return Classified(Effect.PIVOT, "the data of another version of a package cannot be taken back")
        return Classified(Effect.STAGE, "a run can take it back, from its backup")


class _RuleKind(ResourceKind):
    """Resources that no folder declares, in force as soon as they are recorded."""

    in_folder = False

    def effect(self, change: Change, *, restored: bool) -> Classified:  # noqa: ARG002 - one class for all
        """Return COMMIT."""
        return Classified(Effect.COMMIT, "it is in force as soon as it is recorded")


class TrustKind(_RuleKind):
    """The keys and rules of a branch ledger. Whoever changes them can approve anything, so changes meet every gate.

    Until a change is approved under the keys and rules in force, those remain in force.
    """

    def gate(self, change: Change, situation: Situation) -> Gate | None:  # noqa: ARG002 - always gated
        """Gate every change."""
        return Gate("changing keys or rules changes who may approve", tuple(GateName))


class ClusterKind(_RuleKind):
    """The location of a cluster.

    A new location is applied when its ledger starts; later ones change what approvals refer to.

    Until a change is approved under the keys and rules in force, the cluster remains at its old location.
    """

    def gate(self, change: Change, situation: Situation) -> Gate | None:  # noqa: ARG002 - the rule needs no situation
        """Gate everything except a new cluster."""
        if change.action is Action.DELETE:
            return Gate("taking out a cluster leaves its graphs without a ledger", tuple(GateName))
        if change.action is Action.ADOPT:
            detail = "a new ledger over an earlier one forgets debts, revocations and used approvals"
            return Gate(detail, tuple(GateName))
        if change.action is Action.UPDATE:
            return Gate("moving a cluster changes what its approvals are for", tuple(GateName))
        return None


class UnknownKind(ResourceKind):
    """Resources that another release recorded. They are compared but never applied. Row 25."""

    def classify(self, change: Change, situation: Situation) -> Ruling:  # noqa: ARG002 - one ruling for all
        """Always defer. The cluster then does not converge, so the resource is not overlooked."""
        return _DEFERRED


KINDS: Mapping[Kind, ResourceKind] = MappingProxyType(
    {
        Kind.GRAPH: GraphKind(),
        Kind.SCHEMA: SchemaKind(),
        Kind.POLICY: PolicyKind(),
        Kind.RESTORE: RestoreKind(),
        Kind.STRATEGY: StrategyKind(),
        Kind.HOST: HostKind(),
        Kind.QUERY: QueryKind(),
        Kind.TRUST: TrustKind(),
        Kind.CLUSTER: ClusterKind(),
        Kind.UNKNOWN: UnknownKind(),
    }
)
"""Every kind with its rules, in the order in which changes are displayed."""

SECTIONS: Mapping[str, Kind] = MappingProxyType({rules.section: kind for kind, rules in KINDS.items() if rules.section})
"""The kinds whose resources are declared by name with a file, by their key in `cluster.yaml`."""


def rules_of(address: Address) -> ResourceKind:
    """Return the rules for the kind of this address."""
    return KINDS[address.kind]


def is_counted_delete(change: Change) -> bool:
    """Return True if the change deletes a resource that a folder declares, of any kind."""
    return change.action is Action.DELETE and rules_of(change.address).in_folder


def is_host_delete(change: Change, forgotten: Container[str]) -> bool:
    """Return True if the change removes an item from a host, unless the host itself is `forgotten`."""
    return change.action is Action.DELETE and change.address.item is not None and change.address.host not in forgotten


def gate_of(change: Change, situation: Situation) -> Gate | None:
    """Return the gate of a change: its kind's gate, and the gates for broken clients and for too many deletes.

    Gates with a limit are met only if the rules set it. Resources that are deleted with their graph are covered by the
    graph's gate.
    """
    rules = rules_of(change.address)
    gate = rules.gate(change, situation)
    if reason := situation.breaking.get(change.address):
        gate = Gate(reason, ()) if gate is None else gate
        gate = Gate(gate.reason, (*gate.met, GateName.BREAKS_CLIENTS))
    covered = change.address.graph in situation.deleted and rules.gated_at(change) != change.address
    counted = (
        (GateName.DELETES, situation.deletes, "deletes", "resources", is_counted_delete(change) and not covered),
        (
            GateName.HOST_DELETES,
            situation.host_deletes,
            "removes",
            "items from hosts",
            is_host_delete(change, situation.forgotten),
        ),
    )
    for name, number, verb, what, counts in counted:
        permitted = situation.limits.get(name.limit, number)
        if counts and number > permitted:
            gate = (
                Gate(f"the plan {verb} {number} {what}, and {name.limit} is {permitted}", ()) if gate is None else gate
            )
            gate = Gate(gate.reason, (*gate.met, name))
    if gate is None:
        return None
    return Gate(gate.reason, tuple(each for each in gate.met if not each.limit or each.limit in situation.limits))
