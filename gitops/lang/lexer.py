"""The one lexer of both languages: schema (`.pg`) and query (`.gq`) text into tokens with byte spans.

Tokens are scanned on demand, one regular expression match each, so a parser can ask for an enum member, whose
alphabet is wider than that of a name, at the point where the grammar allows one. Words have boundaries: no
keyword or number ends in the middle of a run of letters and digits.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple, NoReturn

from gitops.lang.text import LanguageError, Problem, Span, Stage

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Largest source file that is read, in bytes."""

MAX_NUMBER_DIGITS = 64
"""Longest number literal, in characters; longer ones are refused before any conversion."""


class Kind(StrEnum):
    """Token kinds; the value is how messages spell the kind."""

    TYPE_NAME = "type name"
    NAME = "name"
    VAR = "variable"
    STRING = "string"
    INT = "integer"
    FLOAT = "decimal"
    WORD = "word that starts with a digit"
    LBRACE = "`{`"
    RBRACE = "`}`"
    LPAREN = "`(`"
    RPAREN = "`)`"
    LBRACKET = "`[`"
    RBRACKET = "`]`"
    COLON = "`:`"
    COMMA = "`,`"
    DOT = "`.`"
    DOTDOT = "`..`"
    ARROW = "`->`"
    MINUS = "`-`"
    AT = "`@`"
    QUESTION = "`?`"
    EQ = "`=`"
    NE = "`!=`"
    LT = "`<`"
    LE = "`<=`"
    GT = "`>`"
    GE = "`>=`"
    EOF = "end of file"


