"""The common frame of the verbs: load, open the stores, lock, read the ledger; and give the lock back on every path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeVar

from gitops.cluster.observations import STATE_FILE, observe
from gitops.cluster.workspace import Stores, Workspace
from gitops.config.load import load_desired
from gitops.config.result import LoadResult
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.ledger.port import LedgerView
from gitops.model.lock import LockInfo, LockObservation
from gitops.model.outcome import StateObservations, VerbOutcome
from gitops.model.resource import DesiredState
from gitops.model.state import State

T = TypeVar("T", bound=VerbOutcome)


class StateNeed(Enum):
    """What a verb expects of the ledger."""

    OPTIONAL = auto()
    REQUIRED = auto()
    ABSENT = auto()


@dataclass(slots=True)
class Session:
    """One verb at work. `ready` is False when it has to stop; `problems` then says why."""

    workspace: Workspace
    loaded: LoadResult
    problems: Diagnostics
    stores: Stores | None = None
    view: LedgerView = field(default_factory=LedgerView)
    held: LockObservation = field(default_factory=lambda: LockObservation(held=False))
    lock_id: str | None = None
    ready: bool = False

    @property
    def desired(self) -> DesiredState:
        """What the folder declares; only asked for when `ready`."""
        if self.loaded.desired is None:
            raise AssertionError("a session without desired state is never ready")
        return self.loaded.desired

    @property
    def opened(self) -> Stores:
        """The stores; only asked for when `ready`."""
        if self.stores is None:
            raise AssertionError("a session without stores is never ready")
        return self.stores

    @property
    def state(self) -> State:
        """The recorded state, empty when there is no ledger."""
        return self.view.state or State()

    def observations(self) -> StateObservations:
        """What was seen of ledger and lock so far."""
        if self.stores is None:
            return StateObservations(state_path="", lock_path="")
        now = self.workspace.clock.now()
        return observe(self.stores.ledger, self.view, self.held, now, acquired=self.lock_id)


def in_session(
    workspace: Workspace, operation: str, need: StateNeed, body: Callable[[Session], T], *, exclusive: bool = True
) -> T:
    """What `body` makes of a session on the folder as it is, loaded from its files alone; else as `run_session`."""
    return run_session(begin(workspace, load_desired(workspace.tree)), operation, need, body, exclusive=exclusive)


def begin(workspace: Workspace, loaded: LoadResult) -> Session:
    """A session that has loaded its folder; the stores are open if it is sound."""
    current = Session(workspace, loaded, Diagnostics(loaded.diagnostics))
    if loaded.desired is not None and not current.problems.has_errors:
        try:
            current.stores = workspace.open_stores(loaded.desired.storage)
        except GitopsError as error:
            current.problems.add_error(error)
    return current


def run_session(
    current: Session, operation: str, need: StateNeed, body: Callable[[Session], T], *, exclusive: bool = True
) -> T:
    """What `body` makes of the session, ready or not. The lock is given back when it returns or raises.

    A lock that cannot be given back takes nothing from what was done: the outcome says so in a warning. `exclusive` False
    leaves out the lock where the ledger's reads are snapshots anyway.
    """
    try:
        if current.stores is not None:
            lock = exclusive or not current.stores.ledger.snapshot_reads
            current.ready = (not lock or _take_lock(current, operation)) and _read_ledger(current, need)
        outcome = body(current)
    except BaseException:
        _give_back(current)
        raise
    left = _give_back(current)
    return replace(outcome, diagnostics=(*outcome.diagnostics, *left)) if left else outcome


def _give_back(current: Session) -> Diagnostics:
    """Release the lock if it was taken, and say so if that failed."""
    left = Diagnostics()
    if current.lock_id is not None:
        try:
            current.opened.ledger.release(current.lock_id)
        except GitopsError as error:
            detail = f"{error.detail}; if the lock is still there: force-unlock {current.lock_id}"
            left.add(error.code, error.path, detail, severity=Severity.WARNING)
    return left


def _take_lock(current: Session, operation: str) -> bool:
    workspace, ledger = current.workspace, current.opened.ledger
    if not current.desired.lock:
        current.problems.add(
            Code.STATE_LOCK_DISABLED,
            "state.lock",
            "runs are not kept apart; only the compare-and-swap guards the ledger",
        )
        return True
    info = LockInfo(workspace.ids.ulid(), operation, timestamp(workspace.clock.now()), workspace.pid)
    try:
        ledger.acquire(info)
    except GitopsError as error:
        current.problems.add_error(error)
        current.held = ledger.observe_lock()
        return False
    current.lock_id = info.lock_id
    return True


def _read_ledger(current: Session, need: StateNeed) -> bool:
    ledger = current.opened.ledger
    try:
        view = ledger.view()
    except GitopsError as error:
        current.problems.add_error(error)
        return False
    current.view = view
    current.problems.extend(view.problems)
    if view.found and view.state is None:
        return False
    if need is StateNeed.REQUIRED and not view.found:
        current.problems.add(Code.STATE_MISSING, STATE_FILE, "there is no ledger; run gitops import once to start one")
        return False
    if need is StateNeed.ABSENT and view.found:
        current.problems.add(Code.STATE_ALREADY_EXISTS, STATE_FILE, "there is a ledger; use gitops refresh")
        return False
    return True
