"""Source text as words: the tokens of the lexer, each with the comments that stand before it."""

from __future__ import annotations

import re
from typing import NamedTuple

from gitops.language.format.layout import SourceComment
from gitops.language.lexer import Lexer, Token, TokenKind

_COMMENT = re.compile(rb"//[^\n]*+|/\*(?s:.*?)\*/")
_LINE_ENDS = re.compile(r"[ \t\r]+(?=\n|$)")


class SourceToken(NamedTuple):
    """One token of the source. `blank` says whether a blank line stands right before it."""

    kind: TokenKind
    text: str
    start: int
    comments: tuple[SourceComment, ...]
    blank: bool


def read_source_tokens(data: bytes, *, enums: bool) -> list[SourceToken]:
    """All tokens in order, the end of the file last; `enums` reads members of `enum(..)` as the schema language does.

    Comments lose blanks at the ends of their lines, nothing else. Raises `LanguageError` for text that has no tokens.
    """
    found: list[SourceToken] = []
    lexer = Lexer(data)
    before = TokenKind.EOF
    end = 0
    while True:
        token = lexer.advance()
        found.append(_piece(data, end, token))
        end = token.end
        if token.kind is TokenKind.EOF:
            return found
        opens_enum = enums and token.kind is TokenKind.NAME and token.text == "enum" and before is not TokenKind.AT
        before = token.kind
        if opens_enum and lexer.at(TokenKind.LPAREN):
            end = _members(data, lexer, found, end)


def _members(data: bytes, lexer: Lexer, found: list[SourceToken], end: int) -> int:
    """Read `( member, ... )`; the end of its last token."""
    while True:
        separator = lexer.advance()
        found.append(_piece(data, end, separator))
        end = separator.end
        if separator.kind not in (TokenKind.LPAREN, TokenKind.COMMA):
            return end
        member = lexer.enum_member()
        found.append(_piece(data, end, member))
        end = member.end


def _piece(data: bytes, end: int, token: Token) -> SourceToken:
    comments: list[SourceComment] = []
    for comment in _COMMENT.finditer(data, end, token.start):
        lines = data.count(b"\n", end, comment.start())
        text = _LINE_ENDS.sub("", comment[0].decode("utf-8"))
        comments.append(SourceComment(text, lines > 0, lines > 1))
        end = comment.end()
    lines = data.count(b"\n", end, token.start)
    return SourceToken(token.kind, token.text, token.start, tuple(comments), lines > 1)
