"""The build's own supply chain: pinned actions, no standing permissions, a lock with hashes and without hosts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.cases import read_yaml
from tests.support.pages import ROOT

_LOCKS = ("requirements.lock", "requirements-bench.lock", "requirements-build.lock", "requirements-docs.lock")
_WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))
_PIN = re.compile(r"\s*(?:- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\Z")


def _program(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("path", _WORKFLOWS, ids=lambda p: p.name)
def test_actions_are_pinned_by_commit(path):
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if re.match(r"\s*(- )?uses:", line)]
    # An action of this repository needs no pin.
    foreign = [line for line in lines if "uses: ./" not in line]
    assert [line for line in foreign if not _PIN.fullmatch(line)] == []


@pytest.mark.parametrize("path", sorted((ROOT / ".github/workflows").glob("*.yml")), ids=lambda p: p.name)
def test_a_workflow_has_no_permissions_by_default(path):
    assert read_yaml(path)["permissions"] == {}


def test_zizmor_finds_nothing():
    _run(_program("zizmor"), "--offline", "--no-progress", "--quiet", ".github")


def test_workflows_fit_their_schema():
    files = [str(p) for p in sorted((ROOT / ".github/workflows").glob("*.yml"))]
    _run(_program("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *files)


@pytest.mark.parametrize("name", _LOCKS)
def test_every_locked_package_has_a_version_and_hashes(name):
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8").strip())
    packages = [e for e in entries if not e.startswith("#")]
    assert packages
    assert [e.splitlines()[0] for e in packages if not re.match(r"[a-z0-9._-]+==\S+", e)] == []
    assert [e.splitlines()[0] for e in packages if "--hash=sha256:" not in e] == []


def test_the_lock_has_everything_that_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"].values()
    declared = {
        re.match(r"[\w-]+", line)[0].lower()
        for group in (project["project"]["dependencies"], *groups)
        for line in group
    }
    locked = {
        package
        for name in _LOCKS
        for package in re.findall(r"^([a-z0-9._-]+)==", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert declared - locked == set()


@pytest.mark.parametrize("name", _LOCKS)
def test_the_lock_names_no_host(name):
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def test_the_build_script_is_executable():
    assert (ROOT / ".ci/run").stat().st_mode & 0o111
