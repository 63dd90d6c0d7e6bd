"""The program of a real Gitea: on the PATH, or built once and kept: `python -m tests.support.forges.gitea_program`.

Go's module proxy serves the source, whose checksum is pinned here. The front end is not built: only the API and git are used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "1.26.0"
_MODULE = f"code.gitea.io/gitea@v{VERSION}"
_CHECKSUM = "h1:fJP9dqLbzKrKWUVnCVTfVersZdVDuyJQLEDzCAOmKKA="
_TAGS = "sqlite sqlite_unlock_notify"
_STATIC = ("options", "public", "templates")
"""What a program without its front end reads beside itself."""
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cluster-gitops" / f"gitea-{VERSION}"

MISSING = f"gitea is neither on the PATH nor in {_CACHE}: make test-gitea builds it, which needs Go and a C compiler"


def installed() -> Path | None:
    """Where the program is: the one on the PATH, or the one that was built. None if there is none."""
    found = shutil.which("gitea")
    built = _CACHE / "gitea"
    return Path(found) if found else built if built.exists() else None


def static_folder(program: Path) -> Path | None:
    """The folder with what the program reads at run time; None for a program that brings it along."""
    return program.parent if (program.parent / "templates").is_dir() else None


def build() -> Path:
    """Build the program, unless it is there. Raises CalledProcessError, RuntimeError for another source than the known one."""
    if (found := installed()) is not None:
        return found
    if shutil.which("go") is None:
        raise RuntimeError(f"Go is needed to build {_MODULE}")
    said = subprocess.run(["go", "mod", "download", "-json", _MODULE], cwd="/", capture_output=True, check=True).stdout
    source = json.loads(said)
    if source["Sum"] != _CHECKSUM:
        raise RuntimeError(f"the source of {_MODULE} has the checksum {source['Sum']}, not {_CHECKSUM}")
    _CACHE.parent.mkdir(parents=True, exist_ok=True)
    # A build that was interrupted leaves nothing that looks complete.
    with tempfile.TemporaryDirectory(dir=_CACHE.parent) as made:
        place = Path(made) / "gitea"
        options = ["-mod=readonly", "-buildvcs=false", "-tags", _TAGS, "-ldflags", f"-X main.Version={VERSION}"]
        subprocess.run(
            ["go", "build", *options, "-o", str(place / "gitea"), "."],
            cwd=source["Dir"],
            env={**os.environ, "CGO_ENABLED": "1"},
            check=True,
        )
        for name in _STATIC:
            shutil.copytree(Path(source["Dir"]) / name, place / name, copy_function=shutil.copyfile)
        for folder in (each for each in place.rglob("*") if each.is_dir()):
            folder.chmod(0o755)
        place.rename(_CACHE)
    return _CACHE / "gitea"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{build()}\n")
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"Gitea was not built: {error}")
