"""What people and programs decide about a changeset that no run carries out at this moment, recorded in the ledger.

Only events are written: what they say is done by the next run. A run that is at work holds the lock; who wants to stop it stops
the run, which then takes back what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError
from gitops.ledger.port import LedgerStore, LedgerView
from gitops.model.address import schema_address
from gitops.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetState,
    EventDraft,
    Failed,
    Happening,
    Member,
    Orphan,
    RollingBack,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.model.ledger import ENTRY_VERSION, EntryKind, LedgerEntry, LockInfo
from gitops.model.plan import Effect

__all__ = ["Steering"]

_LEFT_BEHIND = frozenset({RuntimeState.PROVISIONING, RuntimeState.READY, RuntimeState.FAILED})


class Steering:
    """Decisions about the changesets of one ledger. Each method takes the lock, and returns the record afterwards.

    Raises GitopsError `changeset_not_found`, `state_lock_held`, and as the ledger does.
    """

    def __init__(self, ledger: LedgerStore, clock: Clock, ids: IdSource, actor: str | None) -> None:
        """`actor` is who decides."""
        self._ledger, self._clock, self._ids, self._actor = ledger, clock, ids, actor

    def fail(self, key: str, error: str, *, force: bool = False) -> Changeset:
        """Give up a changeset that is not committed: the next run takes back what was prepared, for the reason `error`.

        With `force` one that is being taken back ends at once: what was not taken back is left behind, and listed.
        Raises ConflictError `changeset_state_invalid` for one that is committed, has ended, or can only go forward.
        """
        return self._record(key, lambda record: self._failure(record, error, force=force))

    def update(self, key: str, what: RuntimeUpdated) -> Changeset:
        """Report how far a member of the active changeset is. Raises ConflictError `changeset_state_invalid` as `follow`."""

        def check(record: Changeset) -> Happening:
            if record.state not in BLOCKING:
                raise _refusal(record, f"it is {record.state}: only members of the active changeset are reported")
            return what

        return self._record(key, check)

    def _failure(self, record: Changeset, error: str, *, force: bool) -> Happening:
        if record.state in (ChangesetState.COMMITTED, ChangesetState.DRAINED, ChangesetState.FINALIZED):
            fix = "to bring back what was before it, revert its merge: gitops revert --help"
            raise _refusal(record, f"it is {record.state}, and the cluster uses what it changed", fix=fix)
        if record.state is ChangesetState.ROLLING_BACK and not force:
            fix = f"end it without taking back the rest: gitops changeset fail {record.key} --error TEXT --force"
            raise _refusal(record, "it is being taken back already; the next run goes on with that", fix=fix)
        if force and record.state is not ChangesetState.ROLLING_BACK:
            fix = f"let it be taken back first: gitops changeset fail {record.key} --error TEXT"
            raise _refusal(record, f"it is {record.state}: --force only ends one that is rolling back", fix=fix)
        if force:
            return Failed(error, tuple(Orphan(m.address, "it was not taken back") for m in _left_behind(record)))
        announced = {schema_address(intent.graph_id) for intent in self._ledger.intents().intents}
        pivots = [member for member in record.members if member.effect is Effect.PIVOT]
        begun = [m.address for m in pivots if m.runtime.state in _LEFT_BEHIND or m.address in announced]
        if begun:
            detail = f"{', '.join(begun)} cannot be taken back and was begun; the next run finds out how far it came"
            raise _refusal(record, detail, fix="go on with it: gitops apply")
        return RollingBack(error, None)

    def _record(self, key: str, decide: Callable[[Changeset], Happening]) -> Changeset:
        info = LockInfo(self._ids.ulid(), "changeset", timestamp(self._clock.now()), 0)
        self._ledger.acquire(info)
        try:
            view = self._ledger.view()
            record = self._ledger.changeset(key)
            if record is None:
                raise GitopsError(Code.CHANGESET_NOT_FOUND, f"the ledger has no changeset {key}", path=key)
            at = timestamp(view.time(self._clock.now()))
            draft = EventDraft(key, at, decide(record))
            self._ledger.begin(view, (), self._entry(view, key, at), events=[draft])
            return self._ledger.changeset(key) or record
        finally:
            self._ledger.release(info.lock_id)

    def _entry(self, view: LedgerView, key: str, at: str) -> LedgerEntry | None:
        """The entry of a branch ledger: it applies nothing, and names the source that was applied last."""
        if view.entry is None:
            return None
        in_force = view.entry.trust_digest if view.trust is None else view.trust.digest
        return replace(
            view.entry,
            kind=EntryKind.CHANGESET,
            operation=self._ids.ulid(),
            at=at,
            actor=self._actor,
            changeset=key,
            plan_digest=None,
            policy_digest=in_force,
            trust_digest=in_force,
            changes=(),
            approvals=(),
            recovered=(),
            debts=(),
            settled=(),
            vanished=(),
            revoked=(),
            former=None,
            quarantined=(),
            version=ENTRY_VERSION,
        )


def _left_behind(record: Changeset) -> list[Member]:
    """The members that were begun, and not taken back."""
    return [member for member in record.members if member.runtime.state in _LEFT_BEHIND]


def _refusal(record: Changeset, why: str, *, fix: str | None = None) -> ConflictError:
    return ConflictError(Code.CHANGESET_STATE_INVALID, why, path=record.key, fix=fix)
