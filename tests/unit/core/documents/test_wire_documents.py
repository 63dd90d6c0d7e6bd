"""Every document against its golden file, and against a table of what its reader refuses."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from gitops.cluster.approvals.documents import read_approval, write_approval
from gitops.cluster.ledger.documents import (
    read_entry,
    read_intent,
    read_lock,
    read_state,
    write_entry,
    write_intent,
    write_lock,
    write_state,
)
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ClusterTarget
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import (
    AppliedResource,
    ApprovalUse,
    EntryChange,
    EntryKind,
    Intent,
    IntentKind,
    LedgerEntry,
    LedgerState,
    LockInfo,
    SourceRevision,
    Status,
    StatusRecord,
)
from gitops.core.canonical import digest
from gitops.core.errors import IntegrityError, UsageError
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents"
SCHEMA = "8c2b2be35e33705bccc96cbcefb8a3caff2b6649d6dbf0080a0d6768ae62ca1f"
CONFIG = "aea114e7aeaaa39c418355d52a54db9dc25e2484ee1960d78359ac71fe179e21"
GRAPH = "91d4d06ed93caad5321673d174c6c0a05cf273312b7773d18e9ed687ce561f13"
APPROVAL_ID = "01K2H7Q3M8ZR4T6V9WXEYA1B5C"

READERS: dict[str, tuple[str, Any]] = {
    "state": ("state.full.json", read_state),
    "lock": ("lock.json", read_lock),
    "intent": ("intent.json", read_intent),
    "approval": ("approval.json", read_approval),
    "entry": ("entry.json", read_entry),
}


def golden(name: str) -> bytes:
    return (DOCUMENTS / name).read_bytes()


def test_full_state_reads_as_its_values_and_writes_back_byte_for_byte() -> None:
    state = read_state(golden("state.full.json"))
    assert state.revision == 12
    assert state.config_digest == CONFIG
    assert state.resources["policy.readers"].applies_to == ("cluster", "graph.catalogue")
    assert state.resources["graph.catalogue"] == AppliedResource(GRAPH)
    blocked = StatusRecord(Status.BLOCKED, ("approval_required",), "waits for an approval by Zoë")
    assert state.statuses == {"graph.archive": blocked, "graph.catalogue": StatusRecord(Status.APPLIED)}
    assert state.approval_records[APPROVAL_ID]["consumed_by_operation"] == "apply"
    assert state.observations["graph.catalogue"]["manifest_version"] == 8
    assert write_state(state) == golden("state.full.json")


def test_minimal_state_gets_its_defaults() -> None:
    assert read_state(golden("state.minimal.json")) == LedgerState()
    assert digest(golden("state.minimal.json")) == "27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac"


def test_empty_state_is_written_with_every_section() -> None:
    assert write_state(LedgerState()) == golden("state.empty.json")


def test_maps_are_written_by_code_point_whatever_their_order() -> None:
    forward = {Address(name): AppliedResource("d") for name in ("graph.A", "graph.a", "graph.é", "graph.\U00010000")}
    backward = dict(reversed(forward.items()))
    assert write_state(LedgerState(resources=forward)) == write_state(LedgerState(resources=backward))
    assert list(read_state(write_state(LedgerState(resources=backward))).resources) == list(forward)


def test_empty_bindings_are_not_absent_bindings() -> None:
    state = LedgerState(
        resources={Address("policy.p"): AppliedResource("d", ()), Address("query.g.q"): AppliedResource("d")}
    )
    assert read_state(write_state(state)) == state


def test_null_bindings_and_null_message_read_as_absent() -> None:
    data = (
        b'{"version":1,"applied_revision":{"resources":{"policy.p":{"digest":"d","applies_to":null}}},'
        b'"resource_statuses":{"policy.p":{"status":"planned","message":null}}}'
    )
    state = read_state(data)
    assert state.resources == {"policy.p": AppliedResource("d")}
    assert state.statuses == {"policy.p": StatusRecord(Status.PLANNED)}


def test_lock() -> None:
    info = LockInfo("01K2H7S6P0T4V8WXAYZ2B6CDEF", "apply", "2026-07-02T09:00:00.5Z", 4242)
    assert read_lock(golden("lock.json")) == info
    assert write_lock(info) == golden("lock.json")
    assert not write_lock(info).endswith(b"\n")


def test_intent() -> None:
    intent = Intent(
        operation_id="01K2H7R0N4S8T2V6W0XAY4Z8BD",
        started_at="2026-07-02T09:05:00Z",
        actor="mira",
        kind=IntentKind.SCHEMA_APPLY,
        graph_id="catalogue",
        graph_uri="/srv/library/graphs/catalogue.omni",
        observed_manifest_version=7,
        expected_manifest_version=8,
        desired_schema_digest=SCHEMA,
        state_cas_base="sha256:27f545ef6d142d8a707299ab0dfa64ba684871d8307176fd660f84ad2d51b3ac",
        approval_id=None,
    )
    assert read_intent(golden("intent.json")) == intent
    assert write_intent(intent) == golden("intent.json")


def test_approval() -> None:
    approval = Approval(
        approval_id=APPROVAL_ID,
        resource=Address("graph.staging"),
        operation=Action.DELETE,
        reason="the graph and its data are removed for good",
        bound_config_digest=CONFIG,
        bound_before_digest=GRAPH,
        bound_after_digest=None,
        approved_by="mira",
        created_at="2026-07-02T08:00:00Z",
    )
    assert read_approval(golden("approval.json")) == approval
    assert write_approval(approval) == golden("approval.json")


def test_entry() -> None:
    entry = LedgerEntry(
        version=1,
        number=2,
        kind=EntryKind.APPLY,
        operation="01K2H7S6P0T4V8WXAYZ2B6CDEF",
        at="2026-07-02T09:15:00Z",
        actor="mira",
        target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
        previous="1" * 40,
        source=SourceRevision("2" * 40, "3" * 40),
        changeset="01K2H7T2R6V0WXAYZ4B8CDE2FG",
        plan_digest="4" * 64,
        config_digest=CONFIG,
        state_revision=12,
        policy_digest="5" * 64,
        trust_digest="6" * 64,
        changes=(
            EntryChange(Address("graph.archive"), "delete", "7" * 64, None, "blocked", "approval_required"),
            EntryChange(Address("graph.staging"), "delete", GRAPH, None, "applied"),
        ),
        approvals=(ApprovalUse(APPROVAL_ID, "8" * 40, Address("graph.staging"), "ada@example.org"),),
        authors=("mira@example.org",),
    )
    assert read_entry(golden("entry.json")) == entry
    assert write_entry(entry) == golden("entry.json")


@pytest.mark.parametrize(
    ("name", "nullable"),
    [
        (
            "intent",
            ["actor", "observed_manifest_version", "expected_manifest_version", "state_cas_base", "approval_id"],
        ),
        ("approval", ["bound_before_digest", "bound_after_digest", "consumed_at", "consumed_by_operation"]),
    ],
)
def test_nullable_fields_may_be_absent(name: str, nullable: list[str]) -> None:
    file, read = READERS[name]
    document = json.loads(golden(file))
    absent = read(json.dumps({k: v for k, v in document.items() if k not in nullable}).encode())
    null = read(json.dumps(document | dict.fromkeys(nullable)).encode())
    assert absent == null


CASES = json.loads(golden("refused.json"))


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_refused(case: list[Any]) -> None:
    name, why, place, value, code, path = case
    file, read = READERS[name]
    document = json.loads(golden(file))
    owner = document
    for step in place[:-1]:
        owner = owner[step]
    if value == "<remove>":
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    with pytest.raises(IntegrityError) as caught:
        read(json.dumps(document).encode())
    assert (caught.value.code, caught.value.path) == (code, path), why


@pytest.mark.parametrize("name", sorted(READERS))
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"1",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b'{"version": 1, "version": 1}',
        b'{"schema_version": 1e0}',
        b"[" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'"' * 100_000,
        b'"\\' * 100_000,
        b" " * (64 * 1024 * 1024 + 1),
    ],
    ids=lambda data: repr(data[:12]),
)
def test_hostile_bytes_are_refused_by_every_reader(name: str, data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        READERS[name][1](data)
    assert caught.value.code.startswith(("invalid_", "ledger_entry_"))


def test_the_version_is_seen_before_the_rest_of_a_newer_document() -> None:
    with pytest.raises(IntegrityError) as caught:
        read_state(b'{"version": 7, "everything": "else is different"}')
    assert caught.value.code == "unsupported_state_version"
    assert "7" in caught.value.detail
    assert "version 1" in caught.value.detail


def test_text_that_is_not_unicode_is_never_written() -> None:
    entry = read_entry(golden("entry.json"))
    with pytest.raises(UsageError):
        write_entry(dataclasses.replace(entry, actor="\udcff"))
    with pytest.raises(UsageError):
        write_lock(LockInfo("id", "\udcff", "now", 1))


def test_an_entry_that_could_not_be_read_back_is_never_written() -> None:
    entry = read_entry(golden("entry.json"))
    for broken in (
        dataclasses.replace(entry, actor="mira\nActor: ada"),
        dataclasses.replace(entry, previous=None),
        dataclasses.replace(entry, number=0),
        dataclasses.replace(entry, trust_digest=""),
    ):
        with pytest.raises(IntegrityError) as caught:
            write_entry(broken)
        assert caught.value.code == "ledger_entry_invalid"
