"""The file of a queue: an SQLite database with a write-ahead log and one owner. A change is on disk as a whole, or not at all.

The only module that knows SQLite. Sources: https://www.sqlite.org/wal.html, https://www.sqlite.org/lang_transaction.html.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from gitops.core.codes import Code
from gitops.core.errors import GitopsError

APPLICATION, VERSION = 0x67697471, 1
"""What marks a file as a queue (`PRAGMA application_id`), and the version of its tables (`PRAGMA user_version`)."""

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
    """See the module. All threads share one connection, one at a time.

    Raises GitopsError `queue_unusable` wherever the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        """Nothing is opened yet."""
        self.path = path
        self._changed = threading.Condition(threading.RLock())
        self._changes = 0
        self._owner: int | None = None
        self._connection: Connection | None = None

    def open_owned(self) -> None:
        """Open the file as its owner, and create it if it is missing.

        Raises GitopsError `queue_in_use` if another process owns it.
        """
        try:
            # Events hold comments of people, which other users of the machine must not read.
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
        """Close the file, and end all waiting; nothing can be done with it any more."""
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
        """A transaction that reads."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self, *, wakes: bool = True) -> Iterator[Connection]:
        """A transaction that writes, on disk when the block has ended, or not at all. With `wakes` it ends all waiting."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection
        if wakes:
            self.wake()

    @property
    def changes(self) -> int:
        """A counter for `wait`, to be read before looking for work: it grows with each change that ends waiting."""
        with self._changed:
            return self._changes

    def wait(self, seen: int, longest: timedelta) -> None:
        """Wait until `changes` is not `seen`, but not longer than `longest`."""
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, longest.total_seconds())

    def wake(self) -> None:
        """End all waiting."""
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    def unusable(self, why: str, *, fix: str | None = None) -> GitopsError:
        """The error that says why the file cannot be used."""
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
            # Autocommit: `_transaction` begins and ends every transaction.
            self._connection = connection = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            made = not any(map(self._pragma, ("application_id", "user_version", "schema_version")))
            application, version = self._pragma("application_id"), self._pragma("user_version")
            if (application, version) != (APPLICATION, VERSION) and not (made and create):
                newer = f"it has version {version}; this release reads version {VERSION}"
                raise self.unusable(newer if application == APPLICATION else "it is not a queue")
            connection.execute("PRAGMA journal_mode = WAL")
            # What was accepted survives a power loss as well.
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
