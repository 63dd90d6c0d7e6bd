"""Definitions, references, hovers and renames: where a name is declared and used, what it means, and how to rename it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.gitops_yaml import GITOPS_KEYS
from gitops.cluster.config.keys import CLUSTER_KEYS, documentation_path
from gitops.cluster.config.named_clusters import CONFIG_FILE as GITOPS_FILE
from gitops.cluster.config.source import PathKind, SourceError
from gitops.database.language.schema import TypeKind
from gitops.database.language.text import Span
from gitops.editor.documentation import ANNOTATIONS, FUNCTION_WORDS, QUERY_WORDS, SCHEMA_WORDS, TYPE_WORDS
from gitops.editor.query import ANONYMOUS
from gitops.editor.schema import TYPE_KINDS, Declaration, SchemaView
from gitops.editor.symbols import Occurrence, PathSpan, Symbol, SymbolKind, is_local, occurrence_at
from gitops.editor.texts import QUERIES, SCHEMA, EditorFile, GraphUse, TextCache, folder_of, graph_files, join_path
from gitops.editor.tokens import TextPiece

_NAME = re.compile(r"[a-z_][A-Za-z0-9_]*")
_MAX_NAME = 255
_MAX_FILES = 2_000
_KEYWORDS = frozenset({"true", "false", "asc", "desc", "as"})
_RESERVED = "__nanograph_now"
_START = Span(0, 0)
_NOT_RENAMED = (
    "only variables, parameters and aliases of a query can be renamed: the name of a type or property is data, which a "
    "migration renames (`@rename_from`), and callers use the name of a query"
)
_WITHOUT_REFERENCES = frozenset(
    {SymbolKind.KEYWORD, SymbolKind.FUNCTION, SymbolKind.ANNOTATION, SymbolKind.BASE_TYPE, SymbolKind.END}
)


class FileOccurrence(NamedTuple):
    """An occurrence in a file: its symbol, its span in the file, and the piece that contains it."""

    symbol: Symbol
    span: Span
    piece: TextPiece


def is_cluster_file(path: str) -> bool:
    """Return True if this is a `cluster.yaml`."""
    return path.rpartition("/")[2] == CONFIG_FILE


def keys_of(path: str) -> Mapping[str, str] | None:
    """Return the documented keys of `cluster.yaml`, or of the top-level `gitops.yaml`. None for other files."""
    if is_cluster_file(path):
        return CLUSTER_KEYS
    return GITOPS_KEYS if path == GITOPS_FILE else None


def find_occurrence(cache: TextCache, file: EditorFile, offset: int) -> FileOccurrence | None:
    """Return the occurrence at an offset of a schema or query file."""
    occurrences: tuple[Occurrence, ...] = ()
    piece = TextPiece(0, b"")
    if file.path.endswith(SCHEMA):
        pieces = reversed(cache.schema_view(file.data).pieces)
        piece, occurrences = next(((p, read.occurrences) for p, read in pieces if p.start <= offset), (piece, ()))
    elif file.path.endswith(QUERIES):
        piece = cache.piece_at(file.data, offset)
        occurrences = cache.query_view(piece.data, cache.schema_of(file)).occurrences
    found = occurrence_at(occurrences, offset - piece.start)
    return None if found is None else FileOccurrence(found.symbol, piece.in_file(found), piece)


def definitions(cache: TextCache, file: EditorFile, offset: int) -> tuple[PathSpan, ...]:
    """Return the declarations of the name at an offset: in this file, in the schema, or in a file of `cluster.yaml`."""
    if keys_of(file.path) is not None:
        return tuple(_settings_definitions(cache, file, offset))
    found = find_occurrence(cache, file, offset)
    declared = None if found is None else declared_at(cache, file, found)
    return () if declared is None else (declared,)


def declared_at(cache: TextCache, file: EditorFile, found: FileOccurrence) -> PathSpan | None:
    """Return the declaration of an occurrence's symbol; None for keywords and undeclared names."""
    symbol = found.symbol
    if is_local(symbol):
        if symbol.declared is None:
            return None
        start = found.piece.start + symbol.declared
        return PathSpan(file.path, Span(start, start + len(symbol.name)))
    if symbol.kind is SymbolKind.QUERY:
        return PathSpan(file.path, found.span)
    if file.schema is None:
        return None
    view = cache.view_of(file)
    if symbol.kind is SymbolKind.END:
        edge = view.declaration(TypeKind.EDGE, symbol.owner)
        if edge is None:
            return None
        symbol = Symbol(SymbolKind.NODE, edge.source if symbol.name in ("src", "from") else edge.target)
    span = view.span(symbol)
    return None if span is None else PathSpan(file.schema, span)


def references(cache: TextCache, file: EditorFile, offset: int) -> tuple[PathSpan, ...]:
    """Return every occurrence of the name at an offset: in its query, or in all files of its graphs."""
    found = find_occurrence(cache, file, offset)
    if found is None or found.symbol.kind in _WITHOUT_REFERENCES:
        return ()
    if is_local(found.symbol):
        return tuple(PathSpan(file.path, span) for span in _spans_in_query(cache, file, found))
    spans = {PathSpan(file.path, found.span)}
    declared = declared_at(cache, file, found)
    if found.symbol.kind is not SymbolKind.QUERY and declared is not None:
        for use in file.uses:
            spans.update(_references_in_graph(cache, file, use, declared))
    return tuple(sorted(spans, key=lambda each: (each.path, each.span.start)))


