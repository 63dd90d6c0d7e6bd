"""Numbers with their nouns."""

from __future__ import annotations


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun. The default plural ends in s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def plural(noun: str) -> str:
    """Return the plural for a kind of resource."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
