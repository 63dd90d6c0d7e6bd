"""What a verb observes of ledger, lock and catalog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from gitops.cluster.ledger.port import BlobCondition, IntentListing, LedgerReader, LedgerView
from gitops.cluster.ledger.readings import MISSING_BLOB
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import LedgerState, LockObservation, Status, StatusRecord
from gitops.cluster.model.outcome import StateObservations
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.database.storage.parallel import in_parallel

# Problems name places relative to the storage root, whatever the store is; the paths of the envelope are for people.
STATE_FILE = "__cluster/state.json"
LOCK_FILE = "__cluster/lock.json"
RECOVERIES = "__cluster/recoveries"

VANISHED = "the graph root does not exist, and no delete was applied"
"""What is observed of an applied graph that is gone."""
RECORD_LIVE = "record what is live: gitops refresh; then bring it to what is declared: gitops apply"
"""What helps where a person changed a live schema."""

_UNREAD = "payload_read_error"
_BLOB_FINDINGS = {
    BlobCondition.MISSING: (Code.CATALOG_PAYLOAD_MISSING, "payload_missing", MISSING_BLOB),
    BlobCondition.MISMATCH: (Code.CATALOG_PAYLOAD_MISMATCH, "payload_mismatch", "the blob does not have its digest"),
    BlobCondition.UNREADABLE: (Code.CATALOG_PAYLOAD_READ_ERROR, _UNREAD, "the blob cannot be read"),
}


def observe(
    ledger: LedgerReader, view: LedgerView, held: LockObservation, now: datetime, *, acquired: str | None = None
) -> StateObservations:
    """The observations block of an envelope."""
    state = view.state
    created = None if held.info is None else parse_timestamp(held.info.created_at)
    return StateObservations(
        state_path=ledger.state_path,
        lock_path=ledger.lock_path,
        state_found=view.found,
        applied_config_digest=None if state is None else state.config_digest,
        state_revision=0 if state is None else state.revision,
        state_cas=view.cas,
        resource_count=0 if state is None else len(state.resources),
        held=held,
        lock_age_seconds=None if created is None else max(0, int((now - created).total_seconds())),
        acquired_lock_id=acquired,
    )


def read_at_once(ledger: LedgerReader) -> tuple[LockObservation, IntentListing, LedgerView]:
    """Lock, sidecars and state for who holds no lock: where answers are slow, all are asked for at the same time.

    Raises RemoteError as `LedgerReader.view`.
    """
    reads: tuple[Callable[[], Any], ...] = (ledger.observe_lock, ledger.intents, ledger.view)
    held, listing, view = in_parallel(lambda read: read(), reads, ledger.parallel)
    return held, listing, view


def warn_of_intents(listing: IntentListing, problems: Diagnostics, message: str) -> None:
    """Add a warning for each operation that is not settled, in the order of their files, with this message."""
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    for name in sorted([i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]):
        problems.add(Code.CLUSTER_RECOVERY_PENDING, f"{RECOVERIES}/{name}", message)


def verify_catalog(ledger: LedgerReader, state: LedgerState, problems: Diagnostics) -> LedgerState:
    """Report every catalog blob that is not OK, and return the state as a refresh records it.

    A missing or corrupt blob drops the digest, so that the next apply publishes it again; an unreadable blob
    keeps its digest, until it can be read again. `status` uses only the reports.
    """
    resources, statuses = dict(state.resources), dict(state.statuses)
    listed = [address for address in sorted(state.resources) if rules_of(address).catalog_suffix]
    readings = in_parallel(lambda a: ledger.blob(a, state.resources[a].digest), listed, ledger.parallel)
    for address, reading in zip(listed, readings, strict=True):
        if reading.condition is BlobCondition.OK:
            if address in statuses and _UNREAD in statuses[address].conditions:
                statuses[address] = StatusRecord(Status.APPLIED)
            continue
        code, condition, message = _BLOB_FINDINGS[reading.condition]
        detail = f"{message}: {reading.detail}" if reading.detail not in ("", message) else message
        problems.add(code, address, detail)
        unreadable = reading.condition is BlobCondition.UNREADABLE
        statuses[address] = StatusRecord(Status.ERROR if unreadable else Status.DRIFTED, (condition,), message)
        if not unreadable:
            del resources[address]
    return replace(state, resources=resources, statuses=statuses)
