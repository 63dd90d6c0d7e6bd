"""The note that an audit leaves for the next one: up to which entry a ledger was verified. Version 1.

It is the auditor's own: it lies outside of the repository, where no fetch and nobody with access to the ledger can change it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gitops.core.canonical import document
from gitops.core.codes import Code
from gitops.documents import strict

__all__ = ["VERSION", "AuditPin", "read_pin", "write_pin"]

VERSION = 1
_CODE = Code.PIN_INVALID
_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class AuditPin:
    """Entry `number` of the ledger of a cluster, which is `commit`, and everything before it was verified."""

    cluster: str
    number: int
    commit: str


def read_pin(data: bytes) -> AuditPin:
    """Read the bytes of a note. Raises IntegrityError `pin_invalid`."""
    with strict.refusing(_CODE):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "version", supported=VERSION, code=_CODE)
        fields = root.fields(("version", "cluster", "number", "commit"))
        return AuditPin(fields["cluster"].line(), fields["number"].integer(1), fields["commit"].object_id())


def write_pin(pin: AuditPin) -> bytes:
    """The bytes of a note."""
    return document({"version": VERSION, "cluster": pin.cluster, "number": pin.number, "commit": pin.commit})
