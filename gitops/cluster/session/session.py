"""Steps that the commands share: load, open the stores, lock, read the ledger, and release the lock on every path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeVar

from gitops.cluster.approvals.decisions import find_revocations, with_revocations
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import SourceMovedError
from gitops.cluster.ledger.files import MISSING_BLOB, following, lock_held_message
from gitops.cluster.ledger.port import BlobCondition, IntentListing, LedgerReader, LedgerStore, LedgerView, LedgerWrite
from gitops.cluster.model.address import Kind, is_servable, of_kind
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import (
    EntryKind,
    LedgerState,
    LockInfo,
    LockObservation,
    RecordedRevocation,
    Status,
    StatusRecord,
)
from gitops.cluster.model.outcome import StateObservations, VerbOutcome
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.trust import DataGrowth, TrustRoot
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.clock import Clock, IdSource, parse_timestamp, timestamp
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.storage.parallel import in_parallel
from gitops.database.storage.port import StorageRootError

if TYPE_CHECKING:
    from gitops.cluster.hosts.port import HostPort

# -- observations ------------------------------------------------------------------------------------------------------
# A verb's observations of ledger, lock and catalog.


# Problems show places relative to the storage root, whatever the store is. Paths in the envelope are only for display.
STATE_FILE = "__cluster/state.json"
LOCK_FILE = "__cluster/lock.json"
RECOVERIES = "__cluster/recoveries"

VANISHED = "the graph root does not exist, and no delete was applied"
"""The observation for an applied graph that is missing."""
RECORD_LIVE = "record the live state: gitops refresh; then restore the declared state: gitops apply"
"""The remedy if a person changed a live schema."""

_UNREAD = "payload_read_error"
_BLOB_FINDINGS = {
    BlobCondition.MISSING: (Code.CATALOG_PAYLOAD_MISSING, "payload_missing", MISSING_BLOB),
    BlobCondition.MISMATCH: (Code.CATALOG_PAYLOAD_MISMATCH, "payload_mismatch", "the blob does not match its digest"),
    BlobCondition.UNREADABLE: (Code.CATALOG_PAYLOAD_READ_ERROR, _UNREAD, "the blob cannot be read"),
}


def observe(
    ledger: LedgerReader, view: LedgerView, held: LockObservation, now: datetime, *, acquired: str | None = None
) -> StateObservations:
    """Return an envelope's information about the ledger and the lock."""
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
    """Return the lock, sidecars and state for a caller without the lock. A slow store is read in parallel.

    Raises the RemoteErrors of `LedgerReader.view`.
    """
    reads: tuple[Callable[[], Any], ...] = (ledger.observe_lock, ledger.intents, ledger.view)
    held, listing, view = in_parallel(lambda read: read(), reads, ledger.parallel)
    return held, listing, view


def blocks_on_drift(workspace: Workspace, view: LedgerView) -> bool:
    """Return True if the rules in force block applies while drift is open. A ledger in a folder has no rules."""
    rules = view.trust or (None if workspace.governance is None else workspace.governance.trust)
    return rules is not None and rules.on_drift == "block"


THE_BOT_STARTS_IT = "on the server: gitops bot sweep --repo PATH; on a forge, run the job that applies"
"""The remedy for a missing ledger on a branch, which no clone can start."""


def warn_of_intents(
    listing: IntentListing, held: LockObservation, problems: Diagnostics, message: str, place: str
) -> None:
    """Add a warning with this message for each unsettled operation, in file order.

    An apply settles them, but not while another run has `held` the lock. `place` selects the cluster on a command line.
    """
    if listing.problem is not None:
        problems.add(Code.RECOVERY_SIDECAR_READ_ERROR, RECOVERIES, listing.problem)
    # An apply cannot settle a record that it cannot read.
    fixes = {each.name: remedy(each.code, "") for each in listing.unreadable}
    settle = None
    if held.held and held.unlock_id:
        unlock = f"gitops force-unlock {held.unlock_id}{place}"
        settle = f"if the run that holds the lock has ended, remove it: {unlock}; then settle the operation: gitops apply{place}"
    for name in sorted([*(f"{each.operation_id}.json" for each in listing.intents), *fixes]):
        problems.add(Code.CLUSTER_RECOVERY_PENDING, f"{RECOVERIES}/{name}", message, fix=fixes.get(name, settle))


