"""The hooks that call this program: installed into a repository, and removed from it.

Rules:

1. A hook that this program did not write is never overwritten or removed; ours are recognised by a line of their own.
2. A hook names the program by an absolute path, quoted for the shell. It searches no PATH and expands nothing.
3. All is checked before anything is written; each hook appears whole and executable, or not at all.
4. Where git would not run the hooks of the repository (`core.hooksPath`), nothing is installed.
5. A server is configured to check the objects that it receives (`receive.fsckObjects`), unless its operator has set that.

Source: githooks(5), git-config(1) `core.hooksPath`, `receive.fsckObjects`.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path
from typing import Literal

import gitops
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.git.command import GitProgram
from gitops.git.repository import Repository

__all__ = ["HookKind", "expected_hooks", "install_hooks", "installed_hooks", "remove_hooks", "stale_hooks"]

HookKind = Literal["client", "server"]

_NAMES: Mapping[HookKind, tuple[str, ...]] = {
    "client": ("pre-commit", "commit-msg", "pre-push"),
    "server": ("pre-receive", "post-receive"),
}
_MARK = b"# managed by gitops"
_PLACEHOLDER = b"@GITOPS@"
_MODE = 0o755
_MAX_HOOK = 64 * 1024


def install_hooks(git_dir: str, kind: HookKind, command: Sequence[str]) -> tuple[str, ...]:
    """Write the hooks of one kind into the repository `git_dir`; returns their names. Repeating it changes nothing.

    `command` is the argument vector that starts this program, its first part an absolute path. Raises UsageError
    `usage_error` for another command, `not_a_repository`, GitopsError `hook_exists` and `storage_failed`.
    """
    if not command or not Path(command[0]).is_absolute() or any("\0" in part for part in command):
        raise UsageError(Code.USAGE_ERROR, "hooks start the program by an absolute path")
    folder = _folder(git_dir)
    foreign = [name for name in _NAMES[kind] if os.path.lexists(folder / name) and not _is_ours(folder / name)]
    if foreign:
        names = ", ".join(str(folder / name) for name in foreign)
        raise GitopsError(Code.HOOK_EXISTS, f"not written by gitops: {names}", path=str(folder))
    try:
        folder.mkdir(exist_ok=True)
        for name in _NAMES[kind]:
            _write(folder / name, _content(name, command))
        if kind == "server":
            _check_objects(git_dir)
    except OSError as error:
        raise GitopsError(Code.STORAGE_FAILED, f"cannot write the hooks: {error}", path=str(folder)) from error
    return _NAMES[kind]


def installed_hooks(git_dir: str, kind: HookKind) -> tuple[str, ...]:
    """Names of our hooks of one kind that git would run. Raises UsageError `not_a_repository`, GitopsError `hook_exists`."""
    folder = _folder(git_dir)
    return tuple(name for name in _NAMES[kind] if _is_ours(folder / name) and os.access(folder / name, os.X_OK))


def expected_hooks(kind: HookKind) -> tuple[str, ...]:
    """Names of the hooks of one kind."""
    return _NAMES[kind]


def stale_hooks(git_dir: str, kind: HookKind, command: Sequence[str]) -> tuple[str, ...]:
    """Names of our installed hooks that `install_hooks` with this `command` would change. Raises as `installed_hooks`."""
    folder = _folder(git_dir)
    return tuple(n for n in installed_hooks(git_dir, kind) if (folder / n).read_bytes() != _content(n, command))


def remove_hooks(git_dir: str, kind: HookKind) -> tuple[str, ...]:
    """Remove our hooks of one kind and return their names; other hooks stay.

    Raises UsageError `not_a_repository`, GitopsError `storage_failed`.
    """
    folder = Repository(git_dir).common_dir / "hooks"
    ours = tuple(name for name in _NAMES[kind] if _is_ours(folder / name))
    try:
        for name in ours:
            (folder / name).unlink()
    except OSError as error:
        raise GitopsError(Code.STORAGE_FAILED, f"cannot remove the hooks: {error}", path=str(folder)) from error
    return ours


def _content(name: str, command: Sequence[str]) -> bytes:
    """A hook that starts the program by this argument vector."""
    return (_templates() / name).read_bytes().replace(_PLACEHOLDER, os.fsencode(shlex.join(command)))


def _folder(git_dir: str) -> Path:
    """The hooks folder of the repository, if git runs what is in it and it belongs to this repository."""
    folder = Repository(git_dir).common_dir / "hooks"
    elsewhere = _hooks_path(git_dir)
    if elsewhere is not None:
        detail = f"core.hooksPath is set to {elsewhere!r}, so git does not run the hooks in {folder}"
        raise GitopsError(Code.HOOK_EXISTS, detail, path=elsewhere)
    if folder.is_symlink():
        raise GitopsError(Code.HOOK_EXISTS, f"{folder} is a link to {folder.readlink()}", path=str(folder))
    return folder


def _hooks_path(git_dir: str) -> str | None:
    """The value of `core.hooksPath` in the configuration that git reads when the user runs it, or None."""
    git = GitProgram(git_dir, as_user=True)
    # The system configuration counts here too; settings of this program have the scope `command`.
    output = git.run("config", "--show-scope", "-z", "--get-all", "core.hooksPath", extra={"GIT_CONFIG_NOSYSTEM": "0"})
    parts = output.stdout.decode("utf-8", "replace").split("\0")
    values = [value for scope, value in zip(parts[::2], parts[1::2], strict=False) if scope != "command"]
    return values[-1] if values else None


def _check_objects(git_dir: str) -> None:
    """Rule 5: an object that git's own check refuses can mean different things to different readers."""
    git = GitProgram(git_dir, as_user=True)
    if git.config("receive.fsckObjects") is None and git.config("transfer.fsckObjects") is None:
        answer = git.run("config", "--local", "--", "receive.fsckObjects", "true")
        if not answer.ok:
            raise GitopsError(Code.GIT_FAILED, f"cannot set receive.fsckObjects: {answer.stderr.strip()}", path=git_dir)


def _is_ours(path: Path) -> bool:
    """Whether a regular file carries our line."""
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return _MARK in file.read(_MAX_HOOK).splitlines()
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    """Replace a hook at once; an unchanged one is left alone."""
    if path.is_file() and path.read_bytes() == content and os.access(path, os.X_OK):
        return
    handle, name = tempfile.mkstemp(prefix=".gitops-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _templates() -> Traversable:
    """The folder inside an installed wheel, else the one of the source checkout."""
    packaged = files(gitops) / "_data" / "hooks"
    return packaged if packaged.is_dir() else Path(gitops.__file__).resolve().parent.parent / "hooks"
