"""A forge that is nothing but a git repository: requests, comments and statuses are commits behind refs of their own.

    refs/gitops/requests/<n>/head      the head commit of request n, which so stays alive when its branch is deleted
    refs/gitops/requests/<n>/meta      a chain of commits whose trees hold the request's documents
    refs/gitops/statuses/<2 hex>       a chain of commits whose trees hold the statuses of commits that start so

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
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.forges import records
from gitops.forges.records import Folder, Push, Remark
from gitops.ports.forge import ChangeRequest, CheckStatus, Comment, RequestState
from gitops.ports.git import ZERO, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.wire.request import MAX_DOCUMENT

__all__ = ["LocalForge"]

# Each round of a race has a winner: with eight writers, one that loses all of these is a matter of once in a million.
_ATTEMPTS = 100

T = TypeVar("T")


class LocalForge:
    """Implements Forge, and what a forge does by itself: opening, merging and closing requests, comments of people."""

    def __init__(self, store: GitStore, remote: GitRemote, bot: Person, clock: Clock) -> None:
        """`store` holds the objects, `remote` has the refs that count; `bot` writes the commits and its own comments."""
        self._store = store
        self._remote = remote
        self._bot = bot
        self._clock = clock

    @property
    def identity(self) -> str:
        """The author of the bot's comments."""
        return records.identity_of(self._bot)

    # What every forge offers

    def requests(self) -> tuple[ChangeRequest, ...]:
        """All change requests, by number."""
        return tuple(found.request for found in self._all())

    def request(self, number: int) -> ChangeRequest:
        """One change request; its head commit is here afterwards. Raises GitopsError `request_not_found`."""
        return self._one(number).request

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        return records.read_comments(self._one(number).folder, self.identity)

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's comment with this marker, or update it in place.

        Raises GitopsError `request_not_found`, UsageError `comment_too_large`.
        """
        self._comment(number, self.identity, marker, body)

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context."""
        ref = records.status_ref(commit)
        return records.read_statuses(self._folder(self._refs(ref).get(ref)), commit)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before. The commit itself need not be here."""
        ref, now = records.status_ref(status.commit), self._clock.now()

        def attempt() -> None:
            old = self._refs(ref).get(ref)
            folder = self._folder(old)
            files = records.with_status(folder, status)
            if files:
                move = self._commit(ref, old, files, "statuses: " + status.commit[:12], now)
                self._remote.push([move])

        _until_won(attempt)

    # What a forge does by itself

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]:
        """The open request of `source` into `target` (full ref names) with the new head; opened if there is none.

        The second value says whether it was opened now. `head` must be in the store. Raises IntegrityError
        `request_invalid` for a title or pusher that is not one plain line.
        """
        push, now = Push(source, target, head, title, pusher), self._clock.now()

        def attempt() -> tuple[ChangeRequest, bool]:
            known = {found.request.number: found for found in self._all()}
            request, opened = records.pushed((found.request for found in known.values()), push, timestamp(now))
            before = known.get(request.number, _Found(request, None, None, self._folder(None)))
            if opened or request != before.request:
                what = f"request {request.number}: {'opened' if opened else 'pushed'}"
                self._store_request(request, before, what, now)
            return request, opened

        return _until_won(attempt)

    def mark_merged(self, number: int, commit: str) -> ChangeRequest:
        """Record that `commit` on the target branch brought the request in.

        Raises GitopsError `request_not_found`, `request_closed` if it is closed, or merged as another commit.
        """
        return self._end(number, RequestState.MERGED, commit)

    def close(self, number: int) -> ChangeRequest:
        """Close a request without merging it. Raises GitopsError `request_not_found`, `request_closed` if it is merged."""
        return self._end(number, RequestState.CLOSED, None)

    def add_comment(self, number: int, author: str, body: str) -> None:
        """Write a person's comment. Raises as `upsert_comment`, and IntegrityError `request_invalid` for its author."""
        self._comment(number, author, None, body)

    # Inside

    def _comment(self, number: int, author: str, marker: str | None, body: str) -> None:
        now = self._clock.now()
        remark = Remark(author, marker, body, timestamp(now))

        def attempt() -> None:
            found = self._one(number)
            files = records.with_comment(found.folder, remark)
            if files:
                move = self._commit(records.meta_ref(number), found.meta, files, f"request {number}: comment", now)
                self._remote.push([move])

        _until_won(attempt)

    def _end(self, number: int, state: RequestState, merged_as: str | None) -> ChangeRequest:
        now = self._clock.now()

        def attempt() -> ChangeRequest:
            found = self._one(number)
            request = records.ended(found.request, state, merged_as)
            if request != found.request:
                self._store_request(request, found, f"request {number}: {state.value}", now)
            return request

        return _until_won(attempt)

    def _store_request(self, request: ChangeRequest, before: _Found, message: str, now: datetime) -> None:
        """Push the document of a request, together with its head where that moved."""
        ref, head = records.meta_ref(request.number), records.head_ref(request.number)
        moves = [self._commit(ref, before.meta, records.request_files(request), message, now)]
        if before.head != request.head:
            moves.append(RefUpdate(head, before.head or ZERO, request.head))
        self._remote.push(moves)

    def _commit(self, ref: str, old: str | None, files: Mapping[str, bytes], message: str, now: datetime) -> RefUpdate:
        """A commit that changes `files` of commit `old`, and the move of `ref` to it."""
        base = None if old is None else self._store.commit(old).tree
        author = replace(self._bot, time=int(now.timestamp()))
        parents = () if old is None else (old,)
        new = NewCommit(self._store.write_files(base, files), parents, author, f"{message}\n")
        return RefUpdate(ref, old or ZERO, self._store.write_commit(new, signing_key=None))

    def _all(self) -> tuple[_Found, ...]:
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
        folder = self._folder(meta)
        return _Found(records.read_request(folder, number), meta, refs.get(records.head_ref(number)), folder)

    def _folder(self, commit_id: str | None) -> Folder:
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
            raise IntegrityError("request_invalid", f"{path} is larger than {MAX_DOCUMENT} bytes", path=path)
        return None if self.tree is None else self.store.read(self.tree, path)

    def _sizes(self, folder: str) -> Mapping[str, int]:
        """Name to size of the entries in a folder, which is listed once."""
        if folder not in self.listed:
            inner = None if self.tree is None else self.store.subtree(self.tree, folder)
            entries = () if inner is None else self.store.entries(inner)
            self.listed[folder] = {entry.name: entry.size for entry in entries}
        return self.listed[folder]


def _until_won(attempt: Callable[[], T]) -> T:
    """Run an attempt, which reads, changes and pushes, until it does not lose a race. Raises the last ConflictError."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return attempt()
        except ConflictError:
            continue
    return attempt()
