"""A server's log: lines for people or for programs, written in batches by a separate thread.

A line is formatted where its record is created. The thread writes all lines from a period of up to 10 milliseconds with
one call, so requests and the log do not take turns for each line. A stalled log reader must not block requests, so only
a limited number of bytes wait for it. Further records are dropped and counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from itertools import chain
from typing import Any, TextIO, cast

from gitops.render.characters import visible

_TIME = "%Y-%m-%dT%H:%M:%S"
_MOST_BYTES = 8 * 2**20
_BATCH_BYTES, _BATCH_S = 64 * 1024, 0.01
_AT_END_S = 2.0


def make_log(stream: TextIO, level: int, *, as_json: bool) -> logging.Logger:
    """Return a log that writes to a stream. Log messages from libraries are left out.

    A record can have a `form`, which is a mapping of its members; `event` is its text.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_JsonLines() if as_json else _TextLines())
    log = logging.getLogger("gitops.serve")
    log.handlers, log.propagate = [handler], False
    log.setLevel(level)
    return log


@contextmanager
def in_background(log: logging.Logger, now: Callable[[], datetime], most_bytes: int = _MOST_BYTES) -> Iterator[None]:
    """Write a log's lines in a thread until the block ends. At most `most_bytes` bytes of lines wait."""
    before = log.handlers
    backlogs = [_Backlog(handler, now, most_bytes) for handler in before if isinstance(handler, logging.StreamHandler)]
    log.handlers = [*backlogs]
    try:
        yield
    finally:
        log.handlers = before
        for each in backlogs:
            each.finish()


