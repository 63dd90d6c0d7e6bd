"""Settings -> workspaces with real adapters. Heavy drivers are imported by what needs them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from gitops.cli.system import RandomIds, SystemClock
from gitops.config.storage import StorageKind, parse_storage
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.ledger.folder import FolderLedger
from gitops.ledger.layout import graph_root
from gitops.ports.engine import GraphEngine
from gitops.providers.cluster import ClusterProvider
from gitops.storage.folder import FolderTree
from gitops.storage.local import LocalStore
from gitops.workflows.context import Stores, Workspace


def folder_workspace(
    folder: str, *, actor: str | None, workers: int = 1, ephemeral: bool = False, faults: Faults | None = None
) -> Workspace:
    """A cluster folder on disk with its ledger folder.

    `ephemeral` says that the folder is a checkout that will be thrown away, so that graph data must not be kept in it.
    """
    return Workspace(
        tree=FolderTree(folder, confined=False),
        config_dir=folder,
        open_stores=folder_stores(folder, ephemeral=ephemeral, faults=faults or NoFaults()),
        provider=ClusterProvider,
        clock=SystemClock(),
        ids=RandomIds(),
        actor=actor,
        workers=workers,
        faults=faults or NoFaults(),
        pid=os.getpid(),
    )


def folder_stores(folder: str, *, ephemeral: bool, faults: Faults) -> Callable[[str | None], Stores]:
    """How to open the stores of a ledger folder from the declared storage root."""

    def open_stores(storage: str | None) -> Stores:
        root = local_root(storage, folder)
        problem = None
        if ephemeral and storage is None:
            problem = GitopsError(
                "ephemeral_graph_root", "graphs would live in a checkout of a CI job; declare storage", path="storage"
            )
        return Stores(
            ledger=FolderLedger(LocalStore(root), clock=SystemClock(), faults=faults),
            engine=graph_engine(faults),
            graph_uri=lambda graph: str(root / graph_root(graph)),
            data_problem=problem,
        )

    return open_stores


def local_root(storage: str | None, folder: str) -> Path:
    """The folder that a declared storage root means. Raises GitopsError `storage_root_invalid` for object storage."""
    if storage is None:
        return Path(folder).absolute()
    declared = parse_storage(storage)
    if declared.kind is not StorageKind.LOCAL:
        raise GitopsError("storage_root_invalid", "object storage is not available in this release", path="storage")
    return Path(declared.local_path(os.path.abspath(folder)))  # noqa: PTH100 - links stay as they are


def graph_engine(faults: Faults) -> GraphEngine:
    """The embedded engine; importing Lance is its own business, when it writes."""
    from gitops.engine.engine import LanceEngine

    return LanceEngine(SystemClock(), RandomIds(), faults)
