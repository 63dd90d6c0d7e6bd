"""How much a test tries: little by default, all of it where `GITOPS_TESTS=full` asks for it (`make test-slow`)."""

from __future__ import annotations

import os

FULL = os.environ.get("GITOPS_TESTS") == "full"
_SHARE = 10
_LEAST = 8


def cases(count: int) -> int:
    """`count` generated cases in a full run; a tenth of them, and at least eight, in a quick one."""
    return count if FULL else min(count, max(_LEAST, count // _SHARE))
