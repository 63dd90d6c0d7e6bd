"""Parses query text to syntax trees by recursive descent.

`ClauseParser` is the lower layer, which reads clauses, expressions and values. The upper layer reads files, queries,
parameters, read sections and writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gitops.database.language.lexer import Lexer, Token, TokenKind
from gitops.database.language.query.ast import (
    ANONYMOUS,
    Aggregate,
    AggregateFunction,
    Alias,
    Bind,
    Clause,
    Comparison,
    ComparisonOperator,
    Delete,
    Expr,
    Hop,
    HopBounds,
    Insert,
    Literal,
    Nearest,
    Not,
    Now,
    OrderExpression,
    Param,
    PropertyAccess,
    PropertyPair,
    Query,
    Read,
    ReturnExpression,
    Rrf,
    Statement,
    TextCall,
    TextFunction,
    Update,
    ValueExpr,
    Variable,
    WhereCondition,
)
from gitops.database.language.query.limits import LIMITS
from gitops.database.language.record import make
from gitops.database.language.schema.types import PropType, Scalar
from gitops.database.language.text import LanguageError, LanguageProblem, Name, Span

if TYPE_CHECKING:
    from typing import NoReturn

MAX_DEPTH = LIMITS["levels"].most
"""Maximum nesting of blocks, calls and lists together; deeper text is rejected, so recursion is bounded."""

MAX_NAME = LIMITS["characters"].most
"""Maximum length of a name, in characters. Messages repeat names, so they must not be too long."""

MAX_INT = 2**63 - 1
MAX_BOUND = LIMITS["steps"].most

_TEXT = {function.value: function for function in TextFunction}
_AGGREGATES = {function.value: function for function in AggregateFunction}
_BOOLEANS = {"true": True, "false": False}
_TIMES = {"date": Scalar.DATE, "datetime": Scalar.DATETIME}
_STARTS = frozenset(
    {TokenKind.VAR, TokenKind.NAME, TokenKind.STRING, TokenKind.INT, TokenKind.FLOAT, TokenKind.LBRACKET}
)
_SYMBOLS = {
    TokenKind.EQ: ComparisonOperator.EQ,
    TokenKind.NE: ComparisonOperator.NE,
    TokenKind.LT: ComparisonOperator.LT,
    TokenKind.LE: ComparisonOperator.LE,
    TokenKind.GT: ComparisonOperator.GT,
    TokenKind.GE: ComparisonOperator.GE,
}
_CONDITIONS = "write each condition on a separate line in `match`, such as `$p.age > 30`: all of them have to hold"
_OTHER_WORDS = {
    "where": ("`where` is not a part of `match`", _CONDITIONS),
    "and": ("there is no `and`", _CONDITIONS),
    "or": ("there is no `or`", "write two queries"),
}
"""Hints for words of other query languages in place of a condition."""
_WORDS = {"contains": ComparisonOperator.CONTAINS, "starts_with": ComparisonOperator.STARTS_WITH}

# This is needed for nearly every token, and looking up an enum member is ten times slower than a global name.
_NAME, _VAR, _COLON, _COMMA, _DOT = TokenKind.NAME, TokenKind.VAR, TokenKind.COLON, TokenKind.COMMA, TokenKind.DOT
_LPAREN, _RPAREN, _LBRACE, _RBRACE, _LT = (
    TokenKind.LPAREN,
    TokenKind.RPAREN,
    TokenKind.LBRACE,
    TokenKind.RBRACE,
    TokenKind.LT,
)


class ClauseParser:
    """Reads clauses and expressions at a lexer's cursor. Every method can raise `LanguageError` with one parse problem.

    Clauses are tried in this order: not, bind, hop, condition, text call.
    """

    def __init__(self, data: bytes) -> None:
        self._lexer = Lexer(data)
        self._depth = 0

    def clauses(self) -> tuple[Clause, ...]:
        """Read `{ clause+ }`."""
        lexer = self._lexer
        self._enter(lexer.expect(_LBRACE))
        found = [self._clause()]
        while not lexer.skip(_RBRACE):
            found.append(self._clause())
        self._depth -= 1
        return tuple(found)

    def pair(self) -> PropertyPair:
        """Read `name: value`."""
        name = self.ident(_NAME, "a property name")
        if self._lexer.kind is TokenKind.EQ:
            self._lexer.unexpected(_COLON.value, meant=":")
        self._lexer.require(_COLON)
        value = self.value()
        return make(PropertyPair, (name, value, self.span_from(name.span.start)))

    def symbol(self) -> ComparisonOperator | None:
        """Skip a comparison sign at the cursor, if there is one."""
        operator = _SYMBOLS.get(self._lexer.kind)
        if operator is not None:
            self._lexer.step()
        return operator

    def _clause(self) -> Clause:
        lexer = self._lexer
        if lexer.kind is _VAR:
            return self._clause_from_variable()
        if lexer.at(_NAME, "not") and lexer.peek().kind is _LBRACE:
            start = lexer.start
            lexer.step()
            inner = self.clauses()
            return Not(inner, self.span_from(start))
        if lexer.kind is _LPAREN:
            fix = "write a node as `$p: Person`, and an edge as `$p knows $q`"
            lexer.unexpected("a clause: a binding, a hop, a condition or `not`", fix)
        return self._condition(self.expression("a clause: a binding, a hop, a condition or `not`"))

    def _clause_from_variable(self) -> Clause:
        """Read a bind, a hop or a condition, depending on the token after the first variable."""
        lexer = self._lexer
        variable = self.variable()
        follows = lexer.kind
        if follows is _COLON:
            return self._bind(variable)
        if follows is _VAR:
            binding = self.variable()
            lexer.require(_COLON, "`:` and an edge name after the edge variable")
            undirected = lexer.skip(_LT)
            edge = self._edge(lexer.expect(_NAME, "an edge name"))
            if undirected:
                lexer.require(TokenKind.GT, "`>` after the edge name")
            return self._hop(variable, binding, edge, undirected=undirected)
        if follows is _NAME:
            word = lexer.advance()
            operator = _WORDS.get(word.text)
            if operator is None:
                return self._hop(variable, None, self._edge(word), undirected=False)
            # `$a contains $b` is a hop over an edge named `contains`, because a bare variable is never compared.
            if lexer.kind is _LBRACE or (lexer.kind is _VAR and lexer.peek().kind is not _DOT):
                return self._hop(variable, None, Name(word.text, word.span), undirected=False)
            return self._compare(Variable(*variable), operator)
        if follows is _LT and lexer.peek().kind is _NAME:
            lexer.step()
            name = lexer.advance()
            if lexer.kind is TokenKind.GT:
                edge = self._edge(name)
                lexer.step()
                return self._hop(variable, None, edge, undirected=True)
            right = self.expression_from(name)
            span = self.span_from(variable.span.start)
            return Comparison(Variable(*variable), ComparisonOperator.LT, right, span)
        return self._condition(self.expression_of(variable))

    def _bind(self, variable: Name) -> Bind:
        lexer = self._lexer
        lexer.require(_COLON)
        type_name = self.ident(TokenKind.TYPE_NAME, "a node type name after `:`")
        pairs: list[PropertyPair] = []
        if lexer.skip(_LBRACE):
            pairs.append(self.pair())
            while lexer.skip(_COMMA) and lexer.kind is not _RBRACE:
                pairs.append(self.pair())
            lexer.require(_RBRACE, "`,` or `}`")
        return Bind(variable, type_name, tuple(pairs), self.span_from(variable.span.start))

    def _edge(self, token: Token) -> Name:
        if token.text == "not":
            self._lexer.fail("an edge cannot be called `not`", token.span)
        return Name(self._checked(token), token.span)

    def _hop(self, left: Name, binding: Name | None, edge: Name, *, undirected: bool) -> Hop:
        lexer, bounds = self._lexer, None
        if lexer.kind is _LBRACE:
            start = lexer.advance().start
            low = self._bound()
            lexer.require(_COMMA, "`,` between the bounds of the hop")
            high = self._bound() if lexer.kind is TokenKind.INT else None
            lexer.require(_RBRACE)
            bounds = HopBounds(low, high, self.span_from(start))
        right = self.variable("a variable: the far end of the hop")
        return Hop(left, binding, edge, undirected, bounds, right, self.span_from(left.span.start))

    def _bound(self) -> int:
        return self.integer(self._lexer.expect(TokenKind.INT, "a hop bound"), MAX_BOUND, "hop bound")

    def _condition(self, left: Expr) -> Comparison | TextCall:
        operator = self.symbol()
        if operator is None and self._lexer.kind is _NAME:
            operator = _WORDS.get(self._lexer.text)
            if operator is not None:
                self._lexer.step()
        if operator is not None:
            return self._compare(left, operator)
        if isinstance(left, Alias) and left.name in _OTHER_WORDS:
            message, fix = _OTHER_WORDS[left.name]
            self._lexer.fail(message, left.span, fix)
        if not isinstance(left, TextCall) or left.function is TextFunction.BM25:
            word = self._lexer.text
            # The name of an edge as spelled in its schema.
            edge = word[:1].lower() + word[1:] if self._lexer.kind is TokenKind.TYPE_NAME else ""
            self._lexer.unexpected("a comparison operator", meant=edge)
        return left

    def _compare(self, left: Expr, operator: ComparisonOperator) -> Comparison:
        expected = "an expression on the right of the comparison"
        if operator is ComparisonOperator.LT and self._lexer.kind is TokenKind.GT:
            self._lexer.unexpected(expected, "write `!=`")
        if self._lexer.kind is TokenKind.EQ:
            self._lexer.unexpected(expected, "write one `=`")
        right = self.expression(expected)
        return Comparison(left, operator, right, self.span_from(left.span.start))

    def expression(self, expected: str = "an expression") -> Expr:
        """Read one expression. `expected` describes it in error messages."""
        if self._lexer.kind is _VAR:
            return self.expression_of(self.variable(expected))
        return self.expression_from(self._start(expected))

    def expression_of(self, variable: Name) -> PropertyAccess | Variable:
        """Read the rest of an expression that starts with this variable."""
        if self._lexer.skip(_DOT):
            return self._property_of(variable)
        return make(Variable, (variable.text, variable.span))

    def expression_from(self, first: Token) -> Expr:
        """Read the rest of an expression that starts with this token, which is not a variable."""
        if first.kind is not _NAME:
            return self._literal_from(first)
        if first.text in _BOOLEANS:
            return Literal(Scalar.BOOL, _BOOLEANS[first.text], first.span)
        if self._lexer.kind in (_DOT, _COLON):
            from gitops.database.language.suggest import Suggestion

            self._lexer.fail(
                f"expected a variable, found {first}", first.span, Suggestion(first.text, f"${first.text}")
            )
        if self._lexer.kind is not _LPAREN:
            return Alias(self._checked(first), first.span)
        return self._call(first)

    def value(self) -> ValueExpr:
        """Read a literal, a variable or `now()`: anything that is allowed after a property name."""
        if self._lexer.kind is _VAR:
            variable = self.variable()
            return make(Variable, (variable.text, variable.span))
        first = self._start("a literal, a variable or `now()`")
        return self._now(first) if first.kind is _NAME and first.text == "now" else self._literal_from(first)

    def variable(self, expected: str = "a variable") -> Name:
        """Read `$name` or `$_`."""
        name = self.ident(_VAR, expected)
        return make(Name, (name.text[1:], name.span))

    def ident(self, kind: TokenKind, expected: str) -> Name:
        """Read a name with this token kind."""
        lexer = self._lexer
        if lexer.kind is not kind:
            lexer.unexpected_kind(kind, expected)
        text = lexer.text
        span = make(Span, (lexer.start, lexer.end))
        lexer.step()
        if len(text) > MAX_NAME:
            self._refuse_name(span)
        return make(Name, (text, span))

    def integer(self, token: Token, maximum: int, what: str) -> int:
        """Return the value of an INT token, at most `maximum`."""
        number = int(token.text)
        if number > maximum:
            self._lexer.fail(f"{what} {token.text} is over the maximum of {maximum}", token.span)
        return number

    def span_from(self, start: int) -> Span:
        """Return the span from `start` to the end of the last consumed token."""
        return make(Span, (start, self._lexer.previous_end))

    def _enter(self, token: Token) -> None:
        """Count one level of nesting that `token` opens."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._lexer.fail(f"nested more than {MAX_DEPTH} levels deep", token.span, "split it into several queries")

    def _start(self, expected: str) -> Token:
        lexer = self._lexer
        if lexer.kind not in _STARTS:
            if lexer.kind is TokenKind.MINUS:
                lexer.fail("there is no negative literal", lexer.current.span, "pass the number as a parameter")
            lexer.unexpected(expected)
        return lexer.advance()

    def _checked(self, token: Token) -> str:
        if len(token.text) > MAX_NAME:
            self._refuse_name(token.span)
        return token.text

    def _refuse_name(self, span: Span) -> NoReturn:
        self._lexer.fail(f"name is longer than {MAX_NAME} characters", span)

    def _property_of(self, variable: Name) -> PropertyAccess:
        name = self.ident(_NAME, "a property name after `.`")
        return make(PropertyAccess, (variable, name, make(Span, (variable.span.start, name.span.end))))

    def _call(self, name: Token) -> Expr:
        """Read the rest of a call, after a name before `(`."""
        lexer, word = self._lexer, name.text
        if word == "now":
            return self._now(name)
        if word in _TIMES:
            return self._literal_from(name)
        self._enter(lexer.advance())
        node: Expr
        if word == "nearest":
            node = self._nearest(name)
        elif word in _TEXT:
            node = self._text_call(name, _TEXT[word])
        elif word == "rrf":
            first = self._arm()
            lexer.require(_COMMA)
            second = self._arm()
            k = self.expression() if lexer.skip(_COMMA) else None
            lexer.require(_RPAREN)
            node = Rrf(first, second, k, self.span_from(name.start))
        elif word in _AGGREGATES:
            argument = self.expression()
            lexer.require(_RPAREN)
            node = Aggregate(_AGGREGATES[word], argument, self.span_from(name.start))
        else:
            from gitops.database.language.suggest import did_you_mean

            known = ("now", "nearest", "rrf", "date", "datetime", *_TEXT, *_AGGREGATES)
            lexer.fail(f"unknown function {name}", name.span, did_you_mean(word, known))
        self._depth -= 1
        return node

    def _nearest(self, name: Token) -> Nearest:
        variable = self.variable("a vector property `$v.p`")
        self._lexer.require(_DOT)
        target = self._property_of(variable)
        self._lexer.require(_COMMA)
        query = self.expression()
        self._lexer.require(_RPAREN)
        return Nearest(target, query, self.span_from(name.start))

    def _text_call(self, name: Token, function: TextFunction) -> TextCall:
        field = self.expression()
        self._lexer.require(_COMMA)
        query = self.expression()
        max_edits = None
        if function is TextFunction.FUZZY and self._lexer.skip(_COMMA):
            max_edits = self.expression()
        self._lexer.require(_RPAREN)
        return TextCall(function, field, query, max_edits, self.span_from(name.start))

    def _arm(self) -> Nearest | TextCall:
        lexer = self._lexer
        if not (lexer.at(TokenKind.NAME, "nearest") or lexer.at(TokenKind.NAME, "bm25")):
            lexer.unexpected("`nearest(..)` or `bm25(..)` as an arm of `rrf`")
        name = lexer.advance()
        self._enter(lexer.expect(TokenKind.LPAREN))
        nearest = name.text == "nearest"
        arm = self._nearest(name) if nearest else self._text_call(name, TextFunction.BM25)
        self._depth -= 1
        return arm

    def _now(self, name: Token) -> Now:
        self._lexer.require(_LPAREN)
        self._lexer.require(_RPAREN)
        return Now(self.span_from(name.start))

    def _literal_from(self, first: Token) -> Literal:
        kind = first.kind
        if kind is TokenKind.STRING:
            return Literal(Scalar.STRING, first.value, first.span)
        if kind is TokenKind.INT:
            return Literal(Scalar.I64, self.integer(first, MAX_INT, "integer"), first.span)
        if kind is TokenKind.FLOAT:
            return Literal(Scalar.F64, float(first.text), first.span)
        if kind is TokenKind.LBRACKET:
            return self._list(first)
        if first.text in _BOOLEANS:
            return Literal(Scalar.BOOL, _BOOLEANS[first.text], first.span)
        if first.text not in _TIMES:
            fix = "there is no null literal; pass a nullable parameter" if first.text == "null" else None
            self._lexer.fail(f"expected a literal, found {first}", first.span, fix)
        self._lexer.require(_LPAREN)
        text = self._lexer.expect(TokenKind.STRING)
        self._lexer.require(_RPAREN)
        return Literal(_TIMES[first.text], text.value, self.span_from(first.start))

    def _list(self, opened: Token) -> Literal:
        self._enter(opened)
        items: list[Literal] = []
        if self._lexer.kind is not TokenKind.RBRACKET:
            items.append(self._literal_from(self._start("a literal")))
            while self._lexer.skip(_COMMA):
                items.append(self._literal_from(self._start("a literal")))
        self._lexer.require(TokenKind.RBRACKET, "`,` or `]`")
        self._depth -= 1
        return Literal(None, tuple(items), self.span_from(opened.start))


