"""The queue of a server: unhandled events in one SQLite file that survives a crash of the process.

1. `enqueue` returns when the event is on disk. A repeated delivery is recognised by its marks and has no effect, except
   that a failed event is retried, because that is why people repeat a delivery.
2. If several waiting events have the same subject, only the newest is kept, at the position of the first.
3. `take` returns the oldest due event, and only one event per repository at a time. It counts the attempt first, so
   that an event that crashes the process is not retried endlessly.
4. Plans that only follow from an apply (`ReplanEvent`) have a lane of their own. They wait until no other event is due, and
   start with the newest change request, so that people don't wait for them. They don't count towards the limit.
5. An event that was being handled when the process crashed becomes pending again when the queue is opened. So events
   are handled at least once, and handlers must be idempotent.
6. One process owns a queue, through a lock file next to it, and can use it from several threads.

Times are integers in milliseconds since 1970.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    OBJECT_ID,
    TEXT,
    Form,
    Members,
    enum,
    integer,
    list_of,
    nullable,
    record,
    variants,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults, around
from gitops.forge import events
from gitops.forge.events import Event
from gitops.forge.port import Account

# The file of a queue: an SQLite database with a write-ahead log and one owner. Changes to it are atomic and durable.
#
# Sources: https://www.sqlite.org/wal.html, https://www.sqlite.org/lang_transaction.html.

APPLICATION, VERSION = 0x67697471, 1
"""Application id that marks a file as a queue (`PRAGMA application_id`), and version of its tables (`PRAGMA user_version`)."""

_TABLES = """
CREATE TABLE event (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  repository TEXT NOT NULL,
  subject TEXT NOT NULL,
  document BLOB NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'failed')),
  attempts INTEGER NOT NULL,
  received INTEGER NOT NULL,
  due INTEGER NOT NULL,
  reason TEXT NOT NULL
);
CREATE UNIQUE INDEX one_waits ON event (repository, subject) WHERE state = 'waiting';
CREATE INDEX in_line ON event (state, number);
CREATE TABLE delivery (mark TEXT PRIMARY KEY, event INTEGER NOT NULL, seen INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX oldest ON delivery (seen);
"""
_BUSY_S = 10.0

Connection = sqlite3.Connection


class Database:
    """The SQLite file of the queue. Threads take turns on one connection.

    Raises GitopsError `queue_unusable` whenever the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed = threading.Condition(threading.RLock())
        self._changes = 0
        self._owner: int | None = None
        self._connection: Connection | None = None

    def open_owned(self) -> None:
        """Open the file as its owner. Create it if it is missing.

        Raises GitopsError `queue_in_use` if another process owns it.
        """
        try:
            # Events contain people's comments, which other users of the machine must not read.
            self._owner = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise GitopsError(Code.QUEUE_IN_USE, f"another server uses {self.path}", path=str(self.path)) from None
        except OSError as error:
            self.close()
            raise self.unusable(error.strerror or "it cannot be opened") from error
        self._connect(create=True)

    def open_shared(self) -> None:
        """Open an existing file, whether or not a server owns it."""
        if not self.path.is_file():
            raise self.unusable("it does not exist", fix="name the file that gitops bot serve --queue FILE uses")
        self._connect(create=False)

    def close(self) -> None:
        """Close the file and wake all waiters. The object cannot be used afterwards."""
        with self._changed:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._owner is not None:
                os.close(self._owner)
                self._owner = None
            self.wake()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read transaction."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self, *, wakes: bool = True) -> Iterator[Connection]:
        """Open a write transaction. It is durable after the block, and rolled back after an error.

        `wakes` wakes all waiters.
        """
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        if wakes:
            self.wake()

    @property
    def changes(self) -> int:
        """Return a counter for `wait`. It grows with each change that wakes waiters.

        Read it before looking for work.
        """
        with self._changed:
            return self._changes

    def wait(self, seen: int, longest: timedelta) -> None:
        """Wait until `changes` differs from `seen`, for at most `longest`."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, longest.total_seconds())

    def wake(self) -> None:
        """Wake all waiters."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def unusable(self, why: str, *, fix: str | None = None) -> GitopsError:
        """Return the error for a file that cannot be used, with the reason."""
        return GitopsError(Code.QUEUE_UNUSABLE, f"the queue {self.path}: {why}", path=str(self.path), fix=fix)

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._changed:
            connection = self._connection
            if connection is None:
                raise self.unusable("it is closed")
            try:
                connection.execute(begin)
                yield connection
                connection.execute("COMMIT")
            except BaseException as error:
                with suppress(sqlite3.Error):
                    connection.rollback()
                if isinstance(error, sqlite3.Error):
                    raise self.unusable(str(error)) from error
                raise

    def _connect(self, *, create: bool) -> None:
        try:
            # Autocommit, because `_transaction` begins and ends every transaction.
            self._connection = connection = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            made = not any(map(self._pragma, ("application_id", "user_version", "schema_version")))
            application, version = self._pragma("application_id"), self._pragma("user_version")
            if (application, version) != (APPLICATION, VERSION) and not (made and create):
                newer = f"it has version {version}; this release reads version {VERSION}"
                raise self.unusable(newer if application == APPLICATION else "it is not a queue")
            connection.execute("PRAGMA journal_mode = WAL")
            # Accepted events survive even a power loss.
            connection.execute("PRAGMA synchronous = FULL")
            if made:
                marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
                connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} {marks} COMMIT;")
        except sqlite3.Error as error:
            self.close()
            raise self.unusable(str(error)) from error
        except GitopsError:
            self.close()
            raise

    def _pragma(self, name: str) -> int:
        assert self._connection is not None  # noqa: S101 - `_connect` has just made it
        (value,) = self._connection.execute(f"PRAGMA {name}").fetchone()
        return int(value)


