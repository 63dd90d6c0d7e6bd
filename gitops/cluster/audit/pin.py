"""The pin that an audit writes for the next one: up to which entry a ledger was verified. Version 1.

It belongs to the auditor and is kept outside of the repository, where neither a fetch nor a writer of the ledger can change it.
"""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import LINE, OBJECT_ID, integer, record

__all__ = ["AuditPin", "read_pin", "write_pin"]


@dataclass(frozen=True, slots=True)
class AuditPin:
    """Entry `number` of the ledger of a cluster, with the id `commit`, and all entries before it were verified."""

    cluster: str
    number: int
    commit: str


PIN = Document(
    versions={1: record(AuditPin, {"cluster": LINE, "number": integer(1), "commit": OBJECT_ID})},
    code=Code.PIN_INVALID,
    limit=4096,
)

read_pin = PIN.read
write_pin = PIN.write