def query_texts(content: bytes) -> Mapping[str, bytes]:
    """Return each query's text by name. Of duplicate names, the first counts. Empty if the file does not parse."""
    try:
        parsed = parse_queries(content)
    except LanguageError:
        return {}
    return {query.name.text: content[query.span.start : query.span.end] for query in reversed(parsed)}


MAX_LIMIT = LIMITS["rows"].most

MAX_PROBLEMS = 100
"""Maximum number of problems reported for one file."""

_BASES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_WRITES = frozenset({"insert", "update", "delete"})
_ANNOTATIONS = frozenset({"description", "instruction"})

_VECTOR = Scalar.VECTOR.value


def parse_queries(source: bytes) -> tuple[Query, ...]:
    """Parse a `.gq` file with any number of queries, in file order. Does not reject duplicate names.

    Raises `LanguageError` with the first grammar problem of each query, at most `MAX_PROBLEMS`. Does not check names or
    types.
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
        """Move to the next query or the end; return False if the text cannot be read that far."""
        lexer, readable = self._lexer, True
        self._depth = 0
        while readable:
            try:
                lexer.step()
                while lexer.kind is not TokenKind.EOF and not self._at_query():
                    lexer.step()
                break
            except LanguageError:
                # Report only the first problem of each query.
                readable = lexer.resume()
        return readable

    def _at_query(self) -> bool:
        """Return whether a complete `query name(` starts here; inside a query these words can also be names."""
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
        if lexer.kind is _LBRACE:
            lexer.unexpected("`(`, the parameters of the query", f"write `query {name.text}()`")
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
        if self._lexer.kind in (_RPAREN, _COMMA):
            self._lexer.unexpected("`:`", f"write its type: `${name.text}: String`")
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
            if lexer.kind is _NAME:
                column = lexer.peek().text if lexer.text == "by" and lexer.peek().kind is _NAME else "COLUMN"
                lexer.unexpected("`{`", f"write `order {{ {column} }}`")
            lexer.require(_LBRACE)
            order.append(self._sort())
            while lexer.skip(_COMMA):
                order.append(self._sort())
            lexer.require(_RBRACE, "`,` or `}`")
        limit = None
        if lexer.accept(_NAME, "limit"):
            if lexer.kind is not TokenKind.INT:
                lexer.unexpected("a row count", "write a number, such as `limit 10`")
            limit = self.integer(lexer.advance(), MAX_LIMIT, "limit")
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
