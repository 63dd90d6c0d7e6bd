"""Ledger entries as in-toto statements: the signed envelopes, and their verification.

A statement describes one entry: its subjects are the applied cluster folder, the state document after it, and the commit of
the entry. The same entry always produces the same bytes, so anyone with the ledger can rebuild the statement and compare.

An envelope is DSSE: the signature covers the type and the payload (PAE), never only the payload. A signature in it is the
blob of an SSH signature (PROTOCOL.sshsig) over the PAE in the namespace `dsse@cluster-gitops`, without its armor. `keyid` is
the fingerprint of the key as ssh-keygen shows it; it is only a hint.

Sources: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, .../spec/v1/digest_set.md and
.../spec/v1/envelope.md; https://github.com/secure-systems-lab/dsse/blob/v1.0.2/protocol.md and .../envelope.md.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Container
from datetime import datetime
from typing import Any

from gitops.cluster.approvals.rule_changes import fingerprint
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import VerifiedEntry, read_verified_entry
from gitops.cluster.ledger.documents import write_entry
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.trust import TrustRoot
from gitops.core.canonical import canonical, digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import IntegrityError
from gitops.git.port import CommitSignature, GitReader

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:cluster-gitops:ledger-entry:v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
NAMESPACE = "dsse@cluster-gitops"

_CODE = Code.ENVELOPE_INVALID
_MAX_ENVELOPE = 16 * 1024 * 1024
_MAX_SIGNATURES = 20
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_ARMOR_WIDTH = 70
_URL_SAFE = str.maketrans("-_", "+/")


def statement(*, commit: str, entry: LedgerEntry, state: bytes, signer: str) -> bytes:
    """Return an entry's statement as canonical JSON.

    The predicate contains the unchanged entry, its commit, the digest of the state's bytes after it, and the owner of the
    key that signed it.
    """
    subject = [{"name": "ledger entry", "digest": {"gitCommit": commit}}]
    if entry.source is not None:
        subject.insert(0, {"name": f"cluster folder {entry.target.path}", "digest": {"gitTree": entry.source.tree}})
    subject.append({"name": "state.json", "digest": {"sha256": digest(state)}})
    predicate = {
        "entry": json.loads(write_entry(entry)),
        "ledgerCommit": commit,
        "signer": signer,
        "stateDigest": {"sha256": digest(state)},
    }
    form = {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": PREDICATE_TYPE, "predicate": predicate}
    return canonical(form)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes that a DSSE signature covers (pre-authentication encoding)."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class EnvelopeSignature:
    """One signature of an envelope. `keyid` is only a hint."""

    blob: bytes
    keyid: str = ""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its type, and the signatures that cover both."""

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]


def signature_of(armor: str, key: str) -> EnvelopeSignature:
    """Return an armored SSH signature in envelope form. `key` is the matching public key in base64."""
    blob = base64.b64decode("".join(armor.strip().splitlines()[1:-1]))
    return EnvelopeSignature(blob, fingerprint(key))


def armored(signature: EnvelopeSignature) -> str:
    """Return the signature in ssh-keygen's armored form."""
    text = base64.b64encode(signature.blob).decode()
    lines = [text[at : at + _ARMOR_WIDTH] for at in range(0, len(text), _ARMOR_WIDTH)]
    return "\n".join((_BEGIN, *lines, _END, ""))


def write_envelope(envelope: Envelope) -> bytes:
    """Encode an envelope as one line of JSON."""
    form = {
        "payload": base64.b64encode(envelope.payload).decode(),
        "payloadType": envelope.payload_type,
        "signatures": [{"keyid": s.keyid, "sig": base64.b64encode(s.blob).decode()} for s in envelope.signatures],
    }
    return canonical(form) + b"\n"


