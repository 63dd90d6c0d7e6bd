"""What becomes of a webhook, as a function of its headers and bytes and the queue: nothing here knows HTTP.

1. The signature is checked on the raw bytes, under every secret that is in force, before anything of them is read.
2. Where the sender says when it sent, and the signature covers that, a delivery that is too old or too far ahead is refused.
3. Only then it is read. What concerns nobody, and a repository that is not served, ends here.
4. It is in the queue, on disk, before the answer says so. What was delivered before is answered as good and done once.

A delivery is known by the id that the forge gives it. Where the signature covers the body alone, the id can be exchanged by
whoever saw a delivery: there the body is a mark as well, and forges write times or ids into theirs. An answer says what happened
to this delivery in a word, and nothing about the server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.core.redact import Secret
from gitops.forge.events import CheckSignature, Decode, Delivery, IgnoredEvent
from gitops.server.queue import Accepted, Offer, Queue
from gitops.server.shared import Context

__all__ = ["NOWHERE", "Hook", "Intake", "Reply", "known_as"]

_TOLERANCE = timedelta(minutes=5)
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#replay-attacks
_SENT_AT = "webhook-timestamp"
_MAX_DIGITS = 12
_SAYS = {
    Accepted.QUEUED: (202, "queued"),
    Accepted.MERGED: (202, "queued"),
    Accepted.REVIVED: (202, "queued again"),
    Accepted.KNOWN: (200, "known already"),
}


@dataclass(frozen=True, slots=True)
class Hook:
    """How one forge's deliveries are believed and read. While a secret is exchanged, two are in force.

    `body_marks` says that the signature covers the body and nothing else.
    """

    decode: Decode
    check: CheckSignature
    secrets: tuple[Secret, ...]
    body_marks: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: a status of HTTP and one line."""

    status: int
    text: str


NOWHERE = Reply(404, "not found")
"""The answer where nothing is taken."""


def known_as(kind: str, repository: str) -> str:
    """The name of a repository in the queue. Forges take names in any case for the same."""
    return f"{kind}:{repository.casefold()}"


class Intake:
    """Takes deliveries in for the repositories that are served."""

    def __init__(
        self,
        queue: Queue,
        hooks: Mapping[str, Hook],
        served: Iterable[str],
        context: Context,
    ) -> None:
        """`hooks` are by kind of forge, `served` names as `known_as` gives them."""
        self._queue, self._hooks, self._served = queue, hooks, frozenset(served)
        self._context = context

    def knows(self, kind: str) -> bool:
        """Whether deliveries for a kind of forge are taken at all."""
        return kind in self._hooks

    def receive(self, kind: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The answer to a delivery for a kind of forge; header names are lower-case. Safe to call from several threads."""
        reply = self._receive(kind, headers, body)
        self._context.counters.add("deliveries", str(reply.status))
        return reply

    def _receive(self, kind: str, headers: Mapping[str, str], body: bytes) -> Reply:
        hook = self._hooks.get(kind)
        if hook is None:
            return NOWHERE
        # All are tried, so that the time does not tell which one was good.
        good = [hook.check(headers, body, secret.reveal().encode()) for secret in hook.secrets]
        if not any(good):
            return Reply(401, "bad signature")
        if not self._fresh(headers):
            return Reply(401, "too old")
        try:
            delivery = hook.decode(headers, body)
            return self._take(kind, hook, delivery, body)
        except GitopsError as error:
            self._context.say(f"{kind}: {error.code}: {error.detail}")
            if error.code == Code.EVENT_INVALID:
                return Reply(400, self._context.shown(f"{error.code}: {error.detail}"))
            return Reply(503, "not now")

    def _take(self, kind: str, hook: Hook, delivery: Delivery, body: bytes) -> Reply:
        if isinstance(delivery.event, IgnoredEvent):
            return Reply(200, "nothing to do")
        repository = known_as(kind, delivery.repository)
        if repository not in self._served:
            return Reply(404, "this repository is not served")
        marks = [f"{kind}:id:{delivery.id}"]
        if hook.body_marks:
            marks.append(f"{kind}:body:{hashlib.sha256(body).hexdigest()}")
        accepted = self._queue.offer(Offer(repository, delivery.event, tuple(marks)))
        return Reply(*_SAYS[accepted])

    def _fresh(self, headers: Mapping[str, str]) -> bool:
        sent = headers.get(_SENT_AT)
        if sent is None:
            return True
        if not (sent.isascii() and sent.isdigit() and len(sent) <= _MAX_DIGITS):
            return False
        return abs(self._context.clock.now().timestamp() - int(sent)) <= _TOLERANCE.total_seconds()
