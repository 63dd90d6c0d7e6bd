"""Checks whether an apply of a plan would fully succeed now, by the rules of apply but without its writes.

Conditions that only occur during the apply are not checked: a faster writer, a storage failure, a source that changes
during the run.
"""

from __future__ import annotations

from collections.abc import Collection

from gitops.cluster.model.address import Address, Kind, cluster_address, host_address, of_kind, schema_address
from gitops.cluster.model.change import Action, Change, Disposition, Reason
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import Plan
from gitops.cluster.model.resource import restore_order
from gitops.cluster.model.scope import ScopeChange
from gitops.cluster.plan.draft import UNKNOWN_DATA, recorded_data
from gitops.cluster.plan.probe import probe_graph
from gitops.cluster.session.gate import AcceptedApprovals
from gitops.cluster.session.session import RECORD_LIVE, VANISHED, Session
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.database.graph.port import DeleteOrder, Existence, GraphReader, MigrationPreview
from gitops.database.storage.parallel import in_parallel

_BLOCKED_REMEDIES = {
    Reason.APPROVAL_REQUIRED: "ask another person to run: gitops approve {address}",
    Reason.DEPENDENCY_NOT_APPLIED: "correct the change that it needs, then apply again: gitops apply",
    Reason.GRAPH_CREATE_FAILED: "correct the error of the graph, then apply again: gitops apply",
    Reason.SCHEMA_APPLY_FAILED: "correct the error of the schema, then apply again: gitops apply",
    Reason.GRAPH_DELETE_FAILED: "correct the error of the graph, then apply again: gitops apply",
    Reason.RECOVERY_PENDING: "correct what is reported for {graph}, if anything, then settle the operation: gitops apply",
}

# What an apply found on a host, and whether it concerns the whole host.
_FOUND_ON_HOSTS = {
    Reason.HOST_UNMANAGED: (Code.HOST_UNMANAGED, False),
    Reason.HOST_MODIFIED: (Code.HOST_MODIFIED, False),
    Reason.HOST_WRONG_TYPE: (Code.HOST_WRONG_TYPE, False),
    Reason.HOST_UNREADABLE: (Code.HOST_UNREADABLE, False),
    Reason.HOST_UNREACHABLE: (Code.HOST_UNREACHABLE, True),
    Reason.HOST_IDENTITY_CHANGED: (Code.HOST_IDENTITY_CHANGED, True),
}

PENDING = {
    Kind.TRUST: (Code.TRUST_CHANGE_PENDING, "the keys and rules of the last entry stay in force"),
    Kind.CLUSTER: (Code.CLUSTER_CHANGE_PENDING, "the cluster stays where the last entry records it"),
}
"""Kinds that are not resources of the state.

While a change of such a kind waits, the newest entry's record remains in force.
"""


def left_out(change: Change) -> GitopsError | None:
    """Return the problem that an apply reports because the plan leaves out this change.

    Returns None for a change that it applies.
    """
    address, blocked = change.address, change.disposition is Disposition.BLOCKED
    if change.disposition is Disposition.DEFERRED:
        detail = f"{change.action} of {address} is not carried out"
        return GitopsError(Code.APPLY_UNSUPPORTED_CHANGE, detail, path=address)
    if blocked and address.kind in PENDING:
        code, detail = PENDING[address.kind]
        return GitopsError(code, detail, path=address)
    if change.reason is Reason.NO_HOST_PROVIDER:
        return GitopsError(Code.HOST_PROVIDER_MISSING, f"{change.action}: {change.reason.words}", path=address)
    if change.reason is Reason.HOST_CHANGE_FAILED:
        return None  # the change itself has reported it
    if change.reason in _FOUND_ON_HOSTS:
        code, of_host = _FOUND_ON_HOSTS[change.reason]
        detail = f"{change.action}: {change.reason.words}: {next(iter(change.details), '')}".removesuffix(": ")
        return GitopsError(code, detail, path=host_address(address.host or "") if of_host else address)
    # Changes that a run did not attempt are reported at the point where it stopped.
    if blocked and change.reason not in (None, Reason.NOT_TRIED, Reason.RUN_STOPPED):
        why = f"{change.reason}: {change.reason.words}"
        # A change with its own gate is approved at its own address, any other change at the address that its kind
        # returns.
        gated = address if change.tier is not None else rules_of(address).gated_at(change)
        graph = address.graph_address or "its graphs"
        fix = _BLOCKED_REMEDIES.get(change.reason, "").format(address=gated, graph=graph) or None
        return GitopsError(Code.APPLY_DEPENDENCY_BLOCKED, why, path=address, fix=fix)
    return None


