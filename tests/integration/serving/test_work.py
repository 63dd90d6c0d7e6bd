"""Which work on graphs runs beside which."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from gitops.core.errors import GitopsError
from gitops.serving.http.work import Workers

NEVER_S = 3600.0


def run(made: Callable[[], Workers], told: Callable[[Workers], Awaitable[None]]) -> None:
    async def main() -> None:
        workers = made()
        try:
            await asyncio.wait_for(told(workers), 60)
        finally:
            await asyncio.to_thread(workers.close)

    asyncio.run(main())


def test_short_work_runs_one_after_the_other_in_one_thread():
    names, together, most = set(), 0, 0

    def short() -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        names.add(threading.current_thread().name)
        together -= 1

    async def told(workers: Workers) -> None:
        await asyncio.gather(*(workers.run(short) for _ in range(50)))

    run(lambda: Workers(4, NEVER_S), told)
    assert (most, len(names)) == (1, 1)


def test_long_work_leaves_the_others_their_turn_as_far_as_there_are_threads():
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def long() -> str:
        begun.release()
        assert go_on.wait(60)
        return "long"

    async def told(workers: Workers) -> None:
        waiting = [asyncio.ensure_future(workers.run(long)) for _ in range(3)]
        for _ in range(2):
            assert await asyncio.to_thread(begun.acquire, timeout=60)
        # Two of three threads are at work for long: the third long one takes the last.
        assert await asyncio.to_thread(begun.acquire, timeout=60)
        short = asyncio.ensure_future(workers.run(lambda: "short"))
        go_on.set()
        assert await asyncio.gather(*waiting, short) == ["long"] * 3 + ["short"]

    run(lambda: Workers(3, 0.001), told)


def test_short_work_is_done_while_long_work_goes_on_and_failures_reach_callers():
    go_on, begun = threading.Event(), threading.Event()

    def long() -> bool:
        begun.set()
        return go_on.wait(60)

    def fail() -> None:
        raise ValueError("at once")

    async def told(workers: Workers) -> None:
        waiting = asyncio.ensure_future(workers.run(long))
        assert await asyncio.to_thread(begun.wait, 60)
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))
        with pytest.raises(ValueError, match="at once"):
            await workers.run(fail)
        assert not waiting.done()
        go_on.set()
        assert await waiting

    run(lambda: Workers(2, 0.001), told)


def test_a_caller_that_is_cancelled_leaves_its_thread_at_work():
    go_on, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        go_on.wait(60)
        ended.set()
        raise ValueError("late")

    async def told(workers: Workers) -> None:
        waiting = asyncio.ensure_future(workers.run(long))
        assert await asyncio.to_thread(begun.wait, 60)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))
        assert not ended.is_set()
        go_on.set()
        assert await asyncio.to_thread(ended.wait, 60)
        assert [await workers.run(partial(abs, -n)) for n in range(5)] == list(range(5))

    run(lambda: Workers(2, 0.001), told)


@pytest.mark.parametrize("cancelled", [False, True])
def test_work_that_outlasts_its_limit_is_reported_whether_or_not_its_caller_is_there(cancelled):
    go_on, begun = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        go_on.wait(60)

    async def told(workers: Workers) -> None:
        exceeded = asyncio.Event()
        waiting = asyncio.ensure_future(workers.run(long, 0.001, exceeded.set))
        if cancelled:
            await asyncio.to_thread(begun.wait, 60)
            waiting.cancel()
        await exceeded.wait()
        assert workers.stuck == 1
        with pytest.raises(asyncio.CancelledError if cancelled else GitopsError):
            await waiting
        # What is stuck is not waited for.
        await asyncio.to_thread(workers.close)
        assert not go_on.is_set()
        go_on.set()

    run(lambda: Workers(2), told)


def test_work_within_its_limit_is_not_stuck():
    async def told(workers: Workers) -> None:
        exceeded: list[int] = []
        assert await workers.run(lambda: 7, NEVER_S, lambda: exceeded.append(1)) == 7
        assert (workers.stuck, exceeded) == (0, [])

    run(lambda: Workers(2), told)
