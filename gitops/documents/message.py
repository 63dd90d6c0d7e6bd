"""Commit messages whose signature covers one statement: a subject, an empty line, and canonical JSON on one line.

    <verb>(<cluster>): <summary>
                                                (one empty line)
    {"approval_id":"…", …}                      (canonical JSON on one line)

There is exactly one message per statement and summary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError
from gitops.documents import strict
from gitops.documents.strict import MalformedError

__all__ = ["MessageText", "read_message", "write_message"]


@dataclass(frozen=True, slots=True)
class MessageText:
    """The two parts of a message; `data` is the line of JSON."""

    subject: str
    data: bytes

    def expect(self, prefix: str, data: bytes) -> None:
        """Hold the message to the only spelling of what was read from it. Raises MalformedError."""
        if self.data != data:
            raise MalformedError("", "the JSON is not in canonical form")
        if not strict.is_line(self.subject) or not self.subject.startswith(prefix):
            raise MalformedError("", "the subject does not belong to the statement")


def read_message(message: str) -> MessageText:
    """Take a message apart. Raises MalformedError for anything but subject, empty line and one line more."""
    lines = message.removesuffix("\n").split("\n")
    if len(lines) != 3 or lines[1]:  # noqa: PLR2004 - subject, empty line, statement
        raise MalformedError("", "expected a subject, an empty line and one line of JSON")
    try:
        return MessageText(lines[0], lines[2].encode())
    except UnicodeEncodeError:
        raise MalformedError("", "the message is not valid Unicode") from None


def write_message(subject: str, form: Mapping[str, Any], code: Code) -> str:
    """The message of a statement; the caller reads it back. Raises IntegrityError `code` for text that is not Unicode."""
    try:
        return f"{subject}\n\n{canonical(dict(form)).decode()}\n"
    except UnicodeEncodeError:
        raise IntegrityError(code, "a value of the statement is not valid Unicode") from None
