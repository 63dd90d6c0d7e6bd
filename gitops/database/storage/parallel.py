"""Several requests on their way at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(call: Callable[[T], R], items: Iterable[T], limit: int) -> list[R]:
    """What `call` gives for each item, in the order of the items, with at most `limit` calls at the same time.

    A limit of 1 calls one after another in this thread. After a failure no further call begins; the calls that run are waited
    for, and the failure of the first item that has one is raised.
    """
    waiting = list(items)
    if limit <= 1 or len(waiting) <= 1:
        return [call(item) for item in waiting]
    # Imported late: on a folder nothing runs in parallel.
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
