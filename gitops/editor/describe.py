"""Hovers: the documentation of the word at an offset, in Markdown."""

from __future__ import annotations

import re
from typing import NamedTuple

from gitops.cluster.config.keys import documentation_path
from gitops.database.language.schema import TypeKind
from gitops.database.language.text import Span
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.navigate import FileOccurrence, find_occurrence, keys_of
from gitops.editor.schema import TYPE_KINDS, Declaration, SchemaView
from gitops.editor.symbols import Symbol, SymbolKind
from gitops.editor.texts import EditorFile, TextCache

_MARKUP = re.compile(r"([\\`*_\[\]<>#|!~])")
_FENCES = re.compile(r"`{3,}")
_TYPE_KINDS = TYPE_KINDS | {SymbolKind.VARIABLE: TypeKind.NODE, SymbolKind.EDGE_VARIABLE: TypeKind.EDGE}
_MAX_SHOWN = 4_000


class Hover(NamedTuple):
    """The text that is shown for the word in a span."""

    span: Span
    markdown: str


def hover(cache: TextCache, file: EditorFile, offset: int) -> Hover | None:
    """The documentation of the word at an offset; None for an unknown name and between words."""
    keys = keys_of(file.path)
    if keys is not None:
        found = cache.cluster_view(file.data).at(offset)
        if found is None:
            return None
        entry, value = found
        line = keys.get(documentation_path(entry.path, keys))
        return Hover(value.span, f"**{_plain('.'.join(entry.path))}**\n\n{line}") if line else None
    occurrence = find_occurrence(cache, file, offset)
    if occurrence is None:
        return None
    text = _markdown(cache, file, occurrence)
    return Hover(occurrence.span, text[:_MAX_SHOWN]) if text else None


def _markdown(cache: TextCache, file: EditorFile, occurrence: FileOccurrence) -> str:
    symbol, view = occurrence.symbol, cache.view_of(file)
    if symbol.kind is SymbolKind.QUERY:
        query = cache.query_view(occurrence.piece.data, cache.schema_of(file))
        params = ", ".join(f"{each.name}: {each.owner}" for each in query.parameters.values())
        return _joined(_fenced(f"query {symbol.name}({params})", "gq"), _plain(query.description))
    if symbol.kind is SymbolKind.PARAMETER:
        return _joined(_fenced(f"{symbol.name}: {symbol.owner or '?'}", "gq"), "A parameter of this query.")
    if symbol.kind is SymbolKind.ALIAS:
        return _joined(_fenced(symbol.name, "gq"), "The name of a return item, which `order` may refer to.")
    if symbol.kind is SymbolKind.END:
        first = symbol.name in ("src", "from")
        edge = view.declaration(TypeKind.EDGE, symbol.owner)
        of = "" if edge is None else f" `{edge.source if first else edge.target}`"
        return f"The {'source' if first else 'target'}{of} of the edge `{symbol.owner}`, by its key."
    if symbol.kind is SymbolKind.PROPERTY:
        return _property(symbol, view)
    if symbol.kind in _TYPE_KINDS:
        is_variable = symbol.kind in (SymbolKind.VARIABLE, SymbolKind.EDGE_VARIABLE)
        name = symbol.owner if is_variable else symbol.name
        declared = view.declaration(_TYPE_KINDS[symbol.kind], name)
        text = "" if declared is None else _declaration(view, declared)
        return _joined(_fenced(f"{symbol.name}: {name}", "gq"), text) if is_variable and name else text
    words = {
        SymbolKind.KEYWORD: SCHEMA_WORDS if file.path == file.schema else QUERY_WORDS,
        SymbolKind.FUNCTION: FUNCTION_WORDS,
        SymbolKind.ANNOTATION: ANNOTATIONS,
        SymbolKind.BASE_TYPE: TYPE_WORDS,
    }
    line = words[symbol.kind].get(symbol.name, "")
    sign = "@" if symbol.kind is SymbolKind.ANNOTATION else ""
    return f"**{sign}{symbol.name}**\n\n{line}" if line else ""


def _declaration(view: SchemaView, declaration: Declaration) -> str:
    """A type with its head, its properties, also those of interfaces, its constraints and its descriptions."""
    lines = [each.text for _, each in view.properties(declaration).values()]
    lines += declaration.rules
    body = "".join(f"\n    {line}" for line in lines)
    code = f"{declaration.head} {{{body}\n}}" if body else declaration.head
    return _joined(_fenced(code, "pg"), _plain(declaration.description), _plain(declaration.instruction))


def _property(symbol: Symbol, view: SchemaView) -> str:
    found = view.property(symbol)
    if found is None:
        return ""
    owner, declared = found
    used = view.declaration(symbol.type_kind, symbol.owner) or owner
    name = re.compile(rf"[(,] ?{re.escape(symbol.name)} ?[,)]")
    rules = [f"`{rule}`" for rule in used.rules if name.search(rule)]
    source = "" if owner.name == used.name else f"From the interface `{owner.name}`."
    return _joined(_fenced(f"{used.name}.{declared.text}", "pg"), *rules, source, _plain(declared.description))


def _fenced(code: str, language: str) -> str:
    """Code of the user in a fence that the code cannot close."""
    fence = max([*_FENCES.findall(code), "``"], key=len) + "`"
    return f"{fence}{language}\n{code}\n{fence}"


def _plain(text: str) -> str:
    """Text of the user without a meaning as markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _joined(*parts: str) -> str:
    """The parts that are not empty, as paragraphs."""
    return "\n\n".join(part for part in parts if part)
