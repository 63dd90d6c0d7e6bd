"""What the texts of `gitops.yaml` may be."""

from __future__ import annotations

import re
from datetime import timedelta

_DURATION = re.compile(r"([1-9][0-9]{0,4})([dhm])\Z")
_WAIT = re.compile(r"(0|[1-9][0-9]{0,2})([ms])\Z")
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
# One name as in allowed-signers files: no list, no pattern.
PRINCIPAL = re.compile(r"[^\s,\"*?!\\]+")
# On a hosted forge an account is its number, which is never given again; on a bare repository, the name that the server checked.
ACCOUNT = re.compile(r"(?:(?:github|gitlab|gitea):[1-9][0-9]{0,18}|local:[A-Za-z0-9._@+-]{1,100})\Z", re.ASCII)
PROJECT = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){1,20}\Z", re.ASCII)
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}\Z", re.ASCII)
_MAX_TEXT = 1024


def is_plain(text: str) -> bool:
    """Whether a text is printable, and not longer than any rule needs."""
    return text.isprintable() and len(text) <= _MAX_TEXT


def is_path(text: str) -> bool:
    """Whether a text is a plain path inside the repository."""
    return is_plain(text) and not {"", ".", ".."}.intersection(text.split("/"))


def wait(value: object) -> timedelta:
    """The time that a run waits, by a text such as `30s` or `5m`; `0s` is none. Raises ValueError for anything else."""
    found = _WAIT.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a time to wait such as 0s, 30s or 5m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def is_branch(text: str) -> bool:
    """Whether git takes a text as the name of a branch."""
    unfit = any(not p or p.startswith(".") or p.endswith((".", ".lock")) for p in text.split("/"))
    return _BRANCH.match(text) is not None and not unfit and ".." not in text


def duration(value: object) -> timedelta:
    """The duration that a text such as `7d`, `12h` or `30m` says. Raises ValueError for anything else."""
    found = _DURATION.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a duration such as 7d, 12h or 30m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
