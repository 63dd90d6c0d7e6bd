"""`lock.json`, version 1: who holds the ledger's lock. Written without a final newline."""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.documents import strict
from gitops.model.lock import LockInfo

__all__ = ["VERSION", "read_lock", "write_lock"]

VERSION = 1
_LIMIT = 64 * 1024


def read_lock(data: bytes) -> LockInfo:
    """Read the bytes of a lock document; `created_at` is kept as found.

    Raises IntegrityError `unsupported_state_lock_version` for another version, else `invalid_state_lock`.
    """
    with strict.refusing(Code.INVALID_STATE_LOCK):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "version", supported=VERSION, code=Code.UNSUPPORTED_STATE_LOCK_VERSION)
        fields = root.fields(("version", "lock_id", "operation", "created_at", "pid"))
        return LockInfo(
            lock_id=fields["lock_id"].text(),
            operation=fields["operation"].text(),
            created_at=fields["created_at"].text(),
            pid=fields["pid"].integer(),
        )


def write_lock(info: LockInfo) -> bytes:
    """The bytes of `info`."""
    form = {
        "version": VERSION,
        "lock_id": info.lock_id,
        "operation": info.operation,
        "created_at": info.created_at,
        "pid": info.pid,
    }
    return strict.encode(form, limit=_LIMIT).rstrip(b"\n")
