"""The queue, deliveries that fill it, and workers that empty it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cli.served import webhook_format
from gitops.core.clock import Clock
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.core.redact import Redactor, Secret
from gitops.forge.events import CommentEvent, Event, HeadEvent, ReplanEvent, RequestAction, RequestEvent, TimerEvent
from gitops.forge.port import Account
from gitops.repository.results import LogLine, RunResult
from gitops.repository.wiring.system import SystemClock
from gitops.server.deliveries import DeliveryReceiver, HttpAnswer, repository_key
from gitops.server.queue import EnqueueResult, EventQueue, EventState, read_event
from gitops.server.service import RetryPolicy, WorkerPool
from gitops.server.shared import ServerContext, UnwrittenError
from tests.support.clock import FixedClock
from tests.support.effort import cases
from tests.support.pages import ROOT
from tests.support.serving import REPOSITORY, SECRET, Log, logger, moved, pushed, signed

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


def test_plans_that_follow_from_an_apply_wait_for_everything_else_and_start_with_the_newest(queue) -> None:
    """Thirteen of them fit beside a full queue, and an event that comes later overtakes those that are left."""
    queue.enqueue_all(ONE, [ReplanEvent(number, "brain") for number in range(1, 14)])
    for number in range(20, 25):
        queue.enqueue(ONE, move(number))
    assert not queue.has_room()
    taken = []

    def take(many: int) -> None:
        for _ in range(many):
            task = queue.take()
            taken.append(read_event(task.document).number)
            queue.finish(task)

    take(7)
    queue.enqueue(ONE, move(30))
    # The next merge: a request that waits already keeps one place.
    queue.enqueue_all(ONE, [ReplanEvent(11, "brain"), ReplanEvent(14, "brain")])
    take(13)
    assert taken == [20, 21, 22, 23, 24, 13, 12, 30, 14, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]
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


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
OLD = "the-secret-before-this-one"
TOKEN = "whsec_" + base64.b64encode(b"a key of the webhook").decode()
KINDS = ("github", "gitlab", "gitea")


class Desk:
    """A receiver with its queue."""

    def __init__(self, folder: Path) -> None:
        self.clock = FixedClock(NOW)
        self.lines: list[str] = []
        self.context = ServerContext(self.clock, logger(self.lines.append), Redactor([Secret("S", SECRET)]))
        self.queue = EventQueue(folder / "queue.db", self.clock, most=2)
        self.queue.open_owned()
        secrets = tuple(Secret("S", text) for text in (SECRET, OLD, TOKEN))
        hooks = {kind: webhook_format(kind, secrets) for kind in KINDS}
        served = [repository_key(kind, "octo/brain") for kind in KINDS]
        self.receiver = DeliveryReceiver(self.queue, hooks, served, self.context)

    def github(self, name: str, form: dict[str, Any], event_id: str = "d-1", secret: str = SECRET) -> HttpAnswer:
        return self.receiver.receive("github", *signed(name, form, event_id, secret))

    def waiting(self) -> list[str]:
        return [f"{each.repository} {each.subject}" for each in self.queue.listed()]


@pytest.fixture
def desk(tmp_path: Path):
    made = Desk(tmp_path)
    yield made
    made.queue.close()


def gitea(form: dict[str, Any], secret: str = SECRET) -> tuple[dict[str, str], bytes]:
    body = json.dumps(form).encode()
    headers = {"content-type": "application/json", "x-gitea-event": "push", "x-gitea-delivery": "d-1"}
    return headers | {"x-gitea-signature": hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}, body


def gitlab(event_id: str = "g-1", sent: datetime = NOW) -> tuple[dict[str, str], bytes]:
    """A push of GitLab, as it signs it since it has signing tokens."""
    form = {
        "object_kind": "push",
        "ref": "refs/heads/main",
        "before": "a" * 40,
        "after": "b" * 40,
        "user_id": 7,
        "project": {"path_with_namespace": "octo/brain"},
    }
    body, moment = json.dumps(form).encode(), str(int(sent.timestamp()))
    key = base64.b64decode(TOKEN.removeprefix("whsec_"))
    digest = hmac.digest(key, b".".join((event_id.encode(), moment.encode(), body)), hashlib.sha256)
    headers = {
        "content-type": "application/json",
        "idempotency-key": event_id,
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": "v1," + base64.b64encode(digest).decode(),
    }
    return headers, body


def test_a_good_delivery_is_on_disk_before_it_is_answered(desk) -> None:
    assert desk.github("push", pushed()) == HttpAnswer(202, "queued")
    task = desk.queue.take()
    assert task.repository == REPOSITORY
    assert read_event(task.document).pusher == "github:7"


@pytest.mark.parametrize("secret", ["another-secret-than-ours", "", SECRET[:-1]])
def test_a_bad_signature_is_not_read(desk, secret) -> None:
    headers, _ = signed("push", pushed(), "d-1", secret)
    assert desk.receiver.receive("github", headers, b"{" * 100_000) == HttpAnswer(401, "bad signature")
    assert desk.github("push", pushed(), secret=secret or "x") == HttpAnswer(401, "bad signature")
    assert desk.waiting() == []


def test_one_byte_more_is_another_body(desk) -> None:
    headers, body = signed("push", pushed(), "d-1")
    assert desk.receiver.receive("github", headers, body + b" ").status == 401
    assert desk.receiver.receive("github", headers, body).status == 202


def test_the_signature_of_one_forge_is_none_for_another(desk) -> None:
    headers, body = signed("push", pushed(), "d-1")
    assert desk.receiver.receive("gitlab", headers, body).status == 401
    assert desk.receiver.receive("forge", headers, body) == HttpAnswer(404, "not found")


def test_two_secrets_are_in_force_while_one_is_exchanged(desk) -> None:
    assert desk.github("push", pushed("b" * 40), "d-1", SECRET).status == 202
    assert desk.github("push", pushed("c" * 40), "d-2", OLD).status == 202


def test_a_delivery_that_comes_again_is_good_and_done_once(desk) -> None:
    assert desk.github("push", pushed()).status == 202
    assert desk.github("push", pushed()) == HttpAnswer(200, "known already")
    desk.queue.finish(desk.queue.take())
    assert desk.github("push", pushed()) == HttpAnswer(200, "known already")
    assert desk.waiting() == []


@pytest.mark.parametrize("kind", ["github", "gitea"])
def test_a_captured_delivery_under_another_id_is_known(desk, kind) -> None:
    """The id is a header that the signature does not cover."""
    headers, body = signed("push", pushed(), "d-1") if kind == "github" else gitea(pushed())
    assert desk.receiver.receive(kind, headers, body).status == 202
    replayed = {**headers, f"x-{kind}-delivery": "d-2"}
    assert desk.receiver.receive(kind, replayed, body) == HttpAnswer(200, "known already")


def test_a_delivery_that_was_given_up_is_tried_again_when_it_is_delivered_again(desk) -> None:
    desk.github("push", pushed())
    desk.queue.give_up(desk.queue.take(), "a defect")
    assert desk.github("push", pushed()) == HttpAnswer(202, "queued again")


@pytest.mark.parametrize(("minutes", "status"), [(-6, 401), (-4, 202), (4, 202), (6, 401)])
def test_a_signed_moment_is_not_far_from_now(desk, minutes, status) -> None:
    sent = NOW + timedelta(minutes=minutes)
    assert desk.receiver.receive("gitlab", *gitlab(sent=sent)).status == status


@pytest.mark.parametrize("moment", ["", "now", "-1", "1e9", "9" * 30, "१"])
def test_a_moment_that_is_none_is_refused(desk, moment) -> None:
    headers, body = gitlab()
    headers["webhook-timestamp"] = moment
    assert desk.receiver.receive("gitlab", headers, body).status == 401


def test_the_token_of_gitlab_is_compared(desk) -> None:
    headers, body = gitlab()
    plain = {k: v for k, v in headers.items() if not k.startswith("webhook-")}
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": "guess"}, body).status == 401
    # A signing token is never what a header may repeat.
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": TOKEN}, body).status == 401
    assert desk.receiver.receive("gitlab", plain | {"x-gitlab-token": SECRET}, body).status == 202


def test_other_repositories_are_not_served(desk) -> None:
    assert desk.github("push", pushed(repository="octo/other")) == HttpAnswer(404, "this repository is not served")
    assert desk.github("push", pushed("c" * 40, repository="Octo/Brain"), "d-2").status == 202


def test_what_concerns_nobody_is_good_and_forgotten(desk) -> None:
    ping = {"zen": "Keep it logically awesome.", "hook_id": 7, "repository": {"full_name": "octo/other"}}
    assert desk.github("ping", ping) == HttpAnswer(200, "nothing to do")
    own = pushed(ref="refs/heads/gitops/ledger/brain")
    assert desk.github("push", own) == HttpAnswer(200, "nothing to do")
    assert desk.waiting() == []


@pytest.mark.parametrize("form", [{}, {"repository": 7}, {**pushed(), "ref": "main"}, {**pushed(), "after": "x"}])
def test_what_cannot_be_read_is_said_to_its_sender(desk, form) -> None:
    reply = desk.github("push", form)
    assert reply.status == 400
    assert reply.text.startswith("event_invalid: ")
    assert desk.waiting() == []


def test_what_cannot_be_kept_is_to_be_delivered_again(desk) -> None:
    for number in (1, 2):
        desk.github("pull_request", moved(number, "a" * 40), f"d-{number}")
    assert desk.github("pull_request", moved(9, "a" * 40), "d-9") == HttpAnswer(503, "not now")
    assert any("queue_full" in line for line in desk.lines)
    desk.queue.forget(1)
    assert desk.github("pull_request", moved(9, "a" * 40), "d-9").status == 202
    desk.queue.close()
    assert desk.github("push", pushed(), "d-10") == HttpAnswer(503, "not now")


def test_neither_answer_nor_log_has_the_secret(desk) -> None:
    form = {**pushed(), "ref": SECRET}
    reply = desk.github("push", form)
    assert SECRET not in reply.text
    assert SECRET not in "".join(desk.lines)


def test_deliveries_are_counted_by_answer(desk) -> None:
    desk.github("push", pushed())
    desk.github("push", pushed(), secret="another-secret")
    text = desk.context.metrics.text(desk.queue.counts())
    assert 'gitops_deliveries_total{status="202"} 1' in text
    assert 'gitops_deliveries_total{status="401"} 1' in text
    assert 'gitops_queue_events{state="waiting"} 1' in text


def test_strangers_do_not_fill_the_log(desk) -> None:
    headers, body = signed("push", pushed(), "d-1", "not-the-secret-of-anybody")
    for _ in range(100):
        assert desk.receiver.receive("github", headers, body, "203.0.113.7").status == 401
    assert len(desk.lines) == 30
    desk.clock.advance(timedelta(minutes=1))
    desk.receiver.receive("github", headers, body, "203.0.113.7")
    assert desk.lines[30:] == [
        "WARNING 70 more deliveries were refused",
        "WARNING github: 401 bad signature, from 203.0.113.7",
    ]


def test_what_a_sender_claims_is_short_and_has_nothing_that_acts(desk) -> None:
    headers, body = signed("push", pushed(), "d-1", "not-the-secret-of-anybody")
    desk.receiver.receive("github", headers | {"x-forwarded-for": "\x1b[2J\u202e" + "9" * 500}, body, "203.0.113.7")
    (line,) = desk.lines
    assert line.isprintable()
    assert len(line) < 250


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
        shop.log.until("given up after 3 attempts", 2)
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
        shop.log.until("given up after 1 attempt")
        assert shop.queue.listed()[0].reason == f"{error.code}: {error.detail}"


@pytest.mark.parametrize(("partly", "outcome"), [(True, "partial"), (False, "refused")])
def test_what_the_forge_does_not_let_be_written_is_counted_and_kept_once(tmp_path, partly, outcome) -> None:
    error = UnwrittenError(RemoteError("forge_refused", "no permission", status=403), partly=partly)
    with Shop(tmp_path, failing(error, error)) as shop:
        shop.start()
        for times in (1, 2):
            shop.offer(ONE, "a")
            shop.log.until("given up after 1 attempt", times)
        assert [each.reason for each in shop.queue.listed()] == [f"{outcome}: forge_refused: no permission"]
        assert f'gitops_events_total{{outcome="{outcome}"}} 2' in shop.context.metrics.text(shop.queue.counts())


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
