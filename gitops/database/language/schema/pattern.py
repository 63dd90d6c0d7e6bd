r"""Checks regular expressions in `@check`, which use a subset of the linear-time engine's syntax.

The subset: literals, `.`, `^`, `$`, classes, groups (plain, `(?:..)`, `(?P<name>..)`, `(?<name>..)`), the flags i, m, s
and u, alternation, the quantifiers `* + ? {n} {n,} {n,m}` and their lazy forms, the escapes of `_ESCAPES`, `\xHH`,
`\uHHHH`, `\UHHHHHHHH`, each also as `\x{H..}`, `\pL` and `\p{Name}`, and in classes `[:alpha:]`. Look-around and
back-references are not supported. `\w`, `\d`, `\s`, `\b` and their negations use Unicode; the classes in `[: :]` are
ASCII. Source: https://docs.rs/regex/latest/regex/#syntax
"""

from __future__ import annotations

import re
from typing import NoReturn

MAX_PATTERN = 1000
"""Maximum length of a pattern, in characters."""

MAX_REPEAT = 1000
"""Maximum product of nested counted repeats, the engines' limit."""

MAX_GROUPS = 50
"""Maximum nesting of groups."""

MAX_SIZE = 5000
"""Maximum expanded size: one per literal, `_CLASS_SIZE` per Unicode class, counted repeats multiplied out."""

_CLASS_SIZE = 25
_RANGE_SIZE = 5
_CLASSES = frozenset("dDsSwW")
_ESCAPES = _CLASSES | frozenset("bBAzafnrtv")
_CLASS_ESCAPES = _CLASSES | frozenset("afnrtv")
_CATEGORIES = r"C[cfo]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?"
_SCRIPTS = "Arabic|Armenian|Bengali|Cyrillic|Devanagari|Georgian|Greek|Han|Hangul|Hebrew|Hiragana|Katakana|Latin|Thai"
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d{1,4})(?:(,)(\d{1,4})?)?\})\??")
_FLAGS = re.compile(r"\(\?([A-Za-z-]+)([:)])")
_NO_FLAGS = {
    "x": "the flag x is not supported; write the pattern without blanks and comments",
    "-u": "the flag u cannot be turned off; patterns are about characters, not bytes",
    "U": "the flag U is not supported; it does not change what a pattern finds",
    "R": "the flag R is not supported; write the line ends out",
}
_GROUP_HEAD = re.compile(r"\((?:\?:|\?P?<([A-Za-z_][A-Za-z0-9_]{0,63})>|(?!\?))")
_DIGIT = "[0-9A-Fa-f]"
_HEX = re.compile(rf"x({_DIGIT}{{2}})|u({_DIGIT}{{4}})|U({_DIGIT}{{8}})|[xuU]\{{({_DIGIT}{{1,8}})\}}")
_ASCII = "alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit"
_ASCII_CLASS = re.compile(rf"\[:\^?(?:{_ASCII}):\]")
_BINARY = "Alphabetic|Lowercase|Uppercase|White_Space"
_PROPERTY = re.compile(rf"[pP](?:[CLMNPSZ]|\{{(?:{_CATEGORIES}|{_SCRIPTS}|{_BINARY})\}})")
_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class PatternError(ValueError):
    """A pattern outside the subset. The message contains the problem and its character position, counted from 1."""


def check_pattern(pattern: str) -> None:
    """Raise `PatternError` if a pattern is malformed, too large or not in the portable subset."""
    if len(pattern) > MAX_PATTERN:
        raise PatternError(f"longer than {MAX_PATTERN} characters")
    _Pattern(pattern).alternatives()


