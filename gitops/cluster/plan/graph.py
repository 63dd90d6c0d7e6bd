"""Builds the execution graph from classified changes: nodes, locks, and edges with reasons.

Let D refer to R, directly or through resources that do not change. Desired references determine the order of creation,
and recorded ones the order of removal:

| D             | R             | reference            | order                                       |
| ---           | ---           | ---                  | ---                                         |
| create/update | create/update | desired              | R before D                                  |
| create/update | delete        | desired              | refused: `depends_on_deleted`               |
| create/update | delete        | recorded only        | D before R: drop the reference first        |
| create/update | create/update | recorded only        | none                                        |
| delete        | create/update | recorded             | R before D: see below                       |
| delete        | delete        | recorded             | D before R                                  |

A policy guards the graphs in its recorded bindings. If R is such a graph and is deleted, R comes before D, whatever D
does: until R is deleted, its policy does not change.

A scope, which is a graph or the cluster, has one policy. The policy that releases a scope comes before the one that takes
it, except in two cases, in which the bindings change together when the state is written. Policies that give scopes to each
other cannot wait for each other. And a policy for a new graph does not wait for one that still guards a graph that is being
deleted: if that delete fails, the new graph must not be without its policy.

Removing a query or a policy is a catalog entry that becomes visible only when the complete run is settled. It waits for
a migration of its graph, so that the graph's catalog is unchanged if the migration fails.

Graph deletes destroy data. They, and the removals that depend on them, come after a barrier that everything else must
have passed, so they run last, and not at all after any failure. Policies of deleted graphs come after them.

The nodes of an execution graph hold these locks while they run; a node takes all of its locks together, when it starts.

| key | mode | held by |
| ---                  | ---       | ---                                                                              |
| `graph:<graph>`      | exclusive | creation and delete of the graph, migration of its schema, restore of its rows   |
| `graph:<graph>`      | shared    | queries of the graph; policies that will be bound to it                          |
| `policy-scope:<ref>` | exclusive | policies that are bound to the graph or the cluster, or were                     |
| `blob:<digest>`      | exclusive | texts of equal content, if several files declare them                            |
| `approval:<id>`      | exclusive | the change that uses the approval                                                |
| `compute:<target>`   | exclusive | checks of the target by an apply (`targets`), decisions and actions of a tick    |
| `replicas:<t>/<cc>`  | exclusive | actions of a tick on one compute cluster of the target (`tick`)                  |
| `ledger`             | exclusive | barriers                                                                         |

A run belongs to one cluster, so the keys do not contain it.

The queries of one file are one text, which is published under the address of each. They need no lock between them: otherwise
a file of forty queries would take forty sequential requests to a bucket.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from gitops.cluster.model.address import CLUSTER_SCOPE, Address, Kind, of_kind
from gitops.cluster.model.change import Action, Change, Disposition
from gitops.cluster.model.host_graph import Why
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import BARRIER_KIND, ExecEdge, ExecNode, ExecutionGraph, LockClaim, LockMode
from gitops.cluster.model.resource import Dependency, DesiredState
from gitops.cluster.plan.layers import VIA_UNCHANGED, between, cycles, reached, serial_order, validate
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import BugError

BARRIER = Address("barrier.catalog")
GRAPH_MOVING = "graph-moving"

_NO_LOCKS: Mapping[Address, tuple[LockClaim, ...]] = MappingProxyType({})
_NO_REASONS: Mapping[Dependency, Why] = MappingProxyType({})
_EMPTY = ExecutionGraph()

References = Mapping[Address, tuple[Address, ...]]
Rank = tuple[int, str, int, str]


class PolicyBindings(NamedTuple):
    """Recorded and declared bindings of a policy: references to graphs, and `cluster`."""

    recorded: tuple[str, ...] = ()
    declared: tuple[str, ...] = ()

    @property
    def released(self) -> frozenset[str]:
        """The scopes that it no longer guards."""
        return frozenset(self.recorded).difference(self.declared)

    @property
    def taken(self) -> frozenset[str]:
        """The scopes that it additionally guards now."""
        return frozenset(self.declared).difference(self.recorded)


LEDGER = LockClaim("ledger")
"""The lock for writing to the ledger."""

_APPROVAL = "approval:"
_UNBOUND = PolicyBindings()
NO_BINDINGS: Mapping[Address, PolicyBindings] = MappingProxyType({})


def build_graph(
    changes: Sequence[Change],
    dependencies: Iterable[Dependency],
    applied_dependencies: Iterable[Dependency],
    *,
    bindings: Mapping[Address, PolicyBindings] = NO_BINDINGS,
    locks: Mapping[Address, tuple[LockClaim, ...]] = _NO_LOCKS,
    reasons: Mapping[Dependency, Why] = _NO_REASONS,
    hosts_first: bool = False,
) -> tuple[ExecutionGraph, tuple[Diagnostic, ...]]:
    """Return the execution graph for the changes that an apply makes. Other changes have no nodes.

    `dependencies` are the desired references, `applied_dependencies` the recorded ones. `bindings` are the bindings of
    changed policies, and `locks` the claims of each change. `reasons` are those of references between items of hosts; for
    others, the rules of the kind have them. With `hosts_first`, hosts come before graphs. The order of the items in the
    arguments does not matter.
    `position` is the order of the serial run: graph creates by id, each with its schema; schema updates; queries and
    policies; cluster, keys and rules; the barrier; graph deletes by id, each after the removals that depend on it; a
    node that must wait because of an edge comes as early as possible.

    With any diagnostic (`duplicate_resource_id`, `missing_dependency`, `dependency_cycle`, `depends_on_deleted`, all errors)
    the graph is empty, so nothing can run. Raises BugError if a change of unknown kind is to be applied.
    """
    problems = Diagnostics()
    counts = Counter(change.address for change in changes)
    for name, count in sorted(counts.items()):
        if count > 1:
            problems.add(Code.DUPLICATE_RESOURCE_ID, name, f"{name} is named by {count} changes")
    if len(problems):
        return _EMPTY, tuple(problems)
    by_address = {change.address: change for change in sorted(changes, key=lambda c: c.address)}
    active = {name: change for name, change in by_address.items() if change.disposition is Disposition.APPLIED}
    for name in active:
        if name.kind is Kind.UNKNOWN:
            raise BugError(f"{name} is of no known kind, yet it is to be applied")
    plan = _Plan(by_address, active, _references(dependencies), _references(applied_dependencies), reasons, hosts_first)
    edges = {edge for change in active.values() for edge in _reference_edges(change, plan, problems)}
    edges |= _handovers(plan, bindings, edges)
    late = _late(plan, edges)
    # A failure on a host does not keep a graph from being deleted.
    for name in (each for each in active if each in late or each.kind is not Kind.HOST) if late else ():
        edges.add(
            ExecEdge(BARRIER, name, "finish_barrier") if name in late else ExecEdge(name, BARRIER, "stage_barrier")
        )
    graph = ExecutionGraph(_nodes(plan, late, locks), tuple(sorted(edges)))
    problems.extend(validate(graph))
    if len(problems):
        return _EMPTY, tuple(problems)
    # Positions that don't contradict any edge.
    nodes = {node.id: node for node in graph.nodes}
    order = enumerate(serial_order(graph))
    return replace(graph, nodes=tuple(replace(nodes[name], position=position) for position, name in order)), ()


@dataclass(frozen=True, slots=True)
class _Plan:
    """The input, indexed: all changes and the active ones by address, both reference relations, and the known reasons."""

    changes: Mapping[Address, Change]
    active: Mapping[Address, Change]
    desired: References
    recorded: References
    reasons: Mapping[Dependency, Why]
    hosts_first: bool


def _references(dependencies: Iterable[Dependency]) -> References:
    targets: dict[Address, set[Address]] = {}
    for dependency in dependencies:
        targets.setdefault(dependency.source, set()).add(dependency.target)
    return {source: tuple(sorted(found)) for source, found in targets.items()}


def _reference_edges(change: Change, plan: _Plan, problems: Diagnostics) -> list[ExecEdge]:
    """Return the edges that result from the references of one change, by the table in this module."""
    edges: list[ExecEdge] = []
    name, deleted = change.address, change.action is Action.DELETE
    found = {} if deleted else reached(name, plan.desired, plan.active)
    for target in found:
        other = plan.changes.get(target)
        if other is None:
            continue
        if other.action is Action.DELETE:
            problems.add(Code.DEPENDS_ON_DELETED, name, f"{name} still needs {target}, which is deleted")
        elif target in plan.active:
            if not _by_schema(name, other.address, plan):
                edges.append(_edge(other, change, (name, other.address), found, plan))
        elif other.action is Action.CREATE:
            problems.add(Code.MISSING_DEPENDENCY, name, f"{name} needs {target}, which this run does not create")
    found = reached(name, plan.recorded, plan.active)
    for target in found:
        other = plan.active.get(target)
        if other is None or _by_schema(name, other.address, plan):
            continue
        if other.action is Action.DELETE and rules_of(name).binds and other.address.kind is Kind.GRAPH:
            edges.append(ExecEdge(other.address, name, "policy_guard", other.address.name))
        elif other.action is Action.DELETE:
            edges.append(_edge(change, other, (name, other.address), found, plan))
        elif deleted:
            edges.append(_edge(other, change, (name, other.address), found, plan))
    return edges


def _edge(
    before: Change, after: Change, reference: tuple[Address, Address], found: Mapping[Address, Address], plan: _Plan
) -> ExecEdge:
    """Return an edge whose reason is the reference from the first address to the second.

    `found` are the unchanged resources between them.
    """
    source, target = reference
    way = between(found, source, target)
    if way:
        reason, detail = VIA_UNCHANGED, " > ".join(way)
    elif (known := plan.reasons.get(Dependency(source, target))) is not None:
        reason, detail = known
    else:
        reason = rules_of(source).edge_reasons.get(target.kind, "explicit_dependency")
        detail = target if target.graph is None else target.graph
    return ExecEdge(before.address, after.address, reason, detail)


def _by_schema(name: Address, target: Address, plan: _Plan) -> bool:
    """Return True if a query or restore needs no edge with its graph, because a changed schema has an edge with each."""
    schema = name.schema_address
    if target.kind is not Kind.GRAPH or schema is None or schema not in plan.active:
        return False
    return any(
        schema in each.get(name, ()) and target in each.get(schema, ()) for each in (plan.desired, plan.recorded)
    )


def _handovers(plan: _Plan, bindings: Mapping[Address, PolicyBindings], edges: Iterable[ExecEdge]) -> set[ExecEdge]:
    """Return the edges from policies that release a scope to policies that claim it."""
    guarding = {edge.after for edge in edges if edge.reason == "policy_guard"}
    made = {name for name, change in plan.active.items() if name.kind is Kind.GRAPH and change.action is Action.CREATE}
    found = {
        ExecEdge(giver, policy, "scope_handover", scope)
        for policy, givers in givers_of(bindings).items()
        for giver in givers
        for scope in bindings[giver].released & bindings[policy].taken
        if {giver, policy} <= plan.active.keys()
        and (giver not in guarding or made.isdisjoint(bindings[policy].declared))
    }
    if not found:
        return found
    nodes = tuple(ExecNode(name, name.kind, change.action, 0) for name, change in plan.active.items())
    looped = {
        name: index for index, loop in enumerate(cycles(ExecutionGraph(nodes, (*edges, *found)))) for name in loop
    }
    return {edge for edge in found if looped.get(edge.before, -1) != looped.get(edge.after, -2)}


def _late(plan: _Plan, edges: Iterable[ExecEdge]) -> frozenset[str]:
    """Return the nodes after the barrier: graph deletes, dependent removals, and everything that depends on these."""
    deleted = {name for name, change in plan.active.items() if change.action is Action.DELETE}
    gone = {name.graph for name in deleted if name.kind is Kind.GRAPH}
    late: set[str] = {name for name in deleted if name.graph in gone}
    after: dict[str, list[str]] = {}
    for edge in edges:
        after.setdefault(edge.before, []).append(edge.after)
    pending = sorted(late)
    while pending:
        behind = [name for name in after.get(pending.pop(), ()) if name not in late]
        late.update(behind)
        pending.extend(behind)
    return frozenset(late)


def _nodes(plan: _Plan, late: frozenset[str], locks: Mapping[Address, tuple[LockClaim, ...]]) -> tuple[ExecNode, ...]:
    """Return the nodes in plan order, with locks and failure groups."""
    ranks: dict[Address, Rank] = {name: _rank(change, plan, late=name in late) for name, change in plan.active.items()}
    if late:
        ranks[BARRIER] = (4, "", 0, BARRIER)
    nodes = []
    for position, name in enumerate(sorted(ranks, key=ranks.__getitem__)):
        change = plan.active.get(name)
        if change is None:
            nodes.append(ExecNode(BARRIER, BARRIER_KIND, Action.UPDATE, position, (LEDGER,)))
            continue
        host = change.address.host
        group = GRAPH_MOVING if moves_graph(change) else "" if host is None else f"host:{host}"
        kind = change.address.kind.value
        nodes.append(ExecNode(name, kind, change.action, position, locks.get(name, ()), group))
    return tuple(nodes)


def _rank(change: Change, plan: _Plan, *, late: bool) -> Rank:
    """Return the sort key in plan order: stage, graph, place relative to that graph, address."""
    address, graph = change.address, change.address.graph or ""
    if late:
        beside = {Kind.SCHEMA: 1, Kind.GRAPH: 2}
        return 5, graph, beside.get(address.kind, 0), address
    if address.kind is Kind.GRAPH:
        return 0, graph, 0, address
    if address.kind is Kind.SCHEMA and change.action is Action.CREATE and address.graph_address in plan.active:
        return 0, graph, 1, address
    if address.kind is Kind.SCHEMA and change.action is not Action.DELETE:
        return 1, graph, 0, address
    if address.kind is Kind.HOST:
        return (-1, "", 0, address) if plan.hosts_first else (2, "host", 0, address)  # after all texts
    return (2 if rules_of(address).in_folder else 3), "", 0, address


def bindings_of(
    changes: Iterable[Change], desired: DesiredState, state: LedgerState
) -> Mapping[Address, PolicyBindings]:
    """Return every changed policy's bindings, which are empty if an old ledger did not record them."""
    found = {}
    for address in of_kind((change.address for change in changes), Kind.POLICY):
        before, after = state.resources.get(address), desired.resources.get(address)
        found[address] = PolicyBindings(
            () if before is None else before.applies_to or (), () if after is None else after.applies_to or ()
        )
    return found


