"""A small HTTP service on loopback whose answers the test writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self


class Request(NamedTuple):
    """What came in; the body as JSON, None without one."""

    path: str
    headers: Mapping[str, str]
    body: Any
    method: str = "POST"


class Reply(NamedTuple):
    """What goes out; None as a body drops the connection. With `trickle` the body goes out byte by byte."""

    status: int = 200
    body: bytes | None = b"{}"
    headers: tuple[tuple[str, str], ...] = ()
    trickle: bool = False


@dataclass
class HttpService:
    """Answers each request with what `answer` makes of it; `requests` holds all of them. Use as a context manager."""

    answer: Callable[[Request], Reply]
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                request = Request(self.path, dict(self.headers), json.loads(data) if data else None, self.command)
                service.requests.append(request)
                reply = service.answer(request)
                if reply.body is None:
                    self.close_connection = True
                    return
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                step = 1 if reply.trickle else max(1, len(reply.body))
                for start in range(0, len(reply.body), step):
                    try:
                        self.wfile.write(reply.body[start : start + step])
                    except OSError:
                        # Whoever asked has had enough.
                        self.close_connection = True
                        return

            do_GET = do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names that the library calls

            def log_message(self, *args: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def base(self) -> str:
        """The address of the service."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"


def as_json(form: Any) -> Reply:
    """An answer with status 200."""
    return Reply(200, json.dumps(form).encode())
