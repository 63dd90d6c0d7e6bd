"""Creates, lists and deletes branches, and reads a branch's log and a version's content.

A branch is created in two steps: first its first version, on a new line that is not listed yet, and then its name.
Deletion removes the name first, then the versions. If a process crashes between the steps, a line without a name
remains, which gc removes.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from itertools import islice

from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError
from gitops.core.faults import around
from gitops.database.graph import layout
from gitops.database.graph.ancestry import adds_to, merge_base_refs
from gitops.database.graph.layout import MAIN
from gitops.database.graph.lines import INTERNAL, Line, check_name, read_branches
from gitops.database.graph.manifest import Manifest, find_manifest, head_number, line_numbers, publish
from gitops.database.graph.results import BranchInfo, VersionDescription
from gitops.database.graph.snapshot import ReadTarget, Snapshot, find_root, kept_versions, open_snapshot
from gitops.database.graph.staged import WriteContext, hold_lease, later_timestamp, precise_timestamp
from gitops.database.storage.port import ObjectStore

_ROUNDS = 32


def create_branch(uri: str, name: str, context: WriteContext, origin: ReadTarget | None = None) -> BranchInfo:
    """Create a branch at a version, by default the newest of `main`. No rows are copied.

    Raises GitopsError `graph_branch_exists`, `graph_branch_name`; the errors of `open_snapshot`.
    """
    wanted = check_name(name)
    if wanted == layout.MAIN:
        raise _exists(wanted)
    return make_branch(open_snapshot(uri, origin or ReadTarget()), wanted, context)


def ensure_branch(uri: str, name: str, context: WriteContext, origin: ReadTarget) -> None:
    """Call `create_branch` unless the branch exists."""
    try:
        create_branch(uri, name, context, origin)
    except GitopsError as error:
        if error.code != Code.GRAPH_BRANCH_EXISTS:
            raise


def make_branch(base: Snapshot, name: str, context: WriteContext) -> BranchInfo:
    """Create a branch from an open version. Internal names are allowed."""
    store, parent = base.store, base.manifest
    with hold_lease(base, context):
        if read_branches(store).line(name) is not None:
            raise _exists(name)
        now = precise_timestamp(context.now())
        line = Line(
            name=name,
            id=context.ids.ulid(),
            inherits=base.line.child_inherits(parent.n),
            fork=parent.ref,
            forked_from=base.branch,
            created_at=now,
            actor=context.actor,
        )
        # The first version of the new line has the same tables as its base.
        manifest = replace(
            parent,
            n=parent.n + 1,
            txn_id=context.ids.ulid(),
            operation="branch",
            actor=context.actor,
            ts=later_timestamp(now, parent.ts),
            branch=name,
            line=line.id,
            parent=parent.ref,
            merge_parent=None,
            lineage=parent.reach,
            message=context.message,
        )
        with around(context.faults, "engine.branch.create", "manifest"):
            publish(store, manifest)
        for _ in range(_ROUNDS):
            index = read_branches(store)
            if index.line(name) is not None:
                _clear(store, line.id, keep=set())
                raise _exists(name)
            context.faults.reach("engine.branch.create.before_index")
            if index.swap(store, {**index.branches, name: line}):
                context.faults.reach("engine.branch.create.after_index")
                return BranchInfo(name, manifest.n, line)
    raise _busy(base)


def list_branches(uri: str) -> tuple[BranchInfo, ...]:
    """Return a graph's branches: `main` first, then the others by name. Internal branches are left out.

    Raises the same errors as `open_snapshot`.
    """
    store = open_snapshot(uri, ReadTarget()).store
    found = []
    for line in read_branches(store).lines():
        head = None if line.name.startswith(INTERNAL) else head_number(store, line.id)
        if head is not None:
            found.append(BranchInfo(line.name, head, line))
    return tuple(found)


def delete_branch(uri: str, name: str, context: WriteContext) -> None:
    """Delete a branch. The next gc removes its rows unless another version still uses them.

    Raises GitopsError `graph_branch_missing`, `graph_branch_name` (also for `main`); the errors of `open_snapshot`.
    """
    wanted = check_name(name)
    if wanted == layout.MAIN:
        fix = "to delete the whole graph, delete it from cluster.yaml, then plan: gitops plan"
        raise GitopsError(
            Code.GRAPH_BRANCH_NAME, "branch main is the graph itself and cannot be deleted", path=wanted, fix=fix
        )
    remove_branch(open_snapshot(uri, ReadTarget()), wanted, context)


def delete_merged_branch(uri: str, name: str, into: str, context: WriteContext) -> None:
    """Call `delete_branch` if branch `into` includes all changes of the branch.

    Raises ConflictError `graph_conflict` if another process has written to the branch since the merge. On an object
    store, where writers do not take turns, a version can still be published between this check and the deletion.
    """
    with find_root(uri).lease():
        branch, target = open_snapshot(uri, ReadTarget(name)), open_snapshot(uri, ReadTarget(into))
        if adds_to(target.manifest, branch.manifest, target.store):
            detail = f"branch {branch.branch} has changes that {target.branch} does not include"
            raise ConflictError(Code.GRAPH_CONFLICT, detail, path=branch.branch)
        delete_branch(uri, name, context)


def remove_branch(snapshot: Snapshot, name: str, context: WriteContext) -> None:
    """Delete a branch of an open graph. Internal names are allowed."""
    store = snapshot.store
    for _ in range(_ROUNDS):
        index = read_branches(store)
        line = index.branches.get(name)
        if line is None:
            raise GitopsError(Code.GRAPH_BRANCH_MISSING, f"{store.location} has no branch {name!r}", path=name)
        context.faults.reach("engine.branch.delete.before_index")
        if index.swap(store, {other: index.branches[other] for other in index.branches if other != name}):
            context.faults.reach("engine.branch.delete.after_index")
            _clear(store, line.id, keep=merge_base_refs(store, read_branches(store)))
            return
    raise _busy(snapshot)


def _clear(store: ObjectStore, line: str, keep: set[tuple[str, int]]) -> None:
    """Remove the versions of an unnamed line, oldest first."""
    for n in reversed(line_numbers(store, line)):
        if (line, n) not in keep:
            store.delete(layout.manifest_key(n, line))


def _exists(name: str) -> GitopsError:
    fix = "choose another name"
    if name != MAIN:
        fix += f", or delete the branch: gitops graph branch delete GRAPH {shlex.quote(name)}"
    return GitopsError(Code.GRAPH_BRANCH_EXISTS, f"branch {name!r} already exists", path=name, fix=fix)


def _busy(snapshot: Snapshot) -> ConflictError:
    place = snapshot.root.location
    return ConflictError(Code.GRAPH_CONFLICT, f"other writers keep changing the branches of {place}", path=place)


MAX_LOG = 10_000


def read_log(uri: str, branch: str = MAIN, limit: int = 100) -> tuple[Manifest, ...]:
    """Return the kept versions of a branch, newest first, including versions from before the branch was created.

    Returns at most `limit` versions (0 to 10000). Raises the same errors as `open_snapshot`.
    """
    snapshot = open_snapshot(uri, ReadTarget(branch))
    read = (find_manifest(snapshot.store, n, holder) for holder, n in kept_versions(snapshot.store, snapshot.line))
    return tuple(islice((each for each in read if each is not None), max(0, min(limit, MAX_LOG))))


def describe_version(uri: str, target: ReadTarget) -> VersionDescription:
    """Return a graph version's tables, with their rows and table versions. Raises the errors of `open_snapshot`."""
    snapshot = open_snapshot(uri, target)
    return VersionDescription(snapshot.identity.graph_id, snapshot.branch, snapshot.manifest)
