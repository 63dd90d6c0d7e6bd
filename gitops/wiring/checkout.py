"""The work tree that `gitops init` writes to: its root, its remote and its git configuration."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.git.command import GitProgram
from gitops.git.repository import Repository
from gitops.git.signatures import make_key, read_public_key

__all__ = ["Checkout", "make_key", "open_checkout", "read_public_key"]

_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A work tree. `server` is the remote as a folder of this machine, `host` its host name; each is None if it is neither."""

    root: str
    git: GitProgram
    server: str | None
    host: str | None
    name: str

    def setting(self, key: str, *, path: bool = False) -> str | None:
        """A value of the git configuration, None if it is not set."""
        return self.git.config(key, path=path)

    def branch(self) -> str | None:
        """The current branch, which may have no commit yet; None for a detached head."""
        found = self.git.run("symbolic-ref", "--quiet", "--short", "HEAD")
        return found.stdout.decode("utf-8", "replace").strip() or None if found.ok else None


def open_checkout(folder: str) -> Checkout:
    """Open the work tree whose root is `folder`. Raises UsageError `not_a_repository`, `usage_error`.

    `name` is the path of the repository on its host, else the name of its folder, without `.git`.
    """
    repository = Repository.discover(folder)
    root = os.path.realpath(folder)
    if repository.work_tree is None:
        raise UsageError(Code.USAGE_ERROR, f"{folder} is a bare repository: run this in a clone of it")
    if os.path.realpath(repository.work_tree) != root:
        raise UsageError(
            Code.USAGE_ERROR, f"gitops.yaml is at the root of the repository: run this in {repository.work_tree}"
        )
    git = GitProgram(repository.git_dir, as_user=True)
    url = git.config("remote.origin.url")
    server = host = None
    path = Path(root).name
    scp = None if url is None else _SCP.fullmatch(url)
    if url is not None and ("://" in url or scp):
        host, path = (scp[1], scp[2]) if scp else (urlsplit(url).hostname, urlsplit(url).path)
    elif url is not None:
        server = os.path.normpath(os.path.join(root, os.path.expanduser(url)))  # noqa: PTH111, PTH118
        path = Path(server).name
    return Checkout(root, git, server, host, path.strip("/").removesuffix(".git") or "repository")
