"""A graph root under an object store prefix.

    graph.json      a graph's claim while it is being created, then its identity
    <graph_id>/     that graph's folder, laid out exactly like a local root

An object store has no rename, so a graph becomes visible when `graph.json` points to its folder. Rules of this module:

1. Only `graph.json` determines the root's state. It is written only by create-if-absent, or by compare-and-replace of
   the content that the writer saw.
2. Creating a graph begins with a claim. An existing claim is replaced, which fences off its owner, running or not,
   because the owner compares `graph.json` with its own claim before it publishes, and fails. So a crashed creator does
   not block others, and the later of two creators wins.
3. Publishing replaces the claim with the identity, in one compare-and-replace. Before that, there is only a claim, and
   a root with only a claim is ABSENT, even if other creators left folders.
4. A creator deletes the folders that it saw before its claim, because their creators are fenced off by this claim or an
   earlier one. Folders that it sees later may belong to the next creator, which has replaced its claim. Otherwise only
   rules 5 to 7 delete folders.
5. `remove` deletes `graph.json` first, so that a crash leaves a root that does not open, but never a graph with only
   part of its data. Folders without `graph.json` are PRESENT and unreadable: the root is occupied, a lost `graph.json`
   does not count as a lost graph, and an interrupted deletion is requested again.
6. `remove_incarnation` replaces that graph's `graph.json` with an ownerless claim by compare-and-replace, and only then
   deletes the folder. So it cannot delete a different graph, and a crash leaves an absent root.
7. If a root has only a claim, `reclaim` replaces it with an ownerless claim and deletes the folders that it saw before,
   as in rule 4. These are leftovers of a crashed create or removal.
8. Folders have fresh names, so a writer whose graph was replaced writes to a folder that is not read.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import BinaryIO, Protocol

from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import ULID, nullable, record
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.core.faults import Faults
from gitops.database.graph import layout
from gitops.database.graph.manifest import IDENTITY, GraphIdentity, graph_document, read_document
from gitops.database.graph.port import Existence
from gitops.database.graph.root import DatasetLocation, StoredFile, root_taken
from gitops.database.storage.port import ObjectStore

_URI = re.compile(r"s3://[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9._=@+-]+)+")
_ROUNDS = 8


class PrefixStore(ObjectStore, Protocol):
    """An ObjectStore for a bucket prefix that can also list and delete objects at any depth."""

    def keys(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys of all objects below `prefix`, at any depth, page by page. Raises RemoteError during iteration."""
        ...

    def details(self, prefix: str = "") -> Iterator[tuple[str, int, datetime]]:
        """Yield the same objects as `keys`, with their size in bytes and last write time."""
        ...

    def download(self, key: str, size: int, target: BinaryIO) -> bool:
        """Append an object with this many bytes to a file. Return False if the object does not exist."""
        ...

    def delete_keys(self, keys: Iterable[str]) -> None:
        """Remove objects in no particular order. Absent objects are ignored. After a failure, some may remain."""
        ...


