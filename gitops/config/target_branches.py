"""Which branches `gitops.yaml` names for its clusters, and nothing else of it.

The hook of a server asks that for every push, and most pushes are to other branches.
"""

from __future__ import annotations

from gitops.config.yaml import parse_yaml, to_plain

CONFIG_FILE = "gitops.yaml"
DEFAULT_BRANCH = "main"


def named_refs(source: bytes) -> frozenset[str]:
    """The full names of these branches, in a file that was found valid before: it is not validated again."""
    clusters = to_plain(parse_yaml(source)).get("clusters", ())
    return frozenset(f"refs/heads/{cluster.get('branch', DEFAULT_BRANCH)}" for cluster in clusters)
