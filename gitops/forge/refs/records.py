"""Documents that the bare-repository forge stores: one per request, comment, status, check and so on.

The types are those of the port; fields that are missing from a document are empty when reading and writing. Longer
texts are stored next to their document as Markdown, so that `git show` is readable. Every name, title and time in a
document is one plain line, because all of them are shown. Checks, deployments, issues and reactions are never used for
decisions.

All documents have version 1, except that a request with an author or labels has version 2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

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
    FormMember,
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
from gitops.core.errors import GitopsError, IntegrityError
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
from gitops.forge.text import text_bytes

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


# Git itself checks the rest of the ref's format.
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
    # The names, in the order of their latest push.
    "pushers": list_of(LINE),
    "merged_as": nullable(OBJECT_ID),
}
# An account is identified by its name here.
_AUTHOR: Form[Account] = Form(lambda value: Account(LINE.read(value), value), lambda account: account.id)
REQUEST = _document(
    record(ChangeRequest, _REQUEST, check=_check_request),
    record(ChangeRequest, {**_REQUEST, "author": nullable(_AUTHOR), "labels": list_of(LINE)}, check=_check_request),
    version_of=lambda request: 1 if request.author is None and not request.labels else 2,
)
COMMENT = _document(record(partial(Comment, body=""), {"author": LINE, "at": TIME, "marker": nullable(LINE)}))


@dataclass(frozen=True, slots=True)
class ReactionDocument:
    """The bot's reactions to one comment, in chronological order."""

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
            "notes": FormMember(list_of(_ANNOTATION), "annotations"),
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
    """A stored issue by the bot. `last_comment` was written when it was closed. `path` is its file at its ref."""

    marker: str
    author: str
    title: str
    body: str
    opened_at: str
    open: bool = True
    last_comment: str | None = None
    path: str = ""

    @property
    def number(self) -> int:
        """The number in its file name. It gets one when it is stored."""
        return int(self.path.removeprefix("issues/").removesuffix(".md") or 0)


_STATE = one_of("open", "closed")
_OPEN = Form(lambda value: _STATE.read(value) == "open", lambda is_open: "open" if is_open else "closed")
ISSUE = _document(
    record(
        partial(RecordedIssue, body=""),
        {"marker": LINE, "author": LINE, "title": LINE, "state": FormMember(_OPEN, "open"), "opened_at": TIME},
    )
)


# How a bare repository's forge stores change requests: documents in folders, and the rules for changing them. Pure.
#
# Rules:
#
# 1. A request's folder holds `request.json`, perhaps its text as `request.md`, and `comments/<seq>-<slug>.json` with the text
#    beside it as `.md`, and `reactions/<comment>.json`.
# 2. Only one request is open per source and target. Merged and closed are final, so a later push opens a new number.
# 3. The bot's comment is recognised by its marker and its author. A marker in a comment by another author is only text.
# 4. A change is a map of path to bytes. An empty map means no change, so repeating a call doesn't write anything.

REQUESTS = "refs/gitops/requests"

_DOCUMENT = "request.json"
_TEXT = "request.md"
_COMMENTS = "comments"
_COMMENT_NAME = re.compile(r"([0-9]{4,9})-[a-z0-9-]+\.json")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_SLUG = 40


class DocumentFolder(Protocol):
    """The files at one ref."""

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the sorted names of the files in a folder; none if the folder does not exist."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, or None."""
        ...


class _NoFiles:
    def names(self, folder: str) -> tuple[str, ...]:  # noqa: ARG002 - there are none
        return ()

    def read(self, path: str) -> bytes | None:  # noqa: ARG002 - there are none
        return None


EMPTY: DocumentFolder = _NoFiles()
"""A folder without files."""


@dataclass(frozen=True, slots=True)
class PushedBranch:
    """A push of `head` to `source`, proposed for `target` (full ref names)."""

    source: str
    target: str
    head: str
    title: str
    pusher: str


def meta_ref(number: int) -> str:
    """Return the ref of a request's documents."""
    return f"{REQUESTS}/{number}/meta"


def head_ref(number: int) -> str:
    """Return the ref that protects a request's head commit from garbage collection."""
    return f"{REQUESTS}/{number}/head"


def number_of(ref: str) -> int | None:
    """Return the number of the request whose documents are at `ref`, or None for any other ref."""
    number = ref.removeprefix(f"{REQUESTS}/").removesuffix("/meta")
    return int(number) if _NUMBER.fullmatch(number) and ref == meta_ref(int(number)) else None


def not_found(number: int) -> GitopsError:
    """Return the error for a request that does not exist."""
    return GitopsError(Code.REQUEST_NOT_FOUND, f"change request {number} does not exist")


# Requests


def read_request(folder: DocumentFolder, number: int) -> ChangeRequest:
    """Read the request in a folder. Raises IntegrityError `request_invalid`, also if the number does not match."""
    request = REQUEST.read(read_required(folder, _DOCUMENT))
    if request.number != number:
        raise IntegrityError(Code.REQUEST_INVALID, f"the documents of request {number} are those of {request.number}")
    return replace(request, head_ref=head_ref(number))


