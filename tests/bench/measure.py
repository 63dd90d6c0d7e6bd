"""What a figure is, and the two ways to get one: time a call in this process, or start a fresh process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeVar

_T = TypeVar("_T")
ROOT = Path(__file__).parents[2]
# What the installed command runs.
GITOPS = (sys.executable, "-c", "import sys; from gitops.cli.main import entry; sys.exit(entry())")
_LAUNCHER = Path(__file__).with_name("launch.py")
_LAST_WORDS = 2000
NS_PER_MS = 1e6
_US_PER_MS = 1e3
_KIB_PER_MIB = 1024


class LeftOutError(Exception):
    """A suite, or the rest of it, cannot be measured here; the text says why."""


class BeyondBoundError(Exception):
    """A suite was measured, and something is not as the engine promises; the text says what. The benchmark fails."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. `goal` is an upper bound in `unit`, None where nothing was promised."""

    name: str
    unit: str
    samples: tuple[float, ...]
    goal: float | None = None

    @property
    def median(self) -> float:
        """The middle sample."""
        return median(self.samples)

    def to_json(self, group: str) -> dict[str, object]:
        """As in the document."""
        return {
            "group": group,
            "name": self.name,
            "unit": self.unit,
            "median": round(self.median, 3),
            "min": round(min(self.samples), 3),
            "max": round(max(self.samples), 3),
            "samples": len(self.samples),
            "goal": self.goal,
            "within_goal": None if self.goal is None else self.median <= self.goal,
            # The figure is written down as soon as it is there.
            "load_1min": round(os.getloadavg()[0], 1),
        }


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to do: fresh processes and in-process samples per figure; `scratch` is a folder of this run alone."""

    quick: bool
    scratch: Path

    @property
    def processes(self) -> int:
        """Fresh processes per figure."""
        return 2 if self.quick else 9

    @property
    def samples(self) -> int:
        """Calls per figure in this process."""
        return 3 if self.quick else 15

    @property
    def large(self) -> bool:
        """Whether the sizes are those that take hours, as `GITOPS_BENCH_LARGE=1` asks."""
        return bool(os.environ.get("GITOPS_BENCH_LARGE"))

    def folder(self, name: str) -> Path:
        """A new folder below `scratch`."""
        path = self.scratch / name
        path.mkdir(parents=True)
        return path

    def environment(self) -> dict[str, str]:
        """The whole environment of a measured process: compiled modules are kept, as they are where it is installed."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.scratch),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": str(self.scratch / "compiled"),
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process took: wall time and CPU time of it and its children in ms, largest resident memory in MiB."""

    wall_ms: float
    cpu_ms: float
    peak_mib: float


@dataclass(frozen=True, slots=True)
class Program:
    """A process to measure; any other exit code than `code` ends the benchmark: a wrong run has no time."""

    argv: Sequence[str]
    cwd: Path
    environ: Mapping[str, str]
    code: int = 0
    timeout_s: float = 300.0

    def run(self) -> Usage:
        """Start it, wait for it, and say what it took. Raises RuntimeError with its last words, or when time is up."""
        argv = (sys.executable, "-I", "-S", str(_LAUNCHER), *self.argv)
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                argv,
                cwd=self.cwd,
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            try:
                said, _ = process.communicate(timeout=self.timeout_s)
            except subprocess.TimeoutExpired as late:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise RuntimeError(f"{self.argv} took more than {self.timeout_s} s") from late
            code, wall, cpu, peak = map(int, said.split() or (-1, 0, 0, 0))
            if code != self.code:
                errors.seek(0)
                words = errors.read()[-_LAST_WORDS:].decode("utf-8", "replace")
                raise RuntimeError(f"{self.argv} ended with {code}: {words}")
        return Usage(wall / NS_PER_MS, cpu / _US_PER_MS, peak / _KIB_PER_MIB)


@dataclass(frozen=True, slots=True)
class Goals:
    """Promises about a whole process."""

    wall_ms: float | None = None
    cpu_ms: float | None = None
    peak_mib: float | None = None


def process_figures(name: str, usages: Sequence[Usage], goals: Goals | None = None) -> Iterator[Figure]:
    """The three figures of a program that ran once or several times."""
    goals = goals or Goals()
    yield Figure(name, "ms", tuple(u.wall_ms for u in usages), goals.wall_ms)
    yield Figure(f"{name}, CPU", "ms", tuple(u.cpu_ms for u in usages), goals.cpu_ms)
    yield Figure(f"{name}, peak memory", "MiB", tuple(u.peak_mib for u in usages), goals.peak_mib)


def clocked(call: Callable[[], _T]) -> tuple[_T, float]:
    """What one call returns, and the milliseconds that it takes."""
    start = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - start) / NS_PER_MS


def repeated(count: int, call: Callable[[], object], *, inner: int = 1) -> tuple[float, ...]:
    """Milliseconds per call: `count` samples after one call to warm up, each the mean of `inner` calls."""
    call()

    def batch() -> None:
        for _ in range(inner):
            call()

    return tuple(clocked(batch)[1] / inner for _ in range(count))
