"""What merging a request put on a branch: the commits of rule 2 (e) of `gitops.cluster.approvals.origins`.

A merge or a squash is one commit: what merging the head of the request into its first parent gives. A rebase is one commit for
each commit of the request, each what applying that commit to the one before gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.core.errors import GitopsError
from gitops.git.port import Commit, GitReader

# Commits of one request that was rebased; what merged more is not looked for.
_MOST_REBASED = 50


def merged_series(reader: GitReader, line: Sequence[Commit], last: int, head: str) -> tuple[Commit, ...]:
    """The commits of a branch, newest first, that merging the request with this `head` put there, the newest at `line[last]`.

    `line` are commits of the branch along first parents, newest first. Empty if the commit there is not the end of such a merge.
    """
    commit = line[last]
    if not commit.parents or reader.is_ancestor(commit.id, head):
        return ()
    # The last of several that were rebased also looks like a squash.
    series = _rebased(reader, line[last : last + _MOST_REBASED], head)
    return series or ((commit,) if merging_gives(reader, commit.parents[0], head, commit.id) else ())


def series_with(reader: GitReader, tip: str, commit: str, head: str) -> Iterator[tuple[Commit, ...]]:
    """All such series that contain a commit of the branch at `tip`; of a commit of another branch, those that end with it."""
    below = [reader.commit(commit)]
    while len(below) <= _MOST_REBASED and below[-1].parents:
        below.append(reader.commit(below[-1].parents[0]))
    above = reader.commits_between(commit, tip, first_parent=True)
    if not above or above[-1].parents[0] != commit:
        above = ()
    line = [*above, *below]
    for last in range(len(above), max(len(above) - _MOST_REBASED, -1), -1):
        series = merged_series(reader, line, last, head)
        if any(each.id == commit for each in series):
            yield series


def merging_gives(reader: GitReader, base: str, head: str, commit: str) -> bool:
    """Whether merging `head` into the commit `base` gives exactly the tree of `commit`."""
    try:
        return reader.merge(base, head).tree == reader.commit(commit).tree
    except GitopsError:
        # Anybody can push a branch that cannot be merged at all; that must not stop the other requests.
        return False


def _rebased(reader: GitReader, line: Sequence[Commit], head: str) -> tuple[Commit, ...]:
    """The newest commits of the branch if each is what applying the next commit of a request gives; else nothing."""
    try:
        fork = reader.merge_base(line[-1].id, head)
        own = reader.commits_between(fork, head, most=len(line) + 1)
        copies = line[: len(own)]
        if any(len(commit.parents) != 1 for commit in (*own, *copies)) or len(copies) != len(own):
            return ()
        if not {commit.id for commit in own}.isdisjoint(commit.id for commit in copies):
            return ()
        same = all(
            reader.replay(commit.id, copy.parents[0]).tree == copy.tree
            for commit, copy in zip(own, copies, strict=True)
        )
    except GitopsError:
        return ()
    return tuple(copies) if same else ()
