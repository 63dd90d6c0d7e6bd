"""Hovers: what the word at an offset stands for, in Markdown."""

from __future__ import annotations

import re
from typing import NamedTuple

from gitops.editor.cluster import documentation_path
from gitops.editor.documentation import ANNOTATIONS, CLUSTER_KEYS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.navigate import FileOccurrence, find_occurrence, is_cluster_file
from gitops.editor.schema import Declaration, SchemaView
from gitops.editor.symbols import Symbol, SymbolKind
from gitops.editor.texts import EditorFile, TextCache
from gitops.language.schema import TypeKind
from gitops.language.text import Span

__all__ = ["Hover", "documentation_of", "fenced_code", "hover"]

_MARKUP = re.compile(r"([\\`*_\[\]<>#|!~])")
_FENCES = re.compile(r"`{3,}")
_KINDS = {SymbolKind.NODE: TypeKind.NODE, SymbolKind.EDGE: TypeKind.EDGE, SymbolKind.INTERFACE: TypeKind.INTERFACE}
_MAX_SHOWN = 4_000


class Hover(NamedTuple):
    """What is shown for the word in a span."""

    span: Span
    markdown: str


def hover(texts: TextCache, file: EditorFile, offset: int) -> Hover | None:
    """What there is to say about the word at an offset; None for a name that is not known, and between words."""
    if is_cluster_file(file.path):
        return _key(texts, file, offset)
    word = find_occurrence(texts, file, offset)
    if word is None:
        return None
    text = _words(texts, file, word)
    return Hover(word.span, text[:_MAX_SHOWN]) if text else None


def documentation_of(symbol: Symbol, *, schema: bool = False) -> str:
    """The documentation of a word of the languages."""
    if symbol.sort is SymbolKind.KEYWORD:
        return (SCHEMA_WORDS if schema else QUERY_WORDS).get(symbol.name, "")
    tables = {SymbolKind.FUNCTION: FUNCTION_WORDS, SymbolKind.ANNOTATION: ANNOTATIONS, SymbolKind.BASE_TYPE: TYPE_WORDS}
    return tables[symbol.sort].get(symbol.name, "") if symbol.sort in tables else ""


def fenced_code(code: str, language: str) -> str:
    """Code of the user in a fence that nothing in it can close."""
    fence = max([*_FENCES.findall(code), "``"], key=len) + "`"
    return f"{fence}{language}\n{code}\n{fence}"


def declaration_text(view: SchemaView, declaration: Declaration) -> str:
    """A type with its head, its own and its taken properties, and its constraints; and what is said about it."""
    lines = [each.text for _, each in view.properties(declaration).values()]
    lines += declaration.rules
    body = "".join(f"\n    {line}" for line in lines)
    code = f"{declaration.head} {{{body}\n}}" if body else declaration.head
    said = [declaration.description, declaration.instruction]
    return _joined(fenced_code(code, "pg"), *(_plain(each) for each in said if each))


def _words(texts: TextCache, file: EditorFile, word: FileOccurrence) -> str:
    symbol = word.symbol
    view = texts.view_of(file)
    if symbol.sort is SymbolKind.QUERY:
        return _query(texts, file, word)
    if symbol.sort is SymbolKind.PARAMETER:
        return fenced_code(f"{symbol.name}: {symbol.owner or '?'}", "gq") + "\n\nA parameter of this query."
    if symbol.sort is SymbolKind.ALIAS:
        return fenced_code(symbol.name, "gq") + "\n\nThe name of a return item, which `order` may refer to."
    if symbol.sort in (SymbolKind.VARIABLE, SymbolKind.EDGE_VARIABLE):
        return _variable(symbol, view)
    if symbol.sort is SymbolKind.END:
        first = symbol.name in ("src", "from")
        edge = None if view is None else view.get(TypeKind.EDGE, symbol.owner)
        of = "" if edge is None else f" `{edge.source if first else edge.target}`"
        return f"The {'source' if first else 'target'}{of} of the edge `{symbol.owner}`, by its key."
    if symbol.sort is SymbolKind.PROPERTY:
        return "" if view is None else _property(symbol, view)
    if symbol.sort in _KINDS:
        declaration = None if view is None else view.get(_KINDS[symbol.sort], symbol.name)
        return "" if view is None or declaration is None else declaration_text(view, declaration)
    said = documentation_of(symbol, schema=file.path == file.schema)
    return f"**{'@' * (symbol.sort is SymbolKind.ANNOTATION)}{symbol.name}**\n\n{said}" if said else ""


def _variable(symbol: Symbol, view: SchemaView | None) -> str:
    if not symbol.owner:
        return ""
    kind = TypeKind.EDGE if symbol.sort is SymbolKind.EDGE_VARIABLE else TypeKind.NODE
    declaration = None if view is None else view.get(kind, symbol.owner)
    head = fenced_code(f"{symbol.name}: {symbol.owner}", "gq")
    return head if view is None or declaration is None else _joined(head, declaration_text(view, declaration))


def _property(symbol: Symbol, view: SchemaView) -> str:
    found = view.property(symbol)
    if found is None:
        return ""
    owner, declared = found
    used = view.get(symbol.kind, symbol.owner) or owner
    name = re.compile(rf"[(,] ?{re.escape(symbol.name)} ?[,)]")
    rules = [rule for rule in used.rules if name.search(rule)]
    source = [] if owner.name == used.name else [f"From the interface `{owner.name}`."]
    head = fenced_code(f"{used.name}.{declared.text}", "pg")
    return _joined(
        head, *(f"`{rule}`" for rule in rules), *source, *([_plain(declared.description)] * bool(declared.description))
    )


def _query(texts: TextCache, file: EditorFile, word: FileOccurrence) -> str:
    piece = texts.piece_at(file.data, word.start)
    view = texts.query_view(piece.data, texts.schema_of(file))
    params = ", ".join(f"{each.name}: {each.owner}" for each in view.parameters.values())
    head = fenced_code(f"query {word.symbol.name}({params})", "gq")
    return _joined(head, *([_plain(view.description)] * bool(view.description)))


def _key(texts: TextCache, file: EditorFile, offset: int) -> Hover | None:
    found = texts.cluster_view(file.data).at(offset)
    if found is None:
        return None
    entry, value = found
    said = CLUSTER_KEYS.get(documentation_path(entry.path))
    return Hover(value.span, f"**{_plain('.'.join(entry.path))}**\n\n{said}") if said else None


def _plain(text: str) -> str:
    """Text of the user as it is, and never as markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _joined(*parts: str) -> str:
    return "\n\n".join(parts)
