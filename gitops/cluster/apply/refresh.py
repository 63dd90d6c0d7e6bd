"""`refresh` and `import` record observations. They open graphs read-only and write only the ledger state.

Order: recovery, catalog, graphs, write. The catalog comes before the graphs, so that recomputed composites don't
include dropped queries.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.apply.adopt import found_former
from gitops.cluster.apply.entries import Facts, announced_debts, make_entry
from gitops.cluster.apply.recover import recover
from gitops.cluster.approvals.decisions import with_debts
from gitops.cluster.ledger.port import LedgerWrite
from gitops.cluster.model.address import Kind, graph_address, schema_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import AppliedResource, EntryKind, FormerLedger, LedgerState, Status, StatusRecord
from gitops.cluster.model.outcome import RefreshOutcome
from gitops.cluster.plan.draft import StateDraft, graph_observation, recorded_data
from gitops.cluster.plan.planner import diff
from gitops.cluster.plan.probe import GraphProbe, probe_graph
from gitops.cluster.session.gate import report_debts
from gitops.cluster.session.session import VANISHED, Session, StateNeed, verify_catalog, writing
from gitops.cluster.session.workspace import Workspace
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.graph.port import Existence, GraphReading


def refresh(workspace: Workspace) -> RefreshOutcome:
    """Observe the declared graphs and the catalog, then write the ledger, even if some graphs cannot be observed."""
    return writing(workspace, "refresh", StateNeed.REQUIRED, lambda current: _record_observations(current, "refresh"))


def import_cluster(workspace: Workspace, *, adopt: bool = False) -> RefreshOutcome:
    """Start a ledger from observations. Writes nothing unless everything can be observed.

    `adopt` also allows this over an earlier ledger; then a quorum must approve before anything is applied.
    """

    def body(current: Session) -> RefreshOutcome:
        former: FormerLedger | None = None
        if current.ready:
            try:
                former = found_former(current, adopt=adopt)
            except GitopsError as error:
                current.problems.add_error(error)
                current.ready = False
        return _record_observations(current, "import", former)

    return writing(workspace, "import", StateNeed.ABSENT, body)


def _record_observations(current: Session, operation: str, former: FormerLedger | None = None) -> RefreshOutcome:
    unwritten = _observe_and_write(current, operation, former) if current.ready else None
    return RefreshOutcome(
        config_dir=current.workspace.config_dir,
        operation=operation,
        observations=current.observations(),
        state=current.view.state,
        unwritten=unwritten,
        diagnostics=tuple(current.problems),
    )


def _observe_and_write(current: Session, operation: str, former: FormerLedger | None) -> LedgerState | None:
    """Observe the graphs and write the ledger. If an import cannot write, return its observations."""
    workspace, stores, problems = current.workspace, current.opened, current.problems
    if operation == "import" and workspace.governance is not None:
        try:
            workspace.governance.admit(current.view)
        except GitopsError as problem:
            problems.add_error(problem)
            return None
    swept = recover(stores, current.view, problems, at=workspace.stamp())
    draft = StateDraft(verify_catalog(stores.ledger, swept.state, problems))
    recorded = {a for a in draft.resources if a.kind is Kind.GRAPH}
    for address in sorted(recorded | {r.address for r in current.desired.of_kind(Kind.GRAPH)}):
        graph = address.name
        observed, error = probe_graph(stores, graph, files=True)
        if observed.existence is Existence.ABSENT and address in recorded and graph not in swept.pending:
            _record_vanished(current, draft, swept.state, graph)
        elif address in current.desired.resources:
            _record_graph(current, draft, graph, observed, error)
            if observed.existence is not Existence.ABSENT and observed.reading is None:
                problems.add(Code.GRAPH_OBSERVATION_ERROR, address, f"cannot be observed: {error}")
        elif observed.reading is not None:
            _record_undeclared(current, draft, graph, observed.reading)
    state, importing = draft.state(), operation == "import"
    if importing and problems.has_errors:
        return state
    if importing and not diff(current.desired, state):
        state = replace(state, config_digest=current.desired.config_digest)
    state = replace(state, revision=1 if importing else current.state.next_revision)
    listing = stores.ledger.approvals()
    owed = announced_debts(listing.announced, swept.consumed)
    state = with_debts(state, owed)
    governance = workspace.governance
    facts = Facts(
        config_digest=current.desired.config_digest,
        recovered=swept.retire,
        debts=owed,
        vanished=tuple(sorted(state.vanished)),
        scope=governance.declares(current.desired.storage) if governance is not None and importing else None,
    )
    entry = make_entry(current, EntryKind.IMPORT if importing else EntryKind.REFRESH, facts, state)
    entry = entry if entry is None or former is None else replace(entry, former=former)
    trust = governance.trust_files if governance is not None and current.view.trust is None else None
    try:
        workspace.faults.reach(f"cluster_{operation}.before_state_write")
        consumed = tuple(a for a in listing.documents if a.approval_id in swept.consumed)
        current.view = stores.ledger.commit(current.view, LedgerWrite(state, entry, swept.retire, consumed, trust))
    except GitopsError as error:
        problems.add_error(error)
    report_debts(current.state.debts, governance, problems)
    return None


def _record_vanished(current: Session, draft: StateDraft, state: LedgerState, graph: str) -> None:
    """Record that an applied graph is gone. Its record is kept, so that any decision about it needs an approval."""
    address, why = graph_address(graph), VANISHED
    last = recorded_data(state, address)
    observation = graph_observation(
        graph,
        uri=current.opened.graph_uri(graph),
        at=current.workspace.stamp(),
        seen=last,
        live=None,
        desired=current.desired.digests().get(schema_address(graph)),
        exists=False,
        error=why,
    )
    draft.observe(address, {**observation, "vanished": True})
    status = StatusRecord(Status.DRIFTED, (Code.GRAPH_VANISHED,), why)
    draft.mark(address, status)
    draft.mark(schema_address(graph), status)
    # Rows that were loaded since then are unknown.
    lost = "" if last is None else f"; it had {last.held} in version {last.version} when it was last recorded"
    current.problems.add(Code.GRAPH_VANISHED, address, f"{why}{lost}")


def _record_undeclared(current: Session, draft: StateDraft, graph: str, reading: GraphReading) -> None:
    """Record the content of a graph whose delete waits for approval, because its approvers want to see it."""
    seen = Seen(reading.incarnation, reading.rows, reading.manifest_version)
    uri, live = current.opened.graph_uri(graph), digest(reading.schema_source)
    at = current.workspace.stamp()
    draft.observe(graph_address(graph), graph_observation(graph, uri=uri, at=at, seen=seen, live=live, desired=None))


def _record_graph(current: Session, draft: StateDraft, graph: str, observed: GraphProbe, error: str | None) -> None:
    """Record one observation of a declared graph. `error` is the reason why it could not be opened."""
    address, schema = graph_address(graph), schema_address(graph)
    desired, live = current.desired.resources[schema].digest, observed.live
    matches: bool | None = None if live is None else live == desired
    if observed.existence is Existence.ABSENT:
        matches, error = False, "the graph root does not exist"
    reading = observed.reading
    seen = None if reading is None else Seen(reading.incarnation, reading.rows, reading.manifest_version)
    observation = graph_observation(
        graph,
        uri=current.opened.graph_uri(graph),
        at=current.workspace.stamp(),
        seen=seen,
        live=live,
        desired=desired,
        exists=observed.existence is not Existence.ABSENT,
        error=error,
    )
    draft.observe(address, observation)
    if observed.existence is Existence.ABSENT:
        draft.drop(address)
        draft.drop(schema)
        status = StatusRecord(Status.DRIFTED, (Code.GRAPH_MISSING,), error)
    elif live is None:
        status = StatusRecord(Status.ERROR, (Code.GRAPH_OBSERVATION_ERROR,), error)
    else:
        draft.put(schema, AppliedResource(live))
        status = StatusRecord(Status.APPLIED)
        if not matches:
            status = StatusRecord(Status.DRIFTED, ("schema_mismatch",), "the live schema is not the declared one")
    draft.mark(address, status)
    draft.mark(schema, status)
    draft.renew(graph, create=live is not None)
