"""What is installed is complete: the wheel has the templates, the hooks and the type marker."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile

import pytest

import gitops
from tests.support.pages import ROOT


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


def test_the_wheel_has_its_metadata(wheel):
    (metadata,) = [content.decode() for name, content in wheel.items() if name.endswith(".dist-info/METADATA")]
    assert f"Version: {gitops.__version__}" in metadata
    assert "License-Expression: MIT" in metadata
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
    assert any(name.endswith("entry_points.txt") and b"gitops.cli.main:entry" in wheel[name] for name in wheel)
