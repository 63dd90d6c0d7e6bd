"""Layout of schema text: one declaration, one member, one line, unless it is too long."""

from __future__ import annotations

from gitops.language.format.layout import Layout, LayoutOp
from gitops.language.format.writer import LayoutWriter
from gitops.language.lexer import TokenKind

_CONSTRAINTS = frozenset({"key", "unique", "index", "range", "check"})


def schema_layout(writer: LayoutWriter) -> Layout:
    """Lay out a schema text that has been parsed."""
    before = ""
    while not writer.at(TokenKind.EOF):
        word = writer.current.text
        # Edges are often listed like a table, so lines between them are the author's.
        writer.put(LayoutOp.KEEP if word == before == "edge" else LayoutOp.BLANK)
        _declaration(writer)
        before = word
    return writer.end()


def _declaration(writer: LayoutWriter) -> None:
    writer.put(LayoutOp.OPEN)
    writer.take()
    writer.put(LayoutOp.SPACE)
    writer.take()
    if writer.at(TokenKind.COLON):
        writer.take()
        for _ in range(3):
            writer.put(LayoutOp.SPACE)
            writer.take()
        if writer.at(TokenKind.AT) and writer.following(1).text == "card":
            writer.put(LayoutOp.SPACE)
            _annotation(writer)
    writer.put(LayoutOp.INDENT)
    _annotations(writer)
    if writer.at(TokenKind.NAME, "implements"):
        writer.put(LayoutOp.LINE)
        writer.take()
        writer.put(LayoutOp.SPACE)
        writer.take()
        while writer.at(TokenKind.COMMA):
            writer.take()
            writer.put(LayoutOp.SPACE)
            writer.take()
    writer.put(LayoutOp.DEDENT)
    if not writer.at(TokenKind.LBRACE):
        writer.put(LayoutOp.CLOSE)
        return
    writer.put(LayoutOp.LINE)
    writer.take()
    writer.put(LayoutOp.CLOSE)
    _body(writer)


def _body(writer: LayoutWriter) -> None:
    if writer.at(TokenKind.RBRACE):
        writer.take(closes=True)
        return
    writer.put(LayoutOp.INDENT, LayoutOp.HARD)
    _member(writer)
    while not writer.at(TokenKind.RBRACE):
        writer.put(LayoutOp.KEEP)
        _member(writer)
    writer.put(LayoutOp.DEDENT, LayoutOp.KEEP)
    writer.take(closes=True)


def _member(writer: LayoutWriter) -> None:
    writer.put(LayoutOp.OPEN)
    if writer.at(TokenKind.AT):
        _call(writer)
    else:
        writer.take()
        writer.take()
        writer.put(LayoutOp.SPACE)
        _type(writer)
        writer.put(LayoutOp.INDENT)
        _annotations(writer)
        writer.put(LayoutOp.DEDENT)
    writer.put(LayoutOp.CLOSE)


def _type(writer: LayoutWriter) -> None:
    if writer.at(TokenKind.LBRACKET):
        for _ in range(3):
            writer.take()
    else:
        writer.take()
        if writer.at(TokenKind.LPAREN):
            _arguments(writer)
    if writer.at(TokenKind.QUESTION):
        writer.take()


def _annotations(writer: LayoutWriter) -> None:
    while writer.at(TokenKind.AT) and not _opens_constraint(writer):
        writer.put(LayoutOp.LINE)
        _annotation(writer)


def _opens_constraint(writer: LayoutWriter) -> bool:
    """Whether the `@` here begins a body constraint and no annotation."""
    return writer.following(1).text in _CONSTRAINTS and writer.following(2).kind is TokenKind.LPAREN


def _annotation(writer: LayoutWriter) -> None:
    writer.take()
    writer.take()
    if writer.at(TokenKind.LPAREN):
        end = _closing(writer)
        writer.take_until(end)
        writer.take(closes=True)


def _call(writer: LayoutWriter) -> None:
    """A constraint: `@`, its name and its arguments."""
    writer.take()
    writer.take()
    _arguments(writer)


def _arguments(writer: LayoutWriter) -> None:
    """Arguments in brackets; on lines of their own if they are too long for one."""
    ends = []
    distance = 1
    while True:
        piece = writer.following(distance)
        if piece.kind in (TokenKind.COMMA, TokenKind.RPAREN):
            ends.append(piece.start)
        if piece.kind in (TokenKind.RPAREN, TokenKind.EOF):
            break
        distance += 1
    writer.bracketed(ends, gap=LayoutOp.SOFT)


def _closing(writer: LayoutWriter) -> int:
    """Where the bracket that is open here is closed; annotations hold no brackets of their own."""
    distance = 1
    while writer.following(distance).kind not in (TokenKind.RPAREN, TokenKind.EOF):
        distance += 1
    return writer.following(distance).start
