"""The queue of a server: what came in and is not done yet, in one SQLite file that survives whatever happens to the process.

1. `offer` returns when the event is on disk. A delivery that was taken before is known by its marks and changes nothing, except
   that an event which was given up is tried again: delivering it again is how a forge asks for that.
2. Of several events that wait and have one subject only the newest is kept, at the place in line of the first.
3. `take` hands out one event of a repository at a time, the oldest that is due. It is counted as tried before it is handed out,
   so that an event which kills the process does not do so for ever.
4. What was handed out when the process died waits again when the queue is opened. So an event is worked on at least once, and
   whoever works on it must be able to do so twice.
5. One process owns a queue, which the lock of a file beside it says; it may use it from several threads.

Moments are whole milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path

from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.core.faults import Faults, NoFaults, around
from gitops.forge.events import Event
from gitops.server.database import Connection, Database
from gitops.server.documents import subject_of, write_event

__all__ = ["Accepted", "Listed", "Offer", "Queue", "State", "Task"]

# Forges offer to deliver again what is some days old: https://docs.github.com/en/webhooks/testing-and-troubleshooting-webhooks
_REMEMBERED = timedelta(days=14)
_MAX_REASON = 500


class State(StrEnum):
    """Where an event stands. What is done is not kept."""

    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


class Accepted(StrEnum):
    """What became of an offer."""

    QUEUED = "queued"
    MERGED = "merged"
    KNOWN = "known"
    REVIVED = "revived"


@dataclass(frozen=True, slots=True)
class Offer:
    """An event of a repository; `marks` are what its delivery is known by, none for what nobody delivered."""

    repository: str
    event: Event
    marks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """An event that was handed out: `document` is what `gitops.server.documents` reads, `attempts` counts this one, too."""

    number: int
    repository: str
    document: bytes
    attempts: int


@dataclass(frozen=True, slots=True)
class Listed:
    """An event as people see it; `reason` is why the last attempt failed."""

    number: int
    repository: str
    subject: str
    state: State
    attempts: int
    received: int
    due: int
    reason: str


class Queue:
    """See the module. Raises GitopsError `queue_unusable` wherever the file cannot be read or written."""

    def __init__(
        self, path: Path, clock: Clock, *, most: int = 10_000, attempts: int = 8, faults: Faults | None = None
    ) -> None:
        """`most` events may wait; one that was tried `attempts` times, and not to its end, is given up when the queue opens."""
        self._file, self._clock, self._most = Database(path), clock, most
        self._attempts, self._faults = attempts, faults or NoFaults()

    # -- opening ---------------------------------------------------------------------------------------------------

    def own(self) -> None:
        """Open the queue to work on it, made if it is not there; what was being worked on waits again.

        Raises GitopsError `queue_in_use` if another process does.
        """
        self._file.own()
        with self._file.writing() as database:
            given_up = "the process ended each time while it worked on this"
            database.execute(
                "UPDATE event SET state = 'failed', reason = ? WHERE state = 'running' AND attempts >= ?",
                (given_up, self._attempts),
            )
            for (number,) in database.execute("SELECT number FROM event WHERE state = 'running'").fetchall():
                _wait_again(database, number, self._now(), "the process ended while it worked on this")

    def look(self) -> None:
        """Open a queue that is there, to list it or to decide about what was given up, whether or not a server works on it."""
        self._file.look()

    def close(self) -> None:
        """Let go of the file. Whoever waits is woken."""
        self._file.close()

    # -- taking in -------------------------------------------------------------------------------------------------

    def offer(self, offer: Offer) -> Accepted:
        """Take an event in. Raises GitopsError `queue_full`."""
        with around(self._faults, "server.queue", "accept"), self._file.writing() as database:
            now = self._now()
            database.execute("DELETE FROM delivery WHERE seen < ?", (now - _milliseconds(_REMEMBERED),))
            known = _known(database, offer.marks)
            if known is not None:
                return _again(database, known, now)
            place = (offer.repository, subject_of(offer.event))
            waits = database.execute(
                "SELECT number FROM event WHERE repository = ? AND subject = ? AND state = 'waiting'", place
            ).fetchone()
            document = write_event(offer.event)
            if waits is not None:
                number = waits[0]
                database.execute(
                    "UPDATE event SET document = ?, received = ?, due = ?, attempts = 0, reason = '' WHERE number = ?",
                    (document, now, now, number),
                )
            else:
                (waiting,) = database.execute("SELECT count(*) FROM event WHERE state = 'waiting'").fetchone()
                if waiting >= self._most:
                    raise GitopsError(Code.QUEUE_FULL, f"{waiting} events wait already", path=str(self._file.path))
                number = database.execute(
                    "INSERT INTO event (repository, subject, document, state, attempts, received, due, reason)"
                    " VALUES (?, ?, ?, 'waiting', 0, ?, ?, '')",
                    (*place, document, now, now),
                ).lastrowid
            database.executemany(
                "INSERT INTO delivery (mark, event, seen) VALUES (?, ?, ?)",
                [(mark, number, now) for mark in dict.fromkeys(offer.marks)],
            )
        return Accepted.QUEUED if waits is None else Accepted.MERGED

    # -- working off -----------------------------------------------------------------------------------------------

    def take(self) -> Task | None:
        """The oldest event that is due, of a repository of which none is worked on; None if there is none."""
        with self._file.writing(wakes=False) as database:
            found = database.execute(
                "SELECT number, repository, document, attempts FROM event WHERE state = 'waiting' AND due <= ?"
                " AND repository NOT IN (SELECT repository FROM event WHERE state = 'running') ORDER BY number LIMIT 1",
                (self._now(),),
            ).fetchone()
            if found is None:
                return None
            number, repository, document, attempts = found
            database.execute("UPDATE event SET state = 'running', attempts = attempts + 1 WHERE number = ?", (number,))
            return Task(number, repository, document, attempts + 1)

    def finish(self, task: Task) -> None:
        """It is done. An earlier one with its subject that was given up is done with it."""
        with self._file.writing() as database:
            database.execute(
                "DELETE FROM event WHERE state = 'failed' AND (repository, subject) IN"
                " (SELECT repository, subject FROM event WHERE number = ? AND state = 'running')",
                (task.number,),
            )
            database.execute("DELETE FROM event WHERE number = ? AND state = 'running'", (task.number,))

    def postpone(self, task: Task, by: timedelta, reason: str) -> None:
        """It did not work out and may, later."""
        with self._file.writing() as database:
            if _runs(database, task):
                _wait_again(database, task.number, self._now() + _milliseconds(by), reason)

    def give_up(self, task: Task, reason: str) -> None:
        """It did not work out and is not tried again by itself."""
        with self._file.writing() as database:
            database.execute(
                "UPDATE event SET state = 'failed', reason = ? WHERE number = ? AND state = 'running'",
                (reason[:_MAX_REASON], task.number),
            )

    def give_back(self, task: Task) -> None:
        """It was not worked on to its end, through no fault of its own: it waits as if it had never been taken."""
        with self._file.writing() as database:
            if _runs(database, task):
                database.execute("UPDATE event SET attempts = attempts - 1 WHERE number = ?", (task.number,))
                _wait_again(database, task.number, self._now(), "")

    # -- waiting ---------------------------------------------------------------------------------------------------

    @property
    def changes(self) -> int:
        """Counts the changes made through this object: what to hand to `wait`, read before looking for work."""
        return self._file.changes

    def wait(self, seen: int, longest: timedelta) -> None:
        """Wait for a change after `seen`, until the next event is due, but not longer than this."""
        with self._file.reading() as database:
            (due,) = database.execute(
                "SELECT min(due) FROM event WHERE state = 'waiting'"
                " AND repository NOT IN (SELECT repository FROM event WHERE state = 'running')"
            ).fetchone()
        left = longest if due is None else min(longest, timedelta(milliseconds=max(1, due - self._now())))
        self._file.wait(seen, left)

    def wake(self) -> None:
        """End all waiting."""
        self._file.wake()

    # -- looking ---------------------------------------------------------------------------------------------------

    def listed(self) -> tuple[Listed, ...]:
        """All events that are not done, in line."""
        with self._file.reading() as database:
            rows = database.execute(
                "SELECT number, repository, subject, state, attempts, received, due, reason FROM event ORDER BY number"
            ).fetchall()
        return tuple(_listed(row) for row in rows)

    def counts(self) -> Mapping[State, int]:
        """How many events are in each state."""
        with self._file.reading() as database:
            found = dict(database.execute("SELECT state, count(*) FROM event GROUP BY state").fetchall())
        return {state: int(found.get(state.value, 0)) for state in State}

    def retry(self, number: int) -> None:
        """Try an event again that waits for its next attempt or was given up. Raises GitopsError `queue_event_missing`."""
        with self._file.writing() as database:
            self._require(database, number)
            database.execute("UPDATE event SET attempts = 0 WHERE number = ?", (number,))
            _wait_again(database, number, self._now(), "")

    def forget(self, number: int) -> None:
        """Remove an event that is not being worked on. Raises GitopsError `queue_event_missing`."""
        with self._file.writing() as database:
            self._require(database, number)
            database.execute("DELETE FROM event WHERE number = ?", (number,))

    def _require(self, database: Connection, number: int) -> None:
        found = database.execute("SELECT 1 FROM event WHERE number = ? AND state <> 'running'", (number,)).fetchone()
        if found is None:
            detail = f"there is no event {number} that waits or was given up"
            raise GitopsError(Code.QUEUE_EVENT_MISSING, detail, path=str(self._file.path))

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _listed(row: tuple[int, str, str, str, int, int, int, str]) -> Listed:
    number, repository, subject, state, attempts, received, due, reason = row
    return Listed(number, repository, subject, State(state), attempts, received, due, reason)


def _known(database: Connection, marks: tuple[str, ...]) -> int | None:
    """The event that an earlier delivery with one of the marks became."""
    for mark in marks:
        found = database.execute("SELECT event FROM delivery WHERE mark = ?", (mark,)).fetchone()
        if found is not None:
            return int(found[0])
    return None


def _again(database: Connection, number: int, now: int) -> Accepted:
    """What becomes of an event that is delivered again: it is tried again if it was given up."""
    failed = database.execute("SELECT 1 FROM event WHERE number = ? AND state = 'failed'", (number,)).fetchone()
    if failed is None:
        return Accepted.KNOWN
    database.execute("UPDATE event SET attempts = 0 WHERE number = ?", (number,))
    _wait_again(database, number, now, "")
    return Accepted.REVIVED


def _runs(database: Connection, task: Task) -> bool:
    found = database.execute("SELECT 1 FROM event WHERE number = ? AND state = 'running'", (task.number,))
    return found.fetchone() is not None


def _wait_again(database: Connection, number: int, due: int, reason: str) -> None:
    """Let an event wait, unless a newer one with its subject does already, which says all that it does."""
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
