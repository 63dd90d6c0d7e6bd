"""`gitops` that stops at a fault point until a test lets it go on: `python -m tests.support.paused FOLDER POINT ARGUMENTS…`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gitops.cli.main import entry
from gitops.core.faults import NoFaults


class Pause:
    """Two pipes between a test and a program that waits; reading and writing them waits for the other side."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made."""
        self.folder = folder
        folder.mkdir()
        for name in ("ready", "go"):
            os.mkfifo(folder / name)

    def arguments(self, point: str) -> tuple[str, str]:
        """What this module is started with, in front of the arguments of `gitops`."""
        return str(self.folder), point

    def reached(self) -> int:
        """Wait until the program is at the point; its process."""
        return int((self.folder / "ready").read_text())

    def go_on(self) -> None:
        """Let it go on."""
        (self.folder / "go").write_text("")


@dataclass
class PausedRun:
    """`gitops` at a point where it waits; `pid` is the program itself, which the process may only stand for."""

    process: subprocess.Popen[str]
    pause: Pause
    pid: int

    @classmethod
    def start(
        cls,
        python: Sequence[str],
        folder: Path,
        point: str,
        *arguments: str,
        at: Path | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> PausedRun:
        """Returns when the program is at the point; it is started in the folder `at`."""
        pause = Pause(folder)
        command = [*python, "-m", "tests.support.paused", *pause.arguments(point), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, **pipes, text=True, cwd=at, env=environ)
        return cls(process, pause, pause.reached())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it."""
        os.kill(self.pid, number)

    def asked(self) -> str:
        """The line that says that the run was asked to stop."""
        assert self.process.stderr is not None
        return next(line for line in self.process.stderr if "interrupted" in line)

    def ended(self) -> tuple[int, str]:
        """The exit code, and what it printed."""
        out, _ = self.process.communicate()
        return self.process.returncode, out


def main() -> None:
    """Wait when the point is reached for the first time."""
    folder, point, *arguments = sys.argv[1:]
    left = [point]

    def reach(_: NoFaults, reached: str) -> None:
        if reached in left:
            left.remove(reached)
            Path(folder, "ready").write_text(str(os.getpid()))
            Path(folder, "go").read_text()

    NoFaults.reach = reach
    # A shell starts what runs in its background with this one ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["gitops", *arguments]
    entry()


if __name__ == "__main__":
    main()
