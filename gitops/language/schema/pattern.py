r"""Which regular expressions a `@check` may hold: a portable subset that linear-time engines agree on.

The subset: literals, `.`, `^`, `$`, classes, groups (plain, `(?:..)`, `(?P<name>..)`), the flags i, m and s,
alternation, the quantifiers `* + ? {n} {n,} {n,m}` and their lazy forms, the escapes of `_ESCAPES`, `\xHH`,
`\x{H..}`, `\pL` and `\p{Name}`. No look-around and no back-references, which no linear-time engine has.
Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from typing import NoReturn

MAX_PATTERN = 1000
"""Longest pattern, in characters."""

MAX_REPEAT = 1000
"""Largest product of nested counted repeats, the limit of the engines."""

MAX_GROUPS = 50
"""Deepest nesting of groups."""

MAX_SIZE = 5000
"""Largest expanded size: one per literal, `_CLASS_SIZE` per Unicode class, counted repeats multiplied out."""

_CLASS_SIZE = 40
_ESCAPES = frozenset("dDsSwWbBAzfnrtv")
_CLASS_ESCAPES = frozenset("dDsSwWfnrtv")
_CATEGORIES = r"C[cfo]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
_SCRIPTS = "Arabic|Armenian|Bengali|Cyrillic|Devanagari|Georgian|Greek|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,4})(?:(,)(\d{1,4})?)?\})\??")
_FLAGS = re.compile(r"\(\?[ims]{1,3}\)")
_GROUP_HEAD = re.compile(r"\((?:\?[ims]{0,3}:|\?P<([A-Za-z_][A-Za-z0-9_]{0,63})>|(?!\?))")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]{1,6})\})")
_PROPERTY = re.compile(rf"[pP](?:[CLMNPSZ]|\{{\^?(?:{_CATEGORIES}|{_SCRIPTS})\}})")
_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class PatternError(ValueError):
    """A pattern outside the subset; the text says what and at which character, from 1."""


def check_pattern(pattern: str) -> None:
    """Refuse, with `PatternError`, a pattern that is malformed, too large or not in the portable subset."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"longer than {MAX_PATTERN} characters")
    _Pattern(pattern).alternatives()


class _Pattern:
    """Walks a pattern once; `_at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def alternatives(self) -> tuple[int, int]:
        """Read up to the closing parenthesis or the end; returns size and the largest repeat inside."""
        size = repeat = 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == ")":
                if self._depth == 0:
                    self._fail("unmatched `)`")
                break
            flags = _FLAGS.match(self._text, self._at)
            if character == "|" or flags is not None:
                self._at = self._at + 1 if flags is None else flags.end()
                continue
            item, inner = self._repeated()
            size += item
            repeat = max(repeat, inner)
            if size > MAX_SIZE:
                self._fail("too large when its repeats are written out")
        else:
            if self._depth:
                self._fail("missing `)`")
        return size, repeat

    def _repeated(self) -> tuple[int, int]:
        size, repeat = self._atom()
        found = _QUANTIFIER.match(self._text, self._at)
        if found is None:
            return size, repeat
        counted = found[1] is not None
        low = int(found[1] or 0)
        high = int(found[3] or 0) if found[2] else low
        if counted and found[3] and high < low:
            self._fail("repeat bounds in falling order")
        factor = max(low, high, 1) if counted else 1
        repeat *= factor
        size *= factor
        if repeat > MAX_REPEAT:
            self._fail(f"repeats more than {MAX_REPEAT} times")
        self._at = found.end()
        if _QUANTIFIER.match(self._text, self._at) is not None:
            self._fail("repeat of a repeat; use a group")
        return size, repeat

    def _atom(self) -> tuple[int, int]:
        character = self._text[self._at]
        if character == "(":
            return self._group()
        if character == "[":
            return self._class(), 1
        if character in "*+?{":
            self._fail("nothing to repeat; write a literal one with a backslash")
        self._at += 1
        return self._escape(_ESCAPES)[0] if character == "\\" else 1, 1

    def _group(self) -> tuple[int, int]:
        found = _GROUP_HEAD.match(self._text, self._at)
        if found is None:
            self._fail("unsupported group; look-around and inline conditions are not portable")
        if found[1] is not None and found[1] in self._names:
            self._fail("group name used twice")
        if found[1] is not None:
            self._names.add(found[1])
        self._depth += 1
        if self._depth > MAX_GROUPS:
            self._fail(f"groups nested deeper than {MAX_GROUPS}")
        self._at = found.end()
        inner = self.alternatives()
        self._depth -= 1
        self._at += 1
        return inner

    def _class(self) -> int:
        """Read `[...]`; brackets, `&&`, `--` and `~~` inside must be escaped, as engines read them differently."""
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        size = items = 0
        while not self._text.startswith("]", self._at):
            item, low = self._class_item()
            items += 1
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                item, high = self._class_item()
                if low is None or high is None or high < low:
                    self._fail("invalid range in a character class")
            size += item
        if not items:
            self._fail("empty character class")
        self._at += 1
        return size

    def _class_item(self) -> tuple[int, int | None]:
        """One member of a class: its size, and its code point if it is a single character."""
        if self._at >= len(self._text):
            self._fail("missing `]`")
        character = self._text[self._at]
        self._at += 1
        if character == "\\":
            return self._escape(_CLASS_ESCAPES)
        if character in "[]&~":
            self._fail(f"`{character}` in a character class needs a backslash")
        return 1, ord(character)

    def _escape(self, letters: frozenset[str]) -> tuple[int, int | None]:
        """Read what follows a backslash: its size, and its code point if it is a single character."""
        if self._at >= len(self._text):
            self._fail("trailing backslash")
        character = self._text[self._at]
        if character == "x":
            found = _HEX.match(self._text, self._at)
            code = -1 if found is None else int(found[1] or found[2], 16)
            if found is None or code > _MAX_CODE_POINT or code in _SURROGATES:
                self._fail("invalid hexadecimal escape")
            self._at = found.end()
            return 1, code
        if character in "pP":
            found = _PROPERTY.match(self._text, self._at)
            if found is None:
                self._fail("unknown character property")
            self._at = found.end()
            return _CLASS_SIZE, None
        if character.isascii() and not character.isalnum() and character.isprintable():
            self._at += 1
            return 1, ord(character)
        if character not in letters:
            self._fail(f"unsupported escape `\\{character}`")
        self._at += 1
        return 1, None

    def _fail(self, reason: str) -> NoReturn:
        raise PatternError(f"{reason}, at character {min(self._at, len(self._text)) + 1}")
