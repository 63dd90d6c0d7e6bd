"""Workers: one event of a repository at a time, retried with pauses, given up in the end, released at a stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import pytest

from gitops.core.clock import Clock
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret
from gitops.forge.events import Event, HeadEvent, RequestAction, RequestEvent, TimerEvent
from gitops.repository.results import LogLine, RunResult
from gitops.repository.wiring.system import SystemClock
from gitops.server.queue import EventQueue, EventState, read_event
from gitops.server.service import RetryPolicy, WorkerPool
from gitops.server.shared import ServerContext
from tests.support.clock import FixedClock
from tests.support.serving import SECRET, Log, logger

ONE, TWO = "github:octo/one", "github:octo/two"
AT_ONCE = RetryPolicy(attempts=3, first=timedelta(0))


class Shop:
    """A queue with a pool; use as a context manager."""

    def __init__(
        self, folder: Path, handle: Callable[[str, Event], Iterator[LogLine]], clock: Clock | None = None
    ) -> None:
        self.clock, self.log = clock or SystemClock(), Log()
        self.context = ServerContext(self.clock, logger(self.log.write), Redactor([Secret("S", SECRET)]))
        self.queue = EventQueue(folder / "queue.db", self.clock)
        self.pool = WorkerPool(self.queue, handle, self.context, AT_ONCE)

    def __enter__(self) -> Self:
        self.queue.open_owned()
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.stop(timedelta(seconds=30))
        self.queue.close()

    def start(self, workers: int = 1, every: timedelta | None = None, tick_every: timedelta | None = None) -> None:
        self.pool.start(workers, (ONE,), every, tick_every)

    def offer(self, repository: str, letter: str) -> None:
        self.queue.enqueue(repository, HeadEvent(letter * 40))

    def states(self) -> list[tuple[str, str]]:
        return [(each.subject[5:6], each.state.value) for each in self.queue.listed()]


def quiet(repository: str, event: Event) -> Iterator[LogLine]:
    yield LogLine(f"looked at {event}")


def failing(*errors: Exception) -> Callable[[str, Event], Iterator[LogLine]]:
    """A handler that fails like this, one time after the other, then works."""
    left = list(errors)

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        yield LogLine("begun")
        if left:
            raise left.pop(0)

    return handle


def test_events_are_handled_in_line(tmp_path) -> None:
    with Shop(tmp_path, quiet) as shop:
        for letter in "abc":
            shop.offer(ONE, letter)
        shop.start()
        done = shop.log.until(": done", 3)
        assert [line.partition("#")[2][:1] for line in done] == ["1", "2", "3"]
        assert shop.states() == []


@pytest.mark.parametrize(
    "error",
    [
        RemoteError("forge_unavailable", "no answer", retryable=True),
        ConflictError("state_cas_mismatch", "somebody was faster"),
        ZeroDivisionError("a defect"),
    ],
)
def test_what_may_pass_is_tried_again(tmp_path, error) -> None:
    with Shop(tmp_path, failing(error, error)) as shop:
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("will be retried", 2)
        shop.log.until(": done")
        assert shop.states() == []
        text = shop.context.metrics.text(shop.queue.counts())
        assert 'gitops_events_total{outcome="retried"} 2' in text
        assert 'gitops_events_total{outcome="done"} 1' in text


def test_a_handler_that_crashes_every_time_is_given_up(tmp_path) -> None:
    with Shop(tmp_path, failing(*[ZeroDivisionError(f"with {SECRET}\x1b[2J")] * 9)) as shop:
        shop.offer(ONE, "a")
        shop.offer(ONE, "b")
        shop.start()
        shop.log.until("given up after 3 attempt(s)", 2)
        assert shop.states() == [("a", "failed"), ("b", "failed")]
        (reason, _) = [each.reason for each in shop.queue.listed()]
        assert reason == "internal_error: ZeroDivisionError: with [redacted]\\x1b[2J"
        assert SECRET not in "".join(shop.log.lines)


@pytest.mark.parametrize(
    "error",
    [RemoteError("forge_refused", "the token is wrong", status=401), GitopsError("bot_config_invalid", "no such key")],
)
def test_what_cannot_pass_is_given_up_at_once(tmp_path, error) -> None:
    with Shop(tmp_path, failing(error)) as shop:
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("given up after 1 attempt(s)")
        assert shop.queue.listed()[0].reason == f"{error.code}: {error.detail}"


def test_a_lost_race_is_run_again_and_a_problem_is_told_already(tmp_path) -> None:
    verdicts = [RunResult.LOST, RunResult.PROBLEMS]

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        yield LogLine("a verdict", verdicts.pop(0))

    with Shop(tmp_path, handle) as shop:
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("will be retried")
        shop.log.until(": done")
        assert verdicts == []


def test_what_cannot_be_read_is_given_up(tmp_path) -> None:
    with Shop(tmp_path, quiet) as shop:
        shop.offer(ONE, "a")
        with shop.queue.writing() as database:
            database.execute("UPDATE event SET document = ?", (b'{"version": 9, "kind": "head"}',))
        shop.start()
        shop.log.until("given up")
        assert shop.queue.listed()[0].reason.startswith("queue_event_invalid")


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 10), (2, 20), (7, 640), (8, None), (9, None)])
def test_pauses_grow_up_to_an_end(attempts, seconds) -> None:
    pause = RetryPolicy().pause(attempts)
    assert (None if pause is None else pause.total_seconds()) == seconds
    assert RetryPolicy(attempts=100).pause(99) == timedelta(minutes=15)


def test_a_pause_is_kept(tmp_path) -> None:
    clock = FixedClock(datetime(2026, 3, 1, tzinfo=UTC))
    with Shop(tmp_path, failing(ZeroDivisionError()), clock) as shop:
        shop.pool = WorkerPool(shop.queue, shop.pool._handle, shop.context, RetryPolicy())
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("will be retried in 0:00:10")
        assert shop.queue.take() is None
        clock.advance(timedelta(seconds=10))
        shop.queue.wake()
        shop.log.until(": done")


def test_no_two_of_one_repository_run_at_once(tmp_path) -> None:
    """Two workers: while one works for a repository, the other works for another, and leaves the first one alone."""
    both, over = threading.Barrier(2, timeout=30), threading.Event()
    busy: list[str] = []
    together: list[tuple[str, ...]] = []

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        busy.append(repository)
        together.append(tuple(busy))
        if event == HeadEvent("a" * 40):
            both.wait()
            over.wait(30)
        busy.remove(repository)
        yield LogLine("worked")

    with Shop(tmp_path, handle) as shop:
        for letter in "ab":
            shop.offer(ONE, letter)
            shop.offer(TWO, letter)
        shop.start(workers=2)
        both_are_in = shop.log.until("head aaaa", 2)
        assert len(both_are_in) == 2
        assert [each.state for each in shop.queue.listed()] == [EventState.RUNNING] * 2 + [EventState.WAITING] * 2
        over.set()
        shop.log.until(": done", 4)
    assert all(len(set(names)) == len(names) for names in together)


def test_a_burst_is_few_runs(tmp_path) -> None:
    """200 moves of one request while one is handled: one more run, with the newest."""
    gate, seen = threading.Event(), []

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        seen.append(event)
        gate.wait(30)
        yield LogLine("planned")

    with Shop(tmp_path, handle) as shop:
        shop.start()
        for number in range(200):
            shop.queue.enqueue(ONE, RequestEvent(1, RequestAction.UPDATED, f"{number:040x}"), (f"id:{number}",))
            if number == 0:
                shop.log.until("request 1")
        gate.set()
        shop.log.until(": done", 2)
        assert [event.head for event in seen] == [f"{0:040x}", f"{199:040x}"]
        assert shop.states() == []


def test_stopping_waits_for_what_runs(tmp_path) -> None:
    gate = threading.Event()

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        yield LogLine("in the middle")
        gate.wait(30)
        yield LogLine("at the end")

    with Shop(tmp_path, handle) as shop:
        shop.offer(ONE, "a")
        shop.offer(ONE, "b")
        shop.start()
        shop.log.until("in the middle")
        threading.Thread(target=lambda: (shop.context.stop.wait(30), gate.set())).start()
        assert shop.pool.stop(timedelta(seconds=30))
        assert shop.states() == [("b", "waiting")]


def test_what_does_not_end_in_time_is_given_back(tmp_path) -> None:
    gate = threading.Event()

    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        yield LogLine("in the middle")
        gate.wait(30)

    with Shop(tmp_path, handle) as shop:
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("in the middle")
        assert not shop.pool.stop(timedelta(0))
        assert shop.states() == [("a", "waiting")]
        assert shop.queue.listed()[0].attempts == 0
        gate.set()


def test_who_waits_for_a_forge_is_given_back_when_the_server_stops(tmp_path) -> None:
    def handle(repository: str, event: Event) -> Iterator[LogLine]:
        yield LogLine("waits for the rate limit")
        shop.context.stop.pause(30)

    with Shop(tmp_path, handle) as shop:
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("waits for the rate limit")
        assert shop.pool.stop(timedelta(seconds=30))
        assert shop.states() == [("a", "waiting")]
        assert shop.queue.listed()[0].attempts == 0


def test_the_first_tick_comes_at_once_and_others_follow(tmp_path) -> None:
    with Shop(tmp_path, quiet) as shop:
        shop.start(every=timedelta(milliseconds=20))
        shop.log.until("#1: timer")
        shop.log.until(": timer", 2)
        assert not shop.context.stop.is_set()
        assert shop.pool.alive


def test_ticks_of_strategies_have_a_time_of_their_own(tmp_path) -> None:
    with Shop(tmp_path, quiet) as shop:
        shop.start(every=None, tick_every=timedelta(milliseconds=20))
        shop.log.until("#1: tick")
        shop.log.until(": tick", 2)
        assert not shop.context.stop.is_set()
        assert shop.pool.alive


def test_ticks_do_not_pile_up(tmp_path) -> None:
    with Shop(tmp_path, quiet) as shop:
        for _ in range(5):
            shop.queue.enqueue(ONE, TimerEvent())
        (task,) = [shop.queue.take()]
        assert read_event(task.document) == TimerEvent()
        assert len(shop.queue.listed()) == 1


def test_a_queue_that_cannot_be_written_stops_nothing_for_good(tmp_path, monkeypatch) -> None:
    with Shop(tmp_path, quiet) as shop:
        finish, failures = shop.queue.finish, [GitopsError("queue_unusable", "disk full")]

        def full(task):
            if failures:
                raise failures.pop()
            finish(task)

        monkeypatch.setattr(shop.queue, "finish", full)
        monkeypatch.setattr("gitops.server.service._LOOK_AGAIN", timedelta(milliseconds=1))
        shop.offer(ONE, "a")
        shop.start()
        shop.log.until("queue_unusable: disk full")
        shop.log.until(": done")
        assert shop.states() == []
