"""A forge that is only a git repository: requests, comments and statuses are commits behind refs of their own.

    refs/gitops/requests/<n>/head      the head commit of request n, which so stays alive when its branch is deleted
    refs/gitops/requests/<n>/meta      a chain of commits whose trees hold the request's documents
    refs/gitops/statuses/<2 hex>       a chain of commits whose trees hold the statuses of commits that start so
    refs/gitops/{checks,deployments,issues}/…   chains alike, see `reports`

Rules:

1. Every change is a commit on top of what was read, pushed by compare-and-swap. On a conflict the forge reads again and
   changes again, so no update is lost; a number belongs to the writer that created its refs.
2. The remote's refs count; objects that are missing here are fetched into refs of the same name, never into a branch.
3. Who may write these refs is decided by the repository's pre-receive hook, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import TypeVar

from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.forge.port import ChangeRequest
from gitops.forge.refs import records
from gitops.forge.refs.document_forge import Amend, DocumentForge, OperatorSettings
from gitops.forge.refs.records import MAX_DOCUMENT, DocumentFolder, PushedBranch
from gitops.git.port import ZERO, EntryType, GitRemote, GitStore, NewCommit, Person, RefUpdate, TreeEntry

# Each round of a race has a winner: with eight writers, losing all of these happens once in a million.
_ATTEMPTS = 100

T = TypeVar("T")


class LocalForge(DocumentForge):
    """The forge of a repository, over a clone of it or the repository itself."""

    def __init__(
        self, store: GitStore, remote: GitRemote, bot: Person, clock: Clock, settings: OperatorSettings | None = None
    ) -> None:
        """`store` holds the objects, `remote` has the refs that count; `bot` writes the commits and its own comments."""
        super().__init__(bot, clock, settings or OperatorSettings())
        self._store = store
        self._remote = remote

    def request(self, number: int) -> ChangeRequest:
        """One change request; its head commit is here afterwards. Raises GitopsError `request_not_found`."""
        ref = records.meta_ref(number)
        refs = {} if records.number_of(ref) is None else self._refs(ref.removesuffix("/meta"))
        if ref not in refs:
            raise records.not_found(number)
        return records.read_request(self._at(refs[ref]), number)

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes since it left its target, sorted; both names of a moved file.

        For a merged request, the target before the merge is the first parent of the commit that merged it.
        Raises GitopsError `request_not_found`.
        """
        head, base = self.request(number).head, self.base(number)
        theirs = None if base is None else self._store.commit(base).tree
        return self._store.changed_paths(theirs, self._store.commit(head).tree)

    def base(self, number: int) -> str | None:
        """The commit where a request left its target, None if they share no history. Raises GitopsError `request_not_found`."""
        request = self.request(number)
        # The objects of the target are needed also if the request is merged.
        tip = self._branch(request.target)
        if request.merged_as is not None:
            tip = next(iter(self._store.commit(request.merged_as).parents), None)
        return None if tip is None else self._store.merge_base(tip, request.head)

    # How documents are kept

    def _push(self, push: PushedBranch, text: str | None) -> tuple[ChangeRequest, bool]:
        now = self._clock.now()

        def attempt() -> tuple[ChangeRequest, bool]:
            refs = self._refs(records.REQUESTS)
            known = self._read_all(refs)
            request, opened = records.request_after_push(known, push, timestamp(now))
            ref = records.meta_ref(request.number)
            meta, head = refs.get(ref), refs.get(request.head_ref)
            files = {} if request in known else dict(records.request_files(request))
            if text is not None:
                files |= records.text_files(self._at(meta), text)
            if files:
                what = f"request {request.number}: {'opened' if opened else 'pushed'}"
                updates = [self._commit(ref, meta, files, what, now)]
                if head != request.head:
                    updates.append(RefUpdate(request.head_ref, head or ZERO, request.head))
                self._remote.push(updates)
            return request, opened

        return _retried(attempt)

    def _amend(self, ref: str, what: str, change: Amend, missing: GitopsError | None = None) -> DocumentFolder:
        now = self._clock.now()

        def attempt() -> DocumentFolder:
            old = self._refs(ref).get(ref)
            if old is None and missing is not None:
                raise missing
            folder = self._at(old)
            files = change(folder)
            if files:
                self._remote.push([self._commit(ref, old, files, what, now)])
            return folder

        return _retried(attempt)

    def _folder(self, ref: str) -> DocumentFolder | None:
        old = self._refs(ref).get(ref)
        return None if old is None else self._at(old)

    def _folders(self, prefix: str) -> Mapping[str, DocumentFolder]:
        return {ref: self._at(commit) for ref, commit in self._refs(prefix).items()}

    def _all(self) -> tuple[ChangeRequest, ...]:
        return self._read_all(self._refs(records.REQUESTS))

    def _tip(self, branch: str) -> str:
        tip = self._branch(branch)
        if tip is None:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"{branch} does not exist", path=branch)
        return tip

    def _branch(self, branch: str) -> str | None:
        """The tip of a branch on the remote, now; its objects are here afterwards, and no branch of this clone moves."""
        tip = self._remote.refs(branch).get(branch)
        if tip is not None and self._store.resolve(tip) is None:
            self._remote.fetch([branch])
        return tip

    # Inside

    def _commit(self, ref: str, old: str | None, files: Mapping[str, bytes], message: str, now: datetime) -> RefUpdate:
        """A commit that changes `files` of commit `old`, and the move of `ref` to it."""
        base = None if old is None else self._store.commit(old).tree
        author = replace(self._bot, time=int(now.timestamp()))
        parents = () if old is None else (old,)
        new = NewCommit(self._store.write_files(base, files), parents, author, f"{message}\n")
        return RefUpdate(ref, old or ZERO, self._store.write_commit(new, signing_key=None))

    def _read_all(self, refs: Mapping[str, str]) -> tuple[ChangeRequest, ...]:
        numbers = sorted(number for number in map(records.number_of, refs) if number is not None)
        return tuple(records.read_request(self._at(refs[records.meta_ref(number)]), number) for number in numbers)

    def _at(self, commit_id: str | None) -> DocumentFolder:
        """The files of a commit; none without a commit."""
        return records.EMPTY if commit_id is None else _GitFolder(self._store, self._store.commit(commit_id).tree)

    def _refs(self, prefix: str) -> Mapping[str, str]:
        """Refs on the remote, now, with their objects here."""
        refs = self._remote.refs(prefix)
        missing = self._missing(refs)
        if missing:
            # One pattern for many: a command line has a limit.
            name = missing[0] if len(missing) == 1 else f"{prefix}/*"
            try:
                self._remote.fetch([f"+{name}:{name}"])
            except GitopsError:
                # Another process of this clone may hold the refs because it fetches the same objects.
                if self._missing(refs):
                    raise
        return refs

    def _missing(self, refs: Mapping[str, str]) -> list[str]:
        return [ref for ref, oid in refs.items() if self._store.resolve(oid) is None]


