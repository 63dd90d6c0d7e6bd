"""Storage of a graph: the port between the graph database and a local disk or an object store.

Each of these three has a local and an object-store implementation:

* a root is an address; it holds one graph or none, and graphs are created, opened and removed there;
* a folder holds the content of one graph: small objects, and Lance datasets at paths below it;
* a staging is a folder that is filled before it becomes visible at its root.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults
from gitops.database.graph import layout
from gitops.database.graph.manifest import GraphIdentity
from gitops.database.graph.port import Existence
from gitops.database.storage.port import ObjectStore

_TABLES_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class DatasetLocation:
    """The address of a dataset for the Lance driver; no options for the local disk."""

    uri: str
    options: Mapping[str, str] | None = None

    def driver_options(self) -> dict[str, str] | None:
        """Return the options as the driver accepts them."""
        return None if self.options is None else dict(self.options)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file below a folder: its path, size, and last modification time by the clock of the storage."""

    path: str
    bytes: int
    written: datetime


class GraphFolder(Protocol):
    """The content of one graph."""

    @property
    def store(self) -> ObjectStore:
        """The small objects: manifests, schemas, the identity."""
        ...

    def dataset(self, path: str) -> DatasetLocation:
        """Return the dataset at a path below the folder."""
        ...

    def settle(self, path: str, names: Iterable[str], *, new: bool = False) -> None:
        """Make files of a dataset durable, by their names below it, since the driver syncs nothing. Raises OSError.

        The names are read only if that needs work. A name of a folder means all files in it, and the name of a data file
        also the folder of its large blobs. `new` says that the dataset itself is new.
        """
        ...

    def files(self, prefix: str) -> Iterator[StoredFile]:
        """Yield all files below a path, recursively, including unfinished ones that no store lists.

        An empty folder counts as an empty file, because a writer may be about to fill it. Raises OSError, RemoteError.
        """
        ...

    def children(self, prefix: str) -> tuple[str, ...]:
        """Return the names of the folders directly below a path, in code point order. Raises OSError, RemoteError."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; an absent one is not a failure. Raises OSError, RemoteError."""
        ...


class Staging(Protocol):
    """A graph that is being created, and not visible yet."""

    @property
    def folder(self) -> GraphFolder:
        """Folder for the content, empty at first."""
        ...

    def take_root(self) -> None:
        """Publish the finished folder at the root in one atomic step. Called once.

        Raises ConflictError `graph_conflict` when another writer was first; RemoteError `storage_failed`, after which
        the graph may be there.
        """
        ...

    def discard(self) -> None:
        """Remove the staged content, but never a graph that is visible at the root.

        Raises nothing; leftovers of a failure are not visible as a graph.
        """
        ...


class GraphRoot(Protocol):
    """An address that contains one graph or none."""

    @property
    def location(self) -> str:
        """The address, for people."""
        ...

    def existence(self) -> Existence:
        """True if anything is at this address.

        Only a definite not-found is ABSENT; an address that does not respond is UNKNOWN.
        """
        ...

    def open(self) -> tuple[GraphIdentity, GraphFolder]:
        """Return the graph at this address.

        Raises GitopsError `graph_missing` when there is definitely none, `graph_unreadable` for everything else that is
        not a complete graph; RemoteError and OSError when the storage does not answer.
        """
        ...

    def holds(self, identity: GraphIdentity) -> bool:
        """Return whether the graph with this identity is still at this address. Raises RemoteError `storage_failed`."""
        ...

    def lease(self) -> AbstractContextManager[None]:
        """Serialize writers while they change tables, if the storage allows it. Raises ConflictError `graph_conflict`.

        This only helps progress. A writer without a lease does no harm, because the manifest's number keeps versions
        apart.
        """
        ...

    def stage(self, identity: GraphIdentity) -> Staging:
        """Begin a graph. Raises GitopsError `graph_exists` when the root is not free; OSError and RemoteError."""
        ...

    def beside(self) -> ObjectStore:
        """Return the store of small objects in the folder or prefix that contains the root.

        It is for records that must outlive the root.
        """
        ...

    def remove_incarnation(self, graph_id: str, faults: Faults) -> None:
        """Remove the graph with this id and the leftovers of an interrupted removal, but never a different graph.

        The caller holds the lease, unless the root is absent. Afterwards the root is absent.
        `engine.delete.before_files` is reached at that point, while the files still exist. Raises OSError and
        RemoteError.
        """
        ...

    def reclaim(self) -> None:
        """Remove the leftovers of interrupted creates and removals at a root without a graph; a graph is not changed.

        If the storage allows it, a create in progress can no longer be published. Raises ConflictError `graph_conflict`
        if another writer uses the root; OSError and RemoteError.
        """
        ...

    def tidy(self) -> None:
        """Remove leftovers of processes that have certainly ended. Raises OSError and RemoteError."""
        ...

    def remove(self) -> None:
        """Remove everything here; succeeds on absent and partial roots.

        From its first effect on the graph does not open. A call that was cut short is finished by the next one. Raises OSError
        and RemoteError.
        """
        ...


def tables_at_once(folder: GraphFolder) -> int:
    """Return how many tables of a graph to process concurrently; each open table needs memory."""
    return min(_TABLES_AT_ONCE, folder.store.parallel)


def root_taken(location: str, names: Collection[str]) -> GitopsError:
    """Return the refusal to create a graph at an occupied root; `names` are the names found there."""
    found = next((name for name in layout.ARTIFACTS if name in names), min(names, default="objects"))
    detail = f"{location} contains {found}; choose another root, or remove it"
    return GitopsError(Code.GRAPH_EXISTS, detail, path=location)
