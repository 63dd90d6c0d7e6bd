"""What others know of a ledger that the branch itself cannot tell: that entries of it are gone, or that newer ones are kept back.

1. Every head that this clone saw before is an entry of the ledger.
2. Every approval, and every decision about one, used or not, names an entry of the ledger. One that names an entry of another
   line, signed by a ledger key, proves that the ledger was rewound or forked; one that names nothing of the kind proves nothing.
3. The heads that witnesses have are the same or older. A newer one says that an old state of the ledger is served here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gitops.audit.report import AuditFinding, Hearsay
from gitops.core.codes import Code
from gitops.git.port import GitReader
from gitops.ledger.witnesses import Known, Ledger, judge, named_entry

__all__ = ["contradictions"]


def contradictions(
    reader: GitReader, ledger: Ledger, numbers: Mapping[str, int], hearsay: Hearsay
) -> Iterator[AuditFinding | str]:
    """What does not hold, as findings about the whole chain, and what is worth a note. Never raises for what others say."""
    head = ledger.head or ""
    for where, commit in hearsay.seen.items():
        if commit not in numbers:
            detail = f"head {head[:12]} does not continue {commit[:12]}, which was seen here ({where})"
            yield AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)
    for ref, commit in hearsay.signed.items():
        entry = named_entry(reader, commit)
        word = None if entry is None else judge(reader, entry, ledger)
        if word is not None and word.alarming:
            branch = ref.removeprefix("refs/heads/")
            detail = f"{branch} names entry {word.entry[:12]}, {word.detail}, which the ledger does not have"
            yield AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)
    for who, commit in hearsay.witnesses.items():
        yield _witnessed(reader, ledger, numbers, (who, commit))


def _witnessed(
    reader: GitReader, ledger: Ledger, numbers: Mapping[str, int], witness: tuple[str, str]
) -> AuditFinding | str:
    """Rule 3."""
    who, commit = witness
    head = ledger.head or ""
    if commit in numbers:
        return f"witness {who} has {'the same head' if commit == head else f'an older head, entry {numbers[commit]}'}"
    word = judge(reader, commit, ledger)
    if word.known is Known.NEWER:
        detail = f"witness {who} has a newer head, {commit[:12]}, {word.detail}: an old state is served here"
        return AuditFinding(head, 0, Code.LEDGER_BEHIND, detail)
    if word.known is Known.ELSEWHERE:
        detail = f"witness {who} has another ledger: head {commit[:12]}, {word.detail}"
        return AuditFinding(head, 0, Code.LEDGER_DIVERGED, detail)
    return AuditFinding(head, 0, Code.WITNESS_UNPROVEN, f"witness {who} shows {commit[:12]}: {word.detail}")
