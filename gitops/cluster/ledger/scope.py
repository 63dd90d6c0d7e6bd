"""Where an entry records its cluster."""

from __future__ import annotations

from collections.abc import Callable

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.source import SourceTree
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.scope import UNKNOWN_STORAGE, ClusterScope
from gitops.git.port import GitReader

__all__ = ["declared_storage", "recorded_scope"]

FolderOpener = Callable[[GitReader, str], SourceTree]
"""Opens a cluster folder by its tree id."""


def recorded_scope(reader: GitReader, entry: LedgerEntry, open_folder: FolderOpener) -> ClusterScope:
    """Where the cluster is after an entry.

    Entries of the first release do not say where the graphs are: the storage is what their source commit declares, which that
    release used. Without that commit it is unknown, and equals no declaration.
    """
    if entry.scope is not None:
        return entry.scope
    source, storage = entry.source, UNKNOWN_STORAGE
    if source is None or reader.resolve(source.commit) is None:
        return ClusterScope(entry.target, storage, entry.target.cluster)
    declared = declared_storage(reader, reader.commit(source.commit).tree, entry.target.path, open_folder)
    return ClusterScope(entry.target, declared, entry.target.cluster)


def declared_storage(reader: GitReader, tree: str, path: str, open_folder: FolderOpener) -> str | None:
    """The storage that the cluster folder `path` of a root tree declares; None for the default, and for no such folder."""
    folder = reader.subtree(tree, path)
    header = None if folder is None else load_header(open_folder(reader, folder))[0]
    return None if header is None else header.storage
