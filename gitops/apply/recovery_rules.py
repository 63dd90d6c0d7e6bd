"""The recovery sweep: interrupted operations are settled by what is observed of their graph, never by guessing.

Rows (live = digest of the live schema text, recorded = digest in the ledger, intended = digest in the intent):

C1 create, root absent: the intent is void.                 C2 create, live = recorded: already recorded.
C3 create, live = intended: roll forward.                   C4 create, other content: keep, drifted.
C5 create, root does not open: keep, error.
S0 schema, root definitely absent: the intent is void.      S1 schema, does not open: keep.
S2 schema, live = recorded: nothing happened.               S3 schema, live = intended: roll forward.
S4 schema, other content: keep, drifted.
D1 delete, root present: retire, the delete is proposed again.
D2 delete, root absent, not recorded: already recorded.     D3 delete, root absent, recorded: roll forward.

A root whose existence is unknown is treated like a root that does not open, for every kind (S1). Graphs of kept intents are
pending: changes to them are blocked in this run. The sweep edits only the state value, never a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.graph.port import Existence, GraphReading
from gitops.model.address import graph_address, schema_address
from gitops.model.ledger import AppliedResource, Intent, IntentKind, LedgerState, Status, StatusRecord
from gitops.plan.draft import StateDraft


@dataclass(frozen=True, slots=True)
class GraphProbe:
    """What is observed of a root: whether it exists, and its content if it opens."""

    existence: Existence
    reading: GraphReading | None = None

    @property
    def live(self) -> str | None:
        """Digest of the live schema text, None when the graph does not open."""
        return None if self.reading is None else digest(self.reading.schema_source)


@dataclass(frozen=True, slots=True)
class Sweep:
    """The edited state, the intents to retire, the graphs that wait, and the approvals that were used.

    `consumed` maps approval id to the operation that used it.
    """

    state: LedgerState
    retire: tuple[str, ...] = ()
    pending: frozenset[str] = frozenset()
    consumed: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)


@dataclass(slots=True)
class _SweepProgress:
    """The sweep while it runs over the intents, in ULID order."""

    draft: StateDraft
    at: str
    retire: list[str] = field(default_factory=list)
    pending: set[str] = field(default_factory=set)
    consumed: dict[str, str] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    def keep(self, intent: Intent, code: Code, message: str) -> None:
        self.pending.add(intent.graph_id)
        self.diagnostics.add(code, graph_address(intent.graph_id), message)

    def mark(self, graph: str, status: Status, condition: str | None = None, message: str | None = None) -> None:
        record = StatusRecord(status, () if condition is None else (condition,), message)
        self.draft.mark(graph_address(graph), record)
        self.draft.mark(schema_address(graph), record)

    def record_recovery(self, intent: Intent) -> None:
        record: dict[str, Any] = {
            "kind": intent.kind.value,
            "graph_id": intent.graph_id,
            "outcome": "rolled_forward",
            "recovered_at": self.at,
            "actor": intent.actor,
        }
        self.draft.record_recovery(intent.operation_id, record)
        self.diagnostics.add(
            Code.CLUSTER_RECOVERY_ROLLED_FORWARD,
            graph_address(intent.graph_id),
            f"operation {intent.operation_id} ({intent.kind}) had completed and is now recorded",
        )


def sweep(state: LedgerState, intents: Sequence[Intent], probe: Callable[[str], GraphProbe], *, at: str) -> Sweep:
    """Settle every intent in order; `probe` reads a graph by id, `at` is the RFC 3339 time of this run."""
    progress = _SweepProgress(StateDraft(state), at)
    for intent in sorted(intents, key=lambda i: i.operation_id):
        settle_row = _settle_delete if intent.kind is IntentKind.GRAPH_DELETE else _settle_schema
        if settle_row(progress, intent, probe(intent.graph_id)):
            progress.retire.append(intent.operation_id)
    return Sweep(
        progress.draft.state(),
        tuple(progress.retire),
        frozenset(progress.pending),
        progress.consumed,
        progress.diagnostics,
    )


def _unverifiable(progress: _SweepProgress, intent: Intent) -> bool:
    """Row S1, for every kind when existence is unknown."""
    progress.keep(
        intent,
        Code.CLUSTER_RECOVERY_PENDING,
        f"operation {intent.operation_id} ({intent.kind}) cannot be verified: the graph does not open",
    )
    return False


def _settle_schema(progress: _SweepProgress, intent: Intent, seen: GraphProbe) -> bool:
    """The rows of a create, and those of a schema update; whether the intent is settled."""
    graph, live = intent.graph_id, seen.live
    if seen.existence is Existence.ABSENT:  # C1, S0
        return True
    if intent.kind is IntentKind.GRAPH_CREATE and seen.existence is Existence.PRESENT and live is None:  # C5
        progress.mark(graph, Status.ERROR, Code.GRAPH_CREATE_INCOMPLETE, "the root exists but does not open")
        progress.keep(
            intent,
            Code.GRAPH_CREATE_INCOMPLETE,
            f"the create of operation {intent.operation_id} did not finish and its root does not open: "
            f"remove {intent.graph_uri} after checking it, then apply again",
        )
        return False
    if live is None or seen.existence is Existence.UNKNOWN:  # S1
        return _unverifiable(progress, intent)
    recorded = progress.draft.resources.get(schema_address(graph))
    if recorded is not None and live == recorded.digest:  # C2, S2
        return True
    if live == intent.desired_schema_digest:  # C3, S3
        progress.draft.put(schema_address(graph), AppliedResource(live))
        progress.draft.renew(graph, create=True)
        progress.mark(graph, Status.APPLIED)
        progress.record_recovery(intent)
        return True
    # C4, S4
    message = "the live schema is neither the recorded nor the intended one"
    progress.mark(graph, Status.DRIFTED, "actual_applied_state_pending", message)
    progress.keep(
        intent,
        Code.CLUSTER_RECOVERY_PENDING,
        f"operation {intent.operation_id} ({intent.kind}) left a schema that is neither recorded nor intended; "
        "refresh records what is live, once the folder declares the graph",
    )
    return False


def _settle_delete(progress: _SweepProgress, intent: Intent, seen: GraphProbe) -> bool:
    """The rows of a delete; whether the intent is settled."""
    graph = intent.graph_id
    if seen.existence is Existence.UNKNOWN:
        return _unverifiable(progress, intent)
    if seen.existence is Existence.PRESENT:  # D1
        progress.diagnostics.add(
            Code.GRAPH_DELETE_INCOMPLETE,
            graph_address(graph),
            f"the delete of operation {intent.operation_id} did not finish; it is proposed again",
        )
        return True
    if graph_address(graph) not in progress.draft.resources:  # D2
        return True
    # D3
    progress.draft.remove_graph(graph, at=progress.at, approval_id=intent.approval_id, actor=intent.actor)
    used = {"consumed_at": progress.at, "consumed_by_operation": intent.operation_id}
    progress.draft.use_approvals(intent.approval_ids, used)
    progress.consumed |= dict.fromkeys(intent.approval_ids, intent.operation_id)
    progress.record_recovery(intent)
    return True
