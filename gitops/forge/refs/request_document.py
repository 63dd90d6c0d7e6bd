"""`request.json`, comment and status: what a forge of our own keeps of a change request.

The documents stand alone: a comment's text lies beside its document as Markdown, so that `git show` reads well. Every name,
title and time in them is one plain line, because all of them are shown.

All are of version 1; a request that has an author or labels is of version 2, and one that has neither is written as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.documents import strict
from gitops.documents.strict import Node

__all__ = [
    "MAX_DOCUMENT",
    "REQUEST_VERSION",
    "VERSION",
    "CommentDocument",
    "RequestDocument",
    "StatusDocument",
    "read_comment",
    "read_document",
    "read_request",
    "read_status",
    "write_comment",
    "write_document",
    "write_request",
    "write_status",
]

VERSION = 1
REQUEST_VERSION = 2
MAX_DOCUMENT = 1024 * 1024
_CODE = Code.REQUEST_INVALID
_REQUEST_STATES = ("open", "merged", "closed")
_CHECK_STATES = ("pending", "success", "failure", "error")

D = TypeVar("D")


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


@dataclass(frozen=True, slots=True)
class CommentDocument:
    """Who wrote a comment and when; `marker` is set on a comment that its author keeps up to date."""

    author: str
    at: str
    marker: str | None


@dataclass(frozen=True, slots=True)
class StatusDocument:
    """The status of a commit in a context; `description` is one line or empty."""

    commit: str
    context: str
    state: str
    description: str
    at: str


def read_request(data: bytes) -> RequestDocument:
    """Read `request.json`. Raises IntegrityError `request_invalid`."""
    return read_document(data, _request, newest=REQUEST_VERSION)


def write_request(document: RequestDocument) -> bytes:
    """The bytes of a request. Raises IntegrityError `request_invalid` when they could not be read back."""
    form = {
        "number": document.number,
        "title": document.title,
        "source": document.source,
        "target": document.target,
        "head": document.head,
        "state": document.state,
        "opened_at": document.opened_at,
        "pushers": list(document.pushers),
        "merged_as": document.merged_as,
    }
    if document.author is None and not document.labels:
        return write_document(document, form, _request)
    form |= {"author": document.author, "labels": list(document.labels)}
    return write_document(document, form, _request, version=REQUEST_VERSION)


def read_comment(data: bytes) -> CommentDocument:
    """Read the document of a comment. Raises IntegrityError `request_invalid`."""
    return read_document(data, _comment)


def write_comment(document: CommentDocument) -> bytes:
    """The bytes of a comment. Raises IntegrityError `request_invalid` when they could not be read back."""
    form = {"author": document.author, "at": document.at, "marker": document.marker}
    return write_document(document, form, _comment)


def read_status(data: bytes) -> StatusDocument:
    """Read the document of a status. Raises IntegrityError `request_invalid`."""
    return read_document(data, _status)


def write_status(document: StatusDocument) -> bytes:
    """The bytes of a status. Raises IntegrityError `request_invalid` when they could not be read back."""
    form = {
        "commit": document.commit,
        "context": document.context,
        "state": document.state,
        "description": document.description,
        "at": document.at,
    }
    return write_document(document, form, _status)


def read_document(data: bytes, build: Callable[[Node], D], *, newest: int = VERSION) -> D:
    """What `build` makes of a document of any version up to `newest`. Raises IntegrityError `request_invalid`."""
    with strict.refusing(_CODE):
        root = strict.parse(data, limit=MAX_DOCUMENT)
        _version(root, newest)
        return build(root)


def write_document(document: D, form: dict[str, Any], build: Callable[[Node], D], *, version: int = VERSION) -> bytes:
    """The bytes of a document. Raises IntegrityError `request_invalid` when `build` could not read them back."""
    data = strict.encode({"version": version, **form}, limit=MAX_DOCUMENT)
    if read_document(data, build, newest=version) != document:
        raise IntegrityError(_CODE, "the document does not survive being written down")
    return data


def _version(root: Node, newest: int) -> int:
    """The version of a document, looked at before anything else."""
    found = root.mapping().get("version")
    # Exactly an integer: neither true nor 1.0.
    if type(found) is not int or not 1 <= found <= newest:
        strict.expect_version(root, "version", supported=newest, code=_CODE)
        return newest
    return found


def _request(root: Node) -> RequestDocument:
    names = ("number", "title", "source", "target", "head", "state", "opened_at", "pushers", "merged_as")
    later = ("author", "labels") if _version(root, REQUEST_VERSION) > 1 else ()
    fields = root.fields(("version", *names, *later))
    document = RequestDocument(
        number=fields["number"].integer(1),
        title=fields["title"].line(),
        source=_ref(fields["source"]),
        target=_ref(fields["target"]),
        head=fields["head"].object_id(),
        state=_choice(fields["state"], _REQUEST_STATES),
        opened_at=fields["opened_at"].moment(),
        pushers=tuple(item.line() for item in fields["pushers"].items()),
        merged_as=fields["merged_as"].nullable(Node.object_id),
        author=fields["author"].nullable(Node.line) if later else None,
        labels=tuple(item.line() for item in fields["labels"].items()) if later else (),
    )
    if (document.state == "merged") != (document.merged_as is not None):
        raise fields["merged_as"].refuse("only a merged request, and it always, has it")
    if later and list(document.labels) != sorted(set(document.labels)):
        raise fields["labels"].refuse("expected sorted names, each once")
    return document


def _comment(root: Node) -> CommentDocument:
    fields = root.fields(("version", "author", "at", "marker"))
    return CommentDocument(fields["author"].line(), fields["at"].moment(), fields["marker"].nullable(Node.line))


def _status(root: Node) -> StatusDocument:
    fields = root.fields(("version", "commit", "context", "state", "description", "at"))
    description = fields["description"]
    return StatusDocument(
        commit=fields["commit"].object_id(),
        context=fields["context"].line(),
        state=_choice(fields["state"], _CHECK_STATES),
        description=description.line() if description.text() else "",
        at=fields["at"].moment(),
    )


def _ref(node: Node) -> str:
    """A full ref name; git itself judges the rest of its form."""
    name = node.line()
    if not name.startswith("refs/"):
        raise node.refuse("expected a full ref name")
    return name


def _choice(node: Node, choices: tuple[str, ...]) -> str:
    return choices[node.one_of(choices.index)]
