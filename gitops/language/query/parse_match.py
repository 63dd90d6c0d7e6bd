"""Clauses of a match block: the middle layer of the recursive descent."""

from __future__ import annotations

from gitops.language.lexer import Token, TokenKind
from gitops.language.query.ast import (
    Bind,
    Clause,
    Comparison,
    ComparisonOperator,
    Expr,
    Hop,
    HopBounds,
    Ident,
    Not,
    PropertyPair,
    TextCall,
    TextCondition,
    TextFunction,
    Variable,
)
from gitops.language.query.parse_expr import ExpressionParser
from gitops.language.record import make

MAX_BOUND = 2**32 - 1

_SYMBOLS = {
    TokenKind.EQ: ComparisonOperator.EQ,
    TokenKind.NE: ComparisonOperator.NE,
    TokenKind.LT: ComparisonOperator.LT,
    TokenKind.LE: ComparisonOperator.LE,
    TokenKind.GT: ComparisonOperator.GT,
    TokenKind.GE: ComparisonOperator.GE,
}
_WORDS = {"contains": ComparisonOperator.CONTAINS, "starts_with": ComparisonOperator.STARTS_WITH}

# A global name is found much faster than a member of an enumeration.
_NAME, _VAR, _COLON, _COMMA, _DOT = TokenKind.NAME, TokenKind.VAR, TokenKind.COLON, TokenKind.COMMA, TokenKind.DOT
_LBRACE, _RBRACE, _LT = TokenKind.LBRACE, TokenKind.RBRACE, TokenKind.LT


class MatchParser(ExpressionParser):
    """Reads clauses. Clauses that begin alike are tried in this order: not, bind, hop, condition, text call."""

    def clauses(self) -> tuple[Clause, ...]:
        """Read `{ clause+ }`."""
        lexer = self._lexer
        self.enter(lexer.expect(_LBRACE))
        found = [self._clause()]
        while not lexer.skip(_RBRACE):
            found.append(self._clause())
        self.leave()
        return tuple(found)

    def pair(self) -> PropertyPair:
        """Read `name: value`."""
        name = self.ident(_NAME, "a property name")
        self._lexer.require(_COLON)
        value = self.value()
        return make(PropertyPair, (name, value, self.span_from(name.span.start)))

    def symbol(self) -> ComparisonOperator | None:
        """Pass over a comparison sign, if the cursor is at one."""
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
        return self._condition(self.expression("a clause: a binding, a hop, a condition or `not`"))

    def _clause_from_variable(self) -> Clause:
        """Read a bind, a hop or a condition: the token after the first variable decides."""
        lexer = self._lexer
        variable = self.variable()
        follows = lexer.kind
        if follows is _COLON:
            return self._bind(variable)
        if follows is _VAR:
            binding = self.variable()
            lexer.require(_COLON, "`:` and an edge name after the edge variable")
            undirected = lexer.skip(_LT)
            return self._hop(variable, binding, self._edge_name(undirected=undirected), undirected=undirected)
        if follows is _NAME:
            return self._hop_or_word(variable)
        if follows is _LT and lexer.peek().kind is _NAME:
            return self._undirected_or_less(variable)
        return self._condition(self.expression_of(variable))

    def _bind(self, variable: Ident) -> Bind:
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

    def _hop_or_word(self, variable: Ident) -> Hop | Comparison:
        """Read `$a edge $b`, or `$a contains x` where x is not a bare variable."""
        lexer = self._lexer
        if lexer.text not in _WORDS:
            return self._hop(variable, None, self._edge_name(undirected=False), undirected=False)
        word = lexer.advance()
        if lexer.kind is not _VAR and lexer.kind is not _LBRACE:
            return self._compare(self._as_expression(variable), _WORDS[word.text])
        if lexer.kind is _VAR and lexer.peek().kind is _DOT:
            return self._compare(self._as_expression(variable), _WORDS[word.text])
        return self._hop(variable, None, Ident(word.text, word.span), undirected=False)

    def _undirected_or_less(self, variable: Ident) -> Hop | Comparison:
        """Read `$a <edge> $b`, or `$a < x` where x begins with a name."""
        self._lexer.step()
        name = self._lexer.advance()
        if self._lexer.kind is TokenKind.GT:
            edge = Ident(self._edge_text(name), name.span)
            self._lexer.step()
            return self._hop(variable, None, edge, undirected=True)
        right = self.expression_from(name)
        return Comparison(
            self._as_expression(variable), ComparisonOperator.LT, right, self.span_from(variable.span.start)
        )

    def _as_expression(self, variable: Ident) -> Variable:
        return make(Variable, (variable.text, variable.span))

    def _edge_name(self, *, undirected: bool) -> Ident:
        token = self._lexer.expect(_NAME, "an edge name")
        edge = Ident(self._edge_text(token), token.span)
        if undirected:
            self._lexer.require(TokenKind.GT, "`>` after the edge name")
        return edge

    def _edge_text(self, token: Token) -> str:
        if token.text == "not":
            self._lexer.fail("an edge cannot be called `not`", token.span)
        return self._checked(token)

    def _hop(self, left: Ident, binding: Ident | None, edge: Ident, *, undirected: bool) -> Hop:
        bounds = self._bounds() if self._lexer.kind is _LBRACE else None
        right = self.variable("a variable: the far end of the hop")
        return Hop(left, binding, edge, undirected, bounds, right, self.span_from(left.span.start))

    def _bounds(self) -> HopBounds:
        start = self._lexer.advance().start
        low = self._bound()
        self._lexer.require(_COMMA, "`,` between the bounds of the hop")
        high = self._bound() if self._lexer.kind is TokenKind.INT else None
        self._lexer.require(_RBRACE)
        return HopBounds(low, high, self.span_from(start))

    def _bound(self) -> int:
        return self.integer(self._lexer.expect(TokenKind.INT, "a hop bound"), MAX_BOUND, "hop bound")

    def _condition(self, left: Expr) -> Comparison | TextCondition:
        operator = self.symbol()
        if operator is None and self._lexer.kind is _NAME:
            operator = _WORDS.get(self._lexer.text)
            if operator is not None:
                self._lexer.step()
        if operator is not None:
            return self._compare(left, operator)
        if not isinstance(left, TextCall) or left.function is TextFunction.BM25:
            self._lexer.unexpected("a comparison operator")
        return TextCondition(left, left.span)

    def _compare(self, left: Expr, operator: ComparisonOperator) -> Comparison:
        right = self.expression("an expression on the right of the comparison")
        return Comparison(left, operator, right, self.span_from(left.span.start))
