"""The intents of a run: one for each node that moves a graph, announced before its first side effect."""

from __future__ import annotations

from contextlib import suppress

from gitops.cluster.model.address import Kind, schema_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import Intent, IntentKind
from gitops.cluster.model.plan import ExecutionGraph, Plan
from gitops.cluster.model.restore import restore_order
from gitops.cluster.session.session import Session
from gitops.core.errors import GitopsError

_INTENTS = {
    (Kind.GRAPH, Action.CREATE): IntentKind.GRAPH_CREATE,
    (Kind.SCHEMA, Action.UPDATE): IntentKind.SCHEMA_APPLY,
    (Kind.RESTORE, Action.CREATE): IntentKind.GRAPH_RESTORE,
    (Kind.RESTORE, Action.UPDATE): IntentKind.GRAPH_RESTORE,
    (Kind.GRAPH, Action.DELETE): IntentKind.GRAPH_DELETE,
}


def make_intents(current: Session, plan: Plan, graph: ExecutionGraph, fence: int, *, atomic: bool) -> dict[str, Intent]:
    """The intents of the graph that carries a plan out by node id, in its order, so that their ids sort like their operations."""
    workspace, stores = current.workspace, current.opened
    granted: dict[str, tuple[Approval, ...]] = {r.resource: r.spent for r in plan.approvals_required if r.satisfied}
    growth, at = current.data_growth, workspace.stamp()
    changes = {change.address: change for change in plan.changes}
    found = {}
    for node in sorted(graph.nodes, key=lambda n: n.position):
        change = changes.get(node.address)
        kind = None if change is None else _INTENTS.get((change.address.kind, change.action))
        if change is None or kind is None:
            continue
        name = change.address.name
        schema = current.desired.resources.get(schema_address(name))
        leaves_schema = kind in (IntentKind.GRAPH_DELETE, IntentKind.GRAPH_RESTORE)
        wanted = "" if leaves_schema or schema is None else schema.digest
        restores = restore_order(current.desired.resources[node.address]) if kind is IntentKind.GRAPH_RESTORE else None
        first = node.expanded if atomic else None
        # What is approved is the whole of a change, which is done with its rest.
        approvals = () if first else granted.get(node.address, ())
        used = [a.approval_id for a in approvals]
        rows = growth.covered(a.seen for a in approvals) if kind is IntentKind.GRAPH_DELETE else None
        # What the plan saw under the lock; the node itself reports a graph that does not open.
        seen, last = change.seen, 0
        if kind is not IntentKind.GRAPH_CREATE:
            # After the loss of a ledger its numbers begin again, and those of the graphs do not.
            with suppress(GitopsError):
                last = stores.engine.read(stores.graph_uri(name)).fence
        found[node.id] = Intent(
            operation_id=workspace.ids.ulid(),
            started_at=at,
            actor=workspace.actor,
            kind=kind,
            graph_id=name,
            graph_uri=stores.graph_uri(name),
            observed_manifest_version=None if seen is None else seen.version,
            expected_manifest_version=None,
            desired_schema_digest=first or wanted,
            state_cas_base=current.view.cas,
            approval_id=used[0] if used else None,
            co_approvals=tuple(used[1:]),
            incarnation=None if seen is None else seen.incarnation,
            max_rows=rows,
            fence=max(fence, last),
            restores=restores,
        )
    return found
