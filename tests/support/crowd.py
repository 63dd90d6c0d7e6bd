"""Processes that all begin at once, and of which none outlives its test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable

from tests.support.pages import ROOT

__all__ = ["run_together"]


def run_together(code: str, arguments: Iterable[tuple[str, ...]], *, timeout: float) -> list[str]:
    """Start Python `code` once with each of the `arguments`, and return what the processes said after they were released.

    Each prints `ready`, and waits for a line. All of them have to end with code 0. Raises subprocess.TimeoutExpired where that
    takes one longer than `timeout` seconds. At the end, also after a failure, nothing runs any more that one of them started.
    """
    processes: list[subprocess.Popen[str]] = []
    try:
        for each in arguments:
            command = [sys.executable, "-c", code, *each]
            ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            processes.append(subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **ends))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        said = [process.communicate(timeout=timeout)[0] for process in processes]
        assert {process.returncode for process in processes} == {0}
        return said
    finally:
        for process in processes:
            # The id of a group is not used again while a process is in it, nor before its leader was waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
