"""The sweep at the start of every mutating verb: read the intents, look at their graphs, settle.

The sweep touches no graph. Only after it, where a permitted delete was cut short after the root had vanished, what is left of
the data beside the root is removed; until that is done the intent stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gitops.apply.observe import probe_graph
from gitops.apply.recovery_rules import Sweep, sweep
from gitops.cluster.workspace import Stores
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.graph.observation import Existence
from gitops.model.address import graph_address
from gitops.model.intent import Intent, IntentKind
from gitops.model.state import State


def recover(stores: Stores, state: State, problems: Diagnostics, *, at: str) -> Sweep:
    """Settle interrupted operations in the state value; unusable sidecars are reported and left alone."""
    listing = stores.ledger.intents()
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, "__cluster/recoveries", listing.problem)
    for bad in listing.unreadable:
        problems.add(bad.code, f"__cluster/recoveries/{bad.name}", bad.detail)
    outcome = sweep(state, listing.intents, lambda graph: probe_graph(stores, graph)[0], at=at)
    problems.extend(outcome.diagnostics)
    deletes = [i for i in listing.intents if i.kind is IntentKind.GRAPH_DELETE and i.operation_id in outcome.retire]
    unfinished = _finish(stores, deletes, problems)
    return replace(outcome, retire=tuple(i for i in outcome.retire if i not in unfinished))


def _finish(stores: Stores, deletes: Sequence[Intent], problems: Diagnostics) -> frozenset[str]:
    """Remove the remains of deletes whose root is gone; returns the operations that are still not finished."""
    unfinished = set()
    for intent in deletes:
        uri = stores.graph_uri(intent.graph_id)
        if stores.data_problem is not None or stores.engine.exists(uri) is not Existence.ABSENT:
            continue
        try:
            stores.engine.delete_tree(uri)
        except GitopsError as error:
            problems.add(Code.GRAPH_DELETE_INCOMPLETE, graph_address(intent.graph_id), error.detail)
            unfinished.add(intent.operation_id)
    return frozenset(unfinished)
