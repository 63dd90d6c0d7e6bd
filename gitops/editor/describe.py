"""Hovers: what the word at an offset stands for, in Markdown."""

from __future__ import annotations

import re
from typing import NamedTuple

from gitops.editor.cluster import doc_path
from gitops.editor.navigate import Word, is_cluster_file, word_at
from gitops.editor.schema import Declaration, SchemaView
from gitops.editor.symbols import Sort, Symbol
from gitops.editor.texts import File, Texts
from gitops.editor.words import ANNOTATIONS, CLUSTER_KEYS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.language.schema.types import TypeKind
from gitops.language.text import Span

__all__ = ["Hover", "fenced", "hover", "words_of"]

_MARKUP = re.compile(r"([\\`*_\[\]<>#|!~])")
_FENCES = re.compile(r"`{3,}")
_KINDS = {Sort.NODE: TypeKind.NODE, Sort.EDGE: TypeKind.EDGE, Sort.INTERFACE: TypeKind.INTERFACE}
_MAX_SHOWN = 4_000


class Hover(NamedTuple):
    """What is shown for the word in a span."""

    span: Span
    markdown: str


def hover(texts: Texts, file: File, offset: int) -> Hover | None:
    """What there is to say about the word at an offset; None for a name that is not known, and between words."""
    if is_cluster_file(file.path):
        return _key(texts, file, offset)
    word = word_at(texts, file, offset)
    if word is None:
        return None
    text = _words(texts, file, word)
    return Hover(word.span, text[:_MAX_SHOWN]) if text else None


def words_of(symbol: Symbol, *, schema: bool = False) -> str:
    """The documentation of a word of the languages."""
    if symbol.sort is Sort.KEYWORD:
        return (SCHEMA_WORDS if schema else QUERY_WORDS).get(symbol.name, "")
    tables = {Sort.FUNCTION: FUNCTION_WORDS, Sort.ANNOTATION: ANNOTATIONS, Sort.BASE_TYPE: TYPE_WORDS}
    return tables[symbol.sort].get(symbol.name, "") if symbol.sort in tables else ""


def fenced(code: str, language: str) -> str:
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
    return _joined(fenced(code, "pg"), *(_plain(each) for each in said if each))


def _words(texts: Texts, file: File, word: Word) -> str:
    symbol = word.symbol
    view = texts.view_of(file)
    if symbol.sort is Sort.QUERY:
        return _query(texts, file, word)
    if symbol.sort is Sort.PARAMETER:
        return fenced(f"{symbol.name}: {symbol.owner or '?'}", "gq") + "\n\nA parameter of this query."
    if symbol.sort is Sort.ALIAS:
        return fenced(symbol.name, "gq") + "\n\nThe name of a return item, which `order` may refer to."
    if symbol.sort in (Sort.VARIABLE, Sort.EDGE_VARIABLE):
        return _variable(symbol, view)
    if symbol.sort is Sort.END:
        first = symbol.name in ("src", "from")
        edge = None if view is None else view.get(TypeKind.EDGE, symbol.owner)
        of = "" if edge is None else f" `{edge.source if first else edge.target}`"
        return f"The {'source' if first else 'target'}{of} of the edge `{symbol.owner}`, by its key."
    if symbol.sort is Sort.PROPERTY:
        return "" if view is None else _property(symbol, view)
    if symbol.sort in _KINDS:
        declaration = None if view is None else view.get(_KINDS[symbol.sort], symbol.name)
        return "" if view is None or declaration is None else declaration_text(view, declaration)
    said = words_of(symbol, schema=file.path == file.schema)
    return f"**{'@' * (symbol.sort is Sort.ANNOTATION)}{symbol.name}**\n\n{said}" if said else ""


def _variable(symbol: Symbol, view: SchemaView | None) -> str:
    if not symbol.owner:
        return ""
    kind = TypeKind.EDGE if symbol.sort is Sort.EDGE_VARIABLE else TypeKind.NODE
    declaration = None if view is None else view.get(kind, symbol.owner)
    head = fenced(f"{symbol.name}: {symbol.owner}", "gq")
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
    head = fenced(f"{used.name}.{declared.text}", "pg")
    return _joined(
        head, *(f"`{rule}`" for rule in rules), *source, *([_plain(declared.description)] * bool(declared.description))
    )


def _query(texts: Texts, file: File, word: Word) -> str:
    piece = texts.piece_at(file.data, word.start)
    view = texts.query_view(piece.data, texts.schema_of(file))
    params = ", ".join(f"{each.name}: {each.owner}" for each in view.parameters.values())
    head = fenced(f"query {word.symbol.name}({params})", "gq")
    return _joined(head, *([_plain(view.description)] * bool(view.description)))


def _key(texts: Texts, file: File, offset: int) -> Hover | None:
    found = texts.cluster_view(file.data).at(offset)
    if found is None:
        return None
    entry, value = found
    said = CLUSTER_KEYS.get(doc_path(entry.path))
    return Hover(value.span, f"**{_plain('.'.join(entry.path))}**\n\n{said}") if said else None


def _plain(text: str) -> str:
    """Text of the user as it is, and never as markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _joined(*parts: str) -> str:
    return "\n\n".join(parts)
