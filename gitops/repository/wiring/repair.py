"""The ledger branch of a cluster for an operator who repairs it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from gitops.cluster.config.cluster_yaml import declared_storage, read_cluster
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import AnchorFile
from gitops.cluster.ledger.repair import RepairLedger
from gitops.core.errors import GitopsError
from gitops.database.storage.port import StorageRootError
from gitops.repository.wiring.local import open_commit_tree
from gitops.repository.wiring.project import LocalProject
from gitops.repository.wiring.stores import open_store
from gitops.repository.wiring.system import SystemClock

__all__ = ["repair_ledger"]


def repair_ledger(local: LocalProject, rule: ClusterRule) -> RepairLedger:
    """The ledger with the anchor in the storage that the target branch declares, where this machine has it."""
    head, store, anchor = local.project.head_of(rule.ref), local.repository, None
    folder = None if head is None else store.subtree(store.commit(head).tree, rule.path)
    cluster = None if folder is None else read_cluster(open_commit_tree(store, folder, rule.path))[0]
    with suppress(GitopsError, StorageRootError):  # without the storage, clones and signed documents still know entries
        root = None if cluster is None else local.storage_base(rule, declared_storage(cluster))
        anchor = None if root is None else AnchorFile(lambda: open_store(root))
    place = replace(local.branch_settings(rule), anchor_file=anchor)
    return RepairLedger(store, local.remote, place, SystemClock())
