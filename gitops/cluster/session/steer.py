"""What people and programs decide about a changeset, recorded in the ledger.

Only events are written: what they say is done by the next run. A run that is at work holds the lock. Its changeset is given up
without the lock: the run finds the decision where it wants to write next, and lands nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gitops.cluster.ledger.port import LedgerStore, LedgerView
from gitops.cluster.ledger.writings import following
from gitops.cluster.model.changeset import (
    BLOCKING,
    Changeset,
    ChangesetState,
    EventDraft,
    Failed,
    Happening,
    Orphan,
    RollingBack,
    RuntimeState,
    RuntimeUpdated,
)
from gitops.cluster.model.ledger import EntryKind, Intent, LedgerEntry, LockInfo
from gitops.cluster.model.plan import Effect
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, RemoteError

__all__ = ["Steering"]

_OPERATION, _APPLY = "changeset", "apply"
_ATTEMPTS = 5
_SIGN = "sign with the key of a ledger signer: git config user.signingKey FILE"

_LEFT_BEHIND = frozenset({RuntimeState.PROVISIONING, RuntimeState.READY, RuntimeState.FAILED})


class Steering:
    """Decisions about the changesets of one ledger. Each method takes the lock if it can, and returns the record afterwards.

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
        return self._record(key, lambda record: self._failure(record, error, force=force), during_apply=not force)

    def update(self, key: str, what: RuntimeUpdated) -> Changeset:
        """Report how far a member of the active changeset is. Raises ConflictError `changeset_state_invalid` as `follow`."""

        def check(record: Changeset) -> Happening:
            if record.state not in BLOCKING:
                raise _refusal(record, f"it is {record.state}: only members of the active changeset are reported")
            return what

        return self._record(key, check)

    def _record(self, key: str, decide: Callable[[Changeset], Happening], *, during_apply: bool = False) -> Changeset:
        info = LockInfo(self._ids.ulid(), _OPERATION, timestamp(self._clock.now()), 0)
        try:
            self._ledger.acquire(info)
        except ConflictError:
            holder = self._ledger.observe_lock().info
            if not (during_apply and holder and holder.operation == _APPLY):
                raise
        try:
            return self._write(key, decide)
        finally:
            self._ledger.release(info.lock_id)

    def _write(self, key: str, decide: Callable[[Changeset], Happening]) -> Changeset:
        attempt = 1
        while True:
            view, record = self._ledger.view(), self._ledger.changeset(key)
            if record is None:
                raise GitopsError(Code.CHANGESET_NOT_FOUND, f"the ledger has no changeset {key}", path=key)
            at = timestamp(view.time(self._clock.now()))
            draft = EventDraft(key, at, decide(record))
            # What a changeset leaves behind, no later run goes on with.
            left = self._intents(record) if isinstance(draft.happening, Failed) else ()
            retire = [intent.operation_id for intent in left]
            try:
                self._ledger.begin(view, (), self._entry(view, key, at), events=[draft], retire=retire)
                break
            except ConflictError as error:
                # The run at work wrote first: what it wrote may decide otherwise.
                if error.code != Code.STATE_CAS_MISMATCH or attempt == _ATTEMPTS:
                    raise
                attempt += 1
            except GitopsError as error:
                # No operation on a graph was announced: it is the entry that could not be written.
                if error.code == Code.RECOVERY_SIDECAR_WRITE_ERROR:
                    fix = None if isinstance(error, RemoteError) else _SIGN
                    raise GitopsError(Code.LEDGER_NOT_WRITABLE, error.detail, path=error.path, fix=fix) from error
                raise
        self._ledger.view()
        return self._ledger.changeset(key) or record

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
            announced = {intent.address for intent in self._intents(record)}
            left = [m.address for m in record.members if m.runtime.state in _LEFT_BEHIND or m.address in announced]
            return Failed(error, tuple(Orphan(address, "it was not taken back") for address in left))
        pivots = [member.address for member in record.members if member.effect is Effect.PIVOT]
        if pivots and record.state is ChangesetState.PREPARED:
            detail = (
                f"{', '.join(pivots)} cannot be taken back, and may be begun; the next run finds out how far it came"
            )
            raise _refusal(record, detail, fix="go on with it: gitops apply")
        return RollingBack(error, None)

    def _intents(self, record: Changeset) -> tuple[Intent, ...]:
        """The operations that a changeset announced, and that are not settled."""
        return tuple(each for each in self._ledger.intents().intents if each.address in record.addresses)

    def _entry(self, view: LedgerView, key: str, at: str) -> LedgerEntry | None:
        """The entry of a branch ledger: it applies nothing, and names the source that was applied last."""
        if view.entry is None:
            return None
        in_force = view.entry.trust_digest if view.trust is None else view.trust.digest
        entry = following(
            view.entry, EntryKind.CHANGESET, operation=self._ids.ulid(), at=at, actor=self._actor, trust_digest=in_force
        )
        return replace(entry, changeset=key)


def _refusal(record: Changeset, why: str, *, fix: str | None = None) -> ConflictError:
    return ConflictError(Code.CHANGESET_STATE_INVALID, why, path=record.key, fix=fix)