@dataclass(frozen=True, slots=True)
class _GitFolder:
    """The files of a tree."""

    store: GitStore
    tree: str
    listed: dict[str, Mapping[str, TreeEntry]] = field(default_factory=dict)

    def names(self, folder: str) -> tuple[str, ...]:
        """Names of the entries in a folder."""
        return tuple(sorted(self._entries(folder)))

    def read(self, path: str) -> bytes | None:
        """Content of a file of at most MAX_DOCUMENT bytes. Raises IntegrityError `request_invalid` for a larger one."""
        folder, _, name = path.rpartition("/")
        entry = self._entries(folder or ".").get(name)
        if entry is None or entry.type is not EntryType.FILE:
            return None
        # The size is checked first: a push may have put anything here.
        if self.store.size(entry.id) > MAX_DOCUMENT:
            raise IntegrityError(Code.REQUEST_INVALID, f"{path} is larger than {MAX_DOCUMENT} bytes", path=path)
        return self.store.read(self.tree, path)

    def _entries(self, folder: str) -> Mapping[str, TreeEntry]:
        """The entries of a folder by name; it is listed once."""
        if folder not in self.listed:
            inner = self.store.subtree(self.tree, folder)
            entries = () if inner is None else self.store.entries(inner)
            self.listed[folder] = {entry.name: entry for entry in entries}
        return self.listed[folder]


def _retried(attempt: Callable[[], T]) -> T:
    """Repeat an attempt, which reads, changes and pushes, until it has no conflict. Raises the last ConflictError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except ConflictError:
            continue
    return attempt()
