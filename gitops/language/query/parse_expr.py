"""Expressions, literals and values of query text: the lowest layer of the recursive descent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.language.lexer import Lexer, Token, TokenKind
from gitops.language.query.ast import (
    Aggregate,
    AggregateFunction,
    Alias,
    Expr,
    Ident,
    Literal,
    LiteralKind,
    Nearest,
    Now,
    PropertyAccess,
    Rrf,
    TextCall,
    TextFunction,
    ValueExpr,
    Variable,
)
from gitops.language.record import make
from gitops.language.text import Span

if TYPE_CHECKING:
    from typing import NoReturn

MAX_DEPTH = 64
"""Deepest nesting of blocks, calls and lists together; deeper text is refused, so recursion is bounded."""

MAX_NAME = 255
"""Longest name, in characters; messages repeat names, so they must not be of any size."""

MAX_INT = 2**63 - 1

_EXPECTED = "an expression"
_TEXT = {function.value: function for function in TextFunction}
_AGGREGATES = {function.value: function for function in AggregateFunction}
_BOOLEANS = {"true": True, "false": False}
_TIMES = {"date": LiteralKind.DATE, "datetime": LiteralKind.DATETIME}
_STARTS = frozenset(
    {TokenKind.VAR, TokenKind.NAME, TokenKind.STRING, TokenKind.INT, TokenKind.FLOAT, TokenKind.LBRACKET}
)

# Looked up for nearly every token, and a member of an enumeration is found ten times slower than a global name.
_NAME, _VAR, _COMMA, _DOT = TokenKind.NAME, TokenKind.VAR, TokenKind.COMMA, TokenKind.DOT
_LPAREN, _RPAREN = TokenKind.LPAREN, TokenKind.RPAREN


class ExpressionParser:
    """Reads expressions at the cursor of a lexer. Every method may raise `LanguageError` with one parse problem."""

    def __init__(self, data: bytes) -> None:
        self._lexer = Lexer(data)
        self._depth = 0

    def expression(self, expected: str = _EXPECTED) -> Expr:
        """Read one expression; `expected` names it in a refusal."""
        if self._lexer.kind is _VAR:
            return self.expression_of(self.variable(expected))
        return self.expression_from(self._start(expected))

    def expression_of(self, variable: Ident) -> PropertyAccess | Variable:
        """Read the expression whose variable has just been passed."""
        if self._lexer.skip(_DOT):
            return self._property_of(variable)
        return make(Variable, (variable.text, variable.span))

    def expression_from(self, first: Token) -> Expr:
        """Read the expression whose first token, not a variable, has just been passed."""
        if first.kind is not _NAME:
            return self._literal_from(first)
        if first.text in _BOOLEANS:
            return Literal(LiteralKind.BOOL, _BOOLEANS[first.text], first.span)
        if self._lexer.kind is not _LPAREN:
            return Alias(self._checked(first), first.span)
        return self._call(first)

    def value(self) -> ValueExpr:
        """Read a literal, a variable or `now()`: what may stand behind a property name."""
        if self._lexer.kind is _VAR:
            variable = self.variable()
            return make(Variable, (variable.text, variable.span))
        first = self._start("a literal, a variable or `now()`")
        if first.kind is _NAME and first.text == "now":
            return self._now(first)
        return self._literal_from(first)

    def variable(self, expected: str = "a variable") -> Ident:
        """Read `$name` or `$_`."""
        name = self.ident(_VAR, expected)
        return make(Ident, (name.text[1:], name.span))

    def ident(self, kind: TokenKind, expected: str) -> Ident:
        """Read a name of one kind."""
        lexer = self._lexer
        if lexer.kind is not kind:
            lexer.unexpected(expected)
        text = lexer.text
        span = make(Span, (lexer.start, lexer.end))
        lexer.step()
        if len(text) > MAX_NAME:
            self._refuse_name(span)
        return make(Ident, (text, span))

    def integer(self, token: Token, maximum: int, what: str) -> int:
        """The value of an INT token, at most `maximum`."""
        number = int(token.text)
        if number > maximum:
            self._lexer.fail(f"{what} {token.text} is over the maximum of {maximum}", token.span)
        return number

    def span_from(self, start: int) -> Span:
        """From `start` to the end of the last token passed."""
        return make(Span, (start, self._lexer.previous_end))

    def enter(self, token: Token) -> None:
        """Count one level of nesting that `token` opens; each is ended by `leave`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._lexer.fail(f"nested more than {MAX_DEPTH} levels deep", token.span)

    def leave(self) -> None:
        """End a level of nesting."""
        self._depth -= 1

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

    def _property_of(self, variable: Ident) -> PropertyAccess:
        name = self.ident(_NAME, "a property name after `.`")
        return make(PropertyAccess, (variable, name, make(Span, (variable.span.start, name.span.end))))

    def _call(self, name: Token) -> Expr:
        """Read what follows a name that stands before `(`."""
        word = name.text
        if word in _TIMES or word == "now":
            return self._now(name) if word == "now" else self._literal_from(name)
        opened = self._lexer.advance()
        self.enter(opened)
        node: Expr
        if word == "nearest":
            node = self._nearest(name)
        elif word in _TEXT:
            node = self._text_call(name, _TEXT[word])
        elif word == "rrf":
            node = self._rrf(name)
        elif word in _AGGREGATES:
            argument = self.expression()
            self._lexer.require(_RPAREN)
            node = Aggregate(_AGGREGATES[word], argument, self.span_from(name.start))
        else:
            from gitops.language.suggest import did_you_mean

            known = ("now", "nearest", "rrf", "date", "datetime", *_TEXT, *_AGGREGATES)
            self._lexer.fail(f"unknown function {name}", name.span, did_you_mean(word, known))
        self.leave()
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

    def _rrf(self, name: Token) -> Rrf:
        first = self._arm()
        self._lexer.require(_COMMA)
        second = self._arm()
        k = self.expression() if self._lexer.skip(_COMMA) else None
        self._lexer.require(_RPAREN)
        return Rrf(first, second, k, self.span_from(name.start))

    def _arm(self) -> Nearest | TextCall:
        lexer = self._lexer
        if not (lexer.at(TokenKind.NAME, "nearest") or lexer.at(TokenKind.NAME, "bm25")):
            lexer.unexpected("`nearest(..)` or `bm25(..)` as an arm of `rrf`")
        name = lexer.advance()
        self.enter(lexer.expect(TokenKind.LPAREN))
        nearest = name.text == "nearest"
        arm = self._nearest(name) if nearest else self._text_call(name, TextFunction.BM25)
        self.leave()
        return arm

    def _now(self, name: Token) -> Now:
        self._lexer.require(_LPAREN)
        self._lexer.require(_RPAREN)
        return Now(self.span_from(name.start))

    def _literal_from(self, first: Token) -> Literal:
        kind = first.kind
        if kind is TokenKind.STRING:
            return Literal(LiteralKind.STRING, first.value, first.span)
        if kind is TokenKind.INT:
            return Literal(LiteralKind.INT, self.integer(first, MAX_INT, "integer"), first.span)
        if kind is TokenKind.FLOAT:
            return Literal(LiteralKind.FLOAT, float(first.text), first.span)
        if kind is TokenKind.LBRACKET:
            return self._list(first)
        if first.text in _BOOLEANS:
            return Literal(LiteralKind.BOOL, _BOOLEANS[first.text], first.span)
        if first.text not in _TIMES:
            fix = "there is no null literal; pass a nullable parameter" if first.text == "null" else None
            self._lexer.fail(f"expected a literal, found {first}", first.span, fix)
        self._lexer.require(_LPAREN)
        text = self._lexer.expect(TokenKind.STRING)
        self._lexer.require(_RPAREN)
        return Literal(_TIMES[first.text], text.value, self.span_from(first.start))

    def _list(self, opened: Token) -> Literal:
        self.enter(opened)
        items: list[Literal] = []
        if self._lexer.kind is not TokenKind.RBRACKET:
            items.append(self._literal_from(self._start("a literal")))
            while self._lexer.skip(_COMMA):
                items.append(self._literal_from(self._start("a literal")))
        self._lexer.require(TokenKind.RBRACKET, "`,` or `]`")
        self.leave()
        return Literal(LiteralKind.LIST, tuple(items), self.span_from(opened.start))
