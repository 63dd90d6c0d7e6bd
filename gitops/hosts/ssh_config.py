"""The configuration file of the ssh program. It has everything: files of the user and of the system aren't read.

A host is known by the name `host.<name>`, so a key belongs to the declared host and not to a DNS name. Only declared keys
are accepted, and the first contact pins nothing.

Source: ssh_config(5)
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from gitops.cluster.model.host import Connection
from gitops.core.dataclass import dataclass
from gitops.hosts.script import quoted

CONNECT_S = 10
"""Seconds until a connection must be established."""
KEPT_S = 60
"""Seconds for which a connection without sessions is kept."""
_OPTIONS = (
    "BatchMode yes",
    "StrictHostKeyChecking yes",
    "GlobalKnownHostsFile none",
    "UpdateHostKeys no",
    "VerifyHostKeyDNS no",
    "CheckHostIP no",
    "PreferredAuthentications publickey",
    "PasswordAuthentication no",
    "KbdInteractiveAuthentication no",
    "GSSAPIAuthentication no",
    "HostbasedAuthentication no",
    "ForwardAgent no",
    "ForwardX11 no",
    "ClearAllForwardings yes",
    "PermitLocalCommand no",
    "RequestTTY no",
    "EscapeChar none",
    "Compression no",
    "LogLevel ERROR",
    f"ConnectTimeout {CONNECT_S}",
    "ConnectionAttempts 1",
    "ServerAliveInterval 15",
    "ServerAliveCountMax 4",
    f"ControlPersist {KEPT_S}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshLogin:
    """What a machine that runs this program adds to a connection: its key, and a program that reaches hosts.

    `identity` is the path of a private key; None uses the keys of the agent. `proxy` is the argument vector of a program whose
    input and output are the connection, in which `%h` and `%p` are the address and the port.
    """

    identity: str | None = None
    proxy: Sequence[str] = ()


def alias(host: str) -> str:
    """Return the name by which ssh knows a host, and under which its keys are pinned."""
    return f"host.{host}"


def fingerprint(key: str) -> str:
    """Return the fingerprint of a public key `TYPE BASE64`, as `ssh-keygen -l` prints it. Raises ValueError."""
    data = base64.b64decode(key.split()[1], validate=True)
    return "SHA256:" + base64.b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def known_hosts(chain: Sequence[Connection]) -> str:
    """Return the file of pinned keys for a host and those that it is reached through."""
    return "".join(f"{key}\n" for each in chain for key in each.keys)


def ssh_config(chain: Sequence[Connection], login: SshLogin, folder: str) -> str:
    """Return the configuration for the first host of `chain`. Each host is reached through the next one.

    `folder` has the file of pinned keys and the sockets of shared connections.
    """
    lines = []
    for number, each in enumerate(chain):
        lines += [f"Host {alias(each.name)}", f"HostName {each.address}", f"Port {each.port}", f"User {each.user}"]
        lines += [f"HostKeyAlias {alias(each.name)}", f"ControlPath {_argument(f'{folder}/{number}')}"]
        if number + 1 < len(chain):
            lines.append(f"ProxyJump {alias(chain[number + 1].name)}")
        elif login.proxy:
            lines.append(f"ProxyCommand {' '.join(map(_proxy_word, login.proxy))}")
    lines += ["Host *", *_OPTIONS, f"UserKnownHostsFile {_argument(f'{folder}/known_hosts')}"]
    if login.identity is None:
        lines.append("IdentityFile none")
    else:
        lines += ["IdentitiesOnly yes", f"IdentityFile {_argument(login.identity)}"]
    return "".join(f"{line}\n" for line in lines)


def _argument(path: str) -> str:
    """Return a path for the configuration, in which `%` and quotes have a meaning. Raises ValueError for a line end."""
    if set('"\r\n\0') & set(path):
        raise ValueError(f"ssh cannot use the path {path!r}")
    return '"' + path.replace("%", "%%").replace("\\", "\\\\") + '"'


def _proxy_word(word: str) -> str:
    if set("\r\n\0") & set(word):
        raise ValueError("a word of a proxy command cannot contain a line end")
    return quoted(word.replace("%", "%%").replace("%%h", "%h").replace("%%p", "%p"))
