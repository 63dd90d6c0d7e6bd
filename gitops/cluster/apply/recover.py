"""Cleans up after interrupted runs: operations when any writing command starts, open changesets when an apply starts.

The intents are read, their graphs are checked, and `recovery_rules` settles them:

1. Every graph with an intent gets a version with the fence of this run. The run that wrote the intent may still be
   running slowly, with its lock broken. After this, it can neither delete nor migrate the graph. A graph that cannot be
   fenced remains pending.
2. The graphs are checked, and the intents are settled.
3. If a permitted delete is past the point of no return, the rest of its data is removed. The intent is kept until that is done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType

from gitops.cluster.apply.run import write_events
from gitops.cluster.apply.runner import RunLimits, run_graph
from gitops.cluster.apply.serving import drain
from gitops.cluster.apply.settle import with_seen
from gitops.cluster.changesets.lifecycle import Journal, unfinished
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.address import Address, Kind, graph_address
from gitops.cluster.model.changeset import (
    INTERRUPTED,
    Changeset,
    ChangesetState,
    Drained,
    EventDraft,
    Failed,
    Orphan,
    Removed,
    RollingBack,
    Runtime,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.model.outcome import Course
from gitops.cluster.model.plan import ExecNode, ExecutionGraph, LockClaim, NodeOutcome, NodeResult
from gitops.cluster.plan.changeset import finalized
from gitops.cluster.plan.layers import transposed
from gitops.cluster.plan.leftovers import (
    DeleteGraph,
    Interrupted,
    MigrateGraph,
    courses_of,
    graphs_of_changesets,
    live_members,
    look_at,
    out_of_cluster,
    step_of,
    steps_left,
)
from gitops.cluster.plan.probe import GraphProbe, probe_operation, seen_facts
from gitops.cluster.plan.recovery_rules import Sweep, sweep
from gitops.cluster.session.session import RECOVERIES, Session
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.port import DeleteOrder, Existence

_UNFENCED = frozenset({Code.GRAPH_MISSING, Code.GRAPH_UNREADABLE, Code.GRAPH_DELETED})
"""Reasons why a graph cannot be opened that also prevent any run from changing it."""


def recover(
    stores: Stores, view: LedgerView, problems: Diagnostics, *, at: str, resumed: frozenset[str] = frozenset()
) -> Sweep:
    """Settle interrupted operations in the state value. Reports unreadable intents without changing them.

    The graphs of an open atomic changeset are left pending, because the next apply continues it. `resumed` are the
    graphs of the changeset that this run continues, and of those that were created beside it: they don't wait.
    """
    listing = stores.ledger.intents()
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    for bad in listing.unreadable:
        problems.add(bad.code, f"{RECOVERIES}/{bad.name}", bad.detail)
    fence, held = next_fence(view, listing.intents), graphs_of_changesets(stores.ledger.changesets().open)
    intents = [intent for intent in listing.intents if intent.graph_id not in held]
    probes = {intent.operation_id: _fenced_probe(stores, intent, fence, problems) for intent in intents}
    swept = sweep(view.state or LedgerState(), intents, lambda intent: probes[intent.operation_id], at=at)
    problems.extend(swept.diagnostics)
    unfinished = set()
    for intent in intents:
        probe = probes[intent.operation_id]
        if intent.kind is not IntentKind.GRAPH_DELETE or intent.operation_id not in swept.retire:
            continue
        if stores.data_problem is not None or not (probe.deleted or probe.existence is Existence.ABSENT):
            continue
        uri = stores.graph_uri(intent.graph_id)
        try:
            if intent.incarnation is None:  # Intents of the first release don't contain the graph.
                stores.engine.delete_tree(uri)
            else:
                stores.engine.delete(uri, DeleteOrder(intent.incarnation, 0, fence, intent.approval_ids))
        except GitopsError as error:
            problems.add(Code.GRAPH_DELETE_INCOMPLETE, graph_address(intent.graph_id), error.detail)
            unfinished.add(intent.operation_id)
    retire = tuple(i for i in swept.retire if i not in unfinished)
    return replace(swept, retire=retire, fence=fence, pending=swept.pending | (held - resumed))


def next_fence(view: LedgerView, intents: Sequence[Intent]) -> int:
    """Return the next operation number: that of the announcing entry, but higher than all running operations.

    A ledger folder has no entries and counts its states.
    """
    number = view.entry.number if view.entry is not None else 0 if view.state is None else view.state.revision
    return max(number, *(intent.fence or 0 for intent in intents), 0) + 1


def _fenced_probe(stores: Stores, intent: Intent, fence: int, problems: Diagnostics) -> GraphProbe:
    """Fence a graph, then check it. If it cannot be fenced, it is unknown whether it exists."""
    graph, uri = intent.graph_id, stores.graph_uri(intent.graph_id)
    try:
        if stores.data_problem is None:
            stores.engine.fence(uri, fence)
    except GitopsError as error:
        if error.code not in _UNFENCED:
            problems.add(error.code, graph_address(graph), error.detail)
            return GraphProbe(Existence.UNKNOWN)
    try:
        return probe_operation(stores, intent)
    except GitopsError as error:
        problems.add(error.code, graph_address(graph), error.detail)
        return GraphProbe(Existence.UNKNOWN)


# -- Changesets that an interrupted run left open, settled at the start of the next one, under its lock ----------------
#
# `gitops.cluster.plan.leftovers`, which plans also read, decides what happens to each changeset. This module executes
# it.


@dataclass(frozen=True, slots=True)
class GoingOn:
    """The open changesets that are left: the one that this run continues, and those that were created beside it.

    `closing` are the events of a failed one that applied nothing. They are written with the first events of this run.
    """

    resumed: Interrupted | None = None
    beside: tuple[Changeset, ...] = ()
    closing: tuple[EventDraft, ...] = ()

    @property
    def graphs(self) -> frozenset[str]:
        """The ids of their graphs."""
        addresses = (address for record in self.beside for address in record.addresses)
        own = frozenset[str]() if self.resumed is None else self.resumed.graphs
        return own.union(address.graph for address in addresses if address.graph is not None)


def settle_interrupted(current: Session, fence: int) -> GoingOn:
    """Settle all open changesets, except for those that go on. `fence` is the number of this run.

    Raises GitopsError if an apply is not possible yet.
    """
    listing = current.opened.ledger.changesets()
    if listing.problem is not None:
        raise ConflictError(Code.CHANGESET_INVALID, listing.problem, path="changesets")
    going = GoingOn()
    for record, course in courses_of(current, listing.open):
        match course:
            case Course.CLOSED:
                # The run was best-effort and crashed before it recorded anything.
                journal = Journal(current.workspace.stamp, record)
                if record.state is not ChangesetState.ROLLING_BACK:
                    journal.add(RollingBack(INTERRUPTED, None))
                journal.add(Failed(record.error or INTERRUPTED))
                going = replace(going, closing=(*going.closing, *journal.drafts))
            case Course.FINISHED:
                finish(current, look_at(current, record), fence)
            case Course.TAKEN_BACK:
                abandon(current, record, fence)
            case Course.RESUMED:
                current.workspace.await_staged(record.key)
                going = replace(going, resumed=look_at(current, record))
            case Course.WAITS:
                going = replace(going, beside=(*going.beside, record))
    return going


def abandon(current: Session, record: Changeset, fence: int) -> None:
    """Roll back an interrupted changeset and end it.

    Raises GitopsError, for example `cluster_recovery_pending` after its pivot.
    """
    current.workspace.await_staged(record.key)
    found, journal = look_at(current, record), Journal(current.workspace.stamp, record)
    found.require_way_back()
    if record.state is not ChangesetState.ROLLING_BACK:
        journal.add(RollingBack(INTERRUPTED, None))
        write_events(current, journal)
    left = take_back(current, found, to_take_back(record), fence)
    end_rolled_back(current, journal, left, Severity.WARNING)
    write_events(current, journal, found.operations)


# -- Rollback of a failed changeset: graphs that it created, and migrations that only added something ------------------
#
# A rollback never relies on records alone. Each graph is checked first, and only data that this changeset created, and
# that has not been used since, is removed. The rest is kept, and listed as orphaned with the reason. A published text
# is only found by its digest, and nothing refers to it.


_KEPT = "kept for inspection (on_failure: keep)"


def to_take_back(record: Changeset) -> ExecutionGraph:
    """Return the execution graph for an interrupted run's possibly staged changes. Graphs are independent of each other."""
    nodes = (
        ExecNode(m.address, m.address.kind.value, m.action, position, (LockClaim(f"graph:{m.address.name}"),))
        for position, m in enumerate(live_members(record))
    )
    return ExecutionGraph(tuple(nodes))


