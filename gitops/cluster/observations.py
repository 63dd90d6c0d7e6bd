"""What a verb saw of ledger and lock, as its envelope reports it."""

from __future__ import annotations

from datetime import datetime

from gitops.core.clock import parse_timestamp
from gitops.ledger.port import LedgerReader, LedgerView
from gitops.model.lock import LockObservation
from gitops.model.outcome import StateObservations

# Problems name what they are about relative to the storage root, whatever the store; the paths of the envelope are for people.
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
