"""Where the commits of a branch come from: nobody may approve their own work, so it must be known whose work it is.

A commit is accounted for if the push that brought it told this run who pushed, or if it is what merging a request gives, to
the byte: then whoever is behind the request is behind the commit. What a commit says of its author is not enough: whoever
pushes straight to a branch writes that as they like.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gitops.bot.changes import differ, gives
from gitops.bot.project import Project
from gitops.config.gitops_yaml import ClusterRule
from gitops.forge.port import ChangeRequest
from gitops.git.port import Commit

__all__ = ["Pushed", "changes", "unaccounted"]

# Commits of one request that was rebased; behind more, its origin is not looked for.
_MOST_REBASED = 50


@dataclass(frozen=True, slots=True)
class Pushed:
    """A push that was told of: the commits of the branch that it brought, and the people whose work they are besides."""

    commits: frozenset[str] = frozenset()
    people: frozenset[str] = frozenset()


def changes(project: Project, rule: ClusterRule, commit: Commit) -> bool:
    """Whether a commit of the branch changed the cluster, or whom to trust."""
    store = project.tools.store
    return not commit.parents or differ(project, rule, commit.tree, store.commit(commit.parents[0]).tree)


def unaccounted(
    project: Project, rule: ClusterRule, commits: Sequence[Commit], requests: Sequence[ChangeRequest], pushed: Pushed
) -> tuple[Commit, ...]:
    """The commits that changed a cluster, and nobody can tell whose work that is.

    `commits` are those of the branch that are not applied, newest first; `requests` those that were merged into it.
    """
    open_ones = [c for c in commits if c.id not in pushed.commits and changes(project, rule, c)]
    if not open_ones:
        return ()
    project.fetch_heads(requests)
    known = {commit for request in requests for commit in _brought(project, commits, request)}
    return tuple(c for c in open_ones if c.id not in known)


def _brought(project: Project, commits: Sequence[Commit], request: ChangeRequest) -> tuple[str, ...]:
    """The commits that a request is all of: one for a merge or a squash, several for a rebase."""
    ends = {request.merged_as, request.head}
    for last, commit in enumerate(commits):
        if commit.id in ends:
            span = commits[last : last + _MOST_REBASED]
            for count, first in enumerate(span, start=1):
                if first.parents and gives(project, first.parents[0], request, commit.id):
                    return tuple(c.id for c in span[:count])
    return ()
