"""Installs and removes the hooks that call this program, in one repository or in a folder that many repositories use.

Rules:

1. A hook that this program did not write is never overwritten or removed; ours are recognised by a special line.
2. A hook contains the absolute path of the program, quoted for the shell. It neither searches PATH nor expands
   anything.
3. All checks come before the first write. Each hook is written atomically, as an executable file.
4. Only the repository's own hooks folder, or an explicitly given one, is written. If git looks elsewhere
   (`core.hooksPath`), or another program has a hook, the message contains the line that makes that hook start this
   program. Such a hook counts as installed, and so does a link to one of ours: gitolite makes such links to its
   `hooks/common`.
5. A server is configured to check received objects (`receive.fsckObjects`) and to accept signed pushes
   (`receive.certNonceSeed`, `receive.certNonceSlop`), unless its operator has set that. Git's own verdict on them is not used: an
   empty `gpg.ssh.allowedSignersFile` prevents git from printing an error about it to everyone who pushes.

Source: githooks(5), git-config(1) `core.hooksPath`, `receive.fsckObjects`, `receive.certNonceSeed`, `gpg.ssh.allowedSignersFile`,
https://gitolite.com/gitolite/cookbook#adding-other-non-update-hooks
"""

from __future__ import annotations

import os
import secrets
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Literal

import gitops
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.git.command import GitProgram
from gitops.git.repository import GitRepository

HookKind = Literal["client", "server"]


class HookState(StrEnum):
    """State of a hook: CURRENT runs exactly this program, OTHER a different release or installation, FOREIGN another program."""

    CURRENT = "current"
    OTHER = "other"
    FOREIGN = "foreign"
    MISSING = "missing"


_NAMES: Mapping[HookKind, tuple[str, ...]] = {
    "client": ("pre-commit", "commit-msg", "pre-push"),
    "server": ("pre-receive", "post-receive"),
}
_WITH_INPUT = frozenset({"pre-receive", "post-receive", "pre-push"})
_MARK = b"# managed by gitops"
_CALL = b" hook run %s "
_PLACEHOLDER = b"@GITOPS@"
_MODE = 0o755
_MAX_HOOK = 64 * 1024
_NONCE_SLOP_S = "300"


def install_hooks(git_dir: str, kind: HookKind, command: Sequence[str]) -> tuple[str, ...]:
    """Install the hooks of one kind into the repository `git_dir` and return their names. Idempotent.

    `command` is the argument vector that starts this program; its first item is an absolute path. Raises UsageError
    `usage_error` for any other command or for server hooks in a clone, `not_a_repository`, GitopsError `hook_exists` and
    `storage_failed`.
    """
    repository = GitRepository(git_dir)
    if kind == "server" and repository.work_tree is not None:
        detail = f"{repository.work_tree} is a clone: server hooks belong in the bare repository that people push to"
        raise UsageError(Code.USAGE_ERROR, detail, fix="for the hooks of a clone: gitops hook install")
    own, used = repository.common_dir / "hooks", hooks_folder(git_dir)
    if all(_starts(used / name, name, command) for name in _NAMES[kind]):
        if kind == "server":
            _configure_server(git_dir)
        return _NAMES[kind]
    if used != own:
        detail = f"core.hooksPath is set, so git runs the hooks in {used} and not those in {own}"
        scope, _ = _hooks_path(git_dir) or ("local", "")
        unset = ("git", "-C", repository.git_dir, "config", f"--{scope}", "--unset", "core.hooksPath")
        raise _exists(
            used, detail, _NAMES[kind], command, f"let git run the hooks of the repository: {shlex.join(unset)}"
        )
    if own.is_symlink():
        detail = f"{own} is a link to {own.readlink()}"
        raise _exists(own, detail, _NAMES[kind], command, f"remove the link: {shlex.join(('rm', str(own)))}")
    names = write_hooks(own, kind, command)
    if kind == "server":
        _configure_server(git_dir)
    return names


