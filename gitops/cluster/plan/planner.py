"""The only planner: desired x recorded x evidence -> plan. A pure function: equal inputs give equal bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from gitops.cluster.approvals.verify import callers_refusal, change_digest, change_form, covers_change, data_refusal
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.access import AccessDiff, AccessRow, widening_words
from gitops.cluster.model.address import Address, Kind, cluster_address, of_kind, schema_address, trust_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, GateName, Reason
from gitops.cluster.model.host_graph import Why
from gitops.cluster.model.host_rules import HostDifference
from gitops.cluster.model.kinds import Gate, Situation, gate_of, is_counted_delete, is_host_delete, rules_of
from gitops.cluster.model.ledger import AppliedResource, FormerLedger, LedgerEntry, LedgerState
from gitops.cluster.model.plan import (
    ApprovalRequirement,
    BreakKind,
    ContractBreak,
    ExecutionGraph,
    Impact,
    Plan,
    PlanInputs,
    SameTexts,
    SchemaImpact,
    TrustChange,
    Undo,
    Undoing,
)
from gitops.cluster.model.resource import Dependency, DesiredState, edges_near, restore_words
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.plan.callers import asked_for, broken_calls, callers_of
from gitops.cluster.plan.classes import effects_of, with_effects
from gitops.cluster.plan.draft import lost_words
from gitops.cluster.plan.graph import bindings_of, build_graph, givers_of, lock_claims
from gitops.cluster.plan.undo import undo_graph, undoings
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity

_NOTHING: Mapping[Address, AppliedResource] = MappingProxyType({})
_STALE = "an approval exists, but the configuration or the recorded state has changed since it was given"


def make_plan(inputs: PlanInputs, described: Described | None = None) -> Plan:
    """Return the plan for these inputs. Pass `described` if the changes are already described.

    Diagnostics of the plan: `approval_stale`, or the reason why the data is not covered, for each gated change with
    approvals that don't match; `approval_quorum` if there are approvals but not enough; and the diagnostics of the
    execution graph.
    """
    desired, problems = inputs.desired, Diagnostics()
    described = described or describe(inputs)
    changes, edges = described.changes, described.edges
    required = _requirements(changes, described.gates, inputs)
    if inputs.access is not None:
        _report_access(inputs.access, problems)
    _report_approvals(changes, described.gates, required, inputs, problems)
    changes = _ruled(changes, described.situation, required)
    graph, graph_problems = _execution_graph(changes, edges, required, inputs)
    problems.extend(graph_problems)
    undone, back = _way_back(changes, edges, inputs, problems)
    return Plan(
        config_digest=desired.config_digest,
        # What each change does, but not when, by whom or on which evidence it is made.
        digest=canonical_digest({"config_digest": desired.config_digest, "changes": [change_form(c) for c in changes]}),
        changes=changes,
        impact=find_impact(changes, edges),
        approvals_required=required,
        graph=graph,
        diagnostics=tuple(problems),
        schema_impact=described.schema_impact,
        republished=inputs.same.republished,
        formatting=formatting_of(changes, inputs.same),
        breaks=described.breaks,
        undoings=undone,
        undo_graph=back,
        rule_changes=() if inputs.trust_change is None else inputs.trust_change.rules,
        access=inputs.access,
        widening=inputs.widening,
        looks={} if inputs.hosts is None else inputs.hosts.looks,
    )


def formatting_of(changes: Sequence[Change], same: SameTexts) -> frozenset[Address]:
    """Return the changes of layout or comments only. One with an effect on data, or with a gate, is never one of them."""
    quiet = (c for c in changes if c.tier is None and (c.migration is None or not c.migration.steps))
    return frozenset(change.address for change in quiet if change.address in same.formatting)


def _report_access(access: AccessDiff, problems: Diagnostics) -> None:
    """Report widened access, missing policies, and unknown earlier access."""
    by_scope: dict[str, list[AccessRow]] = {}
    for row in access.widenings:
        by_scope.setdefault(row.scope, []).append(row)
    for scope, rows in by_scope.items():
        problems.add(Code.ACCESS_WIDENED, scope, widening_words(rows))
    if access.unguarded:
        problems.add(Code.ACCESS_UNGUARDED, "policies", "no policy is bound to a served graph or to the server")
    for scope in access.unread:
        problems.add(
            Code.ACCESS_BEFORE_UNKNOWN, scope, "the recorded policy cannot be read, so its permissions are unknown"
        )


def _report_approvals(
    changes: Sequence[Change],
    gates: Mapping[Address, Gate],
    required: Iterable[ApprovalRequirement],
    inputs: PlanInputs,
    problems: Diagnostics,
) -> None:
    """Report approvals that no change uses, and changes that need more approvals."""
    for need in required:
        unused = [a for a in inputs.approvals if a.resource == need.resource and a.consumed_at is None]
        if unused and not need.approvals:
            change = next(c for c in changes if c.address == need.resource)
            growth = inputs.data_growth
            found = [
                data_refusal(change, each.seen, growth) or callers_refusal(change, each.callers, growth)
                for each in unused
            ]
            code, detail = next(filter(None, found), (Code.APPROVAL_STALE, _STALE))
            problems.add(code, need.resource, detail)
    unasked = {a.resource for a in inputs.approvals if a.consumed_at is None} - gates.keys()
    for address in sorted(unasked.intersection(c.address for c in changes)):
        problems.add(Code.APPROVAL_STALE, address, _STALE)
    for need in required:
        if 0 < len(need.approvals) < need.needed:
            problems.add(Code.APPROVAL_QUORUM, need.resource, f"{need.words}; more people have to approve")


def _way_back(
    changes: Sequence[Change], edges: Collection[Dependency], inputs: PlanInputs, problems: Diagnostics
) -> tuple[tuple[Undoing, ...], ExecutionGraph]:
    """Return the effects of a revert plan on each change, and the order of undoing; empty for any other plan."""
    if inputs.kept is None:
        return (), ExecutionGraph()
    found = undoings(changes, inputs.kept)
    stuck = {each.resource: each.parts[0].words for each in found if each.undo is Undo.IRREVERSIBLE}
    for address, words in stuck.items():
        problems.add(Code.IRREVERSIBLE_CHANGE, address, words, severity=Severity.WARNING)
    recorded = recorded_dependencies(changes, inputs.state)
    return found, undo_graph(changes, _reachable(changes, edges), recorded, stuck)


def _execution_graph(
    changes: Sequence[Change],
    edges: Collection[Dependency],
    required: Iterable[ApprovalRequirement],
    inputs: PlanInputs,
) -> tuple[ExecutionGraph, tuple[Diagnostic, ...]]:
    desired, state = inputs.desired, inputs.state
    bindings = bindings_of(changes, desired, state)
    granted = {r.resource: tuple(a.approval_id for a in r.spent) for r in required if r.satisfied}
    recorded = recorded_dependencies(changes, state)
    reasons: Mapping[Dependency, Why] = MappingProxyType({})
    if inputs.hosts is not None:
        from gitops.cluster.plan.hosts import references_of

        before = references_of(inputs.hosts.before)
        reasons = {**before, **references_of(inputs.hosts.after)}
        recorded = tuple(sorted({*recorded, *before}))
    graph, problems = build_graph(
        changes,
        _reachable(changes, edges),
        recorded,
        bindings=bindings,
        reasons=reasons,
        hosts_first=inputs.hosts is not None and inputs.hosts.first,
        locks=lock_claims(changes, bindings, granted, lambda text: desired.resources[text].path),
    )
    if of_kind((change.address for change in changes), Kind.STRATEGY):
        from gitops.cluster.plan.strategies import strategy_targets, with_targets

        graph = with_targets(graph, strategy_targets(changes, desired))
    if inputs.hosts is not None and not problems:
        from gitops.cluster.plan.hosts import with_host_steps

        graph, problems = with_host_steps(graph, inputs.hosts)
    return with_effects(graph, effects_of(c for c in changes if c.disposition is Disposition.APPLIED)), problems


def _removed_queries(changes: Sequence[Change]) -> tuple[ContractBreak, ...]:
    """Return the queries that are removed from a graph that is kept."""
    deletes = [c.address for c in changes if c.action is Action.DELETE]
    gone = {address.name for address in deletes if address.kind is Kind.GRAPH}
    left = [address for address in deletes if address.kind is Kind.QUERY and address.graph not in gone]
    return tuple(ContractBreak(address, BreakKind.REMOVED) for address in left)


@dataclass(frozen=True, slots=True)
class Described:
    """A plan's changes, with everything that their approvals are compared with: migration, data and tier.

    Approvals are not considered yet: `situation` has none, and `gates` are the gates of all gated changes, by address.
    `edges` are the dependencies near the changes. `schema_impact` and `breaks` are the effects on queries and their
    callers.
    """

    changes: tuple[Change, ...]
    gates: Mapping[Address, Gate]
    situation: Situation
    edges: Collection[Dependency]
    schema_impact: tuple[SchemaImpact, ...] = ()
    breaks: tuple[ContractBreak, ...] = ()


def describe(inputs: PlanInputs) -> Described:
    """Describe the changes once, for the approvals and the plan."""
    differences = inputs.differences
    if differences is None:
        differences = diff(inputs.desired, inputs.state, inputs.trust_change, inputs.scope_change)
    changes = tuple(_with_data(change, inputs) for change in differences)
    edges = edges_near(inputs.desired.dependencies, {c.address.graph for c in changes if c.address.graph is not None})
    gapped = frozenset[Address]()
    if strategies := of_kind((c.address for c in changes if c.after), Kind.STRATEGY):
        from gitops.cluster.model.compute import drops_first  # Imported late, because few plans change strategies.

        gapped = drops_first(inputs.desired.resources[each] for each in strategies)
    schema_impact, breaks = _effects_on_queries(changes, inputs)
    changes = _with_callers(changes, breaks, schema_impact, inputs)
    hosts: Mapping[Address, HostDifference] = MappingProxyType({})
    host_references = frozenset[Dependency](), frozenset[Dependency]()
    if inputs.hosts is not None:
        from gitops.cluster.plan.hosts import described, host_differences, references_of  # few plans change hosts

        hosts = host_differences(changes, inputs.hosts)
        changes = described(changes, hosts)
        host_references = frozenset(references_of(inputs.hosts.after)), frozenset(references_of(inputs.hosts.before))
    situation = replace(
        survey(changes, edges, inputs.pending, inputs.state.resources),
        gates=frozenset(inputs.quorum.numbers),
        limits=inputs.quorum.limits,
        gapped=gapped,
        givers=givers_of(bindings_of(changes, inputs.desired, inputs.state)),
        widened=widened_policies(changes, inputs.access, inputs.widening),
        breaking=_asked_for_clients(changes, inputs),
        hosts=hosts,
        hosts_reached=inputs.hosts is not None and inputs.hosts.reached,
        host_references=host_references,
    )
    found = {change.address: gate_of(change, situation) for change in changes}
    gates = {address: gate for address, gate in found.items() if gate is not None}
    tiered = tuple(
        replace(c, tier=gates[c.address].tier, gates=gates[c.address].met) if c.address in gates else c for c in changes
    )
    return Described(tiered, gates, replace(situation, gated=frozenset(gates)), edges, schema_impact, breaks)


def _effects_on_queries(
    changes: Sequence[Change], inputs: PlanInputs
) -> tuple[tuple[SchemaImpact, ...], tuple[ContractBreak, ...]]:
    """Return what schema updates do to queries, and what the changes break for callers of queries."""
    removed = _removed_queries(changes)
    if not inputs.recorded:
        return (), removed
    # This reads queries, and importing the query language is slow. Many plans change neither schemas nor queries.
    from gitops.cluster.plan.impact import broken_contracts, schema_impact

    broken = broken_contracts(changes, inputs.desired, inputs.recorded, inputs.same.republished)
    breaks = tuple(sorted((*removed, *broken), key=lambda each: each.query))
    return schema_impact(changes, inputs.desired, inputs.recorded), breaks


def _with_callers(
    changes: tuple[Change, ...],
    breaks: Sequence[ContractBreak],
    impacts: Sequence[SchemaImpact],
    inputs: PlanInputs,
) -> tuple[Change, ...]:
    """Return the changes with the recorded clients that they break."""
    rules = inputs.caller_rules
    broken = {} if rules is None else broken_calls(changes, breaks, impacts, inputs.access)
    if rules is None or not broken:
        return changes
    callers = callers_of(broken, inputs.use, rules)
    # Where the use can't be read, the clients in the bot's plan are all that is known.
    callers |= {address: each for address, each in inputs.callers.items() if address in broken}
    return tuple(replace(c, callers=callers[c.address]) if c.address in callers else c for c in changes)


def _asked_for_clients(changes: Sequence[Change], inputs: PlanInputs) -> dict[Address, str]:
    """Return the changes that the gate for broken clients is about, if the rules have it, each with the reason."""
    callers = {change.address: change.callers for change in changes if change.callers is not None}
    if inputs.caller_rules is None or GateName.BREAKS_CLIENTS not in inputs.quorum.numbers:
        return {}
    return asked_for(changes, callers, inputs.caller_rules)


def _with_data(change: Change, inputs: PlanInputs) -> Change:
    """Return a change with the observed graph that it affects, and the operation on that graph."""
    address = change.address
    if not rules_of(address).is_about_data(change):
        return change
    details = (restore_words(inputs.desired.resources[address]),) if address.kind is Kind.RESTORE else change.details
    seen, at_hand = inputs.seen.get(address), inputs.at_hand
    # Only schema updates have a preview.
    return replace(change, migration=inputs.previews.get(address), seen=seen, at_hand=at_hand, details=details)


def widened_policies(
    changes: Sequence[Change], access: AccessDiff | None, classes: Collection[str]
) -> dict[Address, str]:
    """Return the changed policies that widen access in one of these classes, each with a description of the gain."""
    widenings = [] if access is None else [row for row in access.widenings if row.row_class in classes]
    found: dict[Address, str] = {}
    for address in of_kind((change.address for change in changes), Kind.POLICY):
        if rows := [row for row in widenings if row.policy == address.name]:
            found[address] = widening_words(rows)
    return found


def diff(
    desired: DesiredState, state: LedgerState, trust: TrustChange | None = None, scope: ScopeChange | None = None
) -> tuple[Change, ...]:
    """Return all differences between recorded and desired, sorted by address. Dispositions are still the default.

    A policy with unchanged content whose recorded bindings are absent or different gives an update with equal digests,
    marked `binding_change`.
    """
    changes: list[Change] = []
    after, before = desired.digests(), {address: entry.digest for address, entry in state.resources.items()}
    # Most of a large cluster is unchanged, so check only differences, and policies, because their bindings can differ.
    for address in [address for address, value in after.items() if before.get(address) != value]:
        action = Action.UPDATE if address in before else Action.CREATE
        changes.append(Change(address, action, before.get(address), after[address]))
    changes.extend(Change(gone, Action.DELETE, before[gone], None) for gone in before.keys() - after.keys())
    changes = _with_vanished(changes, desired, state)
    for address in of_kind(after, Kind.POLICY):
        same = before.get(address) == after[address]
        if same and state.resources[address].applies_to != desired.resources[address].applies_to:
            changes.append(Change(address, Action.UPDATE, before[address], after[address], binding_change=True))
    if trust is not None and trust.before != trust.after:
        changes.append(Change(trust_address(trust.cluster), Action.UPDATE, trust.before, trust.after))
    if scope is not None and scope.before != scope.after:
        changes.append(_scope_change(scope, len(of_kind(before, Kind.GRAPH))))
    return tuple(sorted(changes, key=lambda c: c.address))


def _scope_change(scope: ScopeChange, graphs: int) -> Change:
    before, after = scope.before, scope.after
    action = Action.CREATE if before is None else Action.DELETE if after is None else Action.UPDATE
    was, now = (None if each is None else each.digest for each in (before, after))
    return Change(cluster_address(scope.cluster), action, was, now, details=scope.details(graphs))


def _with_vanished(changes: list[Change], desired: DesiredState, state: LedgerState) -> list[Change]:
    """Return the changes, with updates of declared graphs that are recorded as lost replaced by their creation."""
    graphs = {graph for graph in state.vanished if graph in desired.resources}
    again = {graph: lost_words(state, graph) for graph in graphs} | {schema_address(g.name): () for g in graphs}
    after, was = desired.digests(), {a: state.resources[a].digest for a in again if a in state.resources}
    made = [Change(a, Action.CREATE, was.get(a), after[a], details=lost) for a, lost in again.items()]
    return [*(change for change in changes if change.address not in again), *made]


def survey(
    changes: Sequence[Change],
    edges: Iterable[Dependency],
    pending: Iterable[str],
    recorded: Mapping[Address, AppliedResource] = _NOTHING,
) -> Situation:
    """Return these changes' situation before any approval.

    `edges` contains at least the edges of all desired policies; `pending` are graph ids with an unsettled interrupted
    operation. `recorded` shows which graphs policies guard.
    """
    graphs = {c.address.name: c.action for c in changes if c.address.kind is Kind.GRAPH}
    created = frozenset(graph for graph, action in graphs.items() if action is Action.CREATE)
    unsettled = frozenset(
        c.address.name
        for c in changes
        if c.address.kind is Kind.SCHEMA
        and (c.action is Action.DELETE or (c.action is Action.CREATE and c.address.name not in created))
    )
    bound: dict[Address, tuple[str, ...]] = {}
    for source, target in edges:
        if source.kind is Kind.POLICY and target.kind is Kind.GRAPH:
            bound[source] = (*bound.get(source, ()), target.name)
    forgotten = frozenset(
        c.address.name for c in changes if c.action is Action.DELETE and c.address.host and c.address.item is None
    )
    return Situation(
        pending=frozenset(pending),
        created=created,
        deleted=frozenset(graph for graph, action in graphs.items() if action is Action.DELETE),
        schema_unsettled=unsettled,
        approved=frozenset(),
        policy_graphs=bound,
        deletes=sum(map(is_counted_delete, changes)),
        forgotten=forgotten,
        host_deletes=sum(is_host_delete(change, forgotten) for change in changes),
        guarded={c.address: _guarded(recorded[c.address]) for c in changes if c.address in recorded},
    )


def _guarded(policy: AppliedResource) -> tuple[str, ...] | None:
    """Return the graphs that a recorded policy is bound to."""
    return None if policy.applies_to is None else tuple(Address(scope).name for scope in policy.applies_to)


def classify(changes: Sequence[Change], situation: Situation) -> tuple[Change, ...]:
    """Set each change's disposition and reason by its kind's rules. All gates are still closed."""
    ruled = []
    for change in changes:
        disposition, reason = rules_of(change.address).classify(change, situation)
        if disposition is Disposition.APPLIED and situation.is_shut(change.address):
            disposition, reason = Disposition.BLOCKED, Reason.APPROVAL_REQUIRED
        ruled.append(replace(change, disposition=disposition, reason=reason))
    if not situation.hosts:
        return tuple(ruled)
    from gitops.cluster.plan.hosts import held_back

    held = held_back(ruled, situation.host_references)
    waits = Reason.DEPENDENCY_NOT_APPLIED
    return tuple(
        replace(each, disposition=Disposition.BLOCKED, reason=waits) if each.address in held else each for each in ruled
    )


def _ruled(
    changes: Sequence[Change], situation: Situation, required: Sequence[ApprovalRequirement]
) -> tuple[Change, ...]:
    """Classify the changes with their approvals.

    If the changes exceed a limit in the rules, none of them is applied until all can be applied. Otherwise applying the
    first ones would bring the rest below the limit.
    """
    approved = frozenset(need.resource for need in required if need.satisfied)
    limited = (need for need in required if any(gate.limit for gate in need.gates))
    # Changes to keys, rules and the cluster's location meet every gate, so they are not counted.
    together = frozenset(need.resource for need in limited if rules_of(need.resource).in_folder)
    held = frozenset[Address]() if together <= approved else together & approved
    ruled = classify(changes, replace(situation, approved=approved - held))
    if not held:
        return ruled
    waits = Reason.DEPENDENCY_NOT_APPLIED
    return tuple(
        replace(change, reason=waits)
        if change.reason is Reason.APPROVAL_REQUIRED
        and held & {change.address, rules_of(change.address).gated_at(change)}
        else change
        for change in ruled
    )


def find_impact(changes: Sequence[Change], dependencies: Iterable[Dependency]) -> tuple[Impact, ...]:
    """Return the resources that depend on each change, in order. Changes that nothing depends on are omitted."""
    needed_by: dict[Address, list[Address]] = {change.address: [] for change in changes}
    for source, target in dependencies if changes else ():
        if target in needed_by:
            needed_by[target].append(source)
    return tuple(
        Impact(change.address, tuple(needed_by[change.address])) for change in changes if needed_by[change.address]
    )


def recorded_dependencies(changes: Sequence[Change], state: LedgerState) -> tuple[Dependency, ...]:
    """Return the direct and indirect dependencies that are recorded for the changed resources, for the teardown order."""
    edges: set[Dependency] = set()
    seen: set[Address] = set()
    pending = [change.address for change in changes]
    while pending:
        address = pending.pop()
        if address in seen or address not in state.resources:
            continue
        seen.add(address)
        needed = rules_of(address).needs(address, state.resources[address].applies_to or ())
        targets = [target for target in needed if target.kind is not Kind.UNKNOWN]
        edges.update(Dependency(address, target) for target in targets)
        pending += targets
    return tuple(sorted(edges))


def _reachable(changes: Sequence[Change], dependencies: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """Return the dependencies reachable from any of the changes, in order."""
    sources: set[Address] = set()
    pending = {change.address for change in changes}
    while pending:
        sources |= pending
        # Paths (cluster, graph, schema) have only a few steps, so walking them again is cheap.
        pending = {target for source, target in dependencies if source in pending} - sources
    return tuple(edge for edge in dependencies if edge.source in sources) if sources else ()


def _requirements(
    changes: Sequence[Change], gates: Mapping[Address, Gate], inputs: PlanInputs
) -> tuple[ApprovalRequirement, ...]:
    """Return the required approvals of the changes, each with the approvals that it uses, ordered by id.

    To open the gate, one approval per person counts, and only as many as needed. All other valid approvals are consumed
    as well, so that none remains for a later change of the same form. An emergency is used only if people are missing.
    """

    def valid(approvals: Iterable[Approval], change: Change) -> list[Approval]:
        covering = (a for a in approvals if covers_change(a, change, inputs.desired.config_digest, inputs.data_growth))
        return sorted(covering, key=lambda a: a.approval_id)

    found = []
    for change in changes:
        if change.address not in gates:
            continue
        good = valid(inputs.approvals, change)
        people = {a.approved_by: a for a in reversed(good) if a.approval_id not in inputs.alone}
        gate = gates[change.address]
        needed = inputs.quorum.needed(gate.met)
        chosen = sorted(people.values(), key=lambda a: a.approval_id)[:needed]
        alone = [a for a in good if a.approval_id in inputs.alone]
        emergency = bool(alone) and len(chosen) < needed
        if emergency:
            chosen, needed = alone[:1], 1
        used = {a.approval_id for a in chosen} | inputs.alone
        further = tuple(a for a in (*good, *valid(inputs.further, change)) if a.approval_id not in used)
        required = ApprovalRequirement(
            change.address,
            gate.reason,
            change_digest(change),
            tuple(chosen),
            needed,
            tuple(who for who in inputs.may_approve(change.address) if who not in people),
            gate.tier,
            further,
            emergency,
            inputs.quorum.deciding(gate.met),
            inputs.quorum.environment,
        )
        found.append(required)
    return tuple(found)


# The change that a quorum approves before a ledger can follow an earlier one that an import found.


def pending_adoption(view: LedgerView) -> Change | None:
    """Return the waiting change if the newest entry is an import that replaces an earlier ledger. It must be applied first."""
    if view.entry is None or view.entry.former is None or view.head is None:
        return None
    return adoption_change(view.entry, view.head, view.entry.former)


def adoption_change(entry: LedgerEntry, commit: str, former: FormerLedger) -> Change:
    """Return the change to approve, which is that exactly this first entry replaces the earlier ledger."""
    found = {"genesis": former.genesis, "head": former.head, "found": former.found, "trust_digest": former.trust_digest}
    details = (
        f"gives up an earlier ledger: {former.found}",
        "its debts, its used and revoked approvals and its history are not carried over",
    )
    after = canonical_digest({"first": commit, "former": found})
    return Change(cluster_address(entry.target.cluster), Action.ADOPT, None, after, details=details)
