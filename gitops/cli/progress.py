"""Progress of an apply: a live view on a terminal, otherwise lines. No output with `--json` or `--quiet`.

A run emits one stream of events (`RunEvent`). This module only observes it and never ends a run. Signals request a
stop.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.shared import UNWRITTEN, complain, lasting, shows_progress
from gitops.cluster.model.plan import Observer, RunEvent, to_all
from gitops.core.cancel import Cancellation
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.render.progress import RunProgress, event_form

if TYPE_CHECKING:
    from typing import BinaryIO

    from gitops.cluster.model.plan import RunRecord

PATIENCE = timedelta(seconds=2)
"""Time before progress lines are printed. For a shorter run, the report is enough."""


@contextmanager
def watching(options: argparse.Namespace) -> Iterator[Observer | None]:
    """Yield the observer that the options require for showing and recording an apply's progress, or None.

    Raises UsageError `usage_error` if the file of `--events`, `--run` or `--gantt` cannot be written.
    """
    observers: list[Observer] = []
    with ExitStack() as closing:
        if getattr(options, "log_format", None) == "json":
            observers.append(EventLog(sys.stderr.buffer, "standard error"))
        elif shows_progress(options):
            observers.append(_shown(options, closing))
        if (name := getattr(options, "events", None)) is not None:
            observers.append(EventLog(closing.enter_context(_created("--events", name)), name))
        for option, form in (("run", _run_document), ("gantt", _run_chart)):
            if (name := getattr(options, option, None)) is not None:
                observers.append(RunFile(closing.enter_context(_created(f"--{option}", name)), name, form))
        yield to_all(*observers) if observers else None


def _shown(options: argparse.Namespace, closing: ExitStack) -> Observer:
    """Return a live view if the terminal can redraw lines and the `terminal` extra is installed, otherwise a line log."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb" or find_spec("rich") is None:
        return LineLog(lasting(sys.stderr), timedelta() if options.verbose else PATIENCE)
    from gitops.cli.live_view import LiveView

    colour = not (options.no_color or os.environ.get("NO_COLOR"))
    view = LiveView(sys.stderr, colour=colour, all_lines=options.verbose)
    closing.callback(view.close)
    return view


class LineLog:
    """Once a run takes longer than `patience`, writes a line for each finished change. Reports an interrupt immediately."""

    def __init__(self, write: Callable[[str], None], patience: timedelta) -> None:
        """Create the log. `write` receives lines without a line feed."""
        self._write, self._patience = write, patience
        self._held: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        """Process the next event."""
        if event.type == "apply_started":
            self._progress, self._began, self._held = RunProgress(event), event.at, []
            return
        line = self._progress.take(event)
        if line is None:
            return
        self._held.append(line)
        if event.type == "apply_stopping" or event.at - self._began >= self._patience:
            for each in self._held:
                self._write(each)
            self._held.clear()


class EventLog:
    """Writes each event as a JSON line."""

    def __init__(self, file: RawIOBase | BinaryIO, name: str) -> None:
        """Open the file; `name` is its name in messages."""
        self._file, self._name = file, name
        self._broken = False

    def __call__(self, event: RunEvent) -> None:
        """Write the next event. If the disk is full, the file ends but the apply continues."""
        if self._broken:
            return
        try:
            self._file.write(json.dumps(event_form(event)).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            self._broken = True
            complain(f"WARN  storage_failed {self._name}: events are no longer written: {error.strerror}")


class RunFile:
    """Writes a run's record when the run has ended."""

    def __init__(self, file: RawIOBase, name: str, form: Callable[[RunRecord], bytes]) -> None:
        """Open the file; `name` is its name in messages, `form` returns its content."""
        self._file, self._name, self._form = file, name, form
        # This import brings in the changeset documents, which few commands need.
        from gitops.cluster.changesets.runs import RunLog

        self._log = RunLog()

    def __call__(self, event: RunEvent) -> None:
        """Record the next event. The apply continues even if the disk is full."""
        self._log(event)
        if event.type != "apply_finished":
            return
        try:
            self._file.write(self._form(self._log.record()))
        except OSError as error:
            complain(f"WARN  storage_failed {self._name}: the record of the run is not written: {error.strerror}")


def _run_document(run: RunRecord) -> bytes:
    from gitops.cluster.ledger.records import write_run

    return write_run(run)


def _run_chart(run: RunRecord) -> bytes:
    from gitops.render.changesets import to_gantt

    return to_gantt(run).encode()


def _created(option: str, name: str) -> RawIOBase:
    try:
        return Path(name).open("wb", buffering=0)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "this is not a file name"
        raise UsageError(Code.USAGE_ERROR, f"{option} {name}: {reason}", fix=UNWRITTEN) from error


# -- signals: effect of SIGINT and SIGTERM on a command that applies ---------------------------------------------------

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class InterruptedBySignalError(KeyboardInterrupt):
    """A signal ended the command. `exit_code` is the code that a shell uses for that signal."""

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.exit_code = 128 + number


@contextmanager
def heeding_signals() -> Iterator[Cancellation]:
    """Turn signals into stop requests for the applies that receive the yielded object.

    Without a running apply, a signal ends the command immediately. During an apply, the first signal asks it to start
    no more changes, the second to stop waiting, and the third has its default effect. Raises InterruptedBySignalError
    immediately, or at the end if an apply was running. Must be called in the main thread.
    """
    cancel, received = Cancellation(), []

    def heed(number: int, _frame: Any) -> None:
        received.append(number)
        if cancel.abandoned:
            signal.signal(number, before[number])
            signal.raise_signal(number)
        elif cancel.at_work:
            cancel.request()
        else:
            raise InterruptedBySignalError(number)

    before: dict[int, Any] = {number: signal.signal(number, heed) for number in _SIGNALS}
    try:
        yield cancel
        if received:
            raise InterruptedBySignalError(received[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
