"""The strict codec. A document's format is declared once, and both its reader and its writer are derived from it.

    PIN = Document(
        versions={1: record(AuditPin, {"cluster": LINE, "number": integer(1), "commit": OBJECT_ID})},
        code=Code.PIN_INVALID,
    )
    PIN.read(data)      # an AuditPin, or IntegrityError `pin_invalid` with the path of the wrong value
    PIN.write(pin)      # its bytes: `version` first, then the members in the order of the declaration

Every declared document guarantees:

1. Types are exact: `true` is not 1, `1.0` is not 1, null is not absent.
2. An object has exactly the declared members. A member is required unless it is declared `optional`.
3. The version is checked first. An undeclared version is refused with a message that contains it and the declared ones.
4. A problem has the path of the wrong value: `applied_revision.resources[graph.brain].digest`.
5. For every document that this program wrote, reading and writing it again produces the same bytes.

A later version of a record is declared as the earlier version's members plus the new ones: `MEMBERS | {"labels":
list_of(LINE)}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import OBJECT, Form, integer, is_line
from gitops.core.documents.json_bytes import MAX_BYTES, MalformedError, encode, parse
from gitops.core.errors import IntegrityError

T = TypeVar("T")

_UNSIGNED_LINES = 3
_ARMOR = ("-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document(Generic[T]):
    """A stored document: the form of each readable version, and its reader's error codes and size limit."""

    versions: Mapping[int, Form[T]]
    code: Code
    """Error code for bytes that don't have the declared form."""
    version_code: Code | None = None
    """Error code for a document of a different version, if it differs from `code`."""
    version_name: str = "version"
    limit: int = MAX_BYTES
    """Maximum number of bytes to read or write."""
    version_of: Callable[[T], int] | None = None
    """Returns the version in which a value is written; the default is the newest."""
    read_back: bool = False
    """If True, a value is refused if its written form would not read back as an equal value."""
    final_newline: bool = True

    def read(self, data: bytes) -> T:
        """Decode a document's bytes.

        Raises IntegrityError with `version_code` for an undeclared version, and with `code` for any other mismatch. The
        error's `path` is the path of the wrong value.
        """
        try:
            return self._read(parse(data, limit=self.limit))
        except MalformedError as problem:
            raise IntegrityError(self.code, str(problem), path=problem.path) from problem

    def form(self, value: T) -> dict[str, Any]:
        """Return a value's JSON object, which starts with its version."""
        version = max(self.versions) if self.version_of is None else self.version_of(value)
        members: dict[str, Any] = self.versions[version].write(value)
        return {self.version_name: version, **members}

    def write(self, value: T) -> bytes:
        """Encode a value as bytes.

        Raises UsageError for text that is not Unicode and for a document above the limit; IntegrityError `code` if the
        bytes, read back, do not give an equal value.
        """
        data = encode(self.form(value), limit=self.limit)
        if self.read_back and self.read(data) != value:
            raise IntegrityError(self.code, "the document would not read back as the same value")
        return data if self.final_newline else data.removesuffix(b"\n")

    def _read(self, value: Any) -> T:
        members = dict(OBJECT.read(value))
        name = self.version_name
        if name not in members:
            raise MalformedError(f"field {name} is missing")
        try:
            version = integer().read(members.pop(name))
        except MalformedError as problem:
            raise problem.inside(name) from None
        if version not in self.versions:
            known = " and ".join(map(str, self.versions))
            detail = f"the document has {name} {version}; this release reads {name} {known}"
            raise IntegrityError(self.version_code or self.code, detail, path=name)
        return self.versions[version].read(members)


@dataclass(frozen=True, slots=True)
class SignedMessage(Generic[T]):
    """A commit message whose signature covers a document: a subject, an empty line, and canonical JSON on one line.

        approve(<cluster>): <summary>
                                                    (one empty line)
        {"approval_id":"…", …}                      (canonical JSON on one line)
                                                    (one empty line)
        -----BEGIN SSH SIGNATURE-----               (over the line of JSON, in a separate namespace)

    `subject` returns the beginning of a value's message. There is exactly one message per document, summary and
    signature. Reading accepts no other spelling, so a message that two readers could understand differently is refused.
    Documents of a version before `signed_from` have no separate signature, so anyone who signs such a commit, for any
    reason, signs the document.
    """

    document: Document[T]
    subject: Callable[[T], str]
    signed_from: int

    def read(self, message: str) -> T:
        """Read the value from a commit message.

        Raises IntegrityError with the document's code for anything that `write` would not produce. Checks neither signatures
        nor the statements in the document.
        """
        subject, data, armor = self._parts(message)
        value = self.document.read(data)
        if canonical(form := self.document.form(value)) != data:
            raise self._error("the JSON is not in canonical form")
        if not is_line(subject) or not subject.startswith(self.subject(value)):
            raise self._error("the subject does not belong to the JSON below it")
        if (armor != "") != (form[self.document.version_name] >= self.signed_from):
            raise self._error("a document of this version " + ("has no signature" if armor else "needs a signature"))
        return value

    def signature(self, message: str) -> tuple[bytes, str]:
        """Return the bytes that the signature inside a message covers, and its armor (empty for an early document version)."""
        _, data, armor = self._parts(message)
        return data, armor

    def write(self, value: T, summary: str = "", *, sign: Callable[[bytes], str] | None = None) -> str:
        """Build a value's commit message. `summary` ends the subject line and is only for people.

        `sign` returns the armored signature of its argument; without it, only documents of early versions can be
        written. Raises IntegrityError with the document's code if the message would not be read back as an equal value.
        """
        try:
            data = canonical(self.document.form(value))
        except UnicodeEncodeError:
            raise self._error("a value is not valid Unicode") from None
        armor = "" if sign is None else f"\n{sign(data).strip()}\n"
        message = f"{self.subject(value)}{summary}\n\n{data.decode()}\n{armor}"
        if self.read(message) != value:
            raise self._error("the document would not read back as the same value")
        return message

    def _parts(self, message: str) -> tuple[str, bytes, str]:
        lines = message.removesuffix("\n").split("\n")
        signed = lines[_UNSIGNED_LINES:][:2] == ["", _ARMOR[0]] and lines[-1] == _ARMOR[1]
        if len(lines) < _UNSIGNED_LINES or lines[1] or (len(lines) != _UNSIGNED_LINES and not signed):
            raise self._error("expected a subject, an empty line, one line of JSON, and perhaps a signature")
        try:
            return lines[0], lines[2].encode(), "\n".join(lines[4:])
        except UnicodeEncodeError:
            raise self._error("the message is not valid Unicode") from None

    def _error(self, detail: str) -> IntegrityError:
        return IntegrityError(self.document.code, detail)
