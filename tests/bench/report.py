"""The document and the table."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gitops import __version__

SCHEMA_VERSION = 1
_PACKAGES = ("pygit2", "pylance", "pyarrow", "numpy", "pydantic", "pyyaml", "jinja2", "cryptography")
_GIB = 1 << 30


def machine() -> dict[str, Any]:
    """What the figures were measured on: sizes, load when the run began, and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / _GIB, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "git": _said("git", "--version").removeprefix("git version "),
        "ssh": _said("ssh", "-V").partition(",")[0],
        "gitops": __version__,
        "packages": {name: _package(name) for name in _PACKAGES},
    }


def document(
    machine_facts: Mapping[str, Any],
    figures: Sequence[Mapping[str, Any]],
    left_out: Sequence[Mapping[str, str]],
    mode: str,
) -> dict[str, Any]:
    """The JSON document.

    `figures`: group, name, unit, median, min, max, samples, goal (or null), within_goal (or null),
    load_1min (how busy the machine was when the figure was there). `left_out`: group and
    reason of what could not be measured.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "mode": mode,
        "machine": dict(machine_facts),
        "figures": list(figures),
        "left_out": list(left_out),
    }


def machine_line(facts: Mapping[str, Any]) -> str:
    """The machine in one line."""
    return (
        f"{facts['cores']} cores, {facts['memory_gib']} GiB, load {facts['load_1min']}, {facts['system']}, "
        f"Python {facts['python']}, git {facts['git']}, gitops {facts['gitops']}"
    )


def table_lines(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The rows of one group, its name first."""
    if not figures:
        return
    yield f"{figures[0]['group']:<66} {'median':>10} {'min':>10} {'max':>10}  {'unit':<4} {'load':>5} goal"
    for figure in figures:
        numbers = " ".join(f"{figure[key]:>10.2f}" for key in ("median", "min", "max"))
        goal = "" if figure["goal"] is None else f"{figure['goal']:g} {'met' if figure['within_goal'] else 'MISSED'}"
        yield f"  {figure['name']:<64} {numbers}  {figure['unit']:<4} {figure['load_1min']:>5} {goal}".rstrip()


def _package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _said(*argv: str) -> str:
    """The first line that a program says about itself, empty when it is not there."""
    try:
        done = subprocess.run(argv, capture_output=True, check=False, text=True, timeout=10)
    except OSError:
        return ""
    return (done.stdout or done.stderr).strip().partition("\n")[0]
