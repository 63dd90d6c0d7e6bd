"""The wheel for jobs: the same bytes from a checkout and from what pip installs, and nothing that was changed in between."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from gitops.init.install import pack, running_wheel

_ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
import gitops
from gitops.core.errors import GitopsError
from gitops.init.install import running_wheel
gitops.__version__ = sys.argv[2] or gitops.__version__
try:
    made = running_wheel()
except GitopsError as error:
    print(json.dumps([str(error.code), error.detail]))
else:
    print(json.dumps([made.name, made.sha256]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, installed by pip into a folder."""
    folder = tmp_path_factory.mktemp("installed")
    made = running_wheel()
    (folder / made.name).write_bytes(made.content)
    (folder / "requirements.txt").write_text(f"./{made.name} --hash=sha256:{made.sha256}\n")
    command = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--isolated",
        "--no-deps",
        "--no-index",
        "--require-hashes",
    )
    options = ("--disable-pip-version-check", "--root-user-action=ignore", "--target", "site", "-r", "requirements.txt")
    subprocess.run((*command, *options), cwd=folder, check=True, timeout=120)
    return folder / "site"


def _ask(site: Path, version: str = "") -> list[str]:
    """Name and hash of the wheel that this installation makes, or the code and the detail of the refusal."""
    done = subprocess.run(
        (sys.executable, "-I", "-c", _ASK, str(site), version), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_its_record_holds_and_it_is_made_alike_twice() -> None:
    made = running_wheel()
    assert made.content == running_wheel().content
    with zipfile.ZipFile(io.BytesIO(made.content)) as archive:
        names = archive.namelist()
        assert len(set(names)) == len(names)
        assert not any(name.startswith("/") or ".." in name or "__pycache__" in name for name in names)
        (record,) = [name for name in names if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(archive.read(record).decode().splitlines()))
        assert [row[0] for row in rows] == names
        for name, digest, size in rows[:-1]:
            content = archive.read(name)
            assert digest == "sha256=" + urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
            assert int(size) == len(content)
        assert rows[-1] == [record, "", ""]
        assert archive.getinfo("gitops/__init__.py").date_time == (1980, 1, 1, 0, 0, 0)
        assert "gitops/_data/scaffold/requirements.txt" in names


def test_the_order_of_files_does_not_matter() -> None:
    files = {"b.py": b"2", "a.py": b"1", "x-1.dist-info/METADATA": b""}
    assert pack(files, "x-1.dist-info") == pack(dict(reversed(files.items())), "x-1.dist-info")


def test_what_pip_installed_makes_the_same_wheel(installed: Path) -> None:
    made = running_wheel()
    assert _ask(installed) == [made.name, made.sha256]


@pytest.mark.parametrize("name", ["gitops/cli/main.py", "gitops/_data/scaffold/requirements.txt", "gitops/py.typed"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_changed_installation_is_refused(installed: Path, name: str, missing: bool, tmp_path: Path) -> None:
    site = shutil.copytree(installed, tmp_path / "site", copy_function=os.link)
    content = (site / name).read_bytes()
    (site / name).unlink()
    if not missing:
        (site / name).write_bytes(content + b"\n")
    code, detail = _ask(site)
    assert code == "installation_unusable"
    assert name in detail


def test_another_version_is_refused(installed: Path) -> None:
    code, detail = _ask(installed, "9.9")
    assert code == "installation_unusable"
    assert "version 9.9 runs" in detail


def test_a_program_that_is_not_installed_is_refused(installed: Path, tmp_path: Path) -> None:
    site = shutil.copytree(installed, tmp_path / "site")
    (info,) = site.glob("*.dist-info")
    lines = [line for line in (info / "RECORD").read_text().splitlines() if not line.startswith("gitops/")]
    (info / "RECORD").write_text("\n".join(lines) + "\n")
    code, detail = _ask(site)
    assert code == "installation_unusable"
    assert "neither an installation nor a checkout" in detail
