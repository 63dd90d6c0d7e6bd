"""`status`: the ledger as recorded. No lock, no writes, no graph, no source but cluster.yaml itself."""

from __future__ import annotations

from gitops.approvals.decisions import open_debts
from gitops.cluster.catalog import verify_catalog
from gitops.cluster.gate import report_debts
from gitops.cluster.observations import LOCK_FILE, STATE_FILE, observe, warn_of_intents
from gitops.cluster.workspace import Workspace
from gitops.config.cluster_yaml import declared_storage, header_of, read_cluster
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerView
from gitops.model.ledger import LockObservation
from gitops.model.outcome import StateObservations, StatusOutcome
from gitops.storage.address import StorageRootError


def status(workspace: Workspace) -> StatusOutcome:
    """Report state, lock, pending recoveries and the condition of the catalog.

    Lock and recoveries are read even if the header of cluster.yaml has errors, as long as it says where they are; the
    ledger is read only under a header without errors.
    """
    cluster, problems = read_cluster(workspace.tree)
    if cluster is None:
        return _without_ledger(workspace, problems)
    header_problems = Diagnostics()
    header = header_of(cluster, header_problems)
    try:
        ledger = workspace.open_stores(declared_storage(cluster)).ledger
    except StorageRootError:
        return _without_ledger(workspace, header_problems)
    except GitopsError as error:
        header_problems.add_error(error)
        return _without_ledger(workspace, header_problems)
    held, view = LockObservation(held=False), LedgerView()
    try:
        held = ledger.observe_lock()
        if held.problem is not None:
            problems.add(held.problem, LOCK_FILE, held.detail, severity=Severity.WARNING)
        warn_of_intents(ledger, problems, "an interrupted operation is not settled")
        problems.extend(header_problems)
        if header is not None:
            view = ledger.view()
            problems.extend(view.problems)
            if not view.found:
                problems.add(Code.STATE_MISSING, STATE_FILE, "there is no ledger yet", severity=Severity.WARNING)
            elif view.state is not None:
                verify_catalog(ledger, view.state, problems)
                report_debts(open_debts(view.state), problems)
    except GitopsError as error:
        problems.add_error(error)
    return StatusOutcome(
        config_dir=workspace.config_dir,
        observations=observe(ledger, view, held, workspace.clock.now()),
        state=view.state,
        diagnostics=tuple(problems),
    )


def _without_ledger(workspace: Workspace, problems: Diagnostics) -> StatusOutcome:
    """The report where it is not known where the ledger is."""
    nothing = StateObservations(state_path="", lock_path="")
    return StatusOutcome(config_dir=workspace.config_dir, observations=nothing, diagnostics=tuple(problems))
