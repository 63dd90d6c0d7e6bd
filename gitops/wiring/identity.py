"""A value of the git configuration, read without opening a repository."""

from __future__ import annotations


def git_setting(key: str, folder: str) -> str | None:
    """The value of `key` as git reads it in `folder`, which may be outside any repository. None if it is not set."""
    # Imported here: commands that only read never need the operator.
    import shutil
    import subprocess

    git = shutil.which("git")
    if git is None:
        return None
    answer = subprocess.run(
        [git, "-C", folder, "config", "--get", "--", key], capture_output=True, text=True, check=False, timeout=30
    )
    return answer.stdout.strip() or None if answer.returncode == 0 else None
