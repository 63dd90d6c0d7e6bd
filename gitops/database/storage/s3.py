"""Stores objects under one prefix in an S3-compatible service.

Rules of this module:

1. Every write is one PUT. Once the service has responded, it is durable and visible to every later read.
2. `create` sends `If-None-Match: *`, and `replace` sends `If-Match` with the tag of the compared bytes, or of the bytes
   that this store read or wrote last if they are equal, so the service decides between racing callers. Before a
   process's first write, a race tests whether the service does this.
3. The client library never retries a conditional PUT, because after a success, the retry would be refused because of
   the object that was just written. This module retries it instead. Every conditional PUT stores a fresh token in the
   object's metadata, so that the object shows which writer created it, even for equal bytes.
4. Requests are retried, within the bucket's limit, if the service is busy or if it refuses both of two writers.
5. So a conditional call returns True if one of its attempts succeeded, and False only if none can have succeeded.
   Otherwise it raises RemoteError, because it never guesses the result of a request whose response was lost.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from itertools import chain
from typing import BinaryIO

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.database.storage.bucket import Bucket, PutResult, lance_options
from gitops.database.storage.contest import Race, race
from gitops.database.storage.port import (
    TEMP_PREFIX,
    StorageKind,
    StorageRootError,
    parse_storage,
    split_key,
    split_prefix,
)

__all__ = ["S3Store", "lance_options"]

_PROBE = "__cluster/.probe-"
_WRITERS = 4
_AT_ONCE = 64
_PIECE_BYTES = 16 * 1024 * 1024
_TAGS, _TAGGED_BYTES = 4096, 1024 * 1024
"""Maximum number of objects whose tags are cached, and maximum size of these objects."""


class S3Store:
    """An ObjectStore below `s3://bucket[/prefix]`. Thread-safe.

    There are no folders, so one key can be a prefix of another.

    The environment provides the address of the service and the credentials: `AWS_ENDPOINT_URL_S3` or
    `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ALLOW_HTTP`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    `AWS_SESSION_TOKEN`, or the identity of the machine.
    """

    parallel = _AT_ONCE
    """Requests mostly wait, so many are sent at once."""

    def __init__(self, location: str, *, probe_at: str | None = None) -> None:
        """Create the client without sending a request.

        The service test (rule 2) uses an object at `__cluster/.probe-<id>` below `probe_at`, an address in the same
        bucket; the default is the location. Raises GitopsError `storage_driver_missing`, `storage_root_invalid`.
        """
        bucket, self._prefix = _place(location)
        self._probe_prefix = self._prefix if probe_at is None else _place(probe_at)[1]
        self.location = f"s3://{_join(bucket, self._prefix)}"
        self._bucket = Bucket(bucket)
        self._tested = _self_test(bucket, self._bucket.endpoint)
        self._tags: dict[str, tuple[str, str]] = {}

    def display(self, key: str) -> str:
        """Return the object's address."""
        split_key(key)
        return f"{self.location}/{key}"

    def read(self, key: str) -> bytes | None:
        """Read an object. Returns None only if the service reports that the bucket exists but the object does not."""
        path = self._path(key)
        found = self._bucket.get(path)
        if found is None:
            return None
        self._remember(path, found.data, found.tag)
        return found.data

    def read_range(self, key: str, start: int, end: int) -> bytes:
        """Read some of an object's bytes."""
        found = self._bucket.get_range(self._path(key), start, end) if end > start else b""
        if found is None or len(found) != end - start:
            detail = f"{self._path(key)} in {self.location} is shorter than {end} bytes"
            raise RemoteError(Code.STORAGE_FAILED, detail, path=key)
        return found

    def create(self, key: str, data: bytes) -> bool:
        """Write an object only if it is absent. Return False if it exists and no attempt of this call created it.

        Raises RemoteError `storage_failed`, after which the object may exist; UsageError
        `storage_conditional_put_ignored`.
        """
        path, token, sure = self._path(key), secrets.token_hex(16), True
        with self._writing():
            for _ in self._bucket.retry.attempts(self.display(key)):
                answer = self._bucket.put_if(path, data, token, matching=None)
                if answer.result is PutResult.WRITTEN:
                    self._remember(path, data, answer.tag)
                    return True
                sure = sure and answer.result is PutResult.REFUSED
                # A refusal does not prove that the object exists, because two concurrent writers can both be refused.
                owner = self._bucket.owner(path)
                if owner is not None:
                    return _settled(self.display(key), ours=owner == token, sure=sure)
        raise _unknown_result(self.display(key))

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        """Write an object only if its content equals `expected`. Return False if it differs and no attempt succeeded.

        Raises the same errors as `create`; after a RemoteError, the content may be the new one.
        """
        path, token, sure = self._path(key), secrets.token_hex(16), True
        with self._writing():
            content, before = self._tags.pop(path, ("", ""))
            known = [before] if content == digest(expected) else []
            for _ in chain(tuple(known), self._bucket.retry.attempts(self.display(key))):
                if known:
                    before = known.pop()
                else:
                    found = self._bucket.get(path)
                    if found is None or found.data != expected or found.owner == token:
                        return _settled(self.display(key), ours=found is not None and found.owner == token, sure=sure)
                    before = found.tag
                answer = self._bucket.put_if(path, data, token, matching=before)
                if answer.result is PutResult.WRITTEN:
                    self._remember(path, data, answer.tag)
                    return True
                sure = sure and answer.result is PutResult.REFUSED
        raise _unknown_result(self.display(key))

    def write(self, key: str, data: bytes) -> None:
        """Write an object unconditionally."""
        path = self._path(key)
        with self._writing():
            self._bucket.put(path, data)

    def delete(self, key: str) -> None:
        """Remove an object. Ignores an absent object."""
        self._bucket.delete([self._path(key)])

    def names(self, prefix: str) -> tuple[str, ...]:
        """Return the names of objects directly inside `prefix`, in code point order."""
        folder = self._folder(prefix)
        start = f"{folder}/" if folder else ""
        # Folder markers, which some programs create, are listed under the folder's own name.
        names = (path.removeprefix(start) for path in self._bucket.inside(folder) if path.startswith(start))
        return tuple(sorted(name for name in names if not name.startswith(TEMP_PREFIX)))

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys of all objects below `prefix`, at any depth, page by page. Raises RemoteError during iteration."""
        return (key for key, _, _ in self.details(prefix))

    def details(self, prefix: str = "") -> Iterator[tuple[str, int, datetime]]:
        """Yield the same objects as `keys`, with their size in bytes and last write time."""
        start = f"{self._prefix}/" if self._prefix else ""
        found = self._bucket.details(self._folder(prefix))
        return ((path.removeprefix(start), size, written) for path, size, written in found)

    def download(self, key: str, size: int, target: BinaryIO) -> bool:
        """Append an object with this many bytes to a file, in pieces that each have a time limit.

        Returns False if the object does not exist.
        """
        path = self._path(key)
        for start in range(0, size, _PIECE_BYTES):
            piece = self._bucket.get_range(path, start, min(start + _PIECE_BYTES, size))
            if piece is None:
                return False
            target.write(piece)
        return True

    def delete_keys(self, keys: Iterable[str]) -> None:
        """Remove objects in any order. Ignores absent objects. After a failure, some may remain."""
        self._bucket.delete([self._path(key) for key in keys])

    def _remember(self, path: str, data: bytes, tag: str) -> None:
        if len(self._tags) >= _TAGS:
            self._tags.clear()
        if tag and len(data) <= _TAGGED_BYTES:
            self._tags[path] = digest(data), tag

    def _path(self, key: str) -> str:
        return _join(self._prefix, *split_key(key))

    def _folder(self, prefix: str) -> str:
        return _join(self._prefix, *split_prefix(prefix))

    def race(self, writers: int, rounds: int) -> list[Race]:
        """Run this many races, with temporary objects, to test that the service lets only one writer win.

        Raises RemoteError `storage_failed`.
        """
        used: list[str] = []
        try:
            return [race(self._bucket, self._probe(), writers, used) for _ in range(rounds)]
        finally:
            self._remove(used)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Test the service before the first write of the process.

        The leftovers of the test are removed during the write.
        """
        used = self._tested.require(self._bucket, self._probe())
        if not used:
            yield
            return
        removal = threading.Thread(target=self._remove, args=(used,))
        removal.start()
        try:
            yield
        finally:
            removal.join()

    def _probe(self) -> str:
        return _join(self._probe_prefix, f"{_PROBE}{secrets.token_hex(16)}")

    def _remove(self, used: list[str]) -> None:
        # A failure leaves small objects that no listing of a ledger includes.
        with contextlib.suppress(RemoteError):
            self._bucket.delete(used)


