r"""Escapes invisible and control characters: control codes, bidirectional overrides, zero-width and blank letters.

Text from a change request is shown with these characters spelled out (`\x1b`, `\u202e`), never dropped, so that readers
notice them and two different names never look alike. Sources: "Trojan Source" (Boucher and Anderson, 2021); UAX #9;
Unicode property Default_Ignorable_Code_Point.
"""

from __future__ import annotations

import re

# Printable by category, but drawn as nothing or as a blank: joiners, fillers, variation selectors, the empty Braille
# cell.
_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]",
)
# CI runners obey these anywhere in a log line, not only at its start.
_RUNNER_COMMAND = re.compile(r"##(?=\[|vso\[)")


def is_plain(text: str) -> bool:
    """Return True if all characters of `text` are visible and no part of it is a command for a CI runner."""
    return text.isprintable() and _HIDDEN.search(text) is None and _RUNNER_COMMAND.search(text) is None


def visible(text: str, *, keep: str = "") -> str:
    """Return `text` with every invisible character as a Python escape, except those in `keep`.

    Also escapes lone surrogates, so that the result can always be encoded. This is not quoting, so backslashes are
    unchanged.
    """
    if is_plain(text):
        return text
    shown = "".join(c if c in keep or _shows(c) else c.encode("unicode_escape").decode("ascii") for c in text)
    return _RUNNER_COMMAND.sub(r"#\\x23", shown)


def visible_json(text: str) -> str:
    """Return JSON text with such characters as JSON escapes. Its value is the same, and it is safe to print.

    Line feeds are kept as layout.
    """
    if is_plain(text.replace("\n", "")):
        return text
    shown = "".join(c if c == "\n" or _shows(c) else _json_escape(c) for c in text)
    return _RUNNER_COMMAND.sub(r"#\\u0023", shown)


def _shows(character: str) -> bool:
    return character.isprintable() and _HIDDEN.match(character) is None


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
