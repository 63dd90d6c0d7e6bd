"""What the bare-repository forge keeps of change requests: one document for each request, comment, status, check and so on.

Longer texts lie beside their document as Markdown, so that `git show` reads well. Every name, title and time in a document
is one plain line, because all of them are shown. Checks, deployments, issues and reactions decide nothing.

All are of version 1; a request that has an author or labels is of version 2, and one that has neither keeps version 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from gitops.core.codes import Code
from gitops.documents.codec import Document
from gitops.documents.forms import (
    LINE,
    LINE_OR_EMPTY,
    OBJECT_ID,
    TEXT,
    TIME,
    Form,
    Members,
    integer,
    is_line,
    list_of,
    nullable,
    one_of,
    record,
    text_form,
)
from gitops.documents.json_bytes import MalformedError

__all__ = [
    "MAX_DOCUMENT",
    "CheckDocument",
    "CheckNote",
    "CommentDocument",
    "DeploymentDocument",
    "IssueDocument",
    "ReactionDocument",
    "RequestDocument",
    "StatusDocument",
    "read_check",
    "read_comment",
    "read_deployment",
    "read_issue",
    "read_reactions",
    "read_request",
    "read_status",
    "write_check",
    "write_comment",
    "write_deployment",
    "write_issue",
    "write_reactions",
    "write_request",
    "write_status",
]

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
_COMMIT_STATE = one_of("pending", "success", "failure", "error")

# -- change requests ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestDocument:
    """A change request. `source` and `target` are full ref names, `head` and `merged_as` commit ids.

    `pushers` are names in the order of their latest push; `merged_as` is set exactly when `state` is `merged`. `author` is
    who opened it, unknown in version 1; `labels` are sorted, each once.
    """

    number: int
    title: str
    source: str
    target: str
    head: str
    state: str
    opened_at: str
    pushers: tuple[str, ...]
    merged_as: str | None
    author: str | None = None
    labels: tuple[str, ...] = ()


def _check_request(request: RequestDocument) -> None:
    if (request.state == "merged") != (request.merged_as is not None):
        raise MalformedError("a merged request has a commit, and no other request has", "merged_as")
    if list(request.labels) != sorted(set(request.labels)):
        raise MalformedError("expected sorted names, each once", "labels")


_REQUEST: Members = {
    "number": integer(1),
    "title": LINE,
    "source": _REF,
    "target": _REF,
    "head": OBJECT_ID,
    "state": one_of("open", "merged", "closed"),
    "opened_at": TIME,
    "pushers": list_of(LINE),
    "merged_as": nullable(OBJECT_ID),
}
REQUEST = _document(
    record(RequestDocument, _REQUEST, check=_check_request),
    record(RequestDocument, {**_REQUEST, "author": nullable(LINE), "labels": list_of(LINE)}, check=_check_request),
    version_of=lambda request: 1 if request.author is None and not request.labels else 2,
)


@dataclass(frozen=True, slots=True)
class CommentDocument:
    """Who wrote a comment and when; `marker` is set on a comment that its author keeps up to date."""

    author: str
    at: str
    marker: str | None


COMMENT = _document(record(CommentDocument, {"author": LINE, "at": TIME, "marker": nullable(LINE)}))


@dataclass(frozen=True, slots=True)
class ReactionDocument:
    """The bot's reactions to one comment, in the order in which they were given."""

    comment: str
    reactions: tuple[str, ...]


REACTIONS = _document(
    record(ReactionDocument, {"comment": LINE, "reactions": list_of(one_of("seen", "done", "refused"))})
)

# -- commits -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """The status of a commit in a context; `description` is one line or empty."""

    commit: str
    context: str
    state: str
    description: str
    at: str


STATUS = _document(
    record(
        StatusDocument,
        {"commit": OBJECT_ID, "context": LINE, "state": _COMMIT_STATE, "description": LINE_OR_EMPTY, "at": TIME},
    )
)


@dataclass(frozen=True, slots=True)
class CheckNote:
    """An annotation of lines of a file; `message` may have several lines."""

    path: str
    line: int
    end_line: int | None
    severity: str
    title: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckDocument:
    """A check of a commit; its summary lies beside it."""

    commit: str
    name: str
    state: str
    title: str
    notes: tuple[CheckNote, ...]


_NOTE = record(
    CheckNote,
    {
        "path": LINE,
        "line": integer(1),
        "end_line": nullable(integer(1)),
        "severity": one_of("error", "warning"),
        "title": LINE_OR_EMPTY,
        "message": TEXT,
    },
)
CHECK = _document(
    record(
        CheckDocument,
        {"commit": OBJECT_ID, "name": LINE, "state": _COMMIT_STATE, "title": LINE, "notes": list_of(_NOTE)},
    )
)


@dataclass(frozen=True, slots=True)
class DeploymentDocument:
    """The newest deployment to an environment."""

    commit: str
    environment: str
    state: str
    description: str
    url: str
    at: str


DEPLOYMENT = _document(
    record(
        DeploymentDocument,
        {
            "commit": OBJECT_ID,
            "environment": LINE,
            "state": one_of("running", "success", "failure"),
            "description": LINE_OR_EMPTY,
            "url": LINE_OR_EMPTY,
            "at": TIME,
        },
    )
)

# -- issues ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IssueDocument:
    """An issue of the bot; its text lies beside it."""

    marker: str
    author: str
    title: str
    state: str
    opened_at: str


ISSUE = _document(
    record(
        IssueDocument,
        {"marker": LINE, "author": LINE, "title": LINE, "state": one_of("open", "closed"), "opened_at": TIME},
    )
)

read_request = REQUEST.read
write_request = REQUEST.write
read_comment = COMMENT.read
write_comment = COMMENT.write
read_reactions = REACTIONS.read
write_reactions = REACTIONS.write
read_status = STATUS.read
write_status = STATUS.write
read_check = CHECK.read
write_check = CHECK.write
read_deployment = DEPLOYMENT.read
write_deployment = DEPLOYMENT.write
read_issue = ISSUE.read
write_issue = ISSUE.write
