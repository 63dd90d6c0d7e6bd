"""Graph storage: the port between the graph database and a local disk or an object store.

Each of these three has a local and an object-store implementation:

* a root is an address at which at most one graph is created, opened and removed;
* a folder holds the content of one graph: small objects, and Lance datasets at paths below it;
* a staging is a folder that is filled before it is published at its root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import BinaryIO, Protocol

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults
from gitops.database.graph import layout
from gitops.database.graph.manifest import GraphIdentity
from gitops.database.graph.port import Existence
from gitops.database.storage.port import ObjectStore

_TABLES_AT_ONCE = 16

FileMark = tuple[int, int, int, int]
"""Inode, size, and the times of the last change of a file's content and of its status, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """A dataset's address for the Lance driver, and driver options (none for the local disk)."""

    uri: str
    options: Mapping[str, str] | None = None

    def driver_options(self) -> dict[str, str] | None:
        """Return the options in the form that the driver accepts."""
        return None if self.options is None else dict(self.options)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a folder: its path, its size, and its last modification time according to the storage's clock."""

    path: str
    bytes: int
    written: datetime


class GraphFolder(Protocol):
    """The folder with one graph's content."""

    @property
    def store(self) -> ObjectStore:
        """The store of small objects: manifests, schemas and the identity."""
        ...

    def dataset(self, path: str) -> DatasetLocation:
        """Return the dataset at a path below the folder."""
        ...

    def settle(self, path: str, names: Iterable[str], *, new: bool = False) -> None:
        """Make a dataset's files durable, because the driver does not sync anything. Raises OSError.

        `names` are relative to the dataset and are read only if there is work to do. A folder name means all files in
        it, and a data file name includes the folder of its large blobs. `new` means that the dataset itself is new.
        """
        ...

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below a path, recursively, including unfinished files that stores do not list.

        An empty folder counts as an empty file because a writer may be about to fill it. Raises OSError, RemoteError.
        """
        ...

    def download(self, path: str, size: int, target: BinaryIO) -> bool:
        """Append a file's first `size` bytes to a local file. Return False if it does not exist. Raises OSError, RemoteError."""
        ...

    def children(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the folders directly below a path, in code point order. Raises OSError, RemoteError."""
        ...

    def marks(self, keys: Sequence[str]) -> tuple[FileMark | None, ...] | None:
        """Check objects in this order. Return each one's mark, or None for an absent object.

        Equal marks for a key mean that the object has not changed. Returns None if the storage cannot tell without
        reading.
        """
        ...

    def note_newest(self, line: str, n: int) -> None:
        """Note the number of a line's newest version, if listing all versions takes long. Failures are ignored.

        The note is not durable.
        """
        ...

    def noted_newest(self, line: str) -> int | None:
        """Return the noted number, or None without a readable note. It can be outdated, or of a version that is gone."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content. An absent path is ignored. Raises OSError, RemoteError."""
        ...


class Staging(Protocol):
    """A graph that is being created and is not visible yet."""

    @property
    def folder(self) -> GraphFolder:
        """The folder for the graph's content, which is empty at first."""
        ...

    def take_root(self) -> None:
        """Publish the finished folder at the root in one atomic step. Can be called only once.

        Raises ConflictError `graph_conflict` if another writer was first; RemoteError `storage_failed`, after which the
        graph may exist.
        """
        ...

    def discard(self) -> None:
        """Remove the staged content, but never a graph that is already visible at the root.

        Never raises. Leftovers of a failure are not visible as a graph.
        """
        ...


class GraphRoot(Protocol):
    """An address that contains at most one graph."""

    @property
    def location(self) -> str:
        """The address, for messages."""
        ...

    def existence(self) -> Existence:
        """Return whether anything exists at this address.

        Only a definite not-found response is ABSENT. An address that does not respond is UNKNOWN.
        """
        ...

    def open(self) -> tuple[GraphIdentity, GraphFolder]:
        """Open the graph at this address.

        Raises GitopsError `graph_missing` if there is definitely no graph, `graph_unreadable` for anything else that is
        not a complete graph; RemoteError and OSError if the storage does not respond.
        """
        ...

    def holds(self, identity: GraphIdentity) -> bool:
        """Return whether the graph with this identity is still at this address. Raises RemoteError `storage_failed`."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Serialize writers while they change tables, if the storage allows it. Raises ConflictError `graph_conflict`.

        A lease only avoids wasted work. A writer without a lease does no harm, because only one writer can publish each
        version number.
        """
        ...

    def stage(self, identity: GraphIdentity) -> Staging:
        """Start creating a graph. Raises GitopsError `graph_exists` if the root is taken, OSError and RemoteError."""
        ...

    def beside(self) -> ObjectStore:
        """Return the store of small objects in the folder or prefix that contains the root.

        It is for records that must outlive the root.
        """
        ...

    def remove_incarnation(self, graph_id: str, faults: Faults) -> None:
        """Remove the graph with this id and the leftovers of an interrupted removal, but never a different graph.

        The caller must hold the lease unless the root is absent. First the root becomes absent. Then the fault point
        `engine.delete.before_files` is reached, while the files still exist. Raises OSError and RemoteError.
        """
        ...

    def reclaim(self) -> None:
        """Remove leftovers of interrupted creates and removals at a root without a graph. A graph is never changed.

        If the storage allows it, any create in progress can no longer be published. Raises ConflictError
        `graph_conflict` if another writer uses the root; OSError and RemoteError.
        """
        ...

    def tidy(self) -> None:
        """Remove leftovers of processes that have definitely ended. Raises OSError and RemoteError."""
        ...

    def remove(self) -> None:
        """Remove everything at the root. Succeeds for absent and partial roots.

        The first change makes the graph unopenable. If a call is interrupted, the next call finishes it. Raises OSError
        and RemoteError.
        """
        ...


def tables_at_once(folder: GraphFolder) -> int:
    """Return how many tables to process at a time. This is limited because open tables need memory."""
    return min(_TABLES_AT_ONCE, folder.store.parallel)


def root_taken(location: str, names: Collection[str]) -> GitopsError:
    """Return the error for creating a graph at an occupied root. `names` are the names that were found there."""
    found = next((name for name in layout.ARTIFACTS if name in names), min(names, default="objects"))
    fix = "move the files at this root away first; then the graph can be created there"
    return GitopsError(Code.GRAPH_EXISTS, f"{location} is not empty: it contains {found}", path=location, fix=fix)
