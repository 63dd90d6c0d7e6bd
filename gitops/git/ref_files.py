"""Reads refs as files, where the git program would start a process for each question.

1. The file of a ref wins over its line in `packed-refs`. It is read first, because git packs a ref before it removes the file.
2. Git answers in unusual cases: another storage of refs, links in place of files, and refs of a single linked work tree.
3. As for git, a file that is neither a symbolic ref nor an id of the repository's length is not a ref.

Sources: gitrepository-layout(5), git-pack-refs(1), git-worktree(1); git's refs/files-backend.c and packed-backend.c.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from gitops.core.documents.forms import is_object_id
from gitops.git.libgit2 import common_dir
from gitops.git.objects import is_below, is_ref

_SYMBOLIC = b"ref:"
_MAX_DEPTH = 5
_OF_WORK_TREES = ("refs/bisect", "refs/worktree", "refs/rewritten")


class UnusualRefsError(Exception):
    """Only git can read these refs."""


class RefFiles:
    """The refs of a repository whose object ids have `id_length` digits."""

    def __init__(self, git_dir: str, id_length: int) -> None:
        """Nothing of a ref is kept between two questions."""
        self._common = common_dir(git_dir)
        self._head = Path(git_dir) / "HEAD"
        self._is_linked = self._common != Path(git_dir)
        self._id_length = id_length
        # Git reads extensions from this file alone, without what it includes.
        self._elsewhere = b"refstorage" in (_read(self._common / "config") or b"").lower()

    def target(self, name: str) -> str | None:
        """Return the id that a ref or `HEAD` points to, after following symbolic refs. Raises UnusualRefsError."""
        for _ in range(_MAX_DEPTH):
            content = self._content(name)
            if content is None:
                return self._packed(name).get(name)
            if not content.startswith(_SYMBOLIC):
                return self._id(content)
            name = _symbolic(content)
        return None

    def symbolic_target(self, name: str) -> str | None:
        """Return the name of the ref that a symbolic ref points to, or None for other refs. Raises UnusualRefsError."""
        content = self._content(name)
        return _symbolic(content) if content is not None and content.startswith(_SYMBOLIC) else None

    def refs(self, prefix: str) -> Mapping[str, str]:
        """Map the ref `prefix` and all refs below it to object ids. Raises UnusualRefsError."""
        folder = prefix.rstrip("/")
        own = {name: self.target(name) for name in self._files(folder)}
        found = {**self._packed(folder), **own}
        return {name: at for name, at in found.items() if at is not None}

    def _files(self, prefix: str) -> list[str]:
        """Return the refs at or below a prefix that have files."""
        if self._content(prefix) is not None:
            return [prefix]
        names = []
        for folder, folders, files in os.walk(self._common / prefix):
            if any(Path(folder, part).is_symlink() for part in folders):
                raise UnusualRefsError
            base = os.path.relpath(folder, self._common)
            names += [name for file in files if is_ref(name := f"{base}/{file}")]
        return names

    def _content(self, name: str) -> bytes | None:
        """Return the content of a ref's file, or None if it has none."""
        own = self._is_linked and (name == "refs" or name.startswith(_OF_WORK_TREES))
        if self._elsewhere or own or not (name in ("HEAD", "refs") or is_ref(name)):
            raise UnusualRefsError
        path = self._head if name == "HEAD" else self._common / name
        if path.is_symlink():
            raise UnusualRefsError
        return _read(path)

    def _packed(self, prefix: str) -> Mapping[str, str]:
        """Return the refs at or below a prefix that are in `packed-refs`."""
        data = _read(self._common / "packed-refs") or b""
        if f" {prefix}".encode() not in data:
            return {}
        # Only a line feed ends a line: the name of a ref may contain other characters that end lines of a text.
        rows = (line.decode("utf-8", "replace").partition(" ") for line in data.split(b"\n"))
        return {
            name: at for at, _, name in rows if is_below(name, prefix) and is_ref(name) and self._id(at.encode()) == at
        }

    def _id(self, content: bytes) -> str | None:
        """Return the id at the start of a file's content."""
        text, rest = content[: self._id_length].decode("ascii", "replace"), content[self._id_length :]
        ends = not rest or rest[:1].isspace()
        return text if ends and is_object_id(text) and len(text) == self._id_length else None


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnusualRefsError from error


def _symbolic(content: bytes) -> str:
    return content.removeprefix(_SYMBOLIC).strip().decode("utf-8", "replace")
