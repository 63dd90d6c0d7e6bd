"""A forge that is nothing but a git repository: requests, comments and statuses are commits behind refs of their own.

    refs/gitops/requests/<n>/head      the head commit of request n, which so stays alive when its branch is deleted
    refs/gitops/requests/<n>/meta      a chain of commits whose trees hold the request's documents
    refs/gitops/statuses/<2 hex>       a chain of commits whose trees hold the statuses of commits that start so
    refs/gitops/{checks,deployments,issues}/…   chains alike, see `reports`

Rules:

1. Every change is a commit on top of what was read, moved by compare-and-swap. Who loses reads again and applies the change
   again, so no update is lost; a number belongs to whoever created its refs.
2. The remote's refs count; objects that are missing here are fetched into refs of the same name, never into a branch.
3. Who may write these refs is decided by the repository's pre-receive hook, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.forge.port import ChangeRequest
from gitops.forge.refs import records
from gitops.forge.refs.documents import MAX_DOCUMENT
from gitops.forge.refs.recorded import Amend, Operator, RecordedForge
from gitops.forge.refs.records import Folder, Push
from gitops.git.port import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate

__all__ = ["LocalForge"]

# Each round of a race has a winner: with eight writers, one that loses all of these is a matter of once in a million.
_ATTEMPTS = 100

T = TypeVar("T")


class LocalForge(RecordedForge):
    """Implements Forge, and what a forge does by itself: opening, merging and closing requests, comments of people."""

    def __init__(
        self, store: GitStore, remote: GitRemote, bot: Person, clock: Clock, operator: Operator | None = None
    ) -> None:
        """`store` holds the objects, `remote` has the refs that count; `bot` writes the commits and its own comments."""
        super().__init__(bot, clock, operator or Operator())
        self._store = store
        self._remote = remote

    def request(self, number: int) -> ChangeRequest:
        """One change request; its head commit is here afterwards. Raises GitopsError `request_not_found`."""
        return self._one(number).request

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that a request changes since it left its target, sorted; both names of a moved file.

        Of a merged request the target is what it was before; of one that came in by a fast-forward, that is taken to be
        the commit before its last one. Raises GitopsError `request_not_found`.
        """
        request = self._one(number).request
        # Also when it is merged: what brought it in is behind the target.
        tip = self._branch(request.target)
        if request.merged_as is not None:
            tip = next(iter(self._store.commit(request.merged_as).parents), None)
        base = None if tip is None else self._store.merge_base(tip, request.head)
        theirs = None if base is None else self._store.commit(base).tree
        return self._store.changed_paths(theirs, self._store.commit(request.head).tree)

    # How documents are kept

    def _opened(self, push: Push, text: str | None) -> tuple[ChangeRequest, bool]:
        now = self._clock.now()

        def attempt() -> tuple[ChangeRequest, bool]:
            known = {found.request.number: found for found in self._found_all()}
            request, opened = records.pushed((found.request for found in known.values()), push, timestamp(now))
            before = known.get(request.number, _Found(request, None, None, self._at(None)))
            files = dict(records.request_files(request) if opened or request != before.request else {})
            if text is not None:
                files |= records.text_files(before.folder, text)
            if files:
                what = f"request {request.number}: {'opened' if opened else 'pushed'}"
                self._push_request(request, before, self._commit(_meta(request), before.meta, files, what, now))
            return request, opened

        return _until_won(attempt)

    def _push_request(self, request: ChangeRequest, before: _Found, move: RefUpdate) -> None:
        """Push the documents of a request, together with its head where that moved."""
        moves = [move]
        if before.head != request.head:
            moves.append(RefUpdate(request.head_ref, before.head or ZERO, request.head))
        self._remote.push(moves)

    def _amend(self, ref: str, what: str, change: Amend) -> Folder:
        def read() -> tuple[str | None, Folder]:
            old = self._refs(ref).get(ref)
            return old, self._at(old)

        return self._amended(ref, what, change, read)

    def _amend_request(self, number: int, what: str, change: Amend) -> Folder:
        def read() -> tuple[str | None, Folder]:
            found = self._one(number)
            return found.meta, found.folder

        return self._amended(records.meta_ref(number), f"request {number}: {what}", change, read)

    def _amended(self, ref: str, what: str, change: Amend, read: Callable[[], tuple[str | None, Folder]]) -> Folder:
        now = self._clock.now()

        def attempt() -> Folder:
            old, folder = read()
            files = change(folder)
            if files:
                self._remote.push([self._commit(ref, old, files, what, now)])
            return folder

        return _until_won(attempt)

    def _folder(self, ref: str) -> Folder:
        return self._at(self._refs(ref).get(ref))

    def _request_folder(self, number: int) -> Folder:
        return self._one(number).folder

    def _all(self) -> tuple[ChangeRequest, ...]:
        return tuple(found.request for found in self._found_all())

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

    def _found_all(self) -> tuple[_Found, ...]:
        refs = self._refs(records.REQUESTS)
        numbers = sorted(number for number in map(records.number_of, refs) if number is not None)
        return tuple(self._found(number, refs) for number in numbers)

    def _one(self, number: int) -> _Found:
        ref = records.meta_ref(number)
        if records.number_of(ref) is None:
            raise records.not_found(number)
        refs = self._refs(ref.removesuffix("/meta"))
        if ref not in refs:
            raise records.not_found(number)
        return self._found(number, refs)

    def _found(self, number: int, refs: Mapping[str, str]) -> _Found:
        meta = refs[records.meta_ref(number)]
        folder = self._at(meta)
        return _Found(records.read_request(folder, number), meta, refs.get(records.head_ref(number)), folder)

    def _at(self, commit_id: str | None) -> Folder:
        return _GitFolder(self._store, None if commit_id is None else self._store.commit(commit_id).tree)

    def _refs(self, prefix: str) -> Mapping[str, str]:
        """Refs on the remote, now, with their objects here."""
        refs = self._remote.refs(prefix)
        missing = self._missing(refs)
        if missing:
            # One pattern for many: a command line has an end.
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
class _Found:
    """A request as read: the commits that its two refs name, and its documents."""

    request: ChangeRequest
    meta: str | None
    head: str | None
    folder: Folder


