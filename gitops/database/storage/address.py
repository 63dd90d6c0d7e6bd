"""The storage root: where the ledger, the catalog and the graphs are stored, from `storage:`."""

from __future__ import annotations

import re
from enum import StrEnum
from posixpath import join, normpath

from gitops.core.dataclass import dataclass

__all__ = ["StorageKind", "StorageRoot", "StorageRootError", "parse_storage"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# What every client takes literally: of other characters one client means the code, and the next one the character.
_PREFIX_PART = re.compile(r"[A-Za-z0-9._=@+-]+")


class StorageKind(StrEnum):
    """A folder of this machine, or a bucket of an object store."""

    LOCAL = "local"
    S3 = "s3"


class StorageRootError(ValueError):
    """A storage root that cannot be used; the text says why. Reported as `invalid_storage_root`."""


@dataclass(frozen=True, slots=True)
class StorageRoot:
    """A parsed storage root.

    `text` is the value as declared, without outer spaces and closing slashes. A LOCAL root has `path`, absolute or relative
    to the cluster folder; an S3 root has `bucket` and `prefix` (no slash at either end, may be empty).
    """

    kind: StorageKind
    text: str
    path: str = ""
    bucket: str = ""
    prefix: str = ""

    def local_path(self, config_dir: str) -> str:
        """The folder of a LOCAL root; a relative one is under `config_dir`."""
        return normpath(join(config_dir, self.path))


def parse_storage(value: str) -> StorageRoot:
    """Read `storage:`: a path, `file:///path`, or `s3://bucket[/prefix]`.

    Raises StorageRootError for a blank value, a missing bucket, another scheme, and characters or path parts that stores
    disagree about.
    """
    given = value.strip()
    if not given:
        raise StorageRootError("the storage root is blank")
    if not given.isprintable():
        raise StorageRootError("the storage root contains control or invisible characters")
    # The scheme is read before slashes are trimmed, or `s3://` would be a folder called `s3:`.
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
