"""The programs of a real Gitea and of its runner of jobs: on the PATH, or built once and kept.

    python -m tests.support.forges.gitea_program

Go's module proxy serves the sources. A proxy that has no runner is no failure: the tests that need one are skipped, and say so.
The checksum of the server is pinned here, and that of the runner is the one in Go's database. The front end is not built: only
the API and git are used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

_KEPT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cluster-gitops"


@dataclass(frozen=True)
class Program:
    """One of them. `static` are the folders that it reads beside itself; `checksum` is empty where Go's database decides."""

    name: str
    module: str
    version: str
    linked: str
    """The variable that holds the version."""
    checksum: str = ""
    tags: str = ""
    static: tuple[str, ...] = ()

    @property
    def _cache(self) -> Path:
        return _KEPT / f"{self.name}-{self.version}"

    @property
    def missing(self) -> str:
        """Why a test is skipped."""
        needs = "which needs Go, a C compiler, and a module proxy that has it"
        return f"{self.name} is neither on the PATH nor in {self._cache}: make test-gitea builds it, {needs}"

    def installed(self) -> Path | None:
        """Where it is: the one on the PATH, or the one that was built. None if there is none."""
        found = shutil.which(self.name)
        built = self._cache / self.name
        return Path(found) if found else built if built.exists() else None

    def build(self) -> Path:
        """Build it, unless it is there. Raises RuntimeError with the reason why not."""
        if (found := self.installed()) is not None:
            return found
        source = self._source()
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        # A build that was interrupted leaves nothing that looks complete.
        with tempfile.TemporaryDirectory(dir=self._cache.parent) as made:
            place = Path(made) / self.name
            options = [
                "-mod=readonly",
                "-buildvcs=false",
                "-tags",
                self.tags,
                "-ldflags",
                f"-X {self.linked}={self.version}",
            ]
            done = subprocess.run(
                ["go", "build", *options, "-o", str(place / self.name), "."],
                cwd=source,
                env={**os.environ, "CGO_ENABLED": "1"},
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"go build ended with {done.returncode}")
            for name in self.static:
                shutil.copytree(source / name, place / name, copy_function=shutil.copyfile)
            for folder in (each for each in place.rglob("*") if each.is_dir()):
                folder.chmod(0o755)
            place.rename(self._cache)
        return self._cache / self.name

    def _source(self) -> Path:
        if shutil.which("go") is None:
            raise RuntimeError("there is no Go")
        at = f"{self.module}@v{self.version}"
        done = subprocess.run(
            ["go", "mod", "download", "-json", at], cwd="/", capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout or "{}")
        if done.returncode or "Dir" not in found:
            raise RuntimeError(found.get("Error") or done.stderr)
        if self.checksum and found["Sum"] != self.checksum:
            raise RuntimeError(f"the source of {at} has the checksum {found['Sum']}, not {self.checksum}")
        return Path(found["Dir"])


SERVER = Program(
    "gitea",
    "code.gitea.io/gitea",
    "1.26.0",
    "main.Version",
    checksum="h1:fJP9dqLbzKrKWUVnCVTfVersZdVDuyJQLEDzCAOmKKA=",
    tags="sqlite sqlite_unlock_notify",
    static=("options", "public", "templates"),
)
RUNNER = Program(
    "act_runner", "gitea.com/gitea/act_runner", "0.5.0", "gitea.com/gitea/act_runner/internal/pkg/ver.version"
)


def static_folder(program: Path) -> Path | None:
    """The folder with what the server reads at run time; None for a program that brings it along."""
    return program.parent if (program.parent / "templates").is_dir() else None


def main() -> int:
    """Build both; only the server is needed."""
    try:
        sys.stdout.write(f"{SERVER.build()}\n")
    except RuntimeError as error:
        sys.stderr.write(f"Gitea was not built: {error}\n")
        return 1
    try:
        sys.stdout.write(f"{RUNNER.build()}\n")
    except RuntimeError as error:
        sys.stderr.write(f"The runner was not built, so its tests are skipped: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
