"""Runs scripts on a host: on this machine, or through the ssh program with one shared connection for each host.

Every program gets an argument vector. Its environment has no token or key of this process, and what it is sent is never
written to a disk. Time is limited on both sides: the host ends a script after its seconds, and this side stops waiting a
little later.
"""

from __future__ import annotations

import getpass
import os
import secrets
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from gitops.cluster.model.host import Connection, Transport
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.git.command import Output, child_environment, run_program
from gitops.hosts import ssh_config
from gitops.hosts.script import Script, command_line, connection_lost, has_begun, read_sections, session_argv

MAX_ANSWER = 8 << 20
"""The most bytes that a script may answer. A longer answer is an error and is never cut."""
# The host needs up to 10 seconds to kill a script that ignores the first signal.
_GRACE_S = 15
_TIMED_OUT = 124


class Channel(Protocol):
    """Runs scripts on one host, from any thread."""

    @property
    def host(self) -> str:
        """The name of the host."""

    def run(self, script: Script) -> Mapping[str, bytes]:
        """Run a script and return the sections of its answer.

        Raises GitopsError: `host_unreachable`, `host_key_mismatch` or `host_login_refused` before it runs;
        `host_become_failed` if the host doesn't let the user become another; `host_connection_lost` if it is unknown how
        far it ran; `host_timed_out` if the host ended it; `host_output_too_large`.
        """


@contextmanager
def open_channel(
    connection: Connection, hosts: Mapping[str, Connection], login: ssh_config.SshLogin
) -> Iterator[Channel]:
    """Yield the channel of a host. It connects at the first script, and the connection ends with the block.

    `hosts` has the hosts through which it may be reached, by name.
    """
    if connection.transport is Transport.LOCAL:
        yield _LocalChannel(connection)
        return
    # The path of a socket has at most 107 bytes, and ssh adds 17 while it makes one.
    with tempfile.TemporaryDirectory(prefix="gitops-ssh-", dir="/tmp") as folder:
        channel = _SshChannel(connection, _chain(connection, hosts), login, folder)
        try:
            yield channel
        finally:
            channel.close()


def _chain(connection: Connection, hosts: Mapping[str, Connection]) -> list[Connection]:
    """Return a host and those that it is reached through, the nearest to it first."""
    chain = [connection]
    while (jump := chain[-1].jump) is not None:
        if jump not in hosts or hosts[jump] in chain:
            raise GitopsError(Code.HOST_UNREACHABLE, f"no way leads through {jump}", path=f"host.{connection.name}")
        chain.append(hosts[jump])
    return chain


class _LocalChannel:
    def __init__(self, connection: Connection) -> None:
        self.host = connection.name
        become = None if connection.become == getpass.getuser() else connection.become
        self._argv = session_argv(become)
        self._environment = child_environment(os.environ, as_user=False)

    def run(self, script: Script) -> Mapping[str, bytes]:
        return _converse(self._argv, self._environment, script, self.host)


class _SshChannel:
    def __init__(
        self, connection: Connection, chain: Sequence[Connection], login: ssh_config.SshLogin, folder: str
    ) -> None:
        self.host = connection.name
        self._sessions = threading.BoundedSemaphore(connection.sessions)
        self._opening = threading.Lock()
        self._open = False
        self._environment = child_environment(os.environ, as_user=True)
        config = Path(folder, "config")
        Path(folder, "known_hosts").write_text(ssh_config.known_hosts(chain), encoding="utf-8")
        config.write_text(ssh_config.ssh_config(chain, login, folder), encoding="utf-8")
        self._ssh = ("ssh", "-F", str(config))
        become = None if connection.become == connection.user else connection.become
        line = command_line(session_argv(become))
        self._session = (*self._ssh, "-o", "ControlMaster=no", ssh_config.alias(self.host), line)

    def run(self, script: Script) -> Mapping[str, bytes]:
        self._connect()
        try:
            with self._sessions:
                return _converse(self._session, self._environment, script, self.host)
        except GitopsError as error:
            if error.code is Code.HOST_CONNECTION_LOST:
                self.close()
            raise

    def _connect(self) -> None:
        """Open the connection that all sessions share, so that only one of them logs in."""
        with self._opening:
            if self._open:
                return
            words = (*self._ssh, "-N", "-f", "-o", "ControlMaster=yes", ssh_config.alias(self.host))
            done = run_program(
                words, env=self._environment, timeout_s=3 * ssh_config.CONNECT_S, failed=Code.SSH_UNAVAILABLE
            )
            if not done.ok:
                raise _refused(done, self.host)
            self._open = True

    def close(self) -> None:
        """End the shared connection, if there is one."""
        with self._opening:
            if self._open:
                words = (*self._ssh, "-O", "exit", ssh_config.alias(self.host))
                run_program(words, env=self._environment, timeout_s=ssh_config.CONNECT_S, failed=Code.SSH_UNAVAILABLE)
            self._open = False


