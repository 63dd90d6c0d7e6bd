"""Version ancestry: tests whether a version includes another one, and finds merge bases and bases that gc must keep.

Each version records the highest number that it includes from every line. So a single comparison shows whether it
includes another version, even if the versions in between are no longer kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError
from gitops.database.graph.lines import INTERNAL, BranchIndex, read_branches
from gitops.database.graph.manifest import CommitRef, Manifest, find_manifest, head_number, read_manifest
from gitops.database.graph.snapshot import Snapshot
from gitops.database.storage.port import ObjectStore

SHOWN_BRANCHES = 10
"""Maximum number of branches that a message lists."""


def includes_version(manifest: Manifest, ref: CommitRef) -> bool:
    """Return whether `manifest` is version `ref`, or has it in its history."""
    return manifest.reach.get(ref.line, 0) >= ref.n


def common_versions(one: Manifest, other: Manifest) -> dict[str, int]:
    """Return, for each line, the newest version number that both versions include."""
    left, right = one.reach, other.reach
    return {line: min(left[line], right[line]) for line in sorted(left.keys() & right.keys())}


def merge_bases(store: ObjectStore, one: Manifest, other: Manifest) -> tuple[Manifest, ...]:
    """Return the newest common versions. There is one, or several after criss-cross merges.

    Raises GitopsError `graph_version_gone` if a base is no longer kept.
    """
    points = common_versions(one, other)
    found = {line: find_manifest(store, n, line) for line, n in points.items()}
    best = []
    for line, n in points.items():
        ref = CommitRef(line, n, None)
        others = (manifest for at, manifest in found.items() if at != line)
        if any(manifest is not None and includes_version(manifest, ref) for manifest in others):
            continue
        manifest = found[line] or _copy(store, ref, (one, other))
        if manifest is None:
            detail = f"the version that {one.branch} and {other.branch} have in common is no longer kept"
            raise GitopsError(Code.GRAPH_VERSION_GONE, detail, path=store.location)
        best.append(manifest)
    if not best:
        raise GitopsError(Code.GRAPH_VERSION_GONE, f"{one.branch} and {other.branch} have no version in common")
    return tuple(best)


def require_merged_branches(snapshot: Snapshot, note: Callable[[str], str] = lambda _: "") -> None:
    """Raise ConflictError `graph_has_branches` if a branch has unmerged changes. Internal branches are ignored.

    Branches with different schemas cannot be merged, so these changes could not be merged after a migration. A branch
    without changes loses nothing. The message contains the `note` about each branch.
    """
    store, names = snapshot.store, []
    for line in read_branches(store).lines()[1:]:
        if line.name.startswith(INTERNAL):
            continue
        n = head_number(store, line.id)
        head = None if n is None else read_manifest(store, n, line.id)
        # A branch that already has a different schema cannot be merged, with or without this migration.
        if (
            head is not None
            and head.schema_ir == snapshot.manifest.schema_ir
            and adds_to(snapshot.manifest, head, store)
        ):
            names.append(line.name)
    if names:
        place, shown = snapshot.root.location, names[:SHOWN_BRANCHES]
        listed = ", ".join(f"{name} ({said})" if (said := note(name)) else name for name in shown)
        more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
        detail = f"{place} has branches with changes that could not be merged after a migration: {listed}{more}"
        raise ConflictError(Code.GRAPH_HAS_BRANCHES, detail, path=place)


def adds_to(manifest: Manifest, head: Manifest, store: ObjectStore) -> bool:
    """Return whether branch version `manifest` has, or may have, changes that are missing from version `head`."""
    if includes_version(manifest, head.ref):
        return False
    try:
        return any(base.tables != head.tables for base in merge_bases(store, manifest, head))
    except GitopsError:
        return True


def _copy(store: ObjectStore, ref: CommitRef, heads: Iterable[Manifest]) -> Manifest | None:
    """Return the first version of a line forked from `ref`; it has the same tables. None if there is none."""
    for line in sorted({line for head in heads for line in head.reach}):
        first = find_manifest(store, ref.n + 1, line)
        parent = None if first is None or first.operation != "branch" else first.parent
        if parent is not None and (parent.line, parent.n) == (ref.line, ref.n):
            return first
    return None


def merge_base_refs(store: ObjectStore, index: BranchIndex) -> set[tuple[str, int]]:
    """Return the line and number of every version that a merge of two branches could need as its base."""
    numbers = ((line.id, head_number(store, line.id)) for line in index.lines())
    heads = [read_manifest(store, n, line) for line, n in numbers if n is not None]
    return {point for one, other in combinations(heads, 2) for point in common_versions(one, other).items()}
