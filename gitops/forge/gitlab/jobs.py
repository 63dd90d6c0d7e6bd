"""What started a job of GitLab CI, from the variables that GitLab sets.

Source: https://docs.gitlab.com/ci/variables/predefined_variables/ and, for merge requests, its section
"Predefined variables for merge request pipelines". A person who may start a pipeline by hand can override variables:
like every event they are only a hint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.forge.events import (
    Delivery,
    Event,
    IgnoredEvent,
    ManualEvent,
    PushEvent,
    QueueEvent,
    RequestAction,
    RequestEvent,
    TimerEvent,
)
from gitops.git.port import ZERO

INPUT_PREFIX = "GITOPS_INPUT_"
"""Variables of a pipeline started by hand that are inputs of the bot: `GITOPS_INPUT_CLUSTER=library` is `cluster=library`."""

_LONGEST = 4_096
_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Triggered:
    """A pipeline started by a trigger token: with the body of a webhook, or by a person, which is the event `manual`."""

    id: str
    repository: str
    manual: ManualEvent


def read_job(environ: Mapping[str, str]) -> Delivery | Triggered:
    """What started this job. Raises GitopsError `event_invalid` if these are not the variables of such a job."""
    source = _text(environ, "CI_PIPELINE_SOURCE")
    name = f"{_number(environ, 'CI_PIPELINE_ID')}-{_number(environ, 'CI_JOB_ID')}"
    project = _text(environ, "CI_PROJECT_PATH")
    if source == "trigger":
        return Triggered(name, project, ManualEvent(_inputs(environ)))
    if source == "merge_request_event":
        # In the pipeline of a fork CI_PROJECT_PATH is the fork; the request belongs to the target project.
        return Delivery(name, _text(environ, "CI_MERGE_REQUEST_PROJECT_PATH"), _request(environ))
    return Delivery(name, project, _event(environ, source))


def _event(environ: Mapping[str, str], source: str) -> Event:
    if source == "push":
        return _push(environ)
    if source == "schedule":
        return TimerEvent()
    if source in {"web", "api", "chat"}:
        return ManualEvent(_inputs(environ))
    return IgnoredEvent(f"a pipeline of source {source[:40]!r} is not an event for the bot")


def _request(environ: Mapping[str, str]) -> Event:
    """A pipeline of a merge request: of its head, of its merge with the target, or of its place in a merge train.

    https://docs.gitlab.com/ci/pipelines/merge_request_pipelines/
    """
    built = _commit(environ, "CI_COMMIT_SHA")
    if environ.get("CI_MERGE_REQUEST_EVENT_TYPE") == "merge_train":
        target = _text(environ, "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
        return QueueEvent(built, _commit(environ, "CI_MERGE_REQUEST_TARGET_BRANCH_SHA"), f"refs/heads/{target}")
    # The head is another commit than the one that was built only if GitLab built a merge, and then it has this variable.
    source = "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"
    merged = environ.get("CI_MERGE_REQUEST_EVENT_TYPE") == "merged_result" or environ.get(source)
    head = _commit(environ, source) if merged else built
    return RequestEvent(_number(environ, "CI_MERGE_REQUEST_IID"), RequestAction.UPDATED, head)


def _push(environ: Mapping[str, str]) -> Event:
    if environ.get("CI_COMMIT_TAG"):
        ref = f"refs/tags/{_text(environ, 'CI_COMMIT_TAG')}"
    else:
        ref = f"refs/heads/{_text(environ, 'CI_COMMIT_BRANCH')}"
    old = _commit(environ, "CI_COMMIT_BEFORE_SHA") if environ.get("CI_COMMIT_BEFORE_SHA") else ZERO
    # A person who starts a pipeline by hand can set GITLAB_USER_ID: it does not name the author of a push.
    return PushEvent(ref, old, _commit(environ, "CI_COMMIT_SHA"))


def _inputs(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    names = sorted(name for name in environ if name.startswith(INPUT_PREFIX) and name != INPUT_PREFIX)
    return tuple((name.removeprefix(INPUT_PREFIX).lower(), _text(environ, name)) for name in names if environ[name])


def _text(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name, "")
    if not found or len(found) > _LONGEST or not found.isprintable():
        raise _wrong(name, "a line of text")
    return found


def _commit(environ: Mapping[str, str], name: str) -> str:
    found = environ.get(name, "")
    if not _OBJECT_ID.fullmatch(found):
        raise _wrong(name, "a full commit id")
    return found


def _number(environ: Mapping[str, str], name: str) -> int:
    found = environ.get(name, "")
    if not (found.isascii() and found.isdecimal() and len(found) <= _DIGITS and int(found) > 0):
        raise _wrong(name, "a positive number")
    return int(found)


def _wrong(name: str, what: str) -> GitopsError:
    return GitopsError(Code.EVENT_INVALID, f"the variable {name} is not {what}")
