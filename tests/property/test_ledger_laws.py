"""Laws of documents and of what a ledger says: what is written is read, and damage is seen."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gitops.cluster.apply.refresh import refresh
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
from gitops.cluster.ledger.layout import LOCK, STATE, approval_key, intent_key
from gitops.cluster.ledger.port import ledger_time
from gitops.cluster.ledger.trailers import commit_message, parse_trailers, trailers
from gitops.cluster.model.address import NAME
from gitops.cluster.model.approval import Approval, ApprovalStatement, ClusterTarget
from gitops.cluster.model.change import Action, GateName
from gitops.cluster.model.drill import DrilledGraph, RestoreDrill
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
from gitops.cluster.model.outcome import VerbOutcome
from gitops.core.clock import encode_ulid, parse_timestamp
from gitops.core.documents.forms import is_line
from gitops.core.errors import IntegrityError
from gitops.render import json as forms
from gitops.render import text as printed
from gitops.render.json_text import to_text
from tests.support.audited import CONFIG, START, Life, declared, moment
from tests.support.clock import FixedClock
from tests.support.cluster import SCHEMA, Cluster
from tests.support.effort import cases
from tests.support.governed import deleted, newest
from tests.support.pages import ROOT
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
drills = st.builds(
    RestoreDrill,
    counts,
    st.lists(st.builds(DrilledGraph, lines, lines, counts, counts, moments), max_size=2).map(tuple),
    st.lists(lines, max_size=2).map(tuple),
    st.none() | lines,
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
    drill=drills,
    # No other entry has the result of a drill.
).map(lambda entry: entry if entry.kind is EntryKind.DRILL else replace(entry, drill=None))


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


ULID = "01JZ0000000000000000000DDD"
INTENT = Intent(
    ULID, "2026-06-11T07:00:00Z", "sam", IntentKind.SCHEMA_APPLY, "knowledge", "x", 1, None, "0" * 64, None, None
)
_pieces = st.sampled_from(
    [
        b"",
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b",",
        b":",
        b"\\u0000",
        b"\xff",
        b"\n",
        b"null",
        b"1e999",
        b"NaN",
        b"-1",
        b"true",
    ]
) | st.sampled_from([b"9" * 30, b"../", "\u202e".encode(), b'"version": 2, ', b'"digest": 0, ', b"\\ud800", b"cluster"])


@st.composite
def mutations(draw: st.DrawFn, source: bytes) -> bytes:
    """`source` with a few spans replaced by pieces of syntax."""
    data = source
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 20)))
        data = data[:start] + draw(_pieces) + data[end:]
    return data


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The documents of a converged ledger, and one of each other sort."""
    cluster = Cluster(tmp_path_factory.mktemp("whole"), memory=True)
    cluster.converge()
    documents = {key: cluster.stored(key) or b"" for key in cluster.files()}
    approval = json.loads((ROOT / "tests/data/documents/approval.json").read_bytes())
    documents[approval_key(ULID)] = json.dumps({**approval, "approval_id": ULID}).encode()
    documents[intent_key(ULID)] = write_intent(INTENT)
    return documents


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """A cluster whose ledger each example lays out anew; its live graph stays as it is."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), memory=True)
    made.make_graph("knowledge", SCHEMA)
    return made


def _lay_out(cluster: Cluster, documents: dict[str, bytes]) -> None:
    for key in cluster.files():
        cluster.plant(key, None)
    for key, data in documents.items():
        cluster.plant(key, data)


def _stored(cluster: Cluster) -> dict[str, bytes | None]:
    return {key: cluster.stored(key) for key in cluster.files()}


def _shows(outcome: VerbOutcome) -> None:
    """Both forms can be made of any outcome, and hold nothing that acts on a terminal."""
    assert all(line.isprintable() for line in printed.to_text(outcome).splitlines())
    assert json.loads(to_text(forms.envelope(outcome)))["ok"] is outcome.ok


@given(data=st.data())
def test_any_damage_is_answered(cluster: Cluster, whole: dict[str, bytes], data: st.DataObject) -> None:
    damaged = dict(whole)
    for key in data.draw(st.sets(st.sampled_from(sorted(whole)), min_size=1, max_size=2)):
        damaged[key] = data.draw(mutations(whole[key]))
    if data.draw(st.booleans()):
        damaged[LOCK] = data.draw(mutations(cluster.hold_lock()))
    _lay_out(cluster, damaged)
    before = _stored(cluster)
    for look in (cluster.status, cluster.plan):
        _shows(look())
    assert _stored(cluster) == before
    refreshed = cluster.refresh()
    _shows(refreshed)
    after = _stored(cluster)
    # A record of the newest events may be written from them again.
    assert [k for k, v in after.items() if k != STATE and k in before and v not in (before[k], whole.get(k))] == []
    assert set(before) - set(after) <= {intent_key(ULID)}


HOUR = timedelta(hours=1)
# The clock jumps by up to an hour at each look, which no change may run out of time for.
SHORT = CONFIG + "  expires_after: 2h\napply:\n  node_timeout: 30d\n"
ADA_UNTIL = {"ada": f'valid-before="{moment(3)}"'}
_skews = st.integers(-180, 180).map(lambda minutes: timedelta(minutes=minutes))


def _waiting(folder: Path, step: timedelta = timedelta(seconds=1)) -> tuple[Life, FixedClock]:
    """A delete that waits; ada's key is good for three hours."""
    clock = FixedClock(START, timedelta(seconds=1))
    life = Life(folder, config=SHORT, options=ADA_UNTIL, clock=clock)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    clock._step = step
    return life, clock


