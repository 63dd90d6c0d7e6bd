"""Merging a change request where no forge does it: the three usual ways, without a checkout.

Steps:

1. The request is open, and its head is the one that was looked at and the one that its branch still has.
2. The target's tip is read from the remote; head and tip share history, and the tip lacks the head.
3. The new commits are written; a conflict names its paths and writes nothing.
4. The target moves from that tip to the new commit by compare-and-swap; a target that moved meanwhile is a conflict, not a
   reason to try again, because what was planned is then out of date.

Not here: whether the merge is allowed, and recording it on the request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import ConflictError, GitopsError
from gitops.forge.port import ChangeRequest, RequestState
from gitops.forge.refs.records import head_ref
from gitops.git.port import GitRemote, GitStore, MergeResult, NewCommit, Person, RefUpdate

__all__ = ["MergeMethod", "MergeOrder", "merge_request"]


class MergeMethod(StrEnum):
    """A merge commit, one commit for all, or each commit again on top of the target."""

    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


@dataclass(frozen=True, slots=True)
class MergeOrder:
    """What to merge, how, and as whom.

    `expected_head` is the head that was looked at. With `signing_key`, a path to an SSH key, the new commits are signed.
    """

    request: ChangeRequest
    method: MergeMethod
    merger: Person
    expected_head: str | None = None
    signing_key: str | None = None


def merge_request(store: GitStore, remote: GitRemote, order: MergeOrder, clock: Clock) -> str:
    """Merge a request into its target on the remote; returns the new tip.

    A squashed commit is by the author of the head commit, a rebased one by its own author at its own time. Raises
    GitopsError `request_closed` (also when the target has the head already), `request_conflict`, `push_refused`,
    ConflictError `request_head_moved` and `git_ref_conflict`, RemoteError `git_remote_unavailable`.
    """
    request = order.request
    # 1
    if request.state is not RequestState.OPEN:
        raise GitopsError(Code.REQUEST_CLOSED, f"change request {request.number} is {request.state.value}")
    at_source = remote.refs(request.source).get(request.source, request.head)
    for seen in (order.expected_head, at_source):
        if seen not in (None, request.head):
            detail = f"change request {request.number} has head {request.head[:12]}, not {seen[:12]}"
            raise ConflictError(Code.REQUEST_HEAD_MOVED, detail)
    # 2
    tip = _tip(store, remote, request)
    # 3
    new = _Merge(store, order, tip, int(clock.now().timestamp())).write()
    # 4
    remote.push([RefUpdate(request.target, tip, new)])
    return new


def _tip(store: GitStore, remote: GitRemote, request: ChangeRequest) -> str:
    """The commit to merge into; it and the head are in the store afterwards."""
    tip = remote.refs(request.target).get(request.target)
    if tip is None:
        raise GitopsError(Code.GIT_OBJECT_MISSING, f"{request.target} does not exist", path=request.target)
    # Only the objects are fetched: no branch of this clone may move.
    wanted = {request.target: tip, head_ref(request.number): request.head}
    missing = [ref for ref, commit_id in wanted.items() if store.resolve(commit_id) is None]
    if missing:
        remote.fetch(missing)
    if store.merge_base(tip, request.head) is None:
        raise GitopsError(Code.REQUEST_CONFLICT, f"{request.source} and {request.target} share no history")
    if store.is_ancestor(request.head, tip):
        raise _nothing(request)
    return tip


def _nothing(request: ChangeRequest) -> GitopsError:
    return GitopsError(Code.REQUEST_CLOSED, f"{request.target} holds all of change request {request.number} already")


@dataclass(frozen=True, slots=True)
class _Merge:
    """One merge onto `tip`, at the Unix time `time`."""

    store: GitStore
    order: MergeOrder
    tip: str
    time: int

    def write(self) -> str:
        """The new tip."""
        match self.order.method:
            case MergeMethod.MERGE:
                return self._merge()
            case MergeMethod.SQUASH:
                return self._squash()
            case MergeMethod.REBASE:
                return self._rebase()

    def _merge(self) -> str:
        request = self.order.request
        source = request.source.removeprefix("refs/heads/")
        message = f"Merge request #{request.number} from {source}\n"
        author = replace(self.order.merger, time=self.time)
        return self._write(NewCommit(self._merged_tree(), (self.tip, request.head), author, message))

    def _squash(self) -> str:
        request = self.order.request
        author = replace(self.store.commit(request.head).author, time=self.time)
        message = f"{request.title} (#{request.number})\n"
        return self._write(NewCommit(self._merged_tree(), (self.tip,), author, message))

    def _rebase(self) -> str:
        at = self.tip
        for commit in reversed(self.store.commits_between(self.tip, self.order.request.head)):
            if len(commit.parents) > 1:
                continue
            tree = _tree(self.store.replay(commit.id, at), f"commit {commit.id[:12]}")
            # What the target has already would be a commit without a change.
            if tree != self.store.commit(at).tree:
                at = self._write(NewCommit(tree, (at,), commit.author, commit.message))
        if at == self.tip:
            raise _nothing(self.order.request)
        return at

    def _merged_tree(self) -> str:
        request = self.order.request
        return _tree(self.store.merge(self.tip, request.head), f"change request {request.number}")

    def _write(self, commit: NewCommit) -> str:
        return self.store.write_commit(commit, signing_key=self.order.signing_key)


def _tree(result: MergeResult, subject: str) -> str:
    if result.tree is None:
        raise GitopsError(Code.REQUEST_CONFLICT, f"{subject} conflicts in {', '.join(result.conflicts)}")
    return result.tree
