"""Tokens of a text that may be invalid, and the declarations of a file as pieces that are read one by one.

The compilers' lexer stops at the first invalid token, but an editor must read on. For a text that the lexer accepts,
the tokens are the same here (a law of the tests). Pieces start where only a declaration can start, so a broken
declaration does not affect the next one. A keystroke changes only one piece, and the results for all others remain
cached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.text import Span
from gitops.editor.documentation import FUNCTION_WORDS
from gitops.editor.symbols import Occurrence, Symbol, SymbolKind

_TRIVIA = rb"(?:[ \t\r\n]++|//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z))"
_COMMENT = rb"//[^\n]*+|/\*(?s:.*?)(?:\*/|\Z)"
_STRING = rb'"(?:[^"\\]++|\\(?s:.))*+"'
# An unterminated string. All later strings would be unterminated as well, so search only once, not at every quote.
_OPEN = rb'(?P<OPEN>"(?:[^"\\]++|\\(?s:.))*+\\?\Z)'
_NAME = rb"[a-z_][A-Za-z0-9_]*+"
_WORD_START = rb"(?<![A-Za-z0-9_$])"


def _token_pattern(string: bytes) -> re.Pattern[bytes]:
    return re.compile(
        rb"(?P<TRIVIA>" + _TRIVIA + rb")"
        rb"|(?P<TYPE_NAME>[A-Z][A-Za-z0-9_]*+)"
        rb"|(?P<NAME>" + _NAME + rb")"
        rb"|(?P<VAR>\$[a-z_][A-Za-z0-9_]*+)"
        rb"|(?P<FLOAT>[0-9]++\.[0-9]++(?![A-Za-z_]))"
        rb"|(?P<INT>[0-9]++(?![A-Za-z_]))"
        rb"|(?P<WORD>[0-9][A-Za-z0-9_]*+)"
        rb"|(?P<STRING>" + string + rb")"
        rb"|(?P<PUNCTUATION>\.\.|->|!=|<=|>=|[{}()\[\]:,.\-@?=<>])|" + _OPEN
    )


def _start_patterns(pattern: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
    """Return patterns for text outside of comments and strings.

    The first is for text whose strings are all terminated, the second for text after an open string.
    """
    skipped = rb"(?P<skip>" + _COMMENT + rb"|%s)|" + pattern
    return re.compile(skipped.replace(b"%s", _STRING) + b"|" + _OPEN), re.compile(skipped.replace(b"|%s", b""))


_TOKEN, _TOKEN_BEHIND_OPEN = _token_pattern(_STRING), _token_pattern(rb'"[^\n]*+')
_QUERY_STARTS = _start_patterns(
    rb"(?P<open>\{)|(?P<close>\})"
    rb"|" + _WORD_START + rb"query(?=" + _TRIVIA + rb"++(?P<name>" + _NAME + rb")" + _TRIVIA + rb"*+\()"
)
_SCHEMA_STARTS = _start_patterns(_WORD_START + rb"(?:interface|node|edge)(?=" + _TRIVIA + rb"++[A-Z])")
_KINDS = {kind.name: kind for kind in TokenKind}
_PUNCTUATION = {kind.value.strip("`"): kind for kind in TokenKind if kind.value.startswith("`")}
_WORD_BEFORE = re.compile(rb"[$@]?[A-Za-z0-9_]*\Z")
_LONGEST_WORD = 512
_OUTSIDE = Token(TokenKind.EOF, "", 0, 0)
_FUNCTION_NAMES = frozenset(name.encode() for name in FUNCTION_WORDS)


class TextPiece(NamedTuple):
    """A part of a file: the offset of its first byte, and its bytes. All pieces together are the whole file."""

    start: int
    data: bytes

    @property
    def written(self) -> Span:
        """The span of the piece in its file, without trailing blanks."""
        return Span(self.start, self.start + len(self.data.rstrip()))

    def in_file(self, part: Span | Token | Occurrence) -> Span:
        """Return the span in the file of something in this piece."""
        return Span(self.start + part.start, self.start + part.end)


def read_tokens(data: bytes) -> tuple[Token, ...]:
    """Return the tokens of any bytes, in order.

    Other text is skipped, and an unterminated string stops at the end of its line.
    """
    found: list[Token] = []
    at, end, pattern = 0, len(data), _TOKEN
    while at < end:
        match = pattern.match(data, at)
        if match is None:
            at += 1
            continue
        group = match.lastgroup or ""
        if group == "OPEN":
            pattern = _TOKEN_BEHIND_OPEN
            continue
        start, at = at, match.end()
        if group == "TRIVIA":
            continue
        text = match[0].decode("utf-8", "replace")
        kind = _PUNCTUATION[text] if group == "PUNCTUATION" else _KINDS[group]
        found.append(Token(kind, text, start, at))
    return tuple(found)


class TokenReader:
    """Reads the tokens of one piece in order and records what they mean. `_at` is the index of the next token."""

    def __init__(self, tokens: tuple[Token, ...]) -> None:
        self._tokens = tokens
        self._at = 0
        self._occurrences: list[Occurrence] = []

    def _peek(self, distance: int = 0) -> Token:
        """Return the token at a distance from the next one; a token of kind EOF outside of the piece."""
        at = self._at + distance
        return self._tokens[at] if 0 <= at < len(self._tokens) else _OUTSIDE

    def _kind(self, distance: int = 0) -> TokenKind:
        return self._peek(distance).kind

    def _next(self) -> Token:
        """Advance by one token, and return the token that was passed."""
        self._at += 1
        return self._peek(-1)

    def _add(self, token: Token, meaning: Symbol | SymbolKind, *, declares: bool = False) -> None:
        """Record a token's meaning. A kind stands for the symbol named by the token's text."""
        symbol = Symbol(meaning, token.text) if isinstance(meaning, SymbolKind) else meaning
        self._occurrences.append(Occurrence(token.start, token.end, symbol, declares))

    def _add_annotation(self, at: Token) -> str:
        """Read the name after an `@` and return it, or an empty string if there is none."""
        if self._kind() is not TokenKind.NAME:
            return ""
        name = self._next()
        self._occurrences.append(Occurrence(at.start, name.end, Symbol(SymbolKind.ANNOTATION, name.text)))
        return name.text

    def _sorted_occurrences(self) -> tuple[Occurrence, ...]:
        return tuple(sorted(self._occurrences, key=lambda each: each.start))


def query_pieces(data: bytes) -> tuple[TextPiece, ...]:
    """Return the text before the first query, if any, and one piece for each query.

    A query starts at `query name (` outside of braces. Inside braces, it starts there only if the name is not a
    function, so that a missing brace affects only one query.
    """
    starts, depth = [0], 0
    for match in _matches(data, _QUERY_STARTS):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth = max(depth - 1, 0)
        elif match["name"] and (depth == 0 or match["name"] not in _FUNCTION_NAMES):
            starts.append(match.start())
            depth = 0
    return _cut(data, starts)


def schema_pieces(data: bytes) -> tuple[TextPiece, ...]:
    """Return the text before the first declaration, if any, and one piece for each interface, node and edge."""
    starts = [0, *(match.start() for match in _matches(data, _SCHEMA_STARTS) if match["skip"] is None)]
    return _cut(data, starts)


def word_start(data: bytes, offset: int) -> int:
    """Return the start of the word being typed at an offset, including `$` or `@` before it."""
    before = data[max(0, offset - _LONGEST_WORD) : offset]
    found = _WORD_BEFORE.search(before)
    return offset - (len(before) - found.start() if found else 0)


def ends_in_comment_or_string(before: bytes, tokens: tuple[Token, ...]) -> bool:
    """Return True if `before` ends inside a comment or a string. `tokens` are its tokens."""
    if tokens and tokens[-1].kind is TokenKind.STRING and tokens[-1].end == len(before):
        text = tokens[-1].text
        return len(text) == 1 or not text.endswith('"') or text.endswith('\\"')
    start = tokens[-1].end if tokens else 0
    for found in re.compile(_COMMENT).finditer(before, start):
        if found.end() == len(before):
            return found[0].startswith(b"//") or not found[0].endswith(b"*/") or len(found[0]) < len("/**/")
    return False


def _matches(data: bytes, patterns: tuple[re.Pattern[bytes], re.Pattern[bytes]]) -> Iterator[re.Match[bytes]]:
    for match in patterns[0].finditer(data):
        if match.lastgroup == "OPEN":
            yield from patterns[1].finditer(data, match.start() + 1)
            return
        yield match


def _cut(data: bytes, starts: list[int]) -> tuple[TextPiece, ...]:
    bounds = sorted({*starts, len(data)})
    return tuple(TextPiece(start, data[start:end]) for start, end in pairwise(bounds))
