"""Completion in query text, decided by the open bracket and the last tokens before the cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from gitops.editor.completion_items import VALUE, CompletionItem, property_items, word_items
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, TYPE_WORDS
from gitops.editor.query import BracketContent, QueryView
from gitops.editor.schema import SchemaView
from gitops.editor.symbols import Symbol, SymbolKind
from gitops.language.lexer import Token, TokenKind
from gitops.language.schema import TypeKind

_COMPARISONS = (TokenKind.EQ, TokenKind.NE, TokenKind.LT, TokenKind.LE, TokenKind.GT, TokenKind.GE)
_OPERATORS = ("contains", "starts_with")
_INSTANTS = ("now", "date", "datetime")
_WRITES = ("insert", "update", "delete", "where")
_MEMBER = re.compile(r"[A-Za-z0-9_\-]+")


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
            return iter(()) if owner is None else property_items(self._schema, owner)
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
            yield from word_items(ANNOTATIONS, SymbolKind.ANNOTATION, ("description", "instruction"), sign="@")

    def _parameter_type(self) -> Iterator[CompletionItem]:
        blocks = [frame.block for frame in self._view.frames]
        if BracketContent.PARAMETERS in blocks and self._kind(1) in (TokenKind.COLON, TokenKind.LBRACKET):
            left_out = ("enum", "Vector", "Blob") if blocks[-1] is BracketContent.LIST else ("enum",)
            names = [name for name in TYPE_WORDS if name not in left_out]
            yield from word_items(TYPE_WORDS, SymbolKind.BASE_TYPE, names)

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
            once = [name for name in ("match", "return", "order", "limit") if name not in written]
            yield from _keywords((*once, *_WRITES))

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
                found = self._schema.property(Symbol(SymbolKind.PROPERTY, name, owner.name, owner.type_kind))
                if found is not None and found[1].type.startswith("enum"):
                    for member in _MEMBER.findall(found[1].type.partition("(")[2].rpartition(")")[0]):
                        yield CompletionItem(f'"{member}"', VALUE, f"{owner.name}.{name}")
            yield from _named(self._view.parameters)
            yield from _functions(_INSTANTS)
            yield from _keywords(("true", "false"))
        elif owner is not None and not self._is_variable:
            yield from self._properties_of_type(owner, ": ")

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
        yield from property_items(self._schema, declared, suffix)

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
    return word_items(QUERY_WORDS, SymbolKind.KEYWORD, names)


def _functions(names: Iterable[str]) -> Iterator[CompletionItem]:
    return word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, names)


def _named(symbols: Mapping[str, Symbol]) -> Iterator[CompletionItem]:
    return (CompletionItem(each.name, each.kind, each.owner) for each in symbols.values())
