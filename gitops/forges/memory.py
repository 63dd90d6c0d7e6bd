"""The in-memory twin of a forge, for rehearsals and tests: same documents and rules, nothing on disk.

It keeps the files that a repository would keep, in one dictionary behind one mutex; what the other forge reaches by
compare-and-swap is here simply a critical section. Every handle made by `share` sees the same forge.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from gitops.core.clock import Clock, timestamp
from gitops.forges import records
from gitops.forges.records import Push, Remark
from gitops.ports.forge import ChangeRequest, CheckStatus, Comment, RequestState
from gitops.ports.git import Person

__all__ = ["MemoryForge"]


@dataclass(slots=True)
class _Shared:
    """One forge: its files by ref and path."""

    refs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)


class MemoryForge:
    """Implements Forge in a dictionary, with the further methods of the local one; safe for threads."""

    def __init__(self, bot: Person, clock: Clock, *, shared: _Shared | None = None) -> None:
        """Start without requests, or as another handle of a forge (see `share`)."""
        self._bot = bot
        self._clock = clock
        self._shared = shared or _Shared()

    def share(self, bot: Person | None = None) -> MemoryForge:
        """Another handle of the same forge, perhaps of another bot."""
        return MemoryForge(bot or self._bot, self._clock, shared=self._shared)

    def dump(self) -> Mapping[str, str]:
        """All files as text, by ref and path, sorted: what a person looks at when a story goes wrong."""
        with self._shared.mutex:
            rows = [(f"{ref}:{path}", data) for ref, files in self._shared.refs.items() for path, data in files.items()]
        return {name: data.decode() for name, data in sorted(rows)}

    @property
    def identity(self) -> str:
        """The author of the bot's comments."""
        return records.identity_of(self._bot)

    def requests(self) -> tuple[ChangeRequest, ...]:
        """All change requests, by number."""
        with self._shared.mutex:
            numbers = sorted(number for number in map(records.number_of, self._shared.refs) if number is not None)
            return tuple(self.request(number) for number in numbers)

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        return records.read_request(self._request_folder(number), number)

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Its comments, oldest first. Raises GitopsError `request_not_found`."""
        return records.read_comments(self._request_folder(number), self.identity)

    def upsert_comment(self, number: int, marker: str, body: str) -> None:
        """Write the bot's comment with this marker, or update it in place; the errors are those of the local forge."""
        self._comment(number, self.identity, marker, body)

    def statuses(self, commit: str) -> tuple[CheckStatus, ...]:
        """Statuses of a commit, by context."""
        return records.read_statuses(self._folder(records.status_ref(commit)), commit)

    def set_status(self, status: CheckStatus) -> None:
        """Set the status of a commit in a context, replacing the one before."""
        ref = records.status_ref(status.commit)
        with self._shared.mutex:
            self._write(ref, records.with_status(self._folder(ref), status))

    def open_or_update(
        self, source: str, target: str, head: str, title: str, pusher: str
    ) -> tuple[ChangeRequest, bool]:
        """The open request of `source` into `target` with the new head, and whether it was opened now."""
        at = timestamp(self._clock.now())
        with self._shared.mutex:
            request, opened = records.pushed(self.requests(), Push(source, target, head, title, pusher), at)
            self._write(records.meta_ref(request.number), records.request_files(request))
            return request, opened

    def mark_merged(self, number: int, commit: str) -> ChangeRequest:
        """Record that `commit` on the target branch brought the request in."""
        return self._end(number, RequestState.MERGED, commit)

    def close(self, number: int) -> ChangeRequest:
        """Close a request without merging it."""
        return self._end(number, RequestState.CLOSED, None)

    def add_comment(self, number: int, author: str, body: str) -> None:
        """Write a person's comment."""
        self._comment(number, author, None, body)

    def _comment(self, number: int, author: str, marker: str | None, body: str) -> None:
        remark = Remark(author, marker, body, timestamp(self._clock.now()))
        with self._shared.mutex:
            self._write(records.meta_ref(number), records.with_comment(self._request_folder(number), remark))

    def _end(self, number: int, state: RequestState, merged_as: str | None) -> ChangeRequest:
        with self._shared.mutex:
            request = records.ended(self.request(number), state, merged_as)
            self._write(records.meta_ref(number), records.request_files(request))
            return request

    def _request_folder(self, number: int) -> _MemoryFolder:
        ref = records.meta_ref(number)
        if ref not in self._shared.refs:
            raise records.not_found(number)
        return self._folder(ref)

    def _folder(self, ref: str) -> _MemoryFolder:
        with self._shared.mutex:
            return _MemoryFolder(dict(self._shared.refs.get(ref, {})))

    def _write(self, ref: str, files: Mapping[str, bytes]) -> None:
        if files:
            self._shared.refs.setdefault(ref, {}).update(files)


@dataclass(frozen=True, slots=True)
class _MemoryFolder:
    """A picture of the files of one ref."""

    files: Mapping[str, bytes]

    def names(self, folder: str) -> tuple[str, ...]:
        """Names of the files in a folder."""
        return tuple(sorted(path.removeprefix(f"{folder}/") for path in self.files if path.startswith(f"{folder}/")))

    def read(self, path: str) -> bytes | None:
        """Content of a file."""
        return self.files.get(path)
