"""Parses schema text to a tree by recursive descent, with the shared lexer.

After a grammar failure, parsing continues at the next member, the end of the body, or the next `interface`, `node` or
`edge` followed by a type name, which cannot occur in a body. After a failure in a head, the declaration is left out of
the tree, but its body is read to find further failures. If a type or cardinality matches the grammar but is invalid
(rules S-05, S-06, S-10 to S-13), the tree is still complete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.database.language.lexer import MAX_SOURCE_BYTES, Lexer, Token, TokenKind
from gitops.database.language.record import make
from gitops.database.language.schema.ast import (
    ArgumentValue,
    Constraint,
    EdgeDeclaration,
    InterfaceDeclaration,
    Interval,
    NodeDeclaration,
    PropertyDeclaration,
    SchemaAnnotation,
    SchemaDocument,
    ValueKind,
)
from gitops.database.language.schema.ir import SHORTHANDS
from gitops.database.language.schema.problems import MAX_PROBLEMS, ProblemCollector, nearest_annotation
from gitops.database.language.schema.types import ConstraintKind, PropType, Scalar
from gitops.database.language.text import LanguageError, Name, Span

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

MAX_VECTOR_DIMENSION = 2**31 - 1
MAX_CARDINALITY = 2**32 - 1
# Keywords for declarations in other languages.
_OTHER_WORDS = {
    **dict.fromkeys(("type", "class", "table", "entity", "vertex", "struct", "model", "label"), "node"),
    **dict.fromkeys(("relation", "relationship", "rel", "link", "arc"), "edge"),
}
_DECLARATIONS = frozenset({"interface", "node", "edge"})
_CONSTRAINTS = {kind.value: kind for kind in ConstraintKind}
_BASES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_PLAIN = {(scalar, nullable): PropType(scalar, nullable) for scalar in _BASES.values() for nullable in (False, True)}
_VALUE_KINDS = {
    TokenKind.STRING: ValueKind.STRING,
    TokenKind.INT: ValueKind.NUMBER,
    TokenKind.FLOAT: ValueKind.NUMBER,
    TokenKind.NAME: ValueKind.NAME,
}

# A global name is looked up much faster than an enum member, and these are needed for every token.
_NAME, _TYPE_NAME, _AT = TokenKind.NAME, TokenKind.TYPE_NAME, TokenKind.AT
_COLON, _COMMA, _QUESTION = TokenKind.COLON, TokenKind.COMMA, TokenKind.QUESTION
_NUMBERS = (TokenKind.INT, TokenKind.FLOAT)
_LPAREN, _RPAREN, _LBRACE, _RBRACE = TokenKind.LPAREN, TokenKind.RPAREN, TokenKind.LBRACE, TokenKind.RBRACE


def parse_schema(data: bytes, problems: ProblemCollector, *, limit: int = MAX_SOURCE_BYTES) -> SchemaDocument:
    """Parse schema text of at most `limit` bytes.

    Returns the tree and adds to `problems`. After a grammar problem (rules S-01, S-02, S-23), the problems are
    incomplete and the tree lacks the unreadable parts. Raises `LanguageError` if the text cannot be read at all.
    """
    return _Parser(data, problems, limit).document()


def _other_case(lexer: Lexer) -> str:
    """Return the type name at the cursor as a property name, with a lower-case first letter."""
    return lexer.text[:1].lower() + lexer.text[1:] if lexer.kind is _TYPE_NAME else ""


class _Parser:
    def __init__(self, data: bytes, problems: ProblemCollector, limit: int) -> None:
        self._problems = problems
        self._failures = 0
        self._stopped = False
        self._lexer = Lexer(data, grammar_rule="S-01", escape_rule="S-02", limit=limit)

    def document(self) -> SchemaDocument:
        lexer = self._lexer
        interfaces: list[InterfaceDeclaration] = []
        nodes: list[NodeDeclaration] = []
        edges: list[EdgeDeclaration] = []
        while lexer.kind is not TokenKind.EOF and not self._stopped:
            begun, has_body = lexer.start, False
            try:
                has_body = lexer.kind is _NAME and lexer.peek().kind is _TYPE_NAME  # also after a misspelt `node`
                if lexer.accept(_NAME, "interface"):
                    interfaces.append(self._interface())
                elif lexer.accept(_NAME, "node"):
                    nodes.append(self._node())
                elif lexer.accept(_NAME, "edge"):
                    edges.append(self._edge())
                else:
                    lexer.unexpected("`interface`, `node` or `edge`", meant=_OTHER_WORDS.get(lexer.text, ""))
            except LanguageError as error:
                self._report(error)
                self._problems.lacks_types = True
                # After an unexpected brace, the text inside is not a body.
                has_body = has_body and lexer.kind is not _LBRACE
                if self._skip_to(lambda: lexer.kind is _LBRACE, begun, inside=has_body):
                    self._body()
        self._problems.lacks_types |= self._stopped
        return SchemaDocument(tuple(interfaces), tuple(nodes), tuple(edges))

    def _report(self, error: LanguageError) -> None:
        """Record a grammar problem; stop parsing if the limit is reached or the rest of the text cannot be read."""
        for each in error.problems:
            self._problems.add_unparsed(each)
        self._failures += 1
        self._stopped = self._failures >= MAX_PROBLEMS or not self._lexer.resume()

    def _skip_to(self, reached: Callable[[], bool], begun: int, *, inside: bool = True) -> bool:
        """Advance past `begun` until a condition is true; return False if a declaration or the end comes first."""
        lexer, depth = self._lexer, 0
        while not self._stopped:
            try:
                while lexer.kind is not TokenKind.EOF:
                    moved = lexer.start > begun
                    if moved and self._at_declaration():
                        return False
                    if inside and (moved or lexer.kind is _RBRACE) and not depth and reached():
                        return True
                    depth += (lexer.kind is _LBRACE) - (lexer.kind is _RBRACE)
                    lexer.step()
                break
            except LanguageError:
                # Report only the first problem in skipped text.
                self._stopped = not lexer.resume()
        return False

    def _at_declaration(self) -> bool:
        lexer = self._lexer
        return lexer.kind is _NAME and lexer.text in _DECLARATIONS and lexer.peek().kind is _TYPE_NAME

    def _at_member(self) -> bool:
        lexer = self._lexer
        begins = lexer.kind is _NAME and lexer.peek().kind is _COLON
        return begins or lexer.kind is _RBRACE or self._constraint_ahead() is not None

    def _interface(self) -> InterfaceDeclaration:
        name = self._type_name("an interface name")
        properties: list[PropertyDeclaration] = []

        def member() -> None:
            self._refuse_constraint("an interface body")
            properties.append(self._property())

        self._members(member)
        return InterfaceDeclaration(name, tuple(properties))

    def _node(self) -> NodeDeclaration:
        lexer = self._lexer
        name = self._type_name("a node type name")
        annotations = self._header_annotations()
        implements: list[Name] = []
        if lexer.accept(_NAME, "implements"):
            implements.append(self._type_name("an interface name"))
            while lexer.skip(_COMMA):
                implements.append(self._type_name("an interface name"))
            if lexer.kind is _AT:
                lexer.fail(
                    f"expected {_LBRACE}, found an annotation after `implements`",
                    lexer.current.span,
                    "write the annotations of a node before `implements`",
                )
        properties, constraints = self._body()
        return NodeDeclaration(name, annotations, tuple(implements), properties, constraints)

    def _edge(self) -> EdgeDeclaration:
        lexer = self._lexer
        name = self._type_name("an edge type name")
        if lexer.kind is _TYPE_NAME:
            lexer.unexpected("`:`", f"write `edge {name.text}: {lexer.text}`")
        lexer.require(_COLON)
        source = self._type_name("the source node type")
        lexer.require(TokenKind.ARROW)
        target = self._type_name("the target node type")
        cardinality: tuple[int, int | None] = (0, None)
        if lexer.kind is _AT and lexer.peek().text == "card":
            cardinality = self._cardinality(lexer.advance())
        annotations = self._header_annotations()
        properties: tuple[PropertyDeclaration, ...] = ()
        constraints: tuple[Constraint, ...] = ()
        if lexer.kind is _LBRACE:
            properties, constraints = self._body()
        return EdgeDeclaration(name, source, target, cardinality, annotations, properties, constraints)

    def _body(self) -> tuple[tuple[PropertyDeclaration, ...], tuple[Constraint, ...]]:
        properties: list[PropertyDeclaration] = []
        constraints: list[Constraint] = []
        self._members(lambda: self._member(properties, constraints))
        return tuple(properties), tuple(constraints)

    def _member(self, properties: list[PropertyDeclaration], constraints: list[Constraint]) -> None:
        if self._lexer.kind is _AT:
            constraints.append(self._constraint())
        else:
            properties.append(self._property())

    def _members(self, read: Callable[[], None]) -> None:
        """Read a body in its braces, member by member; an invalid member is reported and skipped."""
        lexer = self._lexer
        if lexer.kind is not _LBRACE:
            lexer.unexpected(_LBRACE.value)
        first = True
        while not self._stopped:
            begun = lexer.start
            try:
                if first:
                    first = False
                    lexer.step()
                elif lexer.skip(_RBRACE):
                    return
                elif self._at_declaration():
                    lexer.unexpected("a property name or `}`")
                else:
                    read()
            except LanguageError as error:
                self._report(error)
                if lexer.start == begun and lexer.text in _DECLARATIONS:
                    return
                # There are no members after the closing brace.
                ended = lexer.start == begun and lexer.kind is _RBRACE
                if not self._skip_to(self._at_member, begun, inside=not ended):
                    return

    def _type_name(self, what: str) -> Name:
        token = self._lexer.expect(_TYPE_NAME, what)
        return make(Name, (token.text, token.span))

    def _cardinality(self, at: Token) -> tuple[int, int | None]:
        lexer = self._lexer
        lexer.advance()
        lexer.require(_LPAREN)
        tokens = [lexer.expect(TokenKind.INT, "the least number of edges")]
        lexer.require(TokenKind.DOTDOT)
        if lexer.at(TokenKind.INT):
            tokens.append(lexer.advance())
        span = Span(at.start, lexer.expect(_RPAREN).end)
        for token in tokens:
            if int(token.text) > MAX_CARDINALITY:
                self._problems.add("S-05", f"invalid cardinality {token.text}: over {MAX_CARDINALITY}", token.span)
                return 0, None
        low = int(tokens[0].text)
        high = int(tokens[1].text) if len(tokens) > 1 else None
        if high is not None and low > high:
            self._problems.add("S-06", f"cardinality min {low} exceeds max {high}", span)
        return low, high

    def _header_annotations(self) -> tuple[SchemaAnnotation, ...]:
        found: list[SchemaAnnotation] = []
        while self._lexer.kind is _AT:
            self._refuse_constraint("the head of a type")
            found.append(self._annotation())
        return tuple(found)

    def _property(self) -> PropertyDeclaration:
        lexer = self._lexer
        if lexer.kind is not _NAME:
            self._no_property()
        name = lexer.advance()
        if lexer.kind is _QUESTION and lexer.peek().kind is _COLON:
            lexer.unexpected("`:`", f"write the `?` after the type: `{name.text}: {lexer.peek(2).text}?`")
        if lexer.kind is TokenKind.MINUS and lexer.peek().kind is _NAME:
            lexer.unexpected("`:`", f"names have no `-`: write `{name.text}_{lexer.peek().text}`")
        lexer.require(_COLON)
        start = lexer.start
        kind = self._type()
        type_span = make(Span, (start, lexer.previous_end))
        annotations: list[SchemaAnnotation] = []
        while lexer.kind is _AT and self._constraint_ahead() is None:
            annotations.append(self._annotation())
        span = make(Span, (name.start, lexer.previous_end))
        return make(
            PropertyDeclaration, (make(Name, (name.text, name.span)), kind, type_span, tuple(annotations), span)
        )

    def _no_property(self) -> NoReturn:
        """Reject a token where a property should begin, suggesting the probable intention."""
        lexer, fix = self._lexer, None
        if lexer.kind is _COMMA:
            fix = "remove the `,`: nothing stands between two properties"
        elif lexer.kind is TokenKind.LBRACKET:
            fix = "write a list as `[TYPE]`, such as `[String]`"
        elif lexer.kind is _TYPE_NAME and lexer.peek().kind is _NAME:
            fix = f"write the name first: `{lexer.peek().text}: {lexer.text}`"
        lexer.unexpected("a property name or `}`", fix, meant="" if fix else _other_case(lexer))

    def _type(self) -> PropType | None:
        lexer = self._lexer
        scalar = _BASES.get(lexer.text) if lexer.kind is _TYPE_NAME else None
        if scalar is not None:
            # Nearly all properties have a plain type.
            lexer.step()
            return _PLAIN[scalar, lexer.skip(_QUESTION)]
        start = lexer.start
        found: PropType | None
        if lexer.skip(TokenKind.LBRACKET):
            found = PropType(self._base(), is_list=True)
            lexer.require(TokenKind.RBRACKET)
            if found.scalar is Scalar.BLOB:
                span = Span(start, lexer.previous_end)
                self._problems.add("S-12", "list of Blob is not supported", span, "keep each blob in a node of its own")
                found = None
        elif lexer.at(_NAME, "enum"):
            lexer.step()
            lexer.require(_LPAREN)
            members = [lexer.enum_member()]
            while lexer.skip(_COMMA):
                members.append(lexer.enum_member())
            lexer.require(_RPAREN)
            seen: set[str] = set()
            for member in members:
                if member.text in seen:
                    self._problems.add("S-13", f"enum cannot include duplicate values: {member}", member.span)
                seen.add(member.text)
            found = PropType(Scalar.STRING, enum_values=tuple(sorted(seen)))
        elif lexer.at(_TYPE_NAME, "Vector"):
            lexer.step()
            lexer.require(_LPAREN)
            token = lexer.expect(TokenKind.INT, "the dimension of the vector")
            lexer.require(_RPAREN)
            found = PropType(Scalar.VECTOR, dimension=int(token.text))
            if found.dimension == 0:
                self._problems.add("S-10", "Vector dimension must be greater than zero", token.span)
                found = None
            elif int(token.text) > MAX_VECTOR_DIMENSION:
                message = f"Vector dimension {int(token.text)} exceeds maximum supported {MAX_VECTOR_DIMENSION}"
                self._problems.add("S-11", message, token.span)
                found = None
        else:
            found = PropType(self._base())
        if lexer.skip(_QUESTION) and found is not None:
            return PropType(found.scalar, True, found.is_list, found.enum_values, found.dimension)
        return found

    def _base(self) -> Scalar:
        lexer = self._lexer
        scalar = _BASES.get(lexer.text) if lexer.kind is _TYPE_NAME else None
        if scalar is None and lexer.kind is TokenKind.LBRACKET:
            lexer.unexpected("a property type", "lists cannot be nested: declare a node type for the inner list")
        if scalar is None:
            from gitops.database.language.suggest import nearest_type

            lexer.unexpected("a property type", nearest_type(lexer.text, (*_BASES, "Vector")))
        lexer.step()
        return scalar

    def _constraint_ahead(self) -> Token | None:
        """If the `@` at the cursor starts a body constraint (kind and `(`), return the token of the kind."""
        lexer = self._lexer
        word = lexer.peek()
        if lexer.kind is not _AT or word.text not in _CONSTRAINTS or word.kind is not _NAME:
            return None
        return word if lexer.peek(2).kind is _LPAREN else None

    def _refuse_constraint(self, where: str) -> None:
        word = self._constraint_ahead()
        if word is not None:
            rule = "S-23" if word.text in SHORTHANDS else "S-01"
            self._lexer.fail(
                f"`@{word.text}` does not accept a value in {where}",
                Span(self._lexer.start, word.end),
                "write the constraint in the body of the node or edge",
                rule=rule,
            )

    def _constraint(self) -> Constraint:
        lexer = self._lexer
        word = self._constraint_ahead()
        if word is None:
            lexer.unexpected("a property, a constraint with arguments, or `}`", nearest_annotation(lexer.peek().text))
        start = lexer.advance().start
        lexer.advance()
        lexer.require(_LPAREN)
        arguments = [self._argument()]
        while lexer.skip(_COMMA):
            arguments.append(self._argument())
        end = lexer.expect(_RPAREN).end
        return Constraint(_CONSTRAINTS[word.text], tuple(arguments), Span(start, end))

    def _argument(self) -> ArgumentValue | Interval:
        lexer = self._lexer
        start = lexer.start
        opens = lexer.kind in (TokenKind.MINUS, TokenKind.DOTDOT)
        if not opens and (lexer.kind not in _NUMBERS or lexer.peek().kind is not TokenKind.DOTDOT):
            return self._value("a property name, a literal or an interval")
        low = None if lexer.kind is TokenKind.DOTDOT else self._number()
        lexer.require(TokenKind.DOTDOT)
        closed = lexer.kind is TokenKind.MINUS or lexer.kind in _NUMBERS
        high = self._number() if closed or low is None else None
        return Interval(low, high, Span(start, lexer.previous_end))

    def _number(self) -> int | float:
        lexer = self._lexer
        sign = -1 if lexer.accept(TokenKind.MINUS) else 1
        token = lexer.accept(TokenKind.FLOAT) or lexer.expect(TokenKind.INT, "a number")
        if token.kind is TokenKind.INT:
            return sign * int(token.text)
        number = sign * float(token.text)
        return int(number) if number.is_integer() else number

    def _value(self, what: str) -> ArgumentValue:
        token = self._lexer.current
        kind = _VALUE_KINDS.get(token.kind)
        if kind is None:
            self._lexer.unexpected(what)
        if kind is ValueKind.NAME and token.text in ("true", "false"):
            kind = ValueKind.BOOL
        self._lexer.advance()
        return ArgumentValue(kind, token.value, token.span)

    def _annotation(self) -> SchemaAnnotation:
        lexer = self._lexer
        start = lexer.expect(_AT).start
        name = lexer.expect(_NAME, "an annotation name")
        value: ArgumentValue | None = None
        keywords: dict[str, tuple[Name, ArgumentValue]] = {}
        if lexer.skip(_LPAREN):
            value = self._value("a literal or a name")
            if lexer.kind is not _COMMA and lexer.kind is not _RPAREN:
                # A misspelt `@card` or `@range` is parsed as an annotation, up to its interval.
                behind = "write it directly after the target of the edge"
                lexer.unexpected("`)`", behind if name.text == "card" else nearest_annotation(name.text))
            while lexer.skip(_COMMA):
                if lexer.kind is not _NAME:
                    lexer.unexpected("a keyword argument", nearest_annotation(name.text))
                token = lexer.advance()
                lexer.require(TokenKind.EQ)
                if token.text in keywords:
                    lexer.fail(f"keyword argument {token} appears twice", token.span)
                keywords[token.text] = Name(token.text, token.span), self._value("a literal or a name")
            lexer.require(_RPAREN)
        return SchemaAnnotation(name.text, value, tuple(keywords.values()), Span(start, lexer.previous_end))
