"""Staged work on a graph: everything that can fail is done, and one atomic step makes it visible.

A new graph is whole in its staging place and gets its root in one step: a root is absent or whole, never half made. A new
version of a graph is one manifest that exists or does not.
"""

from __future__ import annotations

from gitops.core.errors import BugError, ConflictError, GitopsError
from gitops.core.faults import Faults
from gitops.engine.manifest import Manifest, publish
from gitops.engine.places import Staging
from gitops.engine.snapshot import Snapshot

__all__ = ["StagedGraph", "StagedVersion"]


class StagedGraph:
    """A new graph, complete in its staging place; becomes version 1."""

    def __init__(self, staging: Staging, faults: Faults) -> None:
        """Take over the staging."""
        self._staging = staging
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        """Give the graph its root. Raises ConflictError `graph_conflict` when something lies there by now."""
        if not self._open:
            raise BugError("staged work is used twice")
        self._faults.reach("engine.create.before_publish")
        self._open = False
        try:
            self._staging.take_root()
        except GitopsError:
            self._staging.discard()
            raise
        self._faults.reach("engine.create.after_publish")
        return 1

    def abort(self) -> None:
        """Remove what was staged; nothing of it was ever visible."""
        if self._open:
            self._open = False
            self._staging.discard()


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
        root, identity = self._base.root, self._base.identity
        place = root.location
        if not root.holds(identity):
            raise ConflictError("graph_conflict", f"graph {identity.graph_id} no longer lies at {place}", path=place)
        if not publish(self._base.store, self._manifest):
            detail = f"another writer made version {self._manifest.n} of {place}"
            raise ConflictError("graph_conflict", detail, path=place)
        self._faults.reach(f"{point}.after_publish")
        return self._manifest.n

    def abort(self) -> None:
        """Forget the manifest; the table versions stay unreferenced and the next writer undoes them."""
        self._open = False
