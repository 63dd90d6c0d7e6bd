"""Reads only the clusters in `gitops.yaml`, not the rest of the file.

A server's hook needs them for every push. Almost all pushes leave the rules unchanged, so the rules need not be
validated.
"""

from __future__ import annotations

from typing import NamedTuple

from gitops.database.language.yaml import parse_yaml, to_plain

CONFIG_FILE = "gitops.yaml"
DEFAULT_BRANCH = "main"


class NamedCluster(NamedTuple):
    """A cluster of the repository: its name, its folder, and the full name of its target branch."""

    name: str
    path: str
    ref: str


def named_clusters(source: bytes) -> tuple[NamedCluster, ...]:
    """Return the clusters in a file that was validated earlier. Does not validate it again."""
    listed = to_plain(parse_yaml(source)).get("clusters", ())
    return tuple(NamedCluster(c["name"], c["path"], f"refs/heads/{c.get('branch', DEFAULT_BRANCH)}") for c in listed)
