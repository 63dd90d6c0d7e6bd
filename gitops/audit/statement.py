"""Entries as in-toto statements, and whether an envelope that somebody made of one holds.

1. It is a DSSE envelope with an in-toto statement of a ledger entry.
2. One of its signatures is good over type and payload, by a key that the rules in force at the ledger's head let speak for one
   person in the namespace of envelopes, now.
3. The entry that it names is part of the ledger at hand.
4. It says exactly what the ledger says of that entry.

That the ledger itself holds is for the audit to say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container
from dataclasses import dataclass
from datetime import datetime

from gitops.audit.intoto import (
    NAMESPACE,
    PAYLOAD_TYPE,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    Stated,
    armored,
    pae,
    read_envelope,
    statement,
)
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.git.port import GitReader
from gitops.ledger.chain import ChainEntry, read_chain_entry
from gitops.model.approval import CommitSignature
from gitops.model.trust import TrustRoot

__all__ = ["EnvelopeCheck", "EnvelopeVerdict", "check_envelope", "statement_of"]

_STATE = "__cluster/state.json"
_CODE = Code.ENVELOPE_INVALID


@dataclass(frozen=True, slots=True)
class EnvelopeCheck:
    """What an envelope is held against: the ledger's entries, the keys in force at its head, the time now.

    `verify` judges an armored signature over bytes in the namespace of envelopes.
    """

    line: Container[str]
    trust: TrustRoot
    now: datetime
    verify: Callable[[bytes, str], CommitSignature]


@dataclass(frozen=True, slots=True)
class EnvelopeVerdict:
    """A good envelope: of which entry, by whom."""

    commit: str
    number: int
    signers: tuple[str, ...]


def statement_of(reader: GitReader, found: ChainEntry) -> bytes:
    """The statement of an entry that was verified. Raises IntegrityError for one without a state."""
    commit, at = found.commit, parse_timestamp(found.entry.at)
    state = reader.read(commit.tree, _STATE)
    if state is None or at is None:
        raise IntegrityError(Code.LEDGER_STATE_MISMATCH, f"{commit.id[:12]} has no state document")
    signer = found.before.principal(reader.signature(commit.id).key, at=at)
    return statement(Stated(commit.id, found.entry, state, signer or ""))


def check_envelope(reader: GitReader, data: bytes, against: EnvelopeCheck) -> EnvelopeVerdict:
    """Apply the steps of this module. Raises IntegrityError `envelope_invalid`, or what a damaged ledger raises."""
    envelope = read_envelope(data)  # 1
    if envelope.payload_type != PAYLOAD_TYPE:
        raise IntegrityError(_CODE, f"its payload is {envelope.payload_type!r}, not {PAYLOAD_TYPE}")
    signers = _signers(envelope, against)  # 2
    commit = _named(envelope.payload)
    if commit not in against.line:  # 3
        raise IntegrityError(_CODE, f"entry {commit[:12]} is not part of this ledger")
    found = read_chain_entry(reader, commit)
    if statement_of(reader, found) != envelope.payload:  # 4
        raise IntegrityError(_CODE, f"it says something else of entry {commit[:12]} than the ledger")
    return EnvelopeVerdict(commit, found.entry.number, signers)


def _signers(envelope: Envelope, against: EnvelopeCheck) -> tuple[str, ...]:
    """Step 2: everybody whose signature counts; the others are ignored if there is one."""
    covered = pae(envelope.payload_type, envelope.payload)
    found, problems = set[str](), list[str]()
    for signature in envelope.signatures:
        verdict = against.verify(covered, armored(signature))
        if not verdict.good or verdict.namespace != NAMESPACE:
            problems.append(verdict.problem or "a signature is not good")
            continue
        principal = against.trust.principal(verdict.key, at=against.now, namespace=NAMESPACE)
        if principal is None:
            problems.append(f"the {verdict.key_type} key is not trusted for namespace {NAMESPACE}")
        else:
            found.add(principal)
    if not found:
        raise IntegrityError(_CODE, "; ".join(dict.fromkeys(problems)))
    return tuple(sorted(found))


def _named(payload: bytes) -> str:
    """The entry that a statement is about."""
    try:
        form = json.loads(payload)
        kinds, commit = (form["_type"], form["predicateType"]), form["predicate"]["ledgerCommit"]
    except (ValueError, RecursionError, KeyError, TypeError):
        raise IntegrityError(_CODE, "its payload is no statement of a ledger entry") from None
    if kinds != (STATEMENT_TYPE, PREDICATE_TYPE) or not isinstance(commit, str):
        raise IntegrityError(_CODE, "its payload is no statement of a ledger entry")
    return commit
