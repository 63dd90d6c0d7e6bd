"""Protection against rollback: decides which heads of a ledger branch a clone accepts.

1. The known heads are read before the remote is queried, so that another process's newer note never looks like a rewound
   branch.
2. A head is accepted if its chain verifies back to the last head seen here, or, if none was seen yet, to its first entry,
   which must pass the anchor.
3. It must continue every head that this clone knows: the ref `refs/gitops/seen/<cluster>`, the note next to the refs, which no
   fetch can change, and the clone's own branch with that name.
4. A head that is new here, or missing, is also compared with witnesses: an approval refers to the entry that its signer
   saw. If such an entry passes rule 2 and is not part of the ledger, it proves that the ledger was rewound or forked,
   or that an old state of it is served. A forged entry has no effect, nor does an entry in another copy of the
   repository.
5. In a clone, the branch with the same name follows the verified head, by fast-forward and through git itself, which does not
   move a checked-out branch.
6. After a push, this clone contains the pushed entry, as after `git push`. Otherwise an audit here would know newer entries
   than it can read.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from gitops.cluster.ledger.chain import (
    BRANCHES,
    SIGNED,
    AnchorFile,
    VerifiedEntry,
    first_entry,
    is_continuation,
    ledger_ref,
    read_verified_entry,
    split_chain,
    verify_chain,
)
from gitops.cluster.ledger.evidence import (
    EntryWitness,
    LedgerEntries,
    WitnessedLedger,
    document_problem,
    named_entry,
    verify_witness,
)
from gitops.cluster.ledger.files import restore_commands
from gitops.cluster.model.address import is_name
from gitops.cluster.model.ledger import FormerLedger, UnreadableDocument
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults, around
from gitops.git.port import ZERO, GitRemote, GitStore, Person, RefUpdate

# -- the pin -----------------------------------------------------------------------------------------------------------
# The newest ledger head that a clone has seen, in a file next to its refs. A ref would be exact, but a clone that
# mirrors a remote (`+refs/*:refs/*` with pruning) loses refs that the remote lacks, and accepts any refs that the
# remote invents. Fetches never write this file.


_FOLDER = "gitops/seen"


class HeadPin:
    """The newest ledger head that a clone has seen for one cluster."""

    def __init__(self, git_dir: str | Path, cluster: str) -> None:
        """`git_dir` is the folder that all work trees of the clone share.

        Raises ValueError for an invalid cluster name.
        """
        if not is_name(cluster):
            raise ValueError(f"{cluster!r} is not a valid cluster name")
        self._path = Path(git_dir) / _FOLDER / cluster

    def read(self) -> str | None:
        """Return the head's id, or None if the file is missing or cannot be read."""
        try:
            text = self._path.read_text("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return text if is_object_id(text) else None

    def write(self, head: str) -> None:
        """Write a head atomically.

        If the repository is not writable, the old head is kept; the ref has already been written.
        """
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Others must be able to read this file, because everyone who uses a shared repository compares heads with
            # it.
            temporary = self._path.with_name(f".{secrets.token_hex(8)}")
            try:
                with temporary.open("x", encoding="ascii") as file:
                    file.write(f"{head}\n")
                temporary.replace(self._path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise


@dataclass(frozen=True, slots=True)
class BranchSettings:
    """A ledger branch's settings: cluster, writer and refs.

    `signing_key` is a path for ssh-keygen; None for read-only.

    `lock_ref` is tried first, `fallback_lock_ref` if the host refuses such refs; `remember_lock_ref` gets the ref that
    worked; `lock_proven` means that this account can delete the first. Every writer checks both, so all must use the same
    two, in any order. `anchor` raises GitopsError for a first entry that is not this cluster's. `read_note` and `write_note`
    keep the last seen head in a file next to the refs. `repository` returns the id of the repository, for documents without
    a ledger. `anchor_file` is next to the graphs, None if this machine has no storage for them. `adopting` lets an import
    start a ledger although an earlier one was seen. `relist` makes the remote list its refs again if they were cached
    earlier in the run, and returns whether they were. `own` gives access to the clone as if it were a remote; None for a
    repository that is itself the remote. `shown` is the ref in which this clone shows the remote's ledger for an audit; None
    if it has none.
    """

    cluster: str
    author: Person
    signing_key: str | None
    lock_ref: str
    fallback_lock_ref: str
    remember_lock_ref: Callable[[str], None] = field(default=lambda _: None)
    lock_proven: bool = True
    anchor: Callable[[VerifiedEntry], None] = field(default=lambda _: None)
    read_note: Callable[[], str | None] = lambda: None
    write_note: Callable[[str], None] = field(default=lambda _: None)
    repository: Callable[[], str | None] = lambda: None
    anchor_file: AnchorFile | None = None
    adopting: bool = False
    relist: Callable[[], bool] = lambda: False
    own: GitRemote | None = None
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class KnownHeads:
    """The ledger heads that a clone knows: the ref of the last seen head, the note next to the refs, and its own branch."""

    seen: str | None
    note: str | None
    branch: str | None

    @property
    def pin(self) -> str | None:
        """The head at which verification can stop."""
        return self.seen or self.note


class Heads:
    """Reads and remembers the heads of one cluster's ledger."""

    def __init__(self, store: GitStore, remote: GitRemote, settings: BranchSettings, faults: Faults) -> None:
        """`store` is the clone, and `remote` has the authoritative branch."""
        self._store = store
        self._remote = remote
        self._settings = settings
        self._faults = faults
        self.cluster = settings.cluster
        self.ref = ledger_ref(settings.cluster)
        self.seen_ref = f"refs/gitops/seen/{settings.cluster}"

    def known(self) -> KnownHeads:
        """Return the heads that this clone knows now."""
        return KnownHeads(self._store.resolve(self.seen_ref), self._settings.read_note(), self._store.resolve(self.ref))

    def newest(self) -> VerifiedEntry | None:
        """Accept, remember and return the remote's head, or return None if there never was a ledger.

        Raises IntegrityError `ledger_diverged`, the errors of `verify_chain`, GitopsError `ledger_checked_out`,
        RemoteError.
        """
        try:
            return self._newest()
        except IntegrityError:
            # Refs listed before rule 1 prove nothing, because another process may have accepted a newer head in the
            # meantime.
            if not self._settings.relist():
                raise
        return self._newest()

    def _newest(self) -> VerifiedEntry | None:
        known = self.known()
        # A clone that has not seen a head yet also needs the approvals below. One response from the remote has both.
        listed = self._remote.refs(self.ref if known.pin else BRANCHES)
        head = listed.get(self.ref)
        if head is None:
            if self._settings.adopting:
                return None
            if (seen := known.pin or known.branch) is not None:
                restore = restore_commands(self.cluster, seen)
                detail = f"the ledger branch is missing, although it existed earlier; {restore}"
                raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=self.ref, fix="")
            self._check_witnesses(None, listed)
            return None
        if self._store.resolve(head) is None:
            self._remote.fetch([self.ref])
        try:
            found = self._verify_head(head, known)
        except IntegrityError as error:
            raise IntegrityError(
                error.code, f"{error.detail}; {self._explained(head, known)}", path=error.path
            ) from error
        if head != known.pin:
            self._check_witnesses(head, self._remote.refs(BRANCHES) if known.pin else listed)
        self.remember(known.seen, head)
        if known.branch != head:
            self._follow(known.branch)
        return found

    def remember(self, seen: str | None, head: str) -> None:
        """Remember a verified head. A faster process has verified its own head by the same rules."""
        if seen != head:
            with contextlib.suppress(ConflictError), around(self._faults, "ledger.branch", "note"):
                self._store.update_refs([RefUpdate(self.seen_ref, seen or ZERO, head)])
        if self._settings.read_note() != head:
            self._settings.write_note(head)

    def published(self, seen: str | None, head: str) -> None:
        """Remember an entry that this clone pushed, and show it as the remote's head."""
        shown = self._settings.shown
        if shown is not None and (old := self._store.resolve(shown)) != head:
            with contextlib.suppress(ConflictError):
                self._store.update_refs([RefUpdate(shown, old or ZERO, head)])
        self.remember(seen, head)

    def accept(self, head: str) -> None:
        """Remember a head regardless of earlier ones, because a person started the ledger again on purpose.

        The caller has verified it.

        Raises ConflictError `git_ref_conflict` if another process remembers a different head at the same time.
        """
        known = self.known()
        updates = [RefUpdate(self.seen_ref, known.seen or ZERO, head)] if known.seen != head else []
        if known.branch is not None and known.branch != head:
            updates.append(RefUpdate(self.ref, known.branch, head))
        self._store.update_refs(updates)
        self._settings.write_note(head)

    def contradicted(self, head: str | None, named: Mapping[str, str]) -> list[UnreadableDocument]:
        """Return the signed documents (ref to commit, objects here) that refer to an entry outside the ledger with this head.

        Those that prove that the ledger is incomplete have the code `ledger_diverged`; the others prove nothing and are
        listed so that their branches can be deleted.
        """
        ledger, found = self._witnessed(head), []
        for ref, commit_id in named.items():
            entry = named_entry(self._store, commit_id)
            witness = None if entry is None else verify_witness(self._store, entry, ledger)
            if witness is None or not witness.contradicts:
                continue
            branch, doubt = ref.removeprefix("refs/heads/"), self._doubt(commit_id, witness, ledger)
            detail = f"{branch} names entry {witness.entry[:12]}, {witness.detail}; "
            if doubt:
                detail += f"{doubt}, so it proves nothing: git push origin --delete {branch}"
            else:
                detail += "the ledger here lacks it; if the ledger was started again on purpose, delete that branch"
            code = Code.LEDGER_FOREIGN_DOCUMENT if doubt else Code.LEDGER_DIVERGED
            found.append(UnreadableDocument(ref.rpartition("/")[2], code, detail))
        if found:
            self._settings.relist()
        if found and self._remote.refs(self.ref).get(self.ref) != head:
            # Another writer may have published an entry, and an approver may have signed against it, since we read the head.
            detail = "another writer changed the ledger during this command; nothing was written"
            raise ConflictError(Code.STATE_CAS_MISMATCH, detail, path=self.ref)
        return found

    def _witnessed(self, head: str | None) -> WitnessedLedger:
        entries, settings = LedgerEntries(self._store, head), self._settings
        repository = (
            settings.repository() if head is None else read_verified_entry(self._store, head).entry.target.repository
        )
        return WitnessedLedger(self.cluster, head, entries, settings.anchor, repository)

    def _doubt(self, commit_id: str, witness: EntryWitness, ledger: WitnessedLedger) -> str:
        """Explain why a signed document proves nothing, or return an empty string if it is a proof."""
        try:
            return document_problem(self._store, commit_id, witness, ledger)
        except GitopsError as error:
            return error.detail

    def former(self) -> FormerLedger | None:
        """Return the first and the newest known entry of a ledger whose branch is gone, from this clone or a signed document."""
        known = self.known()
        head, found = known.pin or known.branch, "an entry that was seen in this repository"
        if head is None:
            proven = self.proven()
            numbers = {ref: read_verified_entry(self._store, entry).entry.number for ref, entry in proven.items()}
            if not numbers:
                return None
            ref = max(numbers, key=lambda each: numbers[each])
            head, found = proven[ref], f"an entry that {ref.removeprefix('refs/heads/')} names"
        rules = read_verified_entry(self._store, head).after.digest
        return FormerLedger(first_entry(self._store, head).commit.id, head, found, rules)

    def proven(self) -> Mapping[str, str]:
        """Return the entries that signed documents prove to exist, by their branches, whatever the ledger branch contains."""
        ledger, signed = self._witnessed(None), self.approvals()
        named = {ref: named_entry(self._store, commit) for ref, commit in signed.items()}
        witnesses = {ref: verify_witness(self._store, entry, ledger) for ref, entry in named.items() if entry}
        return {
            ref: witness.entry
            for ref, witness in witnesses.items()
            if witness.contradicts and not self._doubt(signed[ref], witness, ledger)
        }

    def approvals(self) -> Mapping[str, str]:
        """Fetch and return the remote's approval and decision branches."""
        return self._fetch_signed(self._remote.refs(BRANCHES))

    def _fetch_signed(self, listed: Mapping[str, str]) -> Mapping[str, str]:
        folders = tuple(f"{folder}{self._settings.cluster}/" for folder in SIGNED)
        signed = {ref: oid for ref, oid in listed.items() if ref.startswith(folders)}
        self._remote.fetch([ref for ref, oid in signed.items() if self._store.resolve(oid) is None])
        return signed

    def _verify_head(self, head: str, known: KnownHeads) -> VerifiedEntry:
        """Verify a head by rules 2 and 3."""
        found = verify_chain(self._store, head, known.pin)
        if self._settings.cluster not in (found.entry.target.cluster, *found.entry.new_names):
            detail = f"{head[:12]} is an entry of cluster {found.entry.target.cluster}"
            raise IntegrityError(Code.LEDGER_ENTRY_INVALID, detail, path=self.ref)
        if known.pin is None:
            self._settings.anchor(first_entry(self._store, head))
        others = ((known.note, "which was seen here before"), (known.branch, "the branch head in this repository"))
        for other, what in others:
            if other not in (None, known.pin) and not is_continuation(self._store, head, other or ""):
                detail = f"head {head[:12]} does not descend from {(other or '')[:12]}, {what}"
                raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=self.ref)
        return found

    def _explained(self, head: str, known: KnownHeads) -> str:
        """Describe the valid part of a branch that cannot be verified, with the command that repairs it."""
        good: VerifiedEntry | None = None
        bad: tuple[str, ...] = ()
        with contextlib.suppress(GitopsError):
            good, bad, _ = split_chain(self._store, head, known.pin, self._settings.anchor)
        found = "no entry of it is good"
        if good is not None:
            found = f"the newest good entry is {good.entry.number}, {good.commit.id[:12]}"
        above = f"; {bad[-1][:12]} above it is not good" if good is not None and bad else ""
        return f"{found}{above}; nothing is written until it is repaired: gitops ledger repair --cluster {self.cluster}"

    def _check_witnesses(self, head: str | None, listed: Mapping[str, str]) -> None:
        """Check witnesses by rule 4; `listed` are the bot's branches on the remote."""
        for problem in self.contradicted(head, self._fetch_signed(listed)):
            if problem.code == Code.LEDGER_DIVERGED:
                raise IntegrityError(problem.code, problem.detail, path=self.ref)

    def _follow(self, local: str | None) -> None:
        """Move this clone's branch forward. Raises GitopsError `ledger_checked_out`, RemoteError."""
        try:
            with around(self._faults, "ledger.branch", "follow"):
                # The verified objects are already here, so don't query a remote.
                here = self._settings.own
                if here is None:
                    self._remote.fetch([f"{self.ref}:{self.ref}"])
                else:
                    here.fetch([f"{self.seen_ref}:{self.ref}"])
        except (RemoteError, ConflictError) as error:
            if self._store.resolve(self.ref) != local:
                return
            # If the remote fails again here, raise that error. Otherwise the checkout is the cause.
            self._remote.refs(self.ref)
            raise GitopsError(Code.LEDGER_CHECKED_OUT, error.detail, path=self.ref) from error
