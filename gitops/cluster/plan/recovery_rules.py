"""Recovery sweep: settles interrupted operations by observing their graphs, never by guessing.

Rows (live = digest of the live schema text, recorded = digest in the ledger, intended = digest in the intent):

C1 create, root absent: the intent is void.                 C2 create, live = recorded: already recorded.
C3 create, live = intended: roll forward.                   C4 create, other content: keep, drifted.
C5 create, root does not open: keep, error.
S0 schema, root definitely absent: the intent is void.      S1 schema, does not open: keep.
S2 schema, live = recorded: nothing happened.               S3 schema, live = intended: roll forward.
S4 schema, other content: keep, drifted.
R0 restore, root absent, or another graph: the intent is void. R1 does not open: keep.
R2 restore, recorded: already recorded, its approvals are consumed.
R3 restore, one version of the graph is its result: roll forward. R4 none is: the intent is void.
R5 restore, versions that might be its result are no longer kept: retire, its approvals are consumed.
D1 delete, root present: retire, the delete is proposed again.
D2 delete, root absent, not recorded: already recorded.     D3 delete, root absent, recorded: roll forward.
   The approvals of both are consumed, whatever happened to the state since then.
D4 delete, root past the point of no return: as D2 and D3, its files are removed.
D5 delete, root present, but the graph was deleted and restored, or exchanged: retire, and the approvals are consumed.

A root whose existence is unknown is treated like a root that cannot be opened, for every kind (S1). Graphs of kept
intents are pending: changes to them are blocked in this run. The sweep edits only the state value, never a graph.

A graph was restored from a backup if a marker next to it shows that the approvals of the intent deleted it, or if its
version is not higher than when the intent was written, because every graph got a new version with a higher fence before
the sweep. It can be deleted again, but only with new approvals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum, auto
from typing import Any

from gitops.cluster.model.address import graph_address, schema_address
from gitops.cluster.model.change import Seen
from gitops.cluster.model.ledger import AppliedResource, Intent, IntentKind, LedgerState, Status, StatusRecord
from gitops.cluster.model.resource import restore_digest
from gitops.cluster.plan.draft import StateDraft
from gitops.cluster.plan.probe import GraphProbe
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.database.graph.port import Existence


@dataclass(frozen=True, slots=True)
class Sweep:
    """The edited state, the intents to retire, the waiting graphs, and the consumed approvals.

    `consumed` maps approval ids to the operations that used them. `fence` is the operation number of this run.
    """

    state: LedgerState
    retire: tuple[str, ...] = ()
    pending: frozenset[str] = frozenset()
    consumed: Mapping[str, str] = field(default_factory=dict)
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    fence: int = 1


class _Row(Enum):
    """Effect of a row: retire the intent (unchanged, or recorded), consume its approvals, roll forward, or keep it."""

    RETIRE = auto()
    RECORDED = auto()
    SPEND = auto()
    FORWARD = auto()
    KEEP = auto()


def sweep(state: LedgerState, intents: Sequence[Intent], probe: Callable[[Intent], GraphProbe], *, at: str) -> Sweep:
    """Settle every intent in order. `probe` observes an operation's graph, and `at` is the RFC 3339 time of this run."""
    draft, found = StateDraft(state), Diagnostics()
    retire: list[str] = []
    pending: set[str] = set()
    consumed: dict[str, str] = {}
    for intent in sorted(intents, key=lambda i: i.operation_id):
        graph, operation, seen = intent.graph_id, intent.operation_id, probe(intent)
        row = _ROWS.get(intent.kind, _schema_row)(draft, found, intent, seen)
        if row is _Row.KEEP:
            pending.add(graph)
            continue
        retire.append(operation)
        if row is not _Row.RETIRE:
            consumed |= dict.fromkeys(intent.approval_ids, operation)
        if row in (_Row.RECORDED, _Row.RETIRE):
            continue
        draft.use_approvals(intent.approval_ids, {"consumed_at": at, "consumed_by_operation": operation})
        if row is _Row.SPEND:
            continue
        if intent.kind is IntentKind.GRAPH_DELETE:
            draft.remove_graph(graph, at=at, approval_id=intent.approval_id, actor=intent.actor)
        elif intent.restores is not None:
            _observe(draft, intent, seen, at)
            draft.put(intent.address, AppliedResource(restore_digest(graph, intent.restores)))
            draft.mark(intent.address, StatusRecord(Status.APPLIED))
        else:
            _observe(draft, intent, seen, at)
            draft.put(schema_address(graph), AppliedResource(intent.desired_schema_digest))
            draft.renew(graph, create=True)
            _mark(draft, graph, StatusRecord(Status.APPLIED))
        record: dict[str, Any] = {
            "kind": intent.kind.value,
            "graph_id": graph,
            "outcome": "rolled_forward",
            "recovered_at": at,
            "actor": intent.actor,
        }
        draft.record_recovery(operation, record)
        message = f"operation {operation} ({intent.kind}) had completed and is now recorded"
        found.add(Code.CLUSTER_RECOVERY_ROLLED_FORWARD, graph_address(graph), message)
    return Sweep(draft.state(), tuple(retire), frozenset(pending), consumed, found)