def rename_problem(cache: TextCache, file: EditorFile, offset: int, name: str | None = None) -> str | None:
    """Explain why the name at an offset cannot be renamed (to `name`, if given); None if it can."""
    found = find_occurrence(cache, file, offset) if file.path.endswith(QUERIES) else None
    if found is None or not is_local(found.symbol) or found.symbol.declared is None or found.symbol.name == ANONYMOUS:
        return _NOT_RENAMED
    if name is None:
        return None
    sign = "$" if found.symbol.name.startswith("$") else ""
    bare = name.removeprefix(sign)
    if _NAME.fullmatch(bare) is None or bare in ("_", _RESERVED) or bare in _KEYWORDS or len(bare) > _MAX_NAME:
        return f"`{name[:40]}` is not a valid name: a name is a lower-case letter or `_`, then letters, digits and `_`"
    taken = {each.symbol.name for each in _query_occurrences(cache, file, found) if is_local(each.symbol)}
    if sign + bare != found.symbol.name and sign + bare in taken:
        return f"`{sign}{bare}` is already a name in this query"
    return None


def rename_edits(cache: TextCache, file: EditorFile, offset: int, name: str) -> tuple[tuple[Span, str], ...]:
    """Return the edits that rename the name at an offset. Empty if `rename_problem` returns a reason."""
    found = find_occurrence(cache, file, offset)
    if found is None or rename_problem(cache, file, offset, name) is not None:
        return ()
    text = f"${name.removeprefix('$')}" if found.symbol.name.startswith("$") else name
    return tuple((span, text) for span in _spans_in_query(cache, file, found))


def _query_occurrences(cache: TextCache, file: EditorFile, found: FileOccurrence) -> tuple[Occurrence, ...]:
    return cache.query_view(found.piece.data, cache.schema_of(file)).occurrences


def _spans_in_query(cache: TextCache, file: EditorFile, found: FileOccurrence) -> Iterator[Span]:
    for each in _query_occurrences(cache, file, found):
        if each.symbol == found.symbol:
            yield found.piece.in_file(each)


def _references_in_graph(cache: TextCache, file: EditorFile, use: GraphUse, declared: PathSpan) -> Iterator[PathSpan]:
    """Yield the occurrences, in a graph's files, of the symbol declared at one place."""
    schema = cache.file(file.tree, use.schema)
    if schema is None:
        return
    view = cache.schema_view(schema.data)
    declared_span = functools.cache(view.span)
    if declared.path == use.schema:
        for piece, content in view.pieces:
            for each in content.occurrences:
                if declared_span(each.symbol) == declared.span:
                    yield PathSpan(use.schema, piece.in_file(each))
    listed = dict.fromkeys(path for _, path in graph_files(file.tree, use))
    for path in list(listed)[:_MAX_FILES]:
        try:
            data = file.data if path == file.path else file.tree.read(path)
        except SourceError:
            continue
        for piece in cache.pieces(data):
            for each in cache.query_view(piece.data, schema.data).occurrences:
                if declared_span(each.symbol) == declared.span:
                    yield PathSpan(path, piece.in_file(each))


def _settings_definitions(cache: TextCache, file: EditorFile, offset: int) -> Iterator[PathSpan]:
    """Yield the files, queries and graphs that a word in `cluster.yaml` or `gitops.yaml` refers to."""
    view = cache.cluster_view(file.data)
    found = view.at(offset)
    if found is None:
        return
    entry, value = found
    path = entry.path
    if path[:1] == ("policies",) and path[2:] == ("applies_to",) and value is not entry.key:
        graph = view.names("graphs").get(value.text.removeprefix("graph."))
        if graph is not None:
            yield PathSpan(file.path, graph.span)
    elif path[:1] == ("graphs",) and path[2:3] == ("queries",) and len(path) in (4, 5):
        for listed in view.values(*path[:4], "file"):
            named = _named_file(file, listed.text)
            if named is None:
                return
            pieces = cache.pieces(file.tree.read(named))
            declared = ((piece, cache.query_view(piece.data, None).name) for piece in pieces)
            spans = [piece.in_file(name) for piece, name in declared if name is not None and name.text == path[3]]
            yield PathSpan(named, spans[0] if spans else _START)
            if spans:
                return
    elif value is not entry.key:
        named = _named_file(file, f"{value.text}/{CONFIG_FILE}" if path == ("clusters", "path") else value.text)
        if named is not None:
            yield PathSpan(named, _START)


def _named_file(file: EditorFile, written: str) -> str | None:
    """Return the path of a file listed in `cluster.yaml`, if it can be read."""
    try:
        path = join_path(folder_of(file.path), written)
        if file.tree.kind(path) is PathKind.FILE:
            file.tree.read(path)
            return path
    except SourceError:
        pass
    return None


# Hovers: the documentation of the word at an offset, in Markdown.


_MARKUP = re.compile(r"([\\`*_\[\]<>#|!~])")
_FENCES = re.compile(r"`{3,}")
_TYPE_KINDS = TYPE_KINDS | {SymbolKind.VARIABLE: TypeKind.NODE, SymbolKind.EDGE_VARIABLE: TypeKind.EDGE}
_MAX_SHOWN = 4_000


class Hover(NamedTuple):
    """The text to show for the word in a span."""

    span: Span
    markdown: str


def hover(cache: TextCache, file: EditorFile, offset: int) -> Hover | None:
    """Return the documentation of the word at an offset. None for an unknown name, and between words."""
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
    """Return a type with its head, all properties including inherited ones, constraints and descriptions."""
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
    """Return user code in a fence that the code itself cannot close."""
    fence = max([*_FENCES.findall(code), "``"], key=len) + "`"
    return f"{fence}{language}\n{code}\n{fence}"


def _plain(text: str) -> str:
    """Return user text with all markup escaped."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _joined(*parts: str) -> str:
    """Join the parts that are not empty as paragraphs."""
    return "\n\n".join(part for part in parts if part)
