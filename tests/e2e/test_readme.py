"""README.md as a stranger reads it: every command, literally, by another user with an empty home and a fresh clone."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.terminal import on_terminal, shell_blocks


@pytest.fixture
def stranger() -> Iterator[tuple[Path, int]]:
    """A folder of the user `nobody`, with a home and a copy of the tracked files, and the number of that user."""
    if os.geteuid() != 0:
        pytest.skip("only root can start programs as another user")
    user = pwd.getpwnam("nobody").pw_uid
    folder = Path(tempfile.mkdtemp(prefix="gitops-stranger-"))
    try:
        (folder / "home").mkdir()
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, tracked.split("\0")):
            if (ROOT / name).exists():
                place = folder / "cluster-gitops" / name
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, place, follow_symlinks=False)
        for place in (folder, *folder.rglob("*")):
            os.lchown(place, user, user)
        yield folder, user
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.journey
@pytest.mark.timeout(1200)
def test_every_command_of_the_readme_runs_for_a_stranger(stranger: tuple[Path, int]) -> None:
    """From the wheel to the audit trail. Packages come from the package index."""
    folder, user = stranger
    # Settings of this machine that reach its package index, and nothing else of its environment.
    reach = {k: v for k, v in os.environ.items() if re.match(r"PIP_|UV_|SSL_|REQUESTS_|.*_proxy$", k, re.IGNORECASE)}
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "LC_ALL": "C.UTF-8", **reach}
    probe = ("python3", "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder / "probe"), "pyyaml")
    if subprocess.run(probe, env=environ, check=False, capture_output=True).returncode != 0:
        pytest.skip("the package index is not reachable")
    blocks = shell_blocks("README.md")
    shown = on_terminal("".join(blocks), {"Type yes to sign this: ": "yes"}, folder / "cluster-gitops", environ, user)
    assert re.search(r"^gitops \d", shown, re.MULTILINE)
    assert "=== Act 5 of 5" in shown
    log = shown[shown.rindex("\nentry ") :]
    assert re.search(r"^  delete graph.drafts  approved by ben@brain.example ", log, re.MULTILINE)
    assert "audit good: brain" in log
    assert (folder / "home/gitops-tutorial/company-graphs").is_dir()
