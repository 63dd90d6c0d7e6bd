"""A real git server on loopback: `git http-backend` behind the standard library's HTTP server, with users and faults.

Pushes run the hooks of the served repositories and race as they do on a forge. `fault` may answer in place of git before
a request, or drop the reply after git has acted.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit


class Drop(Enum):
    """A fault after the fact: git has done its work, the client never hears of it."""

    REPLY = "reply"


class Intercepted(NamedTuple):
    """An answer that is not git's."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


Fault = Callable[[str, str], "int | Drop | None"]
"""Method and path to an HTTP status to answer with, a dropped reply, or None."""


def _no_fault(method: str, path: str) -> int | Drop | None:
    return None


@dataclass
class GitServer:
    """Serves every bare repository below `root`; use as a context manager.

    `users` maps names to passwords; without users everybody may do everything. `log` holds `METHOD path` of each request.
    """

    root: Path
    users: dict[str, str] = field(default_factory=dict)
    fault: Fault = _no_fault
    log: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def url(self, name: str, user: str = "") -> str:
        """Address of repository `name`; with `user` the credentials are in it."""
        login = f"{user}:{quote(self.users[user], safe='')}@" if user else ""
        return f"http://{login}127.0.0.1:{self._http.server_address[1]}/{name}"

    def intercept(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Intercepted | Drop | None:
        """For servers that do more than git: the answer to what is not git's, or None."""
        return None

    def answer(self, environ: dict[str, str], body: bytes) -> bytes:
        """What `git http-backend` says, as CGI output."""
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "REMOTE_ADDR": "127.0.0.1",
            **environ,
        }
        return subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True, check=True).stdout

    def user_of(self, authorization: str) -> str | None:
        """The user whom Basic credentials prove, `anonymous` when no users are set, or None."""
        if not self.users:
            return "anonymous"
        pairs = {base64.b64encode(f"{u}:{p}".encode()).decode(): u for u, p in self.users.items()}
        return pairs.get(authorization.removeprefix("Basic "))


def _handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    """The request handler of one server."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PATCH(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Quiet: the log is `GitServer.log`."""

        def _serve(self) -> None:
            body = self._body()
            url = urlsplit(self.path)
            server.log.append(f"{self.command} {self.path}")
            other = server.intercept(self.command, self.path, self.headers, body)
            if isinstance(other, Intercepted):
                self._reply(other.status, list(other.headers), other.body)
                return
            if other is Drop.REPLY:
                self.close_connection = True
                return
            user = server.user_of(self.headers.get("Authorization", ""))
            if user is None:
                self._reply(401, [("WWW-Authenticate", 'Basic realm="git"')], b"")
                return
            fault = server.fault(self.command, self.path)
            if isinstance(fault, int):
                self._reply(fault, [], b"")
                return
            environ = {
                "REQUEST_METHOD": self.command,
                "PATH_INFO": url.path,
                "QUERY_STRING": url.query,
                "GATEWAY_INTERFACE": "CGI/1.1",
                "REMOTE_USER": user,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            }
            head, _, content = server.answer(environ, body).partition(b"\r\n\r\n")
            if fault is Drop.REPLY:
                self.close_connection = True
                return
            headers = [tuple(line.split(": ", 1)) for line in head.decode().split("\r\n")]
            status = next((int(value[:3]) for name, value in headers if name == "Status"), 200)
            self._reply(status, [(n, v) for n, v in headers if n != "Status"], content)

        def _reply(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _body(self) -> bytes:
            """The request's body; git sends large ones in chunks."""
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", "0")))
            chunks = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(chunks)

    return Handler
