"""Processes a webhook, given its headers, its body and the queue, independent of HTTP.

1. The signature is checked on the raw bytes, with every valid secret, before they are parsed.
2. If the signature covers a timestamp, a delivery that is too old or too far in the future is refused.
3. Only then is the delivery parsed. Ignored events, pushes of ledger entries and unknown repositories end here.
4. The event is in the queue, on disk, before the response. A repeated delivery gets a success response and is handled
   once.

A delivery is identified by the forge's id. If the signature covers only the body, anyone who has seen a delivery can
change the id, so the body also identifies it. This works because forges write times or ids into their bodies. A
response says a few words about the delivery, and reveals nothing about the server.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta

from gitops.cluster.ledger.chain import LEDGERS
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.core.redact import Secret
from gitops.forge.events import CheckSignature, Decode, Event, IgnoredEvent, PushEvent
from gitops.server.queue import EnqueueResult, EventQueue
from gitops.server.shared import RefusalLog, ServerContext

_TOLERANCE = timedelta(minutes=5)
# https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#replay-attacks
_SENT_AT = "webhook-timestamp"
_MAX_DIGITS = 12
_REFUSED = 401
_FORWARDED = "x-forwarded-for"
_LONGEST_CLAIM = 100
_ANSWERS = {
    EnqueueResult.QUEUED: (202, "queued"),
    EnqueueResult.MERGED: (202, "queued"),
    EnqueueResult.RETRIED: (202, "queued again"),
    EnqueueResult.KNOWN: (200, "known already"),
}


@dataclass(frozen=True, slots=True)
class WebhookFormat:
    """How to verify and decode deliveries from one kind of forge. Several secrets are valid while one is being replaced.

    `body_identifies` means that the signature covers only the body, so the body also identifies a delivery.
    """

    decode: Decode
    check_signature: CheckSignature
    secrets: tuple[Secret, ...]
    body_identifies: bool


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An HTTP status and one line."""

    status: int
    text: str


NOT_FOUND = HttpAnswer(404, "not found")
"""The answer at a path that does not accept anything."""


def repository_key(kind: str, repository: str) -> str:
    """Return a repository's name in the queue. Forges ignore case in names."""
    return f"{kind}:{repository.casefold()}"


class DeliveryReceiver:
    """Receives the deliveries for a server's repositories."""

    def __init__(
        self,
        queue: EventQueue,
        formats: Mapping[str, WebhookFormat],
        repositories: Iterable[str],
        context: ServerContext,
    ) -> None:
        """`formats` has an entry per kind of forge; `repositories` are names as returned by `repository_key`."""
        self._queue, self._formats, self._repositories = queue, formats, frozenset(repositories)
        self._context = context
        self._refusals = RefusalLog(context, "deliveries")

    def accepts(self, kind: str) -> bool:
        """Return True if deliveries from this kind of forge are accepted."""
        return kind in self._formats

    def receive(self, kind: str, headers: Mapping[str, str], body: bytes, sender: str = "") -> HttpAnswer:
        """Answer a delivery from this kind of forge. Header names are in lower case.

        Thread-safe. `sender` is the address that the delivery came from. It is only logged, and never used for
        decisions.
        """
        answer = self._answer(kind, headers, body)
        self._context.metrics.count("deliveries", str(answer.status))
        text = f"{kind}: {answer.status} {answer.text}, from {sender or 'an unknown address'}"
        if (claimed := headers.get(_FORWARDED)) is not None:
            text += f", which says that it forwards for {claimed[:_LONGEST_CLAIM]}"
        if answer.status == _REFUSED:
            self._refusals.log(text)
        else:
            self._context.log(text, logging.DEBUG)
        return answer

    def _answer(self, kind: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        webhook = self._formats.get(kind)
        if webhook is None:
            return NOT_FOUND
        # All secrets are tried, so that the response time does not reveal which one matched.
        good = [webhook.check_signature(headers, body, secret.reveal().encode()) for secret in webhook.secrets]
        if not any(good):
            return HttpAnswer(_REFUSED, "bad signature")
        if not self._is_recent(headers):
            return HttpAnswer(_REFUSED, "too old")
        try:
            delivery = webhook.decode(headers, body)
            if isinstance(delivery.event, IgnoredEvent) or _is_of_ledger(delivery.event):
                return HttpAnswer(200, "nothing to do")
            repository = repository_key(kind, delivery.repository)
            if repository not in self._repositories:
                return HttpAnswer(404, "this repository is not served")
            marks = [f"{kind}:id:{delivery.id}"]
            if webhook.body_identifies:
                marks.append(f"{kind}:body:{hashlib.sha256(body).hexdigest()}")
            return HttpAnswer(*_ANSWERS[self._queue.enqueue(repository, delivery.event, marks)])
        except GitopsError as error:
            self._context.log(f"{kind}: {error.code}: {error.detail}", logging.WARNING)
            if error.code == Code.EVENT_INVALID:
                return HttpAnswer(400, self._context.safe(f"{error.code}: {error.detail}"))
            return HttpAnswer(503, "not now")

    def _is_recent(self, headers: Mapping[str, str]) -> bool:
        sent = headers.get(_SENT_AT)
        if sent is None:
            return True
        if not (sent.isascii() and sent.isdigit() and len(sent) <= _MAX_DIGITS):
            return False
        return abs(self._context.clock.now().timestamp() - int(sent)) <= _TOLERANCE.total_seconds()


def _is_of_ledger(event: Event) -> bool:
    """Return whether an event is a push of ledger entries. Each apply pushes some, and nothing follows from it."""
    return isinstance(event, PushEvent) and event.ref.startswith(LEDGERS)