def read_envelope(data: bytes) -> Envelope:
    """Read an envelope from any program: either base64 alphabet, `keyid` optional, unknown fields ignored.

    Raises IntegrityError `envelope_invalid`. Checks no signature and does not read the payload.
    """
    if len(data) > _MAX_ENVELOPE:
        raise IntegrityError(_CODE, "the envelope is too large")
    try:
        form = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(_CODE, f"the envelope is not JSON: {error}") from None
    if not isinstance(form, dict) or not isinstance(form.get("signatures"), list):
        raise IntegrityError(_CODE, "the envelope has no list of signatures")
    rows = form["signatures"]
    if not 1 <= len(rows) <= _MAX_SIGNATURES or not all(isinstance(row, dict) for row in rows):
        raise IntegrityError(_CODE, f"the envelope has no signature, or more than {_MAX_SIGNATURES}")
    signatures = tuple(EnvelopeSignature(_bytes(row, "sig"), _text(row.get("keyid", ""), "keyid")) for row in rows)
    return Envelope(_text(form.get("payloadType"), "payloadType"), _bytes(form, "payload"), signatures)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse repeated fields, because two readers could see two payloads."""
    form = dict(pairs)
    if len(form) != len(pairs):
        raise ValueError("a field appears twice")
    return form


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise IntegrityError(_CODE, f"{name} of the envelope is not a string")
    return value


def _bytes(form: dict[str, Any], name: str) -> bytes:
    text = _text(form.get(name), name).translate(_URL_SAFE)
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise IntegrityError(_CODE, f"{name} of the envelope is not base64") from None


# Verification of an envelope that contains an entry's statement.
#
# 1. It is a DSSE envelope with an in-toto statement of a ledger entry.
# 2. It has a valid signature over type and payload, by a key that the rules in force at the ledger's head currently
#    assign to one person in the namespace of envelopes.
# 3. The entry that it refers to is part of the available ledger.
# 4. The statement is exactly the one that the ledger produces for that entry.
#
# The audit verifies the ledger itself.


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """An accepted envelope's commit, entry number and signer."""

    commit: str
    number: int
    signers: tuple[str, ...]


def statement_of(reader: GitReader, found: VerifiedEntry) -> bytes:
    """Return a verified entry's statement. Raises IntegrityError if the entry has no state."""
    commit, at = found.commit, parse_timestamp(found.entry.at)
    state = reader.read(commit.tree, layout.STATE)
    if state is None or at is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, f"{commit.id[:12]} has no state document")
    signer = found.before.principal(reader.signature(commit.id).key, at=at)
    return statement(commit=commit.id, entry=found.entry, state=state, signer=signer or "")


def check_envelope(
    reader: GitReader,
    data: bytes,
    *,
    entries: Container[str],
    trust: TrustRoot,
    now: datetime,
    verify: Callable[[bytes, str], CommitSignature],
) -> VerifiedEnvelope:
    """Verify an envelope by this module's steps.

    `entries` are the ids of the ledger's entries, `trust` the keys in force at its head; `verify` checks an armored
    signature over bytes in the namespace of envelopes. Raises IntegrityError `envelope_invalid`, or the errors of a damaged
    ledger.
    """
    envelope = read_envelope(data)  # 1
    if envelope.payload_type != PAYLOAD_TYPE:
        raise IntegrityError(_CODE, f"its payload is {envelope.payload_type!r}, not {PAYLOAD_TYPE}")
    signers = _signers(envelope, trust, now, verify)  # 2
    commit = _entry_of(envelope.payload)
    if commit not in entries:  # 3
        raise IntegrityError(_CODE, f"entry {commit[:12]} is not part of this ledger")
    found = read_verified_entry(reader, commit)
    if statement_of(reader, found) != envelope.payload:  # 4
        raise IntegrityError(_CODE, f"its statement of entry {commit[:12]} differs from the one in the ledger")
    return VerifiedEnvelope(commit, found.entry.number, signers)


def _signers(
    envelope: Envelope, trust: TrustRoot, now: datetime, verify: Callable[[bytes, str], CommitSignature]
) -> tuple[str, ...]:
    """Check step 2 and return the owners of all valid signatures; invalid ones are ignored if there is a valid one."""
    covered = pae(envelope.payload_type, envelope.payload)
    found, problems = set[str](), list[str]()
    for signature in envelope.signatures:
        result = verify(covered, armored(signature))
        if not result.good or result.namespace != NAMESPACE:
            problems.append(result.problem or "a signature is not valid")
            continue
        principal = trust.principal(result.key, at=now, namespace=NAMESPACE)
        if principal is None:
            problems.append(f"the {result.key_type} key is not trusted for namespace {NAMESPACE}")
        else:
            found.add(principal)
    if not found:
        raise IntegrityError(_CODE, "; ".join(dict.fromkeys(problems)))
    return tuple(sorted(found))


def _entry_of(payload: bytes) -> str:
    """Return the entry to which a statement refers."""
    try:
        form = json.loads(payload)
        kinds, commit = (form["_type"], form["predicateType"]), form["predicate"]["ledgerCommit"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise IntegrityError(_CODE, "its payload is not a statement of a ledger entry") from None
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE) or not isinstance(commit, str):
        raise IntegrityError(_CODE, "its payload is not a statement of a ledger entry")
    return commit