def debts_stop(plan: Plan, approvals: AcceptedApprovals) -> bool:
    """Return True if open debts prevent an apply of the plan. Only another emergency is possible then."""
    used = {a.approval_id for r in plan.approvals_required if r.satisfied for a in r.spent}
    applies = any(change.disposition is Disposition.APPLIED for change in plan.changes)
    return bool(approvals.earlier.open) and applies and not used & approvals.emergencies


def check_migration(engine: GraphReader, uri: str, change: Change, schema_source: bytes) -> MigrationPreview:
    """Return the migration preview of a live graph. Raises GitopsError if the migration cannot be applied as planned."""
    try:
        preview = engine.preview(uri, schema_source)
    except GitopsError as error:
        if error.code != Code.GRAPH_MISSING:
            raise
        # The ledger must record it, because otherwise there would be nothing to migrate.
        raise GitopsError(Code.GRAPH_VANISHED, VANISHED, path=change.address.graph_address or "") from error
    _require_supported(preview)
    planned = () if change.migration is None else change.migration.steps
    if any(step not in planned for step in preview.steps):
        detail = "the live schema is not the recorded one, so the migration would need unplanned steps"
        raise GitopsError(Code.SCHEMA_APPLY_FAILED, detail, fix=RECORD_LIVE)
    if change.migration is not None:
        _require_rows(change.migration)
    engine.check_migration(uri, schema_source, incarnation=None if change.seen is None else change.seen.incarnation)
    return preview


def _require_rows(preview: MigrationPreview) -> None:
    """Raise GitopsError `graph_rows_break_schema` if the plan counted rows that break a step."""
    if not preview.lands:
        raise GitopsError(Code.GRAPH_ROWS_BREAK_SCHEMA, preview.broken)


def _require_supported(preview: MigrationPreview) -> None:
    if not preview.supported:
        reasons = [str(step.get("reason", "")) for step in preview.steps if step.get("kind") == "unsupported_change"]
        raise GitopsError(Code.GRAPH_MIGRATION_UNSUPPORTED, "; ".join(reasons) or "the migration is not supported")


def check_move(current: Session, scope: ScopeChange) -> None:
    """Check that a cluster can move to different storage. Raises GitopsError `cluster_graphs_elsewhere`.

    Every recorded graph must exist there: the same graph, with its recorded schema, and as new as at the current
    location.
    """
    governance, state = current.workspace.governance, current.state
    graphs = sorted(of_kind(state.resources, Kind.GRAPH))
    if governance is None or scope.after is None or not graphs:
        return
    stores = governance.stores_at(scope.after)
    if stores.data_problem is not None:
        raise stores.data_problem
    moved = [graph for graph in graphs if stores.graph_uri(graph.name) != current.opened.graph_uri(graph.name)]
    found = {graph.name: _not_moved(current, stores, graph) for graph in moved}
    if left := [f"{name} {problem}" for name, problem in found.items() if problem]:
        detail = f"at the new place: {'; '.join(left)}. Copy the folder of each graph there, then apply again"
        raise GitopsError(Code.CLUSTER_GRAPHS_ELSEWHERE, detail, path=cluster_address(scope.cluster))


def _not_moved(current: Session, stores: Stores, graph: Address) -> str:
    """Explain why a graph in other stores differs from the current one here, or return an empty string if it is the same.

    If the graph is gone here, its last observation is used.
    """
    (there, error), (here, _) = probe_graph(stores, graph.name), probe_graph(current.opened, graph.name)
    if there.reading is None:
        return "is missing" if error is None else error
    last = recorded_data(current.state, graph) if here.reading is None else here.reading
    if last not in (None, UNKNOWN_DATA) and last.incarnation != there.reading.incarnation:
        return f"is a different graph, {there.reading.incarnation}, but the cluster has {last.incarnation}"
    schema = current.state.resources.get(schema_address(graph.name))
    if schema is not None and there.live != schema.digest:
        return "has a different schema from the one that the ledger records"
    was, now = None if here.reading is None else here.reading.manifest_version, there.reading.manifest_version
    return "" if was in (None, now) else f"has version {now}, and {was} where it was"