class ObjectFolder:
    """A GraphFolder under a prefix below a root."""

    def __init__(self, root: PrefixStore, name: str, options: Callable[[], Mapping[str, str]]) -> None:
        """Create the folder. `options` tell the Lance driver the service's address and contain no credentials."""
        self._root = root
        self._name = name
        self._options = options
        self.store = _SubfolderStore(root, name)

    def dataset(self, path: str) -> DatasetLocation:
        """Return the dataset's address, with driver options."""
        return DatasetLocation(f"{self.store.location}/{path}", self._options())

    def clear(self) -> None:
        """Remove everything in the folder. Raises RemoteError `storage_failed`."""
        self._root.delete_keys(tuple(self._root.keys(self._name)))

    def settle(self, path: str, names: Iterable[str], *, new: bool = False) -> None:
        """Do nothing. Objects are durable, because the driver waits until the service has confirmed each put."""

    def marks(self, keys: Sequence[str]) -> None:
        """Return None, because a service can report no more about an object than reading it would."""

    def note_newest(self, line: str, n: int) -> None:
        """Do nothing, because a service lists the newest version first."""

    def noted_newest(self, line: str) -> None:
        """Return None."""

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all objects below one of the folder's prefixes."""
        for key, size, written in self._root.details(f"{self._name}/{prefix}"):
            yield StoredFile(key.removeprefix(f"{self._name}/"), size, written)

    def download(self, path: str, size: int, target: BinaryIO) -> bool:
        """Append a file with this many bytes to a local one. Return False if it does not exist. Raises RemoteError."""
        return self._root.download(f"{self._name}/{path}", size, target)

    def children(self, prefix: str) -> tuple[str, ...]:
        """Return the folder names directly below a prefix: the parts of keys before the first slash."""
        start = f"{self._name}/{prefix}/"
        below = (key.removeprefix(start) for key in self._root.keys(f"{self._name}/{prefix}") if key.startswith(start))
        return tuple(sorted({key.partition("/")[0] for key in below if "/" in key}))

    def remove(self, path: str) -> None:
        """Delete the object with this key and all objects below it."""
        key = f"{self._name}/{path}"
        self._root.delete_keys((key, *self._root.keys(key)))


