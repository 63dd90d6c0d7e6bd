"""Events on a forge. The webhooks and event files of every forge are decoded to these.

An event is a hint, never evidence. It shows where to look; everything that is planned, approved or applied is read from git
and from the forge. Any part of an event may be stale, repeated or forged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from gitops.core.dataclass import dataclass
from gitops.forge.port import Account


class RequestAction(StrEnum):
    """Kind of change to a change request. UPDATED means that its head or target moved."""

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """A change request was opened, updated, merged or closed. `head` is its head commit at that moment."""

    number: int
    action: RequestAction
    head: str


@dataclass(frozen=True, slots=True)
class CommentEvent:
    """A new comment on a change request. Editing or deleting it is not an event, so a command runs only once."""

    number: int
    comment: str
    author: Account
    body: str
    at: str


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """A change request was reviewed, or a review was dismissed."""

    number: int


@dataclass(frozen=True, slots=True)
class PushEvent:
    """A ref moved. `old` or `new` is ZERO if it was created or deleted. `pusher` is None if the forge does not report it."""

    ref: str
    old: str
    new: str
    pusher: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A merge queue asks whether `head`, built on top of `base`, can be merged into `target` (full ref name)."""

    head: str
    base: str
    target: str


@dataclass(frozen=True, slots=True)
class HeadEvent:
    """A job of a change request has ended. The forge can list the open requests with this head."""

    head: str


@dataclass(frozen=True, slots=True)
class ReplanEvent:
    """An apply may have changed what an open request would do to a cluster. No forge sends this: a server adds it."""

    number: int
    cluster: str


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """A timer for the sweep and drift detection fired."""


@dataclass(frozen=True, slots=True)
class TickEvent:
    """A timer for compute cluster strategies fired."""


@dataclass(frozen=True, slots=True)
class ManualEvent:
    """A person started the job manually. `inputs` maps names to values."""

    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that the bot ignores. `why` is one line for the log."""

    why: str


Event = (
    RequestEvent
    | CommentEvent
    | ReviewEvent
    | PushEvent
    | QueueEvent
    | HeadEvent
    | ReplanEvent
    | TimerEvent
    | TickEvent
    | ManualEvent
    | IgnoredEvent
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery of an event. A repeated delivery has the same `id`. `repository` is the name on the forge."""

    id: str
    repository: str
    event: Event


Decode = Callable[[Mapping[str, str], bytes], Delivery]
"""Decodes headers (lower-case names) and the raw body into a delivery. Raises GitopsError `event_invalid`."""

CheckSignature = Callable[[Mapping[str, str], bytes, bytes], bool]
"""Returns True if headers and raw body have a valid signature under the secret. Compares in constant time."""
