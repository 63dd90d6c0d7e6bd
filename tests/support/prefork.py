"""Programs of the tests as processes that are forked instead of started: the same programs, without a second of imports.

An interpreter that has imported this project waits on a socket. For each request it forks; the child takes over the
caller's descriptors, environment and working directory and runs the module or the code. Arguments, streams, environment,
files and exit codes are those of a process of its own; only the time for imports is missing. What is about starting up,
about imports or about being killed from outside starts a real interpreter: `sys.executable`.

    PYTHON    the argument vector that stands for the interpreter: `-m MODULE ...` or `-c CODE ...` follow
    PROGRAM   the same for `gitops`, also in git hooks
    start()   start the server of this test process, once; before that neither of them is there
"""

from __future__ import annotations

import atexit
import os
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]
# A process that was killed leaves its folder behind, and a later one may have the same number.
_FOLDER = Path(tempfile.gettempdir()) / f"gitops-prefork-{os.getuid()}-{os.getpid()}-{secrets.token_hex(4)}"
_SOCKET = _FOLDER / "socket"
PYTHON = (str(_FOLDER / "python"),)
_CLIENT = (sys.executable, "-I", "-S", str(Path(__file__).with_name("prefork_client.py")), str(_SOCKET))
PROGRAM = (*PYTHON, "-m", "gitops")


@contextmanager
def started_programs() -> Iterator[None]:
    """While the block runs, every one of these programs is a real interpreter that is started: for journeys."""
    mark = Path(f"{PYTHON[0]}.started")
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


_CLOSED = """
import runpy, sys
sys.stdin.close()
sys.stdin = None
runpy.run_module("gitops", run_name="__main__", alter_sys=True)
"""
"""What an interpreter makes of a descriptor that is closed."""


def run(
    command: Sequence[str],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: str = "",
    merged: bool = False,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` captures as text; with `merged`, both outputs together.

    A program of this module is asked for from here: the interpreter that would hand it on takes as long as many a command.
    """
    if command[0] != PYTHON[0] or Path(f"{PYTHON[0]}.started").exists():
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            input=stdin.encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            timeout=timeout_s,
            check=False,
        )
        texts = [(data or b"").decode("utf-8", "replace") for data in (done.stdout, done.stderr)]
        return subprocess.CompletedProcess(command, done.returncode, *texts)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode())
        given.seek(0)
        fds = [given.fileno(), output.fileno(), (output if merged else errors).fileno()]
        code = _asked("", cwd or Path.cwd(), command[1:], os.environ if env is None else env, fds, timeout_s)
        texts = [_text(file) for file in (output, errors)]
    return subprocess.CompletedProcess(command, code, *texts)


def run_as(
    account: int, arguments: Sequence[str], folder: Path, environ: Mapping[str, str], typed: str | None = ""
) -> tuple[int, str]:
    """Run `gitops ARGUMENTS` as the user with this number: the exit code, and both outputs together.

    Its input is a pipe with the text `typed`, or closed for None. Nothing is executed, so a user who may not read the interpreter
    can run the program, too.
    """
    program = ("-c", _CLOSED) if typed is None else ("-m", "gitops")
    with tempfile.TemporaryFile() as output, _pipe_with(typed or "") as given:
        fds = [given.fileno(), output.fileno(), output.fileno()]
        return _asked(str(account), folder, [*program, *arguments], environ, fds), _text(output)


def _asked(
    account: str,
    folder: Path | str,
    arguments: Sequence[str],
    environ: Mapping[str, str],
    fds: Sequence[int],
    timeout_s: float | None = None,
) -> int:
    """The exit code of a run on the server, with these descriptors as its input and outputs."""
    words = [account, str(folder), str(len(arguments)), *arguments, *(f"{k}={v}" for k, v in environ.items())]
    data = "\0".join(words).encode("utf-8", "surrogateescape")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        connection.connect(str(_SOCKET))
        socket.send_fds(connection, [len(data).to_bytes(4, "big")], fds)
        connection.sendall(data)
        return int.from_bytes(connection.recv(4), "big", signed=True)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


def _pipe_with(text: str) -> BinaryIO:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as end:
        end.write(text.encode())
    return os.fdopen(read, "rb")


@cache
def start() -> None:
    """Start the server of this process; it ends when this process ends."""
    _FOLDER.mkdir(mode=0o700)
    script = Path(PYTHON[0])
    started = f'[ -e "$0.started" ] && exec {shlex.quote(sys.executable)} "$@"'
    script.write_text(f'#!/bin/sh\n{started}\nexec {shlex.join(_CLIENT)} "$@"\n')
    script.chmod(0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(_SOCKET))
    listener.listen(64)
    alive, ours = os.pipe()
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("GIT", "XDG", "AWS"))}
    with listener:
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.support.prefork_server", str(listener.fileno()), str(alive), *PYTHON],
            cwd=ROOT,
            env={**environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
            pass_fds=(listener.fileno(), alive),
        )
    os.close(alive)

    def stop() -> None:
        os.close(ours)
        server.wait()
        shutil.rmtree(_FOLDER, ignore_errors=True)

    atexit.register(stop)
