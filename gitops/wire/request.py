"""`request.json`, comment and status, version 1: what a forge of our own keeps of a change request.

The documents stand alone: a comment's text lies beside its document as Markdown, so that `git show` reads well. Every name,
title and time in them is one plain line, because all of them are shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gitops.core.errors import IntegrityError
from gitops.wire import strict
from gitops.wire.strict import Node

__all__ = [
    "MAX_DOCUMENT",
    "VERSION",
    "CommentDocument",
    "RequestDocument",
    "StatusDocument",
    "read_comment",
    "read_request",
    "read_status",
    "write_comment",
    "write_request",
    "write_status",
]

VERSION = 1
MAX_DOCUMENT = 1024 * 1024
_CODE = "request_invalid"
_REQUEST_STATES = ("open", "merged", "closed")
_CHECK_STATES = ("pending", "success", "failure", "error")

D = TypeVar("D", "RequestDocument", "CommentDocument", "StatusDocument")


@dataclass(frozen=True, slots=True)
class RequestDocument:
    """A change request. `source` and `target` are full ref names, `head` and `merged_as` commit ids.

    `pushers` are names in the order of their latest push; `merged_as` is set exactly when `state` is `merged`.
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
    return _read(data, _request)


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
    return _write(document, form, _request)


def read_comment(data: bytes) -> CommentDocument:
    """Read the document of a comment. Raises IntegrityError `request_invalid`."""
    return _read(data, _comment)


def write_comment(document: CommentDocument) -> bytes:
    """The bytes of a comment. Raises IntegrityError `request_invalid` when they could not be read back."""
    form = {"author": document.author, "at": document.at, "marker": document.marker}
    return _write(document, form, _comment)


def read_status(data: bytes) -> StatusDocument:
    """Read the document of a status. Raises IntegrityError `request_invalid`."""
    return _read(data, _status)


def write_status(document: StatusDocument) -> bytes:
    """The bytes of a status. Raises IntegrityError `request_invalid` when they could not be read back."""
    form = {
        "commit": document.commit,
        "context": document.context,
        "state": document.state,
        "description": document.description,
        "at": document.at,
    }
    return _write(document, form, _status)


def _read(data: bytes, build: Callable[[Node], D]) -> D:
    with strict.refusing(_CODE):
        root = strict.parse(data, limit=MAX_DOCUMENT)
        strict.expect_version(root, "version", supported=VERSION, code=_CODE)
        return build(root)


def _write(document: D, form: dict[str, Any], build: Callable[[Node], D]) -> bytes:
    data = strict.encode({"version": VERSION, **form}, limit=MAX_DOCUMENT)
    if _read(data, build) != document:
        raise IntegrityError(_CODE, "the document does not survive being written down")
    return data


def _request(root: Node) -> RequestDocument:
    names = ("number", "title", "source", "target", "head", "state", "opened_at", "pushers", "merged_as")
    fields = root.fields(("version", *names))
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
    )
    if (document.state == "merged") != (document.merged_as is not None):
        raise fields["merged_as"].refuse("only a merged request, and it always, has it")
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
