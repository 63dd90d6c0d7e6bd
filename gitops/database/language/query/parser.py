"""Query text to its trees: files, queries, parameters, read sections and writes; the upper layer of the descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.query.ast import (
    ANONYMOUS,
    Delete,
    Insert,
    Nearest,
    OrderExpression,
    Param,
    PropertyPair,
    Query,
    Read,
    ReturnExpression,
    Statement,
    Update,
    WhereCondition,
)
from gitops.database.language.query.parse_clause import ClauseParser
from gitops.database.language.record import make
from gitops.database.language.schema.types import PropType, Scalar
from gitops.database.language.text import LanguageError, LanguageProblem, Span

if TYPE_CHECKING:
    from typing import NoReturn

MAX_LIMIT = 2**64 - 1

MAX_PROBLEMS = 100
"""Most problems that one file reports."""

_BASES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_WRITES = frozenset({"insert", "update", "delete"})
_ANNOTATIONS = frozenset({"description", "instruction"})

# A global name is found much faster than a member of an enumeration.
_NAME, _COMMA, _LBRACE, _RBRACE = TokenKind.NAME, TokenKind.COMMA, TokenKind.LBRACE, TokenKind.RBRACE
_VECTOR = Scalar.VECTOR.value


def parse_queries(source: bytes) -> tuple[Query, ...]:
    """Parse one `.gq` file: any number of queries, in file order; equal names are not refused here.

    Raises `LanguageError` with the first grammar problem of each query, at most `MAX_PROBLEMS`. Checks no name and no type.
    """
    return _QueryParser(source).file()


class _QueryParser(ClauseParser):
    def file(self) -> tuple[Query, ...]:
        lexer = self._lexer
        queries: list[Query] = []
        problems: list[LanguageProblem] = []
        readable = True
        while lexer.kind is not TokenKind.EOF and readable and len(problems) < MAX_PROBLEMS:
            try:
                queries.append(self._query())
            except LanguageError as error:
                problems.extend(error.problems)
                readable = lexer.resume() and self._skip_to_query()
        if problems:
            raise LanguageError(*problems)
        return tuple(queries)

    def _skip_to_query(self) -> bool:
        """Move to the next query or the end; False if the text cannot be read that far."""
        lexer, readable = self._lexer, True
        self._depth = 0
        while readable:
            try:
                lexer.step()
                while lexer.kind is not TokenKind.EOF and not self._at_query():
                    lexer.step()
                break
            except LanguageError:
                # Of one query, the first problem is enough.
                readable = lexer.resume()
        return readable

    def _at_query(self) -> bool:
        """Whether `query name(` stands here with what may follow it; inside of a query these words may be names, too."""
        lexer = self._lexer
        if lexer.kind is not _NAME or lexer.text != "query" or lexer.peek().kind is not _NAME:
            return False
        follows = lexer.peek(3).kind
        declares = follows is TokenKind.VAR and lexer.peek(4).kind is TokenKind.COLON
        return lexer.peek(2).kind is TokenKind.LPAREN and (declares or follows is TokenKind.RPAREN)

    def _query(self) -> Query:
        lexer = self._lexer
        start = lexer.start
        self._keyword("query")
        name = self.ident(_NAME, "a query name")
        lexer.require(TokenKind.LPAREN, "`(`, the parameters of the query")
        params: list[Param] = []
        if lexer.kind is not TokenKind.RPAREN:
            params.append(self._param())
            while lexer.skip(_COMMA):
                params.append(self._param())
        lexer.require(TokenKind.RPAREN, "`,` or `)`")
        notes = self._annotations()
        lexer.require(_LBRACE, "`{`, the body of the query")
        body: Read | tuple[Statement, ...]
        after = "another write or `}`"
        if lexer.at(_NAME, "match"):
            body = self._read()
            after = "`limit` or `}`" if body.order else "`order`, `limit` or `}`"
            if body.limit is not None:
                after = "`}` (the sections are match, return, order, limit, in this order)"
        elif lexer.kind is _NAME and lexer.text in _WRITES:
            statements = [self._write()]
            while lexer.kind is _NAME and lexer.text in _WRITES:
                statements.append(self._write())
            body = tuple(statements)
        else:
            lexer.unexpected("`match`, `insert`, `update` or `delete`")
        lexer.require(_RBRACE, after)
        span = self.span_from(start)
        return Query(name, tuple(params), notes.get("description"), notes.get("instruction"), body, span)

    def _keyword(self, word: str) -> None:
        lexer = self._lexer
        if lexer.kind is not _NAME or lexer.text != word:
            lexer.unexpected(f"`{word}`")
        lexer.step()

    def _param(self) -> Param:
        name = self.variable("a parameter")
        if name.text == ANONYMOUS:
            self._lexer.fail("`$_` cannot be a parameter", name.span, "give the parameter a name")
        self._lexer.require(TokenKind.COLON)
        start = self._lexer.start
        declared = self._type()
        return make(Param, (name, declared, self.span_from(start), self.span_from(name.span.start)))

    def _type(self) -> PropType:
        lexer = self._lexer
        is_list = lexer.skip(TokenKind.LBRACKET)
        if lexer.kind is not TokenKind.TYPE_NAME:
            self._refuse_type(lexer.current)
        name = lexer.advance()
        dimension = None
        if name.text == _VECTOR and not is_list:
            scalar = Scalar.VECTOR
            lexer.require(TokenKind.LPAREN)
            dimension = int(lexer.expect(TokenKind.INT, "the dimension of the vector").text)
            lexer.require(TokenKind.RPAREN)
        else:
            found = _BASES.get(name.text)
            if found is None:
                self._refuse_type(name)
            scalar = found
        if is_list:
            lexer.require(TokenKind.RBRACKET)
        nullable = lexer.skip(TokenKind.QUESTION)
        return make(PropType, (scalar, nullable, is_list, None, dimension))

    def _refuse_type(self, name: Token) -> NoReturn:
        if name.kind is TokenKind.NAME and name.text == "enum":
            self._lexer.fail("a parameter cannot be an enum", name.span, "declare the parameter `String`")
        from gitops.database.language.suggest import nearest_type

        fix = nearest_type(name.text, _BASES)
        if name.kind is not TokenKind.TYPE_NAME:
            self._lexer.unexpected("a parameter type", fix)
        if name.text == Scalar.VECTOR:
            self._lexer.fail("a parameter cannot be a list of vectors", name.span)
        self._lexer.fail(f"unknown parameter type {name}", name.span, fix)

    def _annotations(self) -> dict[str, str]:
        lexer = self._lexer
        notes: dict[str, str] = {}
        while lexer.kind is TokenKind.AT:
            at, name = lexer.advance(), lexer.current
            if name.start != at.end or name.text not in _ANNOTATIONS:
                from gitops.database.language.suggest import did_you_mean

                fix = did_you_mean(name.text, _ANNOTATIONS)
                lexer.fail("expected `@description(..)` or `@instruction(..)`, without a space after `@`", at.span, fix)
            lexer.step()
            lexer.require(TokenKind.LPAREN)
            text = lexer.expect(TokenKind.STRING).value
            lexer.require(TokenKind.RPAREN)
            if name.text in notes:
                lexer.fail(f"duplicate @{name.text} annotations", Span(at.start, name.end))
            notes[name.text] = text
        return notes

    def _read(self) -> Read:
        lexer = self._lexer
        start = lexer.start
        self._keyword("match")
        clauses = self.clauses()
        self._keyword("return")
        lexer.require(_LBRACE)
        items = [self._item()]
        while not lexer.skip(_RBRACE):
            items.append(self._item())
        order: list[OrderExpression] = []
        if lexer.accept(_NAME, "order"):
            lexer.require(_LBRACE)
            order.append(self._sort())
            while lexer.skip(_COMMA):
                order.append(self._sort())
            lexer.require(_RBRACE, "`,` or `}`")
        limit = None
        if lexer.accept(_NAME, "limit"):
            limit = self.integer(lexer.expect(TokenKind.INT, "a row count"), MAX_LIMIT, "limit")
        return Read(clauses, tuple(items), tuple(order), limit, self.span_from(start))

    def _item(self) -> ReturnExpression:
        lexer = self._lexer
        start = lexer.start
        value = self.expression("a return item")
        alias = None
        if lexer.accept(_NAME, "as"):
            alias = self.ident(_NAME, "an alias after `as`")
        span = self.span_from(start)
        lexer.skip(_COMMA)
        return make(ReturnExpression, (value, alias, span))

    def _sort(self) -> OrderExpression:
        start = self._lexer.start
        value = self.expression("an order item")
        descending = False
        if self._lexer.at(_NAME, "asc") or self._lexer.at(_NAME, "desc"):
            direction = self._lexer.advance()
            descending = direction.text == "desc"
            if isinstance(value, Nearest):
                self._lexer.fail("`nearest` takes no direction: the nearest come first", direction.span)
        return OrderExpression(value, descending, self.span_from(start))

    def _write(self) -> Statement:
        verb = self._lexer.advance()
        type_name = self.ident(TokenKind.TYPE_NAME, "a type name")
        if verb.text == "insert":
            pairs = self._assignments()
            return Insert(type_name, pairs, self.span_from(verb.start))
        if verb.text == "update":
            self._keyword("set")
            pairs = self._assignments()
            test = self._test()
            return Update(type_name, pairs, test, self.span_from(verb.start))
        test = self._test()
        return Delete(type_name, test, self.span_from(verb.start))

    def _assignments(self) -> tuple[PropertyPair, ...]:
        """Read `{ pair+ }`, with or without commas."""
        self._lexer.require(_LBRACE)
        pairs: list[PropertyPair] = []
        while not pairs or not self._lexer.skip(_RBRACE):
            pairs.append(self.pair())
            self._lexer.skip(_COMMA)
        return tuple(pairs)

    def _test(self) -> WhereCondition:
        self._keyword("where")
        name = self.ident(TokenKind.NAME, "a property name")
        operator = self.symbol()
        if operator is None:
            self._lexer.unexpected("one of `=` `!=` `<` `<=` `>` `>=`")
        value = self.value()
        return WhereCondition(name, operator, value, self.span_from(name.span.start))
