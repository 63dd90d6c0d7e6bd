"""The note that an audit leaves for the next one: up to which entry a ledger was verified. Version 1.

It is the auditor's own: it lies outside of the repository, where no fetch and nobody with access to the ledger can change it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.documents.codec import Document
from gitops.documents.forms import LINE, OBJECT_ID, integer, record

__all__ = ["AuditPin", "read_pin", "write_pin"]


@dataclass(frozen=True, slots=True)
class AuditPin:
    """Entry `number` of the ledger of a cluster, which is `commit`, and everything before it was verified."""

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
