"""Which clusters `gitops.yaml` names, and nothing else of it.

The hook of a server asks that for every push. Nearly all pushes leave the rules as they are, so they need not be validated.
"""

from __future__ import annotations

from typing import NamedTuple

from gitops.database.language.yaml import parse_yaml, to_plain

CONFIG_FILE = "gitops.yaml"
DEFAULT_BRANCH = "main"


class NamedCluster(NamedTuple):
    """A cluster: its name, its folder, and the full name of its target branch."""

    name: str
    path: str
    ref: str


def named_clusters(source: bytes) -> tuple[NamedCluster, ...]:
    """The clusters of a file that was found valid before: it is not validated again."""
    listed = to_plain(parse_yaml(source)).get("clusters", ())
    return tuple(NamedCluster(c["name"], c["path"], f"refs/heads/{c.get('branch', DEFAULT_BRANCH)}") for c in listed)
