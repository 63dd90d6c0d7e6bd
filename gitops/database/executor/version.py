"""The version of the running code: a digest of its source files."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Sequence
from functools import cache

import gitops

_PACKAGES = ("pylance", "pyarrow", "numpy")


def source_digest(folders: Sequence[str]) -> str | None:
    """Return a digest of Python's version and the modules in these package folders, or None if unreadable."""
    found = hashlib.sha256(f"{gitops.__version__} {sys.version}".encode())
    root = os.path.dirname(gitops.__file__)  # noqa: PTH120 - pathlib takes as long as the reading itself
    try:
        for folder in folders:
            for path in sorted(_modules(f"{root}/{folder}")):
                with open(path, "rb") as file:  # noqa: PTH123
                    content = file.read()
                found.update(f"{path[len(root) :]} {len(content)} ".encode() + content)
    except OSError:
        return None
    return found.hexdigest()


@cache
def code_version() -> str:
    """Return the version of the code with which tasks run here: the release and a digest.

    The digest covers this package, Python, and the packages that write tables. It is computed once, because a process
    that keeps running after an upgrade still runs the earlier code.
    """
    # Imported here, because reading a folder needs no packages.
    from importlib.metadata import PackageNotFoundError, version

    found = hashlib.sha256((source_digest(("core", "database")) or "").encode())
    for name in _PACKAGES:
        try:
            found.update(f" {name} {version(name)}".encode())
        except PackageNotFoundError:
            found.update(f" {name}".encode())
    return f"{gitops.__version__}+{found.hexdigest()[:16]}"


def _modules(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        found = list(entries)
    files = [entry.path for entry in found if entry.name.endswith(".py")]
    return files + [
        path for entry in found if entry.is_dir() and entry.name != "__pycache__" for path in _modules(entry.path)
    ]
