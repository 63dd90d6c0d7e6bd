"""What jobs install besides the wheel: of `requirements.lock`, the packages that the program needs, with all their hashes.

`python -m tests.support.runtime_lock` writes `scaffold/requirements.txt`. The lock says below each package who needs it; a
package belongs to the program if the program itself needs it, or a package that belongs to it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.pages import ROOT

__all__ = ["LOCK", "runtime_lock"]

LOCK = ROOT / "scaffold" / "requirements.txt"
_START = re.compile(r"[a-z0-9][a-z0-9._-]*(?===)")
_PROGRAM = "cluster-gitops (pyproject.toml)"


def runtime_lock() -> str:
    """The packages in the order of the lock, without the comments."""
    packages = [(name, lines, needed_by) for name, lines, needed_by in _packages()]
    wanted, before = {_PROGRAM}, 0
    while before != len(wanted):
        before = len(wanted)
        wanted |= {name for name, _, needed_by in packages if needed_by & wanted}
    return "".join(line for name, lines, _ in packages if name in wanted for line in lines)


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