class FixedMembers(dict[str, Any]):
    """Log record members that never change, so their text is created only once. The formatter keeps it."""

    __slots__ = ("texts",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        super().__init__(members)
        self.texts: dict[type[logging.Formatter], str] = {}


class JoinedForm(Mapping[str, Any]):
    """A form in parts, some of which are `FixedMembers`. The first part contains `event`. Names are distinct."""

    __slots__ = ("parts",)

    def __init__(self, *parts: Mapping[str, Any]) -> None:
        self.parts = parts

    def __getitem__(self, name: str) -> Any:
        """Return a member. Raises KeyError."""
        for part in self.parts:
            if name in part:
                return part[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Yield the names in order."""
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        """Return the number of members."""
        return sum(map(len, self.parts))


def log_forms(log: logging.Logger, level: int, forms: Sequence[Mapping[str, Any]]) -> None:
    """Log forms, whose `event` is their text. If the log writes in the background, lines are formatted directly."""
    if not log.isEnabledFor(level):
        return
    at = log
    while not at.handlers and at.propagate and at.parent is not None:
        at = at.parent
    if len(at.handlers) == 1 and type(at.handlers[0]) is _Backlog and not at.propagate:
        at.handlers[0].put(level, forms)
    else:
        for form in forms:
            log.log(level, "%s", form["event"], extra={"form": dict(form)})


def log_record(log: logging.Logger, form: Mapping[str, Any]) -> None:
    """Log the record of a request, or of a defect, which is an error."""
    level = logging.ERROR if form.get("event") in ("defect", "stuck") else logging.INFO
    log_forms(log, level, [form])


class _Backlog(logging.Handler):
    """Passes lines to the stream of another handler in a thread without ever blocking."""

    def __init__(self, to: logging.StreamHandler[TextIO], now: Callable[[], datetime], most_bytes: int) -> None:
        super().__init__()
        self._to, self._now_of = to, now
        # Logs have no other formatters: see `make_log`.
        self._formatter = cast("_FormLines", to.formatter)
        self._most = most_bytes
        self._lines: list[str] = []
        self._bytes = self._left_out = 0
        self._some, self._now = threading.Event(), threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, level: int, forms: Sequence[Mapping[str, Any]]) -> None:
        """Add the lines of forms."""
        if level < self.level:
            return
        formatter, created, name = self._formatter, self._now_of().timestamp(), logging.getLevelName(level)
        lines = "".join([formatter.line(created, name, form) + self._to.terminator for form in forms])
        with self.lock or nullcontext():
            self._add(level, lines, len(forms))

    def emit(self, record: logging.LogRecord) -> None:
        self._add(record.levelno, self._to.format(record) + self._to.terminator, 1)

    def _add(self, level: int, lines: str, count: int) -> None:
        if self._bytes + len(lines) > self._most:
            self._left_out += count
            return
        self._lines.append(lines)
        self._bytes += len(lines)
        if len(self._lines) == 1:
            self._some.set()
        if self._bytes >= _BATCH_BYTES or level >= logging.WARNING:
            self._now.set()

    def finish(self) -> None:
        """Write all waiting lines, unless the reader is stalled."""
        self._ended = True
        self._some.set()
        self._now.set()
        self._thread.join(_AT_END_S)

    def _run(self) -> None:
        while not self._ended:
            self._some.wait()
            self._now.wait(_BATCH_S)
            self._write()
        self._write()

    def _write(self) -> None:
        with self.lock or nullcontext():
            lines, self._lines = self._lines, []
            left_out, self._left_out = self._left_out, 0
            self._bytes = 0
            self._some.clear()
            self._now.clear()
        if left_out:
            text = f"records missing here, because the log was not read in time: {left_out}"
            record = logging.makeLogRecord({"levelno": 30, "levelname": "WARNING", "msg": text})
            lines.append(self._to.format(record) + self._to.terminator)
        # A log that cannot be written must not end the server.
        with suppress(OSError, ValueError):
            self._to.stream.write("".join(lines))
            self._to.flush()


def _form_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return a record's fields apart from its text."""
    found: Mapping[str, Any] = getattr(record, "form", None) or {}
    return found


class _FormLines(logging.Formatter, ABC):
    """Makes a line from a record, or from a form."""

    def __init__(self) -> None:
        super().__init__()
        self._second = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return self._line(self._time(record.created), record.levelname, record.getMessage(), _form_of(record))

    def line(self, created: float, level: str, form: Mapping[str, Any]) -> str:
        """Return the line of a form."""
        return self._line(self._time(created), level, form["event"], form)

    def _time(self, created: float) -> str:
        second = int(created)
        if self._second[0] != second:
            self._second = second, time.strftime(_TIME, time.gmtime(second))
        return f"{self._second[1]}.{int((created - second) * 1000):03}Z"

    def _texts(self, form: Mapping[str, Any]) -> str:
        """Return the text of a form's members."""
        if type(form) is not JoinedForm:
            return self._members(form)
        found = ""
        for part in form.parts:
            if type(part) is not FixedMembers:
                found += self._members(part)
                continue
            text = part.texts.get(type(self))
            if text is None:
                text = part.texts[type(self)] = self._members(part)
            found += text
        return found

    @abstractmethod
    def _line(self, at: str, level: str, text: str, form: Mapping[str, Any]) -> str:
        """Return the line of a form with this text."""

    @abstractmethod
    def _members(self, form: Mapping[str, Any]) -> str:
        """Return the text of members that follow others."""


class _TextLines(_FormLines):
    """Formats time, level and text, followed by the members of the form."""

    def _line(self, at: str, level: str, text: str, form: Mapping[str, Any]) -> str:
        return f"{at} {level:<7} {visible(text)}{self._texts(form)}"

    def _members(self, form: Mapping[str, Any]) -> str:
        shown = [f" {name}={value}" for name, value in form.items() if name != "event" and value is not None]
        return visible("".join(shown))


class _JsonLines(_FormLines):
    """Formats `{"at": TIME, "level": LEVEL, "text": TEXT}` with the members of the form."""

    def _line(self, at: str, level: str, text: str, form: Mapping[str, Any]) -> str:
        head = {"at": at, "level": level.lower(), **({} if form else {"text": text})}
        return f"{_encode(head)[:-1]}{self._texts(form)}}}"

    def _members(self, form: Mapping[str, Any]) -> str:
        return f", {_encode(form)[1:-1]}" if form else ""


_encode = json.JSONEncoder(default=str).encode
