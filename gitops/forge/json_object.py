"""Reading JSON from a forge: strict about the fields that are used, silent about the others.

Every method says what it expects. A field that is missing, of another type or out of bounds is refused with its path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gitops.core.clock import parse_timestamp, timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError

_OBJECT_ID = re.compile(r"[0-9a-f]{40}")
_HALF = re.compile("[\ud800-\udfff]")
_LINE = 1024
_LARGEST = 10**18


class JsonObject:
    """A JSON object and its path in the document; `fail` makes the error for a field that is refused."""

    __slots__ = ("_fail", "_place", "_value")

    def __init__(self, value: Any, place: str, fail: Callable[[str], GitopsError]) -> None:
        """Raises what `fail` makes if `value` is not an object."""
        self._place = place
        self._fail = fail
        if not isinstance(value, dict):
            raise fail(f"{place or 'it'} is not an object")
        self._value: dict[str, Any] = value

    def has(self, name: str) -> bool:
        """Whether a field is there and not null."""
        return self._value.get(name) is not None

    def part(self, name: str) -> JsonObject:
        """The object in a field."""
        return JsonObject(self._value.get(name), self._at(name), self._fail)

    def optional(self, name: str) -> JsonObject | None:
        """The object in a field, or None if that is missing or null."""
        return self.part(name) if self.has(name) else None

    def parts(self, name: str) -> Iterator[JsonObject]:
        """The objects of the list in a field; none if that is missing or null."""
        for index, value in enumerate(self.values(name)):
            yield JsonObject(value, f"{self._at(name)}[{index}]", self._fail)

    def values(self, name: str) -> list[Any]:
        """The list in a field, empty if that is missing or null."""
        value = self._value.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def text(self, name: str, most: int = _LINE) -> str:
        """A text of at most `most` characters."""
        value = self._value.get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "a text")
        if len(value) > most:
            raise self._wrong(name, f"a text of at most {most} characters")
        if not is_unicode(value):
            raise self._wrong(name, "a text of Unicode characters")
        return value

    def text_or(self, name: str, default: str = "", most: int = _LINE) -> str:
        """The same, or the default if the field is missing or null."""
        return self.text(name, most) if self.has(name) else default

    def line(self, name: str, most: int) -> str:
        """A text for people on one line: cut to `most` characters, with spaces for control characters."""
        value = self.text_or(name, most=1 << 20)
        return "".join(c if c.isprintable() else " " for c in value)[:most].strip()

    def flag(self, name: str) -> bool:
        """True or false; false if the field is missing or null."""
        value = self._value.get(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return bool(value)

    def number(self, name: str, least: int = 1) -> int:
        """A whole number from `least` on."""
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value < _LARGEST:
            raise self._wrong(name, "a positive number" if least > 0 else f"a whole number from {least} on")
        return value

    def commit(self, name: str) -> str:
        """The full id of a commit."""
        value = self._value.get(name)
        if not isinstance(value, str) or not _OBJECT_ID.fullmatch(value):
            raise self._wrong(name, "the id of a commit")
        return value

    def commit_or(self, name: str) -> str | None:
        """The same, or None if the field is missing or null."""
        return self.commit(name) if self.has(name) else None

    def moment(self, name: str) -> str:
        """A time, as RFC 3339 in UTC."""
        value = self._value.get(name)
        found = parse_timestamp(value) if isinstance(value, str) else None
        if found is None:
            raise self._wrong(name, "a time")
        return timestamp(found)

    def same_moment(self, name: str, other: str) -> bool:
        """Whether two times are there and equal, in all their digits."""
        first, second = (
            parse_timestamp(text) if isinstance(text, str) else None for text in map(self._value.get, (name, other))
        )
        return first is not None and first == second

    def items(self) -> list[tuple[str, Any]]:
        """All fields, by name."""
        return sorted(self._value.items())

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name

    def _wrong(self, name: str, expected: str) -> GitopsError:
        return self._fail(f"{self._at(name)} is not {expected}")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON can hold halves of characters, which UTF-8 cannot."""
    return text.isascii() or not _HALF.search(text)


def event_object(body: bytes, most: int) -> JsonObject:
    """The object in the body of an event. Raises GitopsError `event_invalid`, also for more than `most` bytes."""
    if len(body) > most:
        raise _event_invalid(f"the body has {len(body)} bytes; at most {most} are read")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _event_invalid("the body is not JSON, or is nested too deeply") from error
    return JsonObject(value, "", _event_invalid)


def answer_object(value: Any, what: str = "") -> JsonObject:
    """The object that a forge answered with. Raises RemoteError `forge_unavailable`."""
    return JsonObject(value, what, _answer_invalid)


def _event_invalid(detail: str) -> GitopsError:
    return GitopsError(Code.EVENT_INVALID, detail)


def _answer_invalid(detail: str) -> GitopsError:
    return RemoteError(Code.FORGE_UNAVAILABLE, f"the forge answers in a form that is not the documented one: {detail}")
