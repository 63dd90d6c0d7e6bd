"""Webhooks of GitHub and the event files of its jobs, as neutral events: functions of bytes, pure.

Rules:

1. The signature is checked on the raw bytes, before anything of them is read.
2. An event is a hint. What is read of it is checked for its form, and the rest is not looked at.
3. A comment is an event only when it is written: a command is not given again by editing a comment.
4. A comment belongs to a change request only if `issue.pull_request` says so; there is no other sign.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import (
    CommentEvent,
    Delivery,
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
from gitops.forge.github.answers import account
from gitops.forge.json_object import REPOSITORY, JsonObject, checked, event_object, ignored, is_unicode, repository_of
from gitops.git.port import ZERO

__all__ = ["MAX_EVENT", "check_signature", "decode", "decode_file"]

MAX_EVENT = 25 * 1024 * 1024
"""Bytes of an event: GitHub sends none that is larger. https://docs.github.com/en/webhooks/webhook-events-and-payloads"""

_MAX_BODY = 65_536
_MAX_INPUTS = 50
_MAX_INPUT = 1024
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_REF = re.compile(r"refs/[^\s~^:?*\[\\\x00-\x1f\x7f]{1,1000}")
_INPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_SIGNATURE = re.compile(r"sha256=([0-9a-f]{64})")
_FROM_REQUESTS = frozenset({"pull_request", "pull_request_review", "pull_request_target"})

_REQUEST_ACTIONS = {
    "opened": RequestAction.OPENED,
    "reopened": RequestAction.OPENED,
    "synchronize": RequestAction.UPDATED,
}


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
    kind = checked(_NAME, headers.get("x-github-event", ""), "X-GitHub-Event")
    delivery = checked(_ID, headers.get("x-github-delivery", ""), "X-GitHub-Delivery")
    sent_as = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if sent_as != "application/json":
        raise GitopsError(
            Code.EVENT_INVALID, f"the webhook sends {sent_as[:80]!r}: set its content type to application/json"
        )
    form = event_object(body, MAX_EVENT)
    return Delivery(delivery, repository_of(form), _event(kind, form))


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """The event file of a job, whose variables are `environ`; its id is that of the run and its attempt.

    Raises GitopsError `event_invalid`.
    https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    """
    kind = checked(_NAME, environ.get("GITHUB_EVENT_NAME", ""), "GITHUB_EVENT_NAME")
    run = f"{environ.get('GITHUB_RUN_ID', '0')}-{environ.get('GITHUB_RUN_ATTEMPT', '1')}"
    # What a timer writes is not described: only its name counts.
    form = event_object(body if body.strip() else b"{}", MAX_EVENT)
    named = repository_of(form)
    repository = checked(REPOSITORY, environ.get("GITHUB_REPOSITORY") or named, "GITHUB_REPOSITORY")
    other = named and named.lower() != repository.lower()
    event = IgnoredEvent("the event is of another repository than the job") if other else _event(kind, form)
    return Delivery(checked(_ID, run, "GITHUB_RUN_ID"), repository, event)


def _event(kind: str, form: JsonObject) -> Event:
    reader = _READERS.get(kind)
    return IgnoredEvent(f"{kind} events are of no concern") if reader is None else reader(form)


def _pull_request(form: JsonObject) -> Event:
    request, action = form.part("pull_request"), form.text("action", 100)
    known = _REQUEST_ACTIONS.get(action)
    if action == "closed":
        known = RequestAction.MERGED if request.flag("merged") else RequestAction.CLOSED
    # Another title or text changes no plan; another target does.
    if action == "edited" and form.has("changes") and form.part("changes").has("base"):
        known = RequestAction.UPDATED
    if known is None:
        return ignored("pull_request", form)
    return RequestEvent(request.number("number"), known, request.part("head").commit("sha"))


def _issue_comment(form: JsonObject) -> Event:
    issue, comment = form.part("issue"), form.part("comment")
    if form.text("action", 100) != "created":
        return ignored("issue_comment", form)
    if not issue.has("pull_request"):
        return IgnoredEvent("a comment on an issue, not on a change request")
    if not comment.has("user"):
        return IgnoredEvent("a comment of nobody")
    return CommentEvent(
        number=issue.number("number"),
        comment=str(comment.number("id")),
        author=account(comment.part("user")),
        body=comment.text_or("body", most=_MAX_BODY),
        at=comment.moment("created_at"),
    )


def _review(form: JsonObject) -> Event:
    if form.text("action", 100) not in ("submitted", "edited", "dismissed"):
        return ignored("pull_request_review", form)
    return ReviewEvent(form.part("pull_request").number("number"))


def _push(form: JsonObject) -> Event:
    sender = form.optional("sender")
    return PushEvent(
        ref=checked(_REF, form.text("ref"), "ref"),
        old=form.commit("before"),
        new=ZERO if form.flag("deleted") else form.commit("after"),
        pusher=None if sender is None else f"github:{account(sender).id}",
    )


def _merge_group(form: JsonObject) -> Event:
    if form.text("action", 100) != "checks_requested":
        return ignored("merge_group", form)
    group = form.part("merge_group")
    target = checked(_REF, group.text("base_ref"), "merge_group.base_ref")
    return QueueEvent(head=group.commit("head_sha"), base=group.commit("base_sha"), target=target)


def _workflow_run(form: JsonObject) -> Event:
    run = form.part("workflow_run")
    if form.text("action", 100) != "completed":
        return ignored("workflow_run", form)
    if run.text("event", 100) not in _FROM_REQUESTS:
        return IgnoredEvent("a workflow that no change request started")
    return HeadEvent(run.commit("head_sha"))


def _timer(form: JsonObject) -> Event:
    del form
    return TimerEvent()


def _manual(form: JsonObject) -> Event:
    return ManualEvent(_inputs(form.optional("inputs")))


def _dispatch(form: JsonObject) -> Event:
    """A dispatch through the interface: its payload is what somebody with a token that may write says."""
    return ManualEvent(_inputs(form.optional("client_payload")))


def _inputs(form: JsonObject | None) -> tuple[tuple[str, str], ...]:
    """Inputs by name, as texts; what is not one value is left out."""
    given = [] if form is None else form.items()
    if len(given) > _MAX_INPUTS:
        raise GitopsError(Code.EVENT_INVALID, f"there are more than {_MAX_INPUTS} inputs")
    found = ((name, _input(value)) for name, value in given if value is not None and _INPUT.fullmatch(name))
    return tuple((name, text) for name, text in found if text is not None)


def _input(value: Any) -> str | None:
    if isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > _MAX_INPUT or not is_unicode(text):
        raise GitopsError(Code.EVENT_INVALID, f"an input is no text of at most {_MAX_INPUT} characters")
    return text


_READERS: Mapping[str, Callable[[JsonObject], Event]] = {
    "pull_request": _pull_request,
    "pull_request_target": _pull_request,
    "issue_comment": _issue_comment,
    "pull_request_review": _review,
    "push": _push,
    "merge_group": _merge_group,
    "workflow_run": _workflow_run,
    "schedule": _timer,
    "workflow_dispatch": _manual,
    "repository_dispatch": _dispatch,
}
