"""`gitops serve` as a program: started on a free port, asked over HTTP, and stopped by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.pages import ROOT
from tests.support.prefork import PROGRAM, run, start

_OWN = ("OMNIGRAPH_", "GITOPS_")


def environment(**more: str) -> dict[str, str]:
    """That of a program, without settings of who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
    return {**kept, "PYTHONPATH": str(ROOT), "GITOPS_CACHE": "off", **more}


def serve(*arguments: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `gitops serve` to its end."""
    start()
    return run([*PROGRAM, "serve", *arguments], cwd=cwd, env=environment(**environ), timeout_s=60)


@dataclass
class Served:
    """A server that listens: its process, and a client of its address."""

    process: subprocess.Popen[str]
    client: httpx.Client

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def await_line(self, text: str) -> None:
        """Read its log up to a line with this text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if text in line:
                return
        raise AssertionError(f"the log ended without {text!r}")

    def log(self) -> str:
        """What it wrote to standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read()

    @property
    def workers(self) -> list[int]:
        """The processes below it."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text("utf-8")
        return [int(number) for number in children.split()]


@contextmanager
def serving(
    *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] | None = None, program: str = "gitops"
) -> Iterator[Served]:
    """Serve on a free port of loopback until the end of the block; `program` is a module that stands for `gitops`."""
    process = subprocess.Popen(
        [sys.executable, "-m", program, "serve", "--bind", "127.0.0.1:0", *arguments],
        cwd=cwd,
        env=environment(**environ or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("OMNIGRAPH_LISTEN_ADDR="):
            assert process.stderr is not None
            raise AssertionError(line + process.stderr.read())
        with httpx.Client(base_url=f"http://{line.strip().partition('=')[2]}", timeout=30) as client:
            yield Served(process, client)
    finally:
        process.kill()
        process.communicate()
