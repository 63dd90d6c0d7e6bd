"""The exclusive lock of a ledger, as a document and as an observation."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.core.codes import Code


@dataclass(frozen=True, slots=True)
class LockInfo:
    """`lock.json`, version 1. `created_at` is RFC 3339 text as found; `pid` is the holder's process id on its host."""

    lock_id: str
    operation: str
    created_at: str
    pid: int


@dataclass(frozen=True, slots=True)
class LockObservation:
    """What is seen of a lock. `problem` is a code when the lock exists but cannot be read as version 1."""

    held: bool
    info: LockInfo | None = None
    problem: Code | None = None
    detail: str = ""
