"""The keys and rules of source commits; `gitops.cluster.ledger.chain` reads those of ledger entries."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.git.port import GitReader

__all__ = ["trust_at", "trust_waits"]


def trust_at(reader: GitReader, tree: str) -> Mapping[str, bytes]:
    """The files of keys and rules in a root tree, those that exist. Raises GitopsError `bot_config_invalid`."""
    source = reader.read(tree, CONFIG_FILE)
    paths = () if source is None else _paths(source)
    found = {path: reader.read(tree, path) for path in paths}
    return {path: content for path, content in found.items() if content is not None}


@lru_cache(maxsize=8)
def _paths(source: bytes) -> tuple[str, ...]:
    """The files that a `gitops.yaml` names; hundreds of branches of one push have the same."""
    return tuple(trust_paths(parse_bot_config(source)))


def trust_waits(reader: GitReader, source: str | None, in_force: str) -> bool:
    """Whether a source commit has other keys and rules than those of digest `in_force`: they wait for an approval.

    False where the commit is not at hand.
    """
    if source is None or reader.resolve(source) is None:
        return False
    return trust_root(trust_at(reader, reader.commit(source).tree)).digest != in_force
