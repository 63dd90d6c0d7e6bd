"""Statements and envelopes: the specification's own examples, and what no envelope is."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.audit.statement import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    EnvelopeSignature,
    armored,
    pae,
    read_envelope,
    signature_of,
    statement,
    write_envelope,
)
from gitops.cluster.ledger.documents import read_entry
from gitops.core.errors import IntegrityError
from tests.support.pages import ROOT
from tests.unit.render.ledger_cases import ANNOUNCED_ENTRY, APPLIED_ENTRY

CASES = json.loads((ROOT / "tests" / "data" / "dsse" / "envelopes.json").read_text("utf-8"))
TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


@pytest.mark.parametrize("name", CASES["encoded"])
def test_the_signed_bytes_are_those_of_the_specification(name: str) -> None:
    case = CASES["encoded"][name]
    assert pae(case["payloadType"], case["payload"].encode()) == case["pae"].encode()


@given(kind=TEXT, payload=st.binary(max_size=50), other=TEXT, more=st.binary(max_size=50))
def test_two_contents_never_have_the_same_signed_bytes(kind: str, payload: bytes, other: str, more: bytes) -> None:
    assert (pae(kind, payload) == pae(other, more)) == ((kind, payload) == (other, more))


@given(
    kind=TEXT,
    payload=st.binary(max_size=200),
    signatures=st.lists(st.builds(EnvelopeSignature, st.binary(max_size=90), TEXT), min_size=1, max_size=3),
)
def test_an_envelope_reads_back(kind: str, payload: bytes, signatures: list[EnvelopeSignature]) -> None:
    envelope = Envelope(kind, payload, tuple(signatures))
    written = write_envelope(envelope)
    assert read_envelope(written) == envelope
    assert written.count(b"\n") == 1
    assert read_envelope(written.replace(b"+", b"-").replace(b"/", b"_")).payload == payload


@pytest.mark.parametrize("name", CASES["accepted"])
def test_what_other_makers_write_is_read(name: str) -> None:
    case = CASES["accepted"][name]
    envelope = read_envelope(json.dumps(case["envelope"]).encode())
    assert envelope.payload == base64.b64decode(case["payload"])
    assert [s.keyid for s in envelope.signatures] == case["keyids"]


@pytest.mark.parametrize("name", CASES["refused"])
def test_what_is_no_envelope_is_refused(name: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_envelope(CASES["refused"][name].encode())
    assert caught.value.code == "envelope_invalid"


@given(data=st.binary(max_size=100) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_garbage_is_refused_with_the_code(data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_envelope(data)
    assert caught.value.code == "envelope_invalid"


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b" " * (17 * 1024 * 1024)])
def test_documents_that_hurt_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_envelope(data)


def test_armor_is_what_ssh_keygen_writes() -> None:
    blob = bytes(range(256))
    signature = EnvelopeSignature(blob)
    lines = armored(signature).splitlines()
    assert (lines[0], lines[-1]) == ("-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----")
    assert {len(line) for line in lines[1:-2]} == {70}
    key = base64.b64encode(b"key").decode()
    assert signature_of(armored(signature), key).blob == blob
    assert signature_of(armored(signature), key).keyid == "SHA256:LHDhK3oGRvkiefQnx7OOczTY5Tic/xZ6HcMOc/gmtoM"


@pytest.mark.parametrize("entry", [APPLIED_ENTRY, ANNOUNCED_ENTRY])
def test_a_statement_has_the_form_of_in_toto(entry) -> None:
    made = statement(commit="7c" * 20, entry=entry, state=b"{}\n", signer="bot")
    assert made == statement(commit="7c" * 20, entry=entry, state=b"{}\n", signer="bot")
    form = json.loads(made)
    assert list(form) == ["_type", "predicate", "predicateType", "subject"]
    assert (form["_type"], form["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    names = [subject["name"] for subject in form["subject"]]
    assert len(set(names)) == len(names) == 3
    digests = [subject["digest"] for subject in form["subject"]]
    assert digests[:2] == [{"gitTree": entry.source.tree}, {"gitCommit": "7c" * 20}]
    assert set(digests[2]) == {"sha256"}
    assert form["predicate"]["entry"]["number"] == entry.number
    assert form["predicate"]["signer"] == "bot"


DOCUMENTS = ROOT / "tests" / "data" / "documents"


def test_the_golden_statement_and_envelope_keep_their_bytes() -> None:
    written = (DOCUMENTS / "intoto.statement.json").read_bytes()
    entry = read_entry((DOCUMENTS / "entry.emergency.json").read_bytes())
    state = (DOCUMENTS / "state.full.json").read_bytes()
    assert statement(commit="b" * 40, entry=entry, state=state, signer="ledger@example.org") == written
    envelope = (DOCUMENTS / "intoto.envelope.json").read_bytes()
    assert read_envelope(envelope).payload == written
    assert write_envelope(read_envelope(envelope)) == envelope
