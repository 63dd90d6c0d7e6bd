"""Retries after a conflict with another writer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from gitops.core.codes import Code
from gitops.core.errors import ConflictError

__all__ = ["ATTEMPTS", "retry_until_published", "sleep_jittered"]

ATTEMPTS = 32
_FIRST_S = 0.005
_LONGEST_S = 0.5

T = TypeVar("T")


def retry_until_published(attempt: Callable[[], T], pause: Callable[[int], None]) -> T:
    """Call until the attempt meets no conflict, at most 32 times; `pause` gets the number of failed attempts.

    Raises ConflictError `graph_conflict` after the last attempt, and whatever else the attempt raises.
    """
    for failed in range(1, ATTEMPTS):
        try:
            return attempt()
        except ConflictError as error:
            if error.code != Code.GRAPH_CONFLICT:
                raise
        pause(failed)
    return attempt()


def sleep_jittered(failed: int) -> None:
    """Sleep a random while, longer the more attempts have failed, at most half a second."""
    time.sleep(random.uniform(0, min(_LONGEST_S, _FIRST_S * 2**failed)))  # noqa: S311 - spreads writers, keeps no secret
