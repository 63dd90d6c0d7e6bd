"""Words of a text, as search sees them.

A token is a longest run of letters, digits and marks, not of marks alone, each character lower-cased by itself. An index of
the Lance driver (tokenizer `simple`, lower-cased, no stemming, no stop words) cuts at every place where this module cuts, and
at some marks besides; so whatever holds a token here holds all of its pieces there, and an index gives a superset that is
tested here.
"""

from __future__ import annotations

import unicodedata

__all__ = ["edits_within", "tokens"]

# Symbols that Unicode calls alphabetic, although their category is none of letters, digits and marks: circled and squared
# letters. The driver's tokenizer keeps them in words.
_ALPHABETIC_SYMBOLS = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
_WORD = frozenset("LNM")


class _Folding(dict[int, str]):
    """Code point to what it becomes: its lower case in a word, a space between words. Filled as characters are met."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        in_word = unicodedata.category(character)[0] in _WORD
        if not in_word:
            in_word = any(first <= point <= last for first, last in _ALPHABETIC_SYMBOLS)
        folded = character.lower() if in_word else " "
        self[point] = folded
        return folded


_FOLDING = _Folding()


def tokens(text: str) -> list[str]:
    """The tokens of a text in its order, repeated ones included."""
    words = text.translate(_FOLDING).split()
    return words if text.isascii() else [word for word in words if not all(map(_is_mark, word))]


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def edits_within(one: str, other: str, most: int) -> bool:
    """Whether at most `most` insertions, deletions and replacements of characters make one text the other (Levenshtein)."""
    if abs(len(one) - len(other)) > most:
        return False
    if one == other:
        return True
    row = list(range(len(other) + 1))
    for at, character in enumerate(one, start=1):
        diagonal, row[0] = row[0], at
        for to, wanted in enumerate(other, start=1):
            diagonal, row[to] = row[to], min(row[to] + 1, row[to - 1] + 1, diagonal + (character != wanted))
        if min(row) > most:
            return False
    return row[-1] <= most
