"""Interface for reading a cluster folder from a commit, a disk folder or memory.

Rules for every tree, proven by one contract suite:

1. Paths are POSIX paths relative to the cluster folder. `.` and `..` are resolved as text, never on disk.
2. A confined tree refuses absolute paths and paths that leave it.
3. No symbolic link and no submodule is read or passed through.
4. A name is refused if a checkout on some system would confuse it with another one: see `_require_safe`.
5. The size of a file, the number of files and the total size are limited.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Protocol

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

QUERY_EXTENSION = ".gq"

_MAX_NAME_BYTES = 255
_MAX_PATH_CHARACTERS = 4096
# Almost all paths look like this. They are already normal and safe.
_ORDINARY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*")


class SourceError(GitopsError):
    """A path in a source tree cannot be read. `code` is the reason, and `path` is the path.

    `source_missing`: nothing exists there. `source_unreadable`: not a regular file (or folder), or the system refused.
    `source_symlink`, `source_submodule`, `source_path_escapes`, `source_name_unsafe`, `source_too_large`: refused on
    purpose.
    """

    @property
    def is_refusal(self) -> bool:
        """Whether the tree refused on purpose."""
        return self.code not in (Code.SOURCE_MISSING, Code.SOURCE_UNREADABLE)


class SourceMovedError(Exception):
    """The folder changed during the load, or differs from the cache. Load it again from its files only."""


class PathKind(StrEnum):
    """Kind of the object at a path. `FILE` covers everything that is not a folder; reading it may still fail."""

    FILE = "file"
    DIR = "dir"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Limits for one tree: bytes per file, number of files read (and entries per folder), and total bytes read."""

    file_bytes: int = 4 * 1024 * 1024
    files: int = 20_000
    total_bytes: int = 256 * 1024 * 1024


class SourceTree(Protocol):
    """A cluster folder at one moment. Each method raises only SourceError if it cannot return a result."""

    @property
    def root(self) -> str:
        """The folder's location, for people to read. It is never used to find a file."""

    def read(self, path: str) -> bytes:
        """Return the content of the regular file at `path`."""

    def kind(self, path: str) -> PathKind:
        """Return the kind of the object at `path`. A path through a file is absent."""

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in the folder at `path`, in code point order.

        If one name is unsafe, the whole folder is refused.
        """


class StampedTree(SourceTree, Protocol):
    """A tree that can prove without reading that a file or folder is unchanged. Such a proof never permits anything.

    A stamp is an opaque string. Two equal stamps of one path, taken from trees with one `identity`, prove that the
    content of the file, or the names in the folder, were equal at both moments.
    """

    @property
    def identity(self) -> str:
        """The folder's identity, which does not depend on its content."""

    @property
    def limits(self) -> SourceLimits:
        """The limits for one load."""

    def stamps(self, places: Iterable[str], kind: PathKind) -> list[str | None]:
        """Return each normalized path's stamp, in order. A stamp is None if the path or a reliable stamp does not exist.

        Nothing counts as read. The folders above a path are not checked, so request their stamps as well.
        """

    def reopened(self) -> StampedTree:
        """Return the same folder, with nothing read yet."""


class Meter:
    """Counts the data read from one tree, and refuses to exceed the limits."""

    __slots__ = ("_bytes", "_files", "limits")

    def __init__(self, limits: SourceLimits | None = None) -> None:
        self.limits = limits or SourceLimits()
        self._files = 0
        self._bytes = 0

    def check(self, path: str, size: int) -> None:
        """Raise SourceError `source_too_large` if a file of `size` bytes would exceed a limit."""
        limits = self.limits
        if size > limits.file_bytes:
            detail = f"{path} has more than the {limits.file_bytes} bytes allowed for one file"
        elif self._files >= limits.files:
            detail = f"{path} exceeds the {limits.files} files allowed for one cluster folder"
        elif self._bytes + size > limits.total_bytes:
            detail = f"with {path} the cluster folder exceeds the {limits.total_bytes} bytes allowed"
        else:
            return
        raise SourceError(Code.SOURCE_TOO_LARGE, detail, path=path)

    def admit(self, path: str, size: int) -> None:
        """Make the same check, then count a file of `size` bytes that is about to be returned."""
        self.check(path, size)
        self._files += 1
        self._bytes += size


