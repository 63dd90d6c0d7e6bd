"""The real clock and random ids, which lower packages get as arguments, this program, and settings outside repositories."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from gitops.core.clock import encode_ulids
from gitops.core.codes import Code
from gitops.core.errors import UsageError

Setting = Callable[[str], "str | None"]
"""Reads a value from the git configuration."""

_ENTROPY_BITS = 80
_OCTAL = re.compile(r"0?[67][0-7]{2}", re.ASCII)


def own_command() -> tuple[str, ...]:
    """Return the argument vector that starts this program in isolation: no file in the working directory is imported.

    Hooks run in the work tree. Without `-I`, `git commit` would run the code of a branch that contains
    `gitops/__main__.py` or `argparse.py`. Source: https://docs.python.org/3/using/cmdline.html#cmdoption-I
    """
    return (sys.executable, "-I", "-m", "gitops")


def process_has_ended(pid: int) -> bool:
    """Return True if no process on this machine has this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return pid > 0
    except (OSError, OverflowError):
        return False
    return False


def git_setting(key: str, folder: str) -> str | None:
    """Return the value that git reads for `key` in `folder`, which can be outside of any repository.

    Returns None if it is not set.
    """
    # Imported here, because read-only commands never need the operator.
    import shutil
    import subprocess

    from gitops.git.command import child_environment

    git = shutil.which("git")
    if git is None:
        return None
    argv = [git, "-C", folder, "config", "--get", "--", key]
    env = child_environment(os.environ, as_user=True)
    answer = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=30)
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def share_files(setting: str | None) -> None:
    """Make this process create files as git does in a repository with this `core.sharedRepository` (None if unset).

    Git sets the permissions itself. libgit2 and other code follow the umask, and files created with the usual umask
    prevent other group members from pushing. Raises UsageError for a value that git refuses. Source: git-config(1).
    """
    mode = (setting or "umask").lower()
    before = os.umask(0o077)
    if mode in ("group", "true", "yes", "on", "1"):
        os.umask(before & ~0o070)
    elif mode in ("all", "world", "everybody", "2"):
        os.umask(before & ~0o075)
    elif mode in ("umask", "false", "no", "off", "0"):
        os.umask(before)
    elif _OCTAL.fullmatch(mode):
        files = int(mode, 8) & 0o666
        # Whoever can read a folder can also enter it.
        os.umask(0o777 & ~(files | (files & 0o444) >> 2))
    else:
        fix = "git config core.sharedRepository group; or umask, all or an octal number"
        raise UsageError(Code.USAGE_ERROR, f"git config core.sharedRepository cannot be {setting!r}", fix=fix)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)  # noqa: TID251 - the one place where the clock is read

    def monotonic(self) -> float:
        """Return the seconds since a fixed moment, such as the machine's boot."""
        return time.monotonic()


class RandomIds:
    """ULIDs from the system's random source.

    Within a millisecond they are incremented, so they sort by creation time.
    """

    def __init__(self) -> None:
        """Create the generator."""
        self._guard = threading.Lock()
        self._last = (0, 0)

    def ulid(self) -> str:
        """Return a new id."""
        return self.ulids(1)[0]

    def ulids(self, count: int) -> list[str]:
        """Return new ids."""
        moment = int(datetime.now(UTC).timestamp() * 1000)  # noqa: TID251 - the one place where the clock is read
        with self._guard:
            last_moment, last_entropy = self._last
            if moment <= last_moment:
                moment, entropy = last_moment, last_entropy + 1
            else:
                entropy = int.from_bytes(os.urandom(_ENTROPY_BITS // 8))
            if (entropy + count - 1) >> _ENTROPY_BITS:
                moment, entropy = moment + 1, 0
            self._last = (moment, entropy + count - 1)
        return encode_ulids(moment, entropy, count)
