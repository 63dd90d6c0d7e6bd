"""The page on extending: what it adds works in a copy of the source, and passes the checks of the project there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.page_edits import apply_edit, copy_tree, edits
from tests.support.pages import ROOT, read_page

_PAGE = read_page("extending.md")
_SECTIONS = ("A new kind of resource", "A rule with a gate", "A new command", "A new forge")
_CHECKS = ("addresses", "documentation", "size", "text", "words")


def _applied(folder: Path, sections: Sequence[str]) -> Sequence[str]:
    """A copy of the source with the blocks of sections; the tests that they add."""
    copy_tree(folder)
    blocks = [block for section in sections for block in edits(_PAGE, section)]
    for block in blocks:
        apply_edit(folder, *block)
    return [path for _, path, _ in blocks if path.startswith("tests/")]


def _run(folder: Path, *command: str) -> None:
    """Run a program of this interpreter in the copy, which comes before the source itself."""
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("section", _SECTIONS)
def test_what_a_section_adds(tmp_path: Path, section: str) -> None:
    checks = _applied(tmp_path, [section])
    assert checks
    _run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks)


@pytest.mark.parametrize("section", _SECTIONS[:2])
def test_a_kind_and_a_rule_need_few_files(section: str) -> None:
    assert len({path for _, path, _ in edits(_PAGE, section)}) <= 6


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    """A copy with all sections, and the pages that are generated."""
    _applied(tmp_path, _SECTIONS)
    for page in ("codes_page", "cli_page", "keys_page"):
        _run(tmp_path, "-m", f"tests.support.{page}")
    return tmp_path


def test_what_all_sections_add_passes_the_checks_of_the_project(extended: Path) -> None:
    _run(
        extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(f"tests/architecture/test_{n}.py" for n in _CHECKS)
    )


@pytest.mark.timeout(600)
def test_what_all_sections_add_has_types(extended: Path) -> None:
    if (ROOT / ".mypy_cache").is_dir():
        # What has not changed is not checked again.
        shutil.copytree(ROOT / ".mypy_cache", extended / ".mypy_cache")
    _run(extended, "-m", "mypy", "gitops")
