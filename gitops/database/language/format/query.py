"""Layout of query text: the tree says which tokens belong together, the tokens say what is written."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gitops.database.language.format.layout import Layout, LayoutOp, LayoutWriter
from gitops.database.language.lexer import TokenKind
from gitops.database.language.query.ast import Bind, Clause, Delete, Hop, Insert, Not, Query, Read, Statement

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def query_layout(writer: LayoutWriter, queries: Sequence[Query]) -> Layout:
    """Lay out a query text whose tree is `queries`."""
    for query in queries:
        writer.put(LayoutOp.BLANK)
        writer.words(2)
        writer.bracketed([param.span.end for param in query.params], gap=LayoutOp.SOFT)
        while writer.at(TokenKind.AT):
            writer.put(LayoutOp.SPACE)
            writer.take(4)
            writer.take(closes=True)
        writer.put(LayoutOp.SPACE)
        writer.take()
        if isinstance(query.body, Read):
            writer.block(partial(_sections, writer, query.body))
        else:
            writer.block(partial(_next_statement, writer, iter(query.body)))
    return writer.end()


def _sections(writer: LayoutWriter, read: Read) -> None:
    writer.take()
    writer.put(LayoutOp.SPACE)
    _clauses(writer, read.clauses)
    for parts in (read.items, read.order):
        if parts:
            writer.put(LayoutOp.KEEP)
            writer.take()
            writer.put(LayoutOp.SPACE)
            writer.bracketed([each.span.end for each in parts], gap=LayoutOp.LINE)
    if read.limit is not None:
        writer.put(LayoutOp.KEEP)
        writer.words(2)


def _clauses(writer: LayoutWriter, clauses: Sequence[Clause]) -> None:
    """Clauses in braces, each on a line of its own."""
    waiting = iter(clauses)
    writer.take()
    writer.block(lambda: _clause(writer, next(waiting)))


def _clause(writer: LayoutWriter, clause: Clause) -> None:
    if isinstance(clause, Not):
        writer.take()
        writer.put(LayoutOp.SPACE)
        if len(clause.clauses) > 1:
            _clauses(writer, clause.clauses)
            return
        writer.put(LayoutOp.OPEN)
        writer.take()
        writer.put(LayoutOp.INDENT, LayoutOp.LINE)
        _clause(writer, clause.clauses[0])
        writer.put(LayoutOp.DEDENT, LayoutOp.LINE)
        writer.take(closes=True)
        writer.put(LayoutOp.CLOSE)
    elif isinstance(clause, Bind):
        writer.take_until(clause.type_name.span.end)
        if clause.pairs:
            writer.put(LayoutOp.SPACE)
            writer.bracketed([pair.span.end for pair in clause.pairs], gap=LayoutOp.LINE)
    elif isinstance(clause, Hop):
        # Between the two variables the words of an edge touch: `$e:link`, `<link>`, `link{1,2}`.
        writer.take()
        writer.put(LayoutOp.SPACE)
        while writer.current.start < clause.right.span.start:
            writer.take()
        writer.put(LayoutOp.SPACE)
        writer.take()
    else:
        writer.take_until(clause.span.end)


def _next_statement(writer: LayoutWriter, statements: Iterator[Statement]) -> None:
    statement = next(statements)
    writer.take_until(statement.type_name.span.end)
    writer.put(LayoutOp.SPACE)
    if isinstance(statement, Delete):
        writer.take_until(statement.span.end)
        return
    if not isinstance(statement, Insert):
        writer.take()
        writer.put(LayoutOp.SPACE)
    writer.bracketed([pair.span.end for pair in statement.pairs], gap=LayoutOp.LINE)
    if not isinstance(statement, Insert):
        writer.put(LayoutOp.SPACE)
        writer.take_until(statement.span.end)
