"""`cluster.yaml` alone: steps 1 to 5 of a load, for the verbs that look at nothing else of the folder."""

from __future__ import annotations

from gitops.config.cluster_yaml import RawCluster, parse_cluster
from gitops.config.opening import Header, read_config
from gitops.config.source import SourceTree
from gitops.config.yaml import shown
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.storage.address import StorageRootError, parse_storage

__all__ = ["Header", "declared_storage", "header_of", "load_header", "read_cluster"]

_BACKEND = "cluster"


def load_header(tree: SourceTree) -> tuple[Header | None, Diagnostics]:
    """Steps 1 to 5: `cluster.yaml` alone. The header is None when there is any error."""
    cluster, found = read_cluster(tree)
    return (None if cluster is None else header_of(cluster, found)), found


def read_cluster(tree: SourceTree) -> tuple[RawCluster | None, Diagnostics]:
    """Steps 1 to 4: the parsed file, None when one of them failed; and what was found."""
    data, found = read_config(tree)
    return (None, found) if data is None else parse_cluster(data)


def header_of(cluster: RawCluster, found: Diagnostics) -> Header | None:
    """Step 5; None when it found a problem, which is added to `found`."""
    before = len(found)
    if cluster.version != 1:
        message = f"version {cluster.version} is not supported; this release reads version 1"
        found.add(Code.UNSUPPORTED_CLUSTER_CONFIG_VERSION, "version", message, source=cluster.version_source)
    if cluster.name is not None and not cluster.name.value.strip():
        found.add(Code.EMPTY_METADATA_NAME, "metadata.name", "the name is blank", source=cluster.name.source)
    if cluster.backend is not None and cluster.backend.value != _BACKEND:
        message = f"the backend '{shown(cluster.backend.value)}' is not supported"
        found.add(Code.UNSUPPORTED_STATE_BACKEND, "state.backend", message, source=cluster.backend.source)
    storage = None
    try:
        storage = declared_storage(cluster)
    except StorageRootError as error:
        source = None if cluster.storage is None else cluster.storage.source
        found.add(Code.INVALID_STORAGE_ROOT, "storage", str(error), source=source)
    if len(found) > before:
        return None
    name = None if cluster.name is None else cluster.name.value
    return Header(name, storage, lock=cluster.lock is not False)


def declared_storage(cluster: RawCluster) -> str | None:
    """The storage root as declared, None for the default. Raises StorageRootError."""
    return None if cluster.storage is None else parse_storage(cluster.storage.value).text
