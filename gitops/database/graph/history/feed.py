"""The changes of a branch as a feed: version after version, page by page, from a position that a reader keeps.

1. A position is a version that the reader has; between the pages of one version it is also the last row of it that was read.
2. The next page has the rows that differ between that version and the one after it on the branch, and so on, as long as there
   is room. A reader that takes every page, or all records of the version where it begins, has what the branch has.
3. A version that is no longer kept leaves a gap, which is reported: the reader has to begin again with all records.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence

from gitops.core.clock import is_ulid
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.database.graph.history.diff import snapshot_changes
from gitops.database.graph.results import FeedPage, FeedPosition, RowChange
from gitops.database.graph.snapshot import Memory, ReadTarget, Snapshot, open_snapshot, unknown_type
from gitops.database.graph.values import compact_json

__all__ = ["FeedLimits", "feed_position", "parse_position", "position_of", "read_feed"]

_FORM = 1
_MOST = 2**63
_VERSIONS_AT_ONCE = 1000
_GONE = frozenset({Code.GRAPH_VERSION_GONE, Code.GRAPH_VERSION_UNKNOWN})


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """How long a page is at most; a single change may be larger than that."""

    changes: int = 1000
    nbytes: int = 4 * 2**20


def feed_position(uri: str, branch: str, start: str = "now", memory: Memory | None = None) -> FeedPosition:
    """Where a reader begins that has the newest version (`now`), nothing (`beginning`), or a commit (`after:ID`) of the branch.

    `memory` is that of `open_snapshot`.

    Raises UsageError for anything else; GitopsError `graph_version_gone` where versions since then are no longer kept; as
    `open_snapshot`.
    """
    word, colon, commit = start.partition(":")
    if start == "now":
        return position_of(open_snapshot(uri, ReadTarget(branch), memory))
    if start == "beginning":
        # The first version of a graph has no rows.
        return position_of(open_snapshot(uri, ReadTarget(branch, version=1)))
    if word != "after" or not colon:
        raise UsageError(Code.USAGE_ERROR, f"{start[:80]!r} is not a start: use now, beginning or after:COMMIT")
    found = open_snapshot(uri, ReadTarget(branch, commit=commit), memory)
    head = open_snapshot(uri, ReadTarget(branch), memory)
    if found.line != head.line:
        detail = f"branch {head.branch} has no commit {commit}; it is on branch {found.branch}"
        raise GitopsError(Code.GRAPH_VERSION_UNKNOWN, detail, path=head.root.location)
    return position_of(found)


def position_of(snapshot: Snapshot, after: tuple[str, str] | None = None) -> FeedPosition:
    """The position of a reader that has this version, and of the one after it the rows up to `after`."""
    manifest = snapshot.manifest
    return FeedPosition(snapshot.identity.graph_id, snapshot.branch, manifest.n, manifest.txn_id, after)


def parse_position(token: str) -> FeedPosition:
    """The position of a token that `FeedPosition.token` gave. Raises UsageError."""
    try:
        form = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), b"-_", validate=True))
        version, graph_id, branch, n, commit, *after = form
        texts = (graph_id, branch, commit, *after)
        known = version == _FORM and all(isinstance(text, str) for text in texts) and len(after) in (0, 2)
        if known and is_ulid(graph_id) and is_ulid(commit) and type(n) is int and 0 < n < _MOST:
            return FeedPosition(graph_id, branch, n, commit, (after[0], after[1]) if after else None)
    except (ValueError, TypeError, binascii.Error, RecursionError):
        pass
    raise UsageError(Code.USAGE_ERROR, "the cursor is damaged: use one as an earlier page gave it, or begin again")


def read_feed(
    uri: str,
    position: FeedPosition,
    types: Sequence[str] = (),
    limits: FeedLimits | None = None,
    *,
    last: int | None = None,
    memory: Memory | None = None,
) -> FeedPage:
    """The page after a position, of the types (`T`, `node:T`, `edge:E`) that are named, or of all; up to version `last`.

    `memory` is that of `open_snapshot`.

    Raises GitopsError `graph_version_gone` for a gap; `graph_type_unknown` for a type that the newest version does not have; as
    `open_snapshot`.
    """
    limits = limits or FeedLimits()
    head = open_snapshot(uri, ReadTarget(position.branch, version=last), memory)
    _require_types(head, types)
    page = _Page(limits)
    base = _open_base(uri, position, head)
    after = position.after
    while base.manifest.n < head.manifest.n and len(page.commits) < _VERSIONS_AT_ONCE:
        following = _open_version(uri, position.branch, base.manifest.n + 1, head)
        page.commits.append(following)
        present = [each for each in types if _has_type(base, each) or _has_type(following, each)]
        if (present or not types) and base.manifest.tables != following.manifest.tables:
            for change in snapshot_changes(base, following, tuple(present)):
                place = change.table, change.id
                if after is not None and place <= after:
                    continue
                if not page.take(following, change):
                    return page.end(position_of(base, after), head)
                after = place
        base, after = following, None
    return page.end(position_of(base), head)


class _Page:
    """A page while it is filled."""

    def __init__(self, limits: FeedLimits) -> None:
        self._limits = limits
        self._bytes = 0
        self._changes: list[tuple[str, RowChange]] = []
        self.commits: list[Snapshot] = []

    def take(self, version: Snapshot, change: RowChange) -> bool:
        """Put a change, if there is room for it."""
        size = len(compact_json(change.to_json()).encode())
        full = len(self._changes) >= self._limits.changes or self._bytes + size > self._limits.nbytes
        if full and self._changes:
            return False
        self._changes.append((version.manifest.txn_id, change))
        self._bytes += size
        return True

    def end(self, position: FeedPosition, head: Snapshot) -> FeedPage:
        versions = tuple(each.manifest for each in self.commits)
        return FeedPage(position, head.manifest.ref, versions, tuple(self._changes))


def _open_base(uri: str, position: FeedPosition, head: Snapshot) -> Snapshot:
    """The version of the position. Raises GitopsError `graph_version_gone` where the branch does not have it."""
    base = _open_version(uri, position.branch, position.n, head)
    if (base.identity.graph_id, base.manifest.txn_id) != (position.graph_id, position.commit):
        detail = f"branch {position.branch} was made again since the cursor was given"
        raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=head.root.location)
    return base


def _open_version(uri: str, branch: str, n: int, head: Snapshot) -> Snapshot:
    if n == head.manifest.n:
        return head
    try:
        return open_snapshot(uri, ReadTarget(branch, version=n))
    except GitopsError as error:
        if error.code not in _GONE:
            raise
        fix = "begin again: take all records and the cursor that comes with them"
        raise GitopsError(Code.GRAPH_VERSION_GONE, error.detail, path=error.path, fix=fix) from None


def _require_types(head: Snapshot, types: Sequence[str]) -> None:
    for each in types:
        if not _has_type(head, each):
            raise unknown_type(f"version {head.manifest.n}", each, head.manifest.tables, path=head.root.location)


def _has_type(snapshot: Snapshot, name: str) -> bool:
    tables = snapshot.manifest.tables
    return name in tables or f"node:{name}" in tables or f"edge:{name}" in tables
