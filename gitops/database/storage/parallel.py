"""Several requests on their way at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(call: Callable[[T], R], items: Iterable[T], limit: int) -> list[R]:
    """Return the result of `call` for each item, in order, with at most `limit` concurrent calls.

    A limit of 1 calls sequentially in this thread. After a failure no further call begins; running calls are waited
    for, and the failure of the first failed item is raised.
    """
    waiting = list(items)
    if limit <= 1 or len(waiting) <= 1:
        return [call(item) for item in waiting]
    # Imported late: reading a folder runs nothing in parallel.
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
