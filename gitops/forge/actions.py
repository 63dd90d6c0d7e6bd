"""Webhooks and job events of forges that use GitHub's formats: GitHub, Gitea and Forgejo. Pure functions of bytes.

Rules:

1. The signature is checked on the raw bytes, before anything in them is read.
2. An event is a hint. Only the fields that are used are checked; all others are ignored.
3. A comment is an event only when it is created, so editing a comment does not give a command again.
4. A comment belongs to a change request only if the event says so.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge import events
from gitops.forge.port import Account
from gitops.forge.web import JsonObject, event_object, is_unicode
from gitops.git.port import ZERO

MAX_EVENT = 25 * 1024 * 1024
"""Maximum size of an event in bytes. GitHub never sends larger ones, and Gitea does not document a limit.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

MAX_BODY = 65_536
"""Maximum number of characters in a comment."""

REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
"""Format of a repository name on these forges: `owner/name`."""

Readers = Mapping[str, Callable[[JsonObject], events.Event]]
"""The readers of events, by event name."""

_MAX_INPUTS = 50
_MAX_INPUT = 1024
_NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_REF = re.compile(r"refs/[^\s~^:?*\[\\\x00-\x1f\x7f]{1,1000}")
_INPUT = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,99}")
_FROM_REQUESTS = frozenset({"pull_request", "pull_request_review", "pull_request_sync", "pull_request_target"})

_REQUEST_ACTIONS = {
    "opened": events.RequestAction.OPENED,
    "reopened": events.RequestAction.OPENED,
    "synchronize": events.RequestAction.UPDATED,
    "synchronized": events.RequestAction.UPDATED,
}


def decode_webhook(
    kind: str, delivery: str, headers: Mapping[str, str], body: bytes, readers: Readers
) -> events.Delivery:
    """Decode a webhook of this kind. `delivery` is the id that repeated deliveries share.

    Raises GitopsError `event_invalid`.
    """
    check_match(_NAME, kind, "the header of the event")
    check_match(_ID, delivery, "the header of the delivery")
    sent_as = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if sent_as != "application/json":
        detail = f"the webhook sends {sent_as[:80]!r}: set its content type to application/json"
        raise GitopsError(Code.EVENT_INVALID, detail)
    data = event_object(body, MAX_EVENT)
    return events.Delivery(delivery, _repository_of(data), _read(kind, data, readers))


def decode_job(environ: Mapping[str, str], body: bytes, readers: Readers) -> events.Delivery:
    """Decode a job's event file, given its variables `environ`. The event id consists of the run and its attempt.

    All of these forges use GitHub's variable names. Raises GitopsError `event_invalid`.
    https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    """
    if not environ.get("GITHUB_EVENT_NAME"):
        fix = "run it in a job of the forge; elsewhere: gitops bot plan --request N"
        raise GitopsError(Code.EVENT_INVALID, "GITHUB_EVENT_NAME is not set, so the event is not known", fix=fix)
    kind = check_match(_NAME, environ["GITHUB_EVENT_NAME"], "GITHUB_EVENT_NAME")
    run = f"{environ.get('GITHUB_RUN_ID', '0')}-{environ.get('GITHUB_RUN_ATTEMPT', '1')}"
    # The content of timer events is not documented, so only their name is used.
    data = event_object(body if body.strip() else b"{}", MAX_EVENT)
    named = _repository_of(data)
    repository = check_match(REPOSITORY, environ.get("GITHUB_REPOSITORY") or named, "GITHUB_REPOSITORY")
    if named and named.lower() != repository.lower():
        event: events.Event = events.IgnoredEvent("the event belongs to a different repository than the job")
    else:
        event = _read(kind, data, readers)
    return events.Delivery(check_match(_ID, run, "GITHUB_RUN_ID"), repository, event)


def request_event(data: JsonObject, target_field: str) -> events.Event:
    """Decode a change request event. `target_field` reports a new target. A new title does not change a plan."""
    request, action = data.part("pull_request"), data.text("action", 100)
    known = _REQUEST_ACTIONS.get(action)
    if action == "closed":
        known = events.RequestAction.MERGED if request.flag("merged") else events.RequestAction.CLOSED
    if action == "edited" and data.has("changes") and data.part("changes").has(target_field):
        known = events.RequestAction.UPDATED
    if known is None:
        return ignored_event("pull_request", data)
    return events.RequestEvent(request.number("number"), known, request.part("head").commit("sha"))


