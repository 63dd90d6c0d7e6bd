"""`force-unlock`: remove a lock whose holder is gone, by its exact id."""

from __future__ import annotations

from gitops.config.header import load_header
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.model.outcome import StateObservations, UnlockOutcome
from gitops.ports.ledger import LedgerView
from gitops.workflows.context import Workspace
from gitops.workflows.observations import observe


def force_unlock(workspace: Workspace, lock_id: str) -> UnlockOutcome:
    """Remove the lock if it carries exactly `lock_id`; every failure leaves it untouched."""
    header, problems = load_header(workspace.tree)
    found = Diagnostics(problems)
    nothing = StateObservations(state_path="", lock_path="")
    if header is None or found.has_errors:
        return UnlockOutcome(config_dir=workspace.config_dir, observations=nothing, diagnostics=tuple(found))
    try:
        ledger = workspace.open_stores(header.storage).ledger
        held = ledger.observe_lock()
    except GitopsError as error:
        found.add_error(error)
        return UnlockOutcome(config_dir=workspace.config_dir, observations=nothing, diagnostics=tuple(found))
    removed = False
    try:
        ledger.break_lock(lock_id)
        removed = True
    except GitopsError as error:
        found.add_error(error)
    observations = observe(ledger, LedgerView(), held, workspace.clock.now())
    return UnlockOutcome(
        config_dir=workspace.config_dir,
        observations=observations,
        lock_removed=removed,
        diagnostics=tuple(found),
    )
