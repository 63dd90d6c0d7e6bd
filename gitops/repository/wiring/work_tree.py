"""What the files of a work tree change that are not committed."""

from __future__ import annotations

from pathlib import Path

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, ClusterRule, parse_bot_config
from gitops.cluster.model.scope import ClusterScope, ScopeChange
from gitops.repository.cluster import declared_rule, successor
from gitops.repository.project import Project


def proposed_scope(project: Project, work_tree: str, rule: ClusterRule, storage: str | None) -> ScopeChange | None:
    """What `gitops.yaml` of a work tree changes of where a cluster is, whose folder declares `storage`.

    None before its first ledger entry, and without the file. Raises GitopsError `bot_config_invalid`.
    """
    scope, file = project.position(rule).scope, Path(work_tree) / CONFIG_FILE
    if scope is None or not file.is_file():
        return None
    declaring = parse_bot_config(file.read_bytes())
    declared = declared_rule(declaring, rule.name)
    if declared is None:

        def storage_of(path: str) -> str | None:
            header = load_header(FolderTree(str(Path(work_tree, path)), confined=True))[0]
            return None if header is None else header.storage

        return ScopeChange(scope, None, successor(project.config(), declaring, scope, storage_of))
    target = project.target(declared, project.head_of(rule.ref), declaring, scope.target.repository)
    return ScopeChange(scope, ClusterScope(target, storage, scope.home))
