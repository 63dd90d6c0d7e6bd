"""The documents of a graph: their reader, and the forms that they share.

An unknown or missing member or a wrong type refuses the whole document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gitops.core.canonical import canonical_digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, OBJECT, Form, integer, text_form
from gitops.core.documents.json_bytes import MalformedError
from gitops.core.errors import IntegrityError

__all__ = ["NAME", "TIME", "graph_document", "matches", "number", "read_document", "read_json", "sealed"]

T = TypeVar("T")

CHECKSUM = "checksum"

NAME = text_form(bool, "a text that is not empty")
TIME = text_form(lambda text: parse_timestamp(text) is not None, "an RFC 3339 time")


def number(least: int) -> Form[int]:
    """A whole number of at least `least` that fits 64 bits."""
    return integer(least, 2**63 - 1)


def matches(pattern: str) -> Callable[[str], bool]:
    """Whether the pattern describes the whole of a text."""
    accepts = re.compile(pattern).fullmatch
    return lambda text: accepts(text) is not None


def sealed(form: Form[T]) -> Form[T]:
    """The form with the member `checksum`, a digest of all others but the format: a change of any of them is noticed."""

    def read(value: Any) -> T:
        members = dict(OBJECT.read(value))
        if CHECKSUM not in members:
            raise MalformedError(f"field {CHECKSUM} is missing")
        stated, found = DIGEST.read(members.pop(CHECKSUM)), canonical_digest(members)
        if stated != found:
            raise MalformedError(
                f"the content has the digest {found[:12]}, and was written with {stated[:12]}", CHECKSUM
            )
        return form.read(members)

    def write(value: T) -> Any:
        members = form.write(value)
        return {**members, CHECKSUM: canonical_digest(members)}

    return Form(read, write)


def graph_document(formats: Mapping[int, Form[T]]) -> Document[T]:
    """A document in these formats; the newest is written."""
    return Document(versions=formats, code=Code.GRAPH_UNREADABLE, version_name="format")


def read_document(document: Document[T], data: bytes, place: str) -> T:
    """The value of the bytes at `place`. Raises IntegrityError `graph_unreadable`."""
    try:
        return document.read(data)
    except IntegrityError as error:
        raise IntegrityError(error.code, f"{place}: {error.detail}", path=place) from None


def read_json(form: Form[T], value: Any, place: str) -> T:
    """The value of plain JSON from `place`. Raises IntegrityError `graph_unreadable`."""
    try:
        return form.read(value)
    except MalformedError as problem:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place}: {problem}", path=place) from None
