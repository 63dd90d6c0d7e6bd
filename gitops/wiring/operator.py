"""People and hooks of a bare repository, from its git configuration, which no push can change.

It is read only when needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gitops.core.errors import GitopsError
from gitops.forge.port import Permission
from gitops.forge.refs.document_forge import OperatorSettings
from gitops.git.hooks import installed_hooks

__all__ = ["operator_of"]

# In rising order: a person in two lists has the higher permission.
_KEYS = {
    "gitops.writers": Permission.WRITE,
    "gitops.maintainers": Permission.MAINTAIN,
    "gitops.administrators": Permission.ADMIN,
}


def operator_of(
    setting: Callable[[str], str | None], git_dir: str | None, branches: Callable[[], Collection[str]]
) -> OperatorSettings:
    """Read the operator's settings of a repository. `setting` reads the git configuration.

    `git_dir` is the repository, None if it is on another machine, where its hooks are unknown; `branches` returns the full
    names of the branches that the hook protects.
    """

    def people() -> Mapping[str, Permission]:
        return {name: level for key, level in _KEYS.items() for name in (setting(key) or "").split()}

    def guarded() -> Collection[str] | None:
        if git_dir is None or not has_server_hook(git_dir):
            return None
        return frozenset(ref.removeprefix("refs/heads/") for ref in branches())

    return OperatorSettings(people, guarded)


def has_server_hook(git_dir: str) -> bool:
    """Whether the hook that checks pushes is installed; a hook that cannot be read counts as missing."""
    try:
        return "pre-receive" in installed_hooks(git_dir, "server")
    except GitopsError:
        return False