class _SelfTest:
    """Tests once per process whether a service obeys PUT conditions; only a success is cached."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passed = False

    def require(self, bucket: Bucket, path: str) -> list[str]:
        """Run the test unless it has already passed; return the objects to remove afterwards.

        Raises UsageError `storage_conditional_put_ignored`.
        """
        used: list[str] = []
        with self._lock:
            if self._passed:
                return used
            try:
                fault = race(bucket, path, _WRITERS, used).fault
                if fault:
                    raise UsageError(
                        Code.STORAGE_CONDITIONAL_PUT_IGNORED,
                        f"the service of s3://{bucket.name} let several writers {fault}; two runs could overwrite each other's "
                        "ledger: use a service that decides between writers (docs/storage.md)",
                        path=f"s3://{bucket.name}",
                    )
            except GitopsError:
                with contextlib.suppress(RemoteError):
                    bucket.delete(used)
                raise
            self._passed = True
            return used


# One test per service, even if a process opens several stores on it; the arguments identify the service.
@cache
def _self_test(bucket: str, endpoint: str) -> _SelfTest:  # noqa: ARG001
    return _SelfTest()


def _place(location: str) -> tuple[str, str]:
    """Return the bucket and prefix of an address. Raises GitopsError `storage_root_invalid`."""
    try:
        root = parse_storage(location)
    except StorageRootError as error:
        raise GitopsError(Code.STORAGE_ROOT_INVALID, str(error), path="storage") from None
    if root.kind is not StorageKind.S3:
        raise GitopsError(
            Code.STORAGE_ROOT_INVALID, "this is not an address of the form s3://bucket/prefix", path="storage"
        )
    return root.bucket, root.prefix


def _join(*parts: str) -> str:
    return "/".join(part for part in parts if part)


def _settled(place: str, *, ours: bool, sure: bool) -> bool:
    """Apply rule 5, given whether the object is ours and whether that is certain."""
    if not ours and not sure:
        raise _unknown_result(place)
    return ours


def _unknown_result(place: str) -> RemoteError:
    return RemoteError(
        Code.STORAGE_FAILED,
        f"{place}: it is unknown whether this was written; check it, and run the command again",
        path=place,
        retryable=True,
    )
