"""What parsed options mean: which repository, which remote, and who is acting."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gitops.wiring.identity import git_setting

if TYPE_CHECKING:
    from gitops.wiring.project import RepositoryChoice


def actor_of(options: argparse.Namespace) -> str | None:
    """The operator: `--as`, else `git config gitops.actor`, else None."""
    given: str | None = getattr(options, "actor", None)
    return given or git_setting("gitops.actor", getattr(options, "config", None) or ".")


def choice_of(options: argparse.Namespace, *, offline: bool = False) -> RepositoryChoice:
    """The repository of `--repo`, else the one around `--config` or the current folder; and the remote of `--remote`."""
    from gitops.wiring.project import RepositoryChoice

    return RepositoryChoice(options.repo or getattr(options, "config", None) or ".", options.remote, offline)