class Token(NamedTuple):
    """One token: `text` exactly as written, `[start, end)` its byte range."""

    kind: Kind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The byte range; an empty one (end of file) is widened to one byte."""
        return Span(self.start, max(self.end, self.start + 1))

    @property
    def value(self) -> str:
        """The decoded text of a STRING; for every other kind the text itself."""
        if self.kind is not Kind.STRING:
            return self.text
        return _ESCAPE.sub(lambda found: _UNESCAPED[found[1]], self.text[1:-1])

    def __str__(self) -> str:
        """How messages name this token; long and multi-line texts are shortened."""
        if self.kind in _SPELLED:
            return self.kind.value
        first = self.text.splitlines()[0] if self.text else ""
        shown = first if len(first) <= _SHOWN and first == self.text else first[:_SHOWN] + "…"
        return shown if self.kind is Kind.STRING else f"`{shown}`"


_SHOWN = 40
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PUNCTUATION = {kind.value.strip("`"): kind for kind in Kind if kind.value.startswith("`")}
_SPELLED = frozenset({*_PUNCTUATION.values(), Kind.EOF})
_KINDS = {kind.name: kind for kind in Kind}
_NUMBERS = (Kind.INT, Kind.FLOAT)

_TRIVIA = re.compile(rb"(?:[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)\*/)*+")
_TOKEN = re.compile(
    rb"[ \t\r\n]*+"
    rb"(?:(?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*+)"
    rb"|(?P<NAME>[a-z_][A-Za-z0-9_]*+)"
    rb"|(?P<VAR>\$[a-z_][A-Za-z0-9_]*+)"
    rb"|(?P<FLOAT>[0-9]++\.[0-9]++(?![A-Za-z_]))"
    rb"|(?P<INT>[0-9]++(?![A-Za-z_]))"
    rb"|(?P<WORD>[0-9][A-Za-z0-9_]*+)"
    rb'|(?P<STRING>"(?:[^"\\]++|\\.)*+")'
    rb"|(?P<PUNCTUATION>\.\.|->|!=|<=|>=|[{}()\[\]:,.\-@?=<>]))",
    re.DOTALL,
)
_ENUM_MEMBER = re.compile(rb"[A-Za-z0-9_\-]++")
_BAD_ESCAPE = re.compile(r'(?:[^\\]++|\\["\\nrt])*+(\\.)', re.DOTALL)
_OPEN_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(\\?)', re.DOTALL)


class Lexer:
    """A cursor over the tokens of one source text.

    `current` is the token under the cursor and `previous_end` the end of the one before it. Every method may
    raise `LanguageError` with one parse problem: not UTF-8, over the size limit, or not a token.
    """

    __slots__ = ("_ahead", "_data", "_limit", "current", "escape_rule", "grammar_rule", "previous_end")

    def __init__(
        self, data: bytes, *, grammar_rule: str = "", escape_rule: str = "", limit: int = MAX_SOURCE_BYTES
    ) -> None:
        """Stand on the first token of at most `limit` bytes; the rule labels go into the problems raised."""
        self._data = data
        self._limit = limit
        self.grammar_rule = grammar_rule
        self.escape_rule = escape_rule
        self._check_encoding()
        self._ahead: list[Token] = []
        self.previous_end = 0
        self.current = self._scan(0)

    def peek(self, distance: int = 1) -> Token:
        """The token `distance` (1 or 2) after `current`; the cursor stays."""
        ahead = self._ahead
        while len(ahead) < distance:
            last = ahead[-1] if ahead else self.current
            ahead.append(self._scan(last.end))
        return ahead[distance - 1]

    def advance(self) -> Token:
        """Return `current` and move on; at the end of the file the cursor stays."""
        passed = self.current
        self.previous_end = passed.end
        self.current = self._ahead.pop(0) if self._ahead else self._scan(passed.end)
        return passed

    def at(self, kind: Kind, text: str | None = None) -> bool:
        """Whether `current` has this kind, and this text when one is given."""
        return self.current.kind is kind and (text is None or self.current.text == text)

    def accept(self, kind: Kind, text: str | None = None) -> Token | None:
        """Pass over `current` if it is of this kind (and text); None otherwise."""
        return self.advance() if self.at(kind, text) else None

    def expect(self, kind: Kind, what: str = "") -> Token:
        """Pass over a token of this kind; else a problem that names `what` was expected."""
        if self.current.kind is not kind:
            self.unexpected(what or kind.value)
        return self.advance()

    def enum_member(self) -> Token:
        """Read an enum member at the cursor: letters, digits, `_`, `-`; so `1`, `2nd`, `in-progress`."""
        start = self.current.start
        found = _ENUM_MEMBER.match(self._data, start)
        if found is None:
            self.unexpected("an enum member")
        self.current = Token(Kind.NAME, found[0].decode("ascii"), start, found.end())
        self._ahead.clear()
        return self.advance()

    def unexpected(self, expected: str) -> NoReturn:
        """Refuse `current`, saying what the grammar wants in its place."""
        self.fail(f"expected {expected}, found {self.current}", self.current.span)

    def fail(self, message: str, span: Span, fix: str | None = None, *, rule: str | None = None) -> NoReturn:
        """Raise a `LanguageError` of one parse problem."""
        label = self.grammar_rule if rule is None else rule
        raise LanguageError(Problem(Stage.PARSE, label, message, span, fix))

    def _check_encoding(self) -> None:
        size = len(self._data)
        if size > self._limit:
            self.fail(f"source is {size} bytes, over the limit of {self._limit}", Span(0, 1))
        try:
            self._data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail("source is not valid UTF-8", Span(error.start, error.end), "save the file as UTF-8")

    def _scan(self, offset: int) -> Token:
        data = self._data
        # Blanks belong to the token pattern, so that only a comment costs a second match.
        found = _TOKEN.match(data, offset)
        if found is None:
            trivia = _TRIVIA.match(data, offset)
            start = offset if trivia is None else trivia.end()
            if start == len(data):
                return Token(Kind.EOF, "", start, start)
            found = _TOKEN.match(data, start)
            if found is None:
                self._refuse(start)
        group = found.lastgroup or ""
        start, end = found.span(group)
        text = found[group].decode("utf-8")
        if group == "PUNCTUATION":
            return Token(_PUNCTUATION[text], text, start, end)
        kind = _KINDS[group]
        if kind is Kind.STRING and "\\" in text:
            self._check_escapes(text, start)
        elif kind in _NUMBERS and end - start > MAX_NUMBER_DIGITS:
            self.fail(f"number is longer than {MAX_NUMBER_DIGITS} characters", Span(start, end))
        return Token(kind, text, start, end)

    def _refuse(self, start: int) -> NoReturn:
        """Say why no token starts here."""
        data = self._data
        if data.startswith(b"/*", start):
            self.fail("unterminated block comment", Span(start, start + 2), "close it with `*/`")
        opened = _OPEN_STRING.match(data, start)
        if opened is not None and opened[1]:
            last = len(data)
            self.fail("unterminated escape sequence in string", Span(last - 1, last), rule=self.escape_rule)
        if opened is not None:
            self.fail("unterminated string", Span(start, start + 1), 'close it with `"`')
        character = data[start : start + 4].decode("utf-8", "ignore")[0]
        width = len(character.encode("utf-8"))
        self.fail(f"unexpected character {character!a}", Span(start, start + width))

    def _check_escapes(self, text: str, start: int) -> None:
        bad = _BAD_ESCAPE.match(text, 1, len(text) - 1)
        if bad is not None:
            begin = start + len(text[: bad.start(1)].encode("utf-8"))
            self.fail(
                f"unsupported escape sequence {bad[1]!a} in string",
                Span(begin, begin + len(bad[1].encode("utf-8"))),
                'the escapes are \\" \\\\ \\n \\r \\t; write a backslash as \\\\',
                rule=self.escape_rule,
            )
