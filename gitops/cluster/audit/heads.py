"""What witnesses know of a ledger: that entries of it were removed, or that newer ones are withheld.

1. Every head that this clone saw before is an entry of the ledger.
2. Every approval and every decision about one, consumed or not, names an entry of the ledger. One that names an entry of another
   chain, signed by a ledger key, proves that the ledger was rewound or forked, if it is signed for this repository; anything
   else proves nothing and is a note.
3. The heads of other copies are the same or older. A newer one means that an old state of the ledger is served here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from gitops.cluster.audit.report import AuditFinding, AuditWitnesses
from gitops.cluster.ledger.evidence import (
    EntryWitness,
    WitnessedLedger,
    WitnessKind,
    document_problem,
    named_entry,
    verify_witness,
)
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.port import GitReader

__all__ = ["find_contradictions"]

_LISTED = 10
"""How many witnesses one finding quotes."""


def find_contradictions(
    reader: GitReader, ledger: WitnessedLedger, numbers: Mapping[str, int], witnesses: AuditWitnesses
) -> Iterator[AuditFinding | str]:
    """Findings about the whole chain, and notes (as texts). Never raises for what witnesses hold.

    That the ledger diverged is one finding, with all that witnesses say about it.
    """
    head, diverged = ledger.head or "", list[str]()
    seen: dict[str, list[str]] = {}
    for where, commit in witnesses.seen.items():
        if commit not in numbers:
            seen.setdefault(commit, []).append(where)
    for commit, places in seen.items():
        diverged.append(f"head {head[:12]} does not continue {commit[:12]}, which was seen here ({', '.join(places)})")
    for ref, commit in witnesses.signed.items():
        entry = named_entry(reader, commit)
        witness = None if entry is None else verify_witness(reader, entry, ledger)
        if witness is not None and witness.contradicts:
            branch = ref.removeprefix("refs/heads/")
            if doubt := _doubt(reader, commit, witness, ledger):
                yield f"{branch} names entry {witness.entry[:12]}, {witness.detail}; {doubt}, so it proves nothing; delete it"
                continue
            diverged.append(
                f"{branch} names entry {witness.entry[:12]}, {witness.detail}, which the ledger does not have"
            )
    for who, commit in witnesses.copies.items():
        found = _compare_copy(reader, ledger, numbers, who, commit)
        if isinstance(found, AuditFinding) and found.code is Code.LEDGER_DIVERGED:
            diverged.append(found.detail)
        else:
            yield found
    if diverged:
        more = f"; and {len(diverged) - _LISTED} more witnesses" if len(diverged) > _LISTED else ""
        yield AuditFinding(head, 0, Code.LEDGER_DIVERGED, "; ".join(diverged[:_LISTED]) + more)


def _doubt(reader: GitReader, commit: str, witness: EntryWitness, ledger: WitnessedLedger) -> str:
    """Why a signed document proves nothing; empty if it is a proof."""
    try:
        return document_problem(reader, commit, witness, ledger)
    except GitopsError as error:
        return error.detail


def _compare_copy(
    reader: GitReader, ledger: WitnessedLedger, numbers: Mapping[str, int], who: str, commit: str
) -> AuditFinding | str:
    """Rule 3."""
    head = ledger.head or ""
    if commit in numbers:
        return f"witness {who} has {'the same head' if commit == head else f'an older head, entry {numbers[commit]}'}"
    # The auditor named this copy: its history is read whatever its length.
    witness = verify_witness(reader, commit, replace(ledger, steps=count()))
    if witness.kind is WitnessKind.NEWER:
        detail = f"witness {who} has a newer head, {commit[:12]}, {witness.detail}: an old state is served here"
        return AuditFinding(head, 0, Code.LEDGER_BEHIND, detail)
    if witness.kind is WitnessKind.FOREIGN:
        detail = f"witness {who} has another ledger: head {commit[:12]}, {witness.detail}"
        return AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)
    return AuditFinding(head, 0, Code.WITNESS_UNPROVEN, f"witness {who} shows {commit[:12]}: {witness.detail}")
