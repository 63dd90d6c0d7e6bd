"""Checks GitLab webhook signatures, and decodes webhooks and CI job variables to neutral events.

Pure functions of bytes.

Webhooks: https://docs.gitlab.com/user/project/integrations/webhooks/, their payloads:
https://docs.gitlab.com/user/project/integrations/webhook_events/. Variables of jobs:
https://docs.gitlab.com/ci/variables/predefined_variables/ with the section "Predefined variables for merge request
pipelines". Anyone who can start a pipeline manually can override variables, so like every event they are only a hint.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping

from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.documents.forms import is_object_id
from gitops.core.errors import GitopsError
from gitops.forge import events
from gitops.forge.port import Account
from gitops.forge.web import JsonObject, event_object
from gitops.git.port import ZERO, or_zero

INPUT_PREFIX = "GITOPS_INPUT_"
"""Prefix of pipeline variables that are inputs of the bot: `GITOPS_INPUT_CLUSTER=library` means `cluster=library`.

People set them when they start a pipeline manually.
"""

MAX_BODY = 8 * 1024 * 1024
"""Maximum size of a webhook in bytes: eight times the longest description that GitLab stores."""

_SIGNING_PREFIX = b"whsec_"
_ID_HEADERS = ("idempotency-key", "webhook-id", "x-gitlab-event-uuid")
_LONGEST_ID = 200
_LONGEST = 4_096
_DIGITS = 18
_LONGEST_COMMENT = 65_536
_LONGEST_NOTE = MAX_BODY
_TIME = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) (?:UTC|\+0000)")
_REQUEST_ACTIONS = {
    "open": events.RequestAction.OPENED,
    "reopen": events.RequestAction.OPENED,
    "close": events.RequestAction.CLOSED,
    "merge": events.RequestAction.MERGED,
}
_REVIEW_ACTIONS = frozenset({"approved", "unapproved", "approval", "unapproval"})


def decode(headers: Mapping[str, str], body: bytes) -> events.Delivery:
    """Decode a webhook of a project, group or instance. Raises GitopsError `event_invalid`.

    Repeated deliveries share an `Idempotency-Key`. Older releases send `X-Gitlab-Event-UUID`, and even older ones nothing;
    then the digest of the body is the id. See https://docs.gitlab.com/user/project/integrations/webhooks/#delivery-headers.
    """
    payload = event_object(body, MAX_BODY)
    kind = payload.text("object_kind")
    read = {"merge_request": _request, "note": _note, "push": _push, "tag_push": _push}.get(kind)
    event = events.IgnoredEvent(f"{kind[:40]!r} is not an event for the bot") if read is None else read(payload)
    project = payload.part("project") if read is not None else payload.optional("project")
    name = "" if project is None else project.text("path_with_namespace")
    header = next((header for header in _ID_HEADERS if headers.get(header)), None)
    if header is None:
        return events.Delivery(hashlib.sha256(body).hexdigest(), name, event)
    if len(headers[header]) > _LONGEST_ID or not headers[header].isprintable():
        raise GitopsError(Code.EVENT_INVALID, f"the header {header} is not an id")
    return events.Delivery(headers[header], name, event)


def decode_file(environ: Mapping[str, str], body: bytes) -> events.Delivery:
    """Decode the variables of a GitLab CI job, and its `TRIGGER_PAYLOAD` file if a webhook started it.

    Raises GitopsError `event_invalid`, also if these are not the variables of such a job. The job number is part of the id,
    so a retried job is a different delivery.
    """
    source = _text(environ, "CI_PIPELINE_SOURCE")
    name = f"{_number(environ, 'CI_PIPELINE_ID')}-{_number(environ, 'CI_JOB_ID')}"
    project = _text(environ, "CI_PROJECT_PATH")
    event: events.Event = events.IgnoredEvent(f"a pipeline of source {source[:40]!r} is not an event for the bot")
    if source == "push":
        event = _pushed(environ)
    elif source == "schedule":
        event = events.TimerEvent()
    elif source == "merge_request_event":
        # In the pipeline of a fork, CI_PROJECT_PATH is the fork, but the request belongs to the target project.
        project, event = _text(environ, "CI_MERGE_REQUEST_PROJECT_PATH"), _requested(environ)
    elif source in {"web", "api", "chat", "trigger"}:
        names = sorted(name for name in environ if name.startswith(INPUT_PREFIX) and name != INPUT_PREFIX)
        inputs = ((n.removeprefix(INPUT_PREFIX).lower(), _text(environ, n)) for n in names if environ[n])
        event = events.ManualEvent(tuple(inputs))
    if source == "trigger" and body.strip():
        # A pipeline triggered by a webhook gets the webhook's body; see https://docs.gitlab.com/ci/triggers/
        sent = decode({}, body)
        event = sent.event
        if sent.repository not in ("", project):
            event = events.IgnoredEvent("the webhook belongs to a different project than the job")
    return events.Delivery(name, project, event)


def check_signature(headers: Mapping[str, str], body: bytes, secret: bytes) -> bool:
    """Return True if whoever sent this webhook has the secret. Header names are lower-case.

    A secret that starts with `whsec_` is a signing token. In that case only a signature of this body counts, because a plain
    token can be replayed by anyone who saw one delivery. Any other secret is compared with `X-Gitlab-Token`. The caller
    checks the age of a signed delivery. Sources: https://docs.gitlab.com/user/project/integrations/webhooks/ and
    https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
    """
    if not secret:
        return False
    if not secret.startswith(_SIGNING_PREFIX):
        return hmac.compare_digest(_bytes(headers.get("x-gitlab-token", "")), secret)
    try:
        key = base64.b64decode(secret.removeprefix(_SIGNING_PREFIX), validate=True)
    except binascii.Error:
        return False
    name, moment = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not key or not name or not moment:
        return False
    signed = b".".join((_bytes(name), _bytes(moment), body))
    good = b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
    given = headers.get("webhook-signature", "").split(" ")
    # Compare all of them, so that the response time does not reveal which one matched.
    return sum([hmac.compare_digest(_bytes(one), good) for one in given]) > 0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _request(payload: JsonObject) -> events.Event:
    """See https://docs.gitlab.com/user/project/integrations/webhook_events/#merge-request-events."""
    request = payload.part("object_attributes")
    number, action = request.number("iid"), request.text_or("action")
    if action in _REVIEW_ACTIONS:
        return events.ReviewEvent(number)
    if action in _REQUEST_ACTIONS:
        return events.RequestEvent(number, _REQUEST_ACTIONS[action], _last_commit(request))
    if action != "update":
        return events.IgnoredEvent(f"the action {action[:40]!r} on a merge request is ignored")
    # Only an update of commits has `oldrev`. A new target also changes the plan.
    if request.has("oldrev") or (payload.has("changes") and payload.part("changes").has("target_branch")):
        return events.RequestEvent(number, events.RequestAction.UPDATED, _last_commit(request))
    return events.IgnoredEvent("neither the commits nor the target of the merge request moved")


