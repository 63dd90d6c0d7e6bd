"""Reads schema text for an editor: declarations and each word's symbol, even in an unfinished declaration.

Each piece is read separately from its tokens. Nothing is checked, because the compiler finds the problems. For a text
that compiles, these declarations have the same types and properties as the catalog (a law of the tests).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.schema import ConstraintKind, TypeKind
from gitops.database.language.text import Span
from gitops.editor.symbols import Occurrence, Symbol, SymbolKind
from gitops.editor.tokens import TextPiece, TokenReader, read_tokens, schema_pieces

CONSTRAINTS = tuple(kind.value for kind in ConstraintKind)
_KEYWORDS = {kind.value: kind for kind in TypeKind}
TYPE_KINDS = {SymbolKind.NODE: TypeKind.NODE, SymbolKind.EDGE: TypeKind.EDGE, SymbolKind.INTERFACE: TypeKind.INTERFACE}
_ENDS = ("src", "dst")


class DeclaredProperty(NamedTuple):
    """A property with its name, its type and its complete declaration as written. Spans are relative to the piece."""

    name: str
    span: Span
    type: str
    text: str
    description: str


class Declaration(NamedTuple):
    """A type. `rules` are the constraints in its body. The head is stored as written, without the body.

    Spans are relative to the piece.
    """

    kind: TypeKind
    name: str
    span: Span
    head: str
    properties: tuple[DeclaredProperty, ...]
    rules: tuple[str, ...]
    implements: tuple[str, ...] = ()
    source: str = ""
    target: str = ""
    description: str = ""
    instruction: str = ""


class SchemaPiece(NamedTuple):
    """The content of one piece."""

    declaration: Declaration | None
    occurrences: tuple[Occurrence, ...]


class SchemaView:
    """All pieces of a schema.

    If a name is declared twice, the first declaration is used; edge names match as in queries.
    """

    def __init__(self, data: bytes, read: Callable[[bytes], SchemaPiece]) -> None:
        """`read` is `read_schema_piece`, or a cached version of it."""
        self.pieces: tuple[tuple[TextPiece, SchemaPiece], ...] = tuple([(p, read(p.data)) for p in schema_pieces(data)])
        self._found: dict[tuple[TypeKind, str], tuple[TextPiece, Declaration]] = {}
        self._folded: dict[str, str] = {}
        self._properties: dict[int, dict[str, tuple[Declaration, DeclaredProperty]]] = {}
        for piece, content in self.pieces:
            if content.declaration is not None:
                kind, name = content.declaration.kind, content.declaration.name
                self._found.setdefault((kind, name), (piece, content.declaration))
                if kind is TypeKind.EDGE:
                    self._folded.setdefault(name.lower(), name)

    def declaration(self, kind: TypeKind | None, name: str) -> Declaration | None:
        """Return the declaration of a type."""
        found = None if kind is None else self._found.get((kind, name))
        return None if found is None else found[1]

    def edge(self, name: str) -> Declaration | None:
        """Return the edge that a query refers to by this name."""
        return self.declaration(TypeKind.EDGE, name) or self.declaration(
            TypeKind.EDGE, self._folded.get(name.lower(), "")
        )

    def declarations(self, kind: TypeKind) -> Iterator[Declaration]:
        """Yield the declarations of one kind, in file order."""
        return (declaration for (of, _), (_, declaration) in self._found.items() if of is kind)

    def properties(self, declaration: Declaration) -> dict[str, tuple[Declaration, DeclaredProperty]]:
        """Return a type's properties by name, each with its declaring type or interface."""
        # Declarations live as long as this view, so their ids are never reused.
        found = self._properties.get(id(declaration))
        if found is None:
            found = self._properties[id(declaration)] = {}
            interfaces = [self.declaration(TypeKind.INTERFACE, name) for name in declaration.implements]
            for source in (declaration, *(each for each in interfaces if each is not None)):
                for each in source.properties:
                    found.setdefault(each.name, (source, each))
        return found

    def property(self, symbol: Symbol) -> tuple[Declaration, DeclaredProperty] | None:
        """Return a symbol's property with its declaration."""
        owner = self.declaration(symbol.type_kind, symbol.owner)
        return None if owner is None else self.properties(owner).get(symbol.name)

    def span(self, symbol: Symbol) -> Span | None:
        """Return where a type or property name is declared, as a span of the whole text."""
        if symbol.kind is SymbolKind.PROPERTY:
            found = self.property(symbol)
            return None if found is None else self._in_file(found[0], found[1].span)
        declaration = self.declaration(TYPE_KINDS.get(symbol.kind), symbol.name)
        return None if declaration is None else self._in_file(declaration, declaration.span)

    def _in_file(self, declaration: Declaration, span: Span) -> Span:
        return self._found[(declaration.kind, declaration.name)][0].in_file(span)


def read_schema_piece(data: bytes) -> SchemaPiece:
    """Read one piece. Never raises, whatever the bytes."""
    return _PieceReader(data).read()