def scan_keys(connection: Connection) -> list[str]:
    """Return the public keys that a host presents, as `TYPE BASE64`. They prove nothing without a fingerprint.

    Raises GitopsError `host_unreachable`. A host behind another one cannot be asked.
    """
    place = f"host.{connection.name}"
    if connection.transport is Transport.LOCAL or connection.jump is not None:
        detail = "only a host that is reached directly over ssh can be asked for its keys"
        raise GitopsError(Code.HOST_UNREACHABLE, detail, path=place, fix="")
    seconds = str(ssh_config.CONNECT_S)
    words = (
        "ssh-keyscan",
        "-T",
        seconds,
        "-p",
        str(connection.port),
        "-t",
        "ed25519,ecdsa,rsa",
        "--",
        connection.address,
    )
    done = run_program(
        words,
        env=child_environment(os.environ, as_user=False),
        timeout_s=3 * ssh_config.CONNECT_S,
        failed=Code.SSH_UNAVAILABLE,
    )
    lines = [line.split() for line in done.stdout.decode("ascii", "replace").splitlines() if not line.startswith("#")]
    keys = [" ".join(words[1:3]) for words in lines if len(words) >= 3]  # noqa: PLR2004 - address, type, key
    if not keys:
        detail = f"{connection.address} port {connection.port} presents no key"
        raise RemoteError(Code.HOST_UNREACHABLE, detail, path=place, retryable=True)
    return keys


def _refused(done: Output, host: str) -> RemoteError:
    """Return the error for a connection that wasn't established, by the message of ssh."""
    text = done.stderr.strip() or "no answer"
    if "ost key verification failed" in text or "HOST IDENTIFICATION HAS CHANGED" in text:
        code, retryable = Code.HOST_KEY_MISMATCH, False
        text = "the host has another key than those in hosts/known_hosts"
    elif "Permission denied" in text:
        code, retryable = Code.HOST_LOGIN_REFUSED, False
        text = f"the host refused the login: {text}"
    else:
        code, retryable = Code.HOST_UNREACHABLE, True
        text = f"no connection to the host: {text}"
    return RemoteError(code, text, path=f"host.{host}", retryable=retryable)


def _converse(argv: Sequence[str], environment: Mapping[str, str], script: Script, host: str) -> Mapping[str, bytes]:
    nonce = secrets.token_hex(16)
    done = run_program(
        argv,
        env=environment,
        stdin=script.stdin(nonce),
        timeout_s=script.timeout_s + _GRACE_S,
        max_output=MAX_ANSWER,
        failed=Code.SSH_UNAVAILABLE,
        too_large=Code.HOST_OUTPUT_TOO_LARGE,
    )
    if not has_begun(done.stdout, nonce) and (reason := _not_become(done)) is not None:
        detail = f"the host did not let the user become another one: {reason}"
        raise RemoteError(Code.HOST_BECOME_FAILED, detail, path=f"host.{host}")
    try:
        return read_sections(done.stdout, nonce, host)
    except RemoteError:
        if done.status == _TIMED_OUT:
            detail = f"the host ended a script after {script.timeout_s} seconds"
            raise RemoteError(Code.HOST_TIMED_OUT, detail, path=f"host.{host}", retryable=True) from None
        raise connection_lost(host) from None


def _not_become(done: Output) -> str | None:
    """Return what sudo says about a session that it didn't start, None if it isn't the reason."""
    lines = [line for line in done.stderr.splitlines() if "sudo:" in line]
    return lines[0].strip() if lines else None
