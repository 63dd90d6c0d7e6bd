"""A repository without its clusters: the work tree for `gitops init`, git hooks and index, and statement signatures."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from gitops.cluster.audit.statement import NAMESPACE
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, UsageError
from gitops.git import hooks
from gitops.git.command import GitProgram
from gitops.git.port import CommitSignature, GitReader
from gitops.git.repository import GitRepository
from gitops.git.signatures import make_key, read_public_key, sign, verify_detached
from gitops.repository.wiring.system import own_command

__all__ = [
    "Checkout",
    "install_hooks",
    "make_key",
    "open_checkout",
    "open_staged",
    "read_public_key",
    "remove_hooks",
    "sign_statement",
    "verify_statement",
]

_NOT_SET = 1
"""Exit code of `git config --get` for a key that is not set."""
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A work tree.

    `server` is the remote as a folder on this machine, and `host` is its host name. Either can be None.
    """

    root: str
    git: GitProgram
    server: str | None
    host: str | None
    name: str

    def branch(self) -> str | None:
        """Return the current branch, which need not have a commit yet, or None for a detached head."""
        found = self.git.run("symbolic-ref", "--quiet", "--short", "HEAD")
        return found.stdout.decode("utf-8", "replace").strip() or None if found.ok else None


def open_checkout(folder: str) -> Checkout:
    """Open the work tree whose root is `folder`. Raises UsageError `not_a_repository`, `usage_error`.

    `name` is the repository's path on its host, otherwise its folder name, without `.git`.
    """
    try:
        repository = GitRepository.discover(folder)
    except UsageError as error:
        if error.code is Code.NOT_A_REPOSITORY:
            error.fix = "change to the root of the repository; to create a new one here: git init"
        raise
    root = os.path.realpath(folder)
    if repository.work_tree is None:
        raise UsageError(Code.USAGE_ERROR, f"{folder} is a bare repository: run this in a clone of it")
    if os.path.realpath(repository.work_tree) != root:
        raise UsageError(
            Code.USAGE_ERROR,
            f"{folder} is not the root of the repository, where gitops.yaml is",
            fix=f"run this at its root: cd {shlex.quote(repository.work_tree)}",
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


def install_hooks(folder: str, *, server: bool, hooks_folder: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Install the hooks in a clone or, with `server`, on a server and its bare repositories.

    Returns the folder and the names of the hooks. With `hooks_folder`, server hooks are written there, because a host
    uses that folder for many repositories.
    """
    if hooks_folder is not None:
        return hooks_folder, hooks.write_hooks(Path(hooks_folder), "server", own_command())
    repository = GitRepository.discover(folder)
    kind: hooks.HookKind = "server" if server or repository.work_tree is None else "client"
    return repository.git_dir, hooks.install_hooks(repository.git_dir, kind, own_command())


@dataclass(frozen=True, slots=True)
class HookStatus:
    """A repository's hooks.

    `folder` is the folder in which git looks for hooks; `hidden` are our hooks that it does not run.
    """

    git_dir: str
    kind: hooks.HookKind
    folder: str
    states: Mapping[str, hooks.HookState]
    hidden: tuple[str, ...]


def hook_status(folder: str) -> HookStatus:
    """Check the hooks installed in a clone or a bare repository. Raises UsageError `not_a_repository`."""
    repository = GitRepository.discover(folder)
    git_dir = repository.git_dir
    kind: hooks.HookKind = "server" if repository.work_tree is None else "client"
    states = hooks.hook_states(git_dir, kind, own_command())
    return HookStatus(git_dir, kind, str(hooks.hooks_folder(git_dir)), states, hooks.hidden_hooks(git_dir, kind))


def has_server_hook(git_dir: str) -> bool:
    """Return True if the hook that checks pushes is installed. A hook that cannot be read counts as missing."""
    try:
        return "pre-receive" in hooks.installed_hooks(git_dir, "server")
    except GitopsError:
        return False


def remove_hooks(folder: str, hooks_folder: str | None = None) -> tuple[str, tuple[str, ...]]:
    """Remove all hooks that this program installed in a repository or in a hooks folder.

    Return the folder and their names.
    """
    if hooks_folder is not None:
        return hooks_folder, hooks.erase_hooks(Path(hooks_folder), "server")
    git_dir = GitRepository.discover(folder).git_dir
    return git_dir, hooks.remove_hooks(git_dir, "client") + hooks.remove_hooks(git_dir, "server")


def open_staged(environ: Mapping[str, str]) -> tuple[GitReader, str, bool]:
    """Return a pre-commit hook's repository, the tree of its index, and whether `gitops.formatCheck` is set.

    Raises UsageError if that git setting is not a boolean, GitopsError `git_failed`.
    """
    repository = GitRepository.discover(".")
    answer = GitProgram(repository.git_dir, as_user=True).run(
        "config", "--type=bool", "--get", "--", "gitops.formatCheck"
    )
    if not answer.ok and answer.status != _NOT_SET:
        fix = "git config gitops.formatCheck true"
        raise UsageError(Code.USAGE_ERROR, "git config gitops.formatCheck must be true or false", fix=fix)
    # The index that git prepared for this commit can differ from the repository's own index.
    index = environ.get("GIT_INDEX_FILE")
    extra = {} if index is None else {"GIT_INDEX_FILE": os.path.abspath(index)}  # noqa: PTH100 - links stay as they are
    written = GitProgram(repository.git_dir).run("write-tree", extra=extra)
    if not written.ok:
        raise GitopsError(Code.GIT_FAILED, f"cannot read the index: {written.stderr.strip()}")
    return repository, written.stdout.decode().strip(), answer.stdout.strip() == b"true"


def sign_statement(covered: bytes, key: str) -> tuple[str, CommitSignature]:
    """Sign an audit statement. Returns the armored SSH signature and the envelope.

    Raises GitopsError `signing_failed`.
    """
    armor = sign(covered, key, namespace=NAMESPACE)
    return armor, verify_statement(covered, armor)


def verify_statement(covered: bytes, armor: str) -> CommitSignature:
    """Check an audit statement's armored signature."""
    return verify_detached(covered, armor, NAMESPACE)


def diff_text(git_dir: str, base: str | None, head: str, *, stat: bool = False) -> str:
    """Return git's diff between two commits or trees, or of all files in the commit `head`.

    With `stat`, return only the number of changed lines per file. Raises GitopsError `git_failed`.
    """
    git = GitProgram(git_dir)
    known = ("--no-color", "--no-ext-diff", "--no-textconv", "--find-renames")
    if base is None:
        output = git.run("diff-tree", "-p", "--root", *known, "--no-commit-id", head)
    else:
        output = git.run("diff", *known, *(["--stat=100"] if stat else []), base, head, "--")
    if not output.ok:
        raise GitopsError(Code.GIT_FAILED, output.stderr.strip() or "git diff failed")
    return output.stdout.decode("utf-8", "replace")
