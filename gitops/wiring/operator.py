"""What the operator of a bare repository says of people and hooks, in a place that no push reaches: its git configuration.

It is read when it is asked for, so that commands which ask nothing pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gitops.core.errors import GitopsError
from gitops.forge.port import Permission
from gitops.forge.refs.recorded import Operator
from gitops.git.hooks import installed_hooks

__all__ = ["operator_of"]

# In rising order: who is named twice may what the later one says.
_KEYS = {
    "gitops.writers": Permission.WRITE,
    "gitops.maintainers": Permission.MAINTAIN,
    "gitops.administrators": Permission.ADMIN,
}


def operator_of(
    setting: Callable[[str], str | None], git_dir: str | None, branches: Callable[[], Collection[str]]
) -> Operator:
    """The operator of a repository. `setting` reads the git configuration.

    `git_dir` is the repository itself, None where it is elsewhere and nobody here can see its hooks; `branches` are the full
    names of those that the hook protects.
    """

    def people() -> Mapping[str, Permission]:
        return {name: level for key, level in _KEYS.items() for name in (setting(key) or "").split()}

    def guarded() -> Collection[str] | None:
        if git_dir is None or not _is_guarded(git_dir):
            return None
        return frozenset(ref.removeprefix("refs/heads/") for ref in branches())

    return Operator(people, guarded)


def _is_guarded(git_dir: str) -> bool:
    """Whether the hook that judges pushes is installed; one that cannot be looked at is none."""
    try:
        return "pre-receive" in installed_hooks(git_dir, "server")
    except GitopsError:
        return False
