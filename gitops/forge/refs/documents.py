"""What the bare-repository forge keeps of change requests: one document for each request, comment, status, check and so on.

The nouns are those of the port; what their documents do not hold is empty in what is read and in what is written. Longer texts
lie beside their document as Markdown, so that `git show` reads well. Every name, title and time in a document is one plain
line, because all of them are shown. Checks, deployments, issues and reactions decide nothing.

All are of version 1; a request that has an author or labels is of version 2, and one that has neither keeps version 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Severity
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    LINE,
    LINE_OR_EMPTY,
    OBJECT_ID,
    TEXT,
    TIME,
    Form,
    Member,
    Members,
    enum,
    integer,
    is_line,
    list_of,
    nullable,
    one_of,
    record,
    text_form,
)
from gitops.core.documents.json_bytes import MalformedError
from gitops.forge.port import (
    Account,
    Annotation,
    ChangeRequest,
    CheckState,
    CheckStatus,
    Comment,
    CommitCheck,
    Deployment,
    DeploymentState,
    Reaction,
    RequestState,
)

D = TypeVar("D")

MAX_DOCUMENT = 1024 * 1024


def _document(*versions: Form[D], version_of: Callable[[D], int] | None = None) -> Document[D]:
    return Document(
        versions=dict(enumerate(versions, 1)),
        version_of=version_of,
        code=Code.REQUEST_INVALID,
        limit=MAX_DOCUMENT,
        read_back=True,
    )


# Git itself checks the rest of a ref's form.
_REF = text_form(lambda name: is_line(name) and name.startswith("refs/"), "a full ref name")


def _check_request(request: ChangeRequest) -> None:
    if (request.state is RequestState.MERGED) != (request.merged_as is not None):
        raise MalformedError("a merged request has a commit, and no other request has", "merged_as")
    if list(request.labels) != sorted(set(request.labels)):
        raise MalformedError("expected sorted names, each once", "labels")


_REQUEST: Members = {
    "number": integer(1),
    "title": LINE,
    "source": _REF,
    "target": _REF,
    "head": OBJECT_ID,
    "state": enum(RequestState),
    "opened_at": TIME,
    # Names in the order of their latest push.
    "pushers": list_of(LINE),
    "merged_as": nullable(OBJECT_ID),
}
# An account here is a name.
_AUTHOR: Form[Account] = Form(lambda value: Account(LINE.read(value), value), lambda account: account.id)
REQUEST = _document(
    record(ChangeRequest, _REQUEST, check=_check_request),
    record(ChangeRequest, {**_REQUEST, "author": nullable(_AUTHOR), "labels": list_of(LINE)}, check=_check_request),
    version_of=lambda request: 1 if request.author is None and not request.labels else 2,
)
COMMENT = _document(record(partial(Comment, body=""), {"author": LINE, "at": TIME, "marker": nullable(LINE)}))


@dataclass(frozen=True, slots=True)
class ReactionDocument:
    """The bot's reactions to one comment, in the order in which they were given."""

    comment: str
    reactions: tuple[Reaction, ...]


REACTIONS = _document(record(ReactionDocument, {"comment": LINE, "reactions": list_of(enum(Reaction))}))
STATUS = _document(
    record(
        CheckStatus,
        {"commit": OBJECT_ID, "context": LINE, "state": enum(CheckState), "description": LINE_OR_EMPTY, "at": TIME},
    )
)
_ANNOTATION = record(
    Annotation,
    {
        "path": LINE,
        "line": integer(1),
        "end_line": nullable(integer(1)),
        "severity": enum(Severity),
        "title": LINE_OR_EMPTY,
        "message": TEXT,
    },
)
CHECK = _document(
    record(
        partial(CommitCheck, summary=""),
        {
            "commit": OBJECT_ID,
            "name": LINE,
            "state": enum(CheckState),
            "title": LINE,
            "notes": Member(list_of(_ANNOTATION), "annotations"),
        },
    )
)


@dataclass(frozen=True, slots=True)
class DatedDeployment(Deployment):
    """The newest deployment to an environment, and when it was recorded."""

    at: str = ""


DEPLOYMENT = _document(
    record(
        DatedDeployment,
        {
            "commit": OBJECT_ID,
            "environment": LINE,
            "state": enum(DeploymentState),
            "description": LINE_OR_EMPTY,
            "url": LINE_OR_EMPTY,
            "at": TIME,
        },
    )
)


@dataclass(frozen=True, slots=True)
class RecordedIssue:
    """An issue of the bot as it is kept; `last_comment` was written when it was closed. `path` is its file behind its ref."""

    marker: str
    author: str
    title: str
    body: str
    opened_at: str
    open: bool = True
    last_comment: str | None = None
    path: str = ""


_STATE = one_of("open", "closed")
_OPEN = Form(lambda value: _STATE.read(value) == "open", lambda is_open: "open" if is_open else "closed")
ISSUE = _document(
    record(
        partial(RecordedIssue, body=""),
        {"marker": LINE, "author": LINE, "title": LINE, "state": Member(_OPEN, "open"), "opened_at": TIME},
    )
)