class _Pattern:
    """Reads a pattern once; `_at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._names: set[str] = set()

    def alternatives(self) -> tuple[int, int]:
        """Read up to the closing parenthesis or the end; return the size and the largest repeat inside."""
        size = repeat = 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == ")":
                if self._depth == 0:
                    self._fail("unmatched `)`")
                break
            if character == "|":
                self._at += 1
                continue
            if self._flags(")"):
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

    def _flags(self, end: str) -> bool:
        """Skip `(?i)` or, with the end `:`, the head of `(?i:..)`; return whether it was there."""
        found = _FLAGS.match(self._text, self._at)
        if found is None or found[2] != end:
            return False
        given, _, removed = found[1].partition("-")
        for flag in (*given, *(f"-{each}" for each in removed)):
            if (reason := _NO_FLAGS.get(flag, _NO_FLAGS.get(flag[-1]))) is not None:
                self._fail(reason)
            if flag[-1] not in "imsu" or found[1].count(flag[-1]) > 1:
                self._fail("unknown or repeated flag; the flags are i, m, s and u")
        if found[1].endswith("-") or found[1].count("-") > 1:
            self._fail("`-` without the flags that it turns off")
        self._at = found.end()
        return True

    def _group(self) -> tuple[int, int]:
        if not self._flags(":"):
            found = _GROUP_HEAD.match(self._text, self._at)
            if found is None:
                self._fail("unsupported group; look-around and inline conditions are not portable")
            if found[1] is not None and found[1] in self._names:
                self._fail("group name used twice")
            if found[1] is not None:
                self._names.add(found[1])
            self._at = found.end()
        self._depth += 1
        if self._depth > MAX_GROUPS:
            self._fail(f"groups nested deeper than {MAX_GROUPS}")
        inner = self.alternatives()
        self._depth -= 1
        self._at += 1
        return inner

    def _class(self) -> int:
        """Read `[...]`. Brackets, `&&`, `--` and `~~` inside must be escaped, because engines read them differently."""
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        size = items = 0
        while not self._text.startswith("]", self._at):
            item, low = self._class_item()
            items += 1
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                if self._text.startswith("-", self._at):
                    self._fail("`--` in a character class; write a literal `-` with a backslash")
                item, high = self._class_item()
                item = _RANGE_SIZE
                if low is None or high is None or high < low:
                    self._fail("invalid range in a character class")
            size += item
        if not items:
            self._fail("empty character class")
        self._at += 1
        return size

    def _class_item(self) -> tuple[int, int | None]:
        """Read one member of a class and return its size, and its code point if it is a single character."""
        if self._at >= len(self._text):
            self._fail("missing `]`")
        named = _ASCII_CLASS.match(self._text, self._at)
        if named is not None:
            self._at = named.end()
            return _RANGE_SIZE, None
        character = self._text[self._at]
        if self._text.startswith("[:", self._at):
            self._fail("unknown class in `[: :]`; the classes are " + _ASCII.replace("|", ", "))
        self._at += 1
        if character == "\\":
            return self._escape(_CLASS_ESCAPES)
        if character in "[]&~":
            self._fail(f"`{character}` in a character class needs a backslash")
        return 1, ord(character)

    def _escape(self, letters: frozenset[str]) -> tuple[int, int | None]:
        """Read the rest of an escape after the backslash.

        Returns its size, and its code point if it is a single character.
        """
        if self._at >= len(self._text):
            self._fail("trailing backslash")
        character = self._text[self._at]
        if character in "xuU":
            found = _HEX.match(self._text, self._at)
            code = -1 if found is None else int(found[found.lastindex or 0], 16)
            if found is None or code > _MAX_CODE_POINT or code in _SURROGATES:
                self._fail("invalid hexadecimal escape")
            self._at = found.end()
            return 1, code
        if character in "pP":
            found = _PROPERTY.match(self._text, self._at)
            if found is None and self._text.startswith("{^", self._at + 1):
                self._fail("`^` in a character property; write `\\P{..}` for `\\p{^..}`")
            if found is None:
                self._fail("unknown character property")
            self._at = found.end()
            return _CLASS_SIZE, None
        if character in "<>":
            self._fail(f"unsupported escape `\\{character}`; write `{character}` without the backslash")
        if character.isascii() and not character.isalnum() and character.isprintable():
            self._at += 1
            return 1, ord(character)
        if character not in letters:
            self._fail(f"unsupported escape `\\{character}`")
        self._at += 1
        return _CLASS_SIZE if character in _CLASSES else 1, None

    def _fail(self, reason: str) -> NoReturn:
        raise PatternError(f"{reason}, at character {min(self._at, len(self._text)) + 1}")
