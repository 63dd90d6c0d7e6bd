"""Layout of schema text: one declaration, one member, one line, unless it is too long."""

from __future__ import annotations

from gitops.database.language.format.layout import Layout, LayoutOp, LayoutWriter
from gitops.database.language.lexer import TokenKind

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
    writer.words(2)
    if writer.at(TokenKind.COLON):
        writer.take()
        writer.put(LayoutOp.SPACE)
        writer.words(3)
        if writer.at(TokenKind.AT) and writer.following(1).text == "card":
            writer.put(LayoutOp.SPACE)
            _annotation(writer)
    writer.put(LayoutOp.INDENT)
    _annotations(writer)
    if writer.at(TokenKind.NAME, "implements"):
        writer.put(LayoutOp.LINE)
        writer.words(2)
        while writer.at(TokenKind.COMMA):
            writer.words(2)
    writer.put(LayoutOp.DEDENT)
    has_body = writer.at(TokenKind.LBRACE)
    if has_body:
        writer.put(LayoutOp.LINE)
        writer.take()
    writer.put(LayoutOp.CLOSE)
    if has_body:
        writer.block(lambda: _member(writer))


def _member(writer: LayoutWriter) -> None:
    writer.put(LayoutOp.OPEN)
    if writer.at(TokenKind.AT):
        writer.take(2)
        writer.bracketed(_argument_ends(writer), gap=LayoutOp.SOFT)
    else:
        writer.take(2)
        writer.put(LayoutOp.SPACE)
        writer.take(3 if writer.at(TokenKind.LBRACKET) else 1)
        if writer.at(TokenKind.LPAREN):
            writer.bracketed(_argument_ends(writer), gap=LayoutOp.SOFT)
        if writer.at(TokenKind.QUESTION):
            writer.take()
        writer.put(LayoutOp.INDENT)
        _annotations(writer)
        writer.put(LayoutOp.DEDENT)
    writer.put(LayoutOp.CLOSE)


def _annotations(writer: LayoutWriter) -> None:
    while writer.at(TokenKind.AT):
        if writer.following(1).text in _CONSTRAINTS and writer.following(2).kind is TokenKind.LPAREN:
            return  # a body constraint
        writer.put(LayoutOp.LINE)
        _annotation(writer)


def _annotation(writer: LayoutWriter) -> None:
    writer.take(2)
    if writer.at(TokenKind.LPAREN):
        writer.take_until(_argument_ends(writer)[-1])
        writer.take(closes=True)


def _argument_ends(writer: LayoutWriter) -> list[int]:
    """Where each argument of the bracket that is open here ends; arguments hold no brackets of their own."""
    ends = []
    distance = 1
    while (piece := writer.following(distance)).kind is not TokenKind.RPAREN:
        if piece.kind is TokenKind.COMMA:
            ends.append(piece.start)
        distance += 1
    return [*ends, piece.start]