@dataclass(frozen=True, slots=True)
class _GitFolder:
    """The files of a tree; without a tree there are none."""

    store: GitStore
    tree: str | None
    listed: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def names(self, folder: str) -> tuple[str, ...]:
        """Names of the entries in a folder."""
        return tuple(sorted(self._sizes(folder)))

    def read(self, path: str) -> bytes | None:
        """Content of a file of at most MAX_DOCUMENT bytes. Raises IntegrityError `request_invalid` for a larger one."""
        folder, _, name = path.rpartition("/")
        # The size is looked at first: whoever pushed this may have pushed anything.
        if self._sizes(folder or ".").get(name, 0) > MAX_DOCUMENT:
            raise IntegrityError(Code.REQUEST_INVALID, f"{path} is larger than {MAX_DOCUMENT} bytes", path=path)
        return None if self.tree is None else self.store.read(self.tree, path)

    def _sizes(self, folder: str) -> Mapping[str, int]:
        """Name to size of the entries in a folder, which is listed once."""
        if folder not in self.listed:
            inner = None if self.tree is None else self.store.subtree(self.tree, folder)
            entries = () if inner is None else self.store.entries(inner)
            self.listed[folder] = {entry.name: entry.size for entry in entries}
        return self.listed[folder]


def _meta(request: ChangeRequest) -> str:
    return records.meta_ref(request.number)


def _until_won(attempt: Callable[[], T]) -> T:
    """Run an attempt, which reads, changes and pushes, until it does not lose a race. Raises the last ConflictError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except ConflictError:
            continue
    return attempt()
