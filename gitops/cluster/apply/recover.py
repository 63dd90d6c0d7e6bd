"""Recovery at the start of every verb that writes: read the intents, look at their graphs, settle by `recovery_rules`.

1. Every graph with an intent gets a version with the fence of this run. The run that wrote the intent may be alive, only slow,
   and its lock broken: from then on it can neither delete nor migrate the graph. A graph that cannot be fenced stays pending.
2. The graphs are looked at, and the intents are settled.
3. Where a permitted delete is past the point of no return, the rest of its data is removed; until that is done the intent stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.plan.open_changesets import graphs_of_changesets
from gitops.cluster.plan.probe import GraphProbe, probe_operation
from gitops.cluster.plan.recovery_rules import Sweep, sweep
from gitops.cluster.session.session import RECOVERIES
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.database.graph.port import DeleteOrder, Existence

_UNFENCED = frozenset({Code.GRAPH_MISSING, Code.GRAPH_UNREADABLE, Code.GRAPH_DELETED})
"""Of a graph that does not open: no run can change it."""


def recover(
    stores: Stores, view: LedgerView, problems: Diagnostics, *, at: str, resumed: frozenset[str] = frozenset()
) -> Sweep:
    """Settle interrupted operations in the state value; intents that cannot be read are reported and left alone.

    The graphs of an atomic changeset that is open stay as they are, and are pending: the next apply goes on with it. Those of
    the changeset that this run goes on with are `resumed`.
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
        try:
            _finish_delete(stores, intent, fence)
        except GitopsError as error:
            problems.add(Code.GRAPH_DELETE_INCOMPLETE, graph_address(intent.graph_id), error.detail)
            unfinished.add(intent.operation_id)
    retire = tuple(i for i in swept.retire if i not in unfinished)
    return replace(swept, retire=retire, fence=fence, pending=swept.pending | (held - resumed))


def next_fence(view: LedgerView, intents: Sequence[Intent]) -> int:
    """The number of the next operation: that of the entry that announces it, above those of all operations that may still run.

    A ledger folder has no entries, and counts its states.
    """
    number = view.entry.number if view.entry is not None else 0 if view.state is None else view.state.revision
    return max(number, *(intent.fence or 0 for intent in intents), 0) + 1


def _fenced_probe(stores: Stores, intent: Intent, fence: int, problems: Diagnostics) -> GraphProbe:
    """Fence a graph, then look at it. One that could not be fenced is of unknown existence."""
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


def _finish_delete(stores: Stores, intent: Intent, fence: int) -> None:
    """Remove what a delete left that is past the point of no return; intents of the first release do not name the graph."""
    uri = stores.graph_uri(intent.graph_id)
    if intent.incarnation is None:
        stores.engine.delete_tree(uri)
    else:
        stores.engine.delete(uri, DeleteOrder(intent.incarnation, 0, fence, intent.approval_ids))