class _PieceReader(TokenReader):
    def __init__(self, data: bytes) -> None:
        super().__init__(read_tokens(data))
        self._data = data
        self._documentation: dict[str, str] = {"description": "", "instruction": ""}

    def read(self) -> SchemaPiece:
        tokens = self._tokens
        if len(tokens) < 2 or tokens[0].text not in _KEYWORDS or tokens[1].kind is not TokenKind.TYPE_NAME:  # noqa: PLR2004
            return SchemaPiece(None, ())
        kind, name = _KEYWORDS[tokens[0].text], tokens[1]
        self._add(tokens[0], SymbolKind.KEYWORD)
        self._add(name, SymbolKind(kind.value), declares=True)
        self._at = 2
        ends: list[str] = []
        implements: list[str] = []
        listing = False
        while self._kind() not in (TokenKind.EOF, TokenKind.LBRACE):
            token = self._next()
            if token.kind is TokenKind.AT:
                self._annotation(None)
            elif token.kind is TokenKind.NAME and token.text == "implements":
                listing = True
                self._add(token, SymbolKind.KEYWORD)
            elif token.kind is TokenKind.TYPE_NAME:
                (implements if listing else ends).append(token.text)
                self._add(token, SymbolKind.INTERFACE if listing else SymbolKind.NODE)
        head = self._text(tokens[0], self._peek(-1))
        description, instruction = self._documentation["description"], self._documentation["instruction"]
        properties, rules = self._body(kind, name.text)
        span, (source, target) = Span(name.start, name.end), (*ends, "", "")[:2]
        found = Declaration(
            kind, name.text, span, head, properties, rules, tuple(implements), source, target, description, instruction
        )
        return SchemaPiece(found, self._sorted_occurrences())

    def _body(self, kind: TypeKind, owner: str) -> tuple[tuple[DeclaredProperty, ...], tuple[str, ...]]:
        properties: list[DeclaredProperty] = []
        rules: list[str] = []
        self._at += 1
        while self._kind() is not TokenKind.EOF:
            token = self._next()
            if token.kind is TokenKind.AT:
                text = self._annotation((kind, owner))
                rules += [text] if text else []
            elif token.kind is TokenKind.NAME and self._kind() is TokenKind.COLON:
                self._add(token, Symbol(SymbolKind.PROPERTY, token.text, owner, kind), declares=True)
                properties.append(self._property(token, (kind, owner)))
        return tuple(properties), tuple(rules)

    def _property(self, name: Token, owner: tuple[TypeKind, str]) -> DeclaredProperty:
        """Read the type and the annotations after a name."""
        self._at += 1
        first = self._at
        self._type()
        written = "" if first == self._at else self._text(self._tokens[first], self._peek(-1))
        self._documentation["description"] = ""
        while self._kind() is TokenKind.AT:
            if self._peek(1).text in CONSTRAINTS and self._kind(2) is TokenKind.LPAREN:
                break
            self._at += 1
            self._annotation(owner)
        text, span = self._text(name, self._peek(-1)), Span(name.start, name.end)
        return DeclaredProperty(name.text, span, written, text, self._documentation["description"])

    def _type(self) -> None:
        depth = 0
        while (kind := self._kind()) is not TokenKind.EOF:
            starts = kind is TokenKind.NAME and self._kind(1) is TokenKind.COLON
            if depth == 0 and (starts or kind in (TokenKind.AT, TokenKind.RBRACE)):
                return
            token = self._next()
            if kind in (TokenKind.LPAREN, TokenKind.LBRACKET):
                depth += 1
            elif kind in (TokenKind.RPAREN, TokenKind.RBRACKET):
                depth = max(depth - 1, 0)
            elif kind is TokenKind.TYPE_NAME or (kind is TokenKind.NAME and token.text == "enum" and depth == 0):
                self._add(token, SymbolKind.BASE_TYPE)

    def _annotation(self, owner: tuple[TypeKind, str] | None) -> str:
        """Read the name and arguments after an `@`.

        Returns the text of a body constraint, otherwise an empty string.
        """
        at = self._peek(-1)
        name = self._add_annotation(at)
        if not name or self._kind() is not TokenKind.LPAREN:
            return ""
        self._at += 1
        embeds = name == "embed"
        first = True
        while self._kind() not in (TokenKind.EOF, TokenKind.RPAREN, TokenKind.RBRACE):
            token = self._next()
            if first and token.kind is TokenKind.STRING and name in self._documentation:
                self._documentation[name] = token.value
            refers = first if embeds else name in CONSTRAINTS
            is_name = token.kind is TokenKind.NAME or (embeds and token.kind is TokenKind.STRING)
            if owner is not None and refers and is_name and self._kind() is not TokenKind.EQ:
                ends = owner[0] is TypeKind.EDGE and token.kind is TokenKind.NAME and token.text in _ENDS
                kind = SymbolKind.END if ends else SymbolKind.PROPERTY
                self._add(token, Symbol(kind, token.value, owner[1], owner[0]))
            first = False
        if self._kind() is TokenKind.RPAREN:
            self._at += 1
        return self._text(at, self._peek(-1)) if name in CONSTRAINTS else ""

    def _text(self, first: Token, last: Token) -> str:
        return " ".join(self._data[first.start : last.end].decode("utf-8", "replace").split())
