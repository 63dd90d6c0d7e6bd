"""The log of a branch, and what one version holds."""

from __future__ import annotations

from itertools import islice

from gitops.database.graph.layout import MAIN
from gitops.database.graph.manifest import Manifest, find_manifest
from gitops.database.graph.results import VersionDescription
from gitops.database.graph.snapshot import ReadTarget, kept_versions, open_snapshot

__all__ = ["describe_version", "read_log"]

MAX_LOG = 10_000


def read_log(uri: str, branch: str = MAIN, limit: int = 100) -> tuple[Manifest, ...]:
    """The versions of a branch that are kept, newest first, those before it was forked included.

    At most `limit` (0 to 10000). Raises as `open_snapshot`.
    """
    snapshot = open_snapshot(uri, ReadTarget(branch))
    read = (find_manifest(snapshot.store, n, holder) for holder, n in kept_versions(snapshot.store, snapshot.line))
    return tuple(islice((each for each in read if each is not None), max(0, min(limit, MAX_LOG))))


def describe_version(uri: str, target: ReadTarget) -> VersionDescription:
    """The tables, rows and versions of one version of a graph. Raises as `open_snapshot`."""
    snapshot = open_snapshot(uri, target)
    return VersionDescription(snapshot.identity.graph_id, snapshot.branch, snapshot.manifest)
