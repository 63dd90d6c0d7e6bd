"""Layout of query text: what belongs together is told by the tree, what is written by the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.format.layout import Layout, Op
from gitops.language.format.writer import Writer
from gitops.language.lexer import Kind
from gitops.language.query.ast import Bind, Clause, Delete, Hop, Insert, Not, Query, Read, Statement

if TYPE_CHECKING:
    from collections.abc import Sequence


def query_layout(writer: Writer, queries: Sequence[Query]) -> Layout:
    """Lay out a query text whose tree is `queries`."""
    for query in queries:
        writer.put(Op.BLANK)
        _query(writer, query)
    return writer.end()


def _query(writer: Writer, query: Query) -> None:
    writer.take()
    writer.put(Op.SPACE)
    writer.take()
    writer.bracketed([param.span.end for param in query.params], gap=Op.SOFT)
    while writer.at(Kind.AT):
        writer.put(Op.SPACE)
        for _ in range(4):
            writer.take()
        writer.take(closes=True)
    writer.put(Op.SPACE)
    writer.take()
    writer.put(Op.INDENT, Op.HARD)
    if isinstance(query.body, Read):
        _read(writer, query.body)
    else:
        for number, statement in enumerate(query.body):
            if number:
                writer.put(Op.KEEP)
            _statement(writer, statement)
    writer.put(Op.DEDENT, Op.KEEP)
    writer.take(closes=True)


def _read(writer: Writer, read: Read) -> None:
    writer.take()
    writer.put(Op.SPACE)
    _block(writer, read.clauses)
    writer.put(Op.KEEP)
    writer.take()
    writer.put(Op.SPACE)
    writer.bracketed([item.span.end for item in read.items], gap=Op.LINE)
    if read.order:
        writer.put(Op.KEEP)
        writer.take()
        writer.put(Op.SPACE)
        writer.bracketed([sort.span.end for sort in read.order], gap=Op.LINE)
    if read.limit is not None:
        writer.put(Op.KEEP)
        writer.take()
        writer.put(Op.SPACE)
        writer.take()


def _block(writer: Writer, clauses: Sequence[Clause]) -> None:
    """Clauses in braces, each on a line of its own."""
    writer.take()
    writer.put(Op.INDENT, Op.HARD)
    for number, clause in enumerate(clauses):
        if number:
            writer.put(Op.KEEP)
        _clause(writer, clause)
    writer.put(Op.DEDENT, Op.KEEP)
    writer.take(closes=True)


def _clause(writer: Writer, clause: Clause) -> None:
    if isinstance(clause, Not):
        _not(writer, clause)
    elif isinstance(clause, Bind):
        _bind(writer, clause)
    elif isinstance(clause, Hop):
        _hop(writer, clause)
    else:
        writer.take_until(clause.span.end)


def _not(writer: Writer, clause: Not) -> None:
    writer.take()
    writer.put(Op.SPACE)
    if len(clause.clauses) > 1:
        _block(writer, clause.clauses)
        return
    writer.put(Op.OPEN)
    writer.take()
    writer.put(Op.INDENT, Op.LINE)
    _clause(writer, clause.clauses[0])
    writer.put(Op.DEDENT, Op.LINE)
    writer.take(closes=True)
    writer.put(Op.CLOSE)


def _bind(writer: Writer, clause: Bind) -> None:
    writer.take_until(clause.type_name.span.end)
    if clause.pairs:
        writer.put(Op.SPACE)
        writer.bracketed([pair.span.end for pair in clause.pairs], gap=Op.LINE)


def _hop(writer: Writer, clause: Hop) -> None:
    """Between the two variables the words of an edge touch: `$e:link`, `<link>`, `link{1,2}`."""
    writer.take()
    writer.put(Op.SPACE)
    while writer.current.start < clause.right.span.start:
        writer.take()
    writer.put(Op.SPACE)
    writer.take()


def _statement(writer: Writer, statement: Statement) -> None:
    writer.take_until(statement.type_name.span.end)
    writer.put(Op.SPACE)
    if isinstance(statement, Delete):
        writer.take_until(statement.span.end)
        return
    if not isinstance(statement, Insert):
        writer.take()
        writer.put(Op.SPACE)
    writer.bracketed([pair.span.end for pair in statement.pairs], gap=Op.LINE)
    if not isinstance(statement, Insert):
        writer.put(Op.SPACE)
        writer.take_until(statement.span.end)
