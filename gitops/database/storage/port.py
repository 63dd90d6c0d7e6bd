"""Files under one root: the primitives that the ledger folder and the graph roots are built on.

Keys are relative POSIX paths of visible, ordinary names (`__cluster/state.json`), by one rule for every store. Every write is
atomic: a reader sees the whole old or the whole new content. A write is durable when the call returns.
"""

from __future__ import annotations

from typing import Protocol

from gitops.core.codes import Code
from gitops.core.errors import RemoteError

TEMP_PREFIX = ".tmp-"
"""How the names begin that belong to the store itself."""

_MAX_KEY = 1024
_MAX_PART = 255


def split_key(key: str) -> tuple[str, ...]:
    """The parts of `key`. Raises RemoteError `storage_failed` for a key that could leave the root or hide in it."""
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
    """As `split_key`, where the empty text stands for the root and one final slash is allowed."""
    return split_key(prefix.removesuffix("/")) if prefix else ()


class ObjectStore(Protocol):
    """Read, create, replace, delete and list objects.

    Every failure that a method does not name is a RemoteError `storage_failed`; no OSError leaks. After one, what a method
    was to write may be there. A store that cannot keep these promises refuses to write with a UsageError.
    """

    @property
    def location(self) -> str:
        """Where the root is, for people: an absolute path, or a URI."""
        ...

    @property
    def parallel(self) -> int:
        """How many calls are worth making at the same time; 1 where nothing is gained by that."""
        ...

    def display(self, key: str) -> str:
        """Where `key` is, for people."""
        ...

    def read(self, key: str) -> bytes | None:
        """The content, or None only when the object definitely does not exist."""
        ...

    def create(self, key: str, data: bytes) -> bool:
        """Write only if absent; False when an object was there already. Exactly one of racing callers gets True."""
        ...

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        """Write only if the current content equals `expected`; False when it does not, or vanished."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Write unconditionally."""
        ...

    def delete(self, key: str) -> None:
        """Remove, whether it is there or not."""
        ...

    def names(self, prefix: str) -> tuple[str, ...]:
        """Names of the objects directly inside `prefix` (no deeper keys), in code point order; empty when absent."""
        ...
