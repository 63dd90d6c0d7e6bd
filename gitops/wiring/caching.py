"""Where the compile cache of this user is, if there is one.

GITOPS_CACHE=off      use none, as does --no-cache
GITOPS_CACHE_DIR      the folder; also in CI, where it has to be asked for in this way
XDG_CACHE_HOME, HOME  else `cluster-gitops` in the first, or in `.cache` of the second
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import gitops
from gitops.config.cache import CompileCache
from gitops.config.disk_cache import DiskCache

_OFF = frozenset({"off", "0", "no", "false"})
_NAME = "cluster-gitops"
# What an entry depends on: the languages, the loader, and the names and digests of what it loads.
_SOURCES = ("core", "language", "model", "config")


def compile_cache(environ: Mapping[str, str]) -> CompileCache | None:
    """The cache that the environment means, if any."""
    folder = cache_folder(environ)
    if folder is None:
        return None
    made_by = edition()
    return None if made_by is None else DiskCache(folder, made_by)


def edition() -> str | None:
    """Digest of the sources that decide what a folder means, and of the Python that runs them; None if they cannot be read."""
    found = hashlib.sha256(f"{gitops.__version__} {sys.version}".encode())
    root = os.path.dirname(gitops.__file__)  # noqa: PTH120 - pathlib takes as long as the reading itself
    try:
        for folder in _SOURCES:
            for path in sorted(_modules(f"{root}/{folder}")):
                with open(path, "rb") as file:  # noqa: PTH123
                    content = file.read()
                found.update(f"{path[len(root) :]} {len(content)} ".encode() + content)
    except OSError:
        return None
    return found.hexdigest()


def _modules(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        found = list(entries)
    files = [entry.path for entry in found if entry.name.endswith(".py")]
    return files + [
        path for entry in found if entry.is_dir() and entry.name != "__pycache__" for path in _modules(entry.path)
    ]


def cache_folder(environ: Mapping[str, str]) -> Path | None:
    """Where things may be kept between commands, by the environment; None for nowhere."""
    if environ.get("GITOPS_CACHE", "").lower() in _OFF:
        return None
    if environ.get("GITOPS_CACHE_DIR"):
        return Path(environ["GITOPS_CACHE_DIR"])
    # A cache that a job leaves behind may be brought back by another that runs the code of a stranger.
    if environ.get("CI", "").lower() in ("1", "true"):
        return None
    base = environ.get("XDG_CACHE_HOME", "")
    if not base.startswith("/"):
        home = environ.get("HOME", "")
        if not home.startswith("/"):
            return None
        base = f"{home}/.cache"
    return Path(base) / _NAME
