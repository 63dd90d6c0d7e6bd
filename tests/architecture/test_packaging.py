"""What is installed is complete: the wheel has the templates, the hooks and the type marker."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from hashlib import sha256
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gitops
from gitops.init.wheel import running_wheel
from tests.support.pages import ROOT
from tests.support.runtime_lock import LOCK, runtime_lock


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    for module in ("hatchling", "pip"):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-q",
        "-w",
        str(folder),
    ]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.whl")
    with zipfile.ZipFile(found) as archive:
        yield {name: archive.read(name) for name in archive.namelist()}


def _packaged(wheel: dict[str, bytes], folder: str) -> dict[str, bytes]:
    prefix = f"gitops/_data/{folder}/"
    return {name.removeprefix(prefix): content for name, content in wheel.items() if name.startswith(prefix)}


@pytest.mark.parametrize("folder", ["hooks", "templates"])
def test_the_wheel_has_every_data_file(wheel, folder):
    expected = {path.name: path.read_bytes() for path in sorted((ROOT / folder).iterdir()) if path.is_file()}
    assert expected
    assert _packaged(wheel, folder) == expected


def test_the_wheel_has_the_scaffold_and_the_action(wheel):
    folder = ROOT / "scaffold"
    expected = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    expected["action.yml"] = (ROOT / ".github/actions/gitops/action.yml").read_bytes()
    assert _packaged(wheel, "scaffold") == expected


def test_the_wheel_has_every_module(wheel):
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "gitops").rglob("*.py")}
    assert {n for n in wheel if n.startswith("gitops/") and n.endswith(".py")} == sources
    assert "gitops/py.typed" in wheel


def test_the_wheel_for_jobs_is_what_a_build_packs(wheel):
    """`init` makes it from the installation that runs; here that is a checkout."""
    with zipfile.ZipFile(io.BytesIO(running_wheel().content)) as archive:
        made = {name: archive.read(name) for name in archive.namelist()}
    own = {name for name in made if name.endswith((".dist-info/WHEEL", ".dist-info/RECORD"))}
    assert len(own) == 2
    assert made.keys() == wheel.keys()
    # The description of a checkout is that of the day when it was installed.
    compared = made.keys() - own - {name for name in made if name.endswith(".dist-info/METADATA")}
    assert {name: made[name] for name in compared} == {name: wheel[name] for name in compared}


def test_the_lock_of_jobs_is_that_of_the_tests():
    assert LOCK.read_text(encoding="utf-8") == runtime_lock(), "run `python -m tests.support.runtime_lock`"


def test_the_lock_of_jobs_is_complete():
    """Every package that the installed ones require on this machine, with the version that the tests ran."""
    locked = {}
    for block in LOCK.read_text(encoding="utf-8").replace("\\\n", "").splitlines():
        required, _, hashes = block.partition("--hash=")
        assert re.fullmatch(r"sha256:[0-9a-f]{64}( +--hash=sha256:[0-9a-f]{64})*", hashes), block
        found = Requirement(required)
        if found.marker is None or found.marker.evaluate():
            locked[found.name] = found.specifier
    wanted, seen = [Requirement("cluster-gitops[s3]")], set()
    while wanted:
        required = wanted.pop()
        name = canonicalize_name(required.name)
        if name in seen:
            continue
        seen.add(name)
        extras = required.extras or {""}
        for text in metadata.requires(name) or []:
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                wanted.append(inner)
        if name != "cluster-gitops":
            assert metadata.version(name) in locked[name]
    assert locked.keys() == seen - {"cluster-gitops"}


def test_the_wheel_has_its_metadata(wheel):
    (metadata,) = [content.decode() for name, content in wheel.items() if name.endswith(".dist-info/METADATA")]
    assert f"Version: {gitops.__version__}" in metadata
    assert "License-Expression: MIT" in metadata
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
    assert any(name.endswith("entry_points.txt") and b"gitops.cli.main:entry" in wheel[name] for name in wheel)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """What `make wheel` makes, twice."""
    if importlib.util.find_spec("hatchling") is None or shutil.which("make") is None:
        pytest.skip("hatchling or make is not installed")
    folders = [tmp_path_factory.mktemp("dist") for _ in range(2)]
    for folder in folders:
        # The environment of the tests is the one that make would build.
        command = ("make", f"VENV={sys.prefix}", "-o", f"{sys.prefix}/.ready", f"DIST={folder}", "wheel")
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
        assert done.returncode == 0, done.stderr
    return folders


def test_make_wheel_gives_the_same_bytes_twice_and_their_hash(made):
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in made)
    assert first == second
    (wheel,) = [name for name in first if name.endswith(".whl")]
    assert first["SHA256SUMS"].decode() == f"{sha256(first[wheel]).hexdigest()}  {wheel}\n"


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_environment(made, tmp_path):
    """As docs/install.md says; its dependencies come from the package index."""
    (wheel,) = made[0].glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    program = tmp_path / "venv/bin"
    environ = {**os.environ, "PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)

    fetched = run(program / "python", "-m", "pip", "download", "-q", "--no-deps", "-d", tmp_path / "one", "pyyaml")
    if fetched.returncode != 0:
        pytest.skip("the package index is not reachable")
    done = run(program / "python", "-m", "pip", "install", "-q", wheel)
    assert done.returncode == 0, done.stderr
    assert run(program / "gitops", "--version").stdout == f"gitops {gitops.__version__}\n"
    assert run(program / "gitops", "validate", "--config", ROOT / "examples/company-brain").returncode == 0


def test_the_container_is_small_pinned_and_not_run_by_root():
    """The rules of its file; that it builds is not tested where no container program runs."""
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split(maxsplit=1) for line in lines if line and not line.startswith(("#", " "))]
    said = dict(words)
    assert said["FROM"] == "${BASE}", "the operator names the base image by its digest"
    assert said["USER"] == "gitops"
    assert "ADD" not in said
    text = "\n".join(lines)
    assert "--no-install-recommends" in text
    assert "--require-hashes" in text
    assert "rm -rf /var/lib/apt/lists/*" in text


@pytest.mark.slow
def test_the_container_builds(made):
    """BASE is named by the variable GITOPS_TESTS_BASE, since a test does not choose whom to trust."""
    program = next(filter(None, map(shutil.which, ("podman", "docker"))), None)
    if program is None or subprocess.run([program, "info"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no container program runs on this machine")
    if "GITOPS_TESTS_BASE" not in os.environ:
        pytest.skip("GITOPS_TESTS_BASE names no base image by its digest")
    arguments = ("--file", "Containerfile", "--build-arg", f"BASE={os.environ['GITOPS_TESTS_BASE']}")
    done = subprocess.run([program, "build", *arguments, "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
