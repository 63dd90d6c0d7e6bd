"""Layout of schema text: one declaration, one member, one line, unless it is too long."""

from __future__ import annotations

from gitops.language.format.layout import Layout, Op
from gitops.language.format.writer import Writer
from gitops.language.lexer import Kind

_CONSTRAINTS = frozenset({"key", "unique", "index", "range", "check"})


def schema_layout(writer: Writer) -> Layout:
    """Lay out a schema text that has been parsed."""
    before = ""
    while not writer.at(Kind.EOF):
        word = writer.current.text
        # Edges are often listed like a table, so lines between them are the author's.
        writer.put(Op.KEEP if word == before == "edge" else Op.BLANK)
        _declaration(writer)
        before = word
    return writer.end()


def _declaration(writer: Writer) -> None:
    writer.put(Op.OPEN)
    writer.take()
    writer.put(Op.SPACE)
    writer.take()
    if writer.at(Kind.COLON):
        writer.take()
        for _ in range(3):
            writer.put(Op.SPACE)
            writer.take()
        if writer.at(Kind.AT) and writer.following(1).text == "card":
            writer.put(Op.SPACE)
            _annotation(writer)
    writer.put(Op.INDENT)
    _annotations(writer)
    if writer.at(Kind.NAME, "implements"):
        writer.put(Op.LINE)
        writer.take()
        writer.put(Op.SPACE)
        writer.take()
        while writer.at(Kind.COMMA):
            writer.take()
            writer.put(Op.SPACE)
            writer.take()
    writer.put(Op.DEDENT)
    if not writer.at(Kind.LBRACE):
        writer.put(Op.CLOSE)
        return
    writer.put(Op.LINE)
    writer.take()
    writer.put(Op.CLOSE)
    _body(writer)


def _body(writer: Writer) -> None:
    if writer.at(Kind.RBRACE):
        writer.take(closes=True)
        return
    writer.put(Op.INDENT, Op.HARD)
    _member(writer)
    while not writer.at(Kind.RBRACE):
        writer.put(Op.KEEP)
        _member(writer)
    writer.put(Op.DEDENT, Op.KEEP)
    writer.take(closes=True)


def _member(writer: Writer) -> None:
    writer.put(Op.OPEN)
    if writer.at(Kind.AT):
        _call(writer)
    else:
        writer.take()
        writer.take()
        writer.put(Op.SPACE)
        _type(writer)
        writer.put(Op.INDENT)
        _annotations(writer)
        writer.put(Op.DEDENT)
    writer.put(Op.CLOSE)


def _type(writer: Writer) -> None:
    if writer.at(Kind.LBRACKET):
        for _ in range(3):
            writer.take()
    else:
        writer.take()
        if writer.at(Kind.LPAREN):
            _arguments(writer)
    if writer.at(Kind.QUESTION):
        writer.take()


def _annotations(writer: Writer) -> None:
    while writer.at(Kind.AT) and not _opens_constraint(writer):
        writer.put(Op.LINE)
        _annotation(writer)


def _opens_constraint(writer: Writer) -> bool:
    """Whether the `@` here begins a body constraint and no annotation."""
    return writer.following(1).text in _CONSTRAINTS and writer.following(2).kind is Kind.LPAREN


def _annotation(writer: Writer) -> None:
    writer.take()
    writer.take()
    if writer.at(Kind.LPAREN):
        end = _closing(writer)
        writer.take_until(end)
        writer.take(closes=True)


def _call(writer: Writer) -> None:
    """A constraint: `@`, its name and its arguments."""
    writer.take()
    writer.take()
    _arguments(writer)


def _arguments(writer: Writer) -> None:
    """Arguments in brackets; on lines of their own if they are too long for one."""
    ends = []
    distance = 1
    while True:
        piece = writer.following(distance)
        if piece.kind in (Kind.COMMA, Kind.RPAREN):
            ends.append(piece.start)
        if piece.kind in (Kind.RPAREN, Kind.EOF):
            break
        distance += 1
    writer.bracketed(ends, gap=Op.SOFT)


def _closing(writer: Writer) -> int:
    """Where the bracket that is open here is closed; annotations hold no brackets of their own."""
    distance = 1
    while writer.following(distance).kind not in (Kind.RPAREN, Kind.EOF):
        distance += 1
    return writer.following(distance).start
