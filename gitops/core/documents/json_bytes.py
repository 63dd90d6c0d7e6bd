"""Converts JSON documents, which another program may have written, between bytes and plain values.

1. The size is checked before parsing, and the depth before any recursion.
2. The bytes are UTF-8 without a byte order mark, each key appears once, numbers are finite, and text is valid Unicode.

The forms of `gitops.core.documents.codec` define which values are valid.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from itertools import accumulate
from typing import Any

from gitops.core.canonical import document
from gitops.core.codes import Code
from gitops.core.errors import UsageError

# Our own documents have only a few levels, and a state document with 100,000 resources is smaller than this.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 48
# Twenty characters are enough for every 64-bit integer. Other parsers could not read longer numbers exactly.
MAX_DIGITS = 20
_SHOWN = 60

_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _STEPS.keys())
_NO_BRACKETS_OR_QUOTES = _NO_BRACKETS.replace(b'"', b"")


class MalformedError(ValueError):
    """Raised for a value that does not have the declared form.

    The document's reader turns this into an error with a code.
    """

    def __init__(self, detail: str, path: str = "") -> None:
        """`path` is dotted and relative to the value that was read; empty for that value itself."""
        super().__init__(f"{path}: {detail}" if path else detail)
        self.detail = detail
        self.path = path

    def inside(self, step: str) -> MalformedError:
        """Return the same error with `step`, a member name or an index in brackets, in front of its path."""
        joint = "" if not self.path or self.path.startswith("[") else "."
        return MalformedError(self.detail, f"{step}{joint}{self.path}")


def parse(data: bytes, *, limit: int = MAX_BYTES) -> Any:
    """Parse one JSON document of at most `limit` bytes. Raises MalformedError, never RecursionError or UnicodeError."""
    if len(data) > limit:
        raise MalformedError(f"the document has {len(data)} bytes; at most {limit} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise MalformedError(f"not UTF-8: invalid byte at offset {problem.start}") from None
    _check_depth(data)
    try:
        # A byte order mark is refused by the module's own function only.
        value = json.loads(text) if text.startswith("\ufeff") else _decoder().decode(text)
    except json.JSONDecodeError as problem:
        raise MalformedError(f"not JSON: {problem.msg} (line {problem.lineno}, column {problem.colno})") from None
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise MalformedError("a string contains half of a surrogate pair") from None
    return value


@cache
def _decoder() -> json.JSONDecoder:
    """Return the decoder of all documents; making one takes as long as reading a small document."""
    return json.JSONDecoder(
        object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_constant
    )


def encode(value: Any, *, limit: int = MAX_BYTES) -> bytes:
    """Encode a document for storage, so that `parse` accepts it.

    Raises UsageError for text that is not valid Unicode (such as an undecodable command line argument), and for a document
    that would be too large to read back.
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


def quoted(text: str) -> str:
    """Quote an untrusted string for a message, shortened and on one line."""
    return json.dumps(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")


def _check_depth(data: bytes) -> None:
    """Check the depth by counting brackets outside of strings, in linear time, because the parser recurses per level."""
    if data.count(b"{") + data.count(b"[") <= MAX_DEPTH:
        return
    # If there are no escapes, a pair of quotes without a bracket in between can be skipped without matching each
    # string.
    brackets = data.translate(None, _NO_BRACKETS_OR_QUOTES).replace(b'""', b"")
    if b'"' in brackets or b"\\" in data:
        brackets = _STRING.sub(b"", data).translate(None, _NO_BRACKETS)
    if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
        raise MalformedError(f"nested deeper than {MAX_DEPTH} levels")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        name = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise MalformedError(f"field {quoted(name)} appears twice")
    return members


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise MalformedError("an integer is too long")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedError("a number is too large")
    return number


def _constant(name: str) -> float:
    raise MalformedError(f"{name} is not a JSON number")
