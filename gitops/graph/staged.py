"""Staged work on a graph: everything that can fail is done, and one atomic step makes it visible.

A new graph is whole in its staging place and gets its root in one step: a root is absent or whole, never half made. A new
version of a graph is one manifest that exists or does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import BugError, ConflictError, GitopsError, RemoteError
from gitops.core.faults import Faults
from gitops.graph.layout import MAIN
from gitops.graph.lines import INTERNAL, read_branches, read_floor, read_line
from gitops.graph.manifest import Manifest, publish
from gitops.graph.root import Staging
from gitops.graph.snapshot import Snapshot

__all__ = ["StagedGraph", "StagedVersion", "later_timestamp", "require_no_branches", "successor"]


class StagedGraph:
    """A new graph, complete in its staging place; becomes version 1."""

    def __init__(self, staging: Staging, faults: Faults) -> None:
        """Take over the staging."""
        self._staging = staging
        self._faults = faults
        self._open = True

    def publish(self) -> int:
        """Give the graph its root. Raises ConflictError `graph_conflict` when the root is no longer free."""
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
    """The version of a branch after `base`: its manifest, not yet written; the table versions it names are."""

    def __init__(self, base: Snapshot, manifest: Manifest, faults: Faults, purged: Sequence[str] = ()) -> None:
        """Keep the manifest until it is published, as the child of the base on the branch of the base.

        `purged` are the folders of tables that are removed, with all older versions, after the new version is published.
        """
        self._purged = purged
        self._base = base
        self._manifest = _child(base, manifest)
        self._faults = faults
        self._open = True

    @property
    def manifest(self) -> Manifest:
        """The manifest that `publish` writes."""
        return self._manifest

    def keep_purged(self) -> None:
        """Publish without removing anything: for a trial."""
        self._purged = ()

    def publish(self) -> int:
        """Write the manifest if its number is free and the branch is still the one it was staged for.

        Raises ConflictError `graph_conflict` if not; GitopsError `graph_branch_missing` when the branch was removed.
        """
        if not self._open:
            raise BugError("staged work is used twice")
        point = f"engine.{self._manifest.operation}"
        self._faults.reach(f"{point}.before_publish")
        self._open = False
        root, store = self._base.root, self._base.store
        place = root.location
        if not root.holds(self._base.identity):
            detail = f"graph {self._base.identity.graph_id} is no longer at {place}"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if self._base.manifest.line != self._base.line.id:
            detail = f"version {self._base.manifest.n} of {self._base.branch} is not its newest"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if self._base.line.id != MAIN and read_line(store, self._base.branch) != self._base.line:
            raise ConflictError(Code.GRAPH_CONFLICT, f"branch {self._base.branch} was created again", path=place)
        if self._purged:
            # A branch that was made since this was staged has the tables that are about to go.
            require_no_branches(self._base)
        if not publish(store, self._manifest):
            detail = f"another writer made version {self._manifest.n} of {self._base.branch} at {place}"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        if read_floor(store, self._manifest.line) >= self._manifest.n:
            # Only a writer that was suspended while newer versions were made and older ones removed gets here.
            detail = f"version {self._manifest.n} of {self._base.branch} at {place} existed before and was removed"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=place)
        self._faults.reach(f"{point}.after_publish")
        for path in self._purged:
            # After a failure gc removes the rest: the new version records that it is purged.
            with contextlib.suppress(OSError, RemoteError):
                self._base.folder.remove(path)
        return self._manifest.n

    def abort(self) -> None:
        """Forget the manifest; the table versions stay unreferenced and the next writer undoes them."""
        self._open = False


def require_no_branches(snapshot: Snapshot) -> None:
    """Raises ConflictError `graph_has_branches`, naming them; internal ones do not count."""
    names = [line.name for line in read_branches(snapshot.store).lines()[1:] if not line.name.startswith(INTERNAL)]
    if names:
        place = snapshot.root.location
        detail = f"a migration requires a graph with only main, and {place} has also {', '.join(names)[:200]}"
        raise ConflictError(Code.GRAPH_HAS_BRANCHES, detail, path=place)


def _child(base: Snapshot, manifest: Manifest) -> Manifest:
    """The manifest with its place in the lineage; a version is never older than its parent, whatever the clocks say."""
    parent, line = base.manifest, base.line.id
    reach = parent.reach
    for older, n in manifest.lineage.items():
        reach[older] = max(n, reach.get(older, 0))
    reach.pop(line, None)
    return replace(
        manifest,
        n=parent.n + 1,
        branch=base.branch,
        line=line,
        parent=parent.ref,
        lineage=reach,
        ts=later_timestamp(manifest.ts, parent.ts),
    )


def successor(base: Manifest, operation: str, *, txn_id: str, actor: str | None, ts: str, **changes: Any) -> Manifest:
    """The manifest after `base`, with the same schema and tables except for the changes. Staging sets its ancestry."""
    fields = {"merge_parent": None, "message": None, **changes}
    return replace(base, n=base.n + 1, operation=operation, txn_id=txn_id, actor=actor, ts=ts, **fields)


def later_timestamp(one: str, other: str) -> str:
    """The later of two times; the first one when they are equal or do not read as times."""
    return max(one, other, key=lambda text: parse_timestamp(text) or datetime.min.replace(tzinfo=UTC))