def write_hooks(folder: Path, kind: HookKind, command: Sequence[str]) -> tuple[str, ...]:
    """Write the hooks of one kind into a hooks folder. Returns and raises the same as `install_hooks`."""
    if not command or not Path(command[0]).is_absolute() or any("\0" in part for part in command):
        raise UsageError(Code.USAGE_ERROR, "hooks start the program by an absolute path")
    left = [name for name in _NAMES[kind] if not _starts(folder / name, name, command)]
    foreign = [name for name in left if os.path.lexists(folder / name) and not _is_ours(folder / name)]
    if foreign:
        detail = f"not written by gitops: {', '.join(str(folder / name) for name in foreign)}"
        moves = (shlex.join(("mv", str(folder / name), str(folder / f"{name}.old"))) for name in foreign)
        raise _exists(folder, detail, foreign, command, f"move them away: {'; '.join(moves)}")
    try:
        folder.mkdir(exist_ok=True)
        for name in left:
            _write(folder / name, _content(name, command))
    except OSError as error:
        raise GitopsError(Code.STORAGE_FAILED, f"cannot write the hooks: {error}", path=str(folder)) from error
    return _NAMES[kind]


def hooks_folder(git_dir: str) -> Path:
    """Return the folder whose hooks git runs for a repository. Raises UsageError `not_a_repository`."""
    repository = GitRepository(git_dir)
    elsewhere = _hooks_path(git_dir)
    # A relative path starts at the folder that hooks run in.
    base = Path(repository.work_tree or repository.git_dir)
    return repository.common_dir / "hooks" if elsewhere is None else base / elsewhere[1]


def installed_hooks(git_dir: str, kind: HookKind) -> tuple[str, ...]:
    """Return the names of hooks of one kind that git would run and that start this program.

    Raises UsageError `not_a_repository`.
    """
    folder = hooks_folder(git_dir)
    found = {name: _hook_text(folder / name) for name in _NAMES[kind] if os.access(folder / name, os.X_OK)}
    ours = []
    for name, text in found.items():
        lines, call = text.splitlines(), _CALL % name.encode()
        # A hook written by a person can also contain a command that starts this program.
        if _MARK in lines or any(call in line for line in lines if not line.lstrip().startswith(b"#")):
            ours.append(name)
    return tuple(ours)


def expected_hooks(kind: HookKind) -> tuple[str, ...]:
    """Return the names of the hooks of one kind."""
    return _NAMES[kind]


def stale_hooks(git_dir: str, kind: HookKind, command: Sequence[str]) -> tuple[str, ...]:
    """Return the names of installed hooks that do not run exactly `command`. Raises the same as `installed_hooks`."""
    folder = hooks_folder(git_dir)
    return tuple(n for n in installed_hooks(git_dir, kind) if not _starts(folder / n, n, command))


def hook_states(git_dir: str, kind: HookKind, command: Sequence[str]) -> dict[str, HookState]:
    """Return the state of each hook of one kind in the folder that git uses. Raises UsageError `not_a_repository`."""
    folder, installed = hooks_folder(git_dir), installed_hooks(git_dir, kind)
    states: dict[str, HookState] = {}
    for name in _NAMES[kind]:
        if name in installed:
            states[name] = HookState.CURRENT if _starts(folder / name, name, command) else HookState.OTHER
        else:
            states[name] = HookState.FOREIGN if os.path.lexists(folder / name) else HookState.MISSING
    return states


def hidden_hooks(git_dir: str, kind: HookKind) -> tuple[str, ...]:
    """Return our hooks in the repository's own folder. Git ignores them if `core.hooksPath` is set to a different folder."""
    own = GitRepository(git_dir).common_dir / "hooks"
    return () if hooks_folder(git_dir) == own else tuple(name for name in _NAMES[kind] if _is_ours(own / name))


def remove_hooks(git_dir: str, kind: HookKind) -> tuple[str, ...]:
    """Remove our hooks of one kind from a repository and return their names. Other hooks are kept.

    Raises UsageError `not_a_repository`, GitopsError `storage_failed`.
    """
    return erase_hooks(GitRepository(git_dir).common_dir / "hooks", kind)


