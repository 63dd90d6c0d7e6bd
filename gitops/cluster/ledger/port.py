"""The ledger: what is applied, under one lock, changed only by compare-and-swap.

Two stores pass one contract test suite: a `__cluster/` folder, and the same tree as a signed, linear chain of commits on a
branch. The read half and the write half are two interfaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from gitops.cluster.config.sound import SoundRecord
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.changesets import ChangesetIndex
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalEvidence, DecisionEvidence
from gitops.cluster.model.changeset import Changeset, ChangesetEvent, EventDraft
from gitops.cluster.model.ledger import (
    FormerLedger,
    Intent,
    LedgerEntry,
    LedgerState,
    LockInfo,
    LockObservation,
    UnreadableDocument,
)
from gitops.cluster.model.outcome import ChangesetStanding
from gitops.cluster.model.plan import RunRecord
from gitops.cluster.model.trust import TrustRoot
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError


def ledger_time(now: datetime, newest: LedgerEntry | None) -> datetime:
    """The one time at which keys, approvals and expiry are judged and the next entry is dated, in whole seconds.

    It is the later of the clock (`now`) and the newest entry: a clock that is behind accepts nothing that has expired, and an
    auditor, who judges each entry at its own time, comes to the same verdict.
    """
    head = None if newest is None else parse_timestamp(newest.at)
    return (now if head is None else max(now, head)).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One coherent reading of a ledger.

    `state` is None when there is none, or when it is invalid (`problems` then says why and `found` is True). `cas` is
    `sha256:` and the digest of the stored bytes. `head`, `entry` and `trust` exist in a branch ledger only: the commit id, its
    entry document, and the keys and rules in force. `sound` is its record of sound graphs, if it has one that can be read.
    """

    found: bool = False
    state: LedgerState | None = None
    cas: str | None = None
    problems: tuple[Diagnostic, ...] = ()
    head: str | None = None
    entry: LedgerEntry | None = None
    trust: TrustRoot | None = None
    sound: SoundRecord | None = None

    def time(self, now: datetime) -> datetime:
        """The time that this ledger has at `now`: see `ledger_time`."""
        return ledger_time(now, self.entry)