def _observe(draft: StateDraft, intent: Intent, seen: GraphProbe, at: str) -> None:
    """Record the observation of a graph whose create, migration or restore is rolled forward."""
    if seen.reading is not None and seen.live is not None:
        found = Seen(seen.reading.incarnation, seen.reading.rows, seen.reading.manifest_version)
        wanted = intent.desired_schema_digest or seen.live
        draft.observe_graph(intent.graph_id, found, seen.live, wanted, uri=intent.graph_uri, at=at)


def _mark(draft: StateDraft, graph: str, record: StatusRecord) -> None:
    draft.mark(graph_address(graph), record)
    draft.mark(schema_address(graph), record)


def _schema_row(draft: StateDraft, found: Diagnostics, intent: Intent, seen: GraphProbe) -> _Row:
    """Return the row of a create or a schema update. If the intent is kept, the reason is reported."""
    graph, live = intent.graph_id, seen.live
    if seen.existence is Existence.ABSENT:  # C1, S0
        return _Row.RETIRE
    if intent.kind is IntentKind.GRAPH_CREATE and seen.existence is Existence.PRESENT and live is None:  # C5
        code, message = Code.GRAPH_CREATE_INCOMPLETE, "the root exists but does not open"
        _mark(draft, graph, StatusRecord(Status.ERROR, (code,), message))
        detail = (
            f"the create of operation {intent.operation_id} did not finish and its root does not open: "
            f"remove {intent.graph_uri} after checking it, then apply again"
        )
        found.add(code, graph_address(graph), detail)
        return _Row.KEEP
    if live is None or seen.existence is Existence.UNKNOWN:  # S1
        return _unverifiable(found, intent)
    recorded = draft.resources.get(schema_address(graph))
    if recorded is not None and live == recorded.digest:  # C2, S2
        return _Row.RETIRE
    if live == intent.desired_schema_digest:  # C3, S3
        return _Row.FORWARD
    # C4, S4
    message = "the live schema is neither the recorded nor the intended one"
    _mark(draft, graph, StatusRecord(Status.DRIFTED, ("actual_applied_state_pending",), message))
    detail = (
        f"operation {intent.operation_id} ({intent.kind}) left a schema that is neither recorded nor intended; "
        "refresh records what is live, once the folder declares the graph"
    )
    found.add(Code.CLUSTER_RECOVERY_PENDING, graph_address(graph), detail)
    return _Row.KEEP


def _restore_row(draft: StateDraft, found: Diagnostics, intent: Intent, seen: GraphProbe) -> _Row:
    """Return the row of a restore, and report missing information."""
    graph = graph_address(intent.graph_id)
    if seen.deleted or seen.existence is Existence.ABSENT:  # R0
        return _Row.RETIRE
    if seen.reading is None or seen.existence is Existence.UNKNOWN:  # R1
        return _unverifiable(found, intent)
    if seen.reading.incarnation != intent.incarnation or intent.restores is None:  # R0
        return _Row.RETIRE
    recorded = draft.resources.get(intent.address)
    if recorded is not None and recorded.digest == restore_digest(intent.graph_id, intent.restores):  # R2
        return _Row.RECORDED
    if seen.restored is None:  # R5
        detail = (
            f"operation {intent.operation_id} may have restored rows: the versions that record it are no longer kept; "
            "to restore them again, approve again"
        )
        found.add(Code.CLUSTER_RECOVERY_PENDING, graph, detail, severity=Severity.WARNING)
        return _Row.SPEND
    return _Row.FORWARD if seen.restored else _Row.RETIRE  # R3, R4


def _delete_row(draft: StateDraft, found: Diagnostics, intent: Intent, seen: GraphProbe) -> _Row:
    graph = graph_address(intent.graph_id)
    if seen.existence is Existence.UNKNOWN:
        return _unverifiable(found, intent)
    recorded = graph in draft.resources
    if seen.deleted or seen.existence is Existence.ABSENT:
        return _Row.FORWARD if recorded else _Row.RECORDED  # D3, D2, D4
    if _is_restored(intent, seen):  # D5
        detail = (
            f"operation {intent.operation_id} deleted it, and it was restored since; to delete it again, approve again"
        )
        found.add(Code.GRAPH_RESTORED, graph, detail, severity=Severity.WARNING)
        return _Row.SPEND
    detail = f"the delete of operation {intent.operation_id} did not finish; it is proposed again"
    found.add(Code.GRAPH_DELETE_INCOMPLETE, graph, detail)
    return _Row.RETIRE  # D1


def _is_restored(intent: Intent, seen: GraphProbe) -> bool:
    """Return True if an existing graph was restored, or is not the graph of the intent."""
    if seen.reading is None or intent.incarnation is None:
        return False
    older = intent.observed_manifest_version is not None and (
        seen.reading.manifest_version <= intent.observed_manifest_version
    )
    exchanged = seen.reading.incarnation != intent.incarnation
    return older or exchanged or bool(seen.deleted_by & set(intent.approval_ids))


def _unverifiable(found: Diagnostics, intent: Intent) -> _Row:
    """Apply row S1, which is used for every kind if existence is unknown."""
    detail = f"operation {intent.operation_id} ({intent.kind}) cannot be verified: the graph does not open"
    found.add(Code.CLUSTER_RECOVERY_PENDING, graph_address(intent.graph_id), detail)
    return _Row.KEEP


_ROWS = {IntentKind.GRAPH_DELETE: _delete_row, IntentKind.GRAPH_RESTORE: _restore_row}
"""Functions that find the row for an operation. `_schema_row` is for creates and migrations."""