def erase_hooks(folder: Path, kind: HookKind) -> tuple[str, ...]:
    """Remove our hooks of one kind from a hooks folder. Returns and raises the same as `remove_hooks`."""
    ours = tuple(name for name in _NAMES[kind] if _is_ours(folder / name))
    try:
        for name in ours:
            (folder / name).unlink()
    except OSError as error:
        raise GitopsError(Code.STORAGE_FAILED, f"cannot remove the hooks: {error}", path=str(folder)) from error
    return ours


def _content(name: str, command: Sequence[str]) -> bytes:
    """Return a hook that starts the program with this argument vector."""
    # In an installed wheel, otherwise in the source checkout.
    packaged = files(gitops) / "_data" / "hooks"
    templates = packaged if packaged.is_dir() else Path(gitops.__file__).resolve().parent.parent / "hooks"
    return (templates / name).read_bytes().replace(_PLACEHOLDER, os.fsencode(shlex.join(command)))


def _starts(path: Path, name: str, command: Sequence[str]) -> bool:
    """Return True if a hook, or its link target, starts exactly this program."""
    text = _hook_text(path)
    return os.access(path, os.X_OK) and (text == _content(name, command) or os.fsencode(_line(name, command)) in text)


def _line(name: str, command: Sequence[str]) -> str:
    """Return the shell script line that starts the program as a hook, and leaves its input for the rest of the script."""
    start = f'{shlex.join((*command, "hook", "run", name))} "$@"'
    if name not in _WITH_INPUT:
        return f"{start} || exit 1"
    return f'g=$(mktemp) && cat >"$g" && {start} <"$g" && exec <"$g" && rm -f "$g" || exit 1'


def _exists(folder: Path, detail: str, names: Sequence[str], command: Sequence[str], instead: str) -> GitopsError:
    """Return the error about hooks of another program, with what their owner can add to them, or do `instead`."""
    lines = "; ".join(f"to {folder / name} add: {_line(name, command)}" for name in names)
    advice = f"In shell scripts one line is enough, as the first command: {lines}"
    fix = f"add the lines in the message to the hooks there; or {instead}; then run: gitops hook install"
    return GitopsError(Code.HOOK_EXISTS, f"{detail}. {advice}", path=str(folder), fix=fix)


def _hooks_path(git_dir: str) -> tuple[str, str] | None:
    """Return the scope and value of `core.hooksPath` in the configuration that git reads for this user, or None."""
    git = GitProgram(git_dir, as_user=True)
    # The system configuration also counts here. Settings by this program have the scope `command`.
    keys = ("--type=path", "--get-all", "core.hooksPath")
    output = git.run("config", "--show-scope", "-z", *keys, extra={"GIT_CONFIG_NOSYSTEM": "0"})
    parts = output.stdout.decode("utf-8", "replace").split("\0")
    values = [each for each in zip(parts[::2], parts[1::2], strict=False) if each[0] != "command"]
    return values[-1] if values else None


def _configure_server(git_dir: str) -> None:
    """Apply rule 5. An object that git's own check refuses can mean different things to different readers.

    Without the secret seed, git accepts no push certificate. Over HTTP, the age of a nonce includes the runtime of the
    client's hook.
    """
    git = GitProgram(git_dir, as_user=True)
    wanted = {
        "receive.certNonceSeed": secrets.token_hex(32),
        "receive.certNonceSlop": _NONCE_SLOP_S,
        "gpg.ssh.allowedSignersFile": os.devnull,
    }
    if git.config("transfer.fsckObjects") is None:
        wanted["receive.fsckObjects"] = "true"
    for name, value in wanted.items():
        answer = git.run("config", "--local", "--", name, value) if git.config(name) is None else None
        if answer is not None and not answer.ok:
            raise GitopsError(Code.GIT_FAILED, f"cannot set {name}: {answer.stderr.strip()}", path=git_dir)


def _is_ours(path: Path) -> bool:
    """Return True if a regular file has our line."""
    return not path.is_symlink() and _MARK in _hook_text(path).splitlines()


def _hook_text(path: Path) -> bytes:
    """Return the beginning of a hook, following links; empty if it is not a readable file."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_HOOK) if path.is_file() else b""
    except OSError:
        return b""


def _write(path: Path, content: bytes) -> None:
    """Replace a hook atomically. A hook with the same content is not touched."""
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
