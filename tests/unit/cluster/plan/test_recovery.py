"""The sweep table, row by row: what is seen of a graph decides what becomes of an interrupted operation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from gitops.cluster.model.ledger import Intent, IntentKind, LedgerState
from gitops.cluster.model.resource import restore_digest
from gitops.cluster.plan.probe import GraphProbe
from gitops.cluster.plan.recovery_rules import sweep
from gitops.core.canonical import digest
from gitops.database.graph.port import Existence, GraphReading, RestoreOrder
from tests.support.planning import state

AT = "2026-06-11T08:00:00Z"
WANTED, RECORDED, OTHER = b"wanted", b"recorded", b"other"
CREATE, SCHEMA, DELETE = IntentKind.GRAPH_CREATE, IntentKind.SCHEMA_APPLY, IntentKind.GRAPH_DELETE
RESTORE, ORDER = IntentKind.GRAPH_RESTORE, RestoreOrder(2, ("City",))
ABSENT, SHUT, UNSEEN = (
    GraphProbe(Existence.ABSENT),
    GraphProbe(Existence.PRESENT),
    GraphProbe(Existence.UNKNOWN),
)


def live(source: bytes) -> GraphProbe:
    return GraphProbe(Existence.PRESENT, GraphReading(source, 4, "G1", 12))


def intent(kind: IntentKind, operation: str = "OP1", graph: str = "g") -> Intent:
    wanted = "" if kind in (DELETE, RESTORE) else digest(WANTED)
    approval = "AP1" if kind in (DELETE, RESTORE) else None
    made = Intent(operation, AT, "sam", kind, graph, f"/old/{graph}.omni", None, None, wanted, None, approval)
    return made if kind is not RESTORE else replace(made, incarnation="G1", fence=7, restores=ORDER)


def restored(how: bool | None, incarnation: str = "G1") -> GraphProbe:
    return GraphProbe(Existence.PRESENT, GraphReading(RECORDED, 4, incarnation, 12), restored=how)


LEDGER = state(
    {"graph.g": "", "schema.g": digest(RECORDED), "query.g.q": "1", "policy.p": "2"}, {"policy.p": ["graph.g"]}
)
PENDING, INCOMPLETE, ROLLED = "cluster_recovery_pending", "graph_create_incomplete", "cluster_recovery_rolled_forward"


@dataclass(frozen=True)
class Row:
    """One row of the table and what it must lead to."""

    name: str
    kind: IntentKind
    seen: GraphProbe
    state: LedgerState = LEDGER
    codes: tuple[str, ...] = ()
    status: str | None = None
    kept: bool = False
    recorded: bool = False
    removed: bool = field(default=False)


EMPTY = LedgerState()
RESTORED = state({"graph.g": "", "schema.g": digest(RECORDED), "restore.g": restore_digest("g", ORDER)}, {})
ROWS = [
    Row("C1", CREATE, ABSENT, EMPTY),
    Row("C2", CREATE, live(RECORDED)),
    Row("C3", CREATE, live(WANTED), EMPTY, (ROLLED,), "applied", recorded=True),
    Row("C4", CREATE, live(OTHER), EMPTY, (PENDING,), "drifted:actual_applied_state_pending", kept=True),
    Row("C5", CREATE, SHUT, EMPTY, (INCOMPLETE,), "error:graph_create_incomplete", kept=True),
    Row("C unknown", CREATE, UNSEEN, EMPTY, (PENDING,), kept=True),
    Row("S0", SCHEMA, ABSENT),
    Row("S1", SCHEMA, SHUT, codes=(PENDING,), kept=True),
    Row("S1 unknown", SCHEMA, UNSEEN, codes=(PENDING,), kept=True),
    Row("S2", SCHEMA, live(RECORDED)),
    Row("S3", SCHEMA, live(WANTED), codes=(ROLLED,), status="applied", recorded=True),
    Row("S4", SCHEMA, live(OTHER), codes=(PENDING,), status="drifted:actual_applied_state_pending", kept=True),
    Row("R0", RESTORE, ABSENT),
    Row("R0 other", RESTORE, restored(True, "G2")),
    Row("R1", RESTORE, SHUT, codes=(PENDING,), kept=True),
    Row("R1 unknown", RESTORE, UNSEEN, codes=(PENDING,), kept=True),
    Row("R2", RESTORE, restored(True), RESTORED),
    Row("R3", RESTORE, restored(True), codes=(ROLLED,), recorded=True),
    Row("R4", RESTORE, restored(False)),
    Row("R5", RESTORE, restored(None), codes=(PENDING,)),
    Row("D1", DELETE, SHUT, codes=("graph_delete_incomplete",)),
    Row("D1 live", DELETE, live(RECORDED), codes=("graph_delete_incomplete",)),
    Row("D2", DELETE, ABSENT, EMPTY),
    Row("D3", DELETE, ABSENT, codes=(ROLLED,), recorded=True, removed=True),
    Row("D unknown", DELETE, UNSEEN, codes=(PENDING,), kept=True),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_sweep(row):
    outcome = sweep(row.state, [intent(row.kind)], lambda _intent: row.seen, at=AT)
    assert outcome.diagnostics.codes() == row.codes
    assert {d.path for d in outcome.diagnostics} <= {"graph.g"}
    assert outcome.retire == (() if row.kept else ("OP1",))
    assert outcome.pending == ({"g"} if row.kept else set())
    for address in ("graph.g", "schema.g"):
        record = outcome.state.statuses.get(address)
        assert (None if record is None else ":".join([record.status, *record.conditions])) == row.status
    assert (outcome.state.recovery_records != {}) == row.recorded
    if not row.recorded:
        assert outcome.state.resources == row.state.resources
        assert outcome.consumed == ({"AP1": "OP1"} if row.name in ("D2", "R2", "R5") else {})


@pytest.mark.parametrize("kind", [CREATE, SCHEMA])
@pytest.mark.parametrize("before", [EMPTY, LEDGER])
def test_rolling_forward_records_the_live_schema_its_composite_and_the_operation(kind, before):
    outcome = sweep(before, [intent(kind)], lambda _intent: live(WANTED), at=AT)
    queries = {t: r.digest for t, r in before.resources.items() if t.startswith("query.")}
    want = state({"graph.g": "", "schema.g": digest(WANTED), **queries}).resources
    assert {t: r for t, r in outcome.state.resources.items() if t != "policy.p"} == want
    assert outcome.state.recovery_records == {
        "OP1": {
            "kind": kind.value,
            "graph_id": "g",
            "outcome": "rolled_forward",
            "recovered_at": AT,
            "actor": "sam",
        }
    }


def test_rolling_a_delete_forward_removes_the_subtree_and_spends_the_approval():
    outcome = sweep(LEDGER, [intent(DELETE)], lambda _intent: ABSENT, at=AT)
    assert set(outcome.state.resources) == {"policy.p"}
    assert outcome.state.observations == {
        "graph.g": {"kind": "tombstone", "deleted_at": AT, "approval_id": "AP1", "actor": "sam"}
    }
    assert outcome.state.approval_records == {"AP1": {"consumed_at": AT, "consumed_by_operation": "OP1"}}
    assert outcome.consumed == {"AP1": "OP1"}


def test_rolling_a_restore_forward_records_what_it_restored_and_spends_the_approval():
    outcome = sweep(LEDGER, [intent(RESTORE)], lambda _intent: restored(True), at=AT)
    assert outcome.state.resources == {**LEDGER.resources, "restore.g": RESTORED.resources["restore.g"]}
    assert outcome.state.statuses["restore.g"].status == "applied"
    assert outcome.state.observations["graph.g"]["rows"] == 12
    assert outcome.state.approval_records == {"AP1": {"consumed_at": AT, "consumed_by_operation": "OP1"}}
    assert outcome.consumed == {"AP1": "OP1"}


def test_every_approval_of_an_interrupted_delete_is_spent():
    outcome = sweep(LEDGER, [replace(intent(DELETE), co_approvals=("AP2", "AP3"))], lambda _intent: ABSENT, at=AT)
    assert set(outcome.state.approval_records) == {"AP1", "AP2", "AP3"}
    assert outcome.consumed == {"AP1": "OP1", "AP2": "OP1", "AP3": "OP1"}


def test_a_delete_without_approval_id_spends_nothing():
    outcome = sweep(LEDGER, [replace(intent(DELETE), approval_id=None)], lambda _intent: ABSENT, at=AT)
    assert outcome.state.approval_records == {}
    assert outcome.consumed == {}


def test_intents_are_taken_in_the_order_of_their_ids_whatever_order_they_come_in():
    intents = [intent(DELETE, "OP1"), intent(CREATE, "OP2")]
    probes = iter([ABSENT, live(WANTED)])
    outcome = sweep(LEDGER, intents[::-1], lambda _intent: next(probes), at=AT)
    assert outcome.retire == ("OP1", "OP2")
    assert outcome.state.resources["schema.g"].digest == digest(WANTED)
    assert "query.g.q" not in outcome.state.resources


def test_each_graph_is_judged_by_itself():
    seen = {"g": live(WANTED), "h": SHUT}
    outcome = sweep(
        EMPTY, [intent(CREATE, "OP1", "g"), intent(CREATE, "OP2", "h")], lambda each: seen[each.graph_id], at=AT
    )
    assert outcome.retire == ("OP1",)
    assert outcome.pending == {"h"}


def test_versions_and_uri_of_a_sidecar_decide_nothing():
    plain = intent(SCHEMA)
    odd = replace(
        plain, observed_manifest_version=9, expected_manifest_version=1, graph_uri="/nowhere", state_cas_base="x"
    )
    for seen in (ABSENT, SHUT, live(WANTED), live(RECORDED), live(OTHER)):
        one, other = (sweep(LEDGER, [i], lambda _intent, s=seen: s, at=AT) for i in (plain, odd))
        assert (one.retire, one.pending, one.state.resources) == (other.retire, other.pending, other.state.resources)