def graph_refusals(current: Session, plan: Plan, moving: Collection[str] = ()) -> tuple[GitopsError, ...]:
    """Return the errors that graphs would report if the changes were applied, in apply order.

    Without data, only planned problems are known. The same is true for the graphs with ids in `moving`, because they
    will be different when the apply starts. If a lost graph has reappeared, its creation is refused before approval,
    because its data need not be abandoned. So is a restore from a version that does not exist.
    """
    changes = {change.address: change for change in plan.changes}
    at_hand, found = current.opened.data_at_hand, []
    applied = [Address(node.id) for node in sorted(plan.graph.nodes, key=lambda n: n.position)]
    again = [a for a, c in changes.items() if c.action is Action.CREATE and c.before is not None and a not in applied]
    again += [a for a in of_kind(changes, Kind.RESTORE) if a not in applied and a not in again]
    for address in (*applied, *again):
        try:
            match changes.get(address):
                case Change(address=Address(kind=Kind.SCHEMA), action=Action.UPDATE) as change:
                    _check_update(current, change, live=at_hand and address.name not in moving)
                case Change() if address.graph in moving:
                    pass
                case Change(address=Address(kind=Kind.GRAPH), action=Action.CREATE) as change if at_hand:
                    _check_create(current, change)
                case Change(address=Address(kind=Kind.GRAPH), action=Action.DELETE) as change if at_hand:
                    _check_delete(current, change, plan)
                case Change(address=Address(kind=Kind.RESTORE), action=Action.CREATE | Action.UPDATE) if at_hand:
                    replaced_rows(current, address)
                case _:
                    pass
        except GitopsError as error:
            found.append(GitopsError(error.code, error.detail, path=address, fix=error.fix))
    return tuple(found)


def warn_of_lost_graphs(current: Session, plan: Plan, state: LedgerState, pending: Collection[str]) -> None:
    """Report the missing graphs that the plan keeps, because no change shows them. Requires access to the data.

    Graphs that a refresh found missing are planned, and those of an interrupted operation are `pending`.
    """
    settled = {change.address.graph for change in plan.changes if change.address.kind is Kind.SCHEMA}.union(pending)
    stores, problems = current.opened, current.problems
    kept = sorted(a for a in of_kind(state.resources, Kind.GRAPH) if a.name not in settled and stores.data_at_hand)
    found = in_parallel(lambda a: stores.engine.exists(stores.graph_uri(a.name)), kept, stores.workers)
    for graph, existence in zip(kept, found, strict=True):
        if existence is Existence.ABSENT:
            problems.add(Code.GRAPH_VANISHED, graph, VANISHED, severity=Severity.WARNING)


def _check_update(current: Session, change: Change, *, live: bool) -> None:
    stores = current.opened
    if not live:
        if change.migration is not None:
            _require_supported(change.migration)
            _require_rows(change.migration)
        return
    source = current.desired.resources[change.address].content or b""
    check_migration(stores.engine, stores.graph_uri(change.address.name), change, source)


def replaced_rows(current: Session, address: Address) -> int:
    """Return how many rows a declared restore would replace now. Raises GitopsError if the restore is not possible."""
    resources = current.desired.resources
    schema = resources[schema_address(address.name)].content or b""
    order = restore_order(resources[address])
    return current.opened.engine.check_restore(current.opened.graph_uri(address.name), order, schema)


def _check_create(current: Session, change: Change) -> None:
    if not current.view.found:
        return  # Without a ledger, an import records the existing graphs before anything is created.
    uri = current.opened.graph_uri(change.address.name)
    existence = current.opened.engine.exists(uri)
    if existence is Existence.PRESENT and change.before is not None:
        detail = f"{uri} contains a graph again, although the ledger records that it vanished"
        raise GitopsError(Code.GRAPH_EXISTS, detail, fix="record the restored graph: gitops refresh")
    if existence is Existence.PRESENT:
        raise GitopsError(Code.GRAPH_EXISTS, f"{uri} contains a graph that the ledger does not record")
    if existence is Existence.UNKNOWN:
        raise GitopsError(Code.GRAPH_UNREADABLE, f"it is not known whether {uri} exists")


def _check_delete(current: Session, change: Change, plan: Plan) -> None:
    """Ask the engine whether it accepts the delete order of the run."""
    stores, seen = current.opened, change.seen
    granted = [a for r in plan.approvals_required if r.resource == change.address for a in r.spent]
    rows = current.data_growth.covered(a.seen for a in granted)
    if seen is not None and rows is not None:
        order = DeleteOrder(seen.incarnation, rows, 0, tuple(a.approval_id for a in granted), seen.version)
        stores.engine.check_delete(stores.graph_uri(change.address.name), order)
