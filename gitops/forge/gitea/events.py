"""Webhooks of Gitea and Forgejo and the event files of their jobs, as neutral events: functions of bytes, pure.

Rules:

1. The signature is checked on the raw bytes, before anything of them is read.
2. An event is a hint. What is read of it is checked for its form, and the rest is not looked at.
3. A comment is an event only when it is written: a command is not given again by editing a comment.
4. A webhook and a job call the same event by different names; what it is about is said by its body.

https://docs.gitea.com/usage/repository/webhooks
https://forgejo.org/docs/latest/user/webhooks/
https://docs.gitea.com/usage/actions/comparison
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
    RequestAction,
    RequestEvent,
    ReviewEvent,
    TimerEvent,
)
from gitops.forge.gitea.answers import account
from gitops.forge.json_object import REPOSITORY, JsonObject, checked, event_object, ignored, repository_of

__all__ = ["MAX_EVENT", "check_signature", "decode", "decode_file"]

MAX_EVENT = 25 * 1024 * 1024
"""Bytes of an event that are read; there is no word about how large they get."""

_MAX_BODY = 65_536
_MAX_INPUTS = 50
_MAX_INPUT = 1024
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_REF = re.compile(r"refs/[^\s~^:?*\[\\\x00-\x1f\x7f]{1,1000}")
_INPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_HMAC = re.compile(r"[0-9a-f]{64}")
_PREFIXED = "sha256="
_SIGNATURES = ("x-gitea-signature", "x-forgejo-signature")
_FROM_REQUESTS = frozenset({"pull_request", "pull_request_target", "pull_request_sync"})

_REQUEST_ACTIONS = {
    "opened": RequestAction.OPENED,
    "reopened": RequestAction.OPENED,
    "synchronized": RequestAction.UPDATED,
    "synchronize": RequestAction.UPDATED,
}


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
    kind = checked(_NAME, _header(headers, "event"), "the header of the event")
    delivery = checked(_ID, _header(headers, "delivery"), "the header of the delivery")
    sent_as = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if sent_as != "application/json":
        detail = f"the webhook sends {sent_as[:80]!r}: set its content type to application/json"
        raise GitopsError(Code.EVENT_INVALID, detail)
    form = event_object(body, MAX_EVENT)
    return Delivery(delivery, repository_of(form), _event(kind, form))


def decode_file(environ: Mapping[str, str], body: bytes) -> Delivery:
    """The event file of a job, whose variables are `environ`; its id is that of the run and its attempt.

    The variables have GitHub's names. Raises GitopsError `event_invalid`.
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


def _header(headers: Mapping[str, str], name: str) -> str:
    """A header under the name that either of the two gives it; Forgejo sends Gitea's as well."""
    return headers.get(f"x-forgejo-{name}") or headers.get(f"x-gitea-{name}", "")


def _event(kind: str, form: JsonObject) -> Event:
    reader = _READERS.get(kind)
    if reader is None:
        return IgnoredEvent(f"{kind} events are of no concern")
    try:
        return reader(form)
    except GitopsError as error:
        # Accounts are read as in answers, whose errors are those of a forge that does not answer.
        raise GitopsError(Code.EVENT_INVALID, error.detail) from error


def _pull_request(form: JsonObject) -> Event:
    request, action = form.part("pull_request"), form.text("action", 100)
    known = _REQUEST_ACTIONS.get(action)
    if action == "closed":
        known = RequestAction.MERGED if request.flag("merged") else RequestAction.CLOSED
    # Another title or text changes no plan; another target does.
    if action == "edited" and form.has("changes") and form.part("changes").has("ref"):
        known = RequestAction.UPDATED
    if action == "reviewed":
        return ReviewEvent(request.number("number"))
    if known is None:
        return ignored("pull_request", form)
    return RequestEvent(request.number("number"), known, request.part("head").commit("sha"))


def _comment(form: JsonObject) -> Event:
    """A comment; the name `pull_request_comment` also stands for a review that only comments."""
    if form.has("review"):
        return _review(form)
    issue, comment = form.part("issue"), form.part("comment")
    if form.text("action", 100) != "created":
        return ignored("issue_comment", form)
    if not (form.flag("is_pull") or issue.has("pull_request")):
        return IgnoredEvent("a comment on an issue, not on a change request")
    if not comment.has("user"):
        return IgnoredEvent("a comment of nobody")
    return CommentEvent(
        number=issue.number("number"),
        comment=str(comment.number("id")),
        author=account(comment.part("user")),
        # Gitea sets no bound; a command stands at the start.
        body=comment.text_or("body", most=MAX_EVENT)[:_MAX_BODY],
        at=comment.moment("created_at"),
    )


def _review(form: JsonObject) -> Event:
    return ReviewEvent(form.part("pull_request").number("number"))


def _push(form: JsonObject) -> Event:
    pusher = form.optional("pusher")
    return PushEvent(
        ref=checked(_REF, form.text("ref"), "ref"),
        old=form.commit("before"),
        new=form.commit("after"),
        pusher=None if pusher is None else f"gitea:{account(pusher).id}",
    )


def _workflow_run(form: JsonObject) -> Event:
    run = form.part("workflow_run")
    if form.text("action", 100) != "completed":
        return ignored("workflow_run", form)
    if run.text_or("event") not in _FROM_REQUESTS:
        return IgnoredEvent("a workflow that no change request started")
    return HeadEvent(run.commit("head_sha"))


def _timer(form: JsonObject) -> Event:
    del form
    return TimerEvent()


def _manual(form: JsonObject) -> Event:
    inputs = form.optional("inputs")
    given = [] if inputs is None else inputs.items()
    if len(given) > _MAX_INPUTS:
        raise GitopsError(Code.EVENT_INVALID, f"there are more than {_MAX_INPUTS} inputs")
    found = ((name, _input(value)) for name, value in given if value is not None and _INPUT.fullmatch(name))
    return ManualEvent(tuple((name, text) for name, text in found if text is not None))


def _input(value: Any) -> str | None:
    """An input as text; None for what is not one value."""
    if isinstance(value, dict | list):
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    if len(text) > _MAX_INPUT:
        raise GitopsError(Code.EVENT_INVALID, f"an input has more than {_MAX_INPUT} characters")
    return text


_READERS: Mapping[str, Callable[[JsonObject], Event]] = {
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
    "push": _push,
    "workflow_run": _workflow_run,
    "schedule": _timer,
    "workflow_dispatch": _manual,
}
