"""What the verbs have in common: load, open the stores, lock, read the ledger; and release the lock on every path."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime
from enum import Enum, auto
from typing import TypeVar

from gitops.cluster.config.load import LoadResult, load_desired
from gitops.cluster.config.source import SourceMovedError
from gitops.cluster.ledger.port import LedgerView
from gitops.cluster.ledger.readings import lock_held_message
from gitops.cluster.model.address import Kind, is_servable, of_kind
from gitops.cluster.model.ledger import LedgerState, LockInfo, LockObservation
from gitops.cluster.model.outcome import StateObservations, VerbOutcome
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.trust import DataGrowth
from gitops.cluster.session.observations import LOCK_FILE, STATE_FILE, observe
from gitops.cluster.session.revocations import RevocationContext, record_revocations
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.database.storage.address import StorageRootError

T = TypeVar("T", bound=VerbOutcome)


class StateNeed(Enum):
    """Whether a verb needs a ledger: not necessarily, yes, or that there is none yet."""

    OPTIONAL = auto()
    REQUIRED = auto()
    ABSENT = auto()


@dataclass(slots=True)
class Session:
    """One verb at work on a workspace. `ready` is False when it has to stop; `problems` then has the reason."""

    workspace: Workspace
    loaded: LoadResult
    problems: Diagnostics
    stores: Stores | None = None
    view: LedgerView = field(default_factory=LedgerView)
    held: LockObservation = field(default_factory=lambda: LockObservation(held=False))
    lock_id: str | None = None
    ready: bool = False
    _at: datetime | None = None

    @property
    def at(self) -> datetime:
        """The one time of the run, by `LedgerView.time`: read when it is first asked for, and kept however long the run takes.

        What the gate accepted at this time is dated with it: nothing expires between the gate and the entry.
        """
        if self._at is None:
            self._at = self.view.time(self.workspace.clock.now())
        return self._at

    @property
    def desired(self) -> DesiredState:
        """What the folder declares; only for sessions that are `ready`."""
        if self.loaded.desired is None:
            raise AssertionError("a session without desired state is never ready")
        return self.loaded.desired

    @property
    def opened(self) -> Stores:
        """The stores; only for sessions that are `ready`."""
        if self.stores is None:
            raise AssertionError("a session without stores is never ready")
        return self.stores

    @property
    def state(self) -> LedgerState:
        """The recorded state, empty when there is no ledger."""
        return self.view.state or LedgerState()

    @property
    def data_growth(self) -> DataGrowth:
        """How much a graph may grow after its approval, by the rules in force."""
        return DataGrowth() if self.view.trust is None else self.view.trust.data_growth

    def observations(self) -> StateObservations:
        """What the session has observed of ledger and lock so far."""
        if self.stores is None:
            return StateObservations(*_places(self.workspace))
        now = self.workspace.clock.now()
        return observe(self.stores.ledger, self.view, self.held, now, acquired=self.lock_id)


def in_session(
    workspace: Workspace,
    operation: str,
    need: StateNeed,
    body: Callable[[Session], T],
    *,
    exclusive: bool = True,
    lockless: bool = False,
    loaded: LoadResult | None = None,
) -> T:
    """Open the stores if the folder has no errors, take the lock, read the ledger, and return the outcome of `body`.

    `body` runs whether or not the session is ready. The lock is released when it returns or raises; a failure to release it
    is a warning of the outcome, which stays as it is. `operation` is the verb's name in the lock. `exclusive` False takes no
    lock where the ledger's reads are snapshots anyway. `lockless` writes nothing: it takes no lock, and is not ready while
    another command has it. Unless it is given as `loaded`, the folder is loaded, but for what the ledger vouches for. If it is
    not what was believed of it, `body` runs again, with a folder loaded from its files alone.
    """
    loaded = load_desired(workspace.tree, workspace.vouched) if loaded is None else loaded
    try:
        return _run(workspace, loaded, operation, need, body, exclusive=exclusive, lockless=lockless)
    except SourceMovedError:
        tree = workspace.tree if workspace.vouched is None else workspace.vouched.tree.reopened()
        return _run(workspace, load_desired(tree), operation, need, body, exclusive=exclusive, lockless=lockless)


def _run(
    workspace: Workspace,
    loaded: LoadResult,
    operation: str,
    need: StateNeed,
    body: Callable[[Session], T],
    *,
    exclusive: bool,
    lockless: bool,
) -> T:
    """Run `body` in a session of a loaded folder."""
    current = Session(workspace, loaded, Diagnostics(loaded.diagnostics))
    if loaded.desired is not None and not current.problems.has_errors:
        try:
            current.stores = workspace.open_stores(loaded.desired.storage)
        except GitopsError as error:
            current.problems.add_error(error)
    try:
        if current.stores is not None:
            lock = not lockless and (exclusive or not current.stores.ledger.snapshot_reads)
            free = _take_lock(current, operation) if lock else not lockless or _find_lock_free(current)
            current.ready = free and _read_ledger(current, need, writes=exclusive or lock)
            current.ready = current.ready and (need is StateNeed.ABSENT or _new_graphs_are_servable(current))
            current.ready = current.ready and (not lock or _record_revocations(current))
        outcome = body(current)
    except BaseException:
        _release_lock(current)
        raise
    left = _release_lock(current)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *left)) if left else outcome


def _places(workspace: Workspace) -> tuple[str, str]:
    """Where ledger and lock are by a folder that is refused; empty where it does not declare that."""
    with suppress(GitopsError, StorageRootError):
        # Imported late: most runs load the folder without the parser.
        from gitops.cluster.config.cluster_yaml import declared_storage, read_cluster

        cluster, _ = read_cluster(workspace.tree)
        if cluster is not None:
            ledger = workspace.open_stores(declared_storage(cluster)).ledger
            return ledger.state_path, ledger.lock_path
    return "", ""


def _new_graphs_are_servable(current: Session) -> bool:
    """Whether every graph that is not applied yet can be served; else its warning becomes an error."""
    if Code.GRAPH_ID_UNSERVABLE not in current.problems.codes():
        return True
    recorded = () if current.view.state is None else current.view.state.resources
    refused = {
        a for a in of_kind(current.desired.digests(), Kind.GRAPH) if not is_servable(a.name) and a not in recorded
    }
    current.problems = Diagnostics(
        replace(each, severity=Severity.ERROR)
        if each.code is Code.GRAPH_ID_UNSERVABLE and each.path in refused
        else each
        for each in current.problems
    )
    return not refused


def _release_lock(current: Session) -> Diagnostics:
    """Release the lock if it was taken; a failure is returned as a warning."""
    left = Diagnostics()
    if current.lock_id is not None:
        try:
            current.opened.ledger.release(current.lock_id)
        except GitopsError as error:
            detail = f"{error.detail}; if the lock is still there: gitops force-unlock {current.lock_id}"
            left.add(error.code, error.path, detail, severity=Severity.WARNING)
    return left


def _take_lock(current: Session, operation: str) -> bool:
    workspace, ledger = current.workspace, current.opened.ledger
    if not current.desired.lock:
        current.problems.add(
            Code.STATE_LOCK_DISABLED,
            "state.lock",
            "operations are not locked against each other; only the compare-and-swap protects the ledger",
        )
        return True
    info = LockInfo(workspace.ids.ulid(), operation, timestamp(workspace.clock.now()), workspace.pid)
    try:
        ledger.acquire(info)
    except GitopsError as error:
        current.problems.add_error(error)
        current.held = ledger.observe_lock()
        return False
    except BaseException:
        # An interrupt: whether the lock was taken before it is not known. Only our own is released.
        current.lock_id = info.lock_id
        raise
    current.lock_id = info.lock_id
    return True


def _find_lock_free(current: Session) -> bool:
    """Whether no other command holds the lock; one that is held is reported as to a command that wants it."""
    if not current.desired.lock:
        return True
    current.held = current.opened.ledger.observe_lock()
    if current.held.held:
        at = timestamp(current.workspace.clock.now())
        current.problems.add(Code.STATE_LOCK_HELD, LOCK_FILE, lock_held_message(current.held, at))
    return not current.held.held


def _read_ledger(current: Session, need: StateNeed, *, writes: bool) -> bool:
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
        current.problems.add(Code.STATE_MISSING, STATE_FILE, "the cluster has no ledger yet; start it: gitops import")
        return False
    if need is StateNeed.ABSENT and view.found:
        current.problems.add(Code.STATE_ALREADY_EXISTS, STATE_FILE, "the cluster has a ledger already")
        return False
    return True


def _record_revocations(current: Session) -> bool:
    """Take revocations into a branch ledger before anything else is written; False if that fails."""
    workspace, governance = current.workspace, current.workspace.governance
    if governance is None:
        return True
    context = RevocationContext(
        current.opened.ledger, governance.target, workspace.clock, workspace.ids, workspace.actor
    )
    try:
        current.view = record_revocations(context, current.view)
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    return True
