"""How verbs that only advise load the cluster folder. All others use `load_desired`."""

from __future__ import annotations

from gitops.cluster.workspace import Workspace
from gitops.config.load import load_cached, load_desired
from gitops.config.result import LoadResult

__all__ = ["load_advice"]


def load_advice(workspace: Workspace) -> LoadResult:
    """With the help of the cache, if the workspace has one.

    Reading the result raises SourceMovedError if the folder has changed since, or is not what the cache says: load it again with
    `load_desired`. Nothing that permits or carries out a change may load this way.
    """
    hints = workspace.hints
    return load_desired(workspace.tree) if hints is None else load_cached(hints.tree, hints.cache)
