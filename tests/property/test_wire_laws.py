"""Laws of the stored documents: reading inverts writing, and no bytes do worse than a coded refusal."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cluster.approvals.documents import read_approval, read_statement, statement_message, write_approval
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
from gitops.cluster.ledger.trailers import commit_message, parse_trailers, trailers
from gitops.cluster.model.address import NAME
from gitops.cluster.model.approval import Approval, ApprovalStatement, ClusterTarget
from gitops.cluster.model.change import Action, GateName
from gitops.cluster.model.kinds import Gate
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
from gitops.core.clock import encode_ulid
from gitops.core.documents.forms import is_line
from gitops.core.errors import IntegrityError
from tests.support.signed import drafted

relaxed = settings(suppress_health_check=[HealthCheck.too_slow])

HEX = "0123456789abcdef"
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
lines = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20).filter(is_line)
digests = st.text(HEX, min_size=64, max_size=64)
objects = st.text(HEX, min_size=40, max_size=40) | digests
counts = st.integers(0, 2**64 - 1)
ulids = st.builds(encode_ulid, st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
moments = st.datetimes().map(lambda moment: moment.replace(microsecond=0).isoformat() + "Z")
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
free = st.recursive(
    scalars | text, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3)
)
records = st.dictionaries(text, st.dictionaries(text, free, max_size=3), max_size=3)
states = st.builds(
    LedgerState,
    revision=counts,
    config_digest=st.none() | text,
    resources=st.dictionaries(
        text, st.builds(AppliedResource, text, st.none() | st.lists(text, max_size=3).map(tuple)), max_size=4
    ),
    statuses=st.dictionaries(
        text,
        st.builds(StatusRecord, st.sampled_from(Status), st.lists(text, max_size=2).map(tuple), st.none() | text),
        max_size=4,
    ),
    approval_records=records,
    recovery_records=records,
    observations=records,
)
targets = st.builds(ClusterTarget, lines, lines, lines, lines.map(lambda name: f"refs/heads/{name}"), lines)
entries = st.builds(
    LedgerEntry,
    number=st.just(3),
    kind=st.sampled_from(EntryKind),
    operation=lines,
    at=moments,
    actor=st.none() | lines,
    target=targets,
    previous=objects,
    source=st.none() | st.builds(SourceRevision, objects, objects),
    changeset=st.none() | lines,
    plan_digest=st.none() | digests,
    config_digest=st.none() | digests,
    state_revision=counts,
    policy_digest=digests,
    trust_digest=digests,
    changes=st.lists(
        st.builds(
            EntryChange,
            lines,
            st.sampled_from([a.value for a in Action]),
            st.none() | digests,
            st.none() | digests,
            lines,
            st.none() | lines,
            st.booleans(),
            tier=st.none(),
            digest=st.none() | digests,
            gates=st.sets(st.sampled_from(GateName)).map(lambda gates: tuple(sorted(gates))),
        ).map(lambda change: replace(change, tier=Gate("", change.gates).tier if change.gates else None)),
        max_size=3,
    ).map(tuple),
    approvals=st.lists(st.builds(ApprovalUse, ulids, objects, lines, lines), max_size=2).map(tuple),
    authors=st.lists(lines, max_size=2).map(tuple),
    recovered=st.lists(lines, max_size=2).map(tuple),
)


@relaxed
@given(states)
def test_a_state_survives_being_stored(state: LedgerState) -> None:
    data = write_state(state)
    assert read_state(data) == state
    assert write_state(read_state(data)) == data


@relaxed
@given(st.builds(LockInfo, text, text, text, counts))
def test_a_lock_survives_being_stored(info: LockInfo) -> None:
    assert read_lock(write_lock(info)) == info


@relaxed
@given(
    st.builds(
        Intent,
        operation_id=text,
        started_at=text,
        actor=st.none() | text,
        kind=st.sampled_from(IntentKind),
        graph_id=st.from_regex(NAME, fullmatch=True),
        graph_uri=text,
        observed_manifest_version=st.none() | counts,
        expected_manifest_version=st.none() | counts,
        desired_schema_digest=text,
        state_cas_base=st.none() | text,
        approval_id=st.none() | text,
        co_approvals=st.lists(text, max_size=3).map(tuple),
    )
)
def test_an_intent_survives_being_stored(intent: Intent) -> None:
    assert read_intent(write_intent(intent)) == intent


@relaxed
@given(
    st.builds(
        Approval,
        approval_id=text,
        resource=text,
        operation=st.sampled_from(Action),
        reason=text,
        bound_config_digest=text,
        bound_before_digest=st.none() | text,
        bound_after_digest=st.none() | text,
        approved_by=text,
        created_at=text,
        consumed_at=st.none() | text,
        consumed_by_operation=st.none() | text,
    )
)
def test_an_approval_survives_being_stored(approval: Approval) -> None:
    assert read_approval(write_approval(approval)) == approval


@relaxed
@given(entries)
def test_an_entry_survives_being_stored_and_its_message_says_the_same(entry: LedgerEntry) -> None:
    assert read_entry(write_entry(entry)) == entry
    message = commit_message(entry)
    assert parse_trailers(message) == trailers(entry)
    assert "\r" not in message


@relaxed
@given(
    st.builds(ApprovalStatement, ulids, targets, objects, digests, digests, digests, digests, objects, moments, lines),
    lines,
)
def test_a_statement_survives_its_message(statement: ApprovalStatement, summary: str) -> None:
    assert read_statement(statement_message(statement, summary, sign=drafted)) == statement


@relaxed
@given(st.binary(max_size=200) | st.text('{}[]":,\\un01e- versionappliedrevision', max_size=200).map(str.encode))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (read_state, read_lock, read_intent, read_approval, read_entry):
        with contextlib.suppress(IntegrityError):
            assert read(data) is not None
