"""A real object store on loopback, where one is installed: versitygw over a folder."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

PROGRAM = shutil.which("versitygw")
MISSING = "versitygw is not on the PATH: go install github.com/versity/versitygw/cmd/versitygw@latest"
_STARTS_S = 20.0


@contextmanager
def versitygw(folder: Path, bucket: str) -> Iterator[Mapping[str, str]]:
    """Serve the folder, with one bucket; gives the environment that reaches it."""
    (folder / bucket).mkdir(parents=True)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {
        "AWS_ACCESS_KEY_ID": "tester",
        "AWS_SECRET_ACCESS_KEY": "test-secret-4711",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }
    login = ("--access", environ["AWS_ACCESS_KEY_ID"], "--secret", environ["AWS_SECRET_ACCESS_KEY"])
    command = (str(PROGRAM), "--port", f"127.0.0.1:{port}", *login, "--quiet", "--keep-alive", "posix", str(folder))
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, port)
        yield environ
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
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
    raise RuntimeError("versitygw does not start")
