"""The in-memory twin of a forge, for rehearsals and tests: same documents and rules, nothing on disk.

It keeps the files that a repository would keep, in one dictionary behind one mutex; what the other forge reaches by
compare-and-swap is here simply a critical section. Every handle made by `share` sees the same forge.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.forge.refs import records
from gitops.forge.refs.local import Amend, DocumentForge, OperatorSettings
from gitops.forge.refs.records import EMPTY, DocumentFolder, PushedBranch
from gitops.git.port import Person

__all__ = ["MemoryForge"]


@dataclass(slots=True)
class _Shared:
    """One forge: its files by ref and path, its branches, and what their commits change."""

    refs: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    changed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)


class MemoryForge(DocumentForge):
    """Implements Forge in a dictionary, with the further methods of the local one; safe for threads."""

    def __init__(
        self, bot: Person, clock: Clock, settings: OperatorSettings | None = None, *, shared: _Shared | None = None
    ) -> None:
        """Start without requests, or as another handle of a forge (see `share`)."""
        super().__init__(bot, clock, settings or OperatorSettings())
        self._shared = shared or _Shared()

    def share(self, bot: Person | None = None) -> MemoryForge:
        """Another handle of the same forge, perhaps of another bot."""
        return MemoryForge(bot or self._bot, self._clock, self._settings, shared=self._shared)

    def dump(self) -> Mapping[str, str]:
        """All files as text, by ref and path, sorted: what a person looks at when a story goes wrong."""
        with self._shared.mutex:
            rows = [(f"{ref}:{path}", data) for ref, files in self._shared.refs.items() for path, data in files.items()]
        return {name: data.decode() for name, data in sorted(rows)}

    def push_branch(self, ref: str, commit: str, changed: Sequence[str] = ()) -> None:
        """Let a branch (full ref name) stand at a commit that changes these paths: git itself is not here."""
        with self._shared.mutex:
            self._shared.branches[ref] = commit
            self._shared.changed[commit] = tuple(sorted(changed))

    def request(self, number: int) -> ChangeRequest:
        """One change request. Raises GitopsError `request_not_found`."""
        return records.read_request(self._request_folder(number), number)

    def files(self, number: int) -> tuple[str, ...]:
        """Paths that the head of a request changes, as `push_branch` told. Raises GitopsError `request_not_found`."""
        return self._shared.changed.get(self.request(number).head, ())

    def _push(self, push: PushedBranch, text: str | None) -> tuple[ChangeRequest, bool]:
        at = self._now()
        with self._shared.mutex:
            request, opened = records.request_after_push(self._all(), push, at)
            ref = records.meta_ref(request.number)
            files = dict(records.request_files(request))
            if text is not None:
                files |= records.text_files(self._folder(ref) or EMPTY, text)
            self._write(ref, files)
            return request, opened

    def _amend(self, ref: str, what: str, change: Amend, missing: GitopsError | None = None) -> DocumentFolder:
        with self._shared.mutex:
            folder = self._folder(ref)
            if folder is None and missing is not None:
                raise missing
            self._write(ref, change(folder or EMPTY))
            return folder or EMPTY

    def _all(self) -> tuple[ChangeRequest, ...]:
        with self._shared.mutex:
            numbers = sorted(number for number in map(records.number_of, self._shared.refs) if number is not None)
            return tuple(self.request(number) for number in numbers)

    def _tip(self, branch: str) -> str:
        tip = self._shared.branches.get(branch)
        if tip is None:
            raise GitopsError(Code.GIT_OBJECT_MISSING, f"{branch} does not exist", path=branch)
        return tip

    def _folder(self, ref: str) -> DocumentFolder | None:
        with self._shared.mutex:
            return _MemoryFolder(dict(self._shared.refs[ref])) if ref in self._shared.refs else None

    def _folders(self, prefix: str) -> Mapping[str, DocumentFolder]:
        with self._shared.mutex:
            below = [ref for ref in self._shared.refs if ref.startswith(f"{prefix}/")]
            return {ref: _MemoryFolder(dict(self._shared.refs[ref])) for ref in below}

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
