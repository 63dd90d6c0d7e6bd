"""What jobs and containers install besides the wheel: of `requirements.lock`, the packages that the program needs, with hashes.

`python -m tests.support.runtime_lock` writes `scaffold/requirements.txt`, and what jobs with replica strategies and servers need
besides. The lock says below each package who needs it; a package belongs to the program if the program itself needs it, or a
package that belongs to it does. Those of other extras are named in `pyproject.toml`: in the lock they belong to the tests.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from packaging.requirements import Requirement

from tests.support.pages import ROOT

__all__ = ["EXTRA_LOCKS", "LOCK", "extra_lock", "runtime_lock"]

LOCK = ROOT / "scaffold" / "requirements.txt"
EXTRA_LOCKS = {
    "materialize": ROOT / "scaffold" / "requirements-materialize.txt",
    "serve": ROOT / "container" / "requirements-serve.txt",
}
_START = re.compile(r"[a-z0-9][a-z0-9._-]*(?===)")
_PROGRAM = "cluster-gitops (pyproject.toml)"


def runtime_lock() -> str:
    """The packages of the program in the order of the lock, without the comments."""
    return _lines_of(_needed_by({_PROGRAM}))


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
        found |= {name for name, _, needed_by in _packages() if needed_by & found}
    return found - {_PROGRAM}


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
    for extra, place in EXTRA_LOCKS.items():
        place.write_text(extra_lock(extra), encoding="utf-8")
