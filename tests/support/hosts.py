"""Real hosts of git repositories on loopback: OpenSSH, gitolite behind it, `git http-backend` behind lighttpd, and a shared path.

    with Hosts(folder) as hosts:
        host = hosts.publish(HostKind.SSH, bare_repository, {"alice": private_key, "bob": private_key})
        host.url("alice"), host.environment("alice")

A repository is published where it is; people are known by name and by key, over HTTP by name and password (their name). Each
server is the program of the Debian package, with its own configuration in `folder`; a test whose package is missing is skipped.
OpenSSH needs no daemon: this process listens on a free port of loopback and starts `sshd -i` for each connection, as inetd does.
The server has the rights of this process, whoever connects. lighttpd inherits a socket that listens already, so nothing waits for
it to start.

Source: sshd(8) `-i`, sshd_config(5), git-http-backend(1), https://gitolite.com/gitolite/
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import json
import os
import shlex
import shutil
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Self

import pytest

_CONFIG = """\
server.modules = ("mod_auth", "mod_authn_file", "mod_alias", "mod_setenv", "mod_cgi")
server.document-root = "{folder}"
server.bind = "/dev/stdin"
server.port = 1
server.errorlog = "{folder}/log"
alias.url = ("/git" => "{backend}")
cgi.assign = ("" => "")
setenv.set-environment = ({environ})
auth.backend = "htpasswd"
auth.backend.htpasswd.userfile = "{folder}/users"
auth.require = ("" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
"""


@dataclass
class WebServer:
    """One lighttpd. It reads the file of users at each request."""

    folder: Path
    address: str
    _process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, folder: Path, environ: Mapping[str, str]) -> WebServer:
        """Start it with a socket that listens already; hooks get `environ`."""
        (folder / "repositories").mkdir(parents=True)
        (folder / "users").touch()
        programs = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
        # A name in the URL is enough: http-backend would serve only marked repositories otherwise.
        values = {**environ, "GIT_PROJECT_ROOT": str(folder / "repositories"), "GIT_HTTP_EXPORT_ALL": "1"}
        text = ", ".join(f"{json.dumps(name)} => {json.dumps(value)}" for name, value in values.items())
        config = folder / "lighttpd.conf"
        config.write_text(_CONFIG.format(folder=folder, backend=f"{programs}/git-http-backend", environ=text))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(64)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/git"
            process = subprocess.Popen(["/usr/sbin/lighttpd", "-D", "-f", str(config)], stdin=listener)
        return cls(folder, address, process)

    def serve(self, name: str, repo: Path) -> str:
        """Serve a bare repository; returns its address, without a login."""
        (self.folder / "repositories" / name).symlink_to(repo)
        return f"{self.address}/{name}"

    def admit(self, people: Iterable[str]) -> None:
        """Let these people in, each with their name as password."""
        users = self.folder / "users"
        known = users.read_text()
        for person in people:
            if f"{person}:" not in known:
                digest = base64.b64encode(hashlib.sha1(person.encode(), usedforsecurity=False).digest()).decode()
                known += f"{person}:{{SHA}}{digest}\n"
        users.write_text(known)

    def stop(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait()


ROOT = Path(__file__).resolve().parents[2]
_SSHD = Path("/usr/sbin/sshd")
_GITOLITE = Path("/usr/share/gitolite3/gitolite-shell")
_PRIVILEGE_SEPARATION = Path("/run/sshd")


class HostKind(StrEnum):
    """How people reach a repository. Only the last two know a name of who pushes; `SSH_AUTH` knows their key."""

    FILE = "file"
    SSH = "ssh"
    SSH_AUTH = "ssh-auth"  # the same with `ExposeAuthInfo yes`
    GITOLITE = "gitolite"
    HTTP = "http"


@dataclass(frozen=True)
class Host:
    """A bare repository as people see it."""

    kind: HostKind
    repo: Path
    _address: str
    _environments: Mapping[str, Mapping[str, str]]

    def url(self, person: str) -> str:
        """The address for a person; over HTTP their login is in it."""
        return self._address.replace("//", f"//{person}:{person}@", 1) if self.kind is HostKind.HTTP else self._address

    def environment(self, person: str) -> Mapping[str, str]:
        """Variables that the programs of a person need to get there."""
        return self._environments.get(person, {})


class SshListener:
    """Starts a program for each connection to a free port of loopback, with the connection as its input and output."""

    def __init__(self, *program: str) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                subprocess.run(program, stdin=self.request, stdout=self.request, check=False)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Take no connection any more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Hosts:
    """The servers of one test process; each is configured when first asked for. Use as a context manager.

    `environ` is added to what hooks find in their environment.
    """

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _web: WebServer | None = None
    _listeners: dict[HostKind, SshListener] = field(default_factory=dict)

    def __enter__(self) -> Self:
        (self.folder / "home").mkdir(parents=True)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._web is not None:
            self._web.stop()
        for listener in self._listeners.values():
            listener.stop()

    def publish(self, kind: HostKind, repo: Path, keys: Mapping[str, Path], *, deletes: bool = True) -> Host:
        """Serve a bare repository to the people with these private keys.

        On gitolite, `deletes` False gives them `RW` in place of `RW+`: refs are created and moved forward, never deleted.
        """
        if kind is HostKind.FILE:
            return Host(kind, repo, repo.resolve().as_uri(), {})
        if kind is HostKind.HTTP:
            return Host(kind, repo, self._web_server(keys).serve(f"r{next(self._numbers)}.git", repo), {})
        command = self._sshd(kind)
        if kind is HostKind.GITOLITE:
            path = f"{'full' if deletes else 'kept'}/r{next(self._numbers)}"
            home = self.folder / "gitolite"
            (home / "repositories" / f"{path}.git").symlink_to(repo)
            (repo / "hooks").mkdir(exist_ok=True)
            (repo / "hooks" / "update").unlink(missing_ok=True)
            (repo / "hooks" / "update").symlink_to(home / ".gitolite" / "hooks" / "common" / "update")
        else:
            path = str(repo.resolve())
        environments = {}
        for person, key in keys.items():
            public = key.with_suffix(".pub").read_text().strip()
            forced = f'command="{_GITOLITE} {person}",' if kind is HostKind.GITOLITE else ""
            with (self.folder / f"{kind}.keys").open("a") as file:
                file.write(f"{forced}restrict {public}\n")
            environments[person] = {"GIT_SSH_COMMAND": shlex.join((*command, "-i", str(key)))}
        return Host(kind, repo, f"ssh://{getpass.getuser()}@host.example/{path.lstrip('/')}", environments)

    def hook_environment(self, home: Path | None = None) -> dict[str, str]:
        """What the operator of a server sets for its hooks."""
        kept = {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}
        fixed = {"HOME": str(home or self.folder / "home"), "PYTHONPATH": str(ROOT), "GIT_CONFIG_NOSYSTEM": "1"}
        return {**kept, **fixed, "PATH": os.environ["PATH"], **self.environ}

    def _sshd(self, kind: HostKind) -> tuple[str, ...]:
        """The ssh command that reaches the server of one kind."""
        _require(_SSHD, "openssh-server")
        home = self.folder / "home"
        if kind is HostKind.GITOLITE:
            home = self._gitolite()
        if os.geteuid() == 0:
            _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
        host_key, config = self.folder / "host_key", self.folder / f"{kind}.conf"
        if not host_key.exists():
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(host_key))
            public = host_key.with_suffix(".pub").read_text()
            (self.folder / "known_hosts").write_text(f"host.example {public}")
        if not config.exists():
            environment = " ".join(f"{name}={value}" for name, value in self.hook_environment(home).items())
            config.write_text(
                f"HostKey {host_key}\nAuthorizedKeysFile {self.folder}/{kind}.keys\nStrictModes no\nUsePAM no\n"
                "PidFile none\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
                f"PermitRootLogin prohibit-password\nAcceptEnv LANG LC_*\nSetEnv {environment}\n"
                f"ExposeAuthInfo {'yes' if kind is HostKind.SSH_AUTH else 'no'}\n"
            )
            self._listeners[kind] = SshListener(str(_SSHD), "-i", "-f", str(config), "-E", f"{self.folder}/sshd.log")
        where = ("HostName=127.0.0.1", f"Port={self._listeners[kind].port}", "HostKeyAlias=host.example")
        known = (f"UserKnownHostsFile={self.folder}/known_hosts", "GlobalKnownHostsFile=none", "CheckHostIP=no")
        # The default exchange of keys takes two thirds of a connection's time.
        others = ("IdentitiesOnly=yes", "IdentityAgent=none", "SendEnv=LANG LC_*", "KexAlgorithms=curve25519-sha256")
        return ("ssh", "-F", "none", *(part for option in (*where, *known, *others) for part in ("-o", option)))

    def _gitolite(self) -> Path:
        """The home of gitolite: whoever has a key may do everything below `full`, and not delete below `kept`."""
        _require(_GITOLITE, "gitolite3")
        home = self.folder / "gitolite"
        if not home.exists():
            home.mkdir()
            self.gitolite("setup", "-a", "admin")
            rules = "".join(f"repo {name}/[a-z0-9]+\n    C = @all\n    {may} = @all\n" for name, may in _RULES.items())
            (home / ".gitolite" / "conf" / "gitolite.conf").write_text(rules)
            self.gitolite("compile")
            for name in _RULES:
                (home / "repositories" / name).mkdir()
        return home

    def gitolite(self, *command: str) -> None:
        """Run gitolite as its operator."""
        environ = {"HOME": str(self.folder / "gitolite"), "PATH": os.environ["PATH"], "USER": getpass.getuser()}
        _run("gitolite", *command, environ=environ)

    def _web_server(self, people: Mapping[str, Path]) -> WebServer:
        if self._web is None:
            _require(Path("/usr/sbin/lighttpd"), "lighttpd")
            self._web = WebServer.start(self.folder / "web", self.hook_environment())
        self._web.admit(people)
        return self._web


_RULES = {"full": "RW+", "kept": "RW"}


def _require(program: Path, package: str) -> None:
    """Skip the test where a server is not installed."""
    if not program.exists() or shutil.which("ssh") is None:
        pytest.skip(f"needs the Debian packages {package} and openssh-client")


def _run(*command: str, environ: Mapping[str, str] | None = None) -> None:
    subprocess.run(command, env=environ, check=True, capture_output=True)
