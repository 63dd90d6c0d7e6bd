"""`validate`: load everything, touch nothing."""

from __future__ import annotations

from gitops.cluster.loading import load_advice
from gitops.cluster.workspace import Workspace
from gitops.config.declaration import CONFIG_FILE
from gitops.model.outcome import ValidateOutcome


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