def take_back(
    current: Session,
    found: Interrupted,
    staged: ExecutionGraph,
    fence: int,
    versions: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Orphan, ...]:
    """Roll back the nodes of `staged` in reverse order, using each graph's current state.

    Return the orphans that remain.

    A node without an intent was never started. `fence` is the number of this run, and `versions` are those that its
    migrations gave the graphs, if known.
    """

    def execute(node: ExecNode) -> NodeResult:
        _carry_out(current, found, Address(node.id), fence, versions.get(node.id))
        return NodeResult(node.id, NodeOutcome.DONE)

    workspace = current.workspace
    workers = workspace.workers or current.opened.workers
    # A change that must be kept does not stop others from being rolled back, unless they depend on each other.
    alone = ExecutionGraph(tuple(replace(node, group="") for node in staged.nodes), staged.edges)
    results = run_graph(transposed(alone), execute, clock=workspace.clock, limits=RunLimits(workers))
    return tuple(
        Orphan(Address(result.node_id), _why_left(result)) for result in results if not result.outcome.succeeded
    )


def keep(current: Session, found: Interrupted, begun: Collection[str]) -> tuple[Orphan, ...]:
    """Leave a changeset's staged changes in place so that people can inspect them. Return all of them as orphans.

    `begun` are the nodes that started, even if they failed.
    """
    kept = [m.address for m in found.record.members if m.runtime.state is RuntimeState.READY]
    unknown = frozenset(steps_left(found.record)).intersection(map(Address, begun)).difference(kept)
    kept += [address for address in unknown if _is_there(current, found, address)]
    return tuple(Orphan(address, _KEPT) for address in sorted(kept))


