"""Runs several calls concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(call: Callable[[T], R], items: Iterable[T], limit: int) -> list[R]:
    """Call `call` for each item, with at most `limit` concurrent calls, and return the results in order.

    With a limit of 1, calls run sequentially in this thread. After a failure, no further calls start. Running calls are
    awaited, and the first failed item's error is raised.
    """
    waiting = list(items)
    if limit <= 1 or len(waiting) <= 1:
        return [call(item) for item in waiting]
    # Imported late, because reading a folder needs no threads.
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    pool = ThreadPoolExecutor(min(limit, len(waiting)), "parallel")
    try:
        calls = [pool.submit(call, item) for item in waiting]
        wait(calls, return_when=FIRST_EXCEPTION)
    finally:
        pool.shutdown(cancel_futures=True)
    for each in calls:
        if not each.cancelled() and (failure := each.exception()) is not None:
            raise failure
    return [each.result() for each in calls]
