"""`gitops bot serve` as a process of its own, with its output to wait on."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from tests.support.paused import Pause
from tests.support.serving import Log

_LONGEST_S = 60


@dataclass
class ServeProcess:
    """A process; use as a context manager. With `point` it kills itself at this fault point, or waits there with `pause`."""

    arguments: Sequence[str]
    environ: Mapping[str, str]
    point: str = ""
    pause: Pause | None = None
    log: Log = field(default_factory=Log)

    def __enter__(self) -> Self:
        how = ("tests.fault.serve_child", self.point) if self.point else ("gitops", "bot", "serve")
        if self.pause is not None:
            how = ("tests.support.paused", *self.pause.arguments(self.point), "bot", "serve")
        self.process = subprocess.Popen(
            [sys.executable, "-m", *how, *self.arguments],
            env=dict(self.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.log.write(line.rstrip("\n"))

    def port(self) -> int:
        """Where it listens, once it does."""
        line = self.log.until("listening on ")[0]
        return int(line.partition("listening on ")[2].partition(" ")[0].rpartition(":")[2])

    def post(self, headers: Mapping[str, str], body: bytes) -> int | None:
        """The status of the answer to a webhook, None if there was none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=_LONGEST_S)
        try:
            forge = self.arguments[self.arguments.index("--forge") + 1]
            connection.request("POST", f"/hooks/{forge}", body, dict(headers))
            return connection.getresponse().status
        except (http.client.HTTPException, OSError):
            return None
        finally:
            connection.close()

    def ask(self, method: str, path: str, token: str, form: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        """What a program with a token gets: the status, and the document."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=_LONGEST_S)
        try:
            body = b"" if form is None else json.dumps(form).encode()
            connection.request(method, f"/v1/clusters/{path}", body, {"authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    @contextmanager
    def followed(self, path: str, token: str) -> Iterator[Iterator[Any]]:
        """The items of a stream as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port(), timeout=_LONGEST_S)
        try:
            connection.request("GET", f"/v1/clusters/{path}", headers={"authorization": f"Bearer {token}"})
            yield map(json.loads, connection.getresponse())
        finally:
            connection.close()

    def ended(self) -> int:
        """Wait for its end by itself; its exit status."""
        return self.process.wait(_LONGEST_S)

    def stop(self) -> int:
        """Ask it to stop, and wait."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()
