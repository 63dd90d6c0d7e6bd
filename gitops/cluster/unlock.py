"""`force-unlock`: remove a lock whose holder is gone, by its exact id."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.observations import observe
from gitops.cluster.workspace import Workspace
from gitops.config.cluster_yaml import load_header
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerReader, LedgerView
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
    # The holder stays in the report, so that it can be told who lost the lock.
    seen = replace(held, held=False) if removed else held
    return UnlockOutcome(
        config_dir=workspace.config_dir,
        observations=observe(ledger, _view(ledger), seen, workspace.clock.now()),
        lock_removed=removed,
        diagnostics=tuple(found),
    )


def _view(ledger: LedgerReader) -> LedgerView:
    """The ledger for the report alone: a lock must come off whatever else is broken."""
    try:
        return ledger.view()
    except GitopsError:
        return LedgerView()
