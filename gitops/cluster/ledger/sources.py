"""Facts about a cluster from its source commits: keys and rules, and its location if the first release wrote the entry.

`gitops.cluster.ledger.chain` reads the keys and rules of ledger entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from gitops.cluster.config.cluster_yaml import load_header
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
from gitops.cluster.config.source import SourceTree
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.scope import UNKNOWN_STORAGE, ClusterScope
from gitops.git.port import GitReader


def trust_at(reader: GitReader, tree: str) -> Mapping[str, bytes]:
    """Return the key and rule files that exist in a root tree. Raises GitopsError `bot_config_invalid`."""
    source = reader.read(tree, CONFIG_FILE)
    paths = () if source is None else _paths(source)
    found = {path: reader.read(tree, path) for path in paths}
    return {path: content for path, content in found.items() if content is not None}


@lru_cache(maxsize=8)
def _paths(source: bytes) -> tuple[str, ...]:
    """Return the files that a `gitops.yaml` refers to.

    Cached, because hundreds of branches in a push can have the same file.
    """
    return tuple(trust_paths(parse_bot_config(source)))


def trust_waits(reader: GitReader, source: str | None, in_force: str) -> bool:
    """Return True if a commit's keys and rules wait for approval, because their digest differs from `in_force`.

    Returns False if the commit is not available.
    """
    if source is None or reader.resolve(source) is None:
        return False
    return trust_root(trust_at(reader, reader.commit(source).tree)).digest != in_force


# -- places ------------------------------------------------------------------------------------------------------------
# The location of a cluster according to an entry.


FolderOpener = Callable[[GitReader, str], SourceTree]
"""Opens a cluster folder by its tree id."""


def recorded_scope(reader: GitReader, entry: LedgerEntry, open_folder: FolderOpener) -> ClusterScope:
    """Return the cluster's location after an entry.

    Entries of the first release do not record the location of the graphs. Their storage is the one declared in their
    source commit, which that release used. Without that commit, it is unknown and differs from every declaration.
    """
    if entry.scope is not None:
        return entry.scope
    source, storage = entry.source, UNKNOWN_STORAGE
    if source is None or reader.resolve(source.commit) is None:
        return ClusterScope(entry.target, storage, entry.target.cluster)
    declared = declared_storage(reader, reader.commit(source.commit).tree, entry.target.path, open_folder)
    return ClusterScope(entry.target, declared, entry.target.cluster)


def declared_storage(reader: GitReader, tree: str, path: str, open_folder: FolderOpener) -> str | None:
    """Return the storage root declared by the folder at `path` in a root tree, or None for the default or a missing folder."""
    folder = reader.subtree(tree, path)
    header = None if folder is None else load_header(open_folder(reader, folder))[0]
    return None if header is None else header.storage
