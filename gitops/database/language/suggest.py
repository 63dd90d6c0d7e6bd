"""Finds the known name nearest to a misspelled one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Self

MAX_NAME = 48
MAX_CANDIDATES = 200
_OTHER_NAMES = {
    "String": "text str varchar uuid",
    "I32": "int32",
    "I64": "int integer long bigint int64",
    "U32": "uint32",
    "U64": "uint64",
    "F32": "float32",
    "F64": "float double decimal number real float64",
    "Bool": "boolean",
    "DateTime": "timestamp",
    "Blob": "bytes binary",
}
_OTHER_TYPES = {name: known for known, names in _OTHER_NAMES.items() for name in names.split()}
# Words of other query languages, by the equivalent word of this one.
_OTHER_WORDS = {"select": "match", "find": "match", "create": "insert", "merge": "insert", "remove": "delete"}
_COMPARED = 4
_LISTED = 20


class Suggestion(str):
    """The text of a fix that suggests `name` for `wrong`, which programs can apply automatically."""

    __slots__ = ("name", "wrong")
    wrong: str
    name: str

    def __new__(cls, wrong: str, name: str, mark: str = "") -> Self:
        """Suggest `name`, written after a `mark` such as `$`."""
        made = super().__new__(cls, f"did you mean `{mark}{name}`?")
        made.wrong, made.name = wrong, name
        return made

    def replacement(self, written: str) -> str | None:
        """Return `written` with the suggested name in place of the wrong one.

        Returns None if `written` contains more than the wrong name and its quotes.
        """
        for before, after in (("", ""), ("$", ""), ('"', '"')):
            if written == f"{before}{self.wrong}{after}":
                return f"{before}{self.name}{after}"
        return None


def did_you_mean(name: str, candidates: Collection[str]) -> Suggestion | None:
    """Return a fix that suggests the candidate nearest to `name`, or None if none is near or `name` is a candidate.

    Long names and long lists are not searched, and only the few names that share the most letter pairs are compared,
    because the comparison is quadratic and a hostile file could cause very many comparisons.
    """
    if len(name) > MAX_NAME or len(candidates) > MAX_CANDIDATES or name in candidates:
        return None
    from difflib import get_close_matches
    from heapq import nlargest

    pairs, known = _letter_pairs(name), sorted(each for each in candidates if len(each) <= MAX_NAME)
    if len(known) > _COMPARED:

        def similarity(other: str) -> float:
            others = _letter_pairs(other)
            return len(pairs & others) / (len(pairs) + len(others))

        known = nlargest(_COMPARED, known, key=similarity)
    near = get_close_matches(name, sorted(known), n=1)
    return Suggestion(name, near[0]) if near else None


def nearest_type(name: str, known: Collection[str]) -> Suggestion | None:
    """Return a fix that suggests the nearest type. Also recognizes type names from other languages and databases."""
    other = _OTHER_TYPES.get(name.lower(), "")
    return Suggestion(name, other) if other in known else did_you_mean(name, known)


def nearest_expected(name: str, expected: str) -> Suggestion | None:
    """Return the backquoted word in `expected` that is closest to `name` or means the same."""
    known = re.findall("`([a-z]+)`", expected)
    other = _OTHER_WORDS.get(name.lower(), "")
    return Suggestion(name, other) if other in known else did_you_mean(name, known)


def choices(name: str, candidates: Collection[str]) -> str:
    """Return the end of a message about an unknown name: the nearest candidate and the first existing names."""
    near, known = did_you_mean(name, candidates), sorted(candidates)
    there = ", ".join(known[:_LISTED]) + (f" and {len(known) - _LISTED} more" if len(known) > _LISTED else "")
    return (f"; {near}" if near else ";") + f" known: {there or 'none'}"


def _letter_pairs(name: str) -> set[str]:
    """Return the pairs of adjacent letters in a name, including its start and end."""
    ended = f"^{name}$"
    return {ended[at : at + 2] for at in range(len(ended) - 1)}