def verify_catalog(ledger: LedgerReader, state: LedgerState, problems: Diagnostics) -> LedgerState:
    """Report every catalog blob that is missing, corrupt or unreadable. Return the state for a refresh to record.

    The digest of a missing or corrupt blob is removed, so that the next apply publishes it again; that of an unreadable
    blob is kept until it can be read again. `status` uses only the reports.
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


# -- revocations -------------------------------------------------------------------------------------------------------
# Records the valid revocations in a separate ledger entry. The entry repeats the source of the previous one. The
# cluster folder is not read, so a broken folder cannot keep a revoked approval valid.


REVOKING = "revoke"
"""The operation in the lock of a revoke command."""


@dataclass(frozen=True, slots=True)
class RevocationContext:
    """A target's ledger, and the author and time for new entries."""

    ledger: LedgerStore
    target: ClusterTarget
    clock: Clock
    ids: IdSource
    actor: str | None


def record_under_lock(context: RevocationContext) -> tuple[RecordedRevocation, ...]:
    """Record new revocations and return them. Takes the lock only if there are any.

    A lock held by a revoke command is ignored, because that command is still waiting for the response to its push, and
    the compare-and-swap would reject its entry. Raises GitopsError `state_lock_held`, and the errors of
    `record_revocations`.
    """
    ledger = context.ledger
    if not _find(context, ledger.view()):
        return ()
    info = LockInfo(context.ids.ulid(), REVOKING, timestamp(context.clock.now()), 0)
    try:
        ledger.acquire(info)
    except ConflictError:
        holder = ledger.observe_lock().info
        if holder is None or holder.operation != REVOKING:
            raise
    try:
        before = ledger.view()
        after = record_revocations(context, before)
    finally:
        ledger.release(info.lock_id)
    return () if after.entry is None or after is before else after.entry.revoked


def record_revocations(context: RevocationContext, view: LedgerView) -> LedgerView:
    """Record all valid new revocations in one entry and return the new view. Returns `view` if there are none.

    The caller must hold the lock. Raises the GitopsErrors of `LedgerStore.commit`.
    """
    revoked = _find(context, view)
    if not revoked or view.entry is None or view.state is None or view.trust is None:
        return view
    at = timestamp(view.time(context.clock.now()))
    state = replace(with_revocations(view.state, revoked, at), revision=view.state.next_revision)
    entry = following(
        view.entry,
        EntryKind.REVOKE,
        operation=context.ids.ulid(),
        at=at,
        actor=context.actor,
        trust_digest=view.trust.digest,
    )
    entry = replace(entry, state_revision=state.revision, revoked=revoked)
    return context.ledger.commit(view, LedgerWrite(state, entry))


def _find(context: RevocationContext, view: LedgerView) -> tuple[RecordedRevocation, ...]:
    """Return the revocations that count and are not recorded yet. Without a ledger there is nothing to revoke."""
    if view.entry is None or view.state is None or view.trust is None or view.entry.former is not None:
        return ()
    listing, at = context.ledger.approvals(), view.time(context.clock.now())
    return find_revocations(view.state, listing.evidence, listing.decisions, view.trust, target=context.target, at=at)


T = TypeVar("T", bound=VerbOutcome)


class StateNeed(Enum):
    """Whether a command needs a ledger: optional, required, or required to be missing."""

    OPTIONAL = auto()
    REQUIRED = auto()
    ABSENT = auto()


@dataclass(slots=True)
class Session:
    """A command's session on a workspace. If `ready` is False, the command must stop; `problems` has the reason.

    `hosts` reads and changes machines while an apply runs, and is None otherwise.
    """

    workspace: Workspace
    loaded: Loaded
    problems: Diagnostics
    stores: Stores | None = None
    view: LedgerView = field(default_factory=LedgerView)
    held: LockObservation = field(default_factory=lambda: LockObservation(held=False))
    lock_id: str | None = None
    ready: bool = False
    hosts: HostPort | None = None
    _at: datetime | None = None

    @property
    def at(self) -> datetime:
        """The time of the run (see `LedgerView.time`), read on first use and then fixed.

        Approvals that the gate accepted are dated with it, so nothing expires between the gate and the entry.
        """
        if self._at is None:
            self._at = self.view.time(self.workspace.clock.now())
        return self._at

    @property
    def desired(self) -> DesiredState:
        """The declared state. Only for sessions that are `ready`."""
        if self.loaded.desired is None:
            raise AssertionError("a session without desired state is never ready")
        return self.loaded.desired

    @property
    def opened(self) -> Stores:
        """The stores. Only for sessions that are `ready`."""
        if self.stores is None:
            raise AssertionError("a session without stores is never ready")
        return self.stores

    @property
    def state(self) -> LedgerState:
        """The recorded state, which is empty if there is no ledger."""
        return self.view.state or LedgerState()

    @property
    def rules(self) -> TrustRoot | None:
        """The keys and rules in force; before the first entry, those that it will record. None for a ledger folder."""
        governance = self.workspace.governance
        return self.view.trust or (None if governance is None else governance.trust)

    @property
    def data_growth(self) -> DataGrowth:
        """How much a graph can grow after an approval under the rules in force."""
        return DataGrowth() if self.view.trust is None else self.view.trust.data_growth

    @property
    def blocks_on_drift(self) -> bool:
        """See `blocks_on_drift`."""
        return blocks_on_drift(self.workspace, self.view)

    def observations(self) -> StateObservations:
        """Return the session's observations of ledger and lock so far, or only their locations if the folder was refused."""
        if self.stores is not None:
            now = self.workspace.clock.now()
            return observe(self.stores.ledger, self.view, self.held, now, acquired=self.lock_id)
        with suppress(GitopsError, StorageRootError):
            # Imported late, because most runs load the folder without the parser.
            from gitops.cluster.config.cluster_yaml import declared_storage, read_cluster

            cluster, _ = read_cluster(self.workspace.tree)
            if cluster is not None:
                ledger = self.workspace.open_stores(declared_storage(cluster)).ledger
                return StateObservations(ledger.state_path, ledger.lock_path)
        return StateObservations("", "")


