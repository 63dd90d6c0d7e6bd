"""The shape of object keys, one rule for every store.

A key is a relative POSIX path of visible, ordinary names. Names that begin with `TEMP_PREFIX` belong to the store itself.
"""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.core.errors import RemoteError

TEMP_PREFIX = ".tmp-"
_MAX_KEY = 1024
_MAX_PART = 255


def split_key(key: str) -> tuple[str, ...]:
    """The parts of `key`. Raises RemoteError `storage_failed` for a key that could leave the root or hide in it."""
    parts = tuple(key.split("/"))
    if len(key) > _MAX_KEY or not all(_is_plain(part) for part in parts):
        raise RemoteError(
            Code.STORAGE_FAILED, f"{key[:80]!r} is not a key: use relative names without '.' and '..'", path=key[:80]
        )
    return parts


def split_prefix(prefix: str) -> tuple[str, ...]:
    """As `split_key`, where the empty text stands for the root and one final slash is allowed."""
    return split_key(prefix.removesuffix("/")) if prefix else ()


def _is_plain(part: str) -> bool:
    if part in ("", ".", "..") or part.startswith(TEMP_PREFIX) or "\\" in part or not part.isprintable():
        return False
    return len(part.encode("utf-8", "replace")) <= _MAX_PART