def request_files(request: ChangeRequest) -> Mapping[str, bytes]:
    """Return the document of a request as files."""
    return {_DOCUMENT: REQUEST.write(replace(request, head_ref=""))}


def text_files(folder: DocumentFolder, text: str) -> Mapping[str, bytes]:
    """Return the files to write for the text of a request. Raises UsageError `comment_too_large`."""
    return changed_files(folder, {_TEXT: text_bytes(text)})


def request_after_push(known: Iterable[ChangeRequest], push: PushedBranch, at: str) -> tuple[ChangeRequest, bool]:
    """Return the request after a push, and True if the push opens it. `known` has all existing requests.

    A pusher who pushes again moves to the end, so the last one is always the most recent pusher.
    """
    requests = tuple(known)
    for request in requests:
        if request.state is RequestState.OPEN and (request.source, request.target) == (push.source, push.target):
            pushers = (*(name for name in request.pushers if name != push.pusher), push.pusher)
            return replace(request, head=push.head, title=push.title, pushers=pushers), False
    number = max((request.number for request in requests), default=0) + 1
    request = ChangeRequest(
        number=number,
        title=push.title,
        source=push.source,
        target=push.target,
        head=push.head,
        state=RequestState.OPEN,
        opened_at=at,
        pushers=(push.pusher,),
        author=Account(push.pusher, push.pusher),
        head_ref=head_ref(number),
    )
    return request, True


def end_request(request: ChangeRequest, state: RequestState, merged_as: str | None = None) -> ChangeRequest:
    """Return the request as merged or closed. Raises GitopsError `request_closed` if it ended in a different way before."""
    after = replace(request, state=state, merged_as=merged_as)
    if request.state is not RequestState.OPEN and after != request:
        raise GitopsError(Code.REQUEST_CLOSED, f"change request {request.number} is {request.state.value}")
    return after


# Comments


def read_comments(folder: DocumentFolder, own: str) -> tuple[Comment, ...]:
    """Return all comments, oldest first. Only comments by `own` keep their marker."""
    comments: list[Comment] = []
    for stem in _stems(folder):
        found = COMMENT.read(read_required(folder, f"{stem}.json"))
        marker = found.marker if found.author == own else None
        name = stem.removeprefix(f"{_COMMENTS}/")
        comments.append(replace(found, body=_body(folder, stem), marker=marker, id=name))
    return tuple(comments)


def comment_files(
    folder: DocumentFolder, body: str, *, author: str, at: str, marker: str | None = None
) -> Mapping[str, bytes]:
    """Return the files to write for a comment. It replaces the author's comment with the same marker, if there is one.

    `marker` is None for a person's comment. An updated comment keeps its time and place. Raises UsageError
    `comment_too_large`.
    """
    text = text_bytes(body)
    stems = _stems(folder)
    # A person's comment is always new, so earlier comments are not read.
    for stem in stems if marker is not None else ():
        found = COMMENT.read(read_required(folder, f"{stem}.json"))
        if (found.author, found.marker) == (author, marker):
            return {} if _body(folder, stem) == body else {f"{stem}.md": text}
    sequence = 1 + (_sequence(stems[-1]) if stems else 0)
    stem = f"{_COMMENTS}/{sequence:04}-{slug(marker or author)}"
    return {f"{stem}.json": COMMENT.write(Comment(author, "", at, marker)), f"{stem}.md": text}


def _stems(folder: DocumentFolder) -> list[str]:
    """Return the paths of comments without their suffix, in the order of their numbers."""
    stems = [f"{_COMMENTS}/{name[:-5]}" for name in folder.names(_COMMENTS) if _COMMENT_NAME.fullmatch(name)]
    return sorted(stems, key=_sequence)


def _sequence(stem: str) -> int:
    return int(stem.removeprefix(f"{_COMMENTS}/").partition("-")[0])


def _body(folder: DocumentFolder, stem: str) -> str:
    try:
        return read_required(folder, f"{stem}.md").decode()
    except UnicodeDecodeError as error:
        raise IntegrityError(Code.REQUEST_INVALID, f"{stem}.md is not UTF-8", path=stem) from error


# Files


def changed_files(folder: DocumentFolder, files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return only the files whose content differs from the folder."""
    return {path: data for path, data in files.items() if folder.read(path) != data}


def slug(text: str) -> str:
    """Return a part of a file name that people recognize."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower())[:_SLUG].strip("-") or "text"


def read_required(folder: DocumentFolder, path: str) -> bytes:
    """Return the content of a file. Raises IntegrityError `request_invalid` if it does not exist."""
    content = folder.read(path)
    if content is None:
        raise IntegrityError(Code.REQUEST_INVALID, f"{path} is missing", path=path)
    return content
