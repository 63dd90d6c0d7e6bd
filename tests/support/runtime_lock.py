"""The parts of `requirements.lock` that are installed without the test tools, each with its hashes.

`python -m tests.support.runtime_lock` writes them: the program (`scaffold/requirements.txt`, for jobs, containers, `make demo`),
the extra packages of replica strategies and servers, and the build tools (for `make wheel` and `make demo`). The lock lists below
each package who needs it. A package belongs to a part if the part or another package of the part needs it. The packages of extras
are named in `pyproject.toml`, because the lock attributes them to the tests.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from packaging.requirements import Requirement

from tests.support.pages import ROOT

__all__ = ["BUILD_LOCK", "EXTRA_LOCKS", "LOCK", "build_lock", "extra_lock", "runtime_lock"]

LOCK = ROOT / "scaffold" / "requirements.txt"
BUILD_LOCK = ROOT / "requirements-build.lock"
EXTRA_LOCKS = {
    "materialize": ROOT / "scaffold" / "requirements-materialize.txt",
    "serve": ROOT / "container" / "requirements-serve.txt",
}
# The lock attributes the packages of an extra to the package that has it. Tests ask for this one, the program does not.
_OF_EXTRAS = {"pydantic": "email-validator"}
_START = re.compile(r"[a-z0-9][a-z0-9._-]*(?===)")
_PROGRAM = "cluster-gitops (pyproject.toml)"
_BUILD = "cluster-gitops (pyproject.toml:build)"


def runtime_lock() -> str:
    """The packages of the program in the order of the lock, without the comments."""
    return _lines_of(_needed_by({_PROGRAM}))


def build_lock() -> str:
    """The packages that build the wheel and an editable installation."""
    return _lines_of(_needed_by({_BUILD}))


def extra_lock(extra: str) -> str:
    """What an extra needs besides."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {Requirement(text).name for text in project["optional-dependencies"][extra]}
    return _lines_of((named | _needed_by(named)) - _needed_by({_PROGRAM}))


def _lines_of(names: AbstractSet[str]) -> str:
    return "".join(line for name, lines, _ in _packages() if name in names for line in lines)


def _needed_by(roots: AbstractSet[str]) -> set[str]:
    """The packages that some need, and those that these need."""
    found, before = set(roots), 0
    while before != len(found):
        before = len(found)
        found |= {n for n, _, needed_by in _packages() if any(_OF_EXTRAS.get(by) != n for by in needed_by & found)}
    return found - {_PROGRAM, _BUILD}


def _packages() -> Iterator[tuple[str, list[str], set[str]]]:
    """Name, lines and the names behind `# via`. One name may occur twice, for different releases of Python."""
    for block in re.split(r"\n(?=[a-z0-9])", (ROOT / "requirements.lock").read_text(encoding="utf-8").strip()):
        found = _START.match(block)
        assert found is not None, block[:80]
        lines = [f"{line}\n" for line in block.splitlines() if not line.startswith("    #")]
        via = [line.strip().removeprefix("#").strip() for line in block.splitlines() if line.startswith("    #")]
        yield found[0], lines, {each.removeprefix("via ").strip() for each in via} - {"via"}


if __name__ == "__main__":
    LOCK.write_text(runtime_lock(), encoding="utf-8")
    BUILD_LOCK.write_text(build_lock(), encoding="utf-8")
    for extra, place in EXTRA_LOCKS.items():
        place.write_text(extra_lock(extra), encoding="utf-8")
