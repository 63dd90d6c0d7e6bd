"""Opens the machines of a cluster for one run. The adapter is imported only then."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from gitops.repository.wiring.system import RandomIds

if TYPE_CHECKING:
    from gitops.cluster.hosts.port import HostPort, HostRun
    from gitops.hosts.ssh_config import SshLogin

IDENTITY = "GITOPS_SSH_IDENTITY"
"""The variable with the path of the private key for hosts. Without it, the keys of the SSH agent are used."""
_KEY_BYTES = 32


def ssh_login(environ: Mapping[str, str]) -> SshLogin:
    """Return how this machine logs in to hosts."""
    from gitops.hosts.ssh_config import SshLogin

    identity = environ.get(IDENTITY) or None
    return SshLogin(identity=None if identity is None else os.path.abspath(identity))  # noqa: PTH100 - links stay


def open_hosts(environ: Mapping[str, str], run: HostRun) -> AbstractContextManager[HostPort]:
    """Return what reads and changes the hosts of a run. It connects when a host is first read."""
    from gitops.hosts.probe import HostOwner
    from gitops.hosts.provider import HostProvider
    from gitops.repository.wiring.host_secrets import SecretValues

    return HostProvider(
        run.hosts,
        HostOwner(run.repository, run.cluster),
        ssh_login(environ),
        SecretValues(run.secrets, environ),
        run=RandomIds().ulid(),
        new_key=partial(secrets.token_bytes, _KEY_BYTES),
        wait=time.sleep,
    )
