"""The ledger port: the applied state, guarded by one lock and changed only by compare-and-swap.

Two stores pass one contract test suite: a `__cluster/` folder, and the same tree as a signed, linear chain of commits
on a branch. The reading half and the writing half are two interfaces.
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
    """Return the time for checking keys, approvals and expiry, and for dating the next entry, in whole seconds.

    It is the later of the clock (`now`) and the newest entry. So with a slow clock, nothing that has expired is
    accepted, and an auditor, who judges each entry at its own time, reaches the same verdict.
    """
    head = None if newest is None else parse_timestamp(newest.at)
    return (now if head is None else max(now, head)).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class LedgerView:
    """One consistent view of a ledger.

    `state` is None if there is none, or if it is invalid (then `problems` explains why and `found` is True). `cas` is
    `sha256:` and the digest of the stored bytes. `head`, `entry` and `trust` exist only in a branch ledger: the commit id,
    its entry document, and the keys and rules in force. `sound` is its record of checked graphs, if it has a readable one.
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
        """Return this ledger's time at `now`: see `ledger_time`."""
        return ledger_time(now, self.entry)


class BlobCondition(StrEnum):
    """A catalog blob's condition."""

    OK = "ok"
    MISSING = "missing"
    MISMATCH = "mismatch"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class BlobReading:
    """A catalog blob. `content` is set only if it is OK."""

    condition: BlobCondition
    content: bytes | None = field(default=None, repr=False)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class IntentListing:
    """All usable recovery sidecars in ULID order, and the unusable ones. `problem` is set if they cannot be listed."""

    intents: tuple[Intent, ...] = ()
    unreadable: tuple[UnreadableDocument, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedMerge:
    """The merge that an entry records, and the digest of the rules in force afterwards."""

    commit: str
    trust_digest: str


@dataclass(frozen=True, slots=True)
class LaterEntries:
    """What the entries after one record: the resources that they changed, and their merges, oldest first.

    `merges` begins with the merge of the entry itself, if that records one.
    """

    moved: frozenset[Address] = frozenset()
    merges: tuple[RecordedMerge, ...] = ()


@dataclass(frozen=True, slots=True)
class ApprovalListing:
    """All approvals: the store's own `documents`, and `evidence` from approval commits that are not consumed yet.

    `decisions` revoke approvals or settle debts. `announced` are the approvals among `documents` that an entry
    announced but none records as consumed, with the commits in the ledger.
    """

    documents: tuple[Approval, ...] = ()
    evidence: tuple[ApprovalEvidence, ...] = ()
    unreadable: tuple[UnreadableDocument, ...] = ()
    problem: str | None = None
    decisions: tuple[DecisionEvidence, ...] = ()
    announced: tuple[ApprovalEvidence, ...] = ()

    def complete(self) -> ApprovalListing:
        """Return this listing. Raises GitopsError `approval_read_error` if some of it could not be read."""
        if self.problem is not None:
            raise GitopsError(Code.APPROVAL_READ_ERROR, self.problem, path=layout.APPROVALS)
        return self


@dataclass(frozen=True, slots=True)
class ChangesetListing:
    """The records of `open` changesets, oldest first. `problem` is set if they cannot be read."""

    index: ChangesetIndex = field(default_factory=ChangesetIndex)
    open: tuple[Changeset, ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class LedgerWrite:
    """One atomic update of the ledger.

    `retire` are the operation ids of sidecars to remove with it, and `consumed` are the approvals to mark as consumed
    (in a branch ledger, with the approval commits that become extra parents of the entry). A branch ledger requires
    `entry`, and a folder ignores it; the store sets its `number` and `previous`. `trust_files` replaces the snapshot of
    keys and rules (path to bytes) if given, and `sound` the record of checked graphs; a folder keeps neither. The
    changeset `events` are recorded atomically with the state.
    """

    state: LedgerState
    entry: LedgerEntry | None = None
    retire: tuple[str, ...] = ()
    consumed: tuple[Approval, ...] = ()
    trust_files: Mapping[str, bytes] | None = None
    sound: SoundRecord | None = None
    events: tuple[EventDraft, ...] = ()


class LedgerReader(Protocol):
    """A ledger's reading half. It takes no lock and writes nothing."""

    @property
    def snapshot_reads(self) -> bool:
        """Whether `view` is an immutable snapshot (a commit), so that planning needs no lock."""
        ...

    @property
    def parallel(self) -> int:
        """The useful number of concurrent reads."""
        ...

    @property
    def state_path(self) -> str:
        """The state document's location, for messages."""
        ...

    @property
    def lock_path(self) -> str:
        """The lock's location, for messages."""
        ...

    def observe_lock(self) -> LockObservation:
        """Return the lock and its holder. An unreadable lock counts as held and has a problem."""
        ...

    def view(self) -> LedgerView:
        """Return the current state, read once. Problems are part of it. Raises RemoteError only if a remote does not respond."""
        ...

    def intents(self) -> IntentListing:
        """Return the recovery sidecars."""
        ...

    def approvals(self) -> ApprovalListing:
        """Return the approvals."""
        ...

    def entries_since(self, entry: str) -> LaterEntries:
        """Return what later entries record, which is nothing for a folder, because it keeps no entries."""
        ...

    def blob(self, address: Address, digest: str) -> BlobReading:
        """Return the verified catalog blob of a query or policy with this digest."""
        ...

    def changesets(self) -> ChangesetListing:
        """Return the changesets that have not ended. If there are none, this reads only one small document."""
        ...

    def changeset(self, key: str) -> Changeset | None:
        """Return a changeset's record, even if it has ended, or None if it never existed.

        If it ended long ago, it has no members. Raises IntegrityError `changeset_invalid`, RemoteError, as do the next three.
        """
        ...

    def changeset_keys(self) -> tuple[str, ...]:
        """Return the keys of all changesets, newest first."""
        ...

    def latest_changeset(self) -> ChangesetStanding | None:
        """Return the active changeset or, if there is none, the newest, even if it has ended. None without changesets."""
        ...

    def changeset_of(self, commit: str) -> tuple[str, ...]:
        """Return the keys of the changesets that apply a merge commit, newest first."""
        ...

    def run_of(self, key: str) -> RunRecord | None:
        """Return a changeset's run record, or None if it was not recorded or is no longer kept.

        Also raises `run_record_invalid`.
        """
        ...

    def check_trailers(self, key: str) -> None:
        """Compare the ledger's commit messages about a changeset with its files, which are authoritative.

        Raises IntegrityError `trailer_mismatch`, `changeset_mismatch`.
        """
        ...

    def events(self, after: int = 0, key: str | None = None) -> tuple[ChangesetEvent, ...]:
        """Return the events after number `after`, for one changeset or all, in order.

        Events of changesets that ended long ago are no longer available, so the result may start later than `after`
        requires.
        """
        ...


class LedgerStore(LedgerReader, Protocol):
    """A ledger's writing half. All writes except locks, approvals and decisions require the caller to hold the lock."""

    def acquire(self, info: LockInfo) -> None:
        """Take the lock. Raises ConflictError `state_lock_held`, or RemoteError `state_lock_error`."""
        ...

    def release(self, lock_id: str) -> None:
        """Release the lock if it still has `lock_id`; otherwise do nothing.

        Raises GitopsError `state_unlock_error` if it cannot be removed.
        """
        ...

    def break_lock(self, lock_id: str) -> None:
        """Remove the lock with exactly this id. Raises GitopsError with a code from the force-unlock decision table."""
        ...

    def check_anchor(self, view: LedgerView) -> None:
        """Refuse a branch ledger if it lacks the entry in the anchor next to the graphs. Requires the lock.

        Raises IntegrityError `ledger_anchor_mismatch`, `ledger_anchor_invalid`, RemoteError `storage_failed`.
        """
        ...

    def former(self) -> FormerLedger | None:
        """Return traces of the cluster's earlier ledger if there is no branch, or None for a folder.

        Raises the errors of `check_anchor`.
        """
        ...

    def begin(
        self,
        view: LedgerView,
        intents: Sequence[Intent],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
        retire: Sequence[str] = (),
    ) -> LedgerView:
        """Announce an operation's intents before its first side effect. Returns the view to commit against.

        The same write records events of changesets and removes settled sidecars; it can also consist only of these. A branch
        ledger makes the intents durable here, in one signed entry; a folder makes each durable in `arm`. Writes that would
        change nothing, such as creating a changeset that exists, are skipped.

        Raises GitopsError `recovery_sidecar_write_error`, or `ledger_not_writable` if a remote refuses the entry;
        ConflictError `state_cas_mismatch`; without writing anything, ConflictError `changeset_active` while another
        changeset is active, `changeset_overlap` while one is still cleaning up resources that this one touches,
        `changeset_conflict` for a key that exists with another plan, `changeset_state_invalid` for an event that is not
        allowed now.
        """
        ...

    def arm(self, intent: Intent) -> None:
        """Make the intent durable, so that its operation can start. Raises `recovery_sidecar_write_error`."""
        ...

    def amend(self, intent: Intent) -> None:
        """Update an armed intent. Raises the same errors as `arm`; the caller continues anyway."""
        ...

    def disarm(self, operation_id: str) -> None:
        """Withdraw an armed intent if its operation certainly had no effect. Ignores failures, because recovery settles it."""
        ...

    def retire(
        self,
        view: LedgerView,
        operation_ids: Sequence[str],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
    ) -> LedgerView:
        """Remove settled sidecars when the state itself need not be written. Raises the errors of `commit`."""
        ...

    def put_blob(self, address: Address, content: bytes) -> str:
        """Publish a catalog blob and return its digest. Reuses a correct blob and replaces a corrupt one.

        Raises GitopsError `resource_payload_write_error`. Thread-safe.
        """
        ...

    def record_approval(self, approval: Approval) -> None:
        """Write an approval document. Raises GitopsError `approval_write_error`."""
        ...

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """Publish `write` by compare-and-swap if the ledger has not changed since `view`.

        Raises ConflictError `state_cas_mismatch` (nothing written), RemoteError `state_write_error`, and the errors of
        `begin` for its events.
        """
        ...