class BlobCondition(StrEnum):
    """The condition of a catalog blob."""

    OK = "ok"
    MISSING = "missing"
    MISMATCH = "mismatch"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class BlobReading:
    """A catalog blob; `content` only when it is OK."""

    condition: BlobCondition
    content: bytes | None = field(default=None, repr=False)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IntentListing:
    """All recovery sidecars in ULID order, and those that cannot be used. `problem` is set if they cannot be listed."""

    intents: tuple[Intent, ...] = ()
    unreadable: tuple[UnreadableDocument, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class ApprovalListing:
    """All approvals: `documents` of the store itself, `evidence` of approval commits that wait to be consumed.

    `decisions` revoke approvals or settle debts. `announced` are the approvals of `documents` that an entry announced and none
    records as consumed, with the commits that the ledger names.
    """

    documents: tuple[Approval, ...] = ()
    evidence: tuple[ApprovalEvidence, ...] = ()
    unreadable: tuple[UnreadableDocument, ...] = ()
    problem: str | None = None
    decisions: tuple[DecisionEvidence, ...] = ()
    announced: tuple[ApprovalEvidence, ...] = ()

    def complete(self) -> ApprovalListing:
        """The listing itself. Raises GitopsError `approval_read_error` if not everything could be read."""
        if self.problem is not None:
            raise GitopsError(Code.APPROVAL_READ_ERROR, self.problem, path=layout.APPROVALS)
        return self


@dataclass(frozen=True, slots=True)
class ChangesetListing:
    """The changesets that have not ended: `open` are their records, the oldest first. `problem` is set if they cannot be read."""

    index: ChangesetIndex = field(default_factory=ChangesetIndex)
    open: tuple[Changeset, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """One update of the ledger, all of it or nothing.

    `retire` are operation ids of sidecars to remove with it, `consumed` the approvals to mark as consumed (with the
    approval commits that become extra parents of the entry, in a branch ledger). `entry` is required by a branch ledger and
    ignored by a folder; its `number` and `previous` are set by the store. `trust_files` replaces the snapshot of keys and
    rules (path to bytes) when given, `sound` the record of sound graphs; a folder keeps none. `events` of changesets are recorded
    with the state: of a write that does not land, none is.
    """

    state: LedgerState
    entry: LedgerEntry | None = None
    retire: tuple[str, ...] = ()
    consumed: tuple[Approval, ...] = ()
    trust_files: Mapping[str, bytes] | None = None
    sound: SoundRecord | None = None
    events: tuple[EventDraft, ...] = ()


class LedgerReader(Protocol):
    """The read half; takes no lock and writes nothing."""

    @property
    def snapshot_reads(self) -> bool:
        """Whether `view` is an immutable snapshot (a commit), so that planning needs no lock."""
        ...

    @property
    def parallel(self) -> int:
        """How many reads are worth making at the same time."""
        ...

    @property
    def state_path(self) -> str:
        """Where the state document is, for people."""
        ...

    @property
    def lock_path(self) -> str:
        """Where the lock is, for people."""
        ...

    def observe_lock(self) -> LockObservation:
        """Whether the lock is held, and by whom. A lock that cannot be read is held with a problem."""
        ...

    def view(self) -> LedgerView:
        """The current state, read once. Problems are values; only a remote that does not answer raises RemoteError."""
        ...

    def intents(self) -> IntentListing:
        """The recovery sidecars."""
        ...

    def approvals(self) -> ApprovalListing:
        """The approvals."""
        ...

    def moved_since(self, entry: str) -> frozenset[Address]:
        """The resources that entries after this one applied changes to. A folder keeps no entries: none are known."""
        ...

    def blob(self, address: Address, digest: str) -> BlobReading:
        """The catalog blob of a query or policy at `digest`, its content verified."""
        ...

    def changesets(self) -> ChangesetListing:
        """The changesets that have not ended: one small document is read where there are none."""
        ...

    def changeset(self, key: str) -> Changeset | None:
        """The record of a changeset, also of one that has ended; None if it never existed.

        One that ended long ago is without members. Raises IntegrityError `changeset_invalid`, RemoteError, as the next three.
        """
        ...

    def changeset_keys(self) -> tuple[str, ...]:
        """The keys of all changesets, the newest first."""
        ...

    def latest_changeset(self) -> ChangesetStanding | None:
        """The active changeset, else the newest one, also if it has ended; None without any."""
        ...

    def changeset_of(self, commit: str) -> tuple[str, ...]:
        """The keys of the changesets that bring in a merge commit, the newest first."""
        ...

    def run_of(self, key: str) -> RunRecord | None:
        """How the run of a changeset went; None where that is not recorded, or no longer. Raises `run_record_invalid`, too."""
        ...

    def check_trailers(self, key: str) -> None:
        """Compare the messages of the ledger's commits about a changeset with their files, which count.

        Raises IntegrityError `trailer_mismatch`, `changeset_mismatch`.
        """
        ...

    def events(self, after: int = 0, key: str | None = None) -> tuple[ChangesetEvent, ...]:
        """The events with a number above `after`, of one changeset or of all, in their order.

        Those of changesets that ended long ago are gone: what is left may begin later than `after` asks for.
        """
        ...


class LedgerStore(LedgerReader, Protocol):
    """The write half. All writes but the lock's, approvals and decisions about changesets happen under the caller's lock."""

    def acquire(self, info: LockInfo) -> None:
        """Take the lock. Raises ConflictError `state_lock_held`, or RemoteError `state_lock_error`."""
        ...

    def release(self, lock_id: str) -> None:
        """Release the lock if it still has `lock_id`; no error when it does not.

        Raises GitopsError `state_unlock_error` if it cannot be removed.
        """
        ...

    def break_lock(self, lock_id: str) -> None:
        """Remove the lock with exactly this id. Raises GitopsError with the code of the force-unlock decision table."""
        ...

    def check_anchor(self, view: LedgerView) -> None:
        """Refuse a branch ledger that lacks what the anchor beside the graphs names; called with the lock held.

        Raises IntegrityError `ledger_anchor_mismatch`, `ledger_anchor_invalid`, RemoteError `storage_failed`.
        """
        ...

    def former(self) -> FormerLedger | None:
        """What is left of an earlier ledger of the cluster, where there is no branch; None for a folder. Raises as above."""
        ...

    def begin(
        self,
        view: LedgerView,
        intents: Sequence[Intent],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
        retire: Sequence[str] = (),
    ) -> LedgerView:
        """Announce the intents of an operation before its first side effect; returns the view to commit against.

        Events of changesets are recorded, and settled sidecars removed, in the same write; it may consist of these alone. A
        branch ledger makes the intents durable here, in one signed entry; a folder makes each durable in `arm`. What changes
        nothing, such as to create a changeset that exists, is not written.

        Raises GitopsError `recovery_sidecar_write_error`, or `ledger_not_writable` where a remote refuses the entry;
        ConflictError `state_cas_mismatch`; as ConflictError, with nothing written, `changeset_active` while another changeset is
        active, `changeset_overlap` while one still cleans up what this one touches, `changeset_conflict` for a key that exists
        with another plan, `changeset_state_invalid` for an event that may not happen now.
        """
        ...

    def arm(self, intent: Intent) -> None:
        """When this returns, the intent is durable and its operation may start. Raises `recovery_sidecar_write_error`."""
        ...

    def amend(self, intent: Intent) -> None:
        """Update an armed intent. Raises like `arm`; the caller continues in that case."""
        ...

    def disarm(self, operation_id: str) -> None:
        """Withdraw an armed intent of which provably nothing happened. No error on failure: recovery settles it."""
        ...

    def retire(
        self,
        view: LedgerView,
        operation_ids: Sequence[str],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
    ) -> LedgerView:
        """Remove settled sidecars when the state itself needs no write. Raises like `commit`."""
        ...

    def put_blob(self, address: Address, content: bytes) -> str:
        """Publish a catalog blob by its digest and return the digest; a correct blob is reused, a corrupt one replaced.

        Raises GitopsError `resource_payload_write_error`. Thread-safe.
        """
        ...

    def record_approval(self, approval: Approval) -> None:
        """Write an approval document. Raises GitopsError `approval_write_error`."""
        ...

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """Compare-and-swap: publish `write` if the ledger still is what `view` saw.

        Raises ConflictError `state_cas_mismatch` (nothing written), RemoteError `state_write_error`; for its events as `begin`.
        """
        ...
