"""The common prologue of the verbs: load, open the stores, lock, read the ledger; and the lock's release on every path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from gitops.config.load import LoadResult, load_desired
from gitops.core.clock import timestamp
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.model.lock import LockInfo, LockObservation
from gitops.model.outcome import StateObservations
from gitops.model.resource import DesiredState
from gitops.model.state import State
from gitops.ports.ledger import LedgerView
from gitops.workflows.context import Stores, Workspace
from gitops.workflows.observations import observe


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


@contextmanager
def session(workspace: Workspace, operation: str, need: StateNeed, *, exclusive: bool = True) -> Iterator[Session]:
    """Run the prologue of a verb and yield the session, ready or not; the lock is released when the block ends.

    `exclusive` False leaves out the lock where the ledger's reads are snapshots anyway.
    """
    loaded = load_desired(workspace.tree)
    current = Session(workspace, loaded, Diagnostics(loaded.diagnostics))
    if loaded.desired is None or current.problems.has_errors:
        yield current
        return
    try:
        current.stores = workspace.open_stores(loaded.desired.storage)
    except GitopsError as error:
        current.problems.add_error(error)
        yield current
        return
    try:
        lock = exclusive or not current.stores.ledger.snapshot_reads
        current.ready = (not lock or _take_lock(current, operation)) and _read_ledger(current, need)
        yield current
    finally:
        if current.lock_id is not None:
            current.stores.ledger.release(current.lock_id)


def _take_lock(current: Session, operation: str) -> bool:
    workspace, ledger = current.workspace, current.opened.ledger
    if not current.desired.lock:
        current.problems.add(
            "state_lock_disabled", "state.lock", "runs are not kept apart; only the compare-and-swap guards the ledger"
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
        current.problems.add(
            "state_missing", ledger.state_path, "there is no ledger; run gitops import once to start one"
        )
        return False
    if need is StateNeed.ABSENT and view.found:
        current.problems.add("state_already_exists", ledger.state_path, "there is a ledger; use gitops refresh")
        return False
    return True
