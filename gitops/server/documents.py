"""Events as the queue keeps them: one JSON document each, with its version, read as strictly as anything else on disk.

A queue outlives the program that wrote it. What another release wrote in another form is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import BugError
from gitops.documents import strict
from gitops.documents.strict import MalformedError, Node
from gitops.forge.events import (
    CommentEvent,
    Event,
    HeadEvent,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TimerEvent,
)
from gitops.forge.port import Account

__all__ = ["VERSION", "read_event", "subject_of", "write_event"]

VERSION = 1
_LIMIT = 1024 * 1024
_FRAME = ("version", "kind")
_KINDS: Mapping[str, type] = {
    "request": RequestEvent,
    "comment": CommentEvent,
    "review": ReviewEvent,
    "push": PushEvent,
    "queue": QueueEvent,
    "head": HeadEvent,
    "timer": TimerEvent,
    "manual": ManualEvent,
    "ignored": IgnoredEvent,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def subject_of(event: Event) -> str:
    """What an event is about: of two events that wait and have one subject, the newer one says all that the older one does.

    A review is another subject than the request that it is of, since only a review is attested. A push is its own subject: who
    pushed what counts for who may approve it, and nothing of that may get lost between two pushes.
    """
    match event:
        case RequestEvent() | ReviewEvent():
            return f"{_NAMES[type(event)]} {event.number}"
        case CommentEvent():
            return f"comment {event.number} {event.comment}"
        case PushEvent():
            return f"push {event.ref} {event.old} {event.new}"
        case QueueEvent() | HeadEvent():
            return f"{_NAMES[type(event)]} {event.head}"
        case TimerEvent() | ManualEvent() | IgnoredEvent():
            return _NAMES[type(event)]


def write_event(event: Event) -> bytes:
    """The document of an event."""
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return strict.encode({"version": VERSION, "kind": _NAMES[type(event)]} | {k: _plain(v) for k, v in values.items()})


def read_event(data: bytes) -> Event:
    """The event of a document. Raises IntegrityError `queue_event_invalid`."""
    with strict.refusing(Code.QUEUE_EVENT_INVALID):
        root = strict.parse(data, limit=_LIMIT)
        strict.expect_version(root, "version", supported=VERSION, code=Code.QUEUE_EVENT_INVALID)
        name = Node(root.mapping().get("kind"), "kind", root).text()
        if name not in _KINDS:
            raise MalformedError("kind", "unknown kind of event")
        members = tuple(each.name for each in fields(_KINDS[name]))
        found = root.fields((*_FRAME, *members))
        return _READERS[name](found)


def _plain(value: Any) -> Any:
    """A member as JSON has it."""
    if isinstance(value, Account):
        return {"id": value.id, "login": value.login, "bot": value.bot}
    if isinstance(value, tuple):
        return [list(pair) for pair in value]
    if value is None or isinstance(value, str | int):
        return value
    raise BugError(f"an event holds a {type(value).__name__}")


def _account(node: Node) -> Account:
    found = node.fields(("id", "login", "bot"))
    return Account(found["id"].text(), found["login"].text(), found["bot"].boolean())


def _pair(node: Node) -> tuple[str, str]:
    texts = [item.text() for item in node.items()]
    if len(texts) != 2:  # noqa: PLR2004 - a name and its value
        raise node.refuse("expected a name and a value")
    return texts[0], texts[1]


def _request(found: Mapping[str, Node]) -> Event:
    return RequestEvent(found["number"].integer(), found["action"].one_of(RequestAction), found["head"].object_id())


def _comment(found: Mapping[str, Node]) -> Event:
    return CommentEvent(
        number=found["number"].integer(),
        comment=found["comment"].text(),
        author=_account(found["author"]),
        body=found["body"].text(),
        at=found["at"].text(),
    )


def _push(found: Mapping[str, Node]) -> Event:
    pusher = found["pusher"].nullable(Node.text)
    return PushEvent(found["ref"].text(), found["old"].object_id(), found["new"].object_id(), pusher)


def _queue(found: Mapping[str, Node]) -> Event:
    return QueueEvent(found["head"].object_id(), found["base"].object_id(), found["target"].text())


_READERS: Mapping[str, Callable[[Mapping[str, Node]], Event]] = {
    "request": _request,
    "comment": _comment,
    "review": lambda found: ReviewEvent(found["number"].integer()),
    "push": _push,
    "queue": _queue,
    "head": lambda found: HeadEvent(found["head"].object_id()),
    "timer": lambda _: TimerEvent(),
    "manual": lambda found: ManualEvent(tuple(_pair(item) for item in found["inputs"].items())),
    "ignored": lambda found: IgnoredEvent(found["why"].text()),
}
