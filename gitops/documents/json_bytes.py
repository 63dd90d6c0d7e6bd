"""Strict reading of JSON documents that somebody else may have written.

What every reader of this package is built on:

1. The size is capped before anything is parsed, the depth before anything recurses.
2. The bytes are UTF-8 without a byte order mark; a key appears once; numbers are finite and text is whole Unicode.
3. Types are exact: `true` is not 1, `1.0` is not 1, null is not absent.
4. An object has exactly the members that its reader names.
5. A problem carries the path of the value it is about.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

from gitops.core.canonical import document
from gitops.core.clock import is_ulid, parse_timestamp
from gitops.core.codes import Code
from gitops.core.errors import IntegrityError, UsageError

T = TypeVar("T")

# Nothing that is written nests deeper than a handful; a state document of 100,000 resources stays below the size.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 48
MAX_LINE = 4096
# Twenty characters hold every 64-bit integer; longer ones would not survive other readers of the same document.
_MAX_DIGITS = 20
_SHOWN = 60

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEPS.keys())
# Line breaks, control characters, direction overrides and lone surrogates: nothing that may change how a line reads.
_NOT_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
_HEX64 = re.compile(r"[0-9a-f]{64}\Z")
_OBJECT_ID = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")


class MalformedError(ValueError):
    """A document does not have the form that its reader asks for; turned into a coded error by `refusing`."""

    def __init__(self, path: str, detail: str) -> None:
        """`path` is dotted, relative to the document; empty for the document itself."""
        super().__init__(f"{path}: {detail}" if path else detail)
        self.path = path
        self.detail = detail


@contextmanager
def refusing(code: Code) -> Iterator[None]:
    """Turn a MalformedError of the block into an IntegrityError with `code`, its `path` that of the value."""
    try:
        yield
    except MalformedError as problem:
        raise IntegrityError(code, str(problem), path=problem.path) from problem


def is_line(text: str) -> bool:
    """Whether `text` is one non-empty line that can be shown, logged and put into a commit message as it is.

    No control characters, line breaks, direction overrides or outer blanks; at most MAX_LINE characters.
    """
    return 0 < len(text) <= MAX_LINE and _NOT_A_LINE.search(text) is None and text == text.strip()


def is_digest(text: str) -> bool:
    """Whether `text` is a digest: 64 lower-case hex digits."""
    return _HEX64.match(text) is not None


@dataclass(frozen=True, slots=True)
class Node:
    """One value of a parsed document, knowing where it stands; paths are only put together for an error."""

    value: Any
    key: str = ""
    parent: Node | None = None

    @property
    def path(self) -> str:
        """Dotted path from the document: `applied_revision.resources[graph.catalogue].digest`."""
        steps: list[str] = []
        node: Node | None = self
        while node is not None:
            steps.append(node.key)
            node = node.parent
        text = ""
        for step in reversed(steps):
            text += step if not text or step.startswith("[") else f".{step}"
        return text

    def refuse(self, detail: str) -> MalformedError:
        """The error that says `detail` of this value."""
        return MalformedError(self.path, detail)

    def fields(self, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Node]:
        """The members of an object that has all of `required`, perhaps some of `optional`, and no other."""
        members = self._typed(dict, "an object")
        for name in members:
            if name not in required and name not in optional:
                raise self.refuse(f"unknown field {_show(name)}")
        for name in required:
            if name not in members:
                raise self.refuse(f"field {name} is missing")
        return {name: Node(value, name, self) for name, value in members.items()}

    def entries(self) -> Iterator[tuple[str, Node]]:
        """Key and value of each member of an object that is a map."""
        for name, value in self._typed(dict, "an object").items():
            yield name, Node(value, f"[{name}]", self)

    def items(self) -> Iterator[Node]:
        """The items of a list."""
        for index, value in enumerate(self._typed(list, "a list")):
            yield Node(value, f"[{index}]", self)

    def mapping(self) -> dict[str, Any]:
        """An object whose content is free."""
        members: dict[str, Any] = self._typed(dict, "an object")
        return members

    def text(self) -> str:
        """Any text."""
        text: str = self._typed(str, "a text")
        return text

    def line(self) -> str:
        """Text for which `is_line` holds."""
        text = self.text()
        if not is_line(text):
            raise self.refuse("expected one line without control characters")
        return text

    def digest(self) -> str:
        """64 lower-case hex digits."""
        text = self.text()
        if not is_digest(text):
            raise self.refuse("expected 64 lower-case hex digits")
        return text

    def object_id(self) -> str:
        """The full id of a git object: 40 or 64 lower-case hex digits."""
        text = self.text()
        if _OBJECT_ID.match(text) is None:
            raise self.refuse("expected the full id of a git object")
        return text

    def ulid(self) -> str:
        """A ULID."""
        text = self.text()
        if not is_ulid(text):
            raise self.refuse("expected a ULID")
        return text

    def moment(self) -> str:
        """An RFC 3339 time in UTC with `Z`, as text."""
        text = self.text()
        if not text.endswith("Z") or parse_timestamp(text) is None:
            raise self.refuse("expected an RFC 3339 time in UTC")
        return text

    def integer(self, minimum: int = 0) -> int:
        """An integer of at least `minimum`; neither a boolean nor a float."""
        if type(self.value) is not int:
            raise self.refuse(f"expected an integer, found {_kind(self.value)}")
        if self.value < minimum:
            raise self.refuse(f"expected an integer of at least {minimum}")
        return self.value

    def boolean(self) -> bool:
        """True or false."""
        truth: bool = self._typed(bool, "true or false")
        return truth

    def one_of(self, choices: Callable[[str], T]) -> T:
        """The member of an enumeration that a text names."""
        text = self.text()
        try:
            return choices(text)
        except ValueError:
            raise self.refuse(f"unknown value {_show(text)}") from None

    def nullable(self, read: Callable[[Node], T]) -> T | None:
        """What `read` makes of the value, or None for null."""
        return None if self.value is None else read(self)

    def _typed(self, kind: type, name: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.refuse(f"expected {name}, found {_kind(self.value)}")
        return self.value


def optional(fields: dict[str, Node], name: str, read: Callable[[Node], T]) -> T | None:
    """What `read` makes of a field that may be absent or null."""
    node = fields.get(name)
    return None if node is None else node.nullable(read)


def expect_version(root: Node, name: str, *, supported: int, code: Code) -> None:
    """Look at the version before anything else, so that a newer document is not called broken.

    Raises IntegrityError `code` for an integer that is not `supported`, MalformedError for anything that is no version.
    """
    one_version(root, name, supported=(supported,), code=code)


def one_version(root: Node, name: str, *, supported: Sequence[int], code: Code) -> int:
    """The version of a document of which several are read. Raises as `expect_version`."""
    members = root.mapping()
    if name not in members:
        raise root.refuse(f"field {name} is missing")
    found = Node(members[name], name, root)
    version = found.integer()
    if version not in supported:
        known = " and ".join(map(str, supported))
        detail = f"the document has {name} {found.value}; this release reads {name} {known}"
        raise IntegrityError(code, detail, path=found.path)
    return version


def parse(data: bytes, *, limit: int = MAX_BYTES) -> Node:
    """Parse one JSON document of at most `limit` bytes. Raises MalformedError, never RecursionError or UnicodeError."""
    if len(data) > limit:
        raise MalformedError("", f"the document has {len(data)} bytes; at most {limit} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise MalformedError("", f"not UTF-8: invalid byte at offset {problem.start}") from None
    _check_depth(text)
    try:
        value = json.loads(
            text, object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_constant
        )
    except json.JSONDecodeError as problem:
        raise MalformedError("", f"not JSON: {problem.msg} (line {problem.lineno}, column {problem.colno})") from None
    if "\\u" in text:
        _check_unicode(value)
    return Node(value)


def encode(value: Any, *, limit: int = MAX_BYTES) -> bytes:
    """Bytes of a stored document that `parse` will accept again.

    Raises UsageError for text that is not whole Unicode (such as an undecodable command line argument), and for a document
    that would be too large to be read back.
    """
    try:
        data = document(value)
    except UnicodeEncodeError:
        raise UsageError(Code.USAGE_ERROR, "a name or message is not valid Unicode text") from None
    if len(data) > limit:
        raise UsageError(
            Code.USAGE_ERROR, f"the document would have {len(data)} bytes; at most {limit} can be read back"
        )
    return data


def _check_depth(text: str) -> None:
    """Count brackets outside of strings in one linear pass; the parser itself recurses per level."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    # What is between the quotes is dropped first, then all but the brackets: three passes in C instead of a match for each piece.
    outside = "".join(text.split('"')[::2]) if "\\" not in text else _STRING.sub("", text)
    brackets = outside.encode("utf-8", "surrogatepass").translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise MalformedError("", f"nested deeper than {MAX_DEPTH} levels")


def _check_unicode(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise MalformedError("", "a text holds half of a surrogate pair") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedError("", f"field {_show(name)} is given twice")
    return members


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise MalformedError("", "an integer is too long")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedError("", "a number is too large")
    return number


def _constant(name: str) -> float:
    raise MalformedError("", f"{name} is not a JSON number")


def _show(text: str) -> str:
    """A foreign text as a quoted, bounded, single line for a message."""
    return json.dumps(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names[type(value)]
