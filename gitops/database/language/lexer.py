"""The lexer of both languages: converts schema (`.pg`) and query (`.gq`) text to tokens with byte spans.

Tokens are scanned on demand, with one regular expression match each. So where the grammar allows an enum member, a
parser can request one, which can contain more characters than a name. Words have boundaries: a keyword or number never
ends within a run of letters and digits.

The text is scanned as Latin-1, in which every byte is one character. So offsets are byte offsets, and the grammar's
words, which are ASCII, need no decoding. Only strings can contain other characters, so they are decoded as UTF-8.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import repeat
from typing import TYPE_CHECKING

from gitops.database.language.record import Record, make
from gitops.database.language.text import LanguageError, LanguageProblem, Span, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import NoReturn

MAX_SOURCE_BYTES = 4 * 1024 * 1024
"""Largest source file that is read, in bytes."""

MAX_NUMBER_DIGITS = 64
"""Longest number literal, in characters; longer ones are refused before any conversion."""


class TokenKind(StrEnum):
    """Token kinds. The values are used in messages."""

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


class Token(Record):
    """A token with its exact `text` and its byte range `[start, end)`."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The byte range. An empty range (end of file) is widened to one byte."""
        start, end = self.start, self.end
        return make(Span, (start, end if end > start else start + 1))

    @property
    def value(self) -> str:
        """The decoded text of a STRING, or the text itself for other kinds."""
        if self.kind is not TokenKind.STRING:
            return self.text
        if "\\" not in self.text:
            return self.text[1:-1]
        return re.sub(_ESCAPE, lambda found: _UNESCAPED[found[1]], self.text[1:-1])

    def __str__(self) -> str:
        """Return the token's name for messages; long and multi-line texts are shortened."""
        if self.kind in _SPELLED:
            return self.kind.value
        first = self.text.splitlines()[0] if self.text else ""
        shown = first if len(first) <= _SHOWN and first == self.text else first[:_SHOWN] + "…"
        return shown if self.kind is TokenKind.STRING else f"`{shown}`"


_SHOWN = 40
_UNESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_PUNCTUATION = {kind.value.strip("`"): kind for kind in TokenKind if kind.value.startswith("`")}
_SPELLED = frozenset({*_PUNCTUATION.values(), TokenKind.EOF})

# It matches at every offset, so that a search skips no text.
_TOKEN = re.compile(
    r"[ \t\r\n]*+"
    r"(?:(?P<NAME>[a-z_][A-Za-z0-9_]*+)"
    r"|(?P<PUNCTUATION>[{}()\[\]:,@?=]|\.\.?|->?|!=|<=?|>=?)"
    r"|(?P<VAR>\$[a-z_][A-Za-z0-9_]*+)"
    r"|(?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*+)"
    r"|(?P<FLOAT>[0-9]++\.[0-9]++(?![A-Za-z_]))"
    r"|(?P<INT>[0-9]++(?![A-Za-z_]))"
    r"|(?P<WORD>[0-9][A-Za-z0-9_]*+)"
    r'|(?P<STRING>"(?:[^"\\]++|\\.)*+")'
    r"|(?P<EOF>\Z)"
    r"|(?P<COMMENT>(?:(?://[^\n]*+|/\*.*?\*/)[ \t\r\n]*+)++)"
    r"|(?P<NOTHING>.))",
    re.DOTALL,
)
_GROUPS = _TOKEN.groupindex
_KINDS = (TokenKind.EOF, *(TokenKind.__members__.get(name, TokenKind.EOF) for name in _GROUPS))
"""Token kinds by group number; groups without a kind are never looked up."""

_PUNCTUATION_GROUP, _COMMENT_GROUP, _LAST_KIND = _GROUPS["PUNCTUATION"], _GROUPS["COMMENT"], _GROUPS["EOF"]
_PLAIN_GROUPS = _GROUPS["TYPE_NAME"]
"""Last group whose text needs no check."""

# Compiled on first use (and cached by `re`), because few texts have enums or escapes, and most are correct.
_TRIVIA = r"(?:[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)\*/)*+"
_ENUM_MEMBER = r"[A-Za-z0-9_\-]++"
_ESCAPE = r"(?s)\\(.)"
_BAD_ESCAPE = r'(?s)"(?:[^\\]++|\\["\\nrt])*+(\\.)'
_OPEN_STRING = r'(?s)"(?:[^"\\]++|\\.)*+(\\?)'


_INSTEAD = {
    **dict.fromkeys("\u201c\u201d\u201e\u00ab\u00bb\u2018\u2019'`", 'write strings between `"` and `"`'),
    ";": "remove the `;`: nothing stands between two lines",
    "#": "write a comment after `//`",
    **dict.fromkeys("+*/%", "there is no arithmetic: calculate the value before, and pass it as a parameter"),
    "&": "write each condition on a separate line: all of them have to hold",
    "|": "there is no `or`: write two queries",
}
"""Probable intention behind a character that cannot start a token."""


