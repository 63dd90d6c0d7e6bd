"""Which head of a ledger branch a clone believes: anti-rollback.

1. What was seen is noted before the remote is asked, so that another process's newer note is never taken for a rewound branch.
2. A head is believed if its chain verifies back to the last head seen here; where nothing was seen yet, to its first entry,
   which must stand up to the anchor.
3. It must continue everything that this clone knows: the ref `refs/gitops/seen/<cluster>`, the note beside the refs that no fetch
   can reach, and the clone's own branch of that name.
4. A head that is new here, or that is gone, is also held against what others saw: an approval names the entry that its signer had
   before them. One that stands up to rule 2 and is no part of the ledger proves that the ledger was rewound or forked, or that
   an old state of it is served. Whoever made an entry up stops nobody.
5. In a clone the branch of the same name follows what was verified, by fast-forward and through git itself, which does not
   move a branch under a checkout.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, GitRemote, GitStore, Person, RefUpdate
from gitops.ledger.chain import BRANCHES, SIGNED, ChainEntry, continues, first_entry, ledger_ref, verify_chain
from gitops.ledger.witnesses import Ledger, Line, Word, judge, named_entry
from gitops.model.approval import UnreadableApproval

__all__ = ["BranchPlace", "Heads", "Noted"]


def _nothing() -> str | None:
    """No note beside the refs."""
    return None


@dataclass(frozen=True, slots=True)
class BranchPlace:
    """Which cluster, and who writes: `signing_key` is a path for ssh-keygen, None where nothing is going to be written.

    `lock_ref` is tried first, `fallback_lock_ref` where the host refuses refs of that kind; `remember_lock_ref` is told. Both
    are looked at by everybody, so every writer must name the same two, in any order. `anchor` raises GitopsError for a first
    entry that is not this cluster's. `kept` and `keep` read and write the note of the last head seen that lies beside the refs.
    """

    cluster: str
    author: Person
    signing_key: str | None
    lock_ref: str
    fallback_lock_ref: str
    remember_lock_ref: Callable[[str], None] = field(default=lambda _: None)
    anchor: Callable[[ChainEntry], None] = field(default=lambda _: None)
    kept: Callable[[], str | None] = _nothing
    keep: Callable[[str], None] = field(default=lambda _: None)


@dataclass(frozen=True, slots=True)
class Noted:
    """What this clone knows of a ledger: the ref of what was seen, the note beside the refs, and its own branch."""

    seen: str | None
    kept: str | None
    local: str | None

    @property
    def pin(self) -> str | None:
        """The head to verify back to."""
        return self.seen or self.kept


class Heads:
    """The heads of one cluster's ledger, as a clone meets them."""

    def __init__(self, store: GitStore, remote: GitRemote, place: BranchPlace, faults: Faults) -> None:
        """`store` is the clone, `remote` has the branch that counts."""
        self._store = store
        self._remote = remote
        self._place = place
        self._faults = faults
        self.ref = ledger_ref(place.cluster)
        self.seen_ref = f"refs/gitops/seen/{place.cluster}"

    def noted(self) -> Noted:
        """What is known here now."""
        return Noted(self._store.resolve(self.seen_ref), self._place.kept(), self._store.resolve(self.ref))

    def newest(self) -> ChainEntry | None:
        """The head of the remote, believed and noted; None where there is no ledger and never was one.

        Raises IntegrityError `ledger_diverged` and what `verify_chain` raises, GitopsError `ledger_checked_out`, RemoteError.
        """
        noted = self.noted()
        head = self._remote.refs(self.ref).get(self.ref)
        if head is None:
            if (noted.pin or noted.local) is not None:
                detail = "the ledger branch was seen here before and is gone"
                raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=self.ref)
            self._hear(None)
            return None
        if self._store.resolve(head) is None:
            self._remote.fetch([self.ref])
        found = self._believed(head, noted)
        if head != noted.pin:
            self._hear(head)
        self.remember(noted.seen, head)
        if noted.local != head:
            self._follow(noted.local)
        return found

    def remember(self, seen: str | None, head: str) -> None:
        """Note a verified head. Another process that was faster held its head to the same rules."""
        if seen != head:
            with contextlib.suppress(ConflictError), around(self._faults, "ledger.branch", "note"):
                self._store.update_refs([RefUpdate(self.seen_ref, seen or ZERO, head)])
        if self._place.kept() != head:
            self._place.keep(head)

    def accept(self, head: str) -> None:
        """Note a head on purpose, whatever was seen before: after a ledger was begun anew. The caller has verified it.

        Raises ConflictError `git_ref_conflict` when somebody else notes another one just then.
        """
        noted = self.noted()
        updates = [RefUpdate(self.seen_ref, noted.seen or ZERO, head)] if noted.seen != head else []
        if noted.local is not None and noted.local != head:
            updates.append(RefUpdate(self.ref, noted.local, head))
        self._store.update_refs(updates)
        self._place.keep(head)

    def contradicted(self, head: str | None, named: Mapping[str, str]) -> list[UnreadableApproval]:
        """The approvals (ref to commit, objects here) that name an entry which is no part of the ledger that ends in `head`."""
        ledger = Ledger(self._place.cluster, head, Line(self._store, head), self._place.anchor)
        found = []
        for ref, commit_id in named.items():
            entry = named_entry(self._store, commit_id)
            word = None if entry is None else judge(self._store, entry, ledger)
            if word is not None and word.alarming:
                found.append(UnreadableApproval(ref.rpartition("/")[2], Code.LEDGER_DIVERGED, _told(ref, word)))
        if found and self._remote.refs(self.ref).get(self.ref) != head:
            # Who published a new entry may have been answered by an approval of it before we asked for those.
            detail = "another writer changed the ledger during this run; nothing was written"
            raise ConflictError(Code.STATE_CAS_MISMATCH, detail, path=self.ref)
        return found

    def approvals(self) -> Mapping[str, str]:
        """The branches of the remote with what people signed: approvals and decisions about them, their commits fetched."""
        folders = tuple(f"{folder}{self._place.cluster}/" for folder in SIGNED)
        waiting = {ref: oid for ref, oid in self._remote.refs(BRANCHES).items() if ref.startswith(folders)}
        self._remote.fetch([ref for ref, oid in waiting.items() if self._store.resolve(oid) is None])
        return waiting

    def _believed(self, head: str, noted: Noted) -> ChainEntry:
        """Rules 2 and 3."""
        found = verify_chain(self._store, head, noted.pin)
        if found.entry.target.cluster != self._place.cluster:
            detail = f"{head[:12]} is an entry of cluster {found.entry.target.cluster}"
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail, path=self.ref)
        if noted.pin is None:
            self._place.anchor(first_entry(self._store, head))
        others = ((noted.kept, "which was seen here"), (noted.local, "which the branch of this repository is at"))
        for other, what in others:
            if other not in (None, noted.pin) and not continues(self._store, head, other or ""):
                detail = f"head {head[:12]} does not continue {(other or '')[:12]}, {what}"
                raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=self.ref)
        return found

    def _hear(self, head: str | None) -> None:
        """Rule 4."""
        for problem in self.contradicted(head, self.approvals()):
            raise IntegrityError(problem.code, problem.detail, path=self.ref)

    def _follow(self, local: str | None) -> None:
        """Move the branch of this clone forward. Raises GitopsError `ledger_checked_out`, RemoteError."""
        try:
            with around(self._faults, "ledger.branch", "follow"):
                self._remote.fetch([f"{self.ref}:{self.ref}"])
        except (RemoteError, ConflictError) as error:
            if self._store.resolve(self.ref) != local:
                return
            # A remote that still answers is not what went wrong.
            self._remote.refs(self.ref)
            raise GitopsError(Code.LEDGER_CHECKED_OUT, error.detail, path=self.ref) from error


def _told(ref: str, word: Word) -> str:
    branch = ref.removeprefix("refs/heads/")
    return (
        f"{branch} names entry {word.entry[:12]}, {word.detail}; the ledger here does not have it. "
        "If the ledger was begun anew on purpose, delete that branch"
    )
