"""Build workspaces with real adapters. Heavy drivers are imported when they are needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from posixpath import join
from typing import Any, cast

from gitops.apply.provider import ClusterProvider
from gitops.cluster.workspace import Hints, Stores, Workspace
from gitops.config.folder import FolderTree
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults
from gitops.graph.port import GraphEngine
from gitops.ledger.folder import FolderLedger
from gitops.ledger.layout import graph_root
from gitops.storage.address import StorageKind, parse_storage
from gitops.storage.local import LocalStore
from gitops.storage.port import ObjectStore
from gitops.wiring.caching import compile_cache
from gitops.wiring.system import RandomIds, SystemClock


def folder_workspace(
    folder: str, *, actor: str | None, workers: int = 1, ephemeral: bool = False, faults: Faults | None = None
) -> Workspace:
    """A cluster folder on disk with its ledger folder.

    `ephemeral` means that the folder is a temporary checkout, in which graph data must not be stored.
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


def with_compile_cache(workspace: Workspace, *, cached: bool) -> Workspace:
    """The workspace of a command that only reads: if it is a folder, it uses the compile cache of the user."""
    tree = workspace.tree
    if not cached or not isinstance(tree, FolderTree):
        return workspace
    cache = compile_cache(os.environ)
    if cache is None:
        return workspace
    now_ns = int(workspace.clock.now().timestamp() * 1_000_000_000)
    return replace(workspace, hints=Hints(tree.at(now_ns), cache))


def folder_stores(folder: str, *, ephemeral: bool, faults: Faults) -> Callable[[str | None], Stores]:
    """Return how to open the stores of a ledger folder from the declared storage root."""

    def open_stores(storage: str | None) -> Stores:
        root = storage_root(storage, folder)
        problem = None
        if ephemeral and storage is None:
            problem = GitopsError(
                Code.EPHEMERAL_GRAPH_ROOT,
                "graphs would be stored in a checkout of a CI job; declare storage",
                path="storage",
            )
        return Stores(
            ledger=FolderLedger(open_store(root), clock=SystemClock(), faults=faults),
            engine=graph_engine(faults),
            graph_uri=lambda graph: graph_uri(root, graph),
            data_problem=problem,
        )

    return open_stores


def storage_root(storage: str | None, folder: str) -> str:
    """The absolute path or `s3:` address of a declared storage root; by default the cluster folder.

    `storage` is valid: it has passed the checks of the folder.
    """
    if storage is None:
        return str(Path(folder).absolute())
    declared = parse_storage(storage)
    if declared.kind is StorageKind.S3:
        return declared.text
    return declared.local_path(os.path.abspath(folder))  # noqa: PTH100 - links stay as they are


def open_store(root: str) -> ObjectStore:
    """The objects below a storage root. Raises GitopsError `storage_driver_missing`, `storage_root_invalid`."""
    if not root.startswith("s3:"):
        return LocalStore(root)
    # The client is large; commands on a folder do not load it.
    from gitops.storage.s3 import S3Store

    return S3Store(root)


def graph_uri(root: str, graph: str) -> str:
    """The location of a graph below a storage root. Raises ValueError for an id that breaks the naming rule."""
    return join(root, graph_root(graph))


def graph_engine(faults: Faults) -> GraphEngine:
    """The embedded engine, loaded at its first use: most plans read no graph.

    The engine imports Lance only when it writes.
    """
    return cast("GraphEngine", _LazyEngine(faults))


class _LazyEngine:
    """Becomes the engine at the first access."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        from gitops.graph import LanceEngine

        engine = LanceEngine(SystemClock(), RandomIds(), self._faults)
        self.__dict__.update({method: getattr(engine, method) for method in dir(engine) if not method.startswith("_")})
        return getattr(engine, name)
