"""The page on extending: what it adds works in a copy of the source."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.page_edits import apply_edit, copy_package, edits
from tests.support.pages import ROOT, read_page

_PAGE = read_page("extending.md")


@pytest.mark.parametrize("section", ["A new kind of resource", "A new forge"])
def test_what_a_section_adds(tmp_path: Path, section: str) -> None:
    copy_package(tmp_path)
    blocks = list(edits(_PAGE, section))
    for block in blocks:
        apply_edit(tmp_path, *block)
    checks = [path for language, path, _ in blocks if language == "python" and path.startswith("tests/")]
    assert checks
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    ran = subprocess.run(
        [*command, *checks],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
