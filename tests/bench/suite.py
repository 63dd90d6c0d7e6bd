"""The tests themselves: how long `make test` takes, by folder, and which tests are the slowest."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator

from tests.bench.measure import ROOT, Effort, Figure

_GOAL_S = 300.0
_SLOWEST = 10
_QUICK = ("tests/unit/core", "tests/unit/core/documents")
_ROW = re.compile(r"^([0-9.]+)s (?:call|setup|teardown) +(\S+)", re.MULTILINE)
_S = 1000.0


def figures(effort: Effort) -> Iterator[Figure]:
    """One run with all cores; times of folders and tests are the sum over its workers."""
    paths = _QUICK if effort.quick else ()
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "auto",
        "-m",
        "not slow",
        "--durations=0",
        "--durations-min=0.005",
    ]
    start = time.monotonic()
    done = subprocess.run([*command, *paths], cwd=ROOT, capture_output=True, text=True, check=False)
    elapsed = time.monotonic() - start
    if done.returncode:
        raise RuntimeError(f"the tests fail: {done.stdout[-2000:]}")
    yield Figure(
        "make test" if not paths else "tests of two rooms", "ms", (elapsed * _S,), None if paths else _GOAL_S * _S
    )
    folders: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for seconds, name in _ROW.findall(done.stdout):
        folders["/".join(name.partition("::")[0].split("/")[:2])] += float(seconds) * _S
        tests[name] += float(seconds) * _S
    for name, spent in folders.most_common():
        yield Figure(f"tests: {name}", "ms", (spent,))
    for name, spent in tests.most_common(_SLOWEST):
        yield Figure(f"slowest: {name}", "ms", (spent,))
