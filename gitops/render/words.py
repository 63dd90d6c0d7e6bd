"""Numbers and their nouns."""

from __future__ import annotations


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number and its noun, whose plural has an s if none is given."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def plural(noun: str) -> str:
    """Return the plural of a kind of resource."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
