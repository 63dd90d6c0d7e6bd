"""Webhooks of GitHub and the event files of its jobs, as neutral events: functions of bytes, pure.

The rules are those of `gitops.forge.actions`.
https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import partial

from gitops.forge import actions
from gitops.forge.events import Delivery, Event, QueueEvent, ReviewEvent
from gitops.forge.github.requests import GitHubDialect
from gitops.forge.json_object import JsonObject

__all__ = ["check_signature", "decode", "decode_file"]

_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")


def check_signature(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Whether `X-Hub-Signature-256` is the HMAC of the raw body; an empty secret is never good.

    The older `X-Hub-Signature`, of SHA-1, is not looked at.
    https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries
    """
    found = _SIGNATURE.fullmatch(headers.get("x-hub-signature-256", ""))
    expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return found is not None and bool(secret) and hmac.compare_digest(found[1], expected)


def decode(headers: Mapping[str, str], body: bytes) -> Delivery:
    """A webhook; its id is that of the delivery, the same when it is sent again. Raises GitopsError `event_invalid`."""
    kind, delivery = headers.get("x-github-event", ""), headers.get("x-github-delivery", "")
    return actions.decode_webhook(kind, delivery, headers, body, _READERS)


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """The event file of a job, whose variables are `environ`. Raises GitopsError `event_invalid`."""
    return actions.decode_job(environ, body, _READERS)


def _issue_comment(data: JsonObject) -> Event:
    body = data.part("comment").text_or("body", most=actions.MAX_BODY)
    return actions.comment_event(
        data, GitHubDialect.read_account, body, on_request=data.part("issue").has("pull_request")
    )


def _review(data: JsonObject) -> Event:
    if data.text("action", 100) not in ("submitted", "edited", "dismissed"):
        return actions.ignored_event("pull_request_review", data)
    return ReviewEvent(data.part("pull_request").number("number"))


def _merge_group(data: JsonObject) -> Event:
    if data.text("action", 100) != "checks_requested":
        return actions.ignored_event("merge_group", data)
    group = data.part("merge_group")
    target = actions.ref_of(group, "base_ref")
    return QueueEvent(head=group.commit("head_sha"), base=group.commit("base_sha"), target=target)


_request_event = partial(actions.request_event, target_field="base")
_READERS: actions.Readers = {
    "pull_request": _request_event,
    "pull_request_target": _request_event,
    "issue_comment": _issue_comment,
    "pull_request_review": _review,
    "push": partial(actions.push_event, forge="github", account=GitHubDialect.read_account, pusher="sender"),
    "merge_group": _merge_group,
    # A dispatch through the API: its payload comes from the holder of a token that may write.
    "repository_dispatch": partial(actions.manual_event, field="client_payload"),
    **actions.JOB_READERS,
}