@settings(max_examples=cases(12))
@example(later=[4 * HOUR, -3 * HOUR, timedelta()], step=timedelta())
@example(later=[timedelta(), timedelta(minutes=115), timedelta()], step=timedelta(minutes=3))
@given(later=st.lists(_skews, min_size=3, max_size=3), step=st.sampled_from([timedelta(), 20 * HOUR / 60, HOUR]))
def test_the_audit_is_good_whatever_the_clocks_of_the_runs_say(later: list[timedelta], step: timedelta) -> None:
    """A refresh, an approval and an apply, each on a machine with another clock, and runs that take long."""
    with tempfile.TemporaryDirectory() as folder:
        life, clock = _waiting(Path(folder), step)
        clock.advance(later[0])
        assert refresh(life.workspace()).ok
        clock.advance(later[1])
        try:
            life.approve("ada", "graph.legacy")
        except AssertionError:
            # The key or the approval is not good at this time.
            return
        clock.advance(later[2])
        outcome = life.apply()
        report = life.audit(life.chain()[-1])
        assert report.findings == (), outcome.diagnostics
        at = parse_timestamp(newest(life).at)
        assert at is not None
        assert not deleted(outcome) or at < START + 3 * HOUR


def test_a_clock_that_is_behind_accepts_no_expired_key(tmp_path: Path) -> None:
    """The ledger is four hours on; a machine whose clock is three hours behind approves with a key that has expired."""
    life, clock = _waiting(tmp_path)
    clock.advance(4 * HOUR)
    assert refresh(life.workspace()).ok
    clock.advance(-3 * HOUR)
    with pytest.raises(AssertionError, match="approval_signer_unknown"):
        life.approve("ada", "graph.legacy")
    assert not deleted(life.apply())
    assert life.audit(life.chain()[-1]).findings == ()


def test_what_a_gate_accepted_does_not_expire_before_its_entry(tmp_path: Path) -> None:
    """A run that takes hours: the approval of two hours was good when the run began."""
    life, clock = _waiting(tmp_path)
    life.approve("ben", "graph.legacy")
    clock._step = 25 * HOUR / 60
    assert deleted(life.apply())
    assert life.audit(life.chain()[-1]).findings == ()


@given(minutes=st.integers(-600, 600))
def test_the_time_is_the_later_of_both(minutes: int) -> None:
    class Entry:
        at = "2026-07-02T10:00:00Z"

    now = START + timedelta(minutes=minutes, microseconds=5)
    found = ledger_time(now, Entry())  # type: ignore[arg-type]
    assert found == max(START, now.replace(microsecond=0))
    assert ledger_time(now, None) == now.replace(microsecond=0)