def writing(
    workspace: Workspace,
    operation: str,
    need: StateNeed,
    body: Callable[[Session], T],
    *,
    loaded: Loaded | None = None,
) -> T:
    """Run `body` in a session with the lock and return its outcome. `operation` is the name of the command.

    `body` runs whether or not the session is ready. The lock is released when it returns or raises; a failure to
    release it is added as a warning to the outcome. Unless it is given as `loaded`, the folder is loaded, except for
    the graphs that the ledger lists as checked. If it does not match that record, `body` runs again with a folder
    loaded only from its files.
    """
    return _in_session(workspace, body, lambda current: _enter_locked(current, operation, need), loaded)


def reading(
    workspace: Workspace,
    operation: str,
    need: StateNeed,
    body: Callable[[Session], T],
    *,
    loaded: Loaded | None = None,
) -> T:
    """Run `body` like `writing`, but without a lock if the ledger's reads are snapshots.

    While a different run holds the lock, the current ledger is read, with a warning.
    """

    def enter(current: Session) -> bool:
        opened = current.opened.ledger
        if not opened.snapshot_reads:
            current.held = opened.observe_lock() if current.desired.lock else current.held
            if current.held.info is None:
                return _enter_locked(current, operation, need)
            _warn_of_lock(current)
        return _read_ledger(current, need, writes=False)

    return _in_session(workspace, body, enter, loaded)


def looking(workspace: Workspace, need: StateNeed, body: Callable[[Session], T], *, loaded: Loaded | None = None) -> T:
    """Run `body` in a session that previews the effects of a writing session.

    It takes no lock, and warns if the lock is held.
    """

    def enter(current: Session) -> bool:
        if current.desired.lock:
            current.held = current.opened.ledger.observe_lock()
            if current.held.held:
                _warn_of_lock(current)
        return _read_ledger(current, need, writes=True)

    return _in_session(workspace, body, enter, loaded)


def _in_session(
    workspace: Workspace, body: Callable[[Session], T], enter: Callable[[Session], bool], loaded: Loaded | None
) -> T:
    """Load the folder unless that is done. If the folder differs from the expected one, start again."""
    loaded = load_desired(workspace.tree, workspace.vouched) if loaded is None else loaded
    try:
        return _run(workspace, loaded, body, enter)
    except SourceMovedError:
        tree = workspace.tree if workspace.vouched is None else workspace.vouched.tree.reopened()
        return _run(workspace, load_desired(tree), body, enter)


def _run(workspace: Workspace, loaded: Loaded, body: Callable[[Session], T], enter: Callable[[Session], bool]) -> T:
    """Open the stores if the folder has no errors, `enter` them, run `body`, and release the lock."""
    current = Session(workspace, loaded, Diagnostics(loaded.diagnostics))
    if loaded.desired is not None and not current.problems.has_errors:
        try:
            current.stores = workspace.open_stores(loaded.desired.storage)
        except GitopsError as error:
            current.problems.add_error(error)
    try:
        current.ready = current.stores is not None and enter(current)
        outcome = body(current)
    except BaseException:
        _release_lock(current)
        raise
    left = _release_lock(current)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *left)) if left else outcome


