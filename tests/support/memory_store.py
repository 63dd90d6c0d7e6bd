"""The in-memory implementation of the store, for tests: the same answers as the local one, without a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.database.storage.port import split_key, split_prefix

__all__ = ["BrokenStore", "MemoryStore"]


class MemoryStore:
    """An ObjectStore in a dictionary; safe for threads. `location` is only for people."""

    def __init__(self, location: str = "memory://") -> None:
        """Start empty."""
        self._location = location
        self._objects: dict[tuple[str, ...], bytes] = {}
        self._lock = threading.Lock()

    @property
    def location(self) -> str:
        """The name given at the start."""
        return self._location

    @property
    def parallel(self) -> int:
        """Memory does not keep its callers waiting."""
        return 1

    def display(self, key: str) -> str:
        """The name of the store and the key."""
        return f"{self._location.rstrip('/')}/{key}"

    def copy(self) -> MemoryStore:
        """Another store with the same objects."""
        other = MemoryStore(self._location)
        with self._lock:
            other._objects = dict(self._objects)
        return other

    def keys(self) -> list[str]:
        """Every key, sorted."""
        with self._lock:
            return sorted("/".join(parts) for parts in self._objects)

    def read(self, key: str) -> bytes | None:
        """The content, or None when there is no such object."""
        parts = split_key(key)
        with self._lock:
            self._require_place(parts)
            return self._objects.get(parts)

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Some of the content."""
        data = self.read(key)
        if data is None or len(data) < end:
            raise RemoteError(Code.STORAGE_FAILED, f"{key} has no bytes up to {end}")
        return data[start:end]

    def create(self, key: str, data: bytes) -> bool:
        """Write only if absent."""
        parts = split_key(key)
        with self._lock:
            self._require_place(parts)
            if parts in self._objects:
                return False
            self._objects[parts] = bytes(data)
            return True

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        """Write only if the current content equals `expected`."""
        parts = split_key(key)
        with self._lock:
            self._require_place(parts)
            if self._objects.get(parts) != expected:
                return False
            self._objects[parts] = bytes(data)
            return True

    def write(self, key: str, data: bytes) -> None:
        """Write unconditionally."""
        parts = split_key(key)
        with self._lock:
            self._require_place(parts)
            self._objects[parts] = bytes(data)

    def delete(self, key: str) -> None:
        """Remove, whether it is there or not."""
        parts = split_key(key)
        with self._lock:
            self._require_place(parts)
            self._objects.pop(parts, None)

    def names(self, prefix: str) -> tuple[str, ...]:
        """Names of the objects directly inside `prefix`, in code point order."""
        parts = split_prefix(prefix)
        with self._lock:
            self._require_folders(parts, len(parts))
            return tuple(sorted(key[-1] for key in self._objects if key[:-1] == parts))

    def _require_place(self, parts: tuple[str, ...]) -> None:
        """A disk has folders: an object cannot lie below another one, nor where a folder is."""
        self._require_folders(parts, len(parts) - 1)
        if any(len(key) > len(parts) and key[: len(parts)] == parts for key in self._objects):
            raise RemoteError(Code.STORAGE_FAILED, f"{'/'.join(parts)} is a folder, not an object")

    def _require_folders(self, parts: tuple[str, ...], depth: int) -> None:
        if any(parts[: level + 1] in self._objects for level in range(depth)):
            raise RemoteError(Code.STORAGE_FAILED, f"a part of {'/'.join(parts)} is an object, not a folder")


@dataclass
class BrokenStore(MemoryStore):
    """A store whose chosen operations on chosen keys fail, before or after they took effect."""

    broken: set[tuple[str, str]] = field(default_factory=set)
    too_late: bool = False

    def __post_init__(self) -> None:
        super().__init__()

    def _run(self, operation: str, key: str, act: Callable[[], object]) -> object:
        if any(operation == o and key.startswith(prefix) for o, prefix in self.broken):
            if self.too_late:
                act()
            raise RemoteError("storage_failed", "the disk is on fire", retryable=True)
        return act()

    def read(self, key: str) -> bytes | None:
        return self._run("read", key, lambda: super(BrokenStore, self).read(key))  # type: ignore[return-value]

    def create(self, key: str, data: bytes) -> bool:
        return self._run("create", key, lambda: super(BrokenStore, self).create(key, data))  # type: ignore[return-value]

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        return self._run(  # type: ignore[return-value]
            "replace", key, lambda: super(BrokenStore, self).replace(key, data, expected=expected)
        )

    def write(self, key: str, data: bytes) -> None:
        self._run("write", key, lambda: super(BrokenStore, self).write(key, data))

    def delete(self, key: str) -> None:
        self._run("delete", key, lambda: super(BrokenStore, self).delete(key))

    def names(self, prefix: str) -> tuple[str, ...]:
        return self._run("names", prefix, lambda: super(BrokenStore, self).names(prefix))  # type: ignore[return-value]
