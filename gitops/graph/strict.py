"""The strict reader of documents of a graph: an unknown or missing member or a wrong type refuses the whole document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import IntegrityError

__all__ = ["Members", "parse_object", "unique_members"]

MAX_NUMBER = 2**63 - 1


def parse_object(data: bytes | None, place: str) -> dict[str, Any]:
    """One JSON object without repeated members. Raises IntegrityError `graph_unreadable`, also when there is no data."""
    if data is None:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is missing", path=place)
    try:
        value = json.loads(data.decode(), object_pairs_hook=unique_members)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is not a JSON document: {error}", path=place) from None
    if not isinstance(value, dict):
        raise IntegrityError(Code.GRAPH_UNREADABLE, f"{place} is not a JSON object", path=place)
    return value


def unique_members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The hook of a JSON parser that refuses repeated members. Raises ValueError."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a member is given twice")
    return value


class Members:
    """The members of one object; every method raises IntegrityError `graph_unreadable`."""

    def __init__(self, form: Mapping[str, Any], place: str) -> None:
        """`place` is the address of the document, for messages."""
        self._form = form
        self._place = place

    def expect(self, *names: str) -> None:
        """Refuse any other set of members."""
        odd = sorted(set(names) ^ set(self._form))
        if odd:
            raise self.error(f"member {odd[0][:80]!r} is missing or unknown")

    def format(self, *known: int) -> int:
        """The number of the document's format: another one is refused by naming both."""
        found = self._form.get("format")
        if type(found) is not int or found not in known:
            newest = max(known)
            raise self.error(f"format {str(found)[:20]} is not format {newest}, the newest that this program reads")
        return found

    def take(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The member if it is of this kind; a boolean is not a number."""
        value = self._form[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(f"member {name!r} has the wrong type")
        return value

    def number(self, name: str, least: int) -> int:
        """A whole number of at least `least`."""
        value: int = self.take(name, int)
        if not least <= value <= MAX_NUMBER:
            raise self.error(f"member {name!r} is out of range")
        return value

    def text(self, name: str, accepts: Callable[[str], Any]) -> str:
        """A text that the function accepts."""
        value: str = self.take(name, str)
        if not accepts(value):
            raise self.error(f"member {name!r} is not well formed")
        return value

    def maybe_text(self, name: str, accepts: Callable[[str], Any] = lambda _: True) -> str | None:
        """A text that the function accepts, or null."""
        return None if self._form[name] is None else self.text(name, accepts)

    def inner(self, name: str) -> Members:
        """The members of an object inside."""
        return Members(self.take(name, dict), self._place)

    def error(self, what: str) -> IntegrityError:
        """The failure to read this document."""
        return IntegrityError(Code.GRAPH_UNREADABLE, f"{self._place}: {what}", path=self._place)
