"""Completion in schema and query text, decided by the tokens before the cursor: those of a declaration, or the open bracket."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from gitops.database.language.lexer import Token, TokenKind
from gitops.database.language.schema import TypeKind
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.query import BracketContent, QueryView
from gitops.editor.schema import CONSTRAINTS, Declaration, SchemaView
from gitops.editor.symbols import Symbol, SymbolKind

KEY, FILE, VALUE = "key", "file", "value"
_MAX_ITEMS = 500
_DECLARATIONS = ("node", "edge", "interface")
_HEAD = {
    "node": ("description", "instruction", "rename_from"),
    "edge": ("card", "description", "instruction", "rename_from"),
    "interface": (),
}
_ON_PROPERTY = {
    "node": ("key", "unique", "index", "embed", "description", "rename_from"),
    "edge": ("unique", "index", "description", "rename_from"),
    "interface": ("key", "unique", "index", "embed", "description", "rename_from"),
}
_IN_BODY = {"node": CONSTRAINTS, "edge": ("unique", "index"), "interface": ()}
_COMPARISONS = (TokenKind.EQ, TokenKind.NE, TokenKind.LT, TokenKind.LE, TokenKind.GT, TokenKind.GE)
_OPERATORS = ("contains", "starts_with")
_INSTANTS = ("now", "date", "datetime")
_WRITES = ("insert", "update", "delete", "where")
_NEXT_SECTIONS = {"match": ("return",), "return": ("order", "limit"), "order": ("limit",), "limit": ()}
_MEMBER = re.compile(r"[A-Za-z0-9_\-]+")


class CompletionItem(NamedTuple):
    """A text for the place of the word at the cursor. `kind` is a SymbolKind, or `key`, `file`, `value`."""

    label: str
    kind: str
    detail: str = ""
    documentation: str = ""
    insert: str | None = None


def _word_items(
    table: Mapping[str, str], kind: SymbolKind, names: Iterable[str] | None = None, *, sign: str = ""
) -> Iterator[CompletionItem]:
    """The words of a documentation table, or only those in `names`; `sign` is written before each."""
    for name in table if names is None else names:
        yield CompletionItem(f"{sign}{name}", kind, documentation=table.get(name, ""))


def _property_items(view: SchemaView, owner: Declaration, suffix: str = "") -> Iterator[CompletionItem]:
    """The properties of a type; `suffix` is written after each."""
    for name, (_, each) in sorted(view.properties(owner).items()):
        yield CompletionItem(
            name, SymbolKind.PROPERTY, each.type, each.description, f"{name}{suffix}" if suffix else None
        )


def unique_items(found: Iterable[CompletionItem]) -> tuple[CompletionItem, ...]:
    """The first item of each label, at most 500."""
    return tuple({each.label: each for each in reversed([*found][:_MAX_ITEMS])}.values())[::-1]


def complete_schema(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    """The items that may follow the tokens of one piece; `word` is the beginning of the next token."""
    head = tokens[0].text if tokens else ""
    brace = next((at for at, token in enumerate(tokens) if token.kind is TokenKind.LBRACE), None)
    if head not in _DECLARATIONS or (brace is not None and tokens[-1].kind is TokenKind.RBRACE):
        yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, _DECLARATIONS)
        return
    opened = _open_parenthesis(tokens)
    if opened is not None:
        yield from _argument_items(view, tokens, opened)
    elif brace is None:
        yield from _head_items(view, tokens, word)
    else:
        yield from _member_items(tokens[brace:], head, word)


def _open_parenthesis(tokens: tuple[Token, ...]) -> int | None:
    """The parenthesis that is open at the end."""
    depth = 0
    for at, token in reversed([*enumerate(tokens)]):
        if token.kind is TokenKind.RPAREN:
            depth += 1
        elif token.kind is TokenKind.LPAREN:
            if depth == 0:
                return at
            depth -= 1
        elif token.kind in (TokenKind.LBRACE, TokenKind.RBRACE):
            break
    return None


def _argument_items(view: SchemaView, tokens: tuple[Token, ...], opened: int) -> Iterator[CompletionItem]:
    """The properties of the type that a constraint or `@embed` may name."""
    name = tokens[opened - 1].text if opened else ""
    if name not in (*CONSTRAINTS, "embed") or len(tokens) < 2:  # noqa: PLR2004 - keyword and name
        return
    if name in ("range", "check", "embed") and tokens[-1].kind is not TokenKind.LPAREN:
        return
    kind = TypeKind(tokens[0].text)
    owner = view.declaration(kind, tokens[1].text)
    if owner is not None:
        yield from _property_items(view, owner)
    if kind is TypeKind.EDGE:
        yield CompletionItem("src", SymbolKind.END, documentation="The source of the edge.")
        yield CompletionItem("dst", SymbolKind.END, documentation="The target of the edge.")


def _head_items(view: SchemaView, tokens: tuple[Token, ...], word: str) -> Iterator[CompletionItem]:
    head, last = tokens[0].text, tokens[-1]
    listing = any(token.text == "implements" for token in tokens[2:])
    if word.startswith("@"):
        yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")
    elif head == "edge" and last.kind in (TokenKind.COLON, TokenKind.ARROW):
        yield from (
            CompletionItem(each.name, SymbolKind.NODE, documentation=each.description)
            for each in view.declarations(TypeKind.NODE)
        )
    elif listing and (last.text == "implements" or last.kind is TokenKind.COMMA):
        yield from (CompletionItem(each.name, SymbolKind.INTERFACE) for each in view.declarations(TypeKind.INTERFACE))
    elif len(tokens) > 1 and (last.kind is TokenKind.TYPE_NAME or last.kind is TokenKind.RPAREN) and not listing:
        if head == "node":
            yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, ["implements"])
        ended = head == "edge" and any(token.kind is TokenKind.ARROW for token in tokens)
        if head != "edge" or ended:
            yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _HEAD[head], sign="@")
        if ended:
            # An edge can do without a body: the next declaration may follow.
            yield from _word_items(SCHEMA_WORDS, SymbolKind.KEYWORD, _DECLARATIONS)


def _member_items(body: tuple[Token, ...], head: str, word: str) -> Iterator[CompletionItem]:
    """A type after `name:`, annotations after a type, constraints where a member may begin."""
    last, before = body[-1], body[-2] if len(body) > 1 else body[-1]
    if last.kind is TokenKind.COLON:
        yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE)
    elif last.kind is TokenKind.LBRACKET:
        names = [name for name in TYPE_WORDS if name not in ("Vector", "enum", "Blob")]
        yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)
    elif last.kind is TokenKind.LBRACE:
        yield from _constraint_items(head)
    elif last.kind is TokenKind.NAME and before.kind is not TokenKind.AT and not word:
        return
    else:
        yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, _ON_PROPERTY[head], sign="@")
        yield from _constraint_items(head)


def _constraint_items(head: str) -> Iterator[CompletionItem]:
    for name in _IN_BODY[head]:
        yield CompletionItem(f"@{name}(..)", SymbolKind.ANNOTATION, documentation=ANNOTATIONS[name], insert=f"@{name}(")


def complete_query(
    view: QueryView, tokens: tuple[Token, ...], schema: SchemaView, word: str
) -> Iterator[CompletionItem]:
    """The items that may follow the tokens of one piece, read as `view`; `word` is the beginning of the next token."""
    return _QueryCompletion(view, tokens, schema, word).items()


class _QueryCompletion:
    def __init__(self, view: QueryView, tokens: tuple[Token, ...], schema: SchemaView, word: str) -> None:
        self._view = view
        self._tokens = tokens
        self._schema = schema
        self._is_variable = word.startswith("$")

    def items(self) -> Iterator[CompletionItem]:
        if self._kind(1) is TokenKind.DOT:
            symbol = self._view.variables.get(self._text(2))
            owner = None if symbol is None else self._schema.declaration(symbol.type_kind, symbol.owner)
            return iter(()) if owner is None else _property_items(self._schema, owner)
        by_block: Mapping[BracketContent, Callable[[], Iterator[CompletionItem]]] = {
            BracketContent.FILE: self._outside,
            BracketContent.PARAMETERS: self._parameter_type,
            BracketContent.BODY: self._section,
            BracketContent.MATCH: self._clause,
            BracketContent.NOT: self._clause,
            BracketContent.PAIRS: self._pair,
            BracketContent.SET: self._pair,
            BracketContent.RETURN: self._return_item,
            BracketContent.ORDER: self._order_item,
            BracketContent.CALL: self._argument,
            BracketContent.LIST: self._parameter_type,
        }
        found = by_block.get(self._view.frames[-1].block)
        return iter(()) if found is None else found()

    def _kind(self, back: int) -> TokenKind | None:
        return self._tokens[-back].kind if len(self._tokens) >= back else None

    def _text(self, back: int) -> str:
        return self._tokens[-back].text if len(self._tokens) >= back else ""

    def _outside(self) -> Iterator[CompletionItem]:
        if self._view.ended or not self._tokens:
            yield CompletionItem("query", SymbolKind.KEYWORD, documentation=QUERY_WORDS["query"], insert="query ")
        elif self._kind(1) is TokenKind.RPAREN:
            yield from _word_items(ANNOTATIONS, SymbolKind.ANNOTATION, ("description", "instruction"), sign="@")

    def _parameter_type(self) -> Iterator[CompletionItem]:
        blocks = [frame.block for frame in self._view.frames]
        if BracketContent.PARAMETERS in blocks and self._kind(1) in (TokenKind.COLON, TokenKind.LBRACKET):
            left_out = ("enum", "Vector", "Blob") if blocks[-1] is BracketContent.LIST else ("enum",)
            names = [name for name in TYPE_WORDS if name not in left_out]
            yield from _word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)

    def _section(self) -> Iterator[CompletionItem]:
        last = self._text(1)
        if last in ("insert", "update", "delete"):
            yield from self._types(TypeKind.NODE)
            if last != "update":
                yield from self._types(TypeKind.EDGE)
        elif last == "where" and self._view.written is not None:
            yield from self._properties_of_type(self._view.written, "")
        elif self._kind(1) is TokenKind.TYPE_NAME:
            yield from _keywords(("set", "where") if self._text(2) == "update" else ("where",))
        elif self._kind(1) in _COMPARISONS:
            yield from _named(self._view.parameters)
            yield from _functions(_INSTANTS)
        elif last != "limit":
            written = {each.symbol.name for each in self._view.occurrences if each.symbol.kind is SymbolKind.KEYWORD}
            sections = [name for name in ("match", "return", "order", "limit") if name in written]
            if sections:
                yield from _keywords(_NEXT_SECTIONS[sections[-1]])
            else:
                yield from _keywords(
                    _WRITES if written.intersection(_WRITES) else ("match", "insert", "update", "delete")
                )

    def _clause(self) -> Iterator[CompletionItem]:
        last = self._kind(1)
        if last is TokenKind.COLON:
            # `$a $e:` names the edge that `$e` stands for, `$v:` the type of a node.
            if self._kind(2) is TokenKind.VAR and self._kind(3) is TokenKind.VAR and not self._ends_hop(3):
                yield from self._edges(self._text(3), undirected=False)
            else:
                yield from self._types(TypeKind.NODE)
        elif last is TokenKind.LT and self._kind(2) is TokenKind.VAR and not self._is_variable:
            yield from self._edges(self._text(2), undirected=True)
            yield from self._values()
        elif last in _COMPARISONS:
            yield from self._members_of_compared()
            yield from self._values()
        elif last is TokenKind.VAR and not self._ends_hop(1) and self._kind(2) not in _COMPARISONS:
            if not self._is_variable:
                yield from self._edges(self._text(1), undirected=False)
                yield from _keywords(_OPERATORS)
        else:
            yield from _named(self._view.variables)
            if not self._is_variable:
                yield from _keywords(("not", *(_OPERATORS if self._kind(2) is TokenKind.DOT else ())))
                yield from _functions(("search", "fuzzy", "match_text"))

    def _ends_hop(self, back: int) -> bool:
        """Whether a variable ends a hop, so that the clause is complete after it."""
        start = self._tokens[-back].start
        before = [each for each in self._view.occurrences if each.end <= start]
        return bool(before) and before[-1].symbol.kind is SymbolKind.EDGE

    def _pair(self) -> Iterator[CompletionItem]:
        owner = self._view.frames[-1].owner
        if self._kind(1) is TokenKind.COLON:
            name = self._text(2)
            if owner is not None:
                yield from self._members(Symbol(SymbolKind.PROPERTY, name, owner.name, owner.type_kind))
            yield from _named(self._view.parameters)
            yield from _functions(_INSTANTS)
            yield from _keywords(("true", "false"))
        elif owner is not None and not self._is_variable:
            yield from self._properties_of_type(owner, ": ")

    def _members_of_compared(self) -> Iterator[CompletionItem]:
        """The members of the enum that `$variable.property` in front of a comparison is."""
        symbol = self._view.variables.get(self._text(4)) if self._kind(3) is TokenKind.DOT else None
        if symbol is not None:
            yield from self._members(Symbol(SymbolKind.PROPERTY, self._text(2), symbol.owner, symbol.type_kind))

    def _members(self, name: Symbol) -> Iterator[CompletionItem]:
        found = self._schema.property(name)
        if found is not None and found[1].type.startswith("enum"):
            for member in _MEMBER.findall(found[1].type.partition("(")[2].rpartition(")")[0]):
                yield CompletionItem(f'"{member}"', VALUE, f"{name.owner}.{name.name}")

    def _return_item(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.variables)
        yield from _named(self._view.parameters)
        if not self._is_variable:
            yield from _functions(("count", "sum", "avg", "min", "max"))
            yield from self._after_item("as")

    def _order_item(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.variables)
        if not self._is_variable:
            yield from (CompletionItem(each, SymbolKind.ALIAS) for each in self._view.aliases)
            yield from _functions(("nearest", "bm25", "rrf"))
            yield from self._after_item("asc", "desc")

    def _after_item(self, *names: str) -> Iterator[CompletionItem]:
        """The words that may stand behind an item, if there is one."""
        return _keywords(() if self._kind(1) in (TokenKind.LBRACE, TokenKind.COMMA) else names)

    def _argument(self) -> Iterator[CompletionItem]:
        if self._kind(1) is TokenKind.LPAREN and self._text(2) == "rrf":
            return _functions(("nearest", "bm25"))
        return self._values()

    def _values(self) -> Iterator[CompletionItem]:
        yield from _named(self._view.parameters)
        yield from _named(self._view.variables)
        if not self._is_variable:
            yield from _functions(_INSTANTS)
            yield from _keywords(("true", "false"))

    def _properties_of_type(self, owner: Symbol, suffix: str) -> Iterator[CompletionItem]:
        """The properties that may be written or tested."""
        declared = self._schema.declaration(owner.type_kind, owner.name)
        if declared is None:
            return
        if owner.type_kind is TypeKind.EDGE:
            for name, end in (("from", declared.source), ("to", declared.target)):
                insert = f"{name}{suffix}" if suffix else None
                yield CompletionItem(name, SymbolKind.END, end, f"The key of the {end}.", insert)
        yield from _property_items(self._schema, declared, suffix)

    def _types(self, kind: TypeKind) -> Iterator[CompletionItem]:
        for each in self._schema.declarations(kind):
            detail = f"{each.source} -> {each.target}" if kind is TypeKind.EDGE else ""
            yield CompletionItem(each.name, SymbolKind(kind.value), detail, each.description)

    def _edges(self, left: str, *, undirected: bool) -> Iterator[CompletionItem]:
        """The edges that fit a variable; all edges if its type is not known."""
        symbol = self._view.variables.get(left)
        for each in self._schema.declarations(TypeKind.EDGE):
            if symbol is not None and symbol.owner and symbol.owner not in (each.source, each.target):
                continue
            if not undirected or each.source == each.target:
                # Queries spell the name of an edge with a small first letter.
                name = each.name[:1].lower() + each.name[1:]
                yield CompletionItem(name, SymbolKind.EDGE, f"{each.source} -> {each.target}", each.description)


def _keywords(names: Iterable[str]) -> Iterator[CompletionItem]:
    return _word_items(QUERY_WORDS, SymbolKind.KEYWORD, names)


def _functions(names: Iterable[str]) -> Iterator[CompletionItem]:
    return _word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, names)


def _named(symbols: Mapping[str, Symbol]) -> Iterator[CompletionItem]:
    return (CompletionItem(each.name, each.kind, each.owner) for each in symbols.values())
