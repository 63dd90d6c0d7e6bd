"""`apply`: plan again under the lock, carry out the execution graph, settle, publish.

1. Load; any error ends here. 2. Lock. 3. Read the ledger, and record countersignatures that settle debts. 4. Recover interrupted
operations. 5. Plan with the approvals that count; an open debt ends here. 6. Announce intents. 7. Carry out the graph.
8. Settle. 9. Write if anything changed, else only remove settled intents. 10. Report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from gitops.apply.adopt import adopt_former
from gitops.apply.entries import announced_debts, check_debts, make_entry, origins_of, settle_debts
from gitops.apply.recover import recover
from gitops.apply.runner import report_interrupt, run_graph
from gitops.apply.settle import Settlement, settle
from gitops.approvals.decisions import open_debts, with_debts
from gitops.cluster.gate import AcceptedApprovals
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import CRASHED, DISARMED, ClusterWork, Governance, Workspace
from gitops.config.sound import SoundRecord
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerView, LedgerWrite
from gitops.model.address import Address, Kind, schema_address
from gitops.model.approval import Approval
from gitops.model.change import Action, Change, Disposition
from gitops.model.ledger import ApprovalUse, Debt, EntryKind, Intent, IntentKind, LedgerEntry
from gitops.model.origin import Origin
from gitops.model.outcome import ApplyOutcome
from gitops.model.plan import ExecNode, NodeOutcome, NodeResult, Plan
from gitops.model.trust import DataGrowth
from gitops.plan.landing import warn_of_lost_graphs
from gitops.plan.plan import plan_session
from gitops.plan.recovery_rules import Sweep
from gitops.plan.republished import republished_queries

_INTENTS = {
    (Kind.GRAPH, Action.CREATE): IntentKind.GRAPH_CREATE,
    (Kind.SCHEMA, Action.UPDATE): IntentKind.SCHEMA_APPLY,
    (Kind.GRAPH, Action.DELETE): IntentKind.GRAPH_DELETE,
}


@dataclass(slots=True)
class _Run:
    """One apply between planning and reporting; `view` is the ledger as last written by this run."""

    session: Session
    swept: Sweep
    plan: Plan
    accepted: AcceptedApprovals
    operation: str
    intents: dict[str, Intent]
    view: LedgerView
    debts: tuple[Debt, ...]


def apply(workspace: Workspace) -> ApplyOutcome:
    """Apply what the folder declares, as far as approvals, dependencies and the live graphs allow."""
    return in_session(workspace, "apply", StateNeed.REQUIRED, _apply)


def _apply(current: Session) -> ApplyOutcome:
    if not current.ready or not _may_apply(current):
        return _unchanged(current)
    if (waits := adopt_former(current)) or not settle_debts(current):
        return _unchanged(current, waits)
    run = _prepare(current)
    if run is None:
        return _unchanged(current)
    with current.workspace.cancel.work():
        return _land(run)


def _land(run: _Run) -> ApplyOutcome:
    """Steps 6 to 9, which no signal breaks off: an interrupt starts nothing more, and what is done is recorded."""
    current, workspace, problems = run.session, run.session.workspace, run.session.problems
    if workspace.cancel.requested or not _announce(run):
        report_interrupt(workspace.cancel, (), problems)
        return _unchanged(current, run.plan.changes)
    republished = _republished(current, run.plan)
    results = _carry_out(run)
    report_interrupt(workspace.cancel, results, problems)
    # Step 8, with the debts that the emergencies of this run open.
    settled = settle(run.plan, current.desired, run.swept.state, results, at=workspace.stamp(), actor=workspace.actor)
    opened = tuple(run.accepted.debts[a.approval_id] for a in settled.consumed if a.approval_id in run.accepted.debts)
    run.debts = (*run.debts, *opened)
    settled = replace(settled, state=with_debts(settled.state, opened))
    problems.extend(settled.diagnostics)
    # A fault of a test may end the run here as if the process had died.
    crashed = any(result.facts.get(CRASHED) for result in results)
    if settled.publishable:
        try:
            workspace.faults.reach("cluster_apply.after_payload_phase")
        except GitopsError as error:
            problems.add_error(error)
            crashed = True
    if not settled.publishable or crashed:
        return _unchanged(current, settled.changes, results, republished)
    written = _publish(run, results, settled)
    return replace(
        _unchanged(current, settled.changes, results, republished),
        counted=True,
        converged=settled.converged and (written or settled.state == current.state),
        state_written=written,
        plan=run.plan,
        plan_digest=run.plan.digest,
        entry_id=current.view.head,
        approvals_used={
            r.resource: r.spent for r in run.plan.approvals_required if set(r.spent) & set(settled.consumed)
        },
    )


def _unchanged(
    current: Session,
    changes: Sequence[Change] = (),
    results: tuple[NodeResult, ...] = (),
    republished: frozenset[Address] = frozenset(),
) -> ApplyOutcome:
    """The report of a run that wrote nothing: counts are zero and the ledger is what is stored."""
    loaded = current.loaded
    return ApplyOutcome(
        config_dir=current.workspace.config_dir,
        observations=current.observations(),
        actor=current.workspace.actor,
        config_digest=None if loaded.desired is None else loaded.desired.config_digest,
        changes=tuple(changes),
        state=current.view.state,
        debts=open_debts(current.state),
        results=results,
        counted=False,
        republished=republished,
        diagnostics=tuple(current.problems),
    )


def _republished(current: Session, plan: Plan) -> frozenset[Address]:
    """The queries of a plan that are only published again, by the catalog as it is before that."""

    def read(query: Address, digest: str) -> bytes | None:
        declared = current.desired.resources[query]
        if digest == declared.digest:
            return declared.content
        with suppress(GitopsError):
            return current.opened.ledger.blob(query, digest).content
        return None

    return republished_queries(((each.address, each.before, each.after) for each in plan.changes), read)


def _may_apply(current: Session) -> bool:
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
    """Steps 4 and 5; None if an error ends the run."""
    workspace = current.workspace
    swept = recover(current.opened, current.view, current.problems, at=workspace.stamp())
    before = len(current.problems)
    plan, accepted = plan_session(current, swept.state, swept.pending, in_place=True, live=True)
    current.problems.extend(plan.diagnostics)
    warn_of_lost_graphs(current, plan, swept.state, swept.pending)
    satisfied = {r.resource: r.satisfied for r in plan.approvals_required}
    for change in plan.changes:
        if change.disposition is Disposition.APPLIED and not satisfied.get(change.address, True):
            detail = "a gated change has no matching approval"
            current.problems.add(Code.APPLY_APPROVAL_INVARIANT_VIOLATION, change.address, detail)
    check_debts(current, plan, accepted)
    if any(problem.severity is Severity.ERROR for problem in list(current.problems)[before:]):
        return None
    owed = announced_debts(accepted.announced, swept.consumed)
    return _Run(
        session=current,
        swept=replace(swept, state=with_debts(swept.state, owed)),
        plan=plan,
        accepted=accepted,
        operation=workspace.ids.ulid(),
        intents=_intents(current, plan, swept.fence),
        view=current.view,
        debts=owed,
    )


def _intents(current: Session, plan: Plan, fence: int) -> dict[str, Intent]:
    """One intent per node that moves a graph, in execution order, so that their ids sort like their operations."""
    workspace, stores = current.workspace, current.opened
    granted: dict[str, tuple[Approval, ...]] = {r.resource: r.spent for r in plan.approvals_required if r.satisfied}
    growth = DataGrowth() if current.view.trust is None else current.view.trust.data_growth
    at = workspace.stamp()
    changes: dict[str, Change] = {change.address: change for change in plan.changes}
    found = {}
    for node in sorted(plan.graph.nodes, key=lambda n: n.position):
        change = changes.get(node.id)
        kind = None if change is None else _INTENTS.get((change.address.kind, change.action))
        if change is None or kind is None:
            continue
        graph = change.address.name
        schema = current.desired.resources.get(schema_address(graph))
        approvals = granted.get(node.id, ())
        used, rows = [a.approval_id for a in approvals], [a.seen.rows for a in approvals if a.seen is not None]
        # What the plan saw under the lock; the node itself reports a graph that does not open.
        seen, last = change.seen, 0
        if kind is not IntentKind.GRAPH_CREATE:
            # After the loss of a ledger its numbers begin again, and those of the graphs do not.
            with suppress(GitopsError):
                last = stores.engine.read(stores.graph_uri(graph)).fence
        found[node.id] = Intent(
            operation_id=workspace.ids.ulid(),
            started_at=at,
            actor=workspace.actor,
            kind=kind,
            graph_id=graph,
            graph_uri=stores.graph_uri(graph),
            observed_manifest_version=None if seen is None else seen.version,
            expected_manifest_version=None,
            desired_schema_digest="" if kind is IntentKind.GRAPH_DELETE or schema is None else schema.digest,
            state_cas_base=current.view.cas,
            approval_id=used[0] if used else None,
            co_approvals=tuple(used[1:]),
            incarnation=None if seen is None else seen.incarnation,
            max_rows=min(map(growth.allowed, rows)) if rows and kind is IntentKind.GRAPH_DELETE else None,
            fence=max(fence, last),
        )
    return found


def _announce(run: _Run) -> bool:
    """Step 6; False if the intents could not be recorded."""
    if not run.intents:
        return True
    current = run.session
    granted = [r for r in run.plan.approvals_required if r.satisfied and r.resource in run.intents]
    changes = tuple(change for change in run.plan.changes if change.address in run.intents)
    entry = make_entry(
        current.workspace,
        run.view,
        EntryKind.INTENT,
        at=current.at,
        operation=run.operation,
        state_revision=current.state.revision,
        plan_digest=run.plan.digest,
        config_digest=run.plan.config_digest,
        changes=changes,
        # Also those of what this run leaves: the next run asks for the authors of commits after this entry.
        origins=_origins(run, run.plan.changes),
        approvals=_uses(run, (approval for r in granted for approval in r.spent)),
    )
    try:
        run.view = current.opened.ledger.begin(run.view, tuple(run.intents.values()), entry)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True


def _uses(run: _Run, approvals: Iterable[Approval]) -> tuple[ApprovalUse, ...]:
    """Where these approvals come from; those of a ledger folder are unsigned and left out."""
    uses = run.accepted.uses
    return tuple(uses[a.approval_id] for a in approvals if a.approval_id in uses)


def _origins(run: _Run, changes: Sequence[Change]) -> tuple[Origin, ...]:
    """The origins that the entry of some changes records; a ledger folder has none."""
    governance = run.session.workspace.governance
    gated = {gate.resource for gate in run.plan.approvals_required}
    return () if governance is None else origins_of(governance, changes, gated)


def _carry_out(run: _Run) -> tuple[NodeResult, ...]:
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
            cancel=workspace.cancel,
        )
    )
    changes: dict[str, Change] = {change.address: change for change in run.plan.changes}
    crashed: list[str] = []

    def execute(node: ExecNode) -> NodeResult:
        result = provider.apply(node, changes[node.id])
        if result.facts.get(CRASHED):
            crashed.append(node.id)
        return result

    return run_graph(
        run.plan.graph,
        execute,
        clock=workspace.clock,
        workers=workspace.workers or stores.workers,
        fail_fast=workspace.fail_fast,
        on_event=workspace.on_event,
        stop=lambda: bool(crashed),
        cancel=workspace.cancel,
        time_limit=workspace.time_limit,
        recoveries={name: intent.operation_id for name, intent in run.intents.items()},
        facts={"plan_digest": run.plan.digest, "direction": "up"},
    )


def _sound(current: Session) -> SoundRecord | None:
    """The graphs that later runs need not read again; None where the compiler of this program is not known."""
    vouched = current.workspace.vouched
    return None if vouched is None else SoundRecord(vouched.compiler, vouched.folder, current.loaded.sound)


def _publish(run: _Run, results: Sequence[NodeResult], settled: Settlement) -> bool:
    """Step 9; whether the state was written."""
    current, workspace, governance = run.session, run.session.workspace, run.session.workspace.governance
    ledger = current.opened.ledger
    # Intents of operations that are done, never started, or provably without effect; recovery settles the others.
    retire = list(run.swept.retire)
    for result in results:
        intent = run.intents.get(result.node_id)
        open_ended = result.outcome in (NodeOutcome.FAILED, NodeOutcome.INDETERMINATE) and not result.facts.get(
            DISARMED
        )
        if intent is not None and not open_ended:
            retire.append(intent.operation_id)
    changed = settled.state != current.state or settled.trust_applied
    origins = _origins(run, settled.changes)
    changed |= governance is not None and _moves_on(governance, run.view.entry, settled, origins)
    # Recovery found these to be used by an interrupted delete. In a folder their documents may not be marked yet.
    swept = () if not run.swept.consumed else ledger.approvals().documents
    recovered = tuple(a for a in swept if a.approval_id in run.swept.consumed)
    changed |= any(a.consumed_at is None for a in recovered)
    state = replace(settled.state, revision=current.state.next_revision) if changed else current.state
    entry = make_entry(
        workspace,
        run.view,
        EntryKind.APPLY,
        at=current.at,
        operation=run.operation,
        state_revision=state.revision,
        plan_digest=run.plan.digest,
        config_digest=run.plan.config_digest,
        changes=settled.changes,
        approvals=_uses(run, settled.consumed),
        recovered=run.swept.retire,
        origins=origins,
        trust_applied=settled.trust_applied,
        debts=run.debts,
    )
    try:
        workspace.faults.reach("cluster_apply.before_state_write")
        if changed:
            enters_force = governance is not None and (run.view.trust is None or settled.trust_applied)
            trust = governance.trust_files if governance is not None and enters_force else None
            current.view = ledger.commit(
                run.view,
                LedgerWrite(state, entry, tuple(retire), (*settled.consumed, *recovered), trust, _sound(current)),
            )
        elif retire:
            current.view = ledger.retire(run.view, tuple(retire), entry)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return changed


def _moves_on(
    governance: Governance, last: LedgerEntry | None, settled: Settlement, origins: tuple[Origin, ...]
) -> bool:
    """Whether an entry that leaves the state as it is records something: origins of what waits, or another source."""
    if last is None or last.source is None:
        return True
    # Only entries keep origins, also of changes that are not in the state: of those that wait, and that none wait any more.
    if (settled.rules_wait or governance.carried) and origins != last.origins:
        return True
    # What was changed and taken back must not count for the authors of a later change, and a sweep must not find a file that
    # declares nothing again and again.
    source, earlier = governance.source, last.source
    return source.commit != earlier.commit and (source.tree != earlier.tree or governance.touched())