def comment_event(
    data: JsonObject, account: Callable[[JsonObject], Account], body: str, *, on_request: bool
) -> events.Event:
    """Decode a new comment. `on_request` is True if it is on a change request, not on an issue."""
    comment = data.part("comment")
    if data.text("action", 100) != "created":
        return ignored_event("issue_comment", data)
    if not on_request:
        return events.IgnoredEvent("a comment on an issue, not on a change request")
    if not comment.has("user"):
        return events.IgnoredEvent("a comment of a deleted account")
    return events.CommentEvent(
        number=data.part("issue").number("number"),
        comment=str(comment.number("id")),
        author=account(comment.part("user")),
        body=body,
        at=comment.moment("created_at"),
    )


def run_event(data: JsonObject) -> events.Event:
    """Decode the end of a workflow."""
    run = data.part("workflow_run")
    if data.text("action", 100) != "completed":
        return ignored_event("workflow_run", data)
    if run.text_or("event") not in _FROM_REQUESTS:
        return events.IgnoredEvent("a workflow that no change request started")
    return events.HeadEvent(run.commit("head_sha"))


def push_event(data: JsonObject, forge: str, account: Callable[[JsonObject], Account], pusher: str) -> events.Event:
    """Decode a ref move. The field `pusher` contains the account that pushed, on the forge with this name."""
    by = data.optional(pusher)
    return events.PushEvent(
        ref=ref_of(data, "ref"),
        old=data.commit("before"),
        new=ZERO if data.flag("deleted") else data.commit("after"),
        pusher=None if by is None else f"{forge}:{account(by).id}",
    )


def manual_event(data: JsonObject, field: str = "inputs") -> events.Event:
    """Decode a manual start. The inputs are in `field`, as strings by name.

    Inputs that are not a single value are omitted.
    """
    given = data.part(field).items() if data.has(field) else []
    if len(given) > _MAX_INPUTS:
        raise GitopsError(Code.EVENT_INVALID, f"there are more than {_MAX_INPUTS} inputs")
    inputs = []
    for name, value in given:
        if value is None or isinstance(value, dict | list) or not _INPUT.fullmatch(name):
            continue
        text = value if isinstance(value, str) else json.dumps(value)
        if len(text) > _MAX_INPUT or not is_unicode(text):
            raise GitopsError(Code.EVENT_INVALID, f"an input is not a text of at most {_MAX_INPUT} characters")
        inputs.append((name, text))
    return events.ManualEvent(tuple(inputs))


JOB_READERS: Readers = {
    "workflow_run": run_event,
    "schedule": lambda _: events.TimerEvent(),
    "workflow_dispatch": manual_event,
}
"""Readers for events that have the same form on all of these forges."""


def ref_of(data: JsonObject, name: str) -> str:
    """Return the full name of a ref. Raises GitopsError `event_invalid`."""
    return check_match(_REF, data.text(name), name)


def check_match(pattern: re.Pattern[str], text: str, what: str) -> str:
    """Return the text if it matches the forge's format. Raises GitopsError `event_invalid`."""
    if not pattern.fullmatch(text):
        raise GitopsError(Code.EVENT_INVALID, f"{what} is {text[:80]!r}, which no forge sends")
    return text


def ignored_event(kind: str, data: JsonObject) -> events.IgnoredEvent:
    """Return an event for an action that the bot ignores."""
    return events.IgnoredEvent(f"{kind} that was {data.line('action', 40)}: nothing to do")


def _read(kind: str, data: JsonObject, readers: Readers) -> events.Event:
    reader = readers.get(kind)
    return events.IgnoredEvent(f"{kind} events are ignored") if reader is None else reader(data)


def _repository_of(data: JsonObject) -> str:
    """Return `owner/name` of an event's repository; empty for an event of an organization or an app."""
    if not data.has("repository"):
        return ""
    return check_match(REPOSITORY, data.part("repository").text("full_name"), "repository.full_name")
