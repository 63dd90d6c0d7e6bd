"""The port for files under one root, which ledger folders and graph roots use.

Keys are relative POSIX paths with visible, ordinary names (`__cluster/state.json`). All stores have the same rules for
keys. Every write is atomic: a reader sees either the old or the new content, complete. A write is durable when the call
returns.

`StorageRoot` is the location of the ledger, the catalog and the graphs, as declared in `storage:`.
"""

from __future__ import annotations

import re
from enum import StrEnum
from posixpath import join, normpath
from typing import Protocol

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import RemoteError

TEMP_PREFIX = ".tmp-"
"""Prefix of the store's own file names."""

_MAX_KEY = 1024
_MAX_PART = 255


def split_key(key: str) -> tuple[str, ...]:
    """Split a key into its parts.

    Raises RemoteError `storage_failed` for a key that could leave the root or that contains a hidden name.
    """
    parts = tuple(key.split("/"))
    plain = all(
        part not in ("", ".", "..")
        and not part.startswith(TEMP_PREFIX)
        and len(part.encode("utf-8", "replace")) <= _MAX_PART
        for part in parts
    )
    if not plain or len(key) > _MAX_KEY or not key.isprintable() or "\\" in key:
        detail = f"{key[:80]!r} is not a key: use relative names without '.' and '..'"
        raise RemoteError(Code.STORAGE_FAILED, detail, path=key[:80])
    return parts


def split_prefix(prefix: str) -> tuple[str, ...]:
    """Split a prefix by the same rules as `split_key`. An empty prefix is the root, and one final slash is allowed."""
    return split_key(prefix.removesuffix("/")) if prefix else ()


class ObjectStore(Protocol):
    """A store that can read, create, replace, delete and list objects.

    Every undocumented failure is a RemoteError `storage_failed`, never an OSError. After such a failure, a write may
    have taken effect. If a store cannot guarantee this behaviour, it raises UsageError instead of writing.
    """

    @property
    def location(self) -> str:
        """The root's location, for messages: an absolute path or a URI."""
        ...

    @property
    def parallel(self) -> int:
        """The number of concurrent calls that is useful, which is 1 if concurrency does not help."""
        ...

    def display(self, key: str) -> str:
        """Return the location of `key`, for messages."""
        ...

    def read(self, key: str) -> bytes | None:
        """Read an object. Returns None only if it definitely does not exist."""
        ...

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Read the existing bytes from `start` to before `end`. Also raises RemoteError if the object is absent."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if it is absent, and return whether it was. Exactly one racing caller gets True."""
        ...

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        """Write an object only if its content equals `expected`. Return False if it differs or the object is gone."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write an object unconditionally."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object. Ignores an absent object."""
        ...

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of objects directly inside `prefix` in code point order. Empty if the prefix is absent."""
        ...


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Characters that every client uses literally. Clients disagree on whether others are percent-encoded.
_PREFIX_PART = re.compile(r"[A-Za-z0-9._=@+-]+")


class StorageKind(StrEnum):
    """A folder on this machine, or a bucket in an object store."""

    LOCAL = "local"
    S3 = "s3"


class StorageRootError(ValueError):
    """The storage root cannot be used. The message has the reason. Reported as `invalid_storage_root`."""


@dataclass(frozen=True, slots=True)
class StorageRoot:
    """A parsed storage root.

    `text` is the declared value without surrounding spaces and trailing slashes. A LOCAL root has a `path`, which is
    absolute or relative to the cluster folder. An S3 root has a `bucket` and a `prefix`, which has no slash at either
    end and may be empty.
    """

    kind: StorageKind
    text: str
    path: str = ""
    bucket: str = ""
    prefix: str = ""

    def local_path(self, config_dir: str) -> str:
        """Return a LOCAL root's folder. A relative one is below `config_dir`."""
        return normpath(join(config_dir, self.path))


def parse_storage(value: str) -> StorageRoot:
    """Parse `storage:`, which is a path, `file:///path`, or `s3://bucket[/prefix]`.

    Raises StorageRootError for a blank value, a missing bucket, an unknown scheme, or characters or path parts that
    stores treat differently.
    """
    given = value.strip()
    if not given:
        raise StorageRootError("the storage root is blank")
    if not given.isprintable():
        raise StorageRootError("the storage root contains control or invisible characters")
    # Read the scheme before trimming slashes, otherwise `s3://` would be a folder called `s3:`.
    scheme = _SCHEME.match(given)
    text = given.rstrip("/") or "/"
    if scheme is None:
        return StorageRoot(StorageKind.LOCAL, text, path=text)
    place = given.removeprefix(f"{scheme[1]}://")
    if scheme[1] == "file":
        if place == given or not place.startswith("/"):
            raise StorageRootError("file:// needs an absolute path: file:///path")
        path = place.rstrip("/") or "/"
        return StorageRoot(StorageKind.LOCAL, f"file://{path}", path=path)
    if scheme[1] != "s3":
        raise StorageRootError(f"the scheme {scheme[1][:32]}: is not known; use a path, file:// or s3://")
    bucket, _, prefix = place.rstrip("/").partition("/")
    if place == given or not bucket:
        raise StorageRootError("s3:// needs a bucket: s3://bucket[/prefix]")
    if _BUCKET.fullmatch(bucket) is None:
        raise StorageRootError("the bucket name has characters other than letters, digits, dot, dash and underscore")
    parts = prefix.split("/") if prefix else []
    if any(part in ("", ".", "..") for part in parts):
        raise StorageRootError("the prefix of the bucket has an empty part, . or ..")
    if not all(_PREFIX_PART.fullmatch(part) for part in parts):
        raise StorageRootError("the prefix of the bucket has characters other than letters, digits and . _ = @ + -")
    return StorageRoot(StorageKind.S3, given.rstrip("/"), bucket=bucket, prefix=prefix)
