"""Whether the catalog blobs that the ledger names are really there."""

from __future__ import annotations

from dataclasses import replace

from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.ledger.port import BlobCondition, LedgerReader
from gitops.model.kinds import rules_of
from gitops.model.ledger import LedgerState, Status, StatusRecord

_UNREAD = "payload_read_error"
_FINDINGS = {
    BlobCondition.MISSING: (Code.CATALOG_PAYLOAD_MISSING, "payload_missing", "the blob is missing"),
    BlobCondition.MISMATCH: (Code.CATALOG_PAYLOAD_MISMATCH, "payload_mismatch", "the blob does not have its digest"),
    BlobCondition.UNREADABLE: (Code.CATALOG_PAYLOAD_READ_ERROR, _UNREAD, "the blob cannot be read"),
}


def verify_catalog(ledger: LedgerReader, state: LedgerState, problems: Diagnostics) -> LedgerState:
    """Report every blob that is not OK, and return the state as a refresh records it.

    A missing or corrupt blob drops the digest, so that the next apply publishes it again; an unreadable blob
    keeps its digest, until it can be read again. `status` uses only the reports.
    """
    resources, statuses = dict(state.resources), dict(state.statuses)
    for address in sorted(state.resources):
        if not rules_of(address).catalog_suffix:
            continue
        reading = ledger.blob(address, state.resources[address].digest)
        if reading.condition is BlobCondition.OK:
            if address in statuses and _UNREAD in statuses[address].conditions:
                statuses[address] = StatusRecord(Status.APPLIED)
            continue
        code, condition, message = _FINDINGS[reading.condition]
        detail = f"{message}: {reading.detail}" if reading.detail else message
        problems.add(code, address, detail)
        unreadable = reading.condition is BlobCondition.UNREADABLE
        statuses[address] = StatusRecord(Status.ERROR if unreadable else Status.DRIFTED, (condition,), message)
        if not unreadable:
            del resources[address]
    return replace(state, resources=resources, statuses=statuses)
