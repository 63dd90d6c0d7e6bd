"""The read half of a ledger branch: only a head that `gitops.cluster.ledger.heads` accepts is read."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gitops.cluster.ledger import layout
from gitops.cluster.ledger.anchor import check_anchor
from gitops.cluster.ledger.chain import APPROVALS, ENTRY, SOUND, VerifiedEntry
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.ledger.evidence import announced_evidence, read_decision_evidence, read_evidence
from gitops.cluster.ledger.heads import BranchSettings, Heads
from gitops.cluster.ledger.port import ApprovalListing, IntentListing, LedgerView
from gitops.cluster.ledger.readings import FoundDocument, approval_listing, intent_listing, view_of
from gitops.cluster.ledger.record_check import check_trailers
from gitops.cluster.ledger.records import ChangesetReader, ChangesetRecords
from gitops.cluster.ledger.witnesses import LedgerEntries
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import FormerLedger
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import BugError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults
from gitops.git.port import GitRemote, GitStore

__all__ = ["BranchReader"]

# One run opens a ledger several times, and to read and parse the state of a large cluster takes long. A tree is what its id says.
_MOST_VIEWS = 2
_VIEWS: dict[tuple[GitStore, str], LedgerView] = {}


class BranchReader(ChangesetReader):
    """Reads the newest entry that this clone accepts: a commit is an immutable snapshot, and it is at hand."""

    snapshot_reads = True
    parallel = 1

    def __init__(self, store: GitStore, remote: GitRemote, place: BranchSettings, faults: Faults) -> None:
        """`store` holds the objects, `remote` has the refs that count."""
        self._store = store
        self._remote = remote
        self._place = place
        self._heads = Heads(store, remote, place, faults)
        self._ref = self._heads.ref
        self._last: LedgerView | None = None
        self._records: tuple[str | None, ChangesetRecords] | None = None

    @property
    def state_path(self) -> str:
        """Where the state document is, for people: what `git show` takes."""
        return f"{self._ref.removeprefix('refs/heads/')}:{layout.STATE}"

    def view(self) -> LedgerView:
        """The newest entry, verified. A branch that does not verify is a problem of the view, never an empty ledger."""
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
        """The recovery sidecars of the head."""
        try:
            return intent_listing(self._documents(layout.RECOVERIES))
        except GitopsError as error:
            return IntentListing(problem=error.detail)

    def approvals(self) -> ApprovalListing:
        """Approval documents from the head, and all approval and decision commits from their branches, consumed ones too."""
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

    def moved_since(self, entry: str) -> frozenset[Address]:
        """The resources of changes that the entries after this one applied; entries back to it are read."""
        moved: set[Address] = set()
        at = self._head()
        while at is not None and at != entry:
            commit = self._store.commit(at)
            found = read_entry(self._store.read(commit.tree, ENTRY) or b"")
            moved |= found.moved
            at = next(iter(commit.parents), None)
        return frozenset(moved)

    def check_anchor(self, view: LedgerView) -> None:
        """Compare the ledger with the anchor beside the graphs, where this machine has their storage."""
        if self._place.anchor_file is not None:
            check_anchor(self._store, self._place.anchor_file, view, self._place.cluster)

    def former(self) -> FormerLedger | None:
        """The anchor beside the graphs, else the newest entry that this clone or a signed document of the cluster knows."""
        file = self._place.anchor_file
        anchor = None if file is None else file.read()
        if anchor is not None and file is not None:
            found = f"{file.place}, entry {anchor.number}"
            return FormerLedger(anchor.genesis, anchor.head, found, anchor.trust_digest)
        return self._heads.former()

    def check_trailers(self, key: str) -> None:
        """Compare the message of each entry that has events of a changeset with its files, back to the one that created it."""
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
        """The view of an entry that was read or written here, kept for the next one that opens the ledger."""
        _VIEWS.pop(place := (self._store, found.commit.tree), None)
        _VIEWS[place] = view
        for oldest in list(_VIEWS)[:-_MOST_VIEWS]:
            _VIEWS.pop(oldest, None)
        return view

    def _head(self) -> str | None:
        """The verified head that reads come from: that of the last view, or of one taken now. Raises GitopsError."""
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
        """The changesets of an entry, which a run asks for again and again."""
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