class ObjectRoot:
    """A GraphRoot under a bucket prefix."""

    def __init__(
        self, store: PrefixStore, options: Callable[[], Mapping[str, str]], beside: Callable[[], ObjectStore]
    ) -> None:
        """Create the root at the store's prefix. For `options` see ObjectFolder. `beside` opens the parent prefix."""
        self._store = store
        self._options = options
        self._beside = beside
        self.location = store.location

    @classmethod
    def at(cls, uri: str) -> ObjectRoot:
        """Return the root at an `s3:` address, using the service and credentials from the environment.

        The bucket itself cannot be a root, because removing a root removes everything below it. Only characters that
        every client uses literally are allowed, so that the driver and this module use the same keys. Raises
        GitopsError `graph_unreadable` for any other address; the errors of S3Store.
        """
        from gitops.database.storage.s3 import S3Store, lance_options

        address = uri.rstrip("/")
        if _URI.fullmatch(address) is None or any(part in (".", "..") for part in address.split("/")):
            detail = f"{uri[:200]!r} is not a graph root: use s3://bucket/prefix, of letters, digits and . _ = @ + -"
            fix = "correct --root, or storage in cluster.yaml"
            raise GitopsError(Code.GRAPH_UNREADABLE, detail, path=uri[:200], fix=fix)
        # The service is tested outside the root, because objects in the root count as part of a graph: at the storage root of
        # its cluster, or the parent prefix.
        bucket, slash, prefix = address.rpartition("/")[0].removeprefix("s3://").partition("/")
        beside = f"s3://{bucket}{f'{slash}{prefix}'.removesuffix('/graphs')}"
        above = address.rpartition("/")[0]
        return cls(S3Store(address, probe_at=beside), lance_options, lambda: S3Store(above, probe_at=beside))

    def existence(self) -> Existence:
        """Return PRESENT for a graph and for content that is neither a graph nor a claim. Takes one or two requests."""
        try:
            marker = self._marker()
        except IntegrityError:
            return Existence.PRESENT
        except RemoteError:
            return Existence.UNKNOWN
        return Existence.ABSENT if marker is None or _is_claim(marker) else Existence.PRESENT

    def open(self) -> tuple[GraphIdentity, ObjectFolder]:
        """Return the graph that `graph.json` refers to. Takes one request."""
        marker = self._marker()
        if marker is None:
            raise GitopsError(Code.GRAPH_MISSING, f"{self.location} contains no graph", path=self.location)
        if _is_claim(marker):
            raise GitopsError(
                Code.GRAPH_MISSING, f"the creation of a graph at {self.location} was not finished", path=self.location
            )
        identity = read_document(IDENTITY, marker, self._store.display(layout.IDENTITY))
        return identity, self.folder(identity)

    def holds(self, identity: GraphIdentity) -> bool:
        """Return whether `graph.json` contains this identity."""
        return self._store.read(layout.IDENTITY) == identity.to_bytes()

    def lease(self) -> AbstractContextManager[None]:
        """Do nothing, because no lock is shared by writers on several hosts and also freed when a host crashes."""
        return contextlib.nullcontext()

    def stage(self, identity: GraphIdentity) -> ObjectStaging:
        """Claim the root and remove leftovers of other creates.

        1. The root must be empty, or contain a claim and folders of creators. 2. The claim is written by
           compare-and-replace of the content that was seen. 3. Folders that were seen in step 1 are deleted. Later ones
           are kept, because they may belong to a creator that replaced this claim.
        """
        try:
            seen = self._marker()
        except IntegrityError:
            raise self._taken(self._store.keys("")) from None
        left: list[str] = []
        if seen is not None:
            if not _is_claim(seen):
                raise self._taken([layout.IDENTITY])
            keys = set(self._store.keys("")) - {layout.IDENTITY}
            left = sorted(filter(_is_in_graph_folder, keys))
            if keys.difference(left):
                raise self._taken(keys.difference(left))
        claim = CLAIM.write(_Claim(identity.graph_id))
        if not _swap(self._store, seen, claim):
            detail = f"another writer is creating a graph at {self.location}"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=self.location)
        self._store.delete_keys(left)
        return ObjectStaging(self._store, self.folder(identity), identity, claim)

    def beside(self) -> ObjectStore:
        """Return the object store for the parent prefix."""
        return self._beside()

    def remove_incarnation(self, graph_id: str, faults: Faults) -> None:
        """Remove the graph with this id, following rule 6."""
        marker = self._store.read(layout.IDENTITY)
        if marker is not None and not _is_claim(marker):
            found = read_document(IDENTITY, marker, self._store.display(layout.IDENTITY))
            if found.graph_id != graph_id or not _swap(self._store, marker, CLAIM.write(_Claim(None))):
                raise ConflictError(
                    Code.GRAPH_CONFLICT, f"a different graph is at {self.location} now", path=self.location
                )
            faults.reach("engine.delete.before_files")
        self._store.delete_keys(tuple(self._store.keys(graph_id)))

    def reclaim(self) -> None:
        """Remove leftovers at a root that has only a claim, following rule 7."""
        seen = self._store.read(layout.IDENTITY)
        if seen is None or not _is_claim(seen):
            return
        left = sorted(filter(_is_in_graph_folder, self._store.keys("")))
        # The claim has not changed since before the listing, so no listed folder belongs to a creator with a valid claim.
        if not _swap(self._store, seen, CLAIM.write(_Claim(None))):
            raise ConflictError(Code.GRAPH_CONFLICT, f"another writer is at {self.location}", path=self.location)
        self._store.delete_keys(left)

    def tidy(self) -> None:
        """Do nothing, because there is no way to know whether another creator has crashed.

        The next claim removes its leftovers (rule 4).
        """

    def remove(self) -> None:
        """List and delete all objects, `graph.json` first, until none are left."""
        for _ in range(_ROUNDS):
            keys = set(self._store.keys(""))
            if not keys:
                return
            if layout.IDENTITY in keys:
                self._store.delete(layout.IDENTITY)
            self._store.delete_keys(sorted(keys - {layout.IDENTITY}))
        raise RemoteError(Code.STORAGE_FAILED, f"{self.location}: another writer is writing while the root is removed")

    def folder(self, identity: GraphIdentity) -> ObjectFolder:
        """Return the graph's folder below the root."""
        return ObjectFolder(self._store, identity.graph_id, self._options)

    def _marker(self) -> bytes | None:
        """Read `graph.json`; None if the root is empty.

        Raises IntegrityError `graph_unreadable` if the root has objects but no `graph.json`; RemoteError.
        """
        # A second attempt, in case a creator claimed the root between the read and the listing.
        for _ in range(2):
            marker = self._store.read(layout.IDENTITY)
            if marker is not None:
                return marker
            if next(self._store.keys(""), None) is None:
                return None
        detail = (
            f"{self.location} holds objects but no {layout.IDENTITY}: a deletion was cut short, or a copy is incomplete"
        )
        raise IntegrityError(Code.GRAPH_UNREADABLE, detail, path=self.location)

    def _taken(self, keys: Iterable[str]) -> GitopsError:
        return root_taken(self.location, {key.partition("/")[0] for key in keys})


