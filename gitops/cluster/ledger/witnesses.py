"""Witnesses of a ledger: approvals name the entry that their signer saw, and other copies have heads of their own.

An entry that a ledger key signed exists for good. If a witness names one that the ledger at hand does not have, that ledger
was rewound, forked or replaced, or its server shows an old state of it.

1. A made-up entry proves nothing: a witness counts if the entries back to a known one, or back to the first one with its anchor,
   pass the rules that every head has to pass.
2. An entry of another copy of the repository proves nothing either, although the same bot may have signed it: anybody can push a
   commit on top of it. A signed document is a proof only if its message is a statement or decision, for this repository and
   cluster, about the entry that is its parent, signed by a key that the rules after that entry trust.
3. An entry of the ledger that an approved import followed does not contradict the one at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import field
from enum import StrEnum

from gitops.cluster.ledger.chain import VerifiedEntry, first_entry, read_verified_entry, verify_chain
from gitops.cluster.ledger.evidence import read_signed_document
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError
from gitops.git.port import GitReader

__all__ = [
    "Anchor",
    "EntryWitness",
    "LedgerEntries",
    "WitnessKind",
    "WitnessedLedger",
    "document_problem",
    "named_entry",
    "verify_witness",
]

MOST_STEPS = 2_000
"""Commits outside of a ledger that one reading of its witnesses looks at."""

Anchor = Callable[[VerifiedEntry], None]
"""Raises GitopsError for a first entry that is not this cluster's."""


class LedgerEntries(Container[str]):
    """The ids of a ledger's entries: read from its head as far back as needed, each once."""

    def __init__(self, reader: GitReader, head: str | None) -> None:
        """The entries of the ledger that ends in `head`; None for one that has no entry."""
        self._reader = reader
        self._next = head
        self._ids: set[str] = set()

    def __contains__(self, commit_id: object) -> bool:
        """Whether a commit is an entry of this ledger. Raises GitopsError for history that cannot be read."""
        while commit_id not in self._ids and self._next is not None:
            self._ids.add(self._next)
            self._next = next(iter(self._reader.commit(self._next).parents), None)
        return commit_id in self._ids


class WitnessKind(StrEnum):
    """How a named entry relates to a ledger: part of it, newer, of another chain, of the ledger before it, or not proven.

    UNREAD: it is beyond the bound of the history that one reading looks at.
    """

    PART = "part"
    NEWER = "newer"
    FOREIGN = "foreign"
    FORMER = "former"
    UNPROVEN = "unproven"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class EntryWitness:
    """A named entry, verified; `detail` says why it proves nothing, or where its chain leaves that of the ledger."""

    kind: WitnessKind
    entry: str
    detail: str = ""

    @property
    def contradicts(self) -> bool:
        """Whether it proves that the ledger at hand is not complete, or may do so."""
        return self.kind in (WitnessKind.NEWER, WitnessKind.FOREIGN, WitnessKind.UNREAD)


@dataclass(frozen=True, slots=True)
class WitnessedLedger:
    """The ledger that witnesses are compared with: its cluster, its head (None if there is none) and the ids of its entries.

    `repository` is the id that its documents name, None where that is not known: then every id counts. `steps` are the commits
    outside of the ledger that may still be looked at, for all witnesses together: anyone who pushes can make long histories.
    """

    cluster: str
    head: str | None
    entries: Container[str]
    anchor: Anchor
    repository: str | None = None
    steps: Iterator[int] = field(default_factory=lambda: iter(range(MOST_STEPS)))


def named_entry(reader: GitReader, commit_id: str) -> str | None:
    """The entry that the signer of an approval or decision saw: the commit's only parent. None for another commit."""
    try:
        parents = reader.commit(commit_id).parents
    except GitopsError:
        return None
    return parents[0] if len(parents) == 1 else None


def verify_witness(reader: GitReader, entry: str, ledger: WitnessedLedger) -> EntryWitness:
    """How `entry` relates to the ledger. Never raises for what the named commits hold or do not hold."""
    try:
        if entry in ledger.entries:
            return EntryWitness(WitnessKind.PART, entry)
        # The history of a commit that is not a signed entry itself is not read.
        read_verified_entry(reader, entry)
        joins, at = None, entry
        while at not in ledger.entries:
            if next(ledger.steps, None) is None:
                return EntryWitness(
                    WitnessKind.UNREAD, entry, f"which has more than {MOST_STEPS} commits outside of the ledger"
                )
            parents = reader.commit(at).parents
            if not parents:
                break
            at = parents[0]
        else:
            joins = at
        found = verify_chain(reader, entry, joins)
        if ledger.cluster not in (found.entry.target.cluster, *found.entry.new_names):
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, f"it is an entry of cluster {found.entry.target.cluster}")
        if joins is None:
            first = first_entry(reader, entry)
            ledger.anchor(first)
            if first.commit.id == _former_genesis(reader, ledger):
                return EntryWitness(WitnessKind.FORMER, entry, "of the ledger before this one")
            return EntryWitness(WitnessKind.FOREIGN, entry, "of a chain with another first entry")
    except GitopsError as error:
        return EntryWitness(WitnessKind.UNPROVEN, entry, error.detail)
    kind = WitnessKind.NEWER if joins == ledger.head else WitnessKind.FOREIGN
    return EntryWitness(kind, entry, f"which follows entry {joins[:12]}")


def document_problem(reader: GitReader, commit_id: str, witness: EntryWitness, ledger: WitnessedLedger) -> str:
    """Why a signed document that names an entry proves nothing about the ledger: rule 2. Empty if it is a proof.

    The chain of the entry has been verified, unless it is unread: then the document counts all the same if the ledger at hand, if
    there is one, trusts its key. Anyone can sign a long chain with keys of their own.
    Raises GitopsError for objects that cannot be read.
    """
    entry = witness.entry
    found = read_verified_entry(reader, entry)
    if ledger.repository not in (None, found.entry.target.repository):
        return f"its ledger is that of repository {found.entry.target.repository}"
    document, own = read_signed_document(reader, commit_id)
    signature, at = reader.signature(commit_id), parse_timestamp(found.entry.at)
    if document is None or document.ledger_head != entry:
        return "it is not an approval or a decision about that entry"
    if (document.target.repository, document.target.cluster) != (found.entry.target.repository, ledger.cluster):
        return f"it is for cluster {document.target.cluster} of repository {document.target.repository}"
    inner = own is None or (own.good and own.key == signature.key)
    if not signature.good or not inner:
        return "it is not signed" if not signature.signed else "its signature does not hold"
    if at is None or found.after.principal(signature.key, at=at) is None:
        return f"its {signature.key_type} key was not trusted after that entry"
    if witness.kind is WitnessKind.UNREAD and ledger.head is not None:
        newest = read_verified_entry(reader, ledger.head)
        now = parse_timestamp(newest.entry.at)
        if now is None or newest.after.principal(signature.key, at=now) is None:
            return f"its {signature.key_type} key is not trusted here"
    return ""


def _former_genesis(reader: GitReader, ledger: WitnessedLedger) -> str | None:
    """The first entry of the ledger that the one at hand follows, if an import said so."""
    former = None if ledger.head is None else first_entry(reader, ledger.head).entry.former
    return None if former is None else former.genesis
