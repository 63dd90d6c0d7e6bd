"""Recovery at the start of every verb that writes: read the intents, look at their graphs, settle by `recovery_rules`.

No graph is changed for that. Only afterwards, where a permitted delete was interrupted after the root had vanished, the rest of
the data beside the root is removed; until that is done the intent stays.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.apply.recovery_rules import GraphProbe, Sweep, sweep
from gitops.cluster.observations import RECOVERIES
from gitops.cluster.workspace import Stores
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.graph.port import Existence
from gitops.model.address import graph_address
from gitops.model.ledger import IntentKind, LedgerState


def recover(stores: Stores, state: LedgerState, problems: Diagnostics, *, at: str) -> Sweep:
    """Settle interrupted operations in the state value; intents that cannot be read are reported and left alone."""
    listing = stores.ledger.intents()
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    for bad in listing.unreadable:
        problems.add(bad.code, f"{RECOVERIES}/{bad.name}", bad.detail)
    swept = sweep(state, listing.intents, lambda graph: probe_graph(stores, graph)[0], at=at)
    problems.extend(swept.diagnostics)
    unfinished = set()
    for intent in listing.intents:
        if intent.kind is not IntentKind.GRAPH_DELETE or intent.operation_id not in swept.retire:
            continue
        uri = stores.graph_uri(intent.graph_id)
        if stores.data_problem is not None or stores.engine.exists(uri) is not Existence.ABSENT:
            continue
        try:
            stores.engine.delete_tree(uri)
        except GitopsError as error:
            problems.add(Code.GRAPH_DELETE_INCOMPLETE, graph_address(intent.graph_id), error.detail)
            unfinished.add(intent.operation_id)
    return replace(swept, retire=tuple(i for i in swept.retire if i not in unfinished))


def probe_graph(stores: Stores, graph: str) -> tuple[GraphProbe, str | None]:
    """What is observed of a live graph, and why it did not open if it did not."""
    uri = stores.graph_uri(graph)
    existence = stores.engine.exists(uri)
    if existence is not Existence.PRESENT:
        return GraphProbe(existence), None if existence is Existence.ABSENT else f"it is unknown whether {uri} exists"
    try:
        return GraphProbe(existence, stores.engine.read(uri)), None
    except GitopsError as error:
        return GraphProbe(existence), error.detail
