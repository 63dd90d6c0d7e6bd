"""Webhooks of Gitea and Forgejo and the event files of their jobs, as neutral events: functions of bytes, pure.

The rules are those of `gitops.forge.actions`. A webhook and a job call the same event by different names; what it is about is
said by its body.
https://docs.gitea.com/usage/repository/webhooks
https://forgejo.org/docs/latest/user/webhooks/
https://docs.gitea.com/usage/actions/comparison
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import partial

from gitops.forge import actions
from gitops.forge.events import Delivery, Event, ReviewEvent
from gitops.forge.gitea.forge import GiteaDialect
from gitops.forge.json_object import JsonObject

__all__ = ["check_signature", "decode", "decode_file"]

_HMAC = re.compile(r"[0-9a-f]{64}")
_PREFIXED = "sha256="
_SIGNATURES = ("x-gitea-signature", "x-forgejo-signature")


def check_signature(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Whether every signature of SHA-256 that a webhook carries, and at least one, is the HMAC of the raw body.

    They are `X-Gitea-Signature`, `X-Forgejo-Signature` and `X-Hub-Signature-256`. An empty secret is never good.
    https://docs.gitea.com/usage/repository/webhooks#authorization-header
    """
    found = [headers[name] for name in _SIGNATURES if name in headers]
    hub = headers.get("x-hub-signature-256")
    if hub is not None:
        found.append(hub.removeprefix(_PREFIXED) if hub.startswith(_PREFIXED) else "")
    expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
    good = [bool(_HMAC.fullmatch(text)) and hmac.compare_digest(text, expected) for text in found]
    return bool(secret) and bool(good) and all(good)


def decode(headers: Mapping[str, str], body: bytes) -> Delivery:
    """A webhook; its id is that of the delivery, the same when it is sent again. Raises GitopsError `event_invalid`."""
    # Forgejo sends Gitea's headers as well as its own.
    kind, delivery = (
        headers.get(f"x-forgejo-{name}") or headers.get(f"x-gitea-{name}", "") for name in ("event", "delivery")
    )
    return actions.decode_webhook(kind, delivery, headers, body, _READERS)


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """The event file of a job, whose variables are `environ`. Raises GitopsError `event_invalid`."""
    return actions.decode_job(environ, body, _READERS)


def _pull_request(data: JsonObject) -> Event:
    if data.text("action", 100) == "reviewed":
        return _review(data)
    return actions.request_event(data, "ref")


def _comment(data: JsonObject) -> Event:
    """A comment; the name `pull_request_comment` also stands for a review that only comments."""
    if data.has("review"):
        return _review(data)
    # Gitea sets no bound; a command stands at the start.
    body = data.part("comment").text_or("body", most=actions.MAX_EVENT)[: actions.MAX_BODY]
    on_request = data.flag("is_pull") or data.part("issue").has("pull_request")
    return actions.comment_event(data, GiteaDialect.read_account, body, on_request=on_request)


def _review(data: JsonObject) -> Event:
    return ReviewEvent(data.part("pull_request").number("number"))


_READERS: actions.Readers = {
    "pull_request": _pull_request,
    "pull_request_target": _pull_request,
    "pull_request_sync": _pull_request,
    "issue_comment": _comment,
    "pull_request_comment": _comment,
    "pull_request_approved": _review,
    "pull_request_rejected": _review,
    "pull_request_review": _review,
    "pull_request_review_approved": _review,
    "pull_request_review_rejected": _review,
    "pull_request_review_comment": _review,
    "push": partial(actions.push_event, forge="gitea", account=GiteaDialect.read_account, pusher="pusher"),
    **actions.JOB_READERS,
}