class Lexer:
    """A cursor over the tokens of one source text.

    `kind`, `text`, `start` and `end` describe the token at the cursor; `current` is that token as a value.
    `previous_end` is the end of the previous token. Every method can raise `LanguageError` with one parse problem: not
    UTF-8, over the size limit, or not a token.
    """

    __slots__ = (
        "_ahead",
        "_data",
        "_refused",
        "_resumed",
        "_source",
        "_tokens",
        "end",
        "escape_rule",
        "grammar_rule",
        "kind",
        "previous_end",
        "start",
        "text",
    )
    kind: TokenKind
    text: str
    start: int
    end: int

    def __init__(
        self, data: bytes, *, grammar_rule: str = "", escape_rule: str = "", limit: int = MAX_SOURCE_BYTES
    ) -> None:
        """Start at the first token of at most `limit` bytes; the rule labels are used in the problems raised."""
        self._data = data
        self.grammar_rule = grammar_rule
        self.escape_rule = escape_rule
        if len(data) > limit:
            self.fail(f"source is {len(data)} bytes, over the limit of {limit}", Span(0, 1))
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            self.fail("source is not valid UTF-8", Span(error.start, error.end), "save the file as UTF-8")
        self._source = data.decode("latin-1")
        self._tokens = _scan(self._source, 0)
        self._ahead: list[_Scanned] = []
        self._refused: int | None = None
        self._resumed = 0
        self.end = 0
        self.step()

    @property
    def current(self) -> Token:
        """The token at the cursor."""
        return make(Token, (self.kind, self.text, self.start, self.end))

    def peek(self, distance: int = 1) -> Token:
        """Return the token `distance` positions (from 1) after the current one, without moving the cursor."""
        ahead = self._ahead
        while len(ahead) < distance:
            token = next(self._tokens, None)
            if token is None:
                self._refuse(ahead[-1][-1] if ahead else self.end)
            ahead.append(token)
        return make(Token, ahead[distance - 1])

    def step(self) -> None:
        """Move to the next token. The cursor stays at the end of the file."""
        token = self._ahead.pop(0) if self._ahead else next(self._tokens, None)
        if token is None:
            self._refuse(self.end)
        self.previous_end = self.end
        self.kind, self.text, self.start, self.end = token

    def advance(self) -> Token:
        """Move to the next token and return the previous one."""
        passed = make(Token, (self.kind, self.text, self.start, self.end))
        self.step()
        return passed

    def at(self, kind: TokenKind, text: str | None = None) -> bool:
        """Return whether the current token has this kind and, if given, this text."""
        return self.kind is kind and (text is None or self.text == text)

    def accept(self, kind: TokenKind, text: str | None = None) -> Token | None:
        """If the current token has this kind (and text), move past it and return it; otherwise return None."""
        return self.advance() if self.kind is kind and (text is None or self.text == text) else None

    def expect(self, kind: TokenKind, what: str = "") -> Token:
        """Move past a token of this kind and return it. Otherwise raise a problem stating that `what` was expected."""
        if self.kind is not kind:
            self.unexpected_kind(kind, what or kind.value)
        return self.advance()

    def skip(self, kind: TokenKind) -> bool:
        """Like `accept`, but return only whether the token was there, which is faster."""
        if self.kind is not kind:
            return False
        self.step()
        return True

    def require(self, kind: TokenKind, what: str = "") -> None:
        """Like `expect`, but without returning the token, which is faster."""
        if self.kind is not kind:
            self.unexpected(what or kind.value)
        self.step()

    def enum_member(self) -> Token:
        """Read an enum member at the cursor: letters, digits, `_` and `-`, such as `1`, `2nd`, `in-progress`."""
        found = re.compile(_ENUM_MEMBER).match(self._source, self.start)
        if found is None:
            text = self.current.value if self.kind is TokenKind.STRING else ""
            self.unexpected("an enum member", f"write it without quotes: `{text}`" if text else None)
        self.kind, self.text, self.end = TokenKind.NAME, found[0], found.end()
        self._tokens = _scan(self._source, self.end)
        self._ahead.clear()
        return self.advance()

    def resume(self) -> bool:
        """Continue scanning after rejected text. The current token does not change.

        Return whether reading can continue, which is impossible after an unterminated string or comment.
        """
        refused, self._refused = self._refused, None
        if refused is not None:
            self._tokens = _scan(self._source, refused)
            self._ahead.clear()
            self._resumed = refused
        return refused != len(self._source)

    def unexpected(self, expected: str, fix: str | None = None, *, meant: str = "") -> NoReturn:
        """Raise a problem at the current token, where the grammar expects something else.

        Without a `fix`, the `meant` text is suggested in place of the token, or else the nearest backquoted word in
        `expected`.
        """
        from gitops.database.language.suggest import Suggestion, nearest_expected

        current = self.current
        if fix is None and meant not in ("", current.text):
            fix = Suggestion(current.text, meant)
        if fix is None and current.kind is TokenKind.NAME:
            fix = nearest_expected(current.text, expected)
        self.fail(f"expected {expected}, found {current}", current.span, fix)

    def unexpected_kind(self, kind: TokenKind, expected: str) -> NoReturn:
        """Raise a problem because the current token has the wrong kind.

        For a name, the fix is to change the case of its first letter, or to add `$`.
        """
        meant = ""
        if kind is TokenKind.VAR and self.kind is TokenKind.NAME:
            meant = f"${self.text}"
        elif {kind, self.kind} == {TokenKind.NAME, TokenKind.TYPE_NAME}:
            meant = self.text[:1].swapcase() + self.text[1:]
        self.unexpected(expected, meant=meant)

    def fail(self, message: str, span: Span, fix: str | None = None, *, rule: str | None = None) -> NoReturn:
        """Raise a `LanguageError` with one parse problem."""
        label = self.grammar_rule if rule is None else rule
        raise LanguageError(LanguageProblem(Stage.PARSE, label, message, span, fix))

    def _refuse(self, offset: int) -> NoReturn:
        """Raise a problem that says why the text after `offset` is not a token."""
        data, source = self._data, self._source
        self._refused = len(source)
        offset = max(offset, self._resumed)
        trivia = re.compile(_TRIVIA).match(source, offset)
        start = offset if trivia is None else trivia.end()
        found = _TOKEN.match(source, start)
        group = "NOTHING" if found is None else found.lastgroup
        if found is not None and group != "NOTHING":
            self._refused = found.end()
        if found is not None and group == "STRING":
            text = _utf8(found[0])
            bad = re.match(_BAD_ESCAPE, text)
            begin, escape = (0, "") if bad is None else (bad.start(1), bad[1])
            begin = start + len(text[:begin].encode("utf-8"))
            self.fail(
                f"unsupported escape sequence {escape!a} in string",
                Span(begin, begin + len(escape.encode("utf-8"))),
                'the escapes are \\" \\\\ \\n \\r \\t; write a backslash as \\\\',
                rule=self.escape_rule,
            )
        if found is not None and group != "NOTHING":
            self.fail(f"number is longer than {MAX_NUMBER_DIGITS} characters", Span(start, found.end()))
        if data.startswith(b"/*", start):
            self.fail("unterminated block comment", Span(start, start + 2), "close it with `*/`")
        opened = re.compile(_OPEN_STRING).match(source, start)
        if opened is not None and opened[1]:
            span = Span(len(data) - 1, len(data))
            self.fail("unterminated escape sequence in string", span, rule=self.escape_rule)
        if opened is not None:
            self.fail("unterminated string", Span(start, start + 1), 'close it with `"`')
        character = data[start : start + 4].decode("utf-8", "ignore")[0]
        self._refused = start + len(character.encode("utf-8"))
        self.fail(f"unexpected character {character!r}", Span(start, self._refused), _INSTEAD.get(character))


_Scanned = tuple[TokenKind, str, int, int]


def _scan(source: str, offset: int) -> Iterator[_Scanned]:
    """Yield the fields of the tokens of a text (in Latin-1) from an offset on; the end of the file is repeated forever.

    It stops without an error at text that is not a token; the cursor raises the problem when it reaches that text.
    """
    for found in _TOKEN.finditer(source, offset):
        group = found.lastindex or 0
        text = found[group]
        end = found.end()
        start = end - len(text)
        if group == _PUNCTUATION_GROUP:
            kind = _PUNCTUATION[text]
        elif group <= _LAST_KIND:
            kind = _KINDS[group]
        elif group == _COMMENT_GROUP:
            continue
        else:
            return
        if group > _PLAIN_GROUPS:
            if kind is TokenKind.EOF:
                yield from repeat((kind, text, start, end))
            if kind is TokenKind.STRING:
                text = _utf8(text)
                if "\\" in text and re.match(_BAD_ESCAPE, text) is not None:
                    return
            elif len(text) > MAX_NUMBER_DIGITS and kind is not TokenKind.WORD:
                return
        yield kind, text, start, end


def _utf8(text: str) -> str:
    """Decode a text as UTF-8 that was read as Latin-1."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8")
