"""What a changeset that failed takes back: graphs that it created, and migrations that only added something.

Nothing is taken back by memory alone: each graph is looked at first, and only what this changeset made, and nothing has used
since, is removed. The rest stays as it is, and is listed as orphaned with the reason. A text that was published is found by its
digest alone; nothing refers to it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.apply.runner import run_graph
from gitops.cluster.changesets.journal import Journal
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.changeset import Changeset, Failed, Member, Orphan, Runtime, RuntimeState, RuntimeUpdated
from gitops.cluster.model.ledger import Intent
from gitops.cluster.model.plan import ExecNode, ExecutionGraph, LockClaim, NodeOutcome, NodeResult
from gitops.cluster.plan.layers import transposed
from gitops.cluster.plan.open_changesets import live_members, to_migrate_back, to_remove
from gitops.cluster.session.session import Session
from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity
from gitops.core.errors import GitopsError
from gitops.database.graph.port import DeleteOrder

__all__ = ["end_rolled_back", "keep", "take_back", "to_take_back"]


_KEPT = "kept for inspection (on_failure: keep)"


def to_take_back(record: Changeset) -> ExecutionGraph:
    """The graph of what an interrupted run may have staged; the graphs of a cluster do not depend on each other."""
    nodes = (
        ExecNode(m.address, m.address.kind.value, m.action, position, (LockClaim(f"graph:{m.address.name}"),))
        for position, m in enumerate(live_members(record))
    )
    return ExecutionGraph(tuple(nodes))


def take_back(
    current: Session,
    record: Changeset,
    staged: ExecutionGraph,
    intents: Mapping[str, Sequence[Intent]],
    fence: int,
    versions: Mapping[str, object] | None = None,
) -> tuple[Orphan, ...]:
    """Take back the nodes of `staged` in the reverse of their order, each by what its graph is now; what is left behind.

    `intents` are those of the changeset by node id; a node without one was never begun. `fence` is the number of this run, and
    `versions` are those that its migrations gave the graphs, where they are known.
    """
    members = {member.address: member for member in record.members}
    known = versions or {}

    def execute(node: ExecNode) -> NodeResult:
        member, announced = members[Address(node.id)], intents.get(node.id, ())
        if announced and member.address.kind is Kind.GRAPH:
            _remove_graph(current, record, member, announced, fence)
        elif announced:
            _migrate_back(current, member, announced, fence, known.get(node.id))
        return NodeResult(node.id, NodeOutcome.DONE)

    workspace = current.workspace
    workers = workspace.workers or current.opened.workers
    # One that has to stay keeps no other one from being taken back, unless that needs it.
    alone = ExecutionGraph(tuple(replace(node, group="") for node in staged.nodes), staged.edges)
    results = run_graph(transposed(alone), execute, clock=workspace.clock, workers=workers)
    return tuple(
        Orphan(Address(result.node_id), _why_left(result)) for result in results if not result.outcome.succeeded
    )


def keep(
    current: Session, record: Changeset, begun: Collection[str], intents: Mapping[str, Sequence[Intent]]
) -> tuple[Orphan, ...]:
    """Leave what a changeset staged as it is, for people to look at: all of it that is there is orphaned.

    `begun` are the nodes that were carried out, and may have failed; `intents` are as for `take_back`.
    """
    live = {member.address: member for member in live_members(record)}
    kept = [m.address for m in record.members if m.runtime.state is RuntimeState.READY]
    unknown = (live[address] for address in map(Address, begun) if address in live and address not in kept)
    kept += [m.address for m in unknown if _is_there(current, record, m, intents.get(m.address, ()))]
    return tuple(Orphan(address, _KEPT) for address in sorted(kept))


def _is_there(current: Session, record: Changeset, member: Member, announced: Sequence[Intent]) -> bool:
    """Whether a node that failed has done something to its graph, or that is not known."""
    try:
        if member.address.kind is Kind.GRAPH:
            return to_remove(current, record, member, announced) is not None
        reading = to_migrate_back(current, member, announced)
        return reading is not None and digest(reading.schema_source) != member.before
    except GitopsError:
        return True


def _why_left(result: NodeResult) -> str:
    messages = [diagnostic.message for diagnostic in result.diagnostics] or [
        f"{result.blocked_by} is left, which needs it"
    ]
    return " ".join(messages[0].split())


def _remove_graph(current: Session, record: Changeset, member: Member, announced: Sequence[Intent], fence: int) -> None:
    """Delete a graph that the changeset created, while it is empty. Raises GitopsError where it has to stay."""
    stores, uri = current.opened, current.opened.graph_uri(member.address.name)
    try:
        reading = to_remove(current, record, member, announced)
    except GitopsError as error:
        if error.code != Code.GRAPH_DELETED:
            raise
        reading = None
    if reading is None:
        # A run may have died while it created the graph, or behind the point of no return while it took it back.
        stores.engine.finish_delete(uri)
    else:
        stores.engine.delete(uri, DeleteOrder(reading.incarnation, 0, max(fence, reading.fence)))


def _migrate_back(current: Session, member: Member, announced: Sequence[Intent], fence: int, version: object) -> None:
    """Take a graph back to the schema that it had. Raises GitopsError where it has to keep the new one."""
    stores = current.opened
    reading, uri = to_migrate_back(current, member, announced, version), stores.graph_uri(member.address.name)
    if reading is None:
        return
    fence = max(fence, reading.fence)
    if digest(reading.schema_source) == member.before:
        # The run that announced it may be alive, only slow: it must not begin now.
        stores.engine.fence(uri, fence)
        return
    before = stores.engine.schema_text(uri, member.before or "")
    back = stores.engine.prepare_migration(
        uri, before, actor=current.workspace.actor, incarnation=reading.incarnation, fence=fence
    )
    back.publish()


def end_rolled_back(
    current: Session, journal: Journal, orphaned: tuple[Orphan, ...], severity: Severity = Severity.ERROR
) -> None:
    """Add that what was ready is taken back but for what is `orphaned`, and report it; the error is recorded before."""
    record, at, left = journal.record, current.workspace.stamp(), {orphan.address for orphan in orphaned}
    key, error = record.key, record.error or "it failed"
    undone = [m for m in record.members if m.runtime.state is RuntimeState.READY and m.address not in left]
    journal.add(
        *(
            RuntimeUpdated(m.address, Runtime(RuntimeState.COMPENSATED, m.runtime.attempts, m.runtime.started_at, at))
            for m in undone
        ),
        Failed(error, orphaned),
    )
    current.problems.add(Code.CHANGESET_ROLLED_BACK, key, f"nothing of it is applied: {error}", severity=severity)
    for orphan in orphaned:
        detail = f"changeset {key} left it behind: {orphan.reason}"
        current.problems.add(Code.CHANGESET_ORPHANED, orphan.address, detail, severity=severity)