# Forges offer to redeliver events that are several days old:
# https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks
_REMEMBERED = timedelta(days=14)
# The lane of plans that follow from an apply: the subjects of `ReplanEvent`, see `event_subject`.
_REPLANS = "subject GLOB 'replan *'"
_FIRST_DUE = (
    "SELECT number, repository, document, attempts, due FROM event WHERE state = 'waiting' AND due <= ?"  # noqa: S608 - constants
    " AND repository NOT IN (SELECT repository FROM event WHERE state = 'running')"
    f" ORDER BY {_REPLANS}, CASE WHEN {_REPLANS} THEN -CAST(substr(subject, 8) AS INTEGER) END, number LIMIT 1"
)
_MAX_REASON = 500


class EventState(StrEnum):
    """The state of a queued event. Finished events are removed."""

    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


class EnqueueResult(StrEnum):
    """Result of `enqueue`. MERGED: merged into a waiting event. KNOWN: already delivered earlier.

    RETRIED: retried after the server had given up on it.
    """

    QUEUED = "queued"
    MERGED = "merged"
    KNOWN = "known"
    RETRIED = "retried"


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event to handle. `document` has the form of `gitops.server.queue`. `attempts` includes this attempt.

    `waited` is the time in seconds since the event became due.
    """

    number: int
    repository: str
    document: bytes
    attempts: int
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class ListedEvent:
    """An event in a listing. `reason` says why its last attempt failed."""

    number: int
    repository: str
    subject: str
    state: EventState
    attempts: int
    received: int
    due: int
    reason: str


class EventQueue(Database):
    """The queue of a server. All methods raise GitopsError `queue_unusable` if the file cannot be read or written.

    `open_shared` is enough to list, retry and remove events, whether or not a server owns the queue.
    """

    def __init__(
        self, path: Path, clock: Clock, *, most: int = 10_000, attempts: int = 8, faults: Faults | None = None
    ) -> None:
        """Create a queue with at most `most` waiting events.

        On opening, events with `attempts` unfinished attempts are marked as given up.
        """
        super().__init__(path)
        self._clock, self._most, self._attempts, self._faults = clock, most, attempts, faults or NoFaults()

    def open_owned(self) -> None:
        """Open the queue as its owner. Create it if it is missing.

        Events that were being handled become pending again.

        Raises GitopsError `queue_in_use` if another process owns it.
        """
        super().open_owned()
        with self.writing() as database:
            given_up = "the process ended during each attempt to handle this event"
            database.execute(
                "UPDATE event SET state = 'failed', reason = ? WHERE state = 'running' AND attempts >= ?",
                (given_up, self._attempts),
            )
            for (number,) in database.execute("SELECT number FROM event WHERE state = 'running'").fetchall():
                _wait_again(database, number, self._now(), "the process ended while it handled this event")

    def enqueue(self, repository: str, event: Event, marks: Sequence[str] = ()) -> EnqueueResult:
        """Add an event of a repository. `marks` identify its delivery; they are empty if it was not delivered by a forge.

        Raises GitopsError `queue_full`.
        """
        with around(self._faults, "server.queue", "accept"), self.writing() as database:
            now = self._now()
            database.execute("DELETE FROM delivery WHERE seen < ?", (now - _milliseconds(_REMEMBERED),))
            for mark in marks:
                known = database.execute("SELECT event FROM delivery WHERE mark = ?", (mark,)).fetchone()
                if known is None:
                    continue
                if _state_of(database, known[0]) is not EventState.FAILED:
                    return EnqueueResult.KNOWN
                _retry(database, known[0], now)
                return EnqueueResult.RETRIED
            subject = event_subject(event)
            waits = database.execute(
                "SELECT number FROM event WHERE repository = ? AND subject = ? AND state = 'waiting'",
                (repository, subject),
            ).fetchone()
            document = write_event(event)
            if waits is not None:
                number = waits[0]
                database.execute(
                    "UPDATE event SET document = ?, received = ?, due = ?, attempts = 0, reason = '' WHERE number = ?",
                    (document, now, now, number),
                )
            else:
                waiting = _count_from_outside(database)
                if waiting >= self._most and not isinstance(event, events.ReplanEvent):
                    raise GitopsError(Code.QUEUE_FULL, f"{waiting} events are already waiting", path=str(self.path))
                number = database.execute(
                    "INSERT INTO event (repository, subject, document, state, attempts, received, due, reason)"
                    " VALUES (?, ?, ?, 'waiting', 0, ?, ?, '')",
                    (repository, subject, document, now, now),
                ).lastrowid
            database.executemany(
                "INSERT INTO delivery (mark, event, seen) VALUES (?, ?, ?)",
                [(mark, number, now) for mark in dict.fromkeys(marks)],
            )
        return EnqueueResult.QUEUED if waits is None else EnqueueResult.MERGED

    def enqueue_all(self, repository: str, added: Sequence[Event]) -> None:
        """Add events of a repository that no forge delivered."""
        for event in added:
            self.enqueue(repository, event)

    def take(self) -> QueuedEvent | None:
        """Return the first due event of a repository that has no running event, by rules 3 and 4. None if there is none."""
        with self.writing(wakes=False) as database:
            now = self._now()
            found = database.execute(_FIRST_DUE, (now,)).fetchone()
            if found is None:
                return None
            number, repository, document, attempts, due = found
            database.execute("UPDATE event SET state = 'running', attempts = attempts + 1 WHERE number = ?", (number,))
            return QueuedEvent(number, repository, document, attempts + 1, (now - due) / 1000)

    def finish(self, event: QueuedEvent) -> None:
        """Remove a finished event, and any earlier event with the same subject that was given up."""
        with self.writing() as database:
            _remove_given_up(database, event)
            database.execute("DELETE FROM event WHERE number = ? AND state = 'running'", (event.number,))

    def postpone(self, event: QueuedEvent, by: timedelta, reason: str) -> None:
        """Delay an event after a temporary failure."""
        with self.writing() as database:
            if _state_of(database, event.number) is EventState.RUNNING:
                _wait_again(database, event.number, self._now() + _milliseconds(by), reason)

    def give_up(self, event: QueuedEvent, reason: str) -> None:
        """Mark a failed event as given up, so that a person decides what to do with it.

        It replaces an earlier event with the same subject that was given up.
        """
        with self.writing() as database:
            _remove_given_up(database, event)
            database.execute(
                "UPDATE event SET state = 'failed', reason = ? WHERE number = ? AND state = 'running'",
                (reason[:_MAX_REASON], event.number),
            )

    def release(self, event: QueuedEvent) -> None:
        """Return an event to the queue as if it had never been taken, because handling it was stopped."""
        with self.writing() as database:
            if _state_of(database, event.number) is EventState.RUNNING:
                database.execute("UPDATE event SET attempts = attempts - 1 WHERE number = ?", (event.number,))
                _wait_again(database, event.number, self._now(), "")

    def wait(self, seen: int, longest: timedelta) -> None:
        """Wait until `changes` differs from `seen` or the next event is due, for at most `longest`."""
        with self.reading() as database:
            (due,) = database.execute(
                "SELECT min(due) FROM event WHERE state = 'waiting'"
                " AND repository NOT IN (SELECT repository FROM event WHERE state = 'running')"
            ).fetchone()
        left = longest if due is None else min(longest, timedelta(milliseconds=max(1, due - self._now())))
        super().wait(seen, left)

    def listed(self) -> tuple[ListedEvent, ...]:
        """Return all unfinished events, oldest first."""
        with self.reading() as database:
            rows = database.execute(
                "SELECT number, repository, subject, state, attempts, received, due, reason FROM event ORDER BY number"
            ).fetchall()
        return tuple(ListedEvent(n, name, subject, EventState(state), *rest) for n, name, subject, state, *rest in rows)

    def has_room(self) -> bool:
        """Return True if the queue can accept another event now."""
        with self.reading() as database:
            return _count_from_outside(database) < self._most

    def counts(self) -> Mapping[EventState, int]:
        """Count the events in each state."""
        with self.reading() as database:
            found = dict(database.execute("SELECT state, count(*) FROM event GROUP BY state").fetchall())
        return {state: int(found.get(state.value, 0)) for state in EventState}

    def retry(self, number: int) -> None:
        """Retry an event that waits for its next attempt or was given up. Raises GitopsError `queue_event_missing`."""
        with self.writing() as database:
            self._require(database, number)
            _retry(database, number, self._now())

    def forget(self, number: int) -> None:
        """Remove an event that is not being handled. Raises GitopsError `queue_event_missing`."""
        with self.writing() as database:
            self._require(database, number)
            database.execute("DELETE FROM event WHERE number = ?", (number,))

    def _require(self, database: Connection, number: int) -> None:
        if _state_of(database, number) in (None, EventState.RUNNING):
            detail = f"the queue has no event {number} that waits or has failed"
            raise GitopsError(Code.QUEUE_EVENT_MISSING, detail, path=str(self.path))

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _count_from_outside(database: Connection) -> int:
    """Count the waiting events that count towards the limit."""
    counted = f"SELECT count(*) FROM event WHERE state = 'waiting' AND NOT {_REPLANS}"  # noqa: S608 - a constant
    (waiting,) = database.execute(counted).fetchone()
    return int(waiting)


def _remove_given_up(database: Connection, event: QueuedEvent) -> None:
    """Remove an earlier event with the subject of a running one that was given up."""
    database.execute(
        "DELETE FROM event WHERE state = 'failed' AND (repository, subject) IN"
        " (SELECT repository, subject FROM event WHERE number = ? AND state = 'running')",
        (event.number,),
    )


def _state_of(database: Connection, number: int) -> EventState | None:
    found = database.execute("SELECT state FROM event WHERE number = ?", (number,)).fetchone()
    return None if found is None else EventState(found[0])


def _retry(database: Connection, number: int, now: int) -> None:
    database.execute("UPDATE event SET attempts = 0 WHERE number = ?", (number,))
    _wait_again(database, number, now, "")


def _wait_again(database: Connection, number: int, due: int, reason: str) -> None:
    """Make an event pending again, unless a newer event with the same subject is waiting and replaces it."""
    newer = database.execute(
        "SELECT 1 FROM event AS newer JOIN event AS it USING (repository, subject)"
        " WHERE it.number = ? AND newer.state = 'waiting' AND newer.number <> it.number",
        (number,),
    ).fetchone()
    if newer is not None:
        database.execute("DELETE FROM event WHERE number = ?", (number,))
        return
    database.execute(
        "UPDATE event SET state = 'waiting', due = ?, reason = ? WHERE number = ?", (due, reason[:_MAX_REASON], number)
    )


def _milliseconds(span: timedelta) -> int:
    return span // timedelta(milliseconds=1)


# Stored events: each is a versioned JSON document, which is read as strictly as any other file.
#
# A queue outlives the program that wrote it. An unknown format of a different release is refused, never guessed.


def _pair(value: Any) -> tuple[str, str]:
    texts = list_of(TEXT).read(value)
    if len(texts) != 2:  # noqa: PLR2004 - a name and its value
        raise MalformedError("expected a name and a value")
    return texts[0], texts[1]


_ACCOUNT = record(Account, {"id": TEXT, "login": TEXT, "bot": BOOLEAN})
_KINDS: Mapping[str, tuple[type[events.Event], Members]] = {
    "request": (events.RequestEvent, {"number": integer(), "action": enum(events.RequestAction), "head": OBJECT_ID}),
    "comment": (
        events.CommentEvent,
        {"number": integer(), "comment": TEXT, "author": _ACCOUNT, "body": TEXT, "at": TEXT},
    ),
    "review": (events.ReviewEvent, {"number": integer()}),
    "push": (events.PushEvent, {"ref": TEXT, "old": OBJECT_ID, "new": OBJECT_ID, "pusher": nullable(TEXT)}),
    "queue": (events.QueueEvent, {"head": OBJECT_ID, "base": OBJECT_ID, "target": TEXT}),
    "head": (events.HeadEvent, {"head": OBJECT_ID}),
    "replan": (events.ReplanEvent, {"number": integer(), "cluster": TEXT}),
    "timer": (events.TimerEvent, {}),
    "tick": (events.TickEvent, {}),
    "manual": (events.ManualEvent, {"inputs": list_of(Form(_pair, list))}),
    "ignored": (events.IgnoredEvent, {"why": TEXT}),
}
_NAMES = {kind: name for name, (kind, _) in _KINDS.items()}

EVENT: Document[events.Event] = Document(versions={1: variants("kind", _KINDS)}, code=Code.QUEUE_EVENT_INVALID)

read_event = EVENT.read
write_event = EVENT.write


def event_subject(event: events.Event) -> str:
    """Return the subject of an event.

    Of two pending events with the same subject, the newer one replaces the older one.

    A review has a different subject from its request, because only a review is attested. A push is its own subject: the
    pusher determines who may approve, so no push may be lost.
    """
    match event:
        case events.RequestEvent() | events.ReviewEvent():
            return f"{_NAMES[type(event)]} {event.number}"
        case events.CommentEvent():
            return f"comment {event.number} {event.comment}"
        case events.PushEvent():
            return f"push {event.ref} {event.old} {event.new}"
        case events.QueueEvent() | events.HeadEvent():
            return f"{_NAMES[type(event)]} {event.head}"
        case events.ReplanEvent():
            return f"replan {event.number} {event.cluster}"
        case events.TimerEvent() | events.TickEvent() | events.ManualEvent() | events.IgnoredEvent():
            return _NAMES[type(event)]
