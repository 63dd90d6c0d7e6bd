"""What happened on a forge, in neutral words: the form that webhooks and event files of every forge are decoded to.

An event is a hint, never evidence. It says where to look; what is planned, approved or applied is read anew from git and
from the forge. Everything in it may be stale, repeated or made up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gitops.forge.port import Account


class RequestAction(StrEnum):
    """What happened to a change request. UPDATED: its head or target moved."""

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"
    MERGED = "merged"


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """A change request was opened, moved, merged or closed. `head` is the commit that the forge saw then."""

    number: int
    action: RequestAction
    head: str


@dataclass(frozen=True, slots=True)
class CommentEvent:
    """Somebody wrote a comment on a change request. Edited and deleted comments are no events: a command is given once."""

    number: int
    comment: str
    author: Account
    body: str
    at: str


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """Somebody reviewed a change request, or a review was dismissed."""

    number: int


@dataclass(frozen=True, slots=True)
class PushEvent:
    """A ref moved; ZERO in `old` or `new` for created and deleted ones. `pusher` as far as the forge knows."""

    ref: str
    old: str
    new: str
    pusher: str | None = None


@dataclass(frozen=True, slots=True)
class QueueEvent:
    """A merge queue wants to know whether `head`, built on top of `base`, may land on `target` (a full ref name)."""

    head: str
    base: str
    target: str


@dataclass(frozen=True, slots=True)
class HeadEvent:
    """An earlier job looked at a commit; which open requests have it as their head is for the forge to say."""

    head: str


@dataclass(frozen=True, slots=True)
class TimerEvent:
    """It is time to sweep and to look for drift."""


@dataclass(frozen=True, slots=True)
class ManualEvent:
    """A person started the job by hand; `inputs` are what they typed."""

    inputs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class IgnoredEvent:
    """Nothing that concerns the bot; `why` is one line for the log."""

    why: str


Event = (
    RequestEvent
    | CommentEvent
    | ReviewEvent
    | PushEvent
    | QueueEvent
    | HeadEvent
    | TimerEvent
    | ManualEvent
    | IgnoredEvent
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery of a forge: `id` is the same when it is delivered again, `repository` is the forge's name of it."""

    id: str
    repository: str
    event: Event


Decode = Callable[[Mapping[str, str], bytes], Delivery]
"""Headers (lower-case names) and the raw body to a delivery. Raises GitopsError `event_invalid`."""

CheckSignature = Callable[[Mapping[str, str], bytes, bytes], bool]
"""Whether headers and raw body carry a good signature under the secret; compares in constant time."""
