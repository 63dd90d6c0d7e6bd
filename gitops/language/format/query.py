"""Layout of query text: the tree says which tokens belong together, the tokens say what is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.format.layout import Layout, LayoutOp
from gitops.language.format.writer import LayoutWriter
from gitops.language.lexer import TokenKind
from gitops.language.query.ast import Bind, Clause, Delete, Hop, Insert, Not, Query, Read, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence


def query_layout(writer: LayoutWriter, queries: Sequence[Query]) -> Layout:
    """Lay out a query text whose tree is `queries`."""
    for query in queries:
        writer.put(LayoutOp.BLANK)
        _query(writer, query)
    return writer.end()


def _query(writer: LayoutWriter, query: Query) -> None:
    writer.take()
    writer.put(LayoutOp.SPACE)
    writer.take()
    writer.bracketed([param.span.end for param in query.params], gap=LayoutOp.SOFT)
    while writer.at(TokenKind.AT):
        writer.put(LayoutOp.SPACE)
        for _ in range(4):
            writer.take()
        writer.take(closes=True)
    writer.put(LayoutOp.SPACE)
    writer.take()
    writer.put(LayoutOp.INDENT, LayoutOp.HARD)
    if isinstance(query.body, Read):
        _read(writer, query.body)
    else:
        for number, statement in enumerate(query.body):
            if number:
                writer.put(LayoutOp.KEEP)
            _statement(writer, statement)
    writer.put(LayoutOp.DEDENT, LayoutOp.KEEP)
    writer.take(closes=True)


def _read(writer: LayoutWriter, read: Read) -> None:
    writer.take()
    writer.put(LayoutOp.SPACE)
    _block(writer, read.clauses)
    writer.put(LayoutOp.KEEP)
    writer.take()
    writer.put(LayoutOp.SPACE)
    writer.bracketed([item.span.end for item in read.items], gap=LayoutOp.LINE)
    if read.order:
        writer.put(LayoutOp.KEEP)
        writer.take()
        writer.put(LayoutOp.SPACE)
        writer.bracketed([sort.span.end for sort in read.order], gap=LayoutOp.LINE)
    if read.limit is not None:
        writer.put(LayoutOp.KEEP)
        writer.take()
        writer.put(LayoutOp.SPACE)
        writer.take()


def _block(writer: LayoutWriter, clauses: Sequence[Clause]) -> None:
    """Clauses in braces, each on a line of its own."""
    writer.take()
    writer.put(LayoutOp.INDENT, LayoutOp.HARD)
    for number, clause in enumerate(clauses):
        if number:
            writer.put(LayoutOp.KEEP)
        _clause(writer, clause)
    writer.put(LayoutOp.DEDENT, LayoutOp.KEEP)
    writer.take(closes=True)


def _clause(writer: LayoutWriter, clause: Clause) -> None:
    if isinstance(clause, Not):
        _not(writer, clause)
    elif isinstance(clause, Bind):
        _bind(writer, clause)
    elif isinstance(clause, Hop):
        _hop(writer, clause)
    else:
        writer.take_until(clause.span.end)


def _not(writer: LayoutWriter, clause: Not) -> None:
    writer.take()
    writer.put(LayoutOp.SPACE)
    if len(clause.clauses) > 1:
        _block(writer, clause.clauses)
        return
    writer.put(LayoutOp.OPEN)
    writer.take()
    writer.put(LayoutOp.INDENT, LayoutOp.LINE)
    _clause(writer, clause.clauses[0])
    writer.put(LayoutOp.DEDENT, LayoutOp.LINE)
    writer.take(closes=True)
    writer.put(LayoutOp.CLOSE)


def _bind(writer: LayoutWriter, clause: Bind) -> None:
    writer.take_until(clause.type_name.span.end)
    if clause.pairs:
        writer.put(LayoutOp.SPACE)
        writer.bracketed([pair.span.end for pair in clause.pairs], gap=LayoutOp.LINE)


def _hop(writer: LayoutWriter, clause: Hop) -> None:
    """Between the two variables the words of an edge touch: `$e:link`, `<link>`, `link{1,2}`."""
    writer.take()
    writer.put(LayoutOp.SPACE)
    while writer.current.start < clause.right.span.start:
        writer.take()
    writer.put(LayoutOp.SPACE)
    writer.take()


def _statement(writer: LayoutWriter, statement: Statement) -> None:
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
