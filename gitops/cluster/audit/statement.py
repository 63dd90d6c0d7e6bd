"""Entries as in-toto statements, and the verification of envelopes that hold one.

1. It is a DSSE envelope with an in-toto statement of a ledger entry.
2. One of its signatures is good over type and payload, by a key that the rules in force at the ledger's head assign to one
   person in the namespace of envelopes, now.
3. The entry that it names is part of the ledger at hand.
4. The statement is exactly the one that the ledger gives for that entry.

The audit verifies the ledger itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from datetime import datetime

from gitops.cluster.audit.intoto import (
    NAMESPACE,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    armored,
    pae,
    read_envelope,
    statement,
)
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import VerifiedEntry, read_verified_entry
from gitops.cluster.model.trust import TrustRoot
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import IntegrityError
from gitops.git.port import CommitSignature, GitReader

__all__ = ["VerifiedEnvelope", "check_envelope", "statement_of"]

_CODE = Code.ENVELOPE_INVALID


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """The commit and number of the entry in an accepted envelope, and who signed it."""

    commit: str
    number: int
    signers: tuple[str, ...]


def statement_of(reader: GitReader, found: VerifiedEntry) -> bytes:
    """The statement of an entry that was verified. Raises IntegrityError for one without a state."""
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
    """Apply the steps of this module.

    `entries` are the ids of the ledger's entries, `trust` the keys in force at its head; `verify` checks an armored signature
    over bytes in the namespace of envelopes. Raises IntegrityError `envelope_invalid`, or what a damaged ledger raises.
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
        raise IntegrityError(_CODE, f"its statement of entry {commit[:12]} is not the one of the ledger")
    return VerifiedEnvelope(commit, found.entry.number, signers)


def _signers(
    envelope: Envelope, trust: TrustRoot, now: datetime, verify: Callable[[bytes, str], CommitSignature]
) -> tuple[str, ...]:
    """Step 2: the owners of all good signatures; the other signatures are ignored if there is a good one."""
    covered = pae(envelope.payload_type, envelope.payload)
    found, problems = set[str](), list[str]()
    for signature in envelope.signatures:
        result = verify(covered, armored(signature))
        if not result.good or result.namespace != NAMESPACE:
            problems.append(result.problem or "a signature is not good")
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
    """The entry that a statement is about."""
    try:
        form = json.loads(payload)
        kinds, commit = (form["_type"], form["predicateType"]), form["predicate"]["ledgerCommit"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise IntegrityError(_CODE, "its payload is not a statement of a ledger entry") from None
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE) or not isinstance(commit, str):
        raise IntegrityError(_CODE, "its payload is not a statement of a ledger entry")
    return commit