def _is_there(current: Session, found: Interrupted, address: Address) -> bool:
    """Return True if a failed node has or may have changed its graph."""
    try:
        match step_of(current, found, address):
            case DeleteGraph(there=there):
                return there
            case MigrateGraph(text=text):
                return text is not None
    except GitopsError:
        return True
    return False


def _why_left(result: NodeResult) -> str:
    messages = [diagnostic.message for diagnostic in result.diagnostics] or [
        f"{result.blocked_by} is left, which needs it"
    ]
    return " ".join(messages[0].split())


def _carry_out(current: Session, found: Interrupted, address: Address, fence: int, version: object = None) -> None:
    """Apply the step that `step_of` returns for an address. Raises GitopsError if the graph must not be changed."""
    engine, uri, actor = current.opened.engine, current.opened.graph_uri(address.name), current.workspace.actor
    match step_of(current, found, address, version):
        case DeleteGraph(order):
            with out_of_cluster(uri):
                if order is None:
                    engine.finish_delete(uri)
                else:
                    engine.delete(uri, replace(order, fence=max(fence, order.fence)))
        case MigrateGraph(reading, None):
            # The run that announced this may still be active but slow. It must not start now.
            engine.fence(uri, max(fence, reading.fence))
        case MigrateGraph(reading, bytes() as text):
            fence, born = max(fence, reading.fence), reading.incarnation
            engine.prepare_migration(uri, text, actor=actor, incarnation=born, fence=fence).publish()


