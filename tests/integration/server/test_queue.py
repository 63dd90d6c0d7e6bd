"""The rules of the queue: kept, once, in line, one at a time for a repository, and nothing lost when a process dies."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.forge.events import CommentEvent, HeadEvent, RequestAction, RequestEvent, TimerEvent
from gitops.forge.port import Account
from gitops.repository.wiring.system import SystemClock
from gitops.server.queue import EnqueueResult, EventQueue, EventState, read_event
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.pages import ROOT

START = datetime(2026, 3, 1, tzinfo=UTC)
ONE, TWO = "github:octo/one", "github:octo/two"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock(START)


@pytest.fixture
def queue(tmp_path: Path, clock: FixedClock):
    opened = EventQueue(tmp_path / "queue.db", clock, most=5, attempts=3)
    opened.open_owned()
    yield opened
    opened.close()


def again(queue: EventQueue, tmp_path: Path, clock: FixedClock) -> EventQueue:
    """The queue as the next process finds it."""
    queue.close()
    opened = EventQueue(tmp_path / "queue.db", clock, attempts=3)
    opened.open_owned()
    return opened


def move(number: int, head: str = "a") -> RequestEvent:
    return RequestEvent(number, RequestAction.UPDATED, head * 40)


def standing(queue: EventQueue) -> list[tuple[str, str]]:
    return [(each.subject, each.state.value) for each in queue.listed()]


def test_what_is_offered_is_there_for_the_next_process(queue, tmp_path, clock) -> None:
    assert queue.enqueue(ONE, move(1)) is EnqueueResult.QUEUED
    after = again(queue, tmp_path, clock)
    task = after.take()
    assert task is not None
    assert (task.repository, read_event(task.document), task.attempts) == (ONE, move(1), 1)
    after.finish(task)
    assert after.listed() == ()
    after.close()


def test_a_delivery_is_done_once(queue) -> None:
    assert queue.enqueue(ONE, move(1), ("id:1", "body:x")) is EnqueueResult.QUEUED
    assert queue.enqueue(ONE, move(1), ("id:1", "body:x")) is EnqueueResult.KNOWN
    task = queue.take()
    assert queue.enqueue(ONE, move(1), ("id:1",)) is EnqueueResult.KNOWN
    queue.finish(task)
    assert queue.enqueue(ONE, move(1), ("id:2", "body:x")) is EnqueueResult.KNOWN
    assert queue.take() is None


def test_deliveries_are_remembered_for_two_weeks(queue, clock) -> None:
    queue.enqueue(ONE, move(1), ("id:1",))
    queue.finish(queue.take())
    clock.advance(timedelta(days=13))
    assert queue.enqueue(ONE, move(1), ("id:1",)) is EnqueueResult.KNOWN
    clock.advance(timedelta(days=2))
    assert queue.enqueue(ONE, move(1), ("id:1",)) is EnqueueResult.QUEUED


def test_the_newest_of_a_subject_takes_the_place_of_the_first(queue) -> None:
    queue.enqueue(ONE, move(1, "a"))
    queue.enqueue(ONE, move(2))
    assert queue.enqueue(ONE, move(1, "b")) is EnqueueResult.MERGED
    assert queue.enqueue(TWO, move(1, "c")) is EnqueueResult.QUEUED
    first = queue.take()
    assert read_event(first.document) == move(1, "b")


def test_what_comes_while_its_subject_runs_runs_after_it(queue) -> None:
    queue.enqueue(ONE, move(1, "a"))
    first = queue.take()
    assert queue.enqueue(ONE, move(1, "b")) is EnqueueResult.QUEUED
    assert queue.take() is None
    queue.finish(first)
    assert read_event(queue.take().document) == move(1, "b")


def test_repositories_do_not_wait_for_each_other(queue) -> None:
    for repository in (ONE, TWO):
        queue.enqueue(repository, move(1))
        queue.enqueue(repository, move(2))
    taken = [queue.take(), queue.take()]
    assert [task.repository for task in taken] == [ONE, TWO]
    assert queue.take() is None


def test_what_may_pass_waits_and_lets_others_by(queue, clock) -> None:
    queue.enqueue(ONE, move(1))
    queue.enqueue(ONE, move(2))
    queue.postpone(queue.take(), timedelta(seconds=10), "forge_unavailable: later")
    assert read_event(queue.take().document) == move(2)
    (waiting, _) = queue.listed()
    assert (waiting.state, waiting.attempts, waiting.reason) == (EventState.WAITING, 1, "forge_unavailable: later")
    assert waiting.due - waiting.received == 10_000


def test_it_is_due_when_its_time_has_come(queue, clock) -> None:
    queue.enqueue(ONE, move(1))
    queue.postpone(queue.take(), timedelta(seconds=10), "later")
    assert queue.take() is None
    clock.advance(timedelta(seconds=10))
    assert queue.take().attempts == 2


def test_a_newer_event_makes_a_failed_attempt_needless(queue) -> None:
    queue.enqueue(ONE, move(1, "a"))
    task = queue.take()
    queue.enqueue(ONE, move(1, "b"))
    queue.postpone(task, timedelta(seconds=10), "later")
    assert standing(queue) == [("request 1", "waiting")]
    assert read_event(queue.take().document) == move(1, "b")


def test_what_is_given_up_stays_until_somebody_decides(queue, tmp_path, clock) -> None:
    queue.enqueue(ONE, move(1), ("id:1",))
    queue.give_up(queue.take(), "a defect " + "x" * 1000)
    after = again(queue, tmp_path, clock)
    (failed,) = after.listed()
    assert failed.state is EventState.FAILED
    assert len(failed.reason) == 500
    assert after.take() is None
    after.retry(failed.number)
    assert after.take().attempts == 1
    after.close()


def test_delivering_again_what_was_given_up_tries_it_again(queue) -> None:
    queue.enqueue(ONE, move(1), ("id:1",))
    queue.give_up(queue.take(), "a defect")
    assert queue.enqueue(ONE, move(1), ("id:1",)) is EnqueueResult.RETRIED
    assert queue.take().attempts == 1


def test_success_of_a_later_one_settles_what_was_given_up(queue) -> None:
    queue.enqueue(ONE, move(1, "a"))
    queue.give_up(queue.take(), "a defect")
    queue.enqueue(ONE, move(1, "b"))
    queue.finish(queue.take())
    assert queue.listed() == ()


def test_what_ran_when_the_process_died_waits_again(queue, tmp_path, clock) -> None:
    queue.enqueue(ONE, move(1))
    queue.take()
    after = again(queue, tmp_path, clock)
    assert after.take().attempts == 2
    after.close()


def test_what_kills_the_process_every_time_is_given_up(queue, tmp_path, clock) -> None:
    queue.enqueue(ONE, move(1))
    for _ in range(3):
        assert queue.take() is not None
        queue = again(queue, tmp_path, clock)
    assert queue.take() is None
    (failed,) = queue.listed()
    assert failed.state is EventState.FAILED
    assert "each attempt" in failed.reason
    queue.close()


def test_what_is_given_back_counts_as_never_taken(queue) -> None:
    queue.enqueue(ONE, move(1))
    task = queue.take()
    queue.release(task)
    queue.finish(task)
    assert queue.take().attempts == 1


def test_the_queue_has_an_end(queue) -> None:
    for number in range(5):
        queue.enqueue(ONE, move(number))
    with pytest.raises(GitopsError) as failure:
        queue.enqueue(ONE, move(9), ("id:9",))
    assert failure.value.code == "queue_full"
    assert queue.enqueue(ONE, move(1, "b")) is EnqueueResult.MERGED
    queue.forget(queue.listed()[0].number)
    assert queue.enqueue(ONE, move(9), ("id:9",)) is EnqueueResult.QUEUED


@pytest.mark.parametrize("decide", ["retry", "forget"])
def test_nothing_is_decided_about_what_is_not_there(queue, decide) -> None:
    queue.enqueue(ONE, move(1))
    running = queue.take()
    for number in (running.number, 77):
        with pytest.raises(GitopsError) as failure:
            getattr(queue, decide)(number)
        assert failure.value.code == "queue_event_missing"


def test_one_process_works_on_a_queue_and_others_may_look(queue, tmp_path, clock) -> None:
    queue.enqueue(ONE, TimerEvent())
    other = EventQueue(tmp_path / "queue.db", clock)
    with pytest.raises(GitopsError) as failure:
        other.open_owned()
    assert failure.value.code == "queue_in_use"
    other.open_shared()
    assert standing(other) == [("timer", "waiting")]
    other.close()
    assert queue.take() is not None


def test_nobody_else_reads_the_file(queue, tmp_path) -> None:
    queue.enqueue(ONE, TimerEvent())
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    assert set(modes) >= {"queue.db", "queue.db-wal", "queue.db.lock"}
    assert set(modes.values()) == {0}


def _other_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE mine (a)")


def _newer(path: Path) -> None:
    made = EventQueue(path, FixedClock(START))
    made.open_owned()
    made.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_bytes(b"no database at all" * 100), "not a database"),
        (_other_database, "it is not a queue"),
        (_newer, "version 2; this release reads version 1"),
        (lambda path: path.mkdir(), "directory"),
    ],
)
def test_another_file_is_not_touched(tmp_path, clock, make, words) -> None:
    path = tmp_path / "other.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    queue = EventQueue(path, clock)
    with pytest.raises(GitopsError) as failure:
        queue.open_owned()
    assert failure.value.code == "queue_unusable"
    assert words in failure.value.detail.lower()
    assert (path.read_bytes() if path.is_file() else b"") == before or make is _newer


def test_looking_makes_nothing(tmp_path, clock) -> None:
    with pytest.raises(GitopsError) as failure:
        EventQueue(tmp_path / "none.db", clock).open_shared()
    assert failure.value.code == "queue_unusable"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_queue_does_nothing(queue) -> None:
    queue.close()
    with pytest.raises(GitopsError) as failure:
        queue.enqueue(ONE, TimerEvent())
    assert failure.value.code == "queue_unusable"


DEEDS = ("enqueue", "take", "finish", "postpone", "give_up", "release", "die", "wait")
STEPS = st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 5)), max_size=40)


@settings(max_examples=cases(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_laws_of_the_line(tmp_path_factory, steps) -> None:
    """At most one of a repository runs; at most one of a subject waits; what was accepted is handled, given up or still there."""
    clock, path = FixedClock(START), tmp_path_factory.mktemp("laws") / "queue.db"
    queue = EventQueue(path, clock, attempts=3)
    queue.open_owned()
    running: list = []
    settled: set[tuple[str, str]] = set()
    offered: set[tuple[str, str]] = set()
    for step, number in steps:
        repository, head = (ONE, TWO)[number % 2], f"{number}" * 40
        task = running[number % len(running)] if running else None
        if step == "enqueue":
            queue.enqueue(repository, HeadEvent(head))
            offered.add((repository, f"head {head}"))
            settled.discard((repository, f"head {head}"))
        elif step == "take" and (taken := queue.take()):
            running.append(taken)
        elif step == "die":
            queue.close()
            queue = EventQueue(path, clock, attempts=3)
            queue.open_owned()
            running = []
        elif step == "wait":
            clock.advance(timedelta(seconds=number))
        elif task is not None and step in ("finish", "postpone", "give_up", "release"):
            extra = {"postpone": (timedelta(seconds=3), "later"), "give_up": ("defect",)}.get(step, ())
            getattr(queue, step)(task, *extra)
            running.remove(task)
            if step == "finish":
                settled.add((task.repository, f"head {read_event(task.document).head}"))
        listed = queue.listed()
        busy = [each.repository for each in listed if each.state is EventState.RUNNING]
        waits = [(each.repository, each.subject) for each in listed if each.state is EventState.WAITING]
        assert len(busy) == len(set(busy)) == len(running)
        assert len(waits) == len(set(waits))
        assert offered - settled <= {(each.repository, each.subject) for each in listed}
    queue.close()


def test_a_full_disk_refuses_and_loses_nothing(queue) -> None:
    queue.enqueue(ONE, move(1), ("id:1",))
    limit = queue._connection.execute
    (pages,) = limit("PRAGMA page_count").fetchone()
    limit(f"PRAGMA max_page_count = {pages}")
    large = CommentEvent(1, "c", Account("7", "alice"), "x" * 60_000, "2026-03-01T00:00:00Z")
    with pytest.raises(GitopsError) as failure:
        queue.enqueue(ONE, large, ("id:2",))
    assert failure.value.code == "queue_unusable"
    assert "full" in failure.value.detail
    limit(f"PRAGMA max_page_count = {pages * 100}")
    assert queue.enqueue(ONE, large, ("id:2",)) is EnqueueResult.QUEUED
    assert len(queue.listed()) == 2


CHILD = """
import sys
from pathlib import Path
from gitops.repository.wiring.system import SystemClock
from gitops.forge.events import HeadEvent
from gitops.server.queue import EventQueue

queue = EventQueue(Path(sys.argv[1]), SystemClock())
queue.open_owned()
for number in range(10_000):
    queue.enqueue("one", HeadEvent(f"{number:040x}"), (f"id:{number}",))
    if number % 3 == 2:
        queue.take()
    print(number, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 7, 60])
def test_what_was_accepted_survives_a_kill_at_any_moment(tmp_path, lines) -> None:
    path = tmp_path / "queue.db"
    command = [sys.executable, "-c", CHILD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(lines)]
        child.kill()
        told += [int(line) for line in child.stdout.read().splitlines() if line.isdigit()]
    queue = EventQueue(path, SystemClock())
    queue.open_owned()
    kept = {each.subject for each in queue.listed()}
    assert {each.state for each in queue.listed()} == {EventState.WAITING}
    queue.close()
    assert {f"head {number:040x}" for number in told} <= kept
    assert len(kept) - len(told) in (0, 1)
