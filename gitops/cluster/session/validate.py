"""`validate`: load everything, touch nothing. And how verbs that only advise load; all others use `load_desired`."""

from __future__ import annotations

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.load import LoadResult, load_cached, load_desired
from gitops.cluster.model.outcome import ValidateOutcome
from gitops.cluster.session.workspace import Workspace


def load_advice(workspace: Workspace) -> LoadResult:
    """Load with the help of the cache, if the workspace has one.

    Reading the result raises SourceMovedError if the folder has changed since, or is not what the cache says: load it again with
    `load_desired`. Nothing that permits or carries out a change may load this way.
    """
    hints = workspace.hints
    if hints is None:
        return load_desired(workspace.tree, workspace.vouched)
    return load_cached(hints.tree, hints.cache, workspace.vouched)


def validate(workspace: Workspace) -> ValidateOutcome:
    """Check the folder and report every problem; on error what loaded is still reported."""
    loaded = load_advice(workspace)
    return ValidateOutcome(
        config_dir=workspace.config_dir,
        config_file=f"{workspace.config_dir.rstrip('/')}/{CONFIG_FILE}" if workspace.config_dir else CONFIG_FILE,
        resources=tuple(loaded.resources.values()),
        dependencies=loaded.dependencies,
        diagnostics=tuple(loaded.diagnostics),
    )
