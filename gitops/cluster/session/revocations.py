"""Take the revocations that count into the ledger, in an entry of their own.

The entry repeats the source of the one before: nothing of the cluster folder is read, so a broken folder does not keep an
approval valid that was revoked.
"""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.approvals.revocations import find_revocations, with_revocations
from gitops.cluster.ledger.port import LedgerStore, LedgerView, LedgerWrite
from gitops.cluster.ledger.writings import following
from gitops.cluster.model.approval import ClusterTarget
from gitops.cluster.model.ledger import EntryKind, LockInfo, RecordedRevocation
from gitops.core.clock import Clock, IdSource, timestamp
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError

__all__ = ["REVOKING", "RevocationContext", "record_revocations", "record_under_lock"]

REVOKING = "revoke"
"""The operation in the lock of a command that revokes."""


@dataclass(frozen=True, slots=True)
class RevocationContext:
    """The ledger of a target, and who writes entries of it, at what time."""

    ledger: LedgerStore
    target: ClusterTarget
    clock: Clock
    ids: IdSource
    actor: str | None


def record_under_lock(context: RevocationContext) -> tuple[RecordedRevocation, ...]:
    """Record what is not recorded yet, and return it; the lock is taken only if there is something.

    The lock of a command that revokes does not stop it: that command still waits for the answer to its push, and writes no entry
    that the compare-and-swap would not stop. Raises GitopsError `state_lock_held`, and as `record_revocations`.
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
    """The view after the entry that takes in all revocations that count and are not recorded yet; `view` if there are none.

    The caller holds the lock. Raises GitopsError as `LedgerStore.commit` does.
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
    """The revocations that count and are not recorded yet. Without a ledger there is nothing to revoke."""
    if view.entry is None or view.state is None or view.trust is None or view.entry.former is not None:
        return ()
    listing, at = context.ledger.approvals(), view.time(context.clock.now())
    return find_revocations(view.state, listing.evidence, listing.decisions, view.trust, target=context.target, at=at)
