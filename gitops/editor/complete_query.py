"""Completion in query text, decided by the open bracket and the last tokens before the cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from gitops.editor.completion_items import VALUE, CompletionItem, property_items, word_items
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, TYPE_WORDS
from gitops.editor.query import BracketContent, QueryView
from gitops.editor.schema import SchemaView
from gitops.editor.symbols import Symbol, SymbolKind
from gitops.language.lexer import Token, TokenKind
from gitops.language.schema import TypeKind

__all__ = ["complete_query"]

_COMPARISONS = (TokenKind.EQ, TokenKind.NE, TokenKind.LT, TokenKind.LE, TokenKind.GT, TokenKind.GE)
_OPERATORS = ("contains", "starts_with")
_CONDITIONS = ("search", "fuzzy", "match_text")
_RANKS = ("nearest", "bm25", "rrf")
_AGGREGATES = ("count", "sum", "avg", "min", "max")
_INSTANTS = ("now", "date", "datetime")
_MEMBER = re.compile(r"[A-Za-z0-9_\-]+")


def complete_query(
    view: QueryView, tokens: tuple[Token, ...], schema: SchemaView | None, word: str
) -> Iterator[CompletionItem]:
    """The items that may follow the tokens of one piece, read as `view`; `word` is the beginning of the next token."""
    return _QueryCompletion(view, tokens, schema, word).items()


class _QueryCompletion:
    def __init__(self, view: QueryView, tokens: tuple[Token, ...], schema: SchemaView | None, word: str) -> None:
        self._view = view
        self._tokens = tokens
        self._schema = schema
        self._word = word

    def items(self) -> Iterator[CompletionItem]:
        last = self._kind(1)
        if last is TokenKind.DOT:
            return self._properties_of(self._token(2))
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

    def _token(self, back: int) -> Token | None:
        return self._tokens[-back] if len(self._tokens) >= back else None

    def _kind(self, back: int) -> TokenKind | None:
        token = self._token(back)
        return None if token is None else token.kind

    def _text(self, back: int) -> str:
        token = self._token(back)
        return "" if token is None else token.text

    def _outside(self) -> Iterator[CompletionItem]:
        if self._view.ended or not self._tokens:
            yield CompletionItem("query", SymbolKind.KEYWORD, documentation=QUERY_WORDS["query"], insert="query ")
        elif self._kind(1) is TokenKind.RPAREN:
            yield from word_items(ANNOTATIONS, SymbolKind.ANNOTATION, ("description", "instruction"), sign="@")

    def _parameter_type(self) -> Iterator[CompletionItem]:
        blocks = [frame.block for frame in self._view.frames]
        listed = blocks[-1] is BracketContent.LIST
        if BracketContent.PARAMETERS in blocks and self._kind(1) in (TokenKind.COLON, TokenKind.LBRACKET):
            left_out = ("enum", "Vector", "Blob") if listed else ("enum",)
            yield from word_items(
                TYPE_WORDS, SymbolKind.BASE_TYPE, [name for name in TYPE_WORDS if name not in left_out]
            )

    def _section(self) -> Iterator[CompletionItem]:
        last = self._text(1)
        if last in ("insert", "update", "delete"):
            yield from self._types(TypeKind.NODE)
            if last != "update":
                yield from self._types(TypeKind.EDGE)
        elif last == "where" and self._view.written is not None:
            yield from self._properties_of_type(self._view.written, "")
        elif self._kind(1) is TokenKind.TYPE_NAME:
            yield from word_items(
                QUERY_WORDS, SymbolKind.KEYWORD, ("set", "where") if self._text(2) == "update" else ("where",)
            )
        elif self._kind(1) in _COMPARISONS:
            yield from self._parameters()
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _INSTANTS)
        elif last != "limit":
            names = ("match", "return", "order", "limit", "insert", "update", "delete", "where")
            written = {
                occurrence.symbol.name
                for occurrence in self._view.occurrences
                if occurrence.symbol.kind is SymbolKind.KEYWORD
            }
            repeated = ("insert", "update", "delete", "where")
            yield from word_items(
                QUERY_WORDS, SymbolKind.KEYWORD, [n for n in names if n not in written or n in repeated]
            )

    def _clause(self) -> Iterator[CompletionItem]:
        last = self._kind(1)
        if last is TokenKind.COLON:
            # `$a $e:` names the edge that `$e` stands for, `$v:` the type of a node.
            if self._kind(2) is TokenKind.VAR and self._kind(3) is TokenKind.VAR and not self._ends_hop(3):
                yield from self._edges(self._token(3), undirected=False)
            else:
                yield from self._types(TypeKind.NODE)
        elif last is TokenKind.LT and self._kind(2) is TokenKind.VAR and not self._word.startswith("$"):
            yield from self._edges(self._token(2), undirected=True)
            yield from self._values()
        elif last in _COMPARISONS:
            yield from self._values()
        elif last is TokenKind.VAR and not self._ends_hop(1) and self._kind(2) not in _COMPARISONS:
            if not self._word.startswith("$"):
                yield from self._edges(self._token(1), undirected=False)
                yield from word_items(QUERY_WORDS, SymbolKind.KEYWORD, _OPERATORS)
        else:
            yield from self._variables()
            if not self._word.startswith("$"):
                yield from word_items(
                    QUERY_WORDS, SymbolKind.KEYWORD, ("not", *(_OPERATORS if self._kind(2) is TokenKind.DOT else ()))
                )
                yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _CONDITIONS)

    def _ends_hop(self, back: int) -> bool:
        """Whether a variable ends a hop, so that the clause is complete after it."""
        token = self._token(back)
        before = [
            occurrence for occurrence in self._view.occurrences if token is not None and occurrence.end <= token.start
        ]
        return bool(before) and before[-1].symbol.kind is SymbolKind.EDGE

    def _pair(self) -> Iterator[CompletionItem]:
        owner = self._view.frames[-1].owner
        if self._kind(1) is TokenKind.COLON:
            yield from self._enum_members(owner, self._text(2))
            yield from self._parameters()
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _INSTANTS)
            yield from word_items(QUERY_WORDS, SymbolKind.KEYWORD, ("true", "false"))
        elif owner is not None and not self._word.startswith("$"):
            yield from self._properties_of_type(owner, ": ")

    def _enum_members(self, owner: Symbol | None, name: str) -> Iterator[CompletionItem]:
        """The members of an enum property."""
        if owner is None or self._schema is None:
            return
        found = self._schema.property(Symbol(SymbolKind.PROPERTY, name, owner.name, owner.type_kind))
        if found is not None and found[1].type.startswith("enum"):
            listed = found[1].type.partition("(")[2].rpartition(")")[0]
            for member in _MEMBER.findall(listed):
                yield CompletionItem(f'"{member}"', VALUE, f"{owner.name}.{name}")

    def _return_item(self) -> Iterator[CompletionItem]:
        yield from self._variables()
        yield from self._parameters()
        if not self._word.startswith("$"):
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _AGGREGATES)
            if self._kind(1) not in (TokenKind.LBRACE, TokenKind.COMMA):
                yield from word_items(QUERY_WORDS, SymbolKind.KEYWORD, ("as",))

    def _order_item(self) -> Iterator[CompletionItem]:
        yield from self._variables()
        if not self._word.startswith("$"):
            yield from (CompletionItem(each, SymbolKind.ALIAS) for each in self._view.aliases)
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _RANKS)
            if self._kind(1) not in (TokenKind.LBRACE, TokenKind.COMMA):
                yield from word_items(QUERY_WORDS, SymbolKind.KEYWORD, ("asc", "desc"))

    def _argument(self) -> Iterator[CompletionItem]:
        name = self._text(2) if self._kind(1) is TokenKind.LPAREN else ""
        if name == "rrf":
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, ("nearest", "bm25"))
            return
        yield from self._values()

    def _values(self) -> Iterator[CompletionItem]:
        yield from self._parameters()
        yield from self._variables()
        if not self._word.startswith("$"):
            yield from word_items(FUNCTION_WORDS, SymbolKind.FUNCTION, _INSTANTS)
            yield from word_items(QUERY_WORDS, SymbolKind.KEYWORD, ("true", "false"))

    def _variables(self) -> Iterator[CompletionItem]:
        yield from (CompletionItem(each.name, each.kind, each.owner) for each in self._view.variables.values())

    def _parameters(self) -> Iterator[CompletionItem]:
        yield from (CompletionItem(each.name, each.kind, each.owner) for each in self._view.parameters.values())

    def _properties_of(self, variable: Token | None) -> Iterator[CompletionItem]:
        symbol = None if variable is None else self._view.variables.get(variable.text)
        owner = (
            None if symbol is None or self._schema is None else self._schema.declaration(symbol.type_kind, symbol.owner)
        )
        if owner is not None and self._schema is not None:
            yield from property_items(self._schema, owner)

    def _properties_of_type(self, owner: Symbol, suffix: str) -> Iterator[CompletionItem]:
        """The properties that may be written or tested."""
        declared = None if self._schema is None else self._schema.declaration(owner.type_kind, owner.name)
        if declared is None or self._schema is None:
            return
        if owner.type_kind is TypeKind.EDGE:
            for name, end in (("from", declared.source), ("to", declared.target)):
                yield CompletionItem(
                    name, SymbolKind.END, end, f"The key of the {end}.", f"{name}{suffix}" if suffix else None
                )
        yield from property_items(self._schema, declared, suffix)

    def _types(self, kind: TypeKind) -> Iterator[CompletionItem]:
        for each in self._schema.declarations(kind) if self._schema is not None else ():
            detail = f"{each.source} -> {each.target}" if kind is TypeKind.EDGE else ""
            yield CompletionItem(each.name, SymbolKind(kind.value), detail, each.description)

    def _edges(self, left: Token | None, *, undirected: bool) -> Iterator[CompletionItem]:
        """The edges that fit a variable; all edges if its type is not known."""
        symbol = None if left is None else self._view.variables.get(left.text)
        for each in self._schema.declarations(TypeKind.EDGE) if self._schema is not None else ():
            if symbol is not None and symbol.owner and symbol.owner not in (each.source, each.target):
                continue
            if not undirected or each.source == each.target:
                # Queries spell the name of an edge with a small first letter.
                name = each.name[:1].lower() + each.name[1:]
                yield CompletionItem(name, SymbolKind.EDGE, f"{each.source} -> {each.target}", each.description)
