"""Law: no content of a ledger's documents makes a verb raise, and looking at a ledger never changes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.ledger.documents import write_intent
from gitops.cluster.ledger.layout import LOCK, STATE, approval_key, intent_key
from gitops.cluster.model.ledger import Intent, IntentKind
from gitops.cluster.model.outcome import VerbOutcome
from gitops.render import json as forms
from gitops.render import text
from tests.support.cluster import SCHEMA, Cluster
from tests.support.pages import ROOT

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
    assert all(line.isprintable() for line in text.to_text(outcome).splitlines())
    assert json.loads(forms.to_text(forms.envelope(outcome)))["ok"] is outcome.ok


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