def _last_commit(request: JsonObject) -> str:
    return request.part("last_commit").commit("id")


def _note(payload: JsonObject) -> events.Event:
    """See https://docs.gitlab.com/user/project/integrations/webhook_events/#comment-events."""
    note = payload.part("object_attributes")
    if note.text("noteable_type") != "MergeRequest":
        return events.IgnoredEvent("the comment is not on a merge request")
    if note.flag("system"):
        return events.IgnoredEvent("GitLab wrote this comment itself")
    # Releases before 16.11 don't set an action, and send only new comments.
    if note.text_or("action", "create") != "create":
        return events.IgnoredEvent("an edited comment is not a command")
    text, author = note.text("note", _LONGEST_NOTE), str(note.number("author_id"))
    if len(text) > _LONGEST_COMMENT:
        return events.IgnoredEvent(f"the comment has more than {_LONGEST_COMMENT} characters")
    user = payload.part("user")
    if user.has("id") and str(user.number("id")) != author:
        return events.IgnoredEvent("the sender of the comment is not its author")
    return events.CommentEvent(
        number=payload.part("merge_request").number("iid"),
        comment=str(note.number("id")),
        author=Account(author, user.text("username")),
        body=text,
        at=_time(note),
    )


def _push(payload: JsonObject) -> events.Event:
    """See https://docs.gitlab.com/user/project/integrations/webhook_events/#push-events."""
    ref = payload.text("ref")
    if not ref.startswith(("refs/heads/", "refs/tags/")):
        raise GitopsError(Code.EVENT_INVALID, "body.ref is neither a branch nor a tag")
    pusher = f"gitlab:{payload.number('user_id')}" if payload.has("user_id") else None
    return events.PushEvent(ref, payload.commit("before"), payload.commit("after"), pusher)