class ObjectStaging:
    """A graph that is being created in a separate folder, under a claim."""

    def __init__(self, root: PrefixStore, folder: ObjectFolder, identity: GraphIdentity, claim: bytes) -> None:
        self._root = root
        self.folder = folder
        self._identity = identity
        self._claim = claim

    def take_root(self) -> None:
        """Replace the claim with the identity. Raises ConflictError `graph_conflict` if the claim is gone."""
        if not _swap(self._root, self._claim, self._identity.to_bytes()):
            place = self._root.location
            raise ConflictError(Code.GRAPH_CONFLICT, f"another writer claimed or removed {place}", path=place)

    def discard(self) -> None:
        """Give up the claim, then remove the folder.

        The order matters if the response to `take_root` was lost: either the claim is gone and the request can no
        longer succeed, or it has succeeded and nothing may be removed. An ownerless claim remains, because it cannot be
        deleted conditionally and the deletion could hit the next creator's claim.
        """
        with contextlib.suppress(RemoteError):
            if not _swap(self._root, self._claim, CLAIM.write(_Claim(None))):
                now = self._root.read(layout.IDENTITY)
                if now is None or now in (self._claim, self._identity.to_bytes()):
                    return
            self.folder.clear()


class _SubfolderStore:
    """An ObjectStore for a subfolder of another one."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._name = name

    @property
    def location(self) -> str:
        return self._store.display(self._name)

    @property
    def parallel(self) -> int:
        return self._store.parallel

    def display(self, key: str) -> str:
        return self._store.display(self._at(key))

    def read(self, key: str) -> bytes | None:
        return self._store.read(self._at(key))

    def read_range(self, key: str, start: int, end: int) -> bytes:
        return self._store.read_range(self._at(key), start, end)

    def create(self, key: str, data: bytes) -> bool:
        return self._store.create(self._at(key), data)

    def replace(self, key: str, data: bytes, *, expected: bytes) -> bool:
        return self._store.replace(self._at(key), data, expected=expected)

    def write(self, key: str, data: bytes) -> None:
        self._store.write(self._at(key), data)

    def delete(self, key: str) -> None:
        self._store.delete(self._at(key))

    def names(self, prefix: str) -> tuple[str, ...]:
        return self._store.names(self._at(prefix))

    def _at(self, key: str) -> str:
        return f"{self._name}/{key}"


def _is_in_graph_folder(key: str) -> bool:
    folder, slash, _ = key.partition("/")
    return bool(slash) and is_ulid(folder)


def _swap(store: ObjectStore, old: bytes | None, new: bytes) -> bool:
    """Write `graph.json` if it is unchanged; return whether it was."""
    if old is None:
        return store.create(layout.IDENTITY, new)
    return store.replace(layout.IDENTITY, new, expected=old)


@dataclass(frozen=True, slots=True)
class _Claim:
    """The claim of a graph's creator; None means a claim without an owner."""

    claimed_by: str | None


CLAIM = graph_document({1: record(_Claim, {"claimed_by": nullable(ULID)})})


def _is_claim(marker: bytes) -> bool:
    """Return whether a `graph.json` document is a claim.

    A document that is neither claim nor identity counts as an unreadable graph.
    """
    try:
        CLAIM.read(marker)
    except IntegrityError:
        return False
    return True
