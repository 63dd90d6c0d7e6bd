"""Files that `init` reads and writes: the scaffold, and the work tree. Links in the work tree are not followed.

Only `upgrade` replaces and removes files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from importlib.abc import Traversable
from importlib.resources import files
from itertools import chain
from pathlib import Path

import gitops
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, system_reason
from gitops.init.files import GITEA_APPLIES, OPTIONAL_PIPELINES, PIPELINES

_JOBS = (
    *PIPELINES.values(),
    GITEA_APPLIES,
    *chain.from_iterable(forges.values() for forges in OPTIONAL_PIPELINES.values()),
)
_TEMPLATES = (
    "gitops.yaml",
    "cluster/cluster.yaml",
    "cluster/gitattributes",
    "cluster/schema.pg",
    "cluster/notes.gq",
    "cluster/notes.test.yaml",
    *chain(*(paths.values() for paths in _JOBS)),
    "requirements.txt",
    "requirements-materialize.txt",
)
_ACTION = "action.yml"
_MAX = 16 * 1024 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def read_templates() -> dict[str, str]:
    """Return the scaffold's files by name, from the installed wheel or from the source checkout."""
    packaged, checkout = files(gitops) / "_data" / "scaffold", Path(gitops.__file__).resolve().parent.parent
    folder: Traversable = packaged if packaged.is_dir() else checkout / "scaffold"
    action = packaged / _ACTION if packaged.is_dir() else checkout / ".github/actions/gitops" / _ACTION
    found = {name: folder.joinpath(*name.split("/")).read_text("utf-8") for name in _TEMPLATES}
    return {**found, _ACTION: action.read_text("utf-8")}


def read_file(root: str, path: str) -> bytes | None:
    """Return the content of a file. None if nothing has that name.

    Raises GitopsError `source_unreadable` for a link anywhere in the path, a folder, or a file that is too large.
    """
    try:
        with (
            _opened(root, path, make=False) as (folder, name),
            os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as file,
        ):
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise GitopsError(Code.SOURCE_UNREADABLE, f"{path} is not a regular file", path=path)
            content = file.read(_MAX + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise GitopsError(Code.SOURCE_UNREADABLE, system_reason(error, path), path=path) from error
    if len(content) > _MAX:
        raise GitopsError(Code.SOURCE_UNREADABLE, f"{path} is larger than {_MAX} bytes", path=path)
    return content


def list_files(root: str, folder: str) -> list[str]:
    """Return the names in a folder. Empty if there is no such folder. Raises GitopsError `source_unreadable`."""
    try:
        with _opened(root, f"{folder}/.", make=False) as (opened, _):
            return sorted(os.listdir(opened))  # noqa: PTH208 - a descriptor has no path
    except FileNotFoundError:
        return []
    except OSError as error:
        raise GitopsError(Code.SOURCE_UNREADABLE, f"{folder}: {error.strerror or error}", path=folder) from error


def create_file(root: str, path: str, content: bytes, *, replace: bool = False) -> bool:
    """Create a file and its parent folders atomically. Return True if it was created.

    An existing file is replaced only with `replace`. Raises RemoteError `storage_failed`.
    """
    try:
        with _opened(root, path, make=True) as (folder, name):
            return _place(folder, name, content, replace=replace)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, path), path=path) from error


def remove_file(root: str, path: str) -> None:
    """Remove a file. Raises RemoteError `storage_failed`."""
    try:
        with _opened(root, path, make=False) as (folder, name):
            os.unlink(name, dir_fd=folder)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, f"{path}: {error.strerror or error}", path=path) from error


def _place(folder: int, name: str, content: bytes, *, replace: bool) -> bool:
    temporary = f".gitops-init-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(temporary, _MAKE, 0o666, dir_fd=folder), "wb") as made:
            made.write(content)
            made.flush()
            os.fsync(made.fileno())
        if replace:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            # Links are refused everywhere else. Here, a rename would replace the link.
            os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.fsync(folder)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    return True


@contextlib.contextmanager
def _opened(root: str, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """Open the folder that contains a file, following its path name by name. Yields the folder and the file's name."""
    *parents, name = path.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parents:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder, name
    finally:
        os.close(folder)
