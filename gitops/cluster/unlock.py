"""`force-unlock`: remove a lock whose holder is gone, by its exact id."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.observations import observe
from gitops.cluster.workspace import Workspace
from gitops.config.cluster_yaml import load_header
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerView
from gitops.model.outcome import StateObservations, UnlockOutcome


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
    # The report names the holder of the removed lock.
    seen = replace(held, held=False) if removed else held
    try:
        view = ledger.view()
    except GitopsError:
        # Only for the report: a lock must be removable whatever else is broken.
        view = LedgerView()
    return UnlockOutcome(
        config_dir=workspace.config_dir,
        observations=observe(ledger, view, seen, workspace.clock.now()),
        lock_removed=removed,
        diagnostics=tuple(found),
    )
