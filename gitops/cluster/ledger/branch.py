"""The ledger on a branch: the tree of a ledger folder in a signed, linear chain of commits that everyone can verify.

`gitops.cluster.ledger.chain` describes the files of an entry and the rules for verifying entries.

Rules of this module:

1. The branch changes only by compare-and-swap on the remote, so a conflict writes nothing.
2. Only a head that `gitops.cluster.ledger.heads` accepts is read.
3. The program's own entries are verified like all others before they are pushed, because an invalid entry would end the
   ledger.
4. Blobs and changed sidecars wait in memory for the next entry, because objects without a ref are not durable.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gitops.cluster.approvals.documents import write_approval
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.chain import (
    APPROVALS,
    ENTRY,
    SOUND,
    TRUST,
    StorageAnchor,
    VerifiedEntry,
    check_anchor,
    first_entry,
    ledger_ref,
    read_verified_entry,
    trust_files,
)
from gitops.cluster.ledger.changesets import write_index
from gitops.cluster.ledger.documents import read_entry, write_entry, write_intent, write_sound, write_state
from gitops.cluster.ledger.evidence import LedgerEntries, announced_evidence, read_decision_evidence, read_evidence
from gitops.cluster.ledger.files import (
    FoundDocument,
    approval_documents,
    approval_key,
    approval_listing,
    blob_reading,
    check_write,
    conflict_error,
    consumed_approval,
    intent_key,
    intent_keys,
    intent_listing,
    next_entry,
    replacement_files,
    require_entry,
    sidecar_error,
    state_cas,
    view_of,
)
from gitops.cluster.ledger.git_lock import GitLock, LockRefs, push_own
from gitops.cluster.ledger.heads import BranchSettings, Heads
from gitops.cluster.ledger.port import (
    ApprovalListing,
    BlobCondition,
    BlobReading,
    IntentListing,
    LaterEntries,
    LedgerView,
    LedgerWrite,
    RecordedMerge,
)
from gitops.cluster.ledger.records import ChangesetReader, ChangesetRecords, Recording
from gitops.cluster.ledger.trailers import check_trailers, commit_message
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.changeset import EventDraft
from gitops.cluster.model.ledger import EntryKind, FormerLedger, Intent, LedgerEntry, LockInfo, LockObservation
from gitops.core.canonical import digest
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError, ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, NoFaults, around
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, RefUpdate

__all__ = [
    "BranchLedger",
    "BranchReader",
    "BranchSettings",
]


# -- reading -----------------------------------------------------------------------------------------------------------
# The read half of a ledger branch. It only reads a head that `gitops.cluster.ledger.heads` accepts.


# A run opens a ledger several times, and reading and parsing the state of a large cluster takes long. Trees with the
# same id have the same content.
_MOST_VIEWS = 2
_VIEWS: dict[tuple[GitStore, str], LedgerView] = {}


class BranchReader(ChangesetReader):
    """Reads the newest entry that this clone accepts. Each commit is an immutable local snapshot."""

    snapshot_reads = True
    parallel = 1

    def __init__(self, store: GitStore, remote: GitRemote, place: BranchSettings, faults: Faults) -> None:
        """`store` holds the objects, and `remote` has the authoritative refs."""
        self._store = store
        self._remote = remote
        self._place = place
        self._heads = Heads(store, remote, place, faults)
        self._ref = self._heads.ref
        self._last: LedgerView | None = None
        self._records: tuple[str | None, ChangesetRecords] | None = None

    @property
    def state_path(self) -> str:
        """Path of the state document, as an argument for `git show`."""
        return f"{self._ref.removeprefix('refs/heads/')}:{layout.STATE}"

    def view(self) -> LedgerView:
        """Return the newest entry, verified.

        If the branch cannot be verified, the view has a problem; it is never an empty ledger.
        """
        try:
            found = self._heads.newest()
            view = LedgerView() if found is None else self._view_at(found)
        except (RemoteError, BugError):
            raise
        except GitopsError as error:
            problems = Diagnostics()
            problems.add_error(error)
            view = LedgerView(found=True, problems=tuple(problems))
        self._last = view
        return view

    def intents(self) -> IntentListing:
        """Return the recovery sidecars in the head."""
        try:
            return intent_listing(self._documents(layout.RECOVERIES))
        except GitopsError as error:
            return IntentListing(problem=error.detail)

    def approvals(self) -> ApprovalListing:
        """Return the approval documents in the head, and all approval and decision commits, even consumed ones."""
        listing = ApprovalListing()
        try:
            listing = approval_listing(self._documents(layout.APPROVALS))
            signed, head = self._heads.approvals(), self._head()
            contradicting = self._heads.contradicted(head, signed)
            begun = [a.approval_id for a in listing.documents if a.consumed_at is None]
            announced = () if head is None or not begun else announced_evidence(self._store, head, begun)
        except GitopsError as error:
            return replace(listing, problem=error.detail)
        store, entries = self._store, LedgerEntries(self._store, head)
        approvals = [pair for pair in signed.items() if pair[0].startswith(APPROVALS)]
        decisions = [pair for pair in signed.items() if not pair[0].startswith(APPROVALS)]
        return replace(
            listing,
            evidence=tuple(read_evidence(store, ref, oid, entries) for ref, oid in approvals),
            decisions=tuple(read_decision_evidence(store, ref, oid, entries) for ref, oid in decisions),
            announced=announced,
            unreadable=(*listing.unreadable, *contradicting),
        )

    def entries_since(self, entry: str) -> LaterEntries:
        """Return what the entries after `entry` record. Reads all entries back to that one."""
        moved: set[Address] = set()
        merges: list[RecordedMerge] = []
        at, last = self._head(), False
        while at is not None and not last:
            commit, last = self._store.commit(at), at == entry
            found = read_entry(self._store.read(commit.tree, ENTRY) or b"")
            moved |= frozenset() if last else found.moved
            if found.source is not None:
                merges.append(RecordedMerge(found.source.commit, found.trust_digest))
            at = next(iter(commit.parents), None)
        return LaterEntries(frozenset(moved), tuple(reversed(merges)))

    def check_anchor(self, view: LedgerView) -> None:
        """Compare the ledger with the anchor next to the graphs, if this machine has access to their storage."""
        if self._place.anchor_file is not None:
            check_anchor(self._store, self._place.anchor_file, view, self._place.cluster)

    def former(self) -> FormerLedger | None:
        """Return the anchor next to the graphs, or the newest entry that this clone or a signed document knows."""
        file = self._place.anchor_file
        anchor = None if file is None else file.read()
        if anchor is not None and file is not None:
            found = f"{file.place}, entry {anchor.number}"
            return FormerLedger(anchor.genesis, anchor.head, found, anchor.trust_digest)
        return self._heads.former()

    def check_trailers(self, key: str) -> None:
        """Compare each commit message about a changeset with its files, back to the entry that created the changeset."""
        events = self.events(key=key)
        at = self._head() if events else None
        while at is not None:
            commit = self._store.commit(at)
            index = ChangesetRecords(partial(self._store.read, commit.tree)).index
            if index.seq < events[0].seq:
                return
            check_trailers(self._store, at)
            at = next(iter(commit.parents), None)

    def _view_at(self, found: VerifiedEntry) -> LedgerView:
        view = _VIEWS.get((self._store, found.commit.tree))
        if view is None:
            view = view_of(*(self._store.read(found.commit.tree, path) for path in (layout.STATE, SOUND)))
        return self._kept(replace(view, head=found.commit.id, entry=found.entry, trust=found.after), found)

    def _kept(self, view: LedgerView, found: VerifiedEntry) -> LedgerView:
        """Return the view of an entry that was read or written here, cached for the next time the ledger is opened."""
        _VIEWS.pop(place := (self._store, found.commit.tree), None)
        _VIEWS[place] = view
        for oldest in list(_VIEWS)[:-_MOST_VIEWS]:
            _VIEWS.pop(oldest, None)
        return view

    def _head(self) -> str | None:
        """Return the verified head for reads: that of the last view, or of a new view. Raises GitopsError."""
        view = self._last or self.view()
        if view.found and view.entry is None:
            problem = view.problems[0]
            raise IntegrityError(problem.code, problem.message, path=problem.path)
        return view.head

    def _read(self, path: str) -> bytes | None:
        return None if (head := self._head()) is None else self._store.read(self._store.commit(head).tree, path)

    def _changesets(self) -> ChangesetRecords:
        return self._changesets_at(self._head())

    def _changesets_at(self, head: str | None) -> ChangesetRecords:
        """Return the changesets of an entry. Cached, because a run requests them repeatedly."""
        if self._records is None or self._records[0] != head:
            tree = None if head is None else self._store.commit(head).tree
            self._records = (
                head,
                ChangesetRecords(lambda path: None if tree is None else self._store.read(tree, path)),
            )
        return self._records[1]

    def _documents(self, folder: str) -> list[FoundDocument]:
        head = self._head()
        root = None if head is None else self._store.subtree(self._store.commit(head).tree, folder)
        if root is None:
            return []
        return [FoundDocument(e.name, self._store.read(root, e.name), "not a file") for e in self._store.entries(root)]


Files = Mapping[str, bytes | None]
"""Maps paths in the ledger to content; None removes the file."""


@dataclass(frozen=True, slots=True)
class _Draft:
    """A signed entry that is not pushed yet, with the staged files and the events that it contains."""

    found: VerifiedEntry
    staged: Files
    recorded: Recording | None


class BranchLedger(BranchReader):
    """A LedgerStore on a branch of a git remote. The threads of one run can share it."""

    def __init__(
        self, store: GitStore, remote: GitRemote, place: BranchSettings, clock: Clock, faults: Faults | None = None
    ) -> None:
        """`store` holds the objects, and `remote` has the authoritative refs."""
        self._faults = faults or NoFaults()
        super().__init__(store, remote, place, self._faults)
        self._clock = clock
        places = LockRefs(place.lock_ref, place.fallback_lock_ref, place.remember_lock_ref, place.lock_proven)
        self._lock = GitLock(store, remote, places, self._faults)
        self._guard = threading.Lock()
        self._staged: dict[str, bytes | None] = {}

    @property
    def lock_path(self) -> str:
        """The lock ref."""
        return self._lock.ref

    def observe_lock(self) -> LockObservation:
        """Return the state of the lock ref, with the content of its commit."""
        return self._lock.observe()

    def blob(self, address: Address, digest: str) -> BlobReading:
        """Return a catalog blob from the head, or one that is staged for the next entry."""
        key = layout.blob_key(address, digest)
        if key is None:
            return blob_reading(None, digest)
        content = self._staged.get(key)
        try:
            return blob_reading(self._read(key) if content is None else content, digest)
        except GitopsError as error:
            return BlobReading(BlobCondition.UNREADABLE, detail=error.detail)

    def acquire(self, info: LockInfo) -> None:
        """Take the lock by creating its ref. Raises ConflictError `state_lock_held` or RemoteError `state_lock_error`."""
        self._lock.acquire(info, self._place.author)

    def release(self, lock_id: str) -> None:
        """Delete the lock ref if it still has this id."""
        self._lock.release(lock_id)

    def break_lock(self, lock_id: str) -> None:
        """Delete the lock ref with exactly this id."""
        self._lock.break_lock(lock_id)

    def begin(
        self,
        view: LedgerView,
        intents: Sequence[Intent],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
        retire: Sequence[str] = (),
    ) -> LedgerView:
        """Push one entry with all intents of an operation and the approvals that they use.

        Call it before the first side effect.
        """
        due, recorded = require_entry(entry), self._recorded(view, events)
        if not (intents or retire or recorded):
            return view
        try:
            files = approval_documents(self._store, due.approvals) | {intent_key(i): write_intent(i) for i in intents}
            draft = self._draft(view, due, {**dict.fromkeys(intent_keys(retire)), **files}, recorded)
        except BugError:
            raise
        except GitopsError as error:
            raise GitopsError(Code.RECOVERY_SIDECAR_WRITE_ERROR, error.detail, path=self._ref) from error
        try:
            return self._publish(view, draft)
        except RemoteError as error:
            raise error.during(Code.RECOVERY_SIDECAR_WRITE_ERROR, self._ref) from error

    def arm(self, intent: Intent) -> None:
        """Check that the intent was announced. `begin` has already made it durable."""
        key = intent_key(intent)
        try:
            announced = self._read(key) is not None
        except GitopsError as error:
            raise sidecar_error(intent, error.detail) from error
        if not announced:
            raise sidecar_error(intent, "the operation was not announced")

    def amend(self, intent: Intent) -> None:
        """Stage the changed intent for the next entry."""
        self._stage(intent_key(intent), write_intent(intent))

    def disarm(self, operation_id: str) -> None:
        """Remove the sidecar with the next entry."""
        for key in intent_keys([operation_id]):
            self._stage(key, None)

    def retire(
        self,
        view: LedgerView,
        operation_ids: Sequence[str],
        entry: LedgerEntry | None,
        events: Sequence[EventDraft] = (),
    ) -> LedgerView:
        """Push an entry that only removes settled sidecars and records events."""
        due, recorded = require_entry(entry), self._recorded(view, events)
        return self._publish(view, self._draft(view, due, dict.fromkeys(intent_keys(operation_ids)), recorded))

    def put_blob(self, address: Address, content: bytes) -> str:
        """Stage a catalog blob for the next entry. Reuses an intact one in the head."""
        found = digest(content)
        key = layout.blob_key(address, found)
        if key is None:
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, "the address has no catalog blob", path=address)
        try:
            content.decode()
            if self._read(key) != content:
                self._stage(key, content)
        except UnicodeDecodeError as error:
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, f"not UTF-8: {error}", path=address) from error
        except GitopsError as error:
            raise GitopsError(Code.RESOURCE_PAYLOAD_WRITE_ERROR, error.detail, path=address) from error
        return found

    def record_approval(self, approval: Approval) -> None:
        """Refuse, because approvals for a branch ledger are signed commits on branches."""
        raise GitopsError(
            Code.APPROVAL_WRITE_ERROR,
            "approve with a signed commit: gitops approve ADDRESS --request N",
            path=approval.resource,
        )

    def commit(self, view: LedgerView, write: LedgerWrite) -> LedgerView:
        """Push one entry with the state, blobs, retired sidecars, consumed approvals, and any new keys and rules."""
        check_write(view, write)
        files: dict[str, bytes | None] = dict.fromkeys(intent_keys(write.retire))
        files[layout.STATE] = state = write_state(write.state)
        files |= {SOUND: write_sound(write.sound)} if write.sound else {}
        now = timestamp(self._clock.now())
        files |= {approval_key(a): write_approval(consumed_approval(a, write.state, now)) for a in write.consumed}
        if write.trust_files is not None:
            held = () if view.head is None else trust_files(self._store, view.head)
            files |= {f"{TRUST}/{path}": new for path, new in replacement_files(held, write.trust_files).items()}
        written = LedgerView(found=True, state=write.state, cas=state_cas(state), sound=write.sound or view.sound)
        recorded = self._recorded(view, write.events)
        return self._publish(view, self._draft(view, require_entry(write.entry), files, recorded), written)

    def _stage(self, key: str, content: bytes | None) -> None:
        with self._guard:
            self._staged[key] = content

    def _recorded(self, view: LedgerView, events: Sequence[EventDraft]) -> Recording | None:
        """Return the record of these events on top of the entry of `view`, or None if there is nothing to record."""
        recording = self._changesets_at(view.head).recording(events) if events else None
        return recording if recording is not None and recording.events else None

    def _draft(self, view: LedgerView, entry: LedgerEntry, files: Files, recorded: Recording | None = None) -> _Draft:
        """Sign the entry that follows `view`.

        Raises GitopsError `ledger_not_writable` if the entry would be invalid.
        """
        if view.found and view.entry is None:
            raise BugError("an entry on top of one that was not accepted")
        with self._guard:
            staged = dict(self._staged)
        if recorded is not None:
            entry = replace(entry, changeset=recorded.events[-1].changeset)
            files = {**files, **recorded.files, layout.INDEX: write_index(recorded.index)}
        # The caller's files win over staged ones, so that a retired sidecar is not amended again.
        with around(self._faults, "ledger.branch", "sign"):
            found = self._sign(view, next_entry(entry, view), {**staged, **files}, recorded)
        return _Draft(found, staged, recorded)

    def _publish(self, view: LedgerView, draft: _Draft, written: LedgerView | None = None) -> LedgerView:
        """Push a signed entry on top of `view`. Files that were `written` or did not change are not read again.

        Raises ConflictError `state_cas_mismatch`, RemoteError `state_write_error`, GitopsError `ledger_not_writable`.
        """
        found, staged = draft.found, draft.staged
        seen = self._heads.known().seen
        try:
            with around(self._faults, "ledger.branch", "push"):
                moved = RefUpdate(self._ref, view.head or ZERO, found.commit.id)
                # If the cluster is renamed, the ledger continues on another branch after this entry.
                begun = [RefUpdate(ledger_ref(name), ZERO, moved.new) for name in found.entry.new_names]
                push_own(self._remote, moved, *begun)
        except ConflictError as error:
            raise conflict_error() from error
        except RemoteError as error:
            raise error.during(Code.STATE_WRITE_ERROR, self._ref) from error
        except GitopsError as error:
            raise GitopsError(Code.LEDGER_NOT_WRITABLE, error.detail, path=self._ref) from error
        with self._guard:
            self._staged = {k: v for k, v in self._staged.items() if k not in staged or staged[k] is not v}
        if found.entry.former is None:
            self._heads.published(seen, found.commit.id)
        else:
            self._heads.accept(found.commit.id)
        if draft.recorded is not None:
            known = self._changesets_at(view.head)
            known.advance(draft.recorded)
            self._records = (found.commit.id, known)
        self._write_anchor(found)
        # Only `commit` writes the state and the record of checked graphs, which are slow to read.
        newest = written or (view if view.found else self._view_at(found))
        self._last = self._kept(replace(newest, head=found.commit.id, entry=found.entry, trust=found.after), found)
        return self._last

    def _write_anchor(self, found: VerifiedEntry) -> None:
        """Write the anchor of a published entry next to the graphs, if this machine has access to their storage."""
        file, entry = self._place.anchor_file, found.entry
        if file is None or entry.former is not None:
            return
        # The entry is already published. If storage fails now, the anchor is outdated, and the next writer reads it
        # first.
        with contextlib.suppress(RemoteError), around(self._faults, "ledger.anchor", "write"):
            known = file.read() if entry.number > 1 and entry.kind is not EntryKind.ADOPT else None
            genesis = first_entry(self._store, found.commit.id).commit.id if known is None else known.genesis
            target = entry.target
            digest = found.after.digest
            file.write(StorageAnchor(target.cluster, target.repository, genesis, found.commit.id, entry.number, digest))

    def _sign(
        self, view: LedgerView, entry: LedgerEntry, files: Files, recorded: Recording | None = None
    ) -> VerifiedEntry:
        """Write the commit of an entry, and verify it before it is pushed."""
        if self._place.signing_key is None:
            raise GitopsError(Code.SIGNING_KEY_MISSING, "entries of a branch ledger are signed", path=self._ref)
        base = None if view.head is None else self._store.commit(view.head).tree
        tree = self._store.write_files(base, {**files, ENTRY: write_entry(entry)})
        before = () if view.head is None else (view.head,)
        author = replace(self._place.author, time=int(self._clock.now().timestamp()))
        commit = NewCommit(tree, (*before, *entry.carried), author, commit_message(entry, recorded))
        oid = self._store.write_commit(commit, signing_key=self._place.signing_key)
        try:
            return read_verified_entry(self._store, oid)
        except IntegrityError as error:
            raise GitopsError(Code.LEDGER_NOT_WRITABLE, error.detail, path=self._ref) from error