def _time(note: JsonObject) -> str:
    """Return the time when a comment was written.

    Webhooks use `2015-05-17 18:21:36 UTC`, while the API uses RFC 3339.
    """
    given = note.text("created_at")
    plain = _TIME.fullmatch(given)
    moment = parse_timestamp(f"{plain[1]}T{plain[2]}Z" if plain else given)
    if moment is None:
        raise GitopsError(Code.EVENT_INVALID, "object_attributes.created_at is not a time")
    return timestamp(moment)


# Jobs


def _requested(environ: Mapping[str, str]) -> events.Event:
    """Return a pipeline of a merge request: of its head, of its merge with the target, or of its place in a merge train.

    https://docs.gitlab.com/ci/pipelines/merge_request_pipelines/
    """
    built = _commit(environ, "CI_COMMIT_SHA")
    if environ.get("CI_MERGE_REQUEST_EVENT_TYPE") == "merge_train":
        target = _text(environ, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
        return events.QueueEvent(built, _commit(environ, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA"), f"refs/heads/{target}")
    # The head differs from the built commit only if GitLab built a merge. Then this variable is set.
    source = "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"
    merged = environ.get("CI_MERGE_REQUEST_EVENT_TYPE") == "merged_result" or environ.get(source)
    head = _commit(environ, source) if merged else built
    return events.RequestEvent(_number(environ, "CI_MERGE_REQUEST_IID"), events.RequestAction.UPDATED, head)


def _pushed(environ: Mapping[str, str]) -> events.Event:
    if environ.get("CI_COMMIT_TAG"):
        ref = f"refs/tags/{_text(environ, 'CI_COMMIT_TAG')}"
    else:
        ref = f"refs/heads/{_text(environ, 'CI_COMMIT_BRANCH')}"
    old = _commit(environ, "CI_COMMIT_BEFORE_SHA") if environ.get("CI_COMMIT_BEFORE_SHA") else ZERO
    # A person who starts a pipeline manually can set GITLAB_USER_ID, so it does not identify the author of a push.
    return events.PushEvent(ref, old, _commit(environ, "CI_COMMIT_SHA"))


def _text(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name, "")
    if not found or len(found) > _LONGEST or not found.isprintable():
        raise _wrong(name, "a line of text")
    return found


def _commit(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name, "")
    if not is_object_id(found):
        raise _wrong(name, "a full commit id")
    return or_zero(found)


def _number(environ: Mapping[str, str], name: str) -> int:
    found = environ.get(name, "")
    if not (found.isascii() and found.isdecimal() and len(found) <= _DIGITS and int(found) > 0):
        raise _wrong(name, "a positive number")
    return int(found)


def _wrong(name: str, what: str) -> GitopsError:
    return GitopsError(Code.EVENT_INVALID, f"the variable {name} is not {what}")
