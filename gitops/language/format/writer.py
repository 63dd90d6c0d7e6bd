"""What both languages share of the formatter: a cursor over the words of a text, and the layout made on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.format.layout import Layout, LayoutOp, LayoutToken, SourceComment
from gitops.language.lexer import TokenKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gitops.language.format.words import SourceToken

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


class Writer:
    """Takes the words of one text in order and says what stands between them. The text must have been parsed before."""

    def __init__(self, pieces: list[SourceToken], *, tight: frozenset[TokenKind] = frozenset()) -> None:
        """Stand on the first word; words of the kinds in `tight` touch both their neighbours."""
        self.layout: Layout = []
        self._touches_left = _NO_SPACE_BEFORE | tight
        self._touches_right = _NO_SPACE_AFTER | tight
        self._pieces = pieces
        self._at = 0
        self._carried: tuple[SourceComment, ...] = ()

    @property
    def current(self) -> SourceToken:
        """The next word; the last one is the end of the file."""
        return self._pieces[self._at]

    def at(self, kind: TokenKind, text: str | None = None) -> bool:
        """Whether the next word is of this kind (and text)."""
        return self.current.kind is kind and text in (None, self.current.text)

    def following(self, distance: int) -> SourceToken:
        """The word `distance` after the next one, at most the end of the file."""
        return self._pieces[min(self._at + distance, len(self._pieces) - 1)]

    def put(self, *ops: LayoutOp) -> None:
        """Say what stands before the next word."""
        self.layout.extend(ops)

    def take(self, *, closes: bool = False) -> None:
        """Write the next word. Comments before a comma go behind it: a comma stays with what it follows."""
        piece = self.current
        if piece.kind is TokenKind.COMMA:
            self.comma(wanted=True)
            return
        self.layout.append(LayoutToken(piece.text, self._carried + piece.comments, piece.blank, closes))
        self._carried = ()
        self._at += 1

    def comma(self, *, wanted: bool) -> None:
        """Write a comma or none, whether or not there is one in the text; its comments go to the next word."""
        if wanted:
            self.layout.append(LayoutToken(","))
        if self.at(TokenKind.COMMA):
            self._carried += self.current.comments
            self._at += 1

    def take_until(self, end: int) -> None:
        """Write the words that start before byte `end`, with the usual spaces between them."""
        before: TokenKind | None = None
        while self.current.start < end and self.current.kind is not TokenKind.EOF:
            kind = self.current.kind
            if before is not None and before not in self._touches_right and kind not in self._touches_left:
                self.put(LayoutOp.SPACE)
            self.take()
            before = kind

    def bracketed(self, ends: Iterable[int], *, gap: LayoutOp) -> None:
        """Write a bracket, parts separated by commas, each up to its byte end, and the closing bracket, as one group.

        `gap` is what stands inside the brackets. A comma behind the last part is left out, missing ones are put in.
        """
        listed = list(ends)
        self.put(LayoutOp.OPEN)
        self.take()
        if listed:
            self.put(LayoutOp.INDENT, gap)
            for number, end in enumerate(listed, start=1):
                self.take_until(end)
                self.comma(wanted=number < len(listed))
                if number < len(listed):
                    self.put(LayoutOp.LINE)
            self.put(LayoutOp.DEDENT, gap)
        self.take(closes=True)
        self.put(LayoutOp.CLOSE)

    def end(self) -> Layout:
        """The finished layout, with the comments at the end of the file."""
        self.put(LayoutOp.KEEP)
        self.layout.append(LayoutToken("", self._carried + self.current.comments))
        return self.layout
