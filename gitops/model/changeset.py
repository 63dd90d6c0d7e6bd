"""Changeset keys: one plan's run, named by what it is about, so that a repeated event names the same run."""

from __future__ import annotations

import base64
import hashlib

from gitops.core.canonical import canonical


def changeset_key(cluster: str, kind: str, subject: str, *, attempt: int = 1, part: str = "1/1") -> str:
    """`chs-` and 16 characters of lower-case base32: the first 80 bits of a SHA-256 over the identifying facts.

    `kind` is `merge`, `retry`, `reconcile` or `tick`; `subject` is the merge commit for the first two.
    """
    form = {"attempt": attempt, "cluster": cluster, "kind": kind, "part": part, "subject": subject}
    return "chs-" + base64.b32encode(hashlib.sha256(canonical(form)).digest()[:10]).decode().lower()
