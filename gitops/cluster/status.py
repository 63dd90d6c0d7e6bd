"""`status`: the ledger as recorded. No lock, no writes, no graph, no source but cluster.yaml itself."""

from __future__ import annotations

from gitops.approvals.decisions import open_debts
from gitops.cluster.catalog import verify_catalog
from gitops.cluster.gate import report_debts
from gitops.cluster.observations import LOCK_FILE, RECOVERIES, STATE_FILE, observe
from gitops.cluster.workspace import Workspace
from gitops.config.cluster_yaml import declared_storage, header_of, read_cluster
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerReader, LedgerView
from gitops.model.lock import LockObservation
from gitops.model.outcome import StateObservations, StatusOutcome
from gitops.storage.address import StorageRootError


def status(workspace: Workspace) -> StatusOutcome:
    """Report state, lock, pending recoveries and the condition of the catalog.

    Lock and recoveries are looked at even if the header of cluster.yaml is wrong, as long as it says where they are; the
    ledger is read only under a header that is right.
    """
    cluster, problems = read_cluster(workspace.tree)
    if cluster is None:
        return _blind(workspace, problems)
    header_problems = Diagnostics()
    header = header_of(cluster, header_problems)
    try:
        ledger = workspace.open_stores(declared_storage(cluster)).ledger
    except StorageRootError:
        return _blind(workspace, header_problems)
    except GitopsError as error:
        header_problems.add_error(error)
        return _blind(workspace, header_problems)
    held, view = LockObservation(held=False), LedgerView()
    try:
        held = ledger.observe_lock()
        _report_lock(held, problems)
        _report_intents(ledger, problems)
        problems.extend(header_problems)
        if header is not None:
            view = ledger.view()
            _report_ledger(ledger, view, problems)
    except GitopsError as error:
        problems.add_error(error)
    return _outcome(workspace, observe(ledger, view, held, workspace.clock.now()), view, problems)


def _blind(workspace: Workspace, problems: Diagnostics) -> StatusOutcome:
    """What can be said without knowing where the ledger is."""
    return _outcome(workspace, StateObservations(state_path="", lock_path=""), LedgerView(), problems)


def _report_lock(held: LockObservation, problems: Diagnostics) -> None:
    if held.problem is not None:
        problems.add(held.problem, LOCK_FILE, held.detail, severity=Severity.WARNING)


def _report_ledger(ledger: LedgerReader, view: LedgerView, problems: Diagnostics) -> None:
    problems.extend(view.problems)
    if not view.found:
        problems.add(Code.STATE_MISSING, STATE_FILE, "there is no ledger yet", severity=Severity.WARNING)
    elif view.state is not None:
        verify_catalog(ledger, view.state, problems)
        report_debts(open_debts(view.state), problems)


def _report_intents(ledger: LedgerReader, problems: Diagnostics) -> None:
    listing = ledger.intents()
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    for name in sorted([i.operation_id + ".json" for i in listing.intents] + [u.name for u in listing.unreadable]):
        problems.add(Code.CLUSTER_RECOVERY_PENDING, f"{RECOVERIES}/{name}", "an interrupted operation is not settled")


def _outcome(
    workspace: Workspace, observations: StateObservations, view: LedgerView, problems: Diagnostics
) -> StatusOutcome:
    return StatusOutcome(
        config_dir=workspace.config_dir,
        observations=observations,
        state=view.state,
        diagnostics=tuple(problems),
    )
