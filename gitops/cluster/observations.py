"""What a verb observed of ledger and lock, as its envelope reports it."""

from __future__ import annotations

from datetime import datetime

from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.ledger.port import LedgerReader, LedgerView
from gitops.model.ledger import LockObservation
from gitops.model.outcome import StateObservations

# Problems name places relative to the storage root, whatever the store is; the paths of the envelope are for people.
STATE_FILE = "__cluster/state.json"
LOCK_FILE = "__cluster/lock.json"
RECOVERIES = "__cluster/recoveries"


def observe(
    ledger: LedgerReader, view: LedgerView, held: LockObservation, now: datetime, *, acquired: str | None = None
) -> StateObservations:
    """The observations block of an envelope."""
    state = view.state
    age = None
    if held.info is not None:
        created = parse_timestamp(held.info.created_at)
        age = None if created is None else max(0, int((now - created).total_seconds()))
    return StateObservations(
        state_path=ledger.state_path,
        lock_path=ledger.lock_path,
        state_found=view.found,
        applied_config_digest=None if state is None else state.config_digest,
        state_revision=0 if state is None else state.revision,
        state_cas=view.cas,
        resource_count=0 if state is None else len(state.resources),
        held=held,
        lock_age_seconds=age,
        acquired_lock_id=acquired,
    )


def warn_of_intents(ledger: LedgerReader, problems: Diagnostics, message: str) -> None:
    """Add a warning for each operation that is not settled, in the order of their files, with this message."""
    listing = ledger.intents()
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    for name in sorted([i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]):
        problems.add(Code.CLUSTER_RECOVERY_PENDING, f"{RECOVERIES}/{name}", message)
