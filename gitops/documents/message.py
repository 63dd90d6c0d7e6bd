"""Commit messages whose signature covers one document: a subject, an empty line, and canonical JSON on one line.

    approve(<cluster>): <summary>
                                                (one empty line)
    {"approval_id":"…", …}                      (canonical JSON on one line)

There is exactly one message per document and summary, and reading accepts no other spelling of it: a message that two
readers could understand differently is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gitops.core.canonical import canonical
from gitops.core.errors import IntegrityError
from gitops.documents.codec import Document
from gitops.documents.forms import is_line

__all__ = ["SignedMessage"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SignedMessage(Generic[T]):
    """The commit message that carries a document; `subject` gives the text with which the message of a value begins."""

    document: Document[T]
    subject: Callable[[T], str]

    def read(self, message: str) -> T:
        """The value in a message.

        Raises IntegrityError with the document's code for anything but what `write` gives. Does not check the signature,
        nor what the document states.
        """
        lines = message.removesuffix("\n").split("\n")
        if len(lines) != 3 or lines[1]:  # noqa: PLR2004 - subject, empty line, document
            raise self._error("expected a subject, an empty line and one line of JSON")
        try:
            data = lines[2].encode()
        except UnicodeEncodeError:
            raise self._error("the message is not valid Unicode") from None
        value = self.document.read(data)
        if canonical(self.document.form(value)) != data:
            raise self._error("the JSON is not in canonical form")
        if not is_line(lines[0]) or not lines[0].startswith(self.subject(value)):
            raise self._error("the subject does not belong to the JSON below it")
        return value

    def write(self, value: T, summary: str = "") -> str:
        """The message of a value; `summary` ends the subject, is for people and decides nothing.

        Raises IntegrityError with the document's code when the message would not read back as an equal value.
        """
        try:
            data = canonical(self.document.form(value)).decode()
        except UnicodeEncodeError:
            raise self._error("a value is not valid Unicode") from None
        message = f"{self.subject(value)}{summary}\n\n{data}\n"
        if self.read(message) != value:
            raise self._error("the document would not read back as the same value")
        return message

    def _error(self, detail: str) -> IntegrityError:
        return IntegrityError(self.document.code, detail)
