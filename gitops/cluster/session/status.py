"""`status`: compares the recorded ledger with the folder. `force-unlock`: removes a leftover lock.

Neither of them takes a lock or opens a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from gitops.cluster.approvals.origins import may_approve, may_approve_waiting
from gitops.cluster.config.cluster_yaml import declared_storage, header_of, load_header, read_cluster
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.files import lock_held_message
from gitops.cluster.ledger.port import LedgerReader, LedgerView
from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.model.address import Address, Kind, cluster_address, trust_address
from gitops.cluster.model.ledger import Authors, LedgerState, LockObservation, Status
from gitops.cluster.model.outcome import ChangesetStanding, StateObservations, StatusOutcome, UnlockOutcome
from gitops.cluster.model.served import Replica, RevisionIdentity, live_replicas
from gitops.cluster.session.gate import report_debts
from gitops.cluster.session.session import (
    LOCK_FILE,
    add_no_ledger,
    blocks_on_drift,
    observe,
    read_at_once,
    verify_catalog,
    warn_of_intents,
)
from gitops.cluster.session.workspace import Workspace
from gitops.cluster.targets.projection import pending_rows, place_of
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import StorageRootError

# -- servers -----------------------------------------------------------------------------------------------------------
# Which revision a cluster's servers serve, according to their reports.


def servers(
    reports: ServingReports, applied: RevisionIdentity, now: datetime, problems: Diagnostics
) -> tuple[Replica, ...]:
    """Return the live servers sorted by name. Unreadable reports become warnings."""
    try:
        listing = reports.read()
    except GitopsError as error:
        problems.add(Code.SERVING_REPORTS_UNREADABLE, error.path or "serving", f"{error.code}: {error.detail}")
        return ()
    for each in listing.unread:
        problems.add(Code.SERVING_REPORT_INVALID, each.place, each.detail)
    return live_replicas(listing.reports, applied, now)


def revision_of(cas: str | None, state_revision: int) -> RevisionIdentity | None:
    """Return the applied revision in the form that server reports use, given its state's digest and number."""
    return None if cas is None else RevisionIdentity(cas.rpartition(":")[2], state_revision, None)


def status(workspace: Workspace, *, serving: bool = False) -> StatusOutcome:
    """Report the state, the lock, pending recoveries, the catalog's condition, and the served revisions.

    Server reports are read if the data is accessible, and with `serving` also in a bucket, which needs credentials.

    Lock and recoveries are read even if the header of cluster.yaml has errors, provided it contains their location; the
    ledger is read only if the header has no errors. Other problems in the folder are left to `validate`.
    """
    cluster, problems = read_cluster(workspace.tree)
    if cluster is None:
        return StatusOutcome(config_dir=workspace.config_dir, diagnostics=tuple(problems))
    header_problems = Diagnostics()
    header = header_of(cluster, header_problems)
    try:
        stores = workspace.open_stores(declared_storage(cluster))
        ledger = stores.ledger
    except (GitopsError, StorageRootError) as error:
        if isinstance(error, GitopsError):  # the problems of the header already contain the other error
            header_problems.add_error(error)
        return StatusOutcome(config_dir=workspace.config_dir, diagnostics=tuple(header_problems))
    held, view, newest = LockObservation(held=False), LedgerView(), None
    try:
        held, listing, seen = read_at_once(ledger)
        _warn_of_lock(workspace, held, problems)
        warn_of_intents(listing, held, problems, "an interrupted operation is not settled", workspace.selected)
        problems.extend(header_problems)
        if header is not None:
            view = seen
            problems.extend(view.problems)
            if not view.found:
                add_no_ledger(workspace, problems, Severity.WARNING)
            elif view.state is not None:
                newest = _read_catalog(ledger, view, view.state, problems)
                report_debts(view.state.debts, workspace.governance, problems)
                _warn_of_what_waits(view.state, problems)
                if blocks_on_drift(workspace, view):
                    _warn_of_drift(workspace, view.state, problems)
    except GitopsError as error:
        problems.add_error(error)
    applied, seen_servers = revision_of(view.cas, 0 if view.state is None else view.state.revision), None
    if applied is not None and stores.reports is not None and (serving or stores.data_at_hand):
        seen_servers = servers(stores.reports, applied, workspace.clock.now(), problems)
    governed = _governed(workspace, view, None if header is None else header.storage)
    outcome = StatusOutcome(
        config_dir=workspace.config_dir,
        observations=observe(ledger, view, held, workspace.clock.now()),
        state=view.state,
        in_sync=None if problems.has_errors else not governed and _in_sync(workspace, view),
        entry=view.entry,
        newest=newest,
        governed=governed,
        serving=seen_servers,
        in_progress=() if view.entry is None else ledger.changesets().open,
        diagnostics=tuple(problems),
    )
    return replace(outcome, approvers=_approvers(view, outcome.waiting, workspace.clock.now()))


def _read_catalog(
    ledger: LedgerReader, view: LedgerView, state: LedgerState, problems: Diagnostics
) -> ChangesetStanding | None:
    """Verify the catalog, and return the newest changeset of a ledger in a folder."""
    catalog: Callable[[], Any] = partial(verify_catalog, ledger, state, problems)
    if view.entry is not None:
        catalog()
        return None
    newest: ChangesetStanding | None
    _, newest = in_parallel(lambda read: read(), (catalog, ledger.latest_changeset), ledger.parallel)
    return newest


