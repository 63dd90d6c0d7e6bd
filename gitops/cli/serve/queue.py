"""`gitops bot queue`: what a server has not done yet, and what to do about what it has given up."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from gitops.cli.output import OK, say, show_form
from gitops.core.clock import timestamp
from gitops.render.characters import visible
from gitops.server.queue import Listed, Queue
from gitops.wiring.system import SystemClock

__all__ = ["queue"]


def queue(options: argparse.Namespace) -> int:
    """`gitops bot queue`: decide about one event if asked to, then list what is there, whether or not a server runs."""
    opened = Queue(Path(options.queue), SystemClock())
    opened.look()
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


def _form(event: Listed) -> dict[str, object]:
    return {
        "number": event.number,
        "repository": event.repository,
        "subject": event.subject,
        "state": event.state.value,
        "attempts": event.attempts,
        "received": _moment(event.received),
        "due": _moment(event.due),
        "reason": event.reason,
    }


def _line(event: Listed) -> str:
    text = f"#{event.number} {event.state} {event.repository} {event.subject}, received {_moment(event.received)}"
    if event.attempts:
        text += f", tried {event.attempts} time(s)"
    return visible(f"{text}: {event.reason}" if event.reason else text)


def _moment(milliseconds: int) -> str:
    return timestamp(datetime.fromtimestamp(milliseconds / 1000, UTC))
