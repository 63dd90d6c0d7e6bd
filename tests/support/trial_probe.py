"""A program for isolated workers that does what a test asks it for, also what no good program does."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def open_probe(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A worker that knows how often it was asked and what it was set up with."""
    state: dict[str, Any] = {"asked": 0, "setup": None}

    def answer(job: dict[str, Any]) -> dict[str, Any]:
        state["asked"] += 1
        (what, given), *_ = job.items()
        return _ANSWERS[what](given, state, folder)

    return answer


def open_broken(_folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A worker that does not start."""
    raise RuntimeError("broken")


def _setup(given: Any, state: dict[str, Any], _: Path) -> dict[str, Any]:
    state["setup"] = given
    return {}


def _surroundings(_given: Any, _state: dict[str, Any], folder: Path) -> dict[str, Any]:
    limits = {
        name: resource.getrlimit(getattr(resource, name)) for name in ("RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_CORE")
    }
    return {
        "environment": dict(os.environ),
        "files": [each.name for each in folder.iterdir()],
        "there": folder == Path.cwd(),
        "group": os.getpgid(0) == os.getpid(),
        "no_new_privs": ctypes.CDLL(None).prctl(39, 0, 0, 0, 0),
        "limits": limits,
        "open": sorted(int(each.name) for each in Path("/proc/self/fd").iterdir()),
    }


def _say_raw(given: Any, _state: dict[str, Any], _: Path) -> dict[str, Any]:
    """Write bytes as the answer, to every pipe, as a taken-over worker could."""
    for each in Path("/proc/self/fd").iterdir():
        try:
            if int(each.name) > 2 and each.readlink().name.startswith("pipe:"):
                os.write(int(each.name), len(given).to_bytes(4) + given.encode())
        except OSError:
            continue
    time.sleep(60)
    return {}


def _start_child(_given: Any, _state: dict[str, Any], _: Path) -> dict[str, Any]:
    child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)"])
    return {"child": child.pid}


def _write(given: Any, _state: dict[str, Any], folder: Path) -> dict[str, Any]:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        (folder / "large").write_bytes(bytes(given))
    except OSError as error:
        return {"refused": error.errno}
    return {"written": given}


def _take_memory(given: Any, _state: dict[str, Any], _: Path) -> dict[str, Any]:
    try:
        return {"taken": len(bytes(given))}
    except MemoryError:
        return {"refused": given}


_ANSWERS: dict[str, Callable[[Any, dict[str, Any], Path], dict[str, Any]]] = {
    "setup": _setup,
    "state": lambda _, state, __: {"asked": state["asked"], "setup": state["setup"], "pid": os.getpid()},
    "echo": lambda given, _, __: {"echo": given},
    "print": lambda given, _, __: {"printed": print(given)},  # noqa: T201
    "die": lambda given, _, __: {"never": os.kill(os.getpid(), given)},
    "exit": lambda given, _, __: sys.exit(given),
    "sleep": lambda given, _, __: {"never": time.sleep(given)},
    "raw": _say_raw,
    "surroundings": _surroundings,
    "child": _start_child,
    "write": _write,
    "memory": _take_memory,
}
