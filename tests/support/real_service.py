"""Real object stores on loopback, where they are installed: programs of others, each with one bucket."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

_KEY, _SECRET = "tester", "test-secret-4711"
_STARTS_S = 20.0


@dataclass(frozen=True, slots=True)
class RealService:
    """A program that serves buckets. Its arguments hold `{port}`, `{folder}` and `{bucket}`."""

    name: str
    package: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return self.name

    @property
    def program(self) -> str | None:
        """Where it is installed; None if it is not."""
        return shutil.which(self.name)

    @property
    def missing(self) -> str:
        """Why a test of it is skipped."""
        return f"{self.name} is not on the PATH: go install {self.package}"

    @contextmanager
    def serving(self, folder: Path, bucket: str) -> Iterator[Mapping[str, str]]:
        """Serve one bucket, with its data below the folder; gives the environment that reaches it."""
        (folder / bucket).mkdir(parents=True)
        with closing(socket.socket()) as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        arguments = [each.format(port=port, folder=folder, bucket=bucket) for each in self.arguments]
        process = subprocess.Popen(
            [str(self.program), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            _wait(self.name, process, port)
            yield {
                "AWS_ACCESS_KEY_ID": _KEY,
                "AWS_SECRET_ACCESS_KEY": _SECRET,
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ALLOW_HTTP": "true",
            }
        finally:
            # Asked to end, some wait for connections that are kept; their data is thrown away.
            process.kill()
            process.wait()


VERSITYGW = RealService(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw@latest",
    (
        *("--port", "127.0.0.1:{port}", "--access", _KEY, "--secret", _SECRET),
        *("--quiet", "--keep-alive", "posix", "{folder}"),
    ),
)
GOFAKES3 = RealService(
    "gofakes3",
    "github.com/johannesboyne/gofakes3/cmd/gofakes3@v1.2.0",
    ("-host", "127.0.0.1:{port}", "-backend", "memory", "-initialbucket", "{bucket}", "-quiet"),
)
REAL_SERVICES = (VERSITYGW, GOFAKES3)


def _wait(name: str, process: subprocess.Popen[bytes], port: int) -> None:
    """Until the service answers. Raises RuntimeError if it has ended, or does not answer in time."""
    step = 0.05
    for _ in range(int(_STARTS_S / step)):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=step).close()
        except OSError:
            try:
                process.wait(timeout=step)
            except subprocess.TimeoutExpired:
                continue
            break
        else:
            return
    raise RuntimeError(f"{name} does not start")
