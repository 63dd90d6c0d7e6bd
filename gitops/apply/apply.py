"""`apply`: plan again under the lock, run the graph, settle, publish.

1. Load; any error ends here. 2. Lock. 3. Read the ledger, and take in what settles debts. 4. Sweep interrupted operations.
5. Plan with the approvals that count; an open debt ends here. 6. Announce intents. 7. Run the graph. 8. Settle. 9. Write if
anything moved, else only tidy up. 10. Report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gitops.apply.debts import announced_debts, may_go_on, settle_debts
from gitops.apply.entries import EntryFacts, make_entry
from gitops.apply.recover import recover
from gitops.apply.recovery_rules import Sweep
from gitops.apply.runner import RunSettings, run_graph
from gitops.apply.settle import RunStamp, Settlement, settle
from gitops.approvals.decisions import open_debts, with_debts
from gitops.cluster.gate import Admitted
from gitops.cluster.provider import CRASHED, DISARMED, ClusterWork
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerView, LedgerWrite
from gitops.model.address import Kind, schema_address
from gitops.model.approval import Approval
from gitops.model.change import Action, Change, Disposition
from gitops.model.entry import ApprovalUse, Debt, EntryKind
from gitops.model.execution import NodeResult, Outcome
from gitops.model.intent import Intent, IntentKind
from gitops.model.outcome import ApplyOutcome
from gitops.model.plan import Plan
from gitops.plan.plan import plan_session

_INTENTS = {
    (Kind.GRAPH, Action.CREATE): IntentKind.GRAPH_CREATE,
    (Kind.SCHEMA, Action.UPDATE): IntentKind.SCHEMA_APPLY,
    (Kind.GRAPH, Action.DELETE): IntentKind.GRAPH_DELETE,
}


@dataclass(slots=True)
class _Run:
    """One apply between planning and reporting."""

    session: Session
    sweep: Sweep
    plan: Plan
    admitted: Admitted
    operation: str
    intents: dict[str, Intent]
    view: LedgerView
    results: tuple[NodeResult, ...] = ()
    settlement: Settlement | None = None
    written: bool = False
    debts: tuple[Debt, ...] = ()


def apply(workspace: Workspace) -> ApplyOutcome:
    """Carry out what the folder declares, as far as rules and world allow."""
    return in_session(workspace, "apply", StateNeed.REQUIRED, _apply)


def _apply(current: Session) -> ApplyOutcome:
    if not current.ready or not _admitted(current) or not settle_debts(current):
        return _early(current)
    run = _prepare(current)
    if run is None:
        return _early(current)
    if not _begin(run):
        return _early(current, run)
    run.results = _execute(run)
    run.settlement = _settle(run)
    current.problems.extend(run.settlement.diagnostics)
    if not run.settlement.publishable or _crashed(run):
        return _early(current, run)
    run.written = _publish(run)
    return _report(run)


def _admitted(current: Session) -> bool:
    """Whether data may be kept here, and the source commit may be applied on top of the ledger as it is."""
    governance, problem = current.workspace.governance, current.opened.data_problem
    if problem is None and governance is not None:
        try:
            governance.admit(current.view)
        except GitopsError as error:
            problem = error
    if problem is not None:
        current.problems.add_error(problem)
    return problem is None


def _prepare(current: Session) -> _Run | None:
    """Steps 4 and 5."""
    workspace, stores = current.workspace, current.opened
    swept = recover(stores, current.state, current.problems, at=workspace.stamp())
    before = len(current.problems)
    planned = plan_session(current, swept.state, swept.pending)
    current.problems.extend(planned.plan.diagnostics)
    gate = {r.resource: r.satisfied for r in planned.plan.approvals_required}
    for change in planned.plan.changes:
        if change.disposition is Disposition.APPLIED and not gate.get(change.address, True):
            current.problems.add(
                Code.APPLY_APPROVAL_INVARIANT_VIOLATION, change.address, "a gated change has no matching approval"
            )
    may_go_on(current, planned)
    if any(d.severity == "error" for d in list(current.problems)[before:]):
        return None
    owed = announced_debts(planned.admitted.announced, swept.consumed)
    swept = replace(swept, state=with_debts(swept.state, owed))
    operation = workspace.ids.ulid()
    intents = _intents(current, planned.plan)
    return _Run(current, swept, planned.plan, planned.admitted, operation, intents, current.view, debts=owed)


def _intents(current: Session, plan: Plan) -> dict[str, Intent]:
    """One intent per node that moves a graph, in execution order, so that their ids sort like their operations."""
    workspace, stores = current.workspace, current.opened
    granted: dict[str, tuple[Approval, ...]] = {r.resource: r.approvals for r in plan.approvals_required if r.satisfied}
    at = workspace.stamp()
    changes: dict[str, Change] = {c.address: c for c in plan.changes}
    found = {}
    for node in sorted(plan.graph.nodes, key=lambda n: n.position):
        change = changes.get(node.id)
        kind = None if change is None else _INTENTS.get((change.address.kind, change.action))
        if change is None or kind is None:
            continue
        graph = change.address.name
        schema = current.desired.resources.get(schema_address(graph))
        used = [a.approval_id for a in granted.get(node.id, ())]
        found[node.id] = Intent(
            operation_id=workspace.ids.ulid(),
            started_at=at,
            actor=workspace.actor,
            kind=kind,
            graph_id=graph,
            graph_uri=stores.graph_uri(graph),
            observed_manifest_version=None if kind is IntentKind.GRAPH_CREATE else _version(current, graph),
            expected_manifest_version=None,
            desired_schema_digest="" if kind is IntentKind.GRAPH_DELETE or schema is None else schema.digest,
            state_cas_base=current.view.cas,
            approval_id=used[0] if used else None,
            co_approvals=tuple(used[1:]),
        )
    return found


def _version(current: Session, graph: str) -> int | None:
    try:
        return current.opened.engine.read(current.opened.graph_uri(graph)).manifest_version
    except GitopsError:
        return None


def _begin(run: _Run) -> bool:
    """Step 6."""
    if not run.intents:
        return True
    current = run.session
    granted = [r for r in run.plan.approvals_required if r.satisfied and r.resource in run.intents]
    facts = EntryFacts(
        run.operation,
        current.state.revision,
        run.plan.digest,
        run.plan.config_digest,
        changes=_moving(run),
        approvals=_uses(run, [a.approval_id for r in granted for a in r.approvals]),
    )
    entry = make_entry(current.workspace, run.view, EntryKind.INTENT, facts)
    try:
        run.view = current.opened.ledger.begin(run.view, tuple(run.intents.values()), entry)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def _uses(run: _Run, approval_ids: Sequence[str]) -> tuple[ApprovalUse, ...]:
    """Where signed approvals come from; a ledger folder knows no such place."""
    uses = run.admitted.uses
    return tuple(uses[i] for i in approval_ids if i in uses)


def _moving(run: _Run) -> tuple[Change, ...]:
    return tuple(c for c in run.plan.changes if c.address in run.intents)


def _execute(run: _Run) -> tuple[NodeResult, ...]:
    """Step 7."""
    current, workspace = run.session, run.session.workspace
    stores = current.opened
    provider = workspace.provider(
        ClusterWork(
            ledger=stores.ledger,
            engine=stores.engine,
            graph_uri=stores.graph_uri,
            resources=current.desired.resources,
            intents=run.intents,
            read_source=workspace.tree.read,
            faults=workspace.faults,
            actor=workspace.actor,
        )
    )
    changes: dict[str, Change] = {c.address: c for c in run.plan.changes}
    return run_graph(
        run.plan.graph,
        lambda node: provider.apply(node, changes[node.id]),
        RunSettings(workspace.clock, workspace.workers, workspace.fail_fast),
    )


def _crashed(run: _Run) -> bool:
    """Whether a fault of a test ends the run here as if the process had died."""
    try:
        run.session.workspace.faults.reach("cluster_apply.after_payload_phase")
    except GitopsError as error:
        run.session.problems.add_error(error)
        return True
    return any(r.facts.get(CRASHED) for r in run.results)


def _settle(run: _Run) -> Settlement:
    """Step 8."""
    workspace = run.session.workspace
    stamp = RunStamp(workspace.stamp(), workspace.actor)
    settled = settle(run.plan, run.session.desired, run.sweep.state, run.results, stamp)
    owed = run.admitted.debts
    opened = tuple(owed[a.approval_id] for a in settled.consumed if a.approval_id in owed)
    run.debts = (*run.debts, *opened)
    return replace(settled, state=with_debts(settled.state, opened))


def _publish(run: _Run) -> bool:
    """Step 9; whether the state was written."""
    current, workspace, settlement = run.session, run.session.workspace, run.settlement
    if settlement is None:
        raise AssertionError("publishing follows settling")
    retire = (*run.sweep.retire, *_settled_intents(run))
    moved = settlement.state != current.state or settlement.trust_applied or _waits_for_the_first_time(run, settlement)
    next_state = replace(settlement.state, revision=current.state.revision + 1) if moved else current.state
    facts = EntryFacts(
        operation=run.operation,
        state_revision=next_state.revision,
        plan_digest=run.plan.digest,
        config_digest=run.plan.config_digest,
        changes=settlement.changes,
        approvals=_uses(run, [a.approval_id for a in settlement.consumed]),
        recovered=run.sweep.retire,
        trust_applied=settlement.trust_applied,
        debts=run.debts,
    )
    entry = make_entry(workspace, run.view, EntryKind.APPLY, facts)
    try:
        workspace.faults.reach("cluster_apply.before_state_write")
        if moved:
            consumed = (*settlement.consumed, *_swept_approvals(run))
            write = LedgerWrite(next_state, entry, retire, consumed, _trust_files(run, settlement))
            current.view = current.opened.ledger.commit(run.view, write)
        elif retire:
            current.view = current.opened.ledger.retire(run.view, retire, entry)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return moved


def _waits_for_the_first_time(run: _Run, settlement: Settlement) -> bool:
    """Whether the ledger has yet to learn whose work the keys and rules are that wait: only entries carry authors on."""
    governance, entry = run.session.workspace.governance, run.view.entry
    if governance is None or not settlement.trust_waits:
        return False
    return entry is None or entry.source is None or not governance.authors <= frozenset(entry.authors)


def _swept_approvals(run: _Run) -> tuple[Approval, ...]:
    """Documents of approvals that the sweep found to be used by an interrupted delete."""
    used = run.sweep.consumed
    if not used:
        return ()
    listing = run.session.opened.ledger.approvals()
    return tuple(a for a in listing.documents if a.approval_id in used)


def _trust_files(run: _Run, settlement: Settlement) -> Mapping[str, bytes] | None:
    """The keys and rules to put in force with this entry, or None to keep those that are."""
    governance = run.session.workspace.governance
    if governance is None or not (run.view.trust is None or settlement.trust_applied):
        return None
    return governance.trust_files


def _settled_intents(run: _Run) -> tuple[str, ...]:
    """Intents of operations that are done, never started, or provably without effect; the others stay for the sweep."""
    settled = []
    for result in run.results:
        intent = run.intents.get(result.node_id)
        open_ended = result.outcome in (Outcome.FAILED, Outcome.UNKNOWN) and not result.facts.get(DISARMED)
        if intent is not None and not open_ended:
            settled.append(intent.operation_id)
    return tuple(settled)


def _early(current: Session, run: _Run | None = None) -> ApplyOutcome:
    """The report of a run that wrote nothing: counts are zero and the ledger is what is on disk."""
    loaded = current.loaded
    changes: Sequence[Change] = ()
    if run is not None:
        changes = run.plan.changes if run.settlement is None else run.settlement.changes
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        changes=tuple(changes),
        state=current.view.state,
        debts=open_debts(current.state),
        results=() if run is None else run.results,
        counted=False,
        diagnostics=tuple(current.problems),
    )


def _report(run: _Run) -> ApplyOutcome:
    """Step 10."""
    current, settlement = run.session, run.settlement
    if settlement is None:
        raise AssertionError("reporting follows settling")
    landed = run.written or settlement.state == current.state
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=run.plan.config_digest,
        changes=settlement.changes,
        converged=settlement.converged and landed,
        state_written=run.written,
        state=current.view.state,
        results=run.results,
        debts=open_debts(current.state),
        plan_digest=run.plan.digest,
        entry_id=current.view.head,
        approvals_used={
            r.resource: r.approvals for r in run.plan.approvals_required if set(r.approvals) & set(settlement.consumed)
        },
        diagnostics=tuple(current.problems),
    )
