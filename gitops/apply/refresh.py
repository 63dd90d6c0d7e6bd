"""`refresh` and `import`: record what is really there. Opens graphs read-only and writes only the state.

Order: sweep, catalog, graphs, write. The catalog comes before the graphs, so that renewed composites leave out dropped queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gitops.apply.debts import announced_debts
from gitops.apply.entries import EntryFacts, make_entry
from gitops.apply.observe import probe_graph
from gitops.apply.recover import recover
from gitops.apply.recovery_rules import GraphProbe
from gitops.approvals.decisions import open_debts, with_debts
from gitops.cluster.catalog import verify_catalog
from gitops.cluster.gate import tell_debts
from gitops.cluster.session import Session, StateNeed, in_session
from gitops.cluster.workspace import Workspace
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.observation import Existence
from gitops.ledger.port import LedgerWrite
from gitops.model.address import Address, Kind, graph_address, schema_address
from gitops.model.entry import EntryKind
from gitops.model.outcome import RefreshOutcome
from gitops.model.state import AppliedResource, State, Status, StatusRecord
from gitops.plan.draft import StateDraft
from gitops.plan.planner import diff


def refresh(workspace: Workspace) -> RefreshOutcome:
    """Observe the declared graphs and the catalog, and write the ledger; what was seen is kept even if a graph is broken."""
    return _observe_cluster(workspace, "refresh", StateNeed.REQUIRED)


def import_cluster(workspace: Workspace) -> RefreshOutcome:
    """Start a ledger from what is observed; nothing is written if anything cannot be observed."""
    return _observe_cluster(workspace, "import", StateNeed.ABSENT)


def _observe_cluster(workspace: Workspace, operation: str, need: StateNeed) -> RefreshOutcome:
    return in_session(workspace, operation, need, lambda current: _observed(current, operation))


def _observed(current: Session, operation: str) -> RefreshOutcome:
    loaded = current.loaded
    digests: Mapping[Address, str] = {r.address: r.digest for r in loaded.resources.values()}
    state: State | None = None
    if current.ready:
        _run(current, operation)
        state = current.view.state
        digests = {} if state is None else state.digests()
    return RefreshOutcome(
        config_dir=current.workspace.config_dir,
        operation=operation,
        observations=current.observations(),
        digests=digests,
        state=state,
        diagnostics=tuple(current.problems),
    )


def _run(current: Session, operation: str) -> None:
    workspace, stores, problems = current.workspace, current.opened, current.problems
    at = workspace.stamp()
    swept = recover(stores, current.state, problems, at=at)
    draft = StateDraft(verify_catalog(stores.ledger, swept.state, problems))
    broken = []
    for resource in current.desired.of_kind(Kind.GRAPH):
        graph = resource.address.name
        seen, error = probe_graph(stores, graph)
        _record(current, draft, graph, seen, error)
        if seen.existence is not Existence.ABSENT and seen.reading is None:
            broken.append(f"{graph} ({error})")
    if broken:
        problems.add(Code.GRAPH_OBSERVATION_ERROR, "graphs", "cannot be observed: " + "; ".join(broken))
    state, importing = draft.state(), operation == "import"
    if importing and problems.has_errors:
        return
    if importing and not diff(current.desired, state):
        state = replace(state, config_digest=current.desired.config_digest)
    state = replace(state, revision=1 if importing else current.state.revision + 1)
    listing = stores.ledger.approvals()
    owed = announced_debts(listing.announced, swept.consumed)
    state = with_debts(state, owed)
    facts = EntryFacts(
        workspace.ids.ulid(),
        state.revision,
        config_digest=current.desired.config_digest,
        recovered=swept.retire,
        debts=owed,
    )
    kind = EntryKind.IMPORT if importing else EntryKind.REFRESH
    entry = make_entry(workspace, current.view, kind, facts)
    governance = workspace.governance
    trust = governance.trust_files if governance is not None and current.view.trust is None else None
    try:
        workspace.faults.reach(f"cluster_{operation}.before_state_write")
        consumed = tuple(a for a in listing.documents if a.approval_id in swept.consumed)
        current.view = stores.ledger.commit(current.view, LedgerWrite(state, entry, swept.retire, consumed, trust))
    except GitopsError as error:
        problems.add_error(error)
    tell_debts(open_debts(current.state), problems)


def _record(current: Session, draft: StateDraft, graph: str, seen: GraphProbe, error: str | None) -> None:
    """Record one observation of a declared graph."""
    desired = current.desired.resources[schema_address(graph)].digest
    live = None if seen.reading is None else digest(seen.reading.schema_source)
    matches: bool | None = None if live is None else live == desired
    if seen.existence is Existence.ABSENT:
        matches, error = False, "the graph root does not exist"
    observation: dict[str, Any] = {
        "kind": "graph",
        "address": graph_address(graph),
        "graph_uri": current.opened.graph_uri(graph),
        "observed_at": current.workspace.stamp(),
        "exists": seen.existence is not Existence.ABSENT,
        "manifest_version": None if seen.reading is None else seen.reading.manifest_version,
        "schema_digest": live,
        "desired_schema_digest": desired,
        "schema_matches_desired": matches,
        "error": error,
    }
    if seen.existence is Existence.ABSENT:
        draft.drop(graph_address(graph))
        draft.drop(schema_address(graph))
        status = StatusRecord(Status.DRIFTED, (Code.GRAPH_MISSING,), "the graph root does not exist")
    elif live is None:
        status = StatusRecord(Status.ERROR, (Code.GRAPH_OBSERVATION_ERROR,), error)
    elif matches:
        draft.put(schema_address(graph), AppliedResource(live))
        status = StatusRecord(Status.APPLIED)
    else:
        draft.put(schema_address(graph), AppliedResource(live))
        status = StatusRecord(Status.DRIFTED, ("schema_mismatch",), "the live schema is not the declared one")
    draft.mark(graph_address(graph), status)
    draft.mark(schema_address(graph), status)
    draft.observe(graph_address(graph), observation)
    draft.renew(graph, create=live is not None)
