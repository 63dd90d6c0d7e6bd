"""The worker's half of the isolation: it limits its own process, then carries out jobs until its input ends.

A message is a length of four bytes, big-endian, and a JSON document. The first message has the limits and the program;
each later one is a job and gets one answer. The answers have a separate file descriptor, so nothing that is printed can
be taken for an answer.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import IO, Any

LENGTH_BYTES = 4
MIB = 1024 * 1024
# Source: prctl(2), https://man7.org/linux/man-pages/man2/prctl.2.html
_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38
_PROCESSES = 256
"""Processes and threads that the user may have in addition to those that exist when a worker starts."""

Answering = Callable[[dict[str, Any]], dict[str, Any]]
"""Carries out a job. An exception ends the worker, and the job fails as DIED."""


def main() -> None:
    """Serve the parent: read jobs from standard input, and write answers to the original standard output."""
    jobs, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What a library prints must not get between the answers.
    os.dup2(2, 1)
    start = read_message(jobs)
    if start is None:
        return
    folder = Path.cwd()
    _give_up_rights(start["limits"])
    module, _, name = start["program"].partition(":")
    answer: Answering = getattr(import_module(module), name)(folder)
    if sys.platform == "linux":
        # The memory of the program itself and its libraries is not charged to the jobs.
        _limit(resource.RLIMIT_DATA, _data_bytes() + start["limits"]["memory_mib"] * MIB)
    write_message(answers, {"ready": True})
    while (job := read_message(jobs)) is not None:
        _renew_cpu_time(start["limits"]["cpu_s"])
        write_message(answers, answer(job))


def read_message(stream: IO[bytes]) -> dict[str, Any] | None:
    """Return the next message of the parent; None at the end of the input."""
    length = stream.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    found: dict[str, Any] = json.loads(stream.read(int.from_bytes(length)))
    return found


def write_message(stream: IO[bytes], form: dict[str, Any]) -> None:
    """Write one message."""
    data = json.dumps(form, ensure_ascii=False, allow_nan=False).encode()
    stream.write(len(data).to_bytes(LENGTH_BYTES) + data)
    stream.flush()


def _give_up_rights(limits: dict[str, int]) -> None:
    """Give up new privileges, end with the parent, and set the limits that hold from the start. Raises OSError.

    Systems other than Linux have only the limits of POSIX. People write tests there, but no bot runs there.
    """
    os.umask(0o077)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, limits["file_mib"] * MIB)
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_PDEATHSIG, signal.SIGKILL)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl {option}: {os.strerror(number)}")
    _limit(resource.RLIMIT_NPROC, _tasks_of_user() + _PROCESSES)


def _limit(which: int, value: int) -> None:
    """Lower a limit, for good. A stricter limit stays."""
    hard = resource.getrlimit(which)[1]
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (lowest, lowest))


def _renew_cpu_time(seconds: int) -> None:
    """Let the next job use this much processor time in addition to what was used so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _data_bytes() -> int:
    """Return the size of this process's private writable memory in bytes, as RLIMIT_DATA counts it."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return int(lines["VmData"].split()[0]) * 1024


def _tasks_of_user() -> int:
    """Count the user's processes and threads, because RLIMIT_NPROC counts them all."""
    user, count = os.getuid(), 0
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                if each.stat().st_uid == user:
                    count += sum(1 for _ in (each / "task").iterdir())
            except OSError:
                continue  # it has ended, or belongs to somebody else
    return count
