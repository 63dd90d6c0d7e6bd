"""Numbers with their nouns, and words that several printers share."""

from __future__ import annotations

FORMATTING_ONLY = "formatting only"
"""Marks a change of layout or comments, which leaves what is compiled as it is."""


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun. The default plural ends in s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def plural(noun: str) -> str:
    """Return the plural for a kind of resource."""
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
