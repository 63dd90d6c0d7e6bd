"""`validate`: loads everything without changing anything."""

from __future__ import annotations

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.load import load_desired
from gitops.cluster.model.outcome import ValidateOutcome
from gitops.cluster.session.workspace import Workspace


def validate(workspace: Workspace) -> ValidateOutcome:
    """Check the folder and report every problem. Even with errors, the parts that loaded are reported."""
    loaded = load_desired(workspace.tree, workspace.vouched, workspace.hints)
    return ValidateOutcome(
        config_dir=workspace.config_dir,
        config_file=f"{workspace.config_dir.rstrip('/')}/{CONFIG_FILE}" if workspace.config_dir else CONFIG_FILE,
        resources=tuple(loaded.resources.values()),
        dependencies=loaded.dependencies,
        diagnostics=tuple(loaded.diagnostics),
    )
