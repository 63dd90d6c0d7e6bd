"""Who is acting: `--as`, else `git config gitops.actor`, else nobody."""

from __future__ import annotations

import argparse


def actor_of(options: argparse.Namespace) -> str | None:
    """The operator, by the order above."""
    given: str | None = getattr(options, "actor", None)
    return given or git_setting("gitops.actor", getattr(options, "config", None) or ".")


def git_setting(key: str, folder: str) -> str | None:
    """A value of the git configuration as seen from `folder`, whether that is in a repository or not."""
    # Imported here: verbs that only read never ask who acts.
    import shutil
    import subprocess

    git = shutil.which("git")
    if git is None:
        return None
    answer = subprocess.run(
        [git, "-C", folder, "config", "--get", "--", key], capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.strip() or None if answer.returncode == 0 else None