def _enter_locked(current: Session, operation: str, need: StateNeed) -> bool:
    """Take the lock, read the ledger, and record revocations in a branch ledger before anything else is written."""
    workspace, ledger, governance = current.workspace, current.opened.ledger, current.workspace.governance
    kept = None if workspace.lock is None else workspace.lock.lock_id
    # If a person broke the lock meanwhile, it is taken again, or another run holds it now.
    if kept is not None and ledger.observe_lock().is_named(kept):
        current.lock_id = kept
    elif current.desired.lock:
        info = LockInfo(workspace.ids.ulid(), operation, timestamp(workspace.clock.now()), workspace.pid)
        try:
            ledger.acquire(info)
        except GitopsError as error:
            current.held = ledger.observe_lock()
            if error.code is Code.STATE_LOCK_HELD and current.held.held:
                said = lock_held_message(current.held, info.created_at, workspace.selected)
                # Without an id, no command in the message breaks it.
                fix = None if current.held.unlock_id else remedy(Code.STATE_LOCK_READ_ERROR, "")
                current.problems.add(error.code, error.path, said, fix=fix)
            else:
                current.problems.add_error(error)
            return False
        except BaseException:
            # After an interrupt, it is unknown whether the lock was taken. This releases only our own lock.
            current.lock_id = info.lock_id
            raise
        current.lock_id = info.lock_id
    else:
        detail = "operations are not locked against each other; only the compare-and-swap protects the ledger"
        current.problems.add(Code.STATE_LOCK_DISABLED, "state.lock", detail)
    if not _read_ledger(current, need, writes=True):
        return False
    if governance is not None:
        context = RevocationContext(ledger, governance.target, workspace.clock, workspace.ids, workspace.actor)
        try:
            current.view = record_revocations(context, current.view)
        except GitopsError as error:
            current.problems.add_error(error)
            return False
    return True


def _warn_of_lock(current: Session) -> None:
    workspace = current.workspace
    held = lock_held_message(current.held, timestamp(workspace.clock.now()), workspace.selected)
    detail = f"this shows the ledger as it is now, which that run may still change: {held}"
    current.problems.add(Code.STATE_LOCK_HELD, LOCK_FILE, detail, severity=Severity.WARNING)


def _release_lock(current: Session) -> Diagnostics:
    """Release the lock if it was taken and the caller does not keep it. Return a failure as a warning.

    A session that was not entered, such as one of a folder with errors, leaves a kept lock to its caller.
    """
    left, kept = Diagnostics(), current.workspace.lock
    if current.lock_id is None:
        return left
    if kept is not None:
        kept.lock_id = current.lock_id if kept.keep else None
    if kept is None or not kept.keep:
        try:
            current.opened.ledger.release(current.lock_id)
        except GitopsError as error:
            detail = f"{error.detail}; if the lock is still there: gitops force-unlock {current.lock_id}"
            left.add(error.code, error.path, detail, severity=Severity.WARNING)
    return left


def add_no_ledger(workspace: Workspace, problems: Diagnostics, severity: Severity) -> None:
    """Report that a cluster has no ledger yet. If a bot runs, it starts the ledger on a branch."""
    detail = "the cluster has no ledger yet"
    if workspace.governance is None:
        problems.add(Code.STATE_MISSING, STATE_FILE, f"{detail}; start it: gitops import", severity=severity)
    else:
        problems.add(
            Code.STATE_MISSING, STATE_FILE, f"{detail}: the bot starts it", severity=severity, fix=THE_BOT_STARTS_IT
        )


def _read_ledger(current: Session, need: StateNeed, *, writes: bool) -> bool:
    """Return True if the ledger meets the verb's needs and every new graph can be served."""
    ledger = current.opened.ledger
    try:
        view = ledger.view()
        if writes and need is not StateNeed.ABSENT:
            ledger.check_anchor(view)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    current.view = view
    current.problems.extend(view.problems)
    if view.found and view.state is None:
        return False
    if need is StateNeed.REQUIRED and not view.found:
        add_no_ledger(current.workspace, current.problems, Severity.ERROR)
        return False
    if need is StateNeed.ABSENT and view.found:
        # A refresh reads the graphs, which a clone of a server doesn't have.
        fix = None if current.opened.data_problem is None else "show what the ledger records: gitops status"
        current.problems.add(Code.STATE_ALREADY_EXISTS, STATE_FILE, "the cluster already has a ledger", fix=fix)
        return False
    if need is StateNeed.ABSENT or Code.GRAPH_ID_UNSERVABLE not in current.problems.codes():
        return True
    # The warning about a new graph that cannot be served becomes an error.
    refused = {
        each
        for each in of_kind(current.desired.digests(), Kind.GRAPH)
        if not is_servable(each.name) and each not in current.state.resources
    }
    current.problems = Diagnostics(
        replace(each, severity=Severity.ERROR)
        if each.code is Code.GRAPH_ID_UNSERVABLE and each.path in refused
        else each
        for each in current.problems
    )
    return not refused