# Each comparison and each plan of a run requests the same paths of a large cluster again.
@lru_cache(maxsize=16_384)
def normalize(path: str, *, confined: bool) -> str:
    """Return `path` without `.`, `..`, empty parts and trailing slash, or `.` for the folder itself.

    For an unconfined tree, the result may be absolute or start with `..`. Raises SourceError `source_name_unsafe` or
    `source_path_escapes`.
    """
    if len(path) <= _MAX_NAME_BYTES and _ORDINARY.fullmatch(path):
        return path
    absolute = path.startswith("/")
    if len(path) > _MAX_PATH_CHARACTERS:
        raise SourceError(Code.SOURCE_NAME_UNSAFE, "a path is longer than 4096 characters", path=path[:80])
    if absolute and confined:
        raise SourceError(
            Code.SOURCE_PATH_ESCAPES, f"{path!r} is absolute; only paths in the folder are read", path=path
        )
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part != "..":
            _require_safe(part, path)
            parts.append(part)
        elif parts and parts[-1] != "..":
            parts.pop()
        elif confined:
            raise SourceError(Code.SOURCE_PATH_ESCAPES, f"{path!r} leaves the cluster folder", path=path)
        elif not absolute:
            parts.append("..")
    return "/" * absolute + "/".join(parts) or "."


def shown_part(name: str, place: str) -> str:
    """Return `NAME in PLACE` for a message about a part of a path, or only the path if it already ends with the part."""
    return place if f"/{place}".endswith(f"/{name}") else f"{name} in {place}"


def folder_for_file(place: str) -> SourceError:
    """Return the error for a path that is a folder but must be a file."""
    fix = "write the path of a file in that folder"
    return SourceError(Code.SOURCE_UNREADABLE, f"{place} is a folder", path=place, fix=fix)


def query_files(names: Iterable[str]) -> list[str]:
    """Return the names in a folder that are query files, in the given order."""
    return [name for name in names if name.endswith(QUERY_EXTENSION) and name != QUERY_EXTENSION]


def listing_digest(names: Iterable[str]) -> str:
    """Return the digest of the query files among the names in a folder."""
    return digest("\0".join(query_files(names)).encode("utf-8", "surrogatepass"))


def parents(place: str) -> Iterator[str]:
    """Yield the parent folders of a normalized path, without the cluster folder itself and the file system root."""
    above = place.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def checked_listing(path: str, names: Iterable[str], limits: SourceLimits) -> tuple[str, ...]:
    """Return the names of one folder in code point order.

    Raises SourceError `source_name_unsafe` for an unsafe name or two names that differ only in case, and `source_too_large`
    for too many.
    """
    listing = sorted(names)
    if len(listing) > limits.files:
        raise SourceError(Code.SOURCE_TOO_LARGE, f"{path} has more than {limits.files} entries", path=path)
    folded: dict[str, str] = {}
    for name in listing:
        _require_safe(name, path)
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            detail = f"{name!r} and {other!r} in {path} are the same name on file systems that ignore case"
            raise SourceError(Code.SOURCE_NAME_UNSAFE, detail, path=path)
    return tuple(listing)


