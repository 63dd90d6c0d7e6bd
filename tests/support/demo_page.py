"""The excerpt of `make demo` in README.md. `python -m tests.support.demo_page` runs the demo and writes the excerpt again.

Ids and times differ from run to run, so the excerpt has `…` in their place.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.pages import ROOT

README = ROOT / "README.md"
_ACT = re.compile(r"^=== Act (\d) of (\d): ", re.MULTILINE)
_PART = re.compile(r"(<!-- demo -->\n```text\n)(.*?)(```\n<!-- /demo -->)", re.DOTALL)
_IDS = re.compile(r"\b(?:[0-9a-f]{8,}|01[0-9A-Z]{6,}|chs-\w+)…?|\b\d{4}-\d\d-\d\dT[\d:]+Z")
_SHOWN = "Alice tries to merge"


def played(folder: Path, *options: str, object_format: str = "sha1") -> str:
    """Everything that the demo prints. Raises CalledProcessError if it fails."""
    command = [sys.executable, str(ROOT / "examples/demo.py"), *options, str(folder)]
    env = {**os.environ, "GIT_DEFAULT_HASH": object_format}
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=280, env=env).stdout


def acts(text: str) -> list[str]:
    """What is printed in each act, with its headline."""
    starts = [found.start() for found in _ACT.finditer(text)]
    ends = [*starts[1:], text.index("\nDone in ")]
    return [text[start:end].strip("\n") for start, end in zip(starts, ends, strict=True)]


def excerpt(text: str) -> str:
    """The part of the act about deletions that README.md shows."""
    (found,) = (act for act in acts(text) if _SHOWN in act)
    return _IDS.sub("…", found[found.index(_SHOWN) :]) + "\n"


def readme_excerpt() -> str:
    """The excerpt that README.md has."""
    found = _PART.search(README.read_text(encoding="utf-8"))
    assert found is not None
    return found[2]


def main() -> None:
    """Write the excerpt into README.md."""
    with tempfile.TemporaryDirectory() as folder:
        new = excerpt(played(Path(folder) / "demo"))
    page = README.read_text(encoding="utf-8")
    README.write_text(_PART.sub(lambda found: found[1] + new + found[3], page), encoding="utf-8")


if __name__ == "__main__":
    main()
