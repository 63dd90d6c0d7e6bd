"""The two ways to load a cluster folder: from its files alone, and with the help of a cache for verbs that only advise."""

from __future__ import annotations

from gitops.cluster.workspace import Workspace
from gitops.config.result import LoadResult
from gitops.config.warm import SourceMovedError, load_remembering

__all__ = ["SourceMovedError", "load_advice", "load_afresh"]


def load_afresh(workspace: Workspace) -> LoadResult:
    """From the files alone: for everything that permits or carries out a change."""
    # The languages are large to import, and a load that finds everything as it was does without.
    from gitops.config.load import load_desired

    return load_desired(workspace.tree)


def load_advice(workspace: Workspace) -> LoadResult:
    """With the help of the cache, if the workspace has one; keeps there what was found out.

    Raises SourceMovedError, now or when the result is looked into, if the folder changes meanwhile or is not what the cache says.
    """
    hints = workspace.hints
    if hints is None:
        return load_afresh(workspace)
    remembered = load_remembering(hints.tree, hints.cache.load)
    for name in sorted(remembered.entries):
        hints.cache.save(name, remembered.entries[name])
    return remembered.result
