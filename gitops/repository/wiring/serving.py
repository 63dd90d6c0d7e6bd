"""Open what `gitops serve` serves: a cluster folder, a storage root without local files, or a cluster of a repository."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.ledger.folder import FolderLedger
from gitops.cluster.ledger.served import ServingReports, past_ledger
from gitops.cluster.session.workspace import Stores
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.core.faults import NoFaults
from gitops.database.storage.port import StorageRootError, parse_storage
from gitops.repository.wiring.stores import graph_engine, graph_uri, open_store, storage_root, workers_at
from gitops.repository.wiring.system import SystemClock

__all__ = ["ServedSource", "open_served"]

_MANIFEST = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class ServedSource:
    """Where the cluster to serve is.

    `cluster` is a folder or the URI of a storage root; with a repository `repo`, the name of one of its clusters, whose ledger is
    that of `remote`. `revision` is the digest of a past state to serve instead of the newest one.
    """

    cluster: str
    repo: str | None = None
    remote: str | None = None
    revision: str | None = None


def open_served(source: ServedSource, found: Diagnostics) -> Stores | None:
    """The stores of the cluster; None where its configuration keeps them from being found, which is added to `found`.

    Raises GitopsError `config_dir_not_found`, `storage_root_invalid`, `storage_driver_missing`, `cluster_not_found`, UsageError
    `not_a_repository`.
    """
    if source.repo is not None:
        return _of_repository(source, source.repo)
    root = source.cluster
    if "://" not in root:
        if not Path(root).is_dir():
            raise GitopsError(Code.CONFIG_DIR_NOT_FOUND, f"{root} is not a folder", path="--cluster")
        storage = None
        # What is declared does not count, but for where the ledger is; a folder without a declaration is its own root.
        if (Path(root) / _MANIFEST).exists():
            header, problems = load_header(FolderTree(root, confined=True))
            found.extend(problems)
            if header is None:
                return None
            storage = header.storage
        root = storage_root(storage, root)
    else:
        try:
            root = storage_root(parse_storage(root).text, "/")
        except StorageRootError as error:
            raise GitopsError(Code.STORAGE_ROOT_INVALID, f"{root[:200]}: {error}", path="--cluster") from None
    stores = Stores(
        ledger=FolderLedger(open_store(root), clock=SystemClock(), faults=NoFaults()),
        engine=graph_engine(NoFaults()),
        graph_uri=lambda graph: graph_uri(root, graph),
        workers=workers_at(root),
        reports=ServingReports(lambda: open_store(root)),
    )
    if source.revision is None:
        return stores
    return replace(stores, ledger=past_ledger(stores.ledger, source.revision))


def _of_repository(source: ServedSource, repo: str) -> Stores:
    # git and its keys are for repositories only: a folder or a bucket is served without them.
    from gitops.repository.wiring.project import LocalProject

    local = LocalProject(repo, source.remote)
    workspace = local.workspace(local.rule(source.cluster), None, in_place=True)
    # The ledger records where it is; what the folder declares counts only as long as there is none.
    header, _ = load_header(workspace.tree)
    stores = workspace.open_stores(None if header is None else header.storage)
    if source.revision is None:
        return stores
    return replace(stores, ledger=past_ledger(stores.ledger, source.revision, local.repository))
