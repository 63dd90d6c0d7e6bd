"""`gitops bot queue`: the events that a server has not handled yet, and decisions about those that it gave up."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from gitops.cli.output import OK, say, show_form
from gitops.core.clock import timestamp
from gitops.render.characters import visible
from gitops.server.queue import EventQueue, ListedEvent
from gitops.wiring.system import SystemClock

__all__ = ["queue"]


def queue(options: argparse.Namespace) -> int:
    """`gitops bot queue`: retry or remove one event if an option says so, then list all, whether or not a server runs."""
    opened = EventQueue(Path(options.queue), SystemClock())
    opened.open_shared()
    try:
        if options.retry is not None:
            opened.retry(options.retry)
        if options.forget is not None:
            opened.forget(options.forget)
        found = opened.listed()
    finally:
        opened.close()
    if options.json:
        show_form({"ok": True, "events": [_form(each) for each in found]})
    else:
        say("\n".join(map(_line, found)) or "nothing waits")
    return OK


def _form(event: ListedEvent) -> dict[str, object]:
    return {
        "number": event.number,
        "repository": event.repository,
        "subject": event.subject,
        "state": event.state.value,
        "attempts": event.attempts,
        "received": _time(event.received),
        "due": _time(event.due),
        "reason": event.reason,
    }


def _line(event: ListedEvent) -> str:
    text = f"#{event.number} {event.state} {event.repository} {event.subject}, received {_time(event.received)}"
    if event.attempts:
        text += f", tried {event.attempts} time(s)"
    return visible(f"{text}: {event.reason}" if event.reason else text)


def _time(milliseconds: int) -> str:
    return timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
