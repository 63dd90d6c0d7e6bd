"""`status`: the ledger as recorded. No lock, no writes, no graph, no source but cluster.yaml itself."""

from __future__ import annotations

from gitops.config.header import load_header
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.model.lock import LockObservation
from gitops.model.outcome import StateObservations, StatusOutcome
from gitops.ports.ledger import LedgerReader, LedgerView
from gitops.workflows.catalog import verify_catalog
from gitops.workflows.context import Workspace
from gitops.workflows.observations import observe


def status(workspace: Workspace) -> StatusOutcome:
    """Report state, lock, pending recoveries and the condition of the catalog."""
    header, header_problems = load_header(workspace.tree)
    problems = Diagnostics()
    if header is None:
        problems.extend(header_problems)
        return _outcome(workspace, StateObservations(state_path="", lock_path=""), LedgerView(), problems)
    try:
        ledger = workspace.open_stores(header.storage).ledger
    except GitopsError as error:
        problems.extend(header_problems)
        problems.add_error(error)
        return _outcome(workspace, StateObservations(state_path="", lock_path=""), LedgerView(), problems)
    held, view = LockObservation(held=False), LedgerView()
    try:
        held = ledger.observe_lock()
        _report_lock(held, ledger, problems)
        _report_intents(ledger, problems)
        problems.extend(header_problems)
        view = ledger.view()
    except GitopsError as error:
        problems.add_error(error)
    else:
        problems.extend(view.problems)
        if not view.found:
            problems.add("state_missing", ledger.state_path, "there is no ledger yet", severity=Severity.WARNING)
        elif view.state is not None:
            verify_catalog(ledger, view.state, problems)
    return _outcome(workspace, observe(ledger, view, held, workspace.clock.now()), view, problems)


def _report_lock(held: LockObservation, ledger: LedgerReader, problems: Diagnostics) -> None:
    if held.problem is not None:
        problems.add(held.problem, ledger.lock_path, held.detail, severity=Severity.WARNING)


def _report_intents(ledger: LedgerReader, problems: Diagnostics) -> None:
    listing = ledger.intents()
    if listing.problem is not None:
        problems.add("recovery_sidecar_read_error", "__cluster/recoveries", listing.problem)
    for name in sorted([i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]):
        problems.add(
            "cluster_recovery_pending", f"__cluster/recoveries/{name}", "an interrupted operation is not settled"
        )


def _outcome(
    workspace: Workspace, observations: StateObservations, view: LedgerView, problems: Diagnostics
) -> StatusOutcome:
    return StatusOutcome(
        config_dir=workspace.config_dir,
        observations=observations,
        state=view.state,
        diagnostics=tuple(problems),
    )
