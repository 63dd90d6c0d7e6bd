"""`git http-backend` behind lighttpd, with people and passwords in an htpasswd file: hooks get the name in `REMOTE_USER`."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

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
