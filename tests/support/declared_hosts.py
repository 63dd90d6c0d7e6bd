"""Cluster folders that declare hosts, in memory and on disk."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEItZQ/JZV3CgBIdMfMLdKbl0Q3RxVkZv5odVJ7fHkbJ"
HOSTS = (
    '  web1: {transport: ssh, address: 10.0.0.1, user: deploy, become: root, tags: [web], vars: {workers: "2"},'
    " resources: [hosts/base.yaml]}\n"
    "  web2: {transport: ssh, address: 10.0.0.2, user: deploy}\n"
)
KNOWN = "host.web1 KEY\nhost.web2 KEY\n"


def host_files(items: str = "", hosts: str = HOSTS, known: str = KNOWN, file: str | None = None) -> dict[str, bytes]:
    """The files of a folder with hosts: the items of hosts/base.yaml, from line 3, or all of that file."""
    return {
        "cluster.yaml": f"version: 1\nhosts:\n{hosts}".encode(),
        "hosts/known_hosts": known.replace("KEY", KEY).encode(),
        "hosts/base.yaml": (f"version: 1\nresources:\n{items}" if file is None else file).encode(),
    }


def load_hosts_of(files: Mapping[str, bytes]) -> Loaded:
    """What a folder declares."""
    return load_desired(MemoryTree(dict(files)))