def _require_safe(name: str, path: str) -> None:
    """Raise SourceError `source_name_unsafe` if a file must not have this name.

    Refused are invisible and control characters, backslash and colon (separators elsewhere), every spelling that some
    file system treats as `.git`, and names over 255 bytes. Shell metacharacters are fine, because no name ever reaches
    a shell.
    """
    if not name.isprintable():
        reason = "it contains control or invisible characters"
    elif name in ("", ".", "..") or "/" in name:
        reason = "it is a path, not a name"
    elif "\\" in name or ":" in name:
        reason = "it contains a backslash or a colon"
    elif name.rstrip(" .").casefold() in (".git", "git~1"):
        reason = "it refers to the folder of a git repository"
    elif len(name.encode("utf-8", "surrogatepass")) > _MAX_NAME_BYTES:
        reason = f"it is longer than {_MAX_NAME_BYTES} bytes"
    else:
        return
    raise SourceError(Code.SOURCE_NAME_UNSAFE, f"the name {name[:80]!r} is refused: {reason}", path=path)


class MemoryTree:
    """A confined tree in memory, given as contents by path, for tests and tools. Its stamps are digests."""

    def __init__(
        self,
        files: Mapping[str, bytes],
        *,
        root: str = "memory",
        refused: Mapping[str, Code] = MappingProxyType({}),
        limits: SourceLimits | None = None,
    ) -> None:
        """`files` maps normalized paths to contents.

        `refused` maps paths to the code they fail with, such as `source_symlink`.
        """
        self._given = files
        self._files = dict(files)
        self._refused = dict(refused)
        self._meter = Meter(limits)
        self._folders: dict[str, set[str]] = {".": set()}
        for path in (*files, *refused):
            for child in (path, *parents(path)):
                parent, _, name = child.rpartition("/")
                self._folders.setdefault(parent or ".", set()).add(name)
        self.root = root
        self.identity = f"memory {root}"
        self.limits = self._meter.limits

    def stamps(self, places: Iterable[str], kind: PathKind) -> list[str | None]:
        """Return digests of contents and listings, which are the same everywhere."""

        def stamp(place: str) -> str | None:
            try:
                if self.kind(place) is not kind:
                    return None
                return digest(self._files[place] if kind is PathKind.FILE else "\0".join(self.names(place)).encode())
            except SourceError:
                return None

        return [stamp(place) for place in places]

    def object_id(self, place: str) -> str | None:
        """Return a digest of the object at a path and everything below it, including refused objects."""
        try:
            kind = self.kind(place)
        except SourceError:
            return None
        below = sorted(
            path for path in (*self._files, *self._refused) if f"{path}/".startswith(f"{place}/") or place == "."
        )
        made_of = [[path, self._refused.get(path), digest(self._files.get(path, b""))] for path in below]
        return None if kind is PathKind.ABSENT else f"{kind} {digest(json.dumps(made_of).encode())}"

    def reopened(self) -> MemoryTree:
        """Return the same files."""
        return MemoryTree(self._given, root=self.root, refused=self._refused, limits=self.limits)

    def _resolve(self, path: str) -> str:
        place = normalize(path, confined=True)
        parts = place.split("/")
        for depth in range(1, len(parts) + 1):
            passed = "/".join(parts[:depth])
            if passed in self._refused:
                raise SourceError(self._refused[passed], f"{passed} is refused", path=passed)
        return place

    def kind(self, path: str) -> PathKind:
        """Return the kind of the object at `path`."""
        place = self._resolve(path)
        if place in self._files:
            return PathKind.FILE
        return PathKind.DIR if place in self._folders else PathKind.ABSENT

    def read(self, path: str) -> bytes:
        """Return the content of the file at `path`."""
        place = self._resolve(path)
        if place not in self._files:
            if place in self._folders:
                raise SourceError(Code.SOURCE_UNREADABLE, f"{place} is not a file", path=place)
            raise SourceError(Code.SOURCE_MISSING, f"{place} does not exist", path=place)
        self._meter.admit(place, len(self._files[place]))
        return self._files[place]

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in the folder at `path`."""
        place = self._resolve(path)
        if place not in self._folders:
            if place in self._files:
                raise SourceError(Code.SOURCE_UNREADABLE, f"{place} is not a folder", path=place)
            raise SourceError(Code.SOURCE_MISSING, f"{place} does not exist", path=place)
        return checked_listing(place, self._folders[place], self.limits)
