"""What happened on a forge: webhooks and event files of every forge are decoded to these events.

An event is a hint, never evidence. It says where to look; what is planned, approved or applied is read from git and from the
forge. Everything in an event may be stale, repeated or forged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from gitops.core.dataclass import dataclass
from gitops.forge.port import Account


class RequestAction(StrEnum):
    """What happened to a change request. UPDATED: its head or target moved."""

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """A change request was opened, updated, merged or closed. `head` is its head at that time."""

    number: int
    action: RequestAction
    head: str


@dataclass(frozen=True, slots=True)
class CommentEvent:
    """A new comment on a change request. Edited and deleted comments are not events: a command is given once."""

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
    """A ref moved; ZERO in `old` or `new` if it was created or deleted. `pusher` is None if the forge names none."""

    ref: str
    old: str
    new: str
    pusher: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A merge queue asks whether `head`, built on top of `base`, may be merged into `target` (full ref name)."""

    head: str
    base: str
    target: str


@dataclass(frozen=True, slots=True)
class HeadEvent:
    """A job of a change request has ended; the forge knows which open requests have this head."""

    head: str


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """It is time for the sweep and for drift detection."""


@dataclass(frozen=True, slots=True)
class TickEvent:
    """It is time for the strategies of compute clusters to decide."""


@dataclass(frozen=True, slots=True)
class ManualEvent:
    """A person started the job by hand; `inputs` are names and values."""

    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """An event that the bot ignores; `why` is one line for the log."""

    why: str


Event = (
    RequestEvent
    | CommentEvent
    | ReviewEvent
    | PushEvent
    | QueueEvent
    | HeadEvent
    | TimerEvent
    | TickEvent
    | ManualEvent
    | IgnoredEvent
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of an event: `id` is the same when it is repeated, `repository` is its name on the forge."""

    id: str
    repository: str
    event: Event


Decode = Callable[[Mapping[str, str], bytes], Delivery]
"""Headers (lower-case names) and the raw body to a delivery. Raises GitopsError `event_invalid`."""

CheckSignature = Callable[[Mapping[str, str], bytes, bytes], bool]
"""Whether headers and raw body have a valid signature under the secret; compares in constant time."""