def givers_of(bindings: Mapping[Address, PolicyBindings]) -> Mapping[Address, tuple[Address, ...]]:
    """Map each policy that takes over a scope to the sorted policies that release it."""
    by_scope: dict[str, list[Address]] = {}
    for policy in sorted(bindings):
        for scope in bindings[policy].released:
            by_scope.setdefault(scope, []).append(policy)
    found = {
        policy: {giver for scope in bound.taken for giver in by_scope.get(scope, ())}
        for policy, bound in bindings.items()
    }
    return {policy: tuple(sorted(givers)) for policy, givers in found.items() if givers}


def approvals_of(nodes: Iterable[ExecNode]) -> list[str]:
    """Return the sorted ids of the approvals that these nodes use."""
    keys = {claim.key for node in nodes for claim in node.locks}
    return sorted(key.removeprefix(_APPROVAL) for key in keys if key.startswith(_APPROVAL))


def moves_graph(change: Change) -> bool:
    """Return True if the change affects a live graph. A derived graph update does not, so it has no node."""
    return change.address.kind is Kind.GRAPH or rules_of(change.address).operation(change.action) is not None


def lock_claims(
    changes: Iterable[Change],
    bindings: Mapping[Address, PolicyBindings],
    granted: Mapping[Address, Iterable[str]],
    file_of: Callable[[Address], str | None],
) -> Mapping[Address, tuple[LockClaim, ...]]:
    """Return each change's sorted locks. Changes without locks are omitted.

    `granted` are the ids of the approvals that a change uses, `file_of` returns the file that declares a text.
    """
    by_content: dict[str, list[Address]] = {}
    claims: dict[Address, set[LockClaim]] = {}
    for change in changes:
        address = change.address
        claims[address] = {LockClaim(f"{_APPROVAL}{approval}") for approval in granted.get(address, ())}
        claims[address] |= _graph_claims(change, bindings.get(address, _UNBOUND))
        if rules_of(address).catalog_suffix and change.after is not None:
            by_content.setdefault(change.after, []).append(address)
    for content, texts in by_content.items():
        if len(texts) > 1 and len({file_of(text) for text in texts}) > 1:
            for text in texts:
                claims[text].add(LockClaim(f"blob:{content}"))
    return {address: tuple(sorted(found)) for address, found in claims.items() if found}


def _graph_claims(change: Change, bound: PolicyBindings) -> set[LockClaim]:
    """Return the graphs and scopes that a change needs exclusively, or that must not change meanwhile."""
    address = change.address
    if moves_graph(change):
        return {LockClaim(f"graph:{address.graph}")}
    used = [address.graph] if rules_of(address).uses_graph else []
    used += (Address(scope).graph for scope in bound.declared if scope != CLUSTER_SCOPE)
    return {
        *(LockClaim(f"policy-scope:{scope}") for scope in (*bound.recorded, *bound.declared)),
        *(LockClaim(f"graph:{graph}", LockMode.SHARED) for graph in used),
    }
