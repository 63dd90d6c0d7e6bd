"""Log of a server: lines for people or for programs, written by a separate thread.

A stalled log reader must not block requests, so a limited number of records wait for it. Further records are dropped
and counted.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from gitops.render.characters import visible

_LINE = "%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s"
_TIME = "%Y-%m-%dT%H:%M:%S"
_MOST = 10_000
_AT_END_S = 2.0


def make_log(stream: TextIO, level: int, *, as_json: bool) -> logging.Logger:
    """Return a log that writes to a stream. Messages of libraries are not part of it.

    A record can have a `form`, which is a mapping of its members; `event` is its text.
    """
    form = _JsonLines() if as_json else _TextLines(_LINE, _TIME)
    form.converter = time.gmtime
    handler = logging.StreamHandler(stream)
    handler.setFormatter(form)
    log = logging.getLogger("gitops.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(level)
    return log


@contextmanager
def in_background(log: logging.Logger, most: int = _MOST) -> Iterator[None]:
    """Write a log's records in a thread until the end of the block. At most `most` records wait."""
    before = log.handlers
    backlogs = [_Backlog(handler, most) for handler in before]
    log.handlers = [*backlogs]
    try:
        yield
    finally:
        log.handlers = before
        for each in backlogs:
            each.finish()


class _Backlog(logging.Handler):
    """Passes records to another handler in a thread without ever blocking."""

    def __init__(self, to: logging.Handler, most: int) -> None:
        super().__init__()
        self._to = to
        self._most = most
        # The limit is not a lock that the thread and the requests would hand to each other.
        self._waiting: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        self._left_out = 0
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() < self._most:
            self._waiting.put(record)
        else:
            self._left_out += 1

    def finish(self) -> None:
        """Write all waiting records, unless the reader is stalled."""
        self._waiting.put(None)
        self._thread.join(_AT_END_S)

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._to.handle(record)
            left_out, self._left_out = self._left_out, 0
            if left_out:
                text = f"records missing here, because the log was not read in time: {left_out}"
                self._to.handle(logging.makeLogRecord({"levelno": 30, "levelname": "WARNING", "msg": text}))


def _form_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return a record's fields apart from its text."""
    found: Mapping[str, Any] = getattr(record, "form", None) or {}
    return found


class _TextLines(logging.Formatter):
    """Formats time, level and text, followed by the members of the form."""

    def format(self, record: logging.LogRecord) -> str:
        form = {name: value for name, value in _form_of(record).items() if name != "event" and value is not None}
        return visible(super().format(record) + "".join(f" {name}={value}" for name, value in form.items()))


class _JsonLines(logging.Formatter):
    """Formats `{"at": TIME, "level": LEVEL, "text": TEXT}` with the members of the form."""

    def format(self, record: logging.LogRecord) -> str:
        at = f"{self.formatTime(record, _TIME)}.{int(record.msecs):03}Z"
        form = _form_of(record)
        text = {} if form else {"text": record.getMessage()}
        return json.dumps({"at": at, "level": record.levelname.lower(), **text, **form}, default=str)
