r"""Characters that act instead of being seen: control codes, bidirectional overrides, zero-width and blank letters.

Everything that a change request may have written is shown with such characters spelled out (`\x1b`, `\u202e`), never
dropped: a reader sees that something is there, and two different names never look alike because one was cleaned.
Sources: "Trojan Source" (Boucher and Anderson, 2021); UAX #9; Unicode property Default_Ignorable_Code_Point.
"""

from __future__ import annotations

import re

# Printable by category, yet drawn as nothing or as a blank: joiners, fillers, variation selectors, the empty Braille cell.
_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]",
)
# CI runners obey these anywhere in a line of a job's log, not only at its start.
_RUNNER_COMMAND = re.compile(r"##(?=\[|vso\[)")


def is_plain(text: str) -> bool:
    """Return whether every character of `text` shows itself and nothing in it commands a CI runner."""
    return text.isprintable() and _HIDDEN.search(text) is None and _RUNNER_COMMAND.search(text) is None


def visible(text: str, *, keep: str = "") -> str:
    """`text` with every character that does not show itself spelled as a Python escape; those in `keep` stay.

    Also spells out lone surrogates, so that the result can always be encoded. It is not a quoting: a backslash stays one.
    """
    if is_plain(text):
        return text
    shown = "".join(c if c in keep or _shows(c) else c.encode("unicode_escape").decode("ascii") for c in text)
    return _RUNNER_COMMAND.sub(r"#\\x23", shown)


def visible_json(text: str) -> str:
    """JSON text with such characters as JSON escapes: the same value, safe to print. Line feeds stay: they are layout."""
    if is_plain(text.replace("\n", "")):
        return text
    shown = "".join(c if c == "\n" or _shows(c) else _json_escape(c) for c in text)
    return _RUNNER_COMMAND.sub(r"#\\u0023", shown)


def _shows(character: str) -> bool:
    return character.isprintable() and _HIDDEN.match(character) is None


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
