"""Reads query text for an editor: each word's symbol and the known names, even in an unfinished query.

Each piece is read in one pass with a stack of open brackets. Nothing is checked, because the checker finds the
problems. If a query passes the checker, each variable has the same type here (a law of the tests).

The ends of a hop get their types as the language defines it: from the left variable if it is bound, otherwise from the
right one, otherwise the edge is followed forward.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.schema import TypeKind
from gitops.editor.documentation import FUNCTION_WORDS
from gitops.editor.schema import SchemaView
from gitops.editor.symbols import Occurrence, Symbol, SymbolKind
from gitops.editor.tokens import TokenReader

_OPERATORS = ("contains", "starts_with")
_SECTIONS = ("match", "return", "order", "limit", "insert", "update", "delete", "set", "where", "not")
_WRITES = ("insert", "update", "delete")
_ENDS = ("from", "to")
_PARAMETER_ENDS = (TokenKind.COMMA, TokenKind.RPAREN, TokenKind.VAR, TokenKind.LBRACE)
ANONYMOUS = "$_"


class BracketContent(Enum):
    """The content of an open bracket."""

    FILE = auto()
    PARAMETERS = auto()
    BODY = auto()
    MATCH = auto()
    NOT = auto()
    PAIRS = auto()
    RETURN = auto()
    ORDER = auto()
    SET = auto()
    CALL = auto()
    LIST = auto()
    OTHER = auto()


_CLAUSES = (BracketContent.MATCH, BracketContent.NOT)
_INSIDE_BRACES = (BracketContent.PARAMETERS, BracketContent.CALL, BracketContent.LIST)
_SECTION_BLOCKS = {
    "match": BracketContent.MATCH,
    "return": BracketContent.RETURN,
    "order": BracketContent.ORDER,
    "not": BracketContent.NOT,
    "set": BracketContent.SET,
}


class OpenBracket(NamedTuple):
    """An open bracket: what it contains, which type owns its properties, and how many names were bound when it opened."""

    block: BracketContent
    owner: Symbol | None = None
    bound: int = 0


class QueryView(NamedTuple):
    """What was read from a query: its name, its other names with their symbols, and the brackets that are still open."""

    name: Token | None
    parameters: dict[str, Symbol]
    variables: dict[str, Symbol]
    aliases: dict[str, Symbol]
    occurrences: tuple[Occurrence, ...]
    frames: tuple[OpenBracket, ...]
    written: Symbol | None
    description: str
    ended: bool


def read_query(tokens: tuple[Token, ...], schema: SchemaView) -> QueryView:
    """Read the tokens of one piece, or the tokens before a cursor. Never raises."""
    return _QueryReader(tokens, schema).read()


class _QueryReader(TokenReader):
    """State of the reader within one piece. Names include their `$`, as in the text."""

    def __init__(self, tokens: tuple[Token, ...], schema: SchemaView) -> None:
        super().__init__(tokens)
        self._schema = schema
        self._frames = [OpenBracket(BracketContent.FILE)]
        self._parameters: dict[str, Symbol] = {}
        self._bound: dict[str, Symbol] = {}
        self._trail: list[str] = []
        self._aliases: dict[str, Symbol] = {}
        self._name: Token | None = None
        self._pending: OpenBracket | None = None
        self._written: Symbol | None = None
        self._description = ""
        self._ended = False

    def read(self) -> QueryView:
        """Read all tokens. Each step also reads the tokens that belong to the current one."""
        steps = {
            **dict.fromkeys((TokenKind.LBRACE, TokenKind.LPAREN, TokenKind.LBRACKET), self._open),
            **dict.fromkeys((TokenKind.RBRACE, TokenKind.RPAREN, TokenKind.RBRACKET), self._close),
            TokenKind.VAR: self._variable,
            TokenKind.NAME: self._word,
            TokenKind.TYPE_NAME: self._type_name,
            TokenKind.AT: self._annotation,
        }
        while self._at < len(self._tokens):
            token = self._next()
            if (step := steps.get(token.kind)) is not None:
                step(token)
        return QueryView(
            self._name,
            self._parameters,
            dict(self._bound),
            self._aliases,
            self._sorted_occurrences(),
            tuple(self._frames),
            self._written,
            self._description,
            self._ended,
        )

    def _open(self, token: Token) -> None:
        block, pending, self._pending = self._frames[-1].block, self._pending, None
        frame = OpenBracket(BracketContent.OTHER)
        if token.kind is TokenKind.LBRACKET:
            frame = OpenBracket(BracketContent.LIST)
        elif token.kind is TokenKind.LPAREN:
            heads = block is BracketContent.FILE and self._name is not None and self._peek(-2) is self._name
            frame = OpenBracket(BracketContent.PARAMETERS if heads else BracketContent.CALL)
        elif pending is not None:
            frame = pending
        elif block is BracketContent.FILE and self._name is not None:
            frame = OpenBracket(BracketContent.BODY)
        self._frames.append(frame._replace(bound=len(self._trail)))

    def _close(self, token: Token) -> None:
        """Close a bracket. A brace also closes all brackets inside it; other brackets close only their own kind."""
        self._pending = None
        if token.kind is TokenKind.RBRACE:
            while self._frames[-1].block in _INSIDE_BRACES:
                self._frames.pop()
        elif self._frames[-1].block not in _INSIDE_BRACES:
            return
        if len(self._frames) == 1:
            return
        frame = self._frames.pop()
        if frame.block is BracketContent.NOT:
            for name in self._trail[frame.bound :]:
                del self._bound[name]
            del self._trail[frame.bound :]
        self._ended = self._ended or frame.block is BracketContent.BODY

    def _variable(self, token: Token) -> None:
        self._pending = None
        block = self._frames[-1].block
        if block is BracketContent.PARAMETERS:
            self._parameter(token)
        elif self._kind() is TokenKind.DOT:
            self._property(token)
        elif block in _CLAUSES and self._kind() is TokenKind.COLON:
            self._bind(token)
        elif block not in _CLAUSES or not self._hop(token):
            # As a value, `$name` is a parameter if there is one, otherwise a binding.
            self._add(token, self._parameters.get(token.text) or self._bound.get(token.text) or SymbolKind.VARIABLE)

    def _parameter(self, token: Token) -> None:
        words = []
        at = self._at
        while at < len(self._tokens) and self._tokens[at].kind not in _PARAMETER_ENDS:
            # A dimension with its closing bracket is part of the type.
            size = 3 if self._tokens[at].kind is TokenKind.LPAREN else 1
            words += [each.text for each in self._tokens[at : at + size]]
            at += size
        symbol = Symbol(SymbolKind.PARAMETER, token.text, "".join(words[1:]), declared=token.start)
        known = self._parameters.setdefault(token.text, symbol)
        self._add(token, known, declares=known is symbol)

    def _property(self, token: Token) -> None:
        """Read `$v.p`, where `$v` is always a binding."""
        symbol = self._bound.get(token.text) or Symbol(SymbolKind.VARIABLE, token.text)
        self._add(token, symbol)
        dot, name = self._peek(), self._peek(1)
        # After `$p.` without a name, the keyword of the next line must not be read as the name.
        if name.kind is TokenKind.NAME and (name.start == dot.end or name.text not in _SECTIONS):
            self._at += 2
            self._add(name, Symbol(SymbolKind.PROPERTY, name.text, symbol.owner, symbol.type_kind))

    def _bind(self, token: Token) -> None:
        type_name = self._peek(1)
        if type_name.kind is not TokenKind.TYPE_NAME:
            self._add(token, self._bound.get(token.text) or SymbolKind.VARIABLE)
            return
        self._bind_name(token, SymbolKind.VARIABLE, type_name.text)
        self._add(type_name, SymbolKind.NODE)
        self._at += 2
        owner = Symbol(SymbolKind.NODE, type_name.text, type_kind=TypeKind.NODE)
        self._pending = OpenBracket(BracketContent.PAIRS, owner)

    def _hop(self, left: Token) -> bool:
        """Read a hop after its left variable. Returns False if the text is not a hop."""
        distance, binding = 0, None
        if self._kind() is TokenKind.VAR and self._kind(1) is TokenKind.COLON:
            distance, binding = 2, self._peek()
        undirected = self._kind(distance) is TokenKind.LT and self._kind(distance + 1) is TokenKind.NAME
        edge = self._peek(distance + undirected)
        distance += 1 + undirected
        if edge.kind is not TokenKind.NAME:
            return False
        if undirected and self._kind(distance) not in (TokenKind.GT, TokenKind.EOF):
            return False
        distance += undirected
        follows = self._kind(distance)
        if edge.text in _OPERATORS and (
            follows not in (TokenKind.VAR, TokenKind.LBRACE)
            or (follows is TokenKind.VAR and self._kind(distance + 1) is TokenKind.DOT)
        ):
            return False
        if follows is TokenKind.LBRACE:
            while self._kind(distance) not in (TokenKind.EOF, TokenKind.RBRACE, TokenKind.VAR):
                distance += 1
            distance += self._kind(distance) is TokenKind.RBRACE
        right = self._peek(distance)
        is_end = right.kind is TokenKind.VAR and self._kind(distance + 1) is not TokenKind.COLON
        self._at += distance + is_end
        self._bind_ends(left, binding, edge, right if is_end else None)
        return True

    def _bind_ends(self, left: Token, binding: Token | None, edge: Token, right: Token | None) -> None:
        declared = self._schema.edge(edge.text)
        known_left = self._bound.get(left.text)
        known_right = None if right is None else self._bound.get(right.text)
        name, source, target = ("", "", "") if declared is None else (declared.name, declared.source, declared.target)
        if (known_left is not None and known_left.owner != source) or (
            known_left is None and known_right is not None and known_right.owner != target
        ):
            source, target = target, source
        self._add(edge, Symbol(SymbolKind.EDGE, name or edge.text))
        self._bind_name(left, SymbolKind.VARIABLE, source)
        if right is not None:
            self._bind_name(right, SymbolKind.VARIABLE, target)
        if binding is not None:
            self._bind_name(binding, SymbolKind.EDGE_VARIABLE, name)

    def _bind_name(self, token: Token, sort: SymbolKind, owner: str) -> None:
        """Add the occurrence of a variable that the clause binds, unless an earlier clause has already bound it."""
        known = self._bound.get(token.text)
        kind = TypeKind.EDGE if sort is SymbolKind.EDGE_VARIABLE else TypeKind.NODE
        symbol = known or Symbol(sort, token.text, owner, kind, token.start)
        if known is None and token.text != ANONYMOUS:
            self._bound[token.text] = symbol
            self._trail.append(token.text)
        self._add(token, symbol, declares=known is None)

    def _word(self, token: Token) -> None:
        frame = self._frames[-1]
        if self._name is None and token.text == "query":
            self._add(token, SymbolKind.KEYWORD)
            if self._kind() is TokenKind.NAME:
                self._name = self._next()
                self._add(self._name, SymbolKind.QUERY, declares=True)
        elif frame.block in (BracketContent.PAIRS, BracketContent.SET) and self._kind() is TokenKind.COLON:
            self._property_name(token, frame.owner)
        elif frame.block is BracketContent.BODY:
            self._section(token)
        elif self._kind() is TokenKind.LPAREN and token.text in FUNCTION_WORDS:
            self._add(token, SymbolKind.FUNCTION)
        elif token.text == "not" and frame.block in _CLAUSES and self._kind() is TokenKind.LBRACE:
            self._add(token, SymbolKind.KEYWORD)
            self._pending = OpenBracket(BracketContent.NOT)
        elif token.text == "as" and frame.block is BracketContent.RETURN and self._kind() is TokenKind.NAME:
            self._add(token, SymbolKind.KEYWORD)
            alias = self._next()
            symbol = Symbol(SymbolKind.ALIAS, alias.text, declared=alias.start)
            known = self._aliases.setdefault(alias.text, symbol)
            self._add(alias, known, declares=known is symbol)
        elif frame.block is BracketContent.ORDER and token.text in self._aliases:
            self._add(token, self._aliases[token.text])
        elif token.text in (*_OPERATORS, "asc", "desc", "as", "true", "false"):
            self._add(token, SymbolKind.KEYWORD)

    def _section(self, token: Token) -> None:
        """Read a keyword between the sections of a body, or the property after `where`."""
        if self._peek(-2).text == "where" and token.text not in _SECTIONS:
            self._property_name(token, self._written)
            return
        if token.text not in _SECTIONS:
            return
        self._add(token, SymbolKind.KEYWORD)
        if token.text in _WRITES:
            self._written = None
        block = _SECTION_BLOCKS.get(token.text)
        if block is not None:
            self._pending = OpenBracket(block, self._written if block is BracketContent.SET else None)

    def _property_name(self, token: Token, owner: Symbol | None) -> None:
        if owner is not None and owner.type_kind is TypeKind.EDGE and token.text in _ENDS:
            self._add(token, Symbol(SymbolKind.END, token.text, owner.name, owner.type_kind))
        else:
            name, kind = ("", None) if owner is None else (owner.name, owner.type_kind)
            self._add(token, Symbol(SymbolKind.PROPERTY, token.text, name, kind))

    def _type_name(self, token: Token) -> None:
        frame, before = self._frames[-1], self._peek(-2).text
        if frame.block in (BracketContent.PARAMETERS, BracketContent.LIST):
            self._add(token, SymbolKind.BASE_TYPE)
        elif frame.block is BracketContent.BODY and before in _WRITES:
            node = self._schema.declaration(TypeKind.NODE, token.text)
            edge = self._schema.declaration(TypeKind.EDGE, token.text)
            # If a node and an edge have the same name, a write refers to the node.
            kind = TypeKind.EDGE if edge is not None and node is None else TypeKind.NODE
            self._written = Symbol(SymbolKind(kind.value), token.text, type_kind=kind)
            self._add(token, self._written._replace(type_kind=None))
            self._pending = OpenBracket(BracketContent.SET, self._written) if before == "insert" else None

    def _annotation(self, at: Token) -> None:
        if len(self._frames) > 1:
            return
        name = self._add_annotation(at)
        if name == "description" and self._kind() is TokenKind.LPAREN and self._kind(1) is TokenKind.STRING:
            self._description = self._peek(1).value
