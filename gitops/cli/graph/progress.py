"""Progress of long work on a graph: a line on a terminal, or events as JSON lines on standard error.

The events have the form of an apply's events. The commands of a graph report them through `reporting`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from gitops.cli.shared import lasting, shows_progress
from gitops.cluster.model.plan import RunEvent
from gitops.core.dataclass import dataclass
from gitops.database.graph.results import StepProgress
from gitops.render.characters import visible
from gitops.render.progress import event_form
from gitops.repository.wiring.system import SystemClock

_MIB = 2**20
_EVENTS_EVERY_S, _LINES_EVERY_S = 1.0, 0.1


@dataclass(frozen=True, slots=True)
class LoadPace:
    """A step's progress, with its rate and the time until it ends. `seconds_left` is None if that is unknown."""

    progress: StepProgress
    rows_per_second: int
    seconds_left: int | None

    def line(self) -> str:
        """Return the pace as text for people."""
        at = self.progress
        facts = [f"{at.rows:,} rows"] if at.rows else []
        if at.unit == "bytes":
            facts.append(f"{at.done / _MIB:.1f} MiB" + (f" of {at.total / _MIB:.1f}" if at.total else ""))
        elif at.unit:
            facts.append(f"{at.done:,} of {at.total:,} {at.unit}" if at.total else f"{at.done:,} {at.unit}")
        facts += [f"{self.rows_per_second:,} rows/s"] if self.rows_per_second else []
        facts += [f"{self.seconds_left:,} s left"] if self.seconds_left is not None else []
        return visible(f"{at.step}: {', '.join([*facts, *([at.detail] if at.detail else [])])}")

    def facts(self) -> dict[str, Any]:
        """Return the pace as facts for programs."""
        return {**asdict(self.progress), "rows_per_second": self.rows_per_second, "seconds_left": self.seconds_left}


def pace(before: StepProgress, now: StepProgress, seconds: float) -> LoadPace:
    """Return the pace of a step whose progress was `before` the given number of seconds ago."""
    done, left = now.done - before.done, None
    if now.total is not None and done > 0:
        left = math.ceil(max(0, now.total - now.done) * seconds / done)
    return LoadPace(now, round((now.rows - before.rows) / seconds) if seconds > 0 else 0, left)


class ProgressReporter:
    """Shows the progress of one piece of work. `outcome` has the facts of its last event."""

    def __init__(self, show: Callable[[LoadPace], None], every_s: float) -> None:
        """Create a reporter that shows progress at most once in `every_s` seconds, and each new step."""
        self._show, self._every_s, self._clock = show, every_s, SystemClock()
        self._began: tuple[StepProgress, float] | None = None
        self._shown = 0.0
        self._left: LoadPace | None = None
        self.outcome: dict[str, Any] = {}

    def __call__(self, progress: StepProgress) -> None:
        """Process the progress of the work."""
        now = self._clock.monotonic()
        before = None if self._began is None else self._began[0]
        if self._began is None or before is None or before.step != progress.step or before.done > progress.done:
            self.settle()
            self._began, self._shown = (progress, now), 0.0
        self._left = pace(self._began[0], progress, now - self._began[1])
        if now - self._shown >= self._every_s:
            self._shown = now
            self.settle()

    def settle(self) -> None:
        """Show the last progress unless it is already shown."""
        if self._left is not None:
            self._show(self._left)
        self._left = None


@contextlib.contextmanager
def reporting(options: argparse.Namespace, work: str, **facts: Any) -> Iterator[ProgressReporter | None]:
    """Yield the progress reporter that the options select, or None if progress is off.

    Events are `WORK_started` with `facts`, `WORK_progress`, and `WORK_finished` with status (done, failed or
    interrupted), duration_ms and the reporter's outcome.
    """
    if options.log_format == "json":
        with _events(work, facts) as reporter:
            yield reporter
    elif sys.stderr.isatty() and shows_progress(options):
        try:
            yield ProgressReporter(lambda pace: _redraw(pace.line()), _LINES_EVERY_S)
        finally:
            _redraw("")
    else:
        yield None


@contextlib.contextmanager
def _events(work: str, facts: dict[str, Any]) -> Iterator[ProgressReporter]:
    clock, write, seq = SystemClock(), lasting(sys.stderr), 0

    def send(event: str, data: dict[str, Any]) -> None:
        nonlocal seq
        seq += 1
        write(json.dumps(event_form(RunEvent(seq, clock.now(), f"{work}_{event}", None, data))))

    began, status = clock.monotonic(), "failed"
    reporter = ProgressReporter(lambda pace: send("progress", pace.facts()), _EVENTS_EVERY_S)
    send("started", facts)
    try:
        yield reporter
        reporter.settle()
        status = "done"
    except KeyboardInterrupt:
        status = "interrupted"
        raise
    finally:
        spent = round(1000 * (clock.monotonic() - began))
        send("finished", {"status": status, **reporter.outcome, "duration_ms": spent})


def _redraw(line: str) -> None:
    """Replace the line on the terminal. Work continues if the terminal is closed."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"\r{line}\x1b[K")
        sys.stderr.flush()