def _warn_of_lock(workspace: Workspace, held: LockObservation, problems: Diagnostics) -> None:
    """Report an unreadable lock, or a lock left by an earlier run."""
    if held.problem is not None:
        problems.add(held.problem, LOCK_FILE, held.detail, severity=Severity.WARNING)
    if held.abandoned:
        detail = lock_held_message(held, workspace.stamp(), workspace.selected)
        problems.add(Code.STATE_LOCK_HELD, LOCK_FILE, detail, severity=Severity.WARNING)


def _warn_of_drift(workspace: Workspace, state: LedgerState, problems: Diagnostics) -> None:
    """Report the recorded drift that blocks merges, with the command that shows how to resolve it."""
    for address in sorted(state.drifted):
        detail = "a refresh recorded drift; nothing is applied unless the same apply settles it"
        fix = f"show what settles it: gitops plan{workspace.selected}"
        problems.add(Code.DRIFT_OPEN, address, detail, severity=Severity.WARNING, fix=fix)


def _warn_of_what_waits(state: LedgerState, problems: Diagnostics) -> None:
    """Warn of rows that are not on their target yet, and of graphs that the last refresh did not find or could not read."""
    for target, addresses in pending_rows(state).items():
        detail = f"not on target {target} yet: {', '.join(addresses)}; the next apply or tick writes the rows"
        problems.add(Code.PROJECTION_PENDING, place_of(target), detail)
    for graph in sorted(state.vanished):
        detail = "the last refresh did not find its folder"
        problems.add(Code.GRAPH_VANISHED, graph, detail, severity=Severity.WARNING)
    code = Code.GRAPH_OBSERVATION_ERROR
    for graph, record in sorted(state.statuses.items()):
        if graph.kind is Kind.GRAPH and code in record.conditions:
            problems.add(
                code, graph, f"the last refresh could not read it: {record.message}", severity=Severity.WARNING
            )


def _in_sync(workspace: Workspace, view: LedgerView) -> bool | None:
    """Return True if nothing is left to apply, or None if that is unknown.

    A folder that the newest entry applied is not read.
    """
    state, entry, governance = view.state, view.entry, workspace.governance
    if state is None:
        return None
    if state.vanished or any(record.status is Status.BLOCKED for record in state.statuses.values()):
        return False
    source = None if governance is None or entry is None else entry.source
    if governance is not None and entry is not None and source is not None and source.tree == governance.source.tree:
        return state.config_digest == entry.config_digest
    with suppress(GitopsError):
        desired = load_desired(workspace.tree, workspace.vouched, workspace.hints).desired
        return None if desired is None else desired.config_digest == state.config_digest
    return None


def _governed(workspace: Workspace, view: LedgerView, storage: str | None) -> tuple[Address, ...]:
    """Return merged keys, rules and cluster locations that are not in force yet."""
    governance = workspace.governance
    if governance is None or view.entry is None:
        return ()
    cluster = governance.target.cluster
    in_force = view.trust is not None and governance.trust.digest == view.trust.digest
    stays = governance.recorded(view) in (None, governance.declares(storage))
    return (*(() if in_force else (trust_address(cluster),)), *(() if stays else (cluster_address(cluster),)))


def _approvers(view: LedgerView, waiting: Iterable[Address], now: datetime) -> dict[Address, tuple[str, ...]]:
    """Return who can approve each waiting change under the rules in force, as far as the newest entry has its authors."""
    if view.trust is None or view.entry is None:
        return {}
    found, at = dict[Address, tuple[str, ...]](), view.time(now)
    for address in waiting:
        able = may_approve_waiting(view.trust, view.entry, at, address)
        if able is None and view.state is not None and address in view.state.vanished:
            # No commit makes this change, so it has no author.
            able = may_approve(view.trust, Authors(), at, view.entry.forge or "")
        if able is not None:
            found[address] = able
    return found


def force_unlock(workspace: Workspace, lock_id: str) -> UnlockOutcome:
    """Remove the lock if its id is exactly `lock_id`. If that fails for any reason, the lock remains unchanged."""
    header, problems = load_header(workspace.tree)
    seen, removed = StateObservations(), False
    try:
        if header is not None and not problems.has_errors:
            ledger = workspace.open_stores(header.storage).ledger
            held, view = ledger.observe_lock(), LedgerView()
            try:
                ledger.break_lock(lock_id)
                removed = True
            except GitopsError as error:
                problems.add_error(error)
            # Used only in the report, because you must be able to remove a lock whatever else is broken.
            with suppress(GitopsError):
                view = ledger.view()
            # The report shows the holder of the removed lock. If the lock is unreadable, this command cannot identify
            # it.
            held = replace(held, held=held.held and held.info is not None and not removed)
            seen = observe(ledger, view, held, workspace.clock.now())
    except GitopsError as error:
        problems.add_error(error)
    return UnlockOutcome(
        config_dir=workspace.config_dir, observations=seen, lock_removed=removed, diagnostics=tuple(problems)
    )
