"""Staged work on a graph: everything that can fail is done, and one atomic step makes it visible.

A new graph is built in a hidden folder beside its root and gets the root's name in one rename: a root is absent or whole,
never half made. A new version of a graph is one manifest that exists or does not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from gitops.core.errors import BugError, ConflictError, GitopsError, RemoteError
from gitops.core.faults import Faults
from gitops.engine import layout
from gitops.engine.manifest import Manifest, publish
from gitops.engine.snapshot import Snapshot
from gitops.storage.local import folder_lease, sync_folder

__all__ = ["StagedGraph", "StagedVersion", "StagingFolder", "remove_rubbish", "writer_lease"]

_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


class StagingFolder:
    """A hidden folder beside a graph root, owned by this process for as long as it is staged; `path` is the graph in it.

    The owner holds an advisory lock on the outer folder, which the kernel frees when the process dies; so a folder whose lock is
    free is rubbish, and the next graph that is staged for the same root removes it.
    """

    def __init__(self, root: Path) -> None:
        """Refuse a root that is taken, remove rubbish, and make the folder. Raises GitopsError `graph_exists`; OSError."""
        _require_free(root)
        root.parent.mkdir(parents=True, exist_ok=True)
        remove_rubbish(root)
        self.root = root
        self._outer = root.parent / f".{root.name}.{secrets.token_hex(8)}.staging"
        self._outer.mkdir()
        self._descriptor: int | None = os.open(self._outer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.path = self._outer / "graph"
        self.path.mkdir()

    def take_root(self) -> None:
        """Give the folder the root's name, unless another one has it by now. Raises ConflictError `graph_conflict`."""
        try:
            self.path.rename(self.root)
            sync_folder(self.root.parent)
        except OSError as error:
            if error.errno in _TAKEN:
                raise ConflictError(
                    "graph_conflict", f"another writer made {self.root}", path=str(self.root)
                ) from error
            raise RemoteError("storage_failed", f"{self.root}: {error.strerror or error}") from error
        self.discard()

    def discard(self) -> None:
        """Remove what is left of the folder."""
        shutil.rmtree(self._outer, ignore_errors=True)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class StagedGraph:
    """A new graph, complete in its staging folder; becomes version 1."""

    def __init__(self, folder: StagingFolder, faults: Faults) -> None:
        """Take over the folder."""
        self._folder = folder
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        """Give the graph its root. Raises ConflictError `graph_conflict` when something lies there by now."""
        if not self._open:
            raise BugError("staged work is used twice")
        self._faults.reach("engine.create.before_publish")
        self._open = False
        try:
            self._folder.take_root()
        except GitopsError:
            self._folder.discard()
            raise
        self._faults.reach("engine.create.after_publish")
        return 1

    def abort(self) -> None:
        """Remove what was staged; nothing of it was ever visible."""
        if self._open:
            self._open = False
            self._folder.discard()


class StagedVersion:
    """The version of a graph after `base`: its manifest, not yet written; the table versions it names are."""

    def __init__(self, base: Snapshot, manifest: Manifest, faults: Faults) -> None:
        """Keep the manifest until it is published."""
        self._base = base
        self._manifest = manifest
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        """Write the manifest if its number is free and the graph is still the one it was staged for.

        Raises ConflictError `graph_conflict` if not.
        """
        if not self._open:
            raise BugError("staged work is used twice")
        point = f"engine.{self._manifest.operation}"
        self._faults.reach(f"{point}.before_publish")
        self._open = False
        store, identity = self._base.store, self._base.identity
        place = store.location
        if store.read(layout.IDENTITY) != identity.to_bytes():
            raise ConflictError("graph_conflict", f"graph {identity.graph_id} no longer lies at {place}", path=place)
        if not publish(store, self._manifest):
            detail = f"another writer made version {self._manifest.n} of {place}"
            raise ConflictError("graph_conflict", detail, path=place)
        self._faults.reach(f"{point}.after_publish")
        return self._manifest.n

    def abort(self) -> None:
        """Forget the manifest; the table versions stay unreferenced and the next writer undoes them."""
        self._open = False


@contextlib.contextmanager
def writer_lease(root: Path) -> Iterator[None]:
    """Let the writers of a graph on this host take turns while they change tables. Raises ConflictError `graph_conflict`.

    This is for progress only, and a writer without it does no harm: what keeps versions apart is the manifest's number.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(folder_lease(root))
        except FileNotFoundError as error:
            raise GitopsError("graph_missing", f"nothing lies at {root}", path=str(root)) from error
        except TimeoutError as error:
            raise ConflictError("graph_conflict", f"another writer is at work on {root}", path=str(root)) from error
        except OSError as error:
            raise GitopsError("graph_unreadable", f"{root} does not open: {error}", path=str(root)) from error
        yield


def remove_rubbish(root: Path) -> None:
    """Remove the staging folders of this root whose owners are dead. Raises OSError."""
    for left in _stagings(root):
        with _owned(left) as owned:
            if owned:
                shutil.rmtree(left)


def _require_free(root: Path) -> None:
    """Only an absent root or an empty folder may become a graph."""
    try:
        names = {entry.name for entry in root.iterdir()} if layout.is_folder(root) else {root.name}
    except FileNotFoundError:
        return
    if names:
        found = next((name for name in layout.ARTIFACTS if name in names), min(names))
        raise GitopsError("graph_exists", f"{root} holds {found}; choose another root, or remove it", path=str(root))


def _stagings(root: Path) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(root.name)}\.[0-9a-f]{{16}}\.staging")
    if not root.parent.is_dir():
        return []
    return sorted(entry for entry in root.parent.iterdir() if pattern.fullmatch(entry.name) and entry.is_dir())


@contextlib.contextmanager
def _owned(folder: Path) -> Iterator[bool]:
    """Whether nobody who is alive holds the folder; while the block runs, this process does."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)
