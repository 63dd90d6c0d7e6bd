"""Events as the queue keeps them: one JSON document each, with its version, read as strictly as anything else on disk.

A queue outlives the program that wrote it. What another release wrote in another form is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gitops.core.codes import Code
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
from gitops.forge import events
from gitops.forge.port import Account

__all__ = ["event_subject", "read_event", "write_event"]


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
    """What an event is about: of two events that wait and have one subject, the newer one says all that the older one does.

    A review is another subject than the request that it is of, since only a review is attested. A push is its own subject: who
    pushed what counts for who may approve it, and nothing of that may get lost between two pushes.
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
        case events.TimerEvent() | events.TickEvent() | events.ManualEvent() | events.IgnoredEvent():
            return _NAMES[type(event)]
