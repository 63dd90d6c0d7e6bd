"""Files under one root: the primitives that the ledger folder and the graph roots are built on.

Keys are relative POSIX paths (`__cluster/state.json`). Every write is atomic: a reader sees the whole old or the whole
new content. A write is durable when the call returns.
"""

from __future__ import annotations

from typing import Protocol


class ObjectStore(Protocol):
    """Read, create, replace, delete and list objects.

    Every failure that a method does not name is a RemoteError `storage_failed`; no OSError leaks. After one, what a method
    was to write may be there. A store that cannot keep these promises refuses to write with a UsageError.
    """

    @property
    def location(self) -> str:
        """Where the root is, for people: an absolute path, or a URI."""
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

    def delete(self, key: str) -> bool:
        """Remove; False when there was nothing."""
        ...

    def names(self, prefix: str) -> tuple[str, ...]:
        """Names of the objects directly inside `prefix` (no deeper keys), in code point order; empty when absent."""
        ...
