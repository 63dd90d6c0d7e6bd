"""The parts of the formatter for both languages: the tokens of a text with their comments, and the layout made of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gitops.language.format.layout import Layout, LayoutOp, LayoutToken, SourceComment
from gitops.language.lexer import Lexer, Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NO_SPACE_BEFORE = frozenset(
    {
        TokenKind.COMMA,
        TokenKind.RPAREN,
        TokenKind.RBRACKET,
        TokenKind.DOT,
        TokenKind.DOTDOT,
        TokenKind.LPAREN,
        TokenKind.COLON,
        TokenKind.QUESTION,
    }
)
_NO_SPACE_AFTER = frozenset(
    {TokenKind.LPAREN, TokenKind.LBRACKET, TokenKind.DOT, TokenKind.DOTDOT, TokenKind.AT, TokenKind.MINUS}
)
_COMMENT = re.compile(rb"//[^\n]*+|/\*(?s:.*?)\*/")
_LINE_ENDS = re.compile(r"[ \t\r]+(?=\n|$)")


class SourceToken(NamedTuple):
    """One token of the source. `blank`: whether a blank line is right before it."""

    kind: TokenKind
    text: str
    start: int
    comments: tuple[SourceComment, ...]
    blank: bool


def read_source_tokens(data: bytes, *, enums: bool) -> list[SourceToken]:
    """All tokens in order, the end of the file last; `enums` reads members of `enum(..)` as the schema language does.

    Comments lose only the blanks at the ends of their lines. Raises `LanguageError` for text that does not scan.
    """
    found: list[SourceToken] = []
    lexer = Lexer(data)
    before = TokenKind.EOF
    end = 0

    def add(token: Token) -> TokenKind:
        nonlocal end
        comments: list[SourceComment] = []
        for comment in _COMMENT.finditer(data, end, token.start):
            lines = data.count(b"\n", end, comment.start())
            text = _LINE_ENDS.sub("", comment[0].decode("utf-8"))
            comments.append(SourceComment(text, lines > 0, lines > 1))
            end = comment.end()
        lines = data.count(b"\n", end, token.start)
        found.append(SourceToken(token.kind, token.text, token.start, tuple(comments), lines > 1))
        end = token.end
        return token.kind

    while True:
        token = lexer.advance()
        if add(token) is TokenKind.EOF:
            return found
        opens_enum = enums and token.kind is TokenKind.NAME and token.text == "enum" and before is not TokenKind.AT
        before = token.kind
        if opens_enum and lexer.at(TokenKind.LPAREN):
            while add(lexer.advance()) in (TokenKind.LPAREN, TokenKind.COMMA):
                add(lexer.enum_member())


class LayoutWriter:
    """Takes the tokens of one text in order and adds what is between them. The text must have been parsed before."""

    def __init__(self, tokens: list[SourceToken], *, tight: frozenset[TokenKind] = frozenset()) -> None:
        """Start at the first token; tokens of the kinds in `tight` touch both their neighbours."""
        self.layout: Layout = []
        self._touches_left = _NO_SPACE_BEFORE | tight
        self._touches_right = _NO_SPACE_AFTER | tight
        self._tokens = tokens
        self._at = 0
        self._carried: tuple[SourceComment, ...] = ()

    @property
    def current(self) -> SourceToken:
        """The next token; the last one is the end of the file."""
        return self._tokens[self._at]

    def at(self, kind: TokenKind, text: str | None = None) -> bool:
        """Whether the next token is of this kind (and text)."""
        return self.current.kind is kind and text in (None, self.current.text)

    def following(self, distance: int) -> SourceToken:
        """The token `distance` after the next one, at most the end of the file."""
        return self._tokens[min(self._at + distance, len(self._tokens) - 1)]

    def put(self, *ops: LayoutOp) -> None:
        """Add what comes before the next token."""
        self.layout.extend(ops)

    def take(self, count: int = 1, *, closes: bool = False) -> None:
        """Write the next tokens. Comments before a comma are written after it: a comma stays with what it follows."""
        for _ in range(count):
            piece = self.current
            if piece.kind is TokenKind.COMMA:
                self.comma(wanted=True)
            else:
                self.layout.append(LayoutToken(piece.text, self._carried + piece.comments, piece.blank, closes))
                self._carried = ()
                self._at += 1

    def words(self, count: int) -> None:
        """Write the next tokens with a space between them."""
        for number in range(count):
            if number:
                self.put(LayoutOp.SPACE)
            self.take()

    def block(self, write_member: Callable[[], None]) -> None:
        """Write the members up to a closing brace, each on a line of its own, and the brace."""
        if not self.at(TokenKind.RBRACE):
            self.put(LayoutOp.INDENT, LayoutOp.HARD)
            write_member()
            while not self.at(TokenKind.RBRACE):
                self.put(LayoutOp.KEEP)
                write_member()
            self.put(LayoutOp.DEDENT, LayoutOp.KEEP)
        self.take(closes=True)

    def comma(self, *, wanted: bool) -> None:
        """Write a comma if it is wanted, and pass the one in the text, if any; its comments go to the next token."""
        if wanted:
            self.layout.append(LayoutToken(","))
        if self.at(TokenKind.COMMA):
            self._carried += self.current.comments
            self._at += 1

    def take_until(self, end: int) -> None:
        """Write the tokens that start before byte `end`, with the usual spaces between them."""
        before: TokenKind | None = None
        while self.current.start < end and self.current.kind is not TokenKind.EOF:
            kind = self.current.kind
            if before is not None and before not in self._touches_right and kind not in self._touches_left:
                self.put(LayoutOp.SPACE)
            self.take()
            before = kind

    def bracketed(self, ends: Sequence[int], *, gap: LayoutOp) -> None:
        """Write a bracket, parts separated by commas, each up to its byte end, and the closing bracket, as one group.

        `gap` is what is written inside the brackets. A comma after the last part is removed, missing ones are added.
        """
        self.put(LayoutOp.OPEN)
        self.take()
        for number, end in enumerate(ends):
            self.put(*((LayoutOp.LINE,) if number else (LayoutOp.INDENT, gap)))
            self.take_until(end)
            self.comma(wanted=number + 1 < len(ends))
        if ends:
            self.put(LayoutOp.DEDENT, gap)
        self.take(closes=True)
        self.put(LayoutOp.CLOSE)

    def end(self) -> Layout:
        """The finished layout, with the comments at the end of the file."""
        self.put(LayoutOp.KEEP)
        self.layout.append(LayoutToken("", self._carried + self.current.comments))
        return self.layout