def end_rolled_back(
    current: Session, journal: Journal, orphaned: tuple[Orphan, ...], severity: Severity = Severity.ERROR
) -> None:
    """Record and report that every prepared change except `orphaned` was rolled back. The error was recorded before."""
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


# -- Remaining work of a committed changeset in a later run: deleting data of removed resources, and schema drops --------
#
# The applied state has moved, so none of this is rolled back. Failures are recorded, reported and retried by the next
# run. Until then, nothing else changes these graphs.


def finish(current: Session, found: Interrupted, fence: int) -> None:
    """Complete a committed changeset as far as possible now, and report the rest. Raises the ledger's GitopsErrors."""
    record, intents = found.record, found.intents
    journal, at = Journal(current.workspace.stamp, record), current.workspace.stamp()
    if record.state is ChangesetState.COMMITTED:
        waits = drain(current, record, destroys=any(a.kind in (Kind.GRAPH, Kind.SCHEMA) for a in unfinished(record)))
        journal.add(Drained(waits.waited_ms, waits.evidence))
    done: list[str] = []
    seen: dict[Address, Mapping[str, object]] = {}
    members = {member.address for member in record.members}
    for address in steps_left(record):
        try:
            _carry_out(current, found, address, fence)
        except GitopsError as error:
            _report_unfinished(current, journal, address, error)
            continue
        if address in members:
            uri = current.opened.graph_uri(address.name)
            # The drop is done. If a graph cannot be read now, its record is kept until a refresh.
            with suppress(GitopsError):
                seen[address] = seen_facts(uri, current.opened.engine.read(uri))
            journal.add(RuntimeUpdated(address, Runtime(RuntimeState.CANONICAL, updated_at=at)))
        else:
            journal.add(Removed(address))
        done.append(address)
    left = unfinished(journal.record)
    if not left:
        revision, converged = current.state.revision, not record.excluded
        journal.add(finalized(journal.record, state_revision=revision, converged=converged, at=at))
    retire = settled(current, (intent for name in done for intent in intents.get(name, ())))
    if journal.drafts or retire:
        write_events(current, journal, retire, with_seen(current.state, current.desired, seen, at=at))
    if not left:
        what = f": {', '.join(done)}" if done else ""
        detail = f"an earlier run committed it, and this one settled what was left{what}"
        current.problems.add(Code.CLUSTER_RECOVERY_ROLLED_FORWARD, record.key, detail)


def settled(current: Session, intents: Iterable[Intent]) -> tuple[str, ...]:
    """Return the completed operations whose intents can be removed.

    In a folder, after a crash between two writes, the state may record that an approval is consumed while its document does
    not. The sweep of the next run marks it, and finds the approval through the intent.
    """
    intents = tuple(intents)
    used = {name for intent in intents for name in intent.approval_ids}
    documents = current.opened.ledger.approvals().documents if used else ()
    unmarked = {each.approval_id for each in documents if each.approval_id in used and each.consumed_at is None}
    return tuple(intent.operation_id for intent in intents if not unmarked.intersection(intent.approval_ids))


def _report_unfinished(current: Session, journal: Journal, address: Address, error: GitopsError) -> None:
    """Report the work that could not be done, and record it the first time."""
    detail = f"changeset {journal.record.key} is not finished: {error.detail}"
    current.problems.add(error.code, address, detail, fix=error.fix)
    if not journal.record.needs_attention:
        why, at = f"{error.code}: {error.detail}", current.workspace.stamp()
        journal.add(RuntimeUpdated(address, Runtime(RuntimeState.FAILED, updated_at=at, error=why)))
