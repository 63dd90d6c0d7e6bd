"""Merges, squashes or rebases a change request without a forge and without a checkout.

Steps:

1. The request is open, and its head is the reviewed commit and still the head of its branch.
2. The head of the target is read from the remote. It shares history with the head of the request but does not contain it.
3. The new commits are written. If there is a conflict, its paths are reported and nothing is written.
4. The target moves to the new commit by compare-and-swap. If it has moved since step 2, there is a conflict without a
   retry, because the plan is then stale.

The caller checks whether the merge is allowed, after `check_head`, and records it on the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError
from gitops.forge.port import ChangeRequest, RequestState
from gitops.forge.refs.records import head_ref
from gitops.git.port import GitRemote, GitStore, MergeResult, NewCommit, Person, RefUpdate


class MergeMethod(StrEnum):
    """Merge method: a merge commit, one squashed commit, or rebasing each commit onto the target."""

    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


def merge_request(
    store: GitStore,
    remote: GitRemote,
    request: ChangeRequest,
    method: MergeMethod,
    clock: Clock,
    *,
    merger: Person,
    expected_head: str | None = None,
    signing_key: str | None = None,
) -> str:
    """Merge a change request into its target on the remote and return the target's new head.

    `expected_head` is the head that was reviewed. `signing_key` is the path of an SSH key that signs the new commits. The
    author of a merge commit is `merger`, and that of a squashed commit is the author of the head commit, both at the time of
    `clock`; a rebased commit keeps its author and time. Raises GitopsError `request_closed` (also if the target already
    contains the head), `request_conflict`, `push_refused`, ConflictError `request_head_moved` and `git_ref_conflict`,
    RemoteError `git_remote_unavailable`.
    """
    # 1
    refs = check_head(remote, request, expected_head)
    # 2
    target = refs.get(request.target)
    if target is None:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{request.target} does not exist", path=request.target)
    # Fetch only objects, because no branch of this clone may move.
    heads = {request.target: target, head_ref(request.number): request.head}
    missing = [ref for ref, commit_id in heads.items() if store.resolve(commit_id) is None]
    if missing:
        remote.fetch(missing)
    if store.merge_base(target, request.head) is None:
        detail = f"{request.source} and {request.target} share no history"
        raise GitopsError(Code.REQUEST_CONFLICT, detail, fix=request.rebase)
    if store.is_ancestor(request.head, target):
        raise _nothing_to_merge(request)
    # 3
    if method is MergeMethod.REBASE:
        new = _rebase(store, request, target, signing_key)
    else:
        tree = _tree(store.merge(target, request.head), f"change request {request.number}", request)
        time = int(clock.now().timestamp())
        if method is MergeMethod.MERGE:
            message = f"Merge request #{request.number} from {request.source.removeprefix('refs/heads/')}\n"
            commit = NewCommit(tree, (target, request.head), replace(merger, time=time), message)
        else:
            author = replace(store.commit(request.head).author, time=time)
            commit = NewCommit(tree, (target,), author, f"{request.title} (#{request.number})\n")
        new = store.write_commit(commit, signing_key=signing_key)
    # 4
    remote.push([RefUpdate(request.target, target, new)])
    return new


def check_head(remote: GitRemote, request: ChangeRequest, expected_head: str | None) -> Mapping[str, str]:
    """Perform step 1. Return the heads of the request's branch and of its target on the remote.

    Raises GitopsError `request_closed`, ConflictError `request_head_moved`, RemoteError.
    """
    if request.state is not RequestState.OPEN:
        raise GitopsError(Code.REQUEST_CLOSED, f"change request {request.number} is {request.state.value}")
    refs = remote.refs(request.source, request.target)
    at_source = refs.get(request.source, request.head)
    for seen in (expected_head, at_source):
        if seen not in (None, request.head):
            detail = f"change request {request.number} has head {request.head[:12]}, not {seen[:12]}"
            fix = f"read the plan of this head: gitops request show {request.number}; then run the same command again"
            raise ConflictError(Code.REQUEST_HEAD_MOVED, detail, fix=fix)
    return refs


def _rebase(store: GitStore, request: ChangeRequest, target: str, signing_key: str | None) -> str:
    """Apply each commit of a request, except merges, again on top of the target. Returns the last one."""
    head = target
    for commit in reversed(store.commits_between(target, request.head)):
        if len(commit.parents) > 1:
            continue
        tree = _tree(store.replay(commit.id, head), f"commit {commit.id[:12]}", request)
        # If the target already has the change, a commit would be empty.
        if tree != store.commit(head).tree:
            head = store.write_commit(NewCommit(tree, (head,), commit.author, commit.message), signing_key=signing_key)
    if head == target:
        raise _nothing_to_merge(request)
    return head


def _tree(result: MergeResult, subject: str, request: ChangeRequest) -> str:
    if result.tree is None:
        detail = f"{subject} conflicts in {', '.join(result.conflicts)}"
        raise GitopsError(Code.REQUEST_CONFLICT, detail, fix=request.rebase)
    return result.tree


def _nothing_to_merge(request: ChangeRequest) -> GitopsError:
    return GitopsError(Code.REQUEST_CLOSED, f"{request.target} already contains change request {request.number}")
